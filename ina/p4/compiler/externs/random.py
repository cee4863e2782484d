"""Random numbers: v1model's `random`, TNA's Random."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.values import Value as RunTimeValue
from ina.p4.compiler.reference.values import wrap
from ina.p4.compiler.types import fixed_width, underlying


class RandomFunction(ExternFunction):
    names = ("random",)

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        low.context.uses_random = True
        target = low.result(call, 0)
        width, signed = shape_of(call.params[0].type, call)
        if width > 64:
            raise unsupported(call, "random values of more than 64 bits")
        first, last = low.scalar(call.given(1)), low.scalar(call.given(2))
        wide_first, wide_last = (fold.cast(fold.cast(v, width, signed), 64) for v in (first, last))
        empty = ir.Op("gt", (first, last), 1)
        size = ir.Op("add", (ir.Op("sub", (wide_last, wide_first), 64), fold.const(1, 64)), 64)  # 0: all 2^64
        result = low.code.temp(64, name="random")
        low.emit(operations.Random(targets=[result], args=[wide_first, fold.cond(empty, fold.const(1, 64), size)]))
        low.assign(target, fold.cast(result, width, signed), call)
        return None

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        args.place(0).set(machine.random.between(args.number(1), args.number(2)))
        return None


class Random(ExternObject):
    names = ("Random",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        width, signed = shape_of(call.type, call)
        if width > 64:
            raise unsupported(call, "random values of more than 64 bits")
        low.context.uses_random = True
        result = low.code.temp(64, name="random")
        size = fold.const(1 << width if width < 64 else 0, 64)
        low.emit(operations.Random(targets=[result], args=[fold.const(0, 64), size]))
        return fold.cast(result, width, signed)

    def interpret(self, machine: Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        return wrap(machine.random.between(0, (1 << (fixed_width(call.type) or 0)) - 1), underlying(call.type))


RANDOM = (RandomFunction(),)
TNA_RANDOM = (Random(),)
