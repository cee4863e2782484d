"""FPISA (Yuan et al., NSDI'22): float32 added in the switch, by p4/fpisa.p4; no exponent has to be agreed before.

A sum is made of the workers' numbers one after the other, in the order in which their packets come: other orders may cut off
other places, and all workers get the bits of one. Infinities and NaN stay with their own element. docs/design/fpisa.md has the
definition, `sums` follows it; what the codec's `own` gives over NumPy is the sum in the order of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.codecs.codec import OWN, Call, Codec, Round, Rounds, Traffic, both_ways

HEAD_ROOM = 7  # bits of a mantissa above float32's 24
LEAST, LARGEST = -(2.0**31), 2.0**31 - 1  # mantissas


def sums(tensors: Sequence[np.ndarray], shifts_stored: bool = True) -> np.ndarray:
    """Returns the float32 sum of float32 ``tensors`` in their order, as one switch gives it. ``shifts_stored``: as FPISA, or
    else as FPISA-A.

    The unit is 2^(exponent - 150), where the exponent is the sum's; all numbers are cut towards zero to multiples of it. FPISA's
    exponent is the largest so far. FPISA-A's stays that of the first number; one that is larger by more than HEAD_ROOM takes the
    sum's place, with its exponent. It cuts towards minus infinity, and by more than 31 - HEAD_ROOM places to zero; a sum that
    comes to LEAST or LARGEST units stays there.
    """
    finite = [np.where(np.isfinite(each), each, np.float32(0)) for each in tensors]
    total, exponent = finite[0].astype(np.float64), _exponent(finite[0])
    for value in finite[1:]:
        own = _exponent(value)
        if shifts_stored:
            exponent = np.maximum(exponent, own)
            total = _cut(total, exponent) + _cut(value, exponent)
        else:
            stored, more = (np.ldexp(each.astype(np.float64), 150 - exponent) for each in (total, value))
            more = np.where(exponent - own > 31 - HEAD_ROOM, 0, np.floor(more))
            units = np.where((stored == LEAST) | (stored == LARGEST), stored, np.clip(stored + more, LEAST, LARGEST))
            replaced = own > exponent + HEAD_ROOM
            total = np.where(replaced, value, np.ldexp(units, exponent - 150))
            exponent = np.where(replaced, own, exponent)
    return np.where(*_special(tensors), _rounded_down(total))


def _exponent(values: np.ndarray) -> np.ndarray:
    """Returns the exponents of float32, of denormal numbers 1."""
    return np.maximum(np.frexp(values)[1] + np.where(values == 0, 0, 126), 1)


def _cut(values: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Returns float64 multiples of 2^(exponent - 150), towards zero."""
    return np.ldexp(np.trunc(np.ldexp(values.astype(np.float64), 150 - exponent)), exponent - 150)


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """Returns float32, towards zero; infinite from 2^128; zeros are positive."""
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    nearest = np.where(np.abs(nearest.astype(np.float64)) > np.abs(values), np.nextafter(nearest, np.float32(0)), nearest)
    return np.where(np.abs(values) >= 2.0**128, np.copysign(np.float32(np.inf), nearest), nearest) + np.float32(0)


def _last_place(values: np.ndarray) -> np.ndarray:
    """Returns float32's unit in the last place of values that may be larger than float32's."""
    return np.ldexp(1.0, np.maximum(np.frexp(values)[1] - 24, -149))


def _special(tensors: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns where a number is not finite, and what the sum is there."""
    up, down = (np.any([each == limit for each in tensors], axis=0) for limit in (np.inf, -np.inf))
    neither = np.any([np.isnan(each) for each in tensors], axis=0) | (up & down)
    return up | down | neither, np.where(neither, np.float32(np.nan), np.where(up, np.float32(np.inf), np.float32(-np.inf)))


class Fpisa(Codec):
    """Floats as they are, on FPISA's program."""

    name = "fpisa"
    protocol = "fpisa"
    accumulator = "float32"
    operations = frozenset({OWN})

    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the numbers; an average is the sum's, divided and rounded once more."""
        words = yield Round(values.astype(np.float32).view(np.int32), OWN)
        return words.view(np.float32) / np.float32(call.divisor)

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the sums in the order of the workers, by their bits."""
        return sums([each.view(np.float32) for each in words]).view(np.int32)

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns 2(n - 1) units in the last place of the sum of the magnitudes, in any order and over any tree of switches."""
        magnitudes = np.sum(np.abs(np.stack(tensors).astype(np.float64)), axis=0)
        places = 2 * (len(tensors) - 1) * _last_place(magnitudes)
        return places / len(tensors) + _last_place(magnitudes / len(tensors)) / 2 if average else places

    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns 4 bytes a value."""
        return both_ways(elements)
