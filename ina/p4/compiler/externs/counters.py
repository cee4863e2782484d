"""Counters: v1model's `counter` and `direct_counter`, TNA's Counter and DirectCounter."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.cells import Cells, direct_entry, index32, named_arguments
from ina.p4.compiler.externs.extern import ExternObject
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value


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


COUNTERS = (V1Counter(),)
TNA_COUNTERS = (Counter(),)
