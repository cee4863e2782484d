"""Operations of v1model: requests to the switch, and what a packet takes along into its next pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ina.p4.compiler import ir
from ina.p4.compiler.lower.value_trees import Header


@dataclass(eq=False, slots=True)
class Restore(ir.Operation):
    """Loads the preserved field list of a packet that passed ingress before, of one of `kinds`."""

    kinds: tuple[str, ...]
    lasting: ClassVar[bool] = False


@dataclass(eq=False, slots=True)
class Save(ir.Operation):
    """Ends ingress: stores what egress, clones, resubmissions and digests read. `args`: the requests for copies. `targets`: the
    variable that says that all of `headers` stay where they are, with the rest of the frame at `cursor`; none: they may not."""

    headers: list[Header]
    cursor: ir.Var


@dataclass(eq=False, slots=True)
class Preserve(ir.Operation):
    """Stores the preserved fields if the request in `args` is made."""


@dataclass(eq=False, slots=True)
class Describe(ir.Operation):
    """Tells the runtime of a clone, its session and field list, and of a digest (`args`)."""


@dataclass(eq=False, slots=True)
class Decide(ir.Operation):
    """Decides what becomes of the packet at the end of ingress: `verdict` of packet.h. `args`: the group or port that it goes to,
    or the field list that it takes along."""

    verdict: str


@dataclass(eq=False, slots=True)
class Drop(ir.Operation):
    """Drops the packet and ends egress."""


@dataclass(eq=False, slots=True)
class Truncate(ir.Operation):
    """Keeps the smallest length; the deparser applies it. A frame has at least one byte."""


@dataclass(eq=False, slots=True)
class Transmit(ir.Operation):
    """Ends egress. `args`: the request to recirculate, and its field list."""
