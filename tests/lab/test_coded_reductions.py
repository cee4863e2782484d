"""All-reduces by codecs in virtual time: equal to the bit to the codec over arrays, and as fast as their bytes."""

import numpy as np
import pytest
from capabilities import need

from ina import codecs
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.base.settings import ConfigError
from ina.codecs import registry
from ina.codecs.lanes import Packing
from ina.codecs.omnireduce import BLOCK, blocks_of, used_blocks
from ina.codecs.sketch import Sketch
from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.virtual.virtual_network import WrongSum

MILLION = 1_000_000
HEADERS = 76  # bytes of a packet of 256 values, Ethernet's included, in SwitchML's paper


@pytest.fixture
def tensors(monkeypatch) -> list[np.ndarray]:
    """Tensors of the workers, once they are made."""
    made: list[np.ndarray] = []
    make = allreduce._tensors
    monkeypatch.setattr(allreduce, "_tensors", lambda rng, config: made.extend(make(rng, config)) or made)
    return made


def union_of(tensors: list[np.ndarray]) -> int:
    """Returns the number of values in blocks that are not zero at some worker."""
    return BLOCK * np.count_nonzero(np.any([used_blocks(each) for each in tensors], axis=0))


@pytest.mark.build
@pytest.mark.parametrize("rate", [10e9, 100e9])
@pytest.mark.parametrize(("sparsity", "size"), [(0.0, 1 << 18), (0.9, 1 << 20), (0.99, 1 << 21), (0.999, 1 << 22)])
def test_omnireduce_takes_the_time_of_the_unions_bytes(tensors, rate, sparsity, size):
    need("cc")
    config = AllReduce(codec="omnireduce", dtype="float32", elements=size, workers=8, sparsity=sparsity, rate=rate)
    measured = config.measure()[0].seconds
    union = union_of(tensors)
    index = 4 * -(-blocks_of(size) // 8)  # counts to 8 take 4 bits
    round_trip = 2 * config.delay + 8 * (4 * BLOCK + HEADERS) / rate
    expected = 8 * (4 * union * (1 + HEADERS / 1024) + index) / rate + 3 * round_trip
    assert measured == pytest.approx(expected, rel=0.05)


@pytest.mark.build
@pytest.mark.parametrize(("rate", "pool", "sparsity", "size"), [
    (10e9, 32, 0.0, 1 << 18), (10e9, 32, 0.5, 1 << 19), (10e9, 32, 0.9, 1 << 20), (10e9, 32, 0.96, 1 << 20),
    (10e9, 32, 0.99, 1 << 20), (10e9, 512, 0.99, 1 << 20), (10e9, 512, 0.999, 1 << 20), (100e9, 128, 0.0, 1 << 20),
    (100e9, 128, 0.9, 1 << 20)])
def test_look_ahead_takes_the_time_of_the_unions_bytes(tensors, rate, pool, sparsity, size):
    """Each slot's first and last packets are its index: of 64 bytes, where their blocks are zero."""
    need("cc")
    config = AllReduce(codec="omnireduce-ahead", protocol="omnireduce", dtype="float32", elements=size, workers=8,
                       sparsity=sparsity, rate=rate, pool=pool)
    measured = config.measure()[0].seconds
    ends = np.any([used_blocks(each) for each in tensors], axis=0)[[*range(pool), *range(-pool, 0)]]
    index, round_trip = np.count_nonzero(~ends) * (64 + ETHERNET_OVERHEAD), 2 * config.delay + 8 * (4 * BLOCK + HEADERS) / rate
    expected = 8 * (4 * union_of(tensors) * (1 + HEADERS / 1024) + index) / rate + 2 * round_trip
    assert measured == pytest.approx(expected, rel=0.05)


def of_integers():
    """Names of codecs whose rounds are of integers, which any program adds up."""
    floats = {*(name for name in codecs.names() if codecs.named(name).accumulator == codecs.named("block").accumulator), "intsgd"}
    return [name for name in codecs.names() if name not in floats and not codecs.named(name).why_not("switchml")]


@pytest.mark.build
@pytest.mark.parametrize(("codec", "switch"), [*((name, "embedded") for name in of_integers()),
                                               *((name, "tna") for name in ("omnireduce", "sketch", "exact", "thc", "lanes-16"))])
def test_sums_are_equal_to_the_bit_with_losses_and_duplicates_on_the_tofino_twin_too(codec, switch):
    need("cc")
    config = AllReduce(codec=codec, dtype="float32", elements=30_001, workers=3, sparsity=0.8, switch=switch,
                       values=64, loss=0.03, duplicate=0.03, jobs=2)
    reductions = config.measure()  # compares every worker's result
    assert len(reductions) == 2 and sum(each.summary()["retransmissions"] for each in reductions) > 0


@pytest.mark.build
@pytest.mark.parametrize("switch", ["embedded", "tna"])
@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0, 0), (0.85, 0.4, 0.7), (0.95, 0.6, 0.85)])
def test_values_that_a_full_sketch_cannot_give_back_go_densely_through_the_switch(monkeypatch, load, least, most, switch):
    need("cc")
    sketches: list[Sketch] = []

    def make() -> Sketch:
        sketches.append(Sketch(load))
        return sketches[-1]

    monkeypatch.setitem(registry._REGISTERED, "loaded", make)
    config = AllReduce(codec="loaded", dtype="float32", elements=30_001, workers=3, sparsity=0.8, switch=switch,
                       values=64, loss=0.03, duplicate=0.03)
    (reduction,) = config.measure()  # compares every worker's result
    assert reduction.summary()["retransmissions"] > 0
    used = [each for each in sketches if each.union]
    assert len(used) == 2 * config.workers, "through the switch, and over arrays"
    assert all(each.union > 10_000 and least * each.union <= each.left <= most * each.union for each in used)


@pytest.mark.build
@pytest.mark.parametrize(("words", "workers", "codec", "share"), [
    (None, 8, "lanes-16", 0.51), (Packing.of("int8", 2, wraps=True).words(MILLION), 2, "block", 0.35),
    (Packing.of("int8", 256).words(MILLION), 8, "block", 0.51), (Packing.of("bool", 8).words(MILLION), 8, "block", 0.14),
])
def test_narrow_values_take_the_time_of_their_packets(words, workers, codec, share):
    """A million values on a star of 100 Mb/s, beside as many of float32, some of whose packets are short: exponents."""
    need("cc")
    star = {"workers": workers, "rate": 100e6, "tensors": "own"}
    (wide,) = AllReduce(dtype="float32", elements=MILLION, **star).measure()
    dtype = "float32" if words is None else "int32"
    (narrow,) = AllReduce(dtype=dtype, elements=words or MILLION, codec=codec, **star).measure()
    assert narrow.summary()["packets"] <= share * wide.summary()["packets"]
    words = codecs.named(codec).traffic(words or MILLION, workers).up / 4
    assert narrow.seconds / wide.seconds == pytest.approx(words / MILLION, rel=0.03)


@pytest.mark.build
def test_parts_on_several_trees_make_one_round():
    need("cc")
    config = AllReduce(codec="omnireduce", dtype="float32", elements=20_000, workers=4, topology="leaf-spine", stripes=2,
                       sparsity=0.5)
    assert config.measure()[0].seconds > 0


@pytest.mark.build
def test_a_wrong_bit_is_noticed(monkeypatch):
    need("cc")
    right = codecs.reduced

    def wrong(each, tensors):
        results = right(each, tensors)
        results[0].view(np.int32)[7] ^= 1
        return results

    monkeypatch.setattr(codecs, "reduced", wrong)
    with pytest.raises(WrongSum, match="worker 0's result is not what codec exact gives over arrays, at 1 of 1000 places"):
        AllReduce(codec="exact", dtype="float32", elements=1000, workers=2).measure()


@pytest.mark.fast
@pytest.mark.parametrize(("keys", "text"), [
    ({"codec": "zip"}, "codec = 'zip': expected one of block, "),
    ({"world": "local"}, "codec = 'omnireduce': expected block outside virtual time"),
    ({"algorithm": "ring"}, "codec = 'omnireduce': expected block with ring"),
    ({"dtype": "int32"}, "dtype = 'int32': expected float32 with codec = 'omnireduce'"),
    ({"tensors": "common"}, "tensors = 'common': expected own with codec"),
    ({"payload": False}, "payload = False: expected true with codec"),
    ({"check": "keyed"}, "check = 'keyed': expected off or sum with codec"),
    ({"codec": "thc-lookup"}, "protocol = 'switchml': expected one with a reduction of its own"),
    ({"codec": "block", "sparsity": 1.0}, "sparsity = 1.0: expected less than 1"),
])
def test_what_no_codec_can_do_is_refused(keys, text):
    with pytest.raises(ConfigError, match=text):
        AllReduce(**{"codec": "omnireduce", "dtype": "float32", **keys}).validate()


@pytest.mark.fast
def test_a_share_of_the_blocks_is_zero_others_on_each_worker():
    config = AllReduce(elements=100 * BLOCK - 3, workers=2, sparsity=0.75)
    one, other = (used_blocks(each.astype(np.float32)) for each in allreduce._tensors(np.random.default_rng(1), config))
    assert one.sum() == other.sum() == 25 and not np.array_equal(one, other)
