"""Integers that the switch adds up for a mixture of experts (ina/backend/moe/rows.py): they never wrap, and are within the bound
that ina.moe.combine states, of exact sums."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.moe import rows as words  # noqa: E402

pytestmark = pytest.mark.fast
LARGEST = torch.finfo(torch.float32).max


def added(rows: torch.Tensor) -> tuple[list[int], list[Fraction], int]:
    """Sums of the ranks' rows as integers, what they stand for, and the level."""
    level, m = int(words.levels_of(rows).max()), len(rows)
    shift = torch.full((m, 1), words.BITS - (m - 1).bit_length() - level)
    integers = words.scaled(rows.clone(), shift).round_().to(torch.int32).to(torch.int64).sum(0)
    values = integers.double() * words.powers(-shift[0], torch.float64)
    return integers.tolist(), [Fraction(value) for value in values.tolist()], level


@pytest.mark.parametrize("m", range(2, 32))
def test_sums_never_wrap_and_are_within_their_bound(m):
    generator = torch.Generator().manual_seed(m)
    drawn = torch.randn(m, 40, generator=generator) * 2.0 ** torch.randint(-30, 30, (1, 40), generator=generator)
    same = torch.full((m, 1), 1.0 - 2.0**-24)  # the largest below a power of two, whose sum is largest
    half = torch.full((m, 1), 0.5 + 2.0**-24) * 2.0 ** -torch.arange(40)  # lies between two integers, at some place
    for rows in (drawn, same, -same, torch.cat([same, half], 1), same * LARGEST, drawn * 2.0**-120, half * 2.0**-126,
                 torch.cat([torch.full((m, 1), 2.0**-149), torch.zeros(m, 1)], 1)):
        integers, values, level = added(rows)
        largest = Fraction(float(rows.abs().max()))
        assert all(abs(integer) < 2**31 for integer in integers)
        assert largest < Fraction(2) ** level <= 2 * largest
        bound = m * Fraction(2) ** ((m - 1).bit_length() - 31) * largest
        exact = [sum(map(Fraction, column)) for column in rows.t().tolist()]
        assert max(abs(value - each) for value, each in zip(values, exact, strict=True)) <= bound


def test_levels():
    rows = torch.tensor([[0.0, -0.0], [1.0, -3.9], [2.0**-149, 0.0], [LARGEST, 1.0], [math.nan, 1.0], [1.0, -math.inf]])
    assert words.levels_of(rows).tolist() == [words.NOTHING, 2, -148, 128, words.APART, words.APART]
    assert words.levels_of(rows[:, :1].half()).tolist()[3:] == [words.APART, words.APART, 1]
    assert words.levels_of(torch.zeros(0, 3)).tolist() == []
