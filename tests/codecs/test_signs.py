"""Signs with error feedback: the papers' formulas, what feedback keeps, and input whose blocks have no mean."""

import numpy as np
import pytest

from ina import codecs
from ina.codecs.signs import Sign, SignVote

pytestmark = pytest.mark.fast
BOTH = [Sign, SignVote]


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def sign(values: np.ndarray) -> np.ndarray:
    return np.where(values >= 0, 1.0, -1.0)


def reference(make, gradients: list[list[np.ndarray]], block: int) -> list[np.ndarray]:
    """Averages of all steps, by the formulas: p = g + e, scale = max over workers of the mean |p| of a block,
    e = p - scale sign(p); of the average of scale sign(p), the majority keeps p' = average + e', mean |p'| sign(p')."""
    size = gradients[0][0].size
    of = np.arange(size) // block
    missed, missed_by_all, results = [np.zeros(size) for _ in gradients[0]], np.zeros(size), []
    for step in gradients:
        wanted = [each + rest for each, rest in zip(step, missed, strict=True)]
        scale = np.max([np.bincount(of, np.abs(each)) / np.bincount(of) for each in wanted], axis=0)[of]
        missed = [each - scale * sign(each) for each in wanted]
        average = np.mean([scale * sign(each) for each in wanted], axis=0)
        if make is SignVote:
            average = average + missed_by_all
            voted = (np.bincount(of, np.abs(average)) / np.bincount(of))[of] * sign(average)
            missed_by_all = average - voted
            average = voted
        results.append(average)
    return results


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(("workers", "block"), [(1, 300), (3, 300), (4, 64)])
def test_averages_are_those_of_the_formulas(make, workers, block):
    """One worker and one block: EF-signSGD, algorithm 1, word for word. Near zero, rounding may turn a sign."""
    steps = [[normal(300, 10 * step + rank) for rank in range(workers)] for step in range(8)]
    each = [make(block) for _ in range(workers)]
    for step, expected in enumerate(reference(make, steps, block)):
        result = codecs.reduced(each, steps[step], average=True, step=step)[0]
        assert np.mean(~np.isclose(result, expected, rtol=1e-4, atol=1e-5)) < 0.01


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(("workers", "size"), [(1, 100), (3, 1000), (8, 5000), (8, 1), (2, 513)])
def test_error_feedback_keeps_what_a_sum_misses(make, workers, size):
    """All sums together and what is still missed are what all workers gave."""
    own, each = [normal(size, rank) for rank in range(workers)], [make() for _ in range(workers)]
    total = np.zeros(size)
    for step in range(100):
        results = codecs.reduced(each, own, step=step)
        assert all(np.array_equal(result, results[0]) for result in results)
        total += results[0]
    exact = 100 * np.sum(own, axis=0, dtype=np.float64)
    missed = np.sum([codec.missed for codec in each], axis=0, dtype=np.float64)
    if make is SignVote:
        assert all(np.array_equal(codec.missed_by_all, each[0].missed_by_all) for codec in each)
        missed += workers * each[0].missed_by_all.astype(np.float64)
    assert np.allclose(total + missed, exact, atol=2e-3)
    assert np.sum((total - exact) ** 2) < 0.02 * np.sum(exact**2)


def test_the_majority_decides():
    own = [np.array(votes, np.float32) for votes in ([1, -1, -1, 1], [1, -1, 1, 1], [1, 1, -1, -1])]
    assert np.sign(codecs.reduced([SignVote() for _ in own], own)[0]).tolist() == [1, -1, -1, 1]
    assert codecs.reduced([Sign() for _ in own], own)[0].tolist() == [3, -1, -1, 1], "without it, the count stays"


def test_a_worker_of_much_smaller_values_keeps_a_feedback_of_the_common_scale():
    """The common mean is the larger worker's: no more than that is ever missed."""
    each, large = [Sign(), Sign()], 0.0
    for step in range(500):
        own = [100 * normal(600, 2 * step), normal(600, 2 * step + 1)]
        codecs.reduced(each, own, step=step)
        large = max(large, float(np.abs(each[1].missed).max()))
    assert large < 3 * 100


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_workers_nan_makes_its_block_nan_once(make, bad):
    own, each = [normal(1500, rank) for rank in range(3)], [make() for _ in range(3)]
    codecs.reduced(each, own)
    spoilt, before = own[1].copy(), [codec.missed.copy() for codec in each]
    by_all = each[0].missed_by_all.copy()
    spoilt[600] = bad
    for result in codecs.reduced(each, [own[0], spoilt, own[2]], step=1):
        assert np.isnan(result[512:1024]).all() and np.isfinite(np.delete(result, range(512, 1024))).all()
    for codec, earlier in zip(each, before, strict=True):
        assert np.array_equal(codec.missed[512:1024], earlier[512:1024])
        assert not np.array_equal(codec.missed, earlier)
        assert np.array_equal(codec.missed_by_all[512:1024], by_all[512:1024])
    assert np.isfinite(codecs.reduced(each, own, step=2)[0]).all()


@pytest.mark.parametrize("make", BOTH)
def test_zeros_are_zero(make):
    each = [make(), make()]
    assert not codecs.reduced(each, [np.zeros(1000, np.float32)] * 2)[0].any() and not each[0].missed.any()
    assert codecs.reduced(each, [np.zeros(0, np.float32)] * 2)[0].size == 0


@pytest.mark.parametrize("name", ["sign", "sign-vote"])
def test_bytes_are_as_stated(name):
    """Lanes of ceil(log2(n + 1)) bits, and a mean for 512 values."""
    for workers, lanes in {1: 32, 2: 16, 3: 16, 4: 10, 7: 10, 8: 8, 15: 8, 16: 6, 100: 4}.items():
        traffic = codecs.named(name).traffic(1 << 20, workers)
        assert traffic.up == traffic.down == 4 * (2048 + -(-(1 << 20) // lanes))


def test_more_workers_than_lanes_have_room_for_are_refused():
    with pytest.raises(ValueError, match="codec sign: 65536 workers, expected at most 65535"):
        next(Sign().reduce(normal(10), codecs.Call(65536)))
    with pytest.raises(ValueError, match="codec sign-vote: blocks of 0, expected 1"):
        SignVote(0)


def loss_after(workers: list[codecs.Codec]) -> float:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((300, 40)).astype(np.float32)
    target, weights = rng.standard_normal(40).astype(np.float32), np.zeros(40, np.float32)
    for step in range(1000):
        own = [inputs[rank::3] for rank in range(3)]
        gradients = [(each.T @ (each @ (weights - target)) / 50).astype(np.float32) for each in own]
        weights = weights - 0.05 * codecs.reduced(workers, gradients, average=True, step=step)[0]
    return float(np.mean((inputs @ (weights - target)) ** 2))


@pytest.mark.parametrize("make", BOTH)
def test_least_squares_learn_with_feedback(make):
    assert loss_after([make() for _ in range(3)]) < 1e-8
