"""Masks of pairs: sums that are exact to the bit, and packets that say nothing."""

import numpy as np
import pytest

from ina.base.settings import ConfigError
from ina.lab.virtual.masks import Masks, parts, whole

pytestmark = pytest.mark.fast


def total(rows: np.ndarray) -> np.ndarray:
    """Returns the sum over workers modulo 2^32."""
    return rows.view(np.uint32).sum(axis=0, dtype=np.uint32)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_masks_of_all_cancel_to_the_bit(workers):
    rng, masks = np.random.default_rng(workers), Masks(7, workers)
    for number in range(3):
        plain = rng.integers(-(2**31), 2**31, (workers, 100)).astype(np.int32)
        covered = np.stack([masks.cover(worker, number, plain[worker]) for worker in range(workers)])
        assert np.array_equal(total(covered), total(plain))
        assert np.mean(total(covered[1:]) == total(plain[1:])) < 0.05, "without one they do not"


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1])
def test_values_of_a_packet_are_uniform_whatever_is_under_the_masks(value):
    """Chi-square of each of the four bytes of 64 Ki words, with 255 degrees of freedom: above 341 by chance in one of 4,000. And
    of the bits of neighbours: no word says anything of the next one."""
    words = Masks(1, 3).cover(1, 5, np.full(1 << 16, value, np.int32)).view(np.uint32)
    for shift in range(0, 32, 8):
        counts = np.bincount(words >> shift & 255, minlength=256)
        assert np.sum((counts - 256) ** 2) / 256 < 341
    equal = np.unpackbits((words[1:] ^ words[:-1]).view(np.uint8)).mean()
    assert equal == pytest.approx(0.5, abs=0.002)


def test_no_mask_is_used_twice():
    masks, nothing = Masks(1, 3), np.zeros(1000, np.int32)
    covered = [masks.cover(worker, number, nothing) for worker in range(3) for number in range(3)]
    covered.append(Masks(2, 3).cover(0, 0, nothing))
    for first in range(len(covered)):
        for second in range(first):
            assert np.mean(covered[first] == covered[second]) < 0.01
    assert np.array_equal(masks.cover(2, 1, nothing), covered[7]), "and a replay is the same"


def test_whole_numbers_are_the_nearest_and_sums_fit():
    values = np.array([0.0, 1.0, -1.5, 2.0**-17 * 1.01, 100 + 2.0**-16], np.float32)
    assert whole(values, 8).tolist() == [0, 65536, -98304, 1, 6553601]
    assert np.abs(parts(whole(values, 8)) - values).max() <= 2.0**-17
    for wrong in (4096.0, -5000.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match="expected less than 4096 with 8 workers"):
            whole(np.array([wrong], np.float32), 8)
