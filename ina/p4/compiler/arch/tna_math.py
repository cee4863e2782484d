"""TNA's MathUnit: an approximation by exponent and a table over the four leading bits of the operand.

x = m * 2^e with the leading one of x in bit 3 of m (x below 16 is used unchanged, e = 0). The result is
table[m] * 2^(scale + e'), where e' is e shifted left by `shift` (right for -1), negated if `invert`. For square roots
an odd e would lose half a bit: the operand is aligned to an even e, so that m has its leading one in bit 3 or 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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
    """A MathUnit. `table` by m: 0 to 15."""

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
    values = [factor * FUNCTIONS[op](m) if m else 0.0 for m in range(16)]
    # The smallest exponent that fits all of the table's values into 8 bits.
    used = values[1:]
    if not any(used):
        raise CompileError(span, "a MathUnit whose factor is zero")
    scale = math.frexp(max(used))[1] - 8
    if not -32 <= scale <= 31:
        raise CompileError(span, f"a MathUnit's factor {factor}: the result needs a scale of {scale}, -32..31 are possible")
    table = tuple(min(255, round(v / 2.0**scale)) for v in values)
    return MathUnit(invert, shift, scale, table)
