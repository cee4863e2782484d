"""Operations of TNA: requests to the switch (tna.h), and the objects of its programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ina.p4.compiler import ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError, Span

SHAPES = {"MUL": (False, 0), "SQR": (False, 1), "SQRT": (False, -1), "DIV": (True, 0), "RSQR": (True, 1), "RSQRT": (True, -1)}
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "MUL": lambda x: x,
    "SQR": lambda x: x * x,
    "SQRT": math.sqrt,
    "DIV": lambda x: 1 / x,
    "RSQR": lambda x: 1 / (x * x),
    "RSQRT": lambda x: 1 / math.sqrt(x),
}


@dataclass(frozen=True, slots=True)
class MathUnit:
    """An approximation by exponent and a table over the four leading bits of the operand. `table` by m: 0 to 15.

    x = m/8 * 2^e with the leading one of x in bit 3 of m, so that e is the place of the leading one. The result is
    table[m] * 2^(scale + e'), where e' is e shifted left by `shift` (right for -1), negated if `invert`. For square roots
    an odd e would lose half a bit: there x = m/8 * 2^(e+1), with the leading one in bit 2 of m. Zero gives table[0] * 2^scale.
    (bf-p4c: mau/stateful_alu.cpp, p4_14include/tofino/stateful_alu_blackbox.p4.)
    """

    invert: bool
    shift: int
    scale: int
    table: tuple[int, ...]


def math_unit(instance: Instance, span: Span) -> MathUnit:
    """Returns the unit for a MathUnit's constructor arguments. Raises CompileError for factors that its table cannot hold."""
    args = instance.args
    if "data" in args:
        return MathUnit(args["invert"], args["shift"], args["scale"], tuple(reversed([int(v) for v in args["data"]])))
    op = args["op"]
    factor = args["factor"] if "factor" in args else args["A"] / args["B"]
    invert, shift = SHAPES[op]
    values = [factor * FUNCTIONS[op](m / 8) if m >= (4 if shift < 0 else 8) else 0.0 for m in range(16)]
    if not any(values):
        raise CompileError(span, "a MathUnit whose factor is zero")
    scale = math.frexp(max(values))[1] - 8  # the smallest exponent that fits all of the table's values into 8 bits
    if not -32 <= scale <= 31:
        raise CompileError(span, f"a MathUnit's factor {factor}: the result needs a scale of {scale}, -32..31 are possible")
    return MathUnit(invert, shift, scale, tuple(min(255, round(v / 2.0**scale)) for v in values))


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
class Complement(ir.Operation):
    """The complement of a ones' complement sum of 16-bit words. `args`: a sum without carries, 64 bits; then, if they are there,
    the bytes of the frame that are added to it: from the first to before the second."""

    lasting: ClassVar[bool] = False
    propagates: ClassVar[bool] = True


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
