"""Completion rules: whose values the sum of a phase has, and so when it is complete. Each is one class in one file,
``ina/aggregation/completion/<name>.py``, which ends with ``RULE = <the class>``.

A job has one, by its name (``Job.rule``), perhaps with a value behind a colon. Everyone asks it:

    full, last        parameters of the job's table entries at a switch (ina/aggregation/entries)
    awaited           workers without which the job does not begin
    to_c              the same rule at workers and parameter servers (host/protocol/completion.h)
    contributions     the sums that are right, for the explorer and the simulation
"""

from __future__ import annotations

import functools
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import ClassVar, TypeVar

from ina.base.native import CData

DEFAULT = "all"
R = TypeVar("R")


class Rule(ABC):
    """Base of all rules. ``value``: what its name has behind a colon."""

    kind: ClassVar[int]  # enum ina_rule_kind

    def __init__(self, value: str = ""):
        if value:
            raise ValueError(f"it takes no value, but has {value!r}")

    @abstractmethod
    def full(self, below: int) -> int:
        """Returns the bitmap with which a phase is complete at a switch. ``below``: that of all who send there."""

    @abstractmethod
    def last(self, children: int) -> int:
        """Returns how many packets complete a phase at a switch of so many children, after the first one."""

    @abstractmethod
    def contributions(self, rows: Sequence[R]) -> Iterable[Sequence[R]]:
        """Returns for each right sum the workers' values that are in it. ``rows``: those of all workers, in order."""

    def awaited(self, workers: int, joined: Collection[int]) -> list[int]:
        """Returns those of so many workers that a job waits for before it is admitted: by default, all who have not joined."""
        return [worker for worker in range(workers) if worker not in joined]

    def to_c(self, c: CData) -> None:
        """Writes a ``struct ina_rule``."""
        c.kind = self.kind


def names() -> list[str]:
    """Returns the names of all rules."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def stated(rule: str) -> dict[str, str]:
    """Returns what messages and files say of a job's rule: nothing of the default, which is all that older versions know."""
    return {} if rule == DEFAULT else {"rule": rule}


@functools.cache
def named(text: str) -> Rule:
    """Returns a rule, of ``name`` or ``name:value``. Raises ValueError: there is none of this name, or it refuses the value."""
    name, colon, value = text.partition(":")
    if colon and not value:
        raise ValueError(f"rule: {text!r}: expected a value behind the colon, or none")
    if name not in names():
        raise ValueError(f"rule: {text!r}, expected one of {', '.join(names())}")
    rule: type[Rule] = import_module(f"{__name__}.{name}").RULE
    try:
        return rule(value)
    except ValueError as error:
        raise ValueError(f"rule: {text!r}: {error}") from None
