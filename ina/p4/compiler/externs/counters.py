"""Counters: v1model's `counter` and `direct_counter`, TNA's Counter and DirectCounter."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.cells import Cells, direct_entry, index32, named_arguments
from ina.p4.compiler.externs.extern import ExternObject
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import CounterArray
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value as RunTimeValue


def cells(low: Lowering, instance: Instance, size: int | None = None) -> ir.Counter:
    """Returns the counter of an object, of `size` cells for the entries of a table. The program counts TNA's itself."""
    counters = low.state(Cells).counters
    if instance not in counters:
        explicit = instance.decl.name in Counter.names
        kind = instance.args["type"].lower() if explicit else instance.args["type"]
        size = size if size is not None else int(instance.args["size"])
        counters[instance] = ir.Counter(instance.name, kind, size, explicit=explicit)
    return counters[instance]


def attach(low: Lowering, use: TableUse, instance: Instance) -> None:
    use.table.counter = cells(low, instance, use.table.size)
    use.table.counter.table = use.table.name


def less(low: Lowering, args: dict[str, ast.Expr]) -> list[ir.Expr]:
    """Returns the bytes that a call does not want counted."""
    adjustment = args.get("adjust_byte_count")
    return [] if adjustment is None else [fold.cast(low.scalar(adjustment), 32)]


class V1Counter(ExternObject):
    names = ("counter", "direct_counter")
    properties = ("counters",)

    def declare(self, low: Lowering, instance: Instance) -> None:
        if instance.decl.name == "counter":
            cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if instance.decl.name != "direct_counter":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        attach(low, use, instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        if instance.decl.name == "counter":  # of a direct one, the table counts every hit (BMv2)
            low.emit(operations.Count(cells(low, instance), args=[index32(low, call.given(0))]))
        return None

    def create(self, machine: Machine, instance: Instance) -> CounterArray | None:
        if instance.decl.name == "direct_counter":
            return None  # entries count
        return CounterArray(instance.name, instance.args["size"], instance.args["type"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        if instance.decl.name == "counter":
            machine.state(instance, CounterArray).count(args.number(0), machine.packet.length)
        return None


class Counter(ExternObject):
    names = ("Counter", "DirectCounter")
    properties = ("counters", "filters", "meters")

    def declare(self, low: Lowering, instance: Instance) -> None:
        if instance.decl.name == "Counter":
            cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if instance.decl.name == "Counter":
            return  # an object that actions index themselves
        if prop.name != "counters":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        attach(low, use, instance)
        use.direct.append(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        args = named_arguments(call)
        if instance.decl.name == "Counter":
            counter, index = cells(low, instance), index32(low, args["index"])
        else:
            index = direct_entry(low, call, instance)
            counter = low.state(Cells).counters[instance]
        low.emit(operations.Count(counter, args=[index, *less(low, args)]))
        return None

    def create(self, machine: Machine, instance: Instance) -> CounterArray | None:
        if instance.decl.name == "DirectCounter":
            return None  # entries count
        return CounterArray(instance.name, instance.args["size"], instance.args["type"].lower())

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        if instance.decl.name == "Counter":
            machine.state(instance, CounterArray).count(args.number("index"), machine.octets(args))
        elif (entry := machine.entry(instance, call)) is not None:
            entry.packets, entry.octets = entry.packets + 1, entry.octets + machine.octets(args)
        return None


COUNTERS = (V1Counter(),)
TNA_COUNTERS = (Counter(),)
