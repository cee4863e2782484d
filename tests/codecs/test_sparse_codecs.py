"""Sparse codecs over NumPy: sums equal to the bit to dense ones, whatever is zero where, and words that follow from the union."""

import numpy as np
import pytest

from ina import codecs
from ina.aggregation.lane import INT32
from ina.base.native import ffi, lib
from ina.codecs import omnireduce
from ina.codecs.limbs import Block32, Block64, Block256, Exact, TwoLimb
from ina.codecs.omnireduce import BLOCK, OmniReduce
from ina.codecs.pointers import pointer
from ina.codecs.sketch import Sketch, exponent_of

pytestmark = pytest.mark.fast
WORKERS = (1, 2, 8, 32, 33)
SIZES = (0, 1, 2, 255, 256, 257, 1500)


class Counted(codecs.Codec):
    """A codec whose rounds' words are counted."""

    def __init__(self, codec):
        super().__init__()
        self.codec, self.words, self.name = codec, [], codec.name

    def reduce(self, values, call):
        running, words = self.codec.reduce(values, call), None
        while True:
            try:
                coming = running.send(words)
            except StopIteration as end:
                return end.value
            self.words.append(coming.words.size)
            words = yield coming

    def bound(self, tensors, average=False):
        return self.codec.bound(tensors, average)

    def traffic(self, elements, workers):
        return self.codec.traffic(elements, workers)


def blocks(size: int, sparsity: float, workers: int, seed: int = 0) -> list[np.ndarray]:
    """Tensors of which each worker has other blocks of zeros, and another number of them."""
    tensors = []
    for rank in range(workers):
        rng = np.random.default_rng([seed, rank])
        values = rng.standard_normal(size).astype(np.float32) * 10.0 ** rng.integers(-3, 4)
        zero = rng.random(-(-size // BLOCK)) < sparsity ** (1 + rank % 3)
        values[np.repeat(zero, BLOCK)[:size]] = 0
        tensors.append(values.astype(np.float32))
    return tensors


def scattered(size: int, share: float, workers: int, seed: int = 0) -> list[np.ndarray]:
    """Tensors of which each worker has values at a share of places of its own."""
    tensors = []
    for rank in range(workers):
        rng = np.random.default_rng([seed, rank])
        values = rng.standard_normal(size).astype(np.float32)
        values[rng.random(size) >= share] = 0
        tensors.append(values)
    return tensors


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal to the bit; a NaN is a NaN."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


# ---- OmniReduce


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("code", [Block256, Block64, Block32, TwoLimb, Exact])
def test_sums_are_those_of_the_dense_tensor_to_the_bit(code, workers):
    for size in SIZES:
        for sparsity in (0.0, 0.5, 0.9, 1.0):
            tensors = blocks(size, sparsity, workers, seed=size)
            for average in (False, True):
                results = codecs.reduced(OmniReduce(code.name), tensors, average=average)
                dense = codecs.reduced(code(), tensors, average=average)[0]
                assert all(same(result, dense) for result in results), (size, sparsity, average)


def test_doubles_are_summed_exactly_too():
    tensors = [each.astype(np.float64) * np.pi for each in blocks(3000, 0.8, 3)]
    assert same(codecs.reduced(OmniReduce("exact"), tensors)[0], codecs.reduced(Exact(), tensors)[0])
    tiny = [np.zeros(600) for _ in range(2)]
    tiny[1][599] = 5e-324
    assert codecs.reduced(OmniReduce("exact"), tiny)[0][599] == 5e-324


def test_only_blocks_of_the_union_travel():
    tensors = [np.zeros(100 * BLOCK + 10, np.float32) for _ in range(8)]
    for worker, block in ((0, 3), (1, 3), (2, 50), (7, 100)):  # the last block has 10 values
        tensors[worker][block * BLOCK + 9] = 1 + worker
    counted = Counted(OmniReduce())
    result = codecs.reduced(counted, tensors)[0]
    rounds = counted.words[::8]
    assert rounds == [-(-101 // 8), 2 * 3, 2 * BLOCK + 10], "counts of 4 bits, surveys, values"
    assert counted.codec.share == (2 * BLOCK + 10) / (100 * BLOCK + 10)
    assert result[3 * BLOCK + 9] == 3 and result[50 * BLOCK + 9] == 3 and result[-1] == 8 and np.count_nonzero(result) == 3


def test_zeros_take_the_index_alone():
    counted = Counted(OmniReduce())
    result = codecs.reduced(counted, [np.array([0.0, -0.0] * 2000, np.float32)] * 4)[0]
    assert counted.words == [-(-16 // 10)] * 4
    assert same(result, np.zeros(4000, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_infinity_or_nan_of_one_worker_stays_with_its_element(bad):
    tensors = blocks(10 * BLOCK, 0.7, 4)
    tensors[2][5 * BLOCK : 6 * BLOCK] = 0
    tensors[2][5 * BLOCK + 17] = bad
    result = codecs.reduced(OmniReduce(), tensors)[0]
    assert same(result, codecs.reduced(Block256(), tensors)[0])
    others = np.delete(result, 5 * BLOCK + 17)
    assert np.isfinite(others).all() and (np.isnan(result[5 * BLOCK + 17]) if np.isnan(bad) else result[5 * BLOCK + 17] == bad)


def test_flushed_values_are_counted_as_in_the_dense_code():
    tensors = [np.zeros(BLOCK * 3, np.float32) for _ in range(2)]
    tensors[0][:2], tensors[1][700:702] = (1, 1e-20), (1e-20, 5)
    sparse, dense = OmniReduce(), Block256()
    codecs.reduced(sparse, tensors)
    codecs.reduced(dense, tensors)
    assert sparse.flushed == dense.flushed == 2


def test_blocks_have_to_fit_into_256_values():
    with pytest.raises(ValueError, match="omnireduce: code 'thc': expected one of block-256, block-64, .*exact"):
        OmniReduce("thc")


def test_blocks_with_a_value_are_found():
    for dtype in (np.float32, np.float64):
        values = np.zeros(1003, dtype)
        values[[256, 1002]] = np.finfo(dtype).smallest_subnormal, np.nan
        values[600] = -0.0
        assert omnireduce.used_blocks(values).tolist() == [0, 1, 0, 1]


# ---- the choice between both


def test_a_bucket_that_becomes_dense_travels_dense_and_is_counted_again():
    each = [codecs.named("auto-sparse") for _ in range(3)]
    few, many = blocks(40 * BLOCK, 0.9, 3), blocks(40 * BLOCK, 0.0, 3)

    def ways(calls: int, tensors: list[np.ndarray]) -> str:
        letters = ""
        for _ in range(calls):
            results = codecs.reduced(each, tensors)
            assert all(same(result, codecs.reduced(Block256(), tensors)[0]) for result in results)
            assert len({codec.reason for codec in each}) == 1, "all workers decide alike"
            letters += each[0].reason[0]
        return letters

    assert ways(3, few) == "ooo"
    assert ways(40, many) == "o" + 31 * "b" + "o" + 7 * "b", "one of 32 calls is counted"
    assert each[0].reason == "block-256: blocks with values were 100% of the tensor when last counted, more than 90%"
    assert ways(30, few) == 24 * "b" + 6 * "o"
    assert each[0].reason.startswith("omnireduce: blocks with values were ")


def test_the_choice_counts_flushed_values_once():
    tensors = [np.full(BLOCK, 1e-20, np.float32) for _ in range(2)]
    for each in tensors:
        each[0] = 1
    each = [codecs.named("auto-sparse") for _ in tensors]
    for calls in (1, 2, 3):
        codecs.reduced(each, tensors)
        assert [codec.flushed for codec in each] == 2 * [calls * (BLOCK - 1)]


# ---- the sketch


def dense_sums(tensors: list[np.ndarray]) -> np.ndarray:
    """The sums of the same integers in a dense tensor."""
    exponent = max(map(exponent_of, tensors))
    unit = INT32.unit(exponent, len(tensors))
    total = np.sum([np.rint(each.astype(np.float64) / unit).astype(np.int64) for each in tensors], axis=0)
    return (total * unit).astype(np.float32)


@pytest.mark.parametrize("workers", WORKERS)
def test_sums_are_those_of_integers_in_a_dense_tensor_to_the_bit(workers):
    for size in SIZES[1:]:
        for share in (0.0, 0.01, 0.5, 1.0):
            tensors = scattered(size, share, workers, seed=size)
            if not np.any(tensors):
                assert not codecs.reduced(Sketch(), tensors)[0].any()
                continue
            results = codecs.reduced(Sketch(), tensors)
            assert all(same(result, dense_sums(tensors)) for result in results), (size, share)
            average = codecs.reduced(Sketch(), tensors, average=True)[0]
            assert np.abs(average - np.mean(tensors, axis=0, dtype=np.float64)).max() <= Sketch().bound(tensors, True).max()


@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0, 0), (0.8, 0, 0), (0.85, 0.4, 0.7), (0.9, 0.5, 0.8), (3, 0.99, 1)])
def test_values_that_cannot_be_peeled_go_densely_and_the_sums_stay_exact(load, least, most):
    tensors = scattered(1 << 20, 0.01, 3)
    counted = Counted(Sketch(load))
    result = codecs.reduced(counted, tensors)[0]
    assert same(result, dense_sums(tensors))
    left, union = counted.codec.left, counted.codec.union
    assert union == np.count_nonzero(np.any(tensors, axis=0)) > 30_000
    assert least * union <= left <= most * union
    assert counted.words[::3] == [1, (1 << 20) // 16, 3 * -(-union // (3 * load)) + left], "2 bits a value, 16 in a word"


def test_the_default_sends_1_3_words_for_a_value_of_the_union():
    counted = Counted(Sketch())
    codecs.reduced(counted, scattered(1 << 20, 0.02, 2))
    assert counted.codec.left == 0 and counted.words[-1] == pytest.approx(1.3 * counted.codec.union, abs=3)


def colliding(each: int, step: int, places: int) -> np.ndarray:
    """Places of which all three buckets are those of the first."""
    triples = [[lib.ina_sketch_hash(place, 3 * step + r) * each >> 32 for r in range(3)] for place in range(places)]
    return np.array([place for place, triple in enumerate(triples) if triple == triples[0]])


def test_values_all_in_one_bucket_go_densely_and_are_exact_and_the_next_call_hashes_anew():
    each = 7
    places = colliding(each, step=0, places=20_000)[:20]
    assert len(places) == 20
    tensors = [np.zeros(20_000, np.float32) for _ in range(2)]
    tensors[0][places], tensors[1][places[::2]] = 3.5, -1
    codec = Sketch(load=20 / (3 * each - 1))
    assert same(codecs.reduced(codec, tensors)[0], dense_sums(tensors)) and codec.left == 20
    lighter = Sketch(load=20 / (3 * 40 - 1))
    assert same(codecs.reduced(lighter, tensors, step=1)[0], dense_sums(tensors)) and lighter.left == 0


def test_hashes_are_murmurs():
    """Checks published vectors of "test", and that of zeros with seed 0."""
    text = int.from_bytes(b"test", "little")
    assert lib.ina_sketch_hash(text, 0) == 0xBA6BD213 and lib.ina_sketch_hash(text, 0x9747B28C) == 0x704B81DC
    assert lib.ina_sketch_hash(0, 0) == 0x2362F9DE


@pytest.mark.parametrize("load", [0.3, 0.7, 0.8, 0.9, 2.0])
def test_as_many_values_peel_as_by_sets(load):
    count = 2000
    each = int(count / load / 3)
    places = np.random.default_rng(1).choice(1 << 31, count, replace=False).astype(np.uint32)
    held: dict[int, set[int]] = {}
    of = [[r * each + (lib.ina_sketch_hash(place, 3 * 5 + r) * each >> 32) for r in range(3)] for place in map(int, places)]
    for value, its in enumerate(of):
        for bucket in its:
            held.setdefault(bucket, set()).add(value)
    while alone := [bucket for bucket, values in held.items() if len(values) == 1]:
        for bucket in alone:
            for value in list(held[bucket]):
                for other in of[value]:
                    held[other].discard(value)
    stuck = set().union(*held.values())
    sketch = ffi.new("struct ina_sketch *", {"count": count, "each": each, "seed": 5, "places": pointer(places)})
    order, ranges, scratch = np.empty(count, np.uint32), np.empty(count, np.uint8), np.empty(9 * each, np.uint32)
    peeled = lib.ina_sketch_order(sketch, pointer(order), pointer(ranges), pointer(scratch))
    assert set(order[peeled:].tolist()) == stuck and sorted(order.tolist()) == list(range(count))
    assert all((ranges[value] == lib.INA_SKETCH_LEFT) == (value in stuck) for value in range(count))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_with_an_infinity_or_nan_a_tensor_travels_in_blocks(bad):
    tensors = scattered(5000, 0.05, 3)
    tensors[1][4000] = bad
    result = codecs.reduced(Sketch(), tensors)[0]
    assert same(result, codecs.reduced(Block64(), tensors)[0]) and np.count_nonzero(~np.isfinite(result)) == 1


def test_values_of_any_size_and_those_far_below_the_largest_are_counted():
    for scale in (1e-42, 1e-30, 3e38):
        tensors = [np.array([0, scale, -scale / 4, 0], np.float32), np.array([scale / 8, 0, -scale / 4, 0], np.float32)]
        assert np.allclose(codecs.reduced(Sketch(), tensors)[0] / np.float64(scale), [0.125, 1, -0.5, 0], atol=0.01)
    codec = Sketch()
    assert codecs.reduced(codec, [np.array([1, 1e-12, 0], np.float32)])[0].tolist() == [1, 0, 0] and codec.flushed == 1


@pytest.mark.parametrize("load", [0, -1, float("nan")])
def test_a_load_that_cannot_be_is_refused(load):
    with pytest.raises(ValueError, match="load = .*expected values in a bucket"):
        Sketch(load)
