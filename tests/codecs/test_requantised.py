"""Codec lanes-16-8: sums that come back in 8 bits (the switch: tests/aggregation/protocols/test_requantised_switch.py)."""

from __future__ import annotations

import numpy as np
import pytest

from ina import codecs

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100, 127, 258, 1024])
def test_requantised_sums_are_within_their_bound_and_zeros_are_zero(workers):
    rng = np.random.default_rng(workers)
    own = [rng.standard_normal(640).astype(np.float32) for _ in range(workers)]
    for each in own:
        each[100:110] = 0
    own[0][200:264], own[-1][200:264] = 1e38 / workers, 3
    codec = codecs.named("lanes-16-8")
    result = codecs.reduced(codec, own)[0]
    assert np.all(np.abs(result - np.sum(own, axis=0, dtype=np.float64)) <= codec.bound(own))
    assert workers > 127 or not result[100:110].any(), "the lanes' biases add up to a multiple of 256"
    one = np.full(64, 7, np.float32)
    assert np.allclose(codecs.reduced(codec, [one] * workers)[0], 7 * workers, rtol=1 / 128), "the largest sum of all"


def test_requantised_sums_take_half_of_the_bytes_down():
    up, down = (getattr(codecs.named("lanes-16-8").traffic(1 << 20, 8), way) / (4 << 20) for way in ("up", "down"))
    assert (round(up, 3), round(down, 3)) == (0.516, 0.266)
    with pytest.raises(ValueError, match="lanes-16-8: 40000 workers, expected at most 32703, for 16 bits"):
        codecs.named("lanes-16-8").traffic(1, 40_000)
