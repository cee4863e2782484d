"""Operations of TNA: requests to the switch (tna.h), and the objects of its programs."""

from __future__ import annotations

from dataclasses import dataclass

from ina.p4.compiler import ir
from ina.p4.compiler.arch.tna_math import MathUnit


@dataclass(eq=False, slots=True)
class Begin(ir.Operation):
    """Begins a phase, with no requests."""


@dataclass(eq=False, slots=True)
class ParserDrop(ir.Operation):
    """Drops a packet after a parser error."""


@dataclass(eq=False, slots=True)
class EndIngress(ir.Operation):
    """Tells the switch what the program asked of it: `args` by `names`, then the digest's number if there is one (`digest`)."""

    names: list[str]
    digest: bool


@dataclass(eq=False, slots=True)
class EndEgress(ir.Operation):
    """Tells the switch what the program asked of it: `args` by `names`."""

    names: list[str]


@dataclass(eq=False, slots=True)
class Sent(ir.Operation):
    """Ends a phase; of `egress`, dropped packets get here for their mirrored copy."""

    egress: bool


@dataclass(eq=False, slots=True)
class Mirror(ir.Operation):
    """Requests a mirrored copy. `args`: its session, and the fields in front of it."""


@dataclass(eq=False, slots=True)
class Resubmit(ir.Operation):
    """Requests another pass through ingress. `args`: the fields in front of the packet."""


@dataclass(eq=False, slots=True)
class ChangeableHash(ir.Operation):
    """A hash that the control plane may change. `args`: the result of the program's own hash, then the fields."""

    dynamic: ir.DynamicHash


@dataclass(eq=False, slots=True)
class Math(ir.Operation):
    """A MathUnit's function of `args`."""

    unit: MathUnit


@dataclass(eq=False, slots=True)
class LowPass(ir.Operation):
    """A filter's average. `args`: the cell and the sample."""

    filter: ir.Filter


@dataclass(eq=False, slots=True)
class EarlyDrop(ir.Operation):
    """Weighted random early drop. `args`: the cell and the sample."""

    filter: ir.Filter
