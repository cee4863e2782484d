"""Floats of 16 bits, beside others' conversions, and in codecs that read and write them as they are."""

from __future__ import annotations

import capabilities
import numpy as np
import pytest

from ina import codecs
from ina.codecs.halves import BFLOAT16, FLOAT16, narrowed, widened

pytestmark = pytest.mark.fast
EVERY = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
NAMES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
LANES = [name for name in codecs.names() if {"float16", "bfloat16"} <= {*codecs.named(name).dtypes}]


def theirs(name: str):
    if name == "float16":
        return FLOAT16
    capabilities.need("ml_dtypes")
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def near_every(name: str) -> np.ndarray:
    """float32 values at, halfway between, and just beside those of each type, and of all magnitudes."""
    values = EVERY.view(theirs(name)).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    halfway = (values[:-1].astype(np.float64) + values[1:]) / 2
    beside = [np.nextafter(halfway.astype(np.float32), np.float32(side)) for side in (np.inf, -np.inf)]
    magnitudes = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)
    largest = np.float32([65504, 65519.996, 65520, 65536, 3.3895314e38, 3.39e38, 3.4028235e38, np.inf])
    return np.concatenate([values, halfway.astype(np.float32), *beside, magnitudes, largest, -largest])


@np.errstate(over="ignore")
def single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns True if the bits are the same, or both are no numbers."""
    nan = np.isnan(one)
    return bool(np.array_equal(nan, np.isnan(other)) and np.array_equal(one.view(np.uint32)[~nan], other.view(np.uint32)[~nan]))


@pytest.mark.parametrize("name", NAMES)
def test_every_half_is_widened_exactly(name):
    assert same(widened(EVERY.view(NAMES[name])), EVERY.view(theirs(name)).astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_floats_are_rounded_as_others_do(name):
    x = near_every(name)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(theirs(name)).astype(np.float32)
    assert same(widened(narrowed(x, NAMES[name])), expected)
    negative = narrowed(np.float32([-0.0, 0.0]), NAMES[name]).view(np.uint16)
    assert negative.tolist() == [0x8000, 0]


def test_the_lanes_of_floats_read_halves():
    assert {"lanes-16", "mx-int8", "nvfp4", "fp8-e4m3"} <= {*LANES}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000, 4097, 12345])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("name", LANES)
def test_halves_are_summed_as_float32_and_rounded_once_more(name, dtype, average, size):
    """The same bits as by float32: what is in lanes, and what is flushed."""
    rng = np.random.default_rng(size)
    wide = [(rng.standard_normal(size) * np.exp(rng.uniform(-8, 8, size))).astype(np.float32) for _ in range(3)]
    own = [narrowed(each, NAMES[dtype]) for each in wide]
    halves, floats = codecs.named(name), codecs.named(name)
    result = codecs.reduced(halves, own, average=average)
    expected = codecs.reduced(floats, [widened(each) for each in own], average=average)
    assert halves.flushed == floats.flushed
    for each, other in zip(result, expected, strict=True):
        assert each.dtype == NAMES[dtype] and np.array_equal(each.view(np.uint16), narrowed(other, NAMES[dtype]).view(np.uint16))
    if size:
        exact = np.sum([widened(each).astype(np.float64) for each in own], axis=0) / (3 if average else 1)
        assert np.all(np.abs(widened(result[0]) - exact) <= halves.bound(own, average))


@pytest.mark.parametrize("dtype", NAMES)
def test_a_half_that_is_no_number_stays_in_its_block(dtype):
    own = [np.ones(256, np.float32) for _ in range(2)]
    own[1][[3, 200]] = np.nan, np.inf
    result = widened(codecs.reduced(codecs.named("lanes-16"), [narrowed(each, NAMES[dtype]) for each in own])[0])
    assert np.isnan(result[:64]).all() and np.isnan(result[192:]).all() and np.allclose(result[64:192], 2, atol=1e-2)


@pytest.mark.parametrize("dtype", [*NAMES, "float32"])
def test_blocks_may_be_long(dtype):
    class Long(type(codecs.named("lanes-16"))):
        name, block = "long", 5000

    own = [np.random.default_rng(rank).standard_normal(23456).astype(np.float32) for rank in range(3)]
    own = [narrowed(each, NAMES[dtype]) if dtype in NAMES else each for each in own]
    exact = np.sum([widened(each).astype(np.float64) for each in own], axis=0)
    assert np.all(np.abs(widened(codecs.reduced(Long(), own)[0]) - exact) <= Long().bound(own))


@pytest.mark.parametrize("largest", [1.0, 3e-18, 3e38, 1e-30, 2e-40])
@pytest.mark.parametrize("average", [False, True])
def test_results_are_rounded_once(largest, average):
    """Products with a unit that is a float32, and with one that is none."""
    codec, workers = codecs.named("lanes-16"), 3
    own = [largest * np.random.default_rng(rank).uniform(-1, 1, 1000).astype(np.float32) for rank in range(workers)]
    running = [codec.reduce(each, codecs.Call(workers, rank, average)) for rank, each in enumerate(own)]
    maxima = np.max([next(each).words for each in running], axis=0)
    words = np.sum([each.send(maxima.copy()).words for each in running], axis=0, dtype=np.int32)
    lanes = words.view(np.uint16).reshape(-1, 64, 2).transpose(0, 2, 1).reshape(-1)[:1000]
    units = np.repeat(codec.units(maxima, workers), 64)[:1000] / (workers if average else 1)
    with pytest.raises(StopIteration) as end:
        running[0].send(words)
    expected = (lanes.astype(np.float64) - workers * codec.element(workers).largest) * units
    assert np.array_equal(end.value.value, single(expected))


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("dtype", [*NAMES, "float32"])
def test_a_result_is_written_over_the_values_where_it_may(name, dtype):
    own = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    own = narrowed(own, NAMES[dtype]) if dtype in NAMES else own
    expected, kept = codecs.reduced(codecs.named(name), [own])[0], own.copy()
    for in_place in (False, True):
        codec, words = codecs.named(name), None
        running = codec.reduce(own, codecs.Call(1, in_place=in_place))
        with pytest.raises(StopIteration) as end:
            while True:
                coming = running.send(words)
                words = codec.own([coming.words]) if coming.operation == codecs.Operation.OWN else coming.words
        assert np.array_equal(end.value.value, expected)
        assert np.shares_memory(end.value.value, own) == in_place
        assert np.array_equal(own, expected if in_place else kept)
