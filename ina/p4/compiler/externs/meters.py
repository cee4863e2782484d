"""Meters and filters: v1model's `meter` and `direct_meter`; TNA's Meter, Lpf, Wred and their direct forms."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.cells import Cells, direct_entry, index32, named_arguments
from ina.p4.compiler.externs.counters import less
from ina.p4.compiler.externs.extern import ExternObject
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value

COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t


@dataclass(slots=True)
class DirectColors:
    """The colours of direct meters at the last hit of their tables; green at first."""

    variables: dict[Instance, ir.Var] = field(default_factory=dict)

    def of(self, instance: Instance) -> ir.Var:
        return self.variables.setdefault(instance, ir.Var("color", 32))


def cells(low: Lowering, instance: Instance, size: int | None = None) -> ir.Meter:
    """Returns the meter of an object, of `size` cells for the entries of a table. The program runs TNA's itself."""
    meters = low.state(Cells).meters
    if instance not in meters:
        explicit = instance.decl.name in Meter.names
        kind = instance.args["type"].lower() if explicit else instance.args["type"]
        size = size if size is not None else int(instance.args["size"])
        meter = meters[instance] = ir.Meter(instance.name, kind, size, explicit=explicit)
        if explicit and kind == "bytes":
            meter.adjust = ir.Register(f"{instance.name}.$byte_count_adjust", 64, 1)
    return meters[instance]


def attach(low: Lowering, use: TableUse, instance: Instance) -> None:
    use.table.meter = cells(low, instance, use.table.size)
    use.table.meter.table = use.table.name


class V1Meter(ExternObject):
    names = ("meter", "direct_meter")
    properties = ("meters",)

    def declare(self, low: Lowering, instance: Instance) -> None:
        if instance.decl.name == "meter":
            cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if instance.decl.name != "direct_meter":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        attach(low, use, instance)
        use.color = low.state(DirectColors).of(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        if instance.decl.name == "direct_meter":
            color = low.state(DirectColors).of(instance)
            low.assign(low.result(call, 0), fold.cast(color, *shape_of(call.params[0].type, call)), call)
            return None
        meter = cells(low, instance)
        target, index = low.result(call, 1), index32(low, call.given(0))
        color = low.code.temp(32, name="color")
        low.emit(operations.Measure(meter, targets=[color], args=[index]))
        low.assign(target, fold.cast(color, *shape_of(call.params[1].type, call)), call)
        return None


class Meter(ExternObject):
    names = ("Meter", "DirectMeter")
    properties = ("meters", "filters", "counters")

    def declare(self, low: Lowering, instance: Instance) -> None:
        if instance.decl.name == "Meter":
            cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if instance.decl.name == "Meter":
            return  # an object that actions index themselves
        if prop.name != "meters":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        attach(low, use, instance)
        use.direct.append(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        args = named_arguments(call)
        if instance.decl.name == "Meter":
            meter, index = cells(low, instance), index32(low, args["index"])
        else:
            index = direct_entry(low, call, instance)
            meter = low.state(Cells).meters[instance]
        octets = less(low, args) or [fold.const(0, 32)]
        colors: list[ir.Expr] = []
        if "color" in args:
            color = low.code.stable(low.scalar(args["color"]))
            colors = [fold.cond(fold.eq(color, fold.const(COLORS["red"], 8)), fold.const(2, 32), fold.cast(color, 32))]
        result = low.code.temp(32, name="color")
        low.emit(operations.Measure(meter, targets=[result], args=[index, *octets, *colors]))
        green, yellow, red = (fold.const(instance.args.get(name, value), 8) for name, value in COLORS.items())
        others = fold.cond(fold.eq(result, fold.const(1, 32)), yellow, red)
        return fold.cond(fold.eq(result, fold.const(0, 32)), green, others)


class Filter(ExternObject):
    """A low-pass filter, or weighted random early drop by the average of one."""

    names = ("Lpf", "Wred", "DirectLpf", "DirectWred")
    properties = ("filters", "meters", "counters")

    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> ir.Filter:
        filters = low.state(Cells).filters
        if instance not in filters:
            kind = instance.decl.name.removeprefix("Direct").lower()
            size = size if size is not None else int(instance.args["size"])
            filters[instance] = ir.Filter(instance.name, kind, size)
        return filters[instance]

    def declare(self, low: Lowering, instance: Instance) -> None:
        if not instance.decl.name.startswith("Direct"):
            self.cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if not instance.decl.name.startswith("Direct"):
            return  # an object that actions index themselves
        if prop.name == "counters":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        self.cells(low, instance, use.table.size).table = use.table.name
        use.direct.append(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        if instance.decl.name.startswith("Direct"):
            index = direct_entry(low, call, instance)
            filter_ = low.state(Cells).filters[instance]
        else:
            filter_, index = self.cells(low, instance), index32(low, named_arguments(call)["index"])
        x = low.scalar(call.given(0))
        if x.width > 32:
            raise unsupported(call, f"{instance.decl.name} of more than 32 bits")
        x = fold.cast(x, 32)
        if filter_.kind == "lpf":
            result = low.code.temp(32, name="average")
            low.emit(tna_operations.LowPass(filter_, targets=[result], args=[index, x]))
            return fold.cast(result, *shape_of(call.type, call))
        result = low.code.temp(1, name="drop")
        low.context.uses_random = True
        low.emit(tna_operations.EarlyDrop(filter_, targets=[result], args=[index, x]))
        drop, keep = (fold.const(instance.args[name], 8) for name in ("drop_value", "no_drop_value"))
        return fold.cond(result, drop, keep)


METERS = (V1Meter(),)
TNA_METERS = (Meter(), Filter())
