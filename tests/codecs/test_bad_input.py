"""All registered codecs, also those that are yet to come: input that is none, or at an end of what there is."""

import re

import numpy as np
import pytest

from ina import codecs

pytestmark = pytest.mark.fast
LENGTHS = (0, 1, 63, 64, 65, 1000)
WORKERS = (1, 2, 3, 8, 32, 33)
BAD = (np.nan, np.inf, -np.inf)


def tensors(workers: int, size: int, dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed + 1000 * workers + size)
    values = [rng.standard_normal(size) for _ in range(workers)]
    if dtype == "bfloat16":  # the upper halves of float32
        return [(each.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for each in values]
    return [each.astype(dtype) for each in values]


def numbers(values: np.ndarray) -> np.ndarray:
    """The numbers that bits of bfloat16 stand for; others as they are."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values


def codecs_of(name: str, workers: int) -> list[codecs.Codec]:
    """One for each worker; their ``sent``: bytes of each round and its operation, of all calls."""
    return [recorded(codecs.named(name)) for _ in range(workers)]


def recorded(codec: codecs.Codec) -> codecs.Codec:
    codec.sent, inner = [], codec.reduce

    def reduce(values, call):
        running, words = inner(values, call), None
        while True:
            try:
                coming = running.send(words)
            except StopIteration as end:
                return end.value
            assert coming.words.dtype in (np.int32, np.float32) and coming.words.flags.c_contiguous
            assert coming.operation in codec.operations
            codec.sent.append((coming.words.nbytes, coming.operation))
            words = yield coming

    codec.reduce = reduce
    return codec


def reduced(each: list[codecs.Codec], own: list[np.ndarray], **options) -> np.ndarray | None:
    """The result, which is equal on all workers, while their tensors stay as they are; None: refused, for good reason."""
    before = [tensor.copy() for tensor in own]
    try:
        results = codecs.reduced(each, own, **options)
    except ValueError as error:
        limit = re.search(r"(\d+) workers.*expected at most (\d+)", str(error))
        assert limit and int(limit[1]) == len(own) > int(limit[2]) >= 8, f"no limit that says how many are possible: {error}"
        return None
    for tensor, earlier, result in zip(own, before, results, strict=True):
        assert np.array_equal(tensor.view(np.uint8), earlier.view(np.uint8))
        assert result.dtype == tensor.dtype and result.shape == tensor.shape
        assert np.array_equal(result.view(np.uint8), results[0].view(np.uint8))
    return results[0]


def check(name: str, workers: int, size: int, dtype: str, average: bool) -> None:
    each, own = codecs_of(name, workers), tensors(workers, size, dtype)
    result = reduced(each, own, average=average)
    if result is None:
        return
    exact = np.sum(np.asarray([numbers(tensor) for tensor in own], np.longdouble), axis=0) / (workers if average else 1)
    bound = each[0].bound(own, average)
    assert bound.shape == exact.shape and not np.isnan(bound).any()
    assert np.all(np.abs(numbers(result) - exact) <= bound * (1 + 1e-12))
    assert all(len(codec.sent) <= codec.rounds for codec in each)
    assert 0 <= each[0].flushed <= size
    if dtype == "float32":
        if each[0].remembers:  # the first call may be another than those that follow
            each[0].sent.clear()
            reduced(each, own, average=average, step=8)
        traffic, total = each[0].traffic(size, workers), sum(nbytes for nbytes, _ in each[0].sent)
        own = sum(nbytes for nbytes, operation in each[0].sent if operation == codecs.Operation.OWN)
        rounded = own // 2 if each[0].protocol == "requantised" else 0  # bytes that do not come back
        assert total - rounded == traffic.down if traffic.exact else total <= traffic.down
        assert traffic.up == traffic.down + rounded if rounded or not own else traffic.up <= traffic.down


@pytest.mark.parametrize("name", codecs.names())
@pytest.mark.parametrize("workers", WORKERS)
def test_every_length_and_number_of_workers_is_summed_within_the_bound_or_refused(name, workers):
    for dtype in codecs.named(name).dtypes:
        for size in LENGTHS:
            check(name, workers, size, dtype, average=bool(size % 2))


@pytest.mark.parametrize("name", codecs.names())
def test_1024_workers_are_summed_within_the_bound_or_refused(name):
    check(name, 1024, 65, "float32", average=True)


@pytest.mark.parametrize("name", codecs.names())
@pytest.mark.parametrize("bad", BAD)
def test_what_is_not_finite_on_one_worker_has_one_result_and_does_not_last(name, bad):
    """NaN or infinity in its place, or in all of its block or part; or, of a code without such values, finite ones."""
    for size in (1, 64, 1000):
        each, own = codecs_of(name, 3), tensors(3, size)
        spoilt = [own[0], own[1].copy(), own[2]]
        spoilt[1][size // 2] = bad
        result = reduced(each, spoilt)
        assert np.isfinite(result).all() or not np.isfinite(result[size // 2])
        again = reduced(each, own, step=1)
        assert np.isfinite(again).all()
        fresh = reduced(codecs_of(name, 3), own, step=1)
        assert each[0].remembers or np.array_equal(again, fresh)


@pytest.mark.parametrize("name", codecs.names())
def test_a_sum_of_zeros_is_zero(name):
    for workers in (1, 3, 8):
        for size in LENGTHS:
            own = [np.zeros(size, np.float32) for _ in range(workers)]
            own[0][::2] = -0.0
            result = reduced(codecs_of(name, workers), own)
            assert not result.any()


@pytest.mark.parametrize("name", codecs.names())
def test_the_ends_of_float32s_range_are_summed_or_say_that_they_are_not(name):
    """Finite values have a result within the bound, or NaN or an infinity: never a plausible wrong one."""
    limits = np.finfo(np.float32)
    for value in (limits.max, 2.0**127, limits.tiny, limits.smallest_subnormal, 5 * limits.smallest_subnormal):
        own = [np.full(70, value, np.float32), np.full(70, -value / 2, np.float32)]
        own[1][1::2] = 0
        each = codecs_of(name, 2)
        result = reduced(each, own)
        exact = np.sum(np.asarray(own, np.float64), axis=0)
        assert np.all((np.abs(result - exact) <= each[0].bound(own)) | ~np.isfinite(result)), value


@pytest.mark.parametrize("name", codecs.names())
@pytest.mark.parametrize("dtype", [np.float16, np.uint16, np.float32, np.float64, np.int32])
def test_tensors_of_types_that_a_codec_does_not_name_are_refused(name, dtype):
    """Some would read beyond them."""
    codec, own = codecs.named(name), [np.ones(100, dtype)]
    if {"uint16": "bfloat16"}.get(np.dtype(dtype).name, np.dtype(dtype).name) in codec.dtypes:
        assert codecs.reduced(codec, own)[0].dtype == dtype
    else:
        with pytest.raises(ValueError, match=rf"codec {name}: a tensor of {np.dtype(dtype)}, .*expected a flat and contiguous"):
            codecs.reduced(codec, own)
    with pytest.raises(ValueError, match="expected a flat and contiguous one"):
        codecs.reduced(codec, [np.ones((10, 10), codec.dtypes[0])])
    with pytest.raises(ValueError, match="expected a flat and contiguous one"):
        codecs.reduced(codec, [np.ones(200, codec.dtypes[0])[::2]])
    with pytest.raises(TypeError, match="a tensor is list, expected an array of NumPy"):
        codecs.reduced(codec, [[1.0, 2.0]])


@pytest.mark.parametrize("name", [name for name in codecs.names() if codecs.named(name).remembers])
def test_workers_do_not_share_what_a_codec_remembers(name):
    own = [np.ones(100, np.float32) for _ in range(3)]
    with pytest.raises(ValueError, match=f"codec {name} remembers: expected one for each of 3 workers"):
        codecs.reduced(codecs.named(name), own)
    assert len(codecs.reduced(codecs_of(name, 3), own)) == 3
