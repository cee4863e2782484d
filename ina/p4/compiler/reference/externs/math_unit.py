"""TNA's MathUnit (arch/tna_math.py)."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.tna_math import math_unit
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.values import Value, wrap
from ina.p4.compiler.types import fixed_width, underlying


class MathUnit(ExternObject):
    names = ("MathUnit",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        unit = math_unit(instance, call.span)
        width = fixed_width(call.type) or 0
        x = args.number("x") & (1 << width) - 1
        e = max(0, x.bit_length() - 4)
        if unit.shift < 0:
            e += e & 1
        power = e >> 1 if unit.shift < 0 else e << unit.shift
        power = unit.scale + (-power if unit.invert else power)
        value = unit.table[x >> e]
        return wrap(min((1 << width) - 1, value >> -power if power < 0 else value << power), underlying(call.type))
