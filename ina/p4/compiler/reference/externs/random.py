"""Random numbers: v1model's `random`, TNA's Random."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.values import Value, wrap
from ina.p4.compiler.types import fixed_width, underlying


class V1Random(ExternFunction):
    names = ("random",)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        args.place(0).set(machine.random.between(args.number(1), args.number(2)))
        return None


class Random(ExternObject):
    names = ("Random",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return wrap(machine.random.between(0, (1 << (fixed_width(call.type) or 0)) - 1), underlying(call.type))
