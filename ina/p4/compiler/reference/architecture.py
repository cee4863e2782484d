"""The seam between the interpreter and an architecture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ina.p4.compiler.reference.machine import Machine


class Item(ABC):
    """A packet between two passes, with what the architecture remembers of it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Returns the name of the pass that comes next, for a trace."""


@dataclass(frozen=True)
class Output:
    """A frame that leaves the switch."""

    port: int
    frame: bytes


class Architecture(ABC):
    """A switch around a program: it moves packets, and runs the program's parsers and controls on `machine`."""

    machine: Machine

    @abstractmethod
    def item(self, frame: bytes, port: int, now_ps: int) -> Item:
        """Returns the item for a frame that comes in."""

    @abstractmethod
    def step(self, item: Item) -> Sequence[Item | Output]:
        """Runs the next pass of an item, ingress or egress; returns what comes of it."""
