"""Levels chosen by chance: the papers' formulas, their means and variances, what all workers get, and input that has no scale."""

import math

import numpy as np
import pytest

from ina import codecs
from ina.base.native import lib
from ina.codecs.lanes import Packing
from ina.codecs.quantised import IntSgd, Natural, Qsgd, Qsgd4, TernGrad

pytestmark = pytest.mark.fast
BY_BLOCKS = {
    "qsgd-8": Qsgd, "qsgd-4": Qsgd4, "euclidean": lambda: Qsgd(7, 64, "euclidean"), "terngrad": TernGrad,
    "uncut": lambda: TernGrad(0), "natural": Natural,
}


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def every(make, workers: int) -> list[codecs.Codec]:
    return [make() for _ in range(workers)]


# ---- the papers' formulas, one value after the other


def chances(call: codecs.Call, size: int) -> list[float]:
    """The random numbers of a call, by place."""
    whole = lib.ina_thc_seed(call.step, 0, call.rank + 1)
    seed, result = (whole ^ whole >> 32) & 0xFFFFFFFF, []
    for place in range(size):
        x = (place * 0x9E3779B9 + seed) & 0xFFFFFFFF
        x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        result.append(((x ^ x >> 16) >> 8) / 2**24)
    return result


def qsgd(value: float, scale: float, levels: int, chance: float) -> float:
    """QSGD, section 3.1: |v| s / norm between l and l + 1 becomes l + 1 with the probability of its distance to l. As the integer
    below a negative value is the further one, its chance is the complement."""
    share = abs(value) * levels / scale
    low = math.floor(share)
    up = share - low > chance if value >= 0 else share - low >= 1 - chance
    return math.copysign(scale * (low + up) / levels, value)


def natural(value: float, smallest: float, chance: float) -> float:
    """Natural compression, equation 1, down to a smallest power of two; below: that, or zero."""
    size = abs(value)
    if size < smallest:
        return math.copysign(smallest if size / smallest > chance else 0.0, value)
    low = 2.0 ** math.floor(math.log2(size))
    return math.copysign(2 * low if (size - low) / low > chance else low, value)


@pytest.mark.parametrize("levels", [1, 7, 127])
@pytest.mark.parametrize("norm", ["largest", "euclidean"])
def test_qsgds_levels_are_those_of_the_formula(levels, norm):
    own, block = [normal(300, rank) for rank in range(3)], 128
    result = codecs.reduced([Qsgd(levels, block, norm) for _ in own], own, step=4)[0]
    expected = np.zeros(300)
    for rank, each in enumerate(own):
        for place, chance in enumerate(chances(codecs.Call(3, rank, step=4), 300)):
            parts = [other[place - place % block :][:block] for other in own]
            scale = max(np.abs(part).max() if norm == "largest" else np.linalg.norm(part.astype(float)) for part in parts)
            expected[place] += qsgd(float(each[place]), float(scale), levels, chance)
    assert np.mean(np.abs(result - expected) > 1e-5) < 0.01  # a value just at its chance may go the other way


def test_natural_compression_is_that_of_the_formula():
    own = [normal(300, rank) for rank in range(8)]
    own[0][:50] *= 1e-4  # below the smallest power
    result = codecs.reduced(every(lambda: Natural(300), 8), own, step=4)[0]
    scale = 2.0 ** math.ceil(math.log2(max(np.abs(each).max() for each in own)))
    expected = np.zeros(300)
    for rank, each in enumerate(own):
        for place, chance in enumerate(chances(codecs.Call(8, rank, step=4), 300)):
            expected[place] += natural(float(each[place]), scale * 2.0**-11, chance)
    assert np.array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize("name", ["qsgd-8", "qsgd-4", "euclidean", "uncut", "natural"])
def test_sums_are_right_on_average(name):
    """400 calls: the error of their mean is that of one, divided by 400; 20 % off for the variance of a variance."""
    own, steps = [normal(2000, rank) for rank in range(3)], 400
    exact, each = np.sum(own, axis=0, dtype=np.float64), every(BY_BLOCKS[name], 3)
    sums = [codecs.reduced(each, own, step=step)[0].astype(np.float64) for step in range(steps)]
    one = np.mean([(total - exact) ** 2 for total in sums])
    assert np.mean((np.mean(sums, axis=0) - exact) ** 2) == pytest.approx(one / steps, rel=0.2)


def test_natural_compression_adds_an_eighth_of_the_square_at_most():
    """Its published variance (Horvath et al., theorem 1), one worker: E (C(x) - x)^2 <= x^2 / 8."""
    own = np.full(1 << 16, 4 / 3, np.float32)  # where it is largest
    result = codecs.reduced(Natural(), [own])[0].astype(np.float64)
    assert np.mean((result - own) ** 2) == pytest.approx(np.mean(own.astype(np.float64) ** 2) / 8, rel=0.02)


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_workers_round_by_chance_of_their_own_and_afresh_in_each_call(name):
    """The same values on 8 workers: their errors are independent, so the average's square is an eighth of one's."""
    own = np.clip(normal(20000), -1, 1)
    one = codecs.reduced(BY_BLOCKS[name](), [own])[0]
    again = codecs.reduced(BY_BLOCKS[name](), [own], step=1)[0]
    assert not np.array_equal(one, again)
    together = codecs.reduced(every(BY_BLOCKS[name], 8), [own] * 8, average=True)[0]
    assert np.mean((together - own) ** 2) == pytest.approx(np.mean((one - own) ** 2) / 8, rel=0.1)


@pytest.mark.parametrize("name", BY_BLOCKS)
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100, 258])
def test_every_worker_gets_the_same_within_the_bound(name, workers):
    own = [normal(700, rank) * np.float32(10.0 ** (rank % 3)) for rank in range(workers)]
    own[0][100:600] *= 1e-3
    exact = np.sum(own, axis=0, dtype=np.float64)
    for average in (False, True):
        each = every(BY_BLOCKS[name], workers)
        results = codecs.reduced(each, own, average=average, step=9)
        assert all(np.array_equal(result, results[0]) for result in results)
        off = np.abs(results[0] - exact / (workers if average else 1))
        bound = each[0].bound(own, average)
        assert (off <= bound).all() and off.max() > 0.05 * bound.max() / workers


@pytest.mark.parametrize("name", [*BY_BLOCKS, "intsgd"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 511, 513, 1025])
def test_tensors_of_any_length(name, size):
    make = BY_BLOCKS.get(name, IntSgd)
    own, each = [normal(size, rank) for rank in range(4)], every(make, 4)
    for step in range(3):
        results = codecs.reduced(each, own, step=step)
        assert all(result.shape == (size,) and np.array_equal(result, results[0]) for result in results)
        assert (np.abs(results[0] - np.sum(own, axis=0)) <= each[0].bound(own)).all()


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_zeros_are_zero_and_so_are_those_among_others(name):
    each = every(BY_BLOCKS[name], 2)
    assert not codecs.reduced(each, [np.zeros(1000, np.float32), np.full(1000, -0.0, np.float32)])[0].any()
    own = normal(1000)
    own[::2] = 0
    for step in range(20):
        assert not codecs.reduced(each, [own, own], step=step)[0][::2].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -np.nan])
@pytest.mark.parametrize("name", BY_BLOCKS)
def test_one_workers_nan_makes_its_block_nan_once(name, bad):
    each = every(BY_BLOCKS[name], 2)
    block, own = each[0].block, [normal(1500, 0), normal(1500, 1)]
    spoilt = own[0].copy()
    spoilt[600] = bad
    at = slice(600 // block * block, 600 // block * block + block)
    for result in codecs.reduced(each, [spoilt, own[1]]):
        assert np.isnan(result[at]).all() and np.isfinite(np.delete(result, range(*at.indices(1500)))).all()
    assert np.isfinite(codecs.reduced(each, own, step=1)[0]).all()


@pytest.mark.parametrize("name", ["qsgd-8", "terngrad", "natural"])
@pytest.mark.parametrize("size", [1e-45, 1e-39, 1.6e38])
def test_the_smallest_and_largest_floats_have_a_scale(name, size):
    own = np.full(600, size, np.float32)
    each = every(BY_BLOCKS[name], 2)
    result = codecs.reduced(each, [own, own], average=True)[0]
    assert np.isfinite(result).all() and (np.abs(result - own.astype(np.float64)) <= each[0].bound([own, own], True)).all()
    assert np.mean(result, dtype=np.float64) == pytest.approx(size, rel=0.1)


def test_terngrad_cuts_at_its_standard_deviations():
    own = normal(512)
    own[7] = 100
    cut = 2.5 * np.sqrt(np.mean(own.astype(np.float64) ** 2))
    assert np.abs(codecs.reduced(TernGrad(), [own])[0]).max() == pytest.approx(cut, rel=1e-5)
    assert np.abs(codecs.reduced(TernGrad(0), [own])[0]).max() == 100


def test_bytes_are_as_stated():
    """Lanes of ceil(log2(2 levels n + 1)) bits, and a scale for 512 values."""
    words = {"qsgd-8": {2: 3, 8: 2}, "qsgd-4": {2: 6, 4: 5, 8: 4}, "terngrad": {2: 10, 4: 8, 8: 6}, "natural": {2: 2, 8: 2}}
    for name, lanes in words.items():
        for workers, values in lanes.items():
            traffic = codecs.named(name).traffic(1 << 20, workers)
            assert traffic.up == traffic.down == 4 * (2048 + -(-(1 << 20) // values))
    assert codecs.named("intsgd").traffic(1 << 20, 8).up == (1 << 20) + 4


@pytest.mark.parametrize(
    ("name", "limit"), [("qsgd-8", 258), ("qsgd-4", 4681), ("terngrad", 32767), ("natural", 16383), ("intsgd", 127)]
)
def test_more_workers_than_lanes_have_room_for_are_refused(name, limit):
    codec = codecs.named(name)
    assert codec.traffic(10, limit).up > 0
    next(codec.reduce(normal(10), codecs.Call(limit)))
    for refused in (lambda: codec.traffic(10, limit + 1), lambda: next(codec.reduce(normal(10), codecs.Call(limit + 1)))):
        with pytest.raises(ValueError, match=f"codec {name}: {limit + 1} workers, expected at most {limit}"):
            refused()


@pytest.mark.parametrize(
    "wrong", [lambda: Qsgd(0), lambda: Qsgd(128), lambda: Qsgd(7, 0), lambda: Qsgd(7, 64, "l1"), lambda: TernGrad(-1),
              lambda: Natural(0), lambda: IntSgd(1.0)]
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        wrong()


# ---- IntSGD, whose scale follows from the averages before


def test_intsgds_scale_is_that_of_the_public_code():
    own, each, r = [normal(500, rank) for rank in range(4)], every(IntSgd, 4), None
    for step in range(6):
        average = codecs.reduced(each, own, average=True, step=step)[0].astype(np.float64)
        if step == 0:
            assert np.allclose(average, np.mean(own, axis=0, dtype=np.float64), rtol=1e-6)
        else:
            unit = math.sqrt(2 * 4) * math.sqrt(r + 1e-16) / math.sqrt(500)
            assert np.allclose(average * 4 / unit, np.round(average * 4 / unit), atol=1e-3), "sums are integers"
            assert np.abs(average * 4 / unit).max() >= 2
        r = np.sum(average**2) if r is None else 0.9 * r + 0.1 * np.sum(average**2)


def test_intsgd_has_one_scale_whether_sums_or_averages_are_asked_for():
    own = [normal(500, rank) for rank in range(4)]
    sums, averages = every(IntSgd, 4), every(IntSgd, 4)
    for step in range(3):
        total = codecs.reduced(sums, own, step=step)[0]
        average = codecs.reduced(averages, own, average=True, step=step)[0]
        assert np.allclose(total, 4 * average, rtol=1e-6)


def test_intsgds_sums_have_eight_bits_whatever_comes():
    """One value is a million times what the scale was made for: it is cut, and carries into no other lane."""
    own, each = [normal(500, rank) for rank in range(8)], every(IntSgd, 8)
    codecs.reduced(each, own)
    expected = codecs.reduced([learned(codec) for codec in each], own, step=1)[0]
    large = [values.copy() for values in own]
    for values in large:
        values[3] = 1e6
    result = codecs.reduced(each, large, step=1)[0]
    assert np.array_equal(np.delete(result, 3), np.delete(expected, 3)) and result[3] < 1e3
    assert Packing(8, 2 * (127 // 8)).bits == 8


def learned(codec: IntSgd) -> IntSgd:
    other = IntSgd()
    other.square, other.size = codec.square, codec.size
    return other


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_workers_nan_makes_intsgds_tensor_nan_and_leaves_its_scale(bad):
    own, each = [normal(500, rank) for rank in range(3)], every(IntSgd, 3)
    for step in range(2):
        spoilt = [own[0], own[1].copy(), own[2]]
        spoilt[1][9] = bad
        before = [codec.square for codec in each]
        results = codecs.reduced(each, spoilt, step=2 * step)
        assert all(np.isnan(result).all() if step else not np.isfinite(result[9]) for result in results)
        assert [codec.square for codec in each] == before
        assert np.isfinite(codecs.reduced(each, own, step=2 * step + 1)[0]).all()


def test_intsgds_next_sum_is_exact_after_zeros_or_another_length():
    own, each = [normal(500, rank) for rank in range(3)], every(IntSgd, 3)
    zeros = [np.zeros(500, np.float32)] * 3
    for tensors in (zeros, own):
        assert np.allclose(codecs.reduced(each, tensors)[0], np.sum(tensors, axis=0), atol=1e-6)
    shorter = [values[:100] for values in own]
    assert np.allclose(codecs.reduced(each, shorter, step=1)[0], np.sum(shorter, axis=0), atol=1e-6)
