"""TNA's objects of parsers: ParserCounter, ParserPriority."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import ParserError
from ina.p4.compiler.reference.values import Value


class ParserCounter(ExternObject):
    names = ("ParserCounter",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        counters = machine.phase.counters
        value = counters.get(instance, 0)
        match call.method:
            case "is_zero":
                return value == 0
            case "is_negative":
                return value < 0
            case "increment":
                value += args.number("value")
            case "decrement":
                value -= args.number("value")
            case "set" if "value" in args:
                value = args.number("value")
            case _:
                value = _loaded(args)
        counters[instance] = (value + 128) % 256 - 128
        return None


def _loaded(args: Arguments) -> int:
    """Returns the value that `set` takes from a field of the packet."""
    field = args.number("field") & 255
    if field > args.number("max"):
        raise ParserError("CounterRange")
    turn = args.number("rotate") % 8
    return ((field >> turn | field << 8 - turn) & 255 & (1 << args.number("mask") + 1) - 1) + args.number("add")


class ParserPriority(ExternObject):
    names = ("ParserPriority",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return None
