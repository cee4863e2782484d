"""Every worker contributes once, and the last one completes the sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ina.aggregation.completion import R, Rule
from ina.base.native import lib


class All(Rule):
    kind = lib.INA_RULE_ALL

    def full(self, below: int) -> int:
        return below

    def last(self, children: int) -> int:
        return children - 1

    def contributions(self, rows: Sequence[R]) -> Iterable[Sequence[R]]:
        return [rows]


RULE = All
