"""Masks that a few workers take off: sums that are exact whoever is missing, and shares that say nothing below the threshold."""

import itertools

import numpy as np
import pytest

from ina.lab.virtual.shared_masks import PRIME, SharedMasks, TooFewShares, _words, recover, share

pytestmark = pytest.mark.fast


def sum_of(rows: np.ndarray) -> np.ndarray:
    """Returns the sum over workers modulo 2^32, as a switch adds it up."""
    return rows.view(np.uint32).sum(axis=0, dtype=np.uint32).view(np.int32)


@pytest.mark.parametrize(("threshold", "holders"), [(1, 1), (2, 3), (3, 5), (5, 8)])
def test_any_threshold_shares_give_the_secret_and_fewer_give_any(threshold, holders):
    """With one share too few there is, for each secret, just one polynomial through the others: nothing is said of it."""
    secret = 0x123456789ABCDEF0123456789ABCDEF % PRIME
    shares = dict(enumerate(share(secret, threshold, holders, "a name")))
    for few in itertools.combinations(range(holders), threshold):
        assert recover({each: shares[each] for each in few}, threshold) == secret
    assert recover(shares, threshold) == secret, "more do no harm"
    few = {each: shares[each] for each in range(threshold - 1)}
    with pytest.raises(TooFewShares, match=f"^{threshold - 1} shares, expected {threshold} or more"):
        recover(few, threshold)
    if threshold < holders:
        for other in (0, 1, PRIME - 1):
            through = few | {-1: other}  # holder -1 has the place 0, where the secret is
            others = recover_at(through, threshold - 1)
            assert recover(few | {threshold - 1: others}, threshold) == other


def recover_at(points: dict[int, int], holder: int) -> int:
    """Returns the share of another holder, of the polynomial through these."""
    total = 0
    for each, value in points.items():
        above, below = 1, 1
        for other in points:
            if other != each:
                above, below = above * (holder - other) % PRIME, below * (each - other) % PRIME
        total = (total + value * above * pow(below, -1, PRIME)) % PRIME
    return total


@pytest.mark.parametrize(("workers", "threshold"), [(3, 2), (5, 3), (8, 5)])
def test_sums_of_those_that_are_there_are_exact(workers, threshold):
    """Any workers that are enough, and any of all that answer: shares of a worker whose values are missing count, too."""
    rng = np.random.default_rng(workers)
    plain = rng.integers(-(2**31), 2**31, (workers, 50)).astype(np.int32)
    for number, size in enumerate(range(threshold, workers + 1)):
        masks = SharedMasks(7, workers, threshold)
        covered = np.stack([masks.cover(worker, number, plain[worker]) for worker in range(workers)])
        there = sorted(rng.choice(workers, size, replace=False).tolist())
        total = sum_of(covered[there])
        assert np.mean(total == sum_of(plain[there])) < 0.1, "masks are still on"
        answering = sorted(rng.choice(workers, threshold, replace=False).tolist())
        assert np.array_equal(masks.uncover(number, total, there, answering), sum_of(plain[there]))
        assert np.array_equal(masks.uncover(number, total, there), sum_of(plain[there]))


def test_below_the_threshold_a_sum_is_refused():
    masks, plain = SharedMasks(7, 8, 5), np.ones((8, 4), np.int32)
    covered = np.stack([masks.cover(worker, 0, plain[worker]) for worker in range(8)])
    with pytest.raises(TooFewShares, match="^4 shares, expected 5 or more"):
        masks.uncover(0, sum_of(covered[:6]), range(6), range(4))
    with pytest.raises(TooFewShares, match="^0 shares, expected 5"):
        masks.uncover(0, sum_of(covered[:6]), range(6), ())
    with pytest.raises(TooFewShares, match="sum 1 is of 4 workers, expected 5 or more"):
        masks.uncover(1, sum_of(covered[:4]), range(4), range(8))


def test_nobody_reveals_both_masks_of_a_worker():
    """Shares for a sum with a worker and for one without it would take the masks off the worker's own values."""
    masks = SharedMasks(7, 8, 5)
    given = masks.reveal(2, 3, range(6))
    assert {(each, each) for each in range(6)} | {(low, high) for low in (6, 7) for high in range(6)} == set(given)
    assert masks.reveal(2, 3, [5, 4, 3, 2, 1, 0]) == given, "asked again, it says the same"
    with pytest.raises(ValueError, match="sum 3: worker 2 has revealed its shares for the workers .0, 1, 2, 3, 4, 5.; "):
        masks.reveal(2, 3, range(7))
    masks.reveal(2, 4, range(7))


def test_a_late_workers_values_stay_hidden():
    """Its pairs' seeds are known once it is missing; the words of its own seed are still on: uniform, whatever is under them."""
    masks, values = SharedMasks(1, 8, 5), np.zeros(1 << 16, np.int32)
    late = masks.cover(7, 0, values).view(np.uint32).copy()
    shares = {holder: masks.reveal(holder, 0, range(7)) for holder in range(5)}
    for other in range(7):
        seed = recover({holder: shares[holder][7, other] for holder in shares}, 5)
        assert seed == masks._seed(7, other, 0)
        pair = SharedMasks(1, 8, 5)
        assert (7, 7) not in shares[0] and pair._seed(7, 7, 0) not in shares[0].values()
        late += _words(seed, late.size)  # worker 7 has taken them away
    for shift in range(0, 32, 8):
        counts = np.bincount(late >> shift & 255, minlength=256)
        assert np.sum((counts - 256) ** 2) / 256 < 341
