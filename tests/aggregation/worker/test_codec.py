"""Block floating point and the exact code against fractions: bounds, special values, every fan-in."""

from fractions import Fraction

import native_codec as codec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.base.native import ffi, lib

TINY = 2.0**-149  # smallest denormal
MAX = float(np.finfo(np.float32).max)

workers = st.integers(1, 32)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
# magnitudes near each other make exponents and roundings interact
moderate = st.floats(-(2.0**20), 2.0**20, width=32)


def blocks(elements, n, max_count=40):
    """float32 arrays of shape (n, 1..max_count)."""

    def rows(count):
        return st.lists(st.lists(elements, min_size=count, max_size=count), min_size=n, max_size=n)

    return st.integers(1, max_count).flatmap(rows).map(lambda values: np.array(values, np.float32))


def wire_sum(words: list[np.ndarray]) -> np.ndarray:
    """The switch's sum: int32 modulo 2**32."""
    return sum((w.astype(np.uint32) for w in words), np.zeros(words[0].shape, np.uint32)).view(np.int32).astype(">i4")


def nearest_float32(value: Fraction) -> np.float32:
    """Correctly rounded, ties to even: by the nearest of three neighbours of an approximation."""
    if abs(value) >= 2**128 - 2**103:  # halfway between the largest float and 2**128
        return np.float32(np.inf if value > 0 else -np.inf)
    near = np.float32(max(-MAX, min(MAX, float(value))))
    with np.errstate(over="ignore"):
        around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite_ones = [c for c in around if np.isfinite(c)]
    return min(finite_ones, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.uint32)) & 1))


def all_reduce(rows: np.ndarray, average: bool = False) -> tuple[np.ndarray, int]:
    n = len(rows)
    agreed = max(codec.exponent(row) for row in rows)
    total = wire_sum([codec.encode(row, agreed, n) for row in rows])
    return codec.decode(total, agreed, n, average), agreed


@pytest.mark.fast
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, codec.EXP_MIN), (-0.0, codec.EXP_MIN), (TINY, codec.EXP_MIN), (2.0**-96, -96), (2.0**-96 * 1.0001, -95),
        (0.5, -1), (0.75, 0), (1.0, 0), (-1.0, 0), (np.nextafter(np.float32(1), np.float32(2)), 1), (3.0, 2), (4.0, 2),
        (2.0**126, 126), (2.0**127, 127), (-MAX, 127), (np.inf, 127), (-np.inf, 127), (np.nan, 127), (-np.nan, 127),
    ],
)
def test_exponent(value, expected):
    block = np.zeros(37, np.float32)
    for position in (0, 15, 36):
        block[:] = 0
        block[position] = value
        assert codec.exponent(block) == expected


@pytest.mark.fast
@given(blocks(finite, 1))
def test_exponent_is_the_smallest_that_covers(rows):
    e = codec.exponent(rows)
    largest = Fraction(float(np.abs(rows).max()))
    if e == codec.EXP_NONFINITE:
        assert largest > Fraction(2) ** codec.EXP_MAX
    else:
        assert largest <= Fraction(2) ** e
        assert largest > Fraction(2) ** (e - 1) or e == codec.EXP_MIN


@pytest.mark.fast
def test_shift_leaves_room_for_every_fan_in():
    for n in (*range(1, 33), 100, 1024):
        assert n * 2 ** codec.shift(n) <= 2**30, "sums of n values fit in int32 with room for the sign"
        assert n * 2 ** codec.shift(n) > 2**29, "and no bit is wasted"


@pytest.mark.build
@settings(max_examples=150, deadline=None)
@given(st.data(), workers, st.booleans())
def test_sum_is_within_the_bound(data, n, average):
    elements = data.draw(st.sampled_from([finite.filter(lambda v: abs(v) <= 2.0**126), moderate]))
    rows = data.draw(blocks(elements, n))
    result, agreed = all_reduce(rows, average)
    divisor = n if average else 1
    for column in range(rows.shape[1]):
        exact = sum(Fraction(float(v)) for v in rows[:, column]) / divisor
        bound = Fraction(codec.error_bound(agreed, n, average))
        if abs(exact) + bound >= 2**127:  # float32 itself may overflow
            continue
        rounding = (abs(exact) + bound) * Fraction(3 if average else 1, 2**24) * Fraction(1001, 1000)
        assert abs(Fraction(float(result[column])) - exact) <= bound + rounding


@pytest.mark.fast
@pytest.mark.parametrize("n", range(1, 33))
def test_extremes_do_not_overflow(n):
    for value in (1.0, -1.0, 2.0**126, -(2.0**126), 2.0**-96, 0.0):
        result, _ = all_reduce(np.full((n, 5), value, np.float32))
        with np.errstate(over="ignore"):  # 2**126 times 4 is infinite in float32 too
            assert (result == np.float32(n * value)).all()
        mean, _ = all_reduce(np.full((n, 5), value, np.float32), average=True)
        np.testing.assert_allclose(mean, np.float32(value), rtol=2**-22)


@pytest.mark.fast
@pytest.mark.parametrize("value", [MAX, -MAX, 2.0**127, np.nextafter(np.float32(2.0**126), np.float32(np.inf))])
def test_values_out_of_reach_are_nan_on_every_rank_not_a_wrong_sum(value):
    rows = np.array([[1.0, 1.0, value], [1.0, 1.0, 0.0]], np.float32)
    result, agreed = all_reduce(rows)
    assert agreed == codec.EXP_NONFINITE and np.isnan(result).all()
    assert codec.decode_exact(codec.encode_exact(rows[0]), 1).tolist() == rows[0].tolist(), "the exact code reaches all"


@pytest.mark.fast
def test_encode_never_trusts_its_exponent():
    wild = np.array([np.nan, np.inf, -np.inf, MAX, -MAX, -0.0, TINY] * 7, np.float32)
    for n in (1, 2, 32):
        for e in (codec.EXP_MIN, 0, codec.EXP_MAX):
            words = codec.encode(wild, e, n).astype(np.int64)
            assert (np.abs(words) <= 2 ** codec.shift(n)).all()


@pytest.mark.fast
def test_zero_and_nonfinite_blocks():
    result, agreed = all_reduce(np.array([[0.0, -0.0, 0.0]] * 3, np.float32))
    assert agreed == codec.EXP_MIN and result.tolist() == [0.0] * 3
    for bad in (np.nan, np.inf, -np.inf):
        rows = np.ones((3, 20), np.float32)
        rows[1, 7] = bad
        result, agreed = all_reduce(rows)
        assert agreed == codec.EXP_NONFINITE and np.isnan(result).all()
        assert not codec.encode(rows[1], agreed, 3).any()


@pytest.mark.fast
def test_denormals_are_exact_or_below_half_a_unit():
    result, _ = all_reduce(np.array([[2.0**-126, 2.0**-127, 2.0**-128, TINY]], np.float32))
    assert result.tolist() == [2.0**-126, 0.0, 0.0, 0.0]  # unit 2**-126 for one worker; ties to even


@pytest.mark.fast
@pytest.mark.parametrize("count", [*range(0, 70), 255, 256, 257, 1024])
def test_every_length_and_alignment(count):
    rng = np.random.default_rng(count)
    x = rng.standard_normal(count + 3).astype(np.float32)[3:]
    e = codec.exponent(x)
    y = codec.decode(codec.encode(x, e, 4), e, 4)
    np.testing.assert_allclose(y, x, atol=2.0 ** (e - 29), rtol=0)
    i = rng.integers(-(2**31), 2**31, count).astype(np.int32)
    assert (codec.encode_int32(i) == i.astype(">i4")).all()
    assert (codec.decode_int32(i.astype(">i4")) == i).all()


@pytest.mark.build
@settings(max_examples=200, deadline=None)
@given(st.data(), workers, st.booleans())
def test_exact_code_rounds_once(data, n, average):
    rows = data.draw(blocks(data.draw(st.sampled_from([finite, moderate])), n, max_count=8))
    encoded = [codec.encode_exact(row) for row in rows]
    divisor = n if average else 1
    result = codec.decode_exact(wire_sum(encoded), n, average)
    for column in range(rows.shape[1]):
        exact = sum(Fraction(float(v)) for v in rows[:, column]) / divisor
        assert result[column] == nearest_float32(exact)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("values", "average", "expected"),
    [
        ([MAX] * 32, False, np.inf), ([-MAX] * 32, False, -np.inf), ([MAX] * 32, True, MAX), ([MAX, -MAX, TINY], False, TINY),
        ([1.0, 2.0**-24], False, 1.0), ([1.0, 2.0**-24, TINY], False, 1 + 2.0**-23),
        ([1.0, 2.0**-23, 2.0**-24], False, 1 + 2.0**-22),
        ([TINY, 0.0], True, 0.0), ([TINY, TINY, TINY, 0.0], True, TINY), ([1.0, 0.0, 0.0], True, np.float32(1 / 3)),
        ([-0.0] * 32, False, -0.0), ([-0.0] * 3, True, -0.0), ([-0.0] * 31 + [0.0], False, 0.0), ([-0.0, 1.0, -1.0], False, 0.0),
        ([-0.0, -TINY * (2**24 - 1)], False, -TINY * (2**24 - 1)), ([-0.0, -np.inf, np.inf], False, np.nan),
    ],
)
def test_exact_code_corners(values, average, expected):
    """A zero is negative if all workers' are."""
    total = wire_sum([codec.encode_exact(np.array([v], np.float32)) for v in values])
    result = codec.decode_exact(total, len(values), average)
    np.testing.assert_equal(result, np.array([expected], np.float32))
    assert np.isnan(expected) or np.signbit(result[0]) == np.signbit(np.float32(expected))


specials = st.sampled_from([np.nan, np.inf, -np.inf])


@pytest.mark.build
@pytest.mark.later
@settings(max_examples=200, deadline=None)
@given(st.data(), workers, st.booleans())
def test_exact_code_carries_infinities_and_nan_for_their_own_elements(data, n, average):
    """All else in the same tensor stays exact; as many specials as there are workers, beside the largest digits."""
    column = st.lists(st.one_of(specials, st.sampled_from([MAX, -MAX]), finite), min_size=n, max_size=n)
    rows = np.array(data.draw(st.lists(column, min_size=1, max_size=6)), np.float32).T
    divisor = n if average else 1
    result = codec.decode_exact(wire_sum([codec.encode_exact(np.ascontiguousarray(row)) for row in rows]), n, average)
    with np.errstate(invalid="ignore"):
        for element, values in zip(result, rows.T, strict=True):
            expected = (nearest_float32(sum(Fraction(float(v)) for v in values) / divisor) if np.isfinite(values).all()
                        else values[~np.isfinite(values)].sum())
            np.testing.assert_equal(element + 0, expected)  # zeros without their sign


@pytest.mark.fast
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_exact_code_of_specials_on_all_workers(special):
    encoded = [codec.encode_exact(np.array([special, 1], np.float32)) for _ in range(32)]
    np.testing.assert_equal(codec.decode_exact(wire_sum(encoded), 32, True), np.array([special, 1], np.float32))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: codec.encode(x.astype(np.float64), 0, 2), TypeError, "float64"),
        (lambda x: codec.encode(x.T[::2], 0, 2), ValueError, "contiguous"),
        (lambda x: codec.encode(x, 128, 2), ValueError, "exponent 128"),
        (lambda x: codec.encode(x, 0, 1025), ValueError, "1025 workers"),
        (lambda x: codec.encode(x, 0, 2, out=np.empty(3, ">i4")), ValueError, "shape"),
        (lambda x: codec.decode(x, 0, 2), TypeError, "expected >i4"),
        (lambda x: codec.decode_exact(np.zeros(4, ">i4"), 2), ValueError, "12"),
        (lambda x: codec.exponent(x.astype(np.int32)), TypeError, "int32"),
    ],
)
def test_arguments_are_checked(call, error, text):
    with pytest.raises(error, match=text):
        call(np.ones((4, 4), np.float32))


@pytest.mark.fast
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 1024])
def test_values_are_flushed_if_they_encode_as_zero(workers):
    rng = np.random.default_rng(workers)
    for exponent in (-96, -60, 0, 5, 126):
        unit = 2.0 ** (exponent - codec.shift(workers))
        above = np.nextafter(np.float32(unit / 2), np.float32(1))
        near = np.array([0.0, -0.0, unit / 2, -unit / 2, above, unit, 2.0**-149], np.float32)
        with np.errstate(over="ignore", under="ignore"):
            spread = (rng.standard_normal(300) * unit * 10.0 ** rng.uniform(-3, 3, 300)).astype(np.float32)
        values = np.concatenate([near, spread])
        small = (codec.encode(values, exponent, workers) == 0) & (values != 0)
        pointer = ffi.cast("float *", values.ctypes.data)
        assert lib.ina_codec_flushed(pointer, values.size, exponent, codec.shift(workers)) == small.sum() > 0
    assert lib.ina_codec_flushed(pointer, values.size, codec.EXP_NONFINITE, 0) == 0
