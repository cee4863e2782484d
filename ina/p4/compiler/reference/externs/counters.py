"""Counters: v1model's `counter` and `direct_counter`, TNA's Counter and DirectCounter."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import MASK32, TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import CounterArray
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value


class V1Counter(ExternObject):
    names = ("counter",)

    def create(self, machine: Machine, instance: Instance) -> CounterArray:
        return CounterArray(instance.name, instance.args["size"], instance.args["type"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.state(instance, CounterArray).count(args.number(0), machine.packet.length)
        return None


class V1DirectCounter(ExternObject):
    names = ("direct_counter",)

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return None  # the table has counted


class Counter(ExternObject):
    names = ("Counter",)

    def create(self, machine: Machine, instance: Instance) -> CounterArray:
        return CounterArray(instance.name, instance.args["size"], instance.args["type"].lower())

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.state(instance, CounterArray).count(args.number("index"), octets(machine, args))
        return None


class DirectCounter(ExternObject):
    names = ("DirectCounter",)

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        entry = machine.entry(instance, call)
        if entry is not None:
            entry.packets, entry.octets = entry.packets + 1, entry.octets + octets(machine, args)
        return None


def octets(machine: TnaMachine, args: Arguments) -> int:
    """Returns the packet's length as a counter or meter of TNA takes it."""
    return machine.phase.octets - args.number("adjust_byte_count", 0) & MASK32
