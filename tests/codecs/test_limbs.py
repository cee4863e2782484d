"""Codecs over NumPy alone, against sums of fractions: any floats, any number of workers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina import codecs
from ina.codecs.lanes import Packing, Shorts

pytestmark = pytest.mark.fast
FLOATS = ("block-64", "block-32", "two-limb", "exact", "lanes-16")
DTYPES = {"float32": np.float32, "float64": np.float64}


def nearest(exact: Fraction, dtype: str):
    """The float nearest to a fraction, ties to even, by its own definition."""
    if not exact:
        return DTYPES[dtype](0)
    bits, least = (24, -149) if dtype == "float32" else (53, -1074)
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent  # 2^exponent <= magnitude
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    whole, rest = divmod(magnitude, unit)
    whole += rest > unit / 2 or (rest == unit / 2 and whole % 2)
    value = whole * unit
    limit = Fraction(2) ** (128 if dtype == "float32" else 1024)
    result = math.inf if value >= limit else float(value)
    return DTYPES[dtype](-result if exact < 0 else result)


def exact_result(column, average: bool, dtype: str):
    """IEEE 754's result for infinities and NaN, and the exact sum rounded once for all else."""
    special = [x for x in column if not np.isfinite(x)]
    if special:
        with np.errstate(invalid="ignore"):
            return DTYPES[dtype](sum(special))
    return nearest(sum(map(Fraction, map(float, column)), Fraction(0)) / (len(column) if average else 1), dtype)


@st.composite
def tensors(draw, special=True):
    """Tensors of several workers: any bits, or values of like magnitude, with infinities in between."""
    dtype = draw(st.sampled_from(["float32", "float64"]))
    workers, size = draw(st.sampled_from([1, 2, 3, 8, 31, 33])), draw(st.integers(0, 130))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0, 3, 30, 300]))
    kind = np.uint32 if dtype == "float32" else np.uint64
    result = []
    for _ in range(workers):
        with np.errstate(over="ignore", under="ignore"):
            values = (rng.standard_normal(size) * 10.0 ** rng.uniform(-spread, spread, size)).astype(dtype)
        if draw(st.booleans()):
            values = rng.integers(0, np.iinfo(kind).max, size, kind, endpoint=True).view(dtype)
        if draw(st.booleans()):
            values[rng.random(size) < 0.5] = draw(st.sampled_from([0.0, -0.0]))
        if not special or draw(st.booleans()):
            values = np.where(np.isfinite(values), values, DTYPES[dtype](1))
        result.append(values)
    return result


@given(tensors(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_exact_is_the_exact_sum_rounded_once(own, average):
    dtype = own[0].dtype.name
    result = codecs.reduced(codecs.named("exact"), own, average=average)[0]
    expected = np.array([exact_result(column, average, dtype) for column in zip(*own, strict=True)], dtype)
    assert np.array_equal(result, expected, equal_nan=True)
    zeros, negative = expected == 0, np.all([(each == 0) & np.signbit(each) for each in own], axis=0)
    with np.errstate(invalid="ignore"):
        exactly = np.sum(np.asarray(own, np.longdouble), axis=0) == 0  # else it is an average that became zero
    assert np.array_equal(np.signbit(result[zeros & exactly]), negative[zeros & exactly])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", [1, 2, 3, 1024])
def test_exact_keeps_the_sign_of_zero(dtype, workers):
    """In blocks of zeros alone, of one digit, of several, and with infinities, whichever worker has what."""
    least = np.finfo(dtype).smallest_subnormal
    for others in ([], [1.0], [least], [1.0, 1 / 3], [np.inf], [np.nan, least], [1.0, least], [1e30, 1.0]):
        own = [np.array([-0.0, 0.0, -0.0, *others], dtype) for _ in range(workers)]
        own[-1][2], own[0][3:] = 0.0, others
        for each in own[1:]:
            each[3:] = -0.0
        result = codecs.reduced(codecs.named("exact"), own)[0]
        assert np.array_equal(result, np.array([0, 0, 0, *others], dtype), equal_nan=True), others
        assert np.signbit(result[:3]).tolist() == [True, False, False], others


def test_zeros_of_one_worker_do_not_hide_anothers():
    """-0 of both, where one worker has a block of zeros, which has no lowest bit, and the other one a value of one digit."""
    own = [np.array([-0.0, -0.0, 1.0], np.float32), np.array([-0.0, 0.0, -0.0], np.float32)]
    for each in (own, own[::-1]):
        result = codecs.reduced(codecs.named("exact"), each)[0]
        assert result.tolist() == [0, 0, 1] and np.signbit(result).tolist() == [True, False, False]


@pytest.mark.parametrize("workers", [3, 255, 257, 511, 513, 777, 1023])
def test_an_average_beside_a_tie_is_rounded_once(workers):
    """Digits between the tie and what is beside it are zero."""
    rng = np.random.default_rng(workers)
    own = np.zeros((workers, 64))
    for i in range(own.shape[1]):
        tie = 2 * int(rng.integers(2**52, 2**53)) + 1  # 54 bits
        upper = tie * workers >> 32 << 32
        own[0, i], own[1, i], own[2, i] = upper, tie * workers - upper, (-1) ** i * 2.0 ** -int(rng.integers(1, 80))
    result = codecs.reduced(codecs.named("exact"), list(own), average=True)[0]
    assert result.tolist() == [exact_result(column, True, "float64") for column in own.T]


def test_an_average_of_the_largest_floats_is_no_infinity():
    """Divided before it is rounded, as the worker does it."""
    largest = np.finfo(np.float32).max
    own = [np.array([largest, -largest, largest, -0.0], np.float32) for _ in range(3)]
    for name in ("block", "exact"):
        assert codecs.reduced(codecs.named(name), own, average=True)[0].tolist() == own[0].tolist(), name


@given(tensors(special=False), st.sampled_from(FLOATS), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_codec_keeps_its_bound(own, name, average):
    codec = codecs.named(name)
    if own[0].dtype.name not in codec.dtypes:
        own = [np.where(np.isfinite(x := each.astype(np.float32)), x, np.float32(1)) for each in own]
    result = codecs.reduced(codec, own, average=average)
    bound = codec.bound(own, average)
    for i, column in enumerate(zip(*own, strict=True)):
        exact = sum(map(Fraction, map(float, column))) / (len(own) if average else 1)
        if np.isfinite(nearest(exact, own[0].dtype.name)):
            assert abs(Fraction(float(result[0][i])) - exact) <= Fraction(float(bound[i])) * (1 + Fraction(1, 10**12))
    assert all(np.array_equal(each, result[0], equal_nan=True) for each in result)


@pytest.mark.parametrize("workers", [2, 31, 32, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["block-64", "block-256", "two-limb", "omnireduce"])
def test_a_bound_holds_for_subnormal_numbers(name, dtype, workers):
    rng, least = np.random.default_rng(workers), np.finfo(dtype).smallest_subnormal
    for most in (1, 3, 100, 2**20, 2**23):
        own = [(rng.integers(-most, most, 64, endpoint=True) * least).astype(dtype) for _ in range(workers)]
        codec = codecs.named(name)
        for average in (False, True):
            result, bound = codecs.reduced(codec, own, average=average)[0], codec.bound(own, average)
            for value, off, column in zip(result, bound, zip(*own, strict=True), strict=True):
                exact = sum(map(Fraction, map(float, column))) / (workers if average else 1)
                assert abs(Fraction(float(value)) - exact) <= Fraction(float(off)), (most, average)
    assert np.all(codecs.named(name).bound([np.zeros(64, dtype)] * workers) <= least)


def test_two_limbs_keep_54_bits_of_8_workers():
    """n * 2^(e - 2 * 27 - 1) off at most, before one rounding: values 2^-50 of the largest are there."""
    own = [np.array([1.0, 2.0**-50, -(2.0**-53), 3 * 2.0**-54], np.float32) for _ in range(8)]
    assert codecs.reduced(codecs.named("two-limb"), own)[0].tolist() == [8.0, 2.0**-47, -(2.0**-50), 3 * 2.0**-51]
    assert codecs.reduced(codecs.named("block-64"), own)[0].tolist() == [8.0, 0.0, 0.0, 0.0]


def test_flushed_values_are_counted():
    own = [np.array([1.0, 2.0**-30, 0.0, 2.0**-60], np.float32), np.array([1.0, 0.5, 0.0, 0.0], np.float32)]
    for name, flushed in (("block-64", 2), ("two-limb", 1), ("exact", 0), ("lanes-16", 2)):
        codec, other = codecs.named(name), codecs.named(name)
        codecs.reduced([codec, other], own)
        assert (codec.flushed, other.flushed) == (flushed, 0), name


@pytest.mark.parametrize("name", ["block-64", "block-32", "two-limb", "exact"])
def test_an_infinity_stays_with_its_own_element(name):
    own = [np.array([np.inf, np.inf, np.nan, 1, -np.inf, 4], np.float32), np.array([1, -np.inf, 1, 2, 1, 4], np.float32)]
    result = codecs.reduced(codecs.named(name), own)[0]
    assert np.array_equal(result, np.array([np.inf, np.nan, np.nan, 3, -np.inf, 8], np.float32), equal_nan=True)


@pytest.mark.parametrize("name", ["block-64", "two-limb", "exact"])
def test_the_largest_floats_are_summed(name):
    largest = np.finfo(np.float32).max
    own = [np.array([largest, largest, 2.0**127], np.float32), np.array([-largest, largest, 0], np.float32)]
    assert codecs.reduced(codecs.named(name), own)[0].tolist() == [0, np.inf, 2.0**127]


def test_lanes_of_a_block_with_an_infinity_are_nan_and_no_others():
    own = [np.ones(130, np.float32) for _ in range(2)]
    own[1][70] = np.inf
    result = codecs.reduced(codecs.named("lanes-16"), own)[0]
    assert np.isnan(result[64:128]).all() and (result[:64] == 2).all() and (result[128:] == 2).all()


def test_zeros_take_no_second_round():
    generator = codecs.named("exact").reduce(np.zeros(1000, np.float32), codecs.Call(2))
    survey = next(generator)
    with pytest.raises(StopIteration) as end:
        generator.send(survey.words)
    assert not end.value.value.any()


def test_a_survey_that_no_worker_can_have_sent_is_refused():
    generator = codecs.named("exact").reduce(np.ones(64, np.float32), codecs.Call(2))
    next(generator)
    with pytest.raises(ValueError, match="do all workers use this codec"):
        generator.send(np.array([1 << 20, 0], np.int32))


@given(st.sampled_from(["int8", "uint8", "bool"]), st.integers(1, 300), st.integers(0, 200), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_lanes_of_bytes_are_exact(dtype, workers, size, seed):
    rng = np.random.default_rng(seed)
    low, high = {"int8": (-128, 127), "uint8": (0, 255), "bool": (0, 1)}[dtype]
    extreme = rng.random() < 0.3
    own = [rng.choice([low, high], size) if extreme else rng.integers(low, high, size, endpoint=True) for _ in range(workers)]
    packing = Packing.of(dtype, workers)
    with np.errstate(over="ignore"):
        words = np.sum([packing.pack(each.astype(dtype)) for each in own], axis=0, dtype=np.int32)
    assert np.array_equal(packing.sums(words, size), np.sum(own, axis=0))
    if dtype == "bool":
        anybody = np.full(size, True)
        packing.place(words, anybody)
        assert np.array_equal(anybody.view(np.uint8), np.any(own, axis=0))


def test_lanes_are_as_many_as_have_room():
    assert [Packing.of("int8", n).lanes for n in (2, 4, 5, 8, 32, 256)] == [3, 3, 2, 2, 2, 2]
    assert [Packing.of("bool", n).lanes for n in (2, 4, 8, 16)] == [16, 10, 8, 6]
    assert [Packing.of("uint8", n, wraps=True).lanes for n in (2, 8, 16, 17, 32, 256)] == [3, 3, 3, 2, 2, 2]


@given(st.sampled_from(["int8", "uint8", "int16"]), st.integers(1, 257), st.integers(0, 200), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_lanes_that_wrap_are_exact_modulo_their_type(dtype, workers, size, seed):
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype)
    choices = [limits.min, limits.max, -1 % (limits.max + 1), 0]
    own = rng.choice(choices, (workers, size)) if rng.random() < 0.3 else rng.integers(limits.min, limits.max, (workers, size),
                                                                                        endpoint=True)
    packing = Shorts if dtype == "int16" else Packing.of(dtype, workers, wraps=True)
    with np.errstate(over="ignore"):
        words = np.sum([packing.pack(each) for each in own.astype(dtype)], axis=0, dtype=np.int32)
        assert words.size == packing.words(size) and packing.holds(words.size) >= size
        sums = np.full(size, 77, dtype)
        packing.place(words, sums)
        assert np.array_equal(sums, np.sum(own, axis=0).astype(dtype))
        if dtype != "int16":
            assert np.array_equal(packing.sums(words, size).astype(dtype), sums)


def test_shorts_are_three_in_two_words():
    assert [Shorts.words(size) for size in (0, 1, 3, 4, 3000)] == [0, 2, 2, 4, 2000]


def travelling(codec, values, step: int = 0) -> tuple[int, int]:
    """Bytes of a reduction's words, as if all other workers' were zero."""
    generator = codec.reduce(values, codecs.Call(8, step=step))
    words, sent, received = None, 0, 0
    try:
        while True:
            coming = generator.send(words)
            words = coming.words
            own = codec.protocol if coming.operation == codecs.Operation.OWN else ""
            sent += words.nbytes // (2 if own == "thc" else 1)  # indices
            received += words.nbytes // (2 if own == "requantised" else 1)  # rounded sums
    except StopIteration:
        return sent, received


@pytest.mark.parametrize("name", codecs.names())
def test_traffic_is_what_travels(name):
    own, codec = np.random.default_rng(1).standard_normal(1000).astype(np.float32), codecs.named(name)
    if codec.remembers:  # the first call may be another than those that follow
        travelling(codec, own)
    measured = travelling(codec, own, 8)
    traffic = codecs.named(name).traffic(1000, 8)
    stated = traffic.up, traffic.down
    assert measured == stated if traffic.exact else measured <= stated and traffic.up == traffic.down
