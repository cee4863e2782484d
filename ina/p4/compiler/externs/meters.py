"""Meters and filters: v1model's `meter` and `direct_meter`; TNA's Meter, Lpf, Wred and their direct forms."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.cells import Cells, direct_entry, index32, named_arguments
from ina.p4.compiler.externs.counters import less
from ina.p4.compiler.externs.extern import ExternObject
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import FilterArray, MeterArray
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value as RunTimeValue

COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t


ANY_SIZE = 1 << 32  # of a direct object in the interpreter: a cell for each entry's handle
COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t
RANKS = {0: 0, 1: 1, 3: 2}  # by MeterColor_t


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

    def create(self, machine: Machine, instance: Instance) -> MeterArray | None:
        if instance.decl.name == "direct_meter":
            return None  # the table has it
        return MeterArray(instance.name, instance.args["size"], instance.args["type"])

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        """Attaches a meter of a table's entries, configured by their handles: `table.meter_states.configure(handle, ...)`."""
        table.attached.append(instance)
        table.meter_states = MeterArray(instance.name, ANY_SIZE, instance.args["type"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        packet = machine.packet
        if instance.decl.name == "direct_meter":
            args.place(0).set(packet.colors.get(instance, 0))
        else:
            meter = machine.state(instance, MeterArray)
            args.place(1).set(meter.execute(args.number(0), packet.length, packet.now_ps))
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

    def create(self, machine: Machine, instance: Instance) -> MeterArray:
        size = ANY_SIZE if instance.decl.name == "DirectMeter" else instance.args["size"]
        return MeterArray(instance.name, size, instance.args["type"].lower())

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)
        table.meter_states = machine.state(instance, MeterArray)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        meter = machine.state(instance, MeterArray)
        state = meter.states.get(machine.cell(instance, call, args))
        color = args.number("color", 0)
        rank = RANKS.get(color, color)
        if state is not None:
            rank = state.mark_aware(1 if meter.unit == "packets" else machine.octets(args), machine.phase.now_ps, rank)
        colors: list[int] = [instance.args.get(name, value) for name, value in COLORS.items()]
        return colors[min(rank, 2)]


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

    def create(self, machine: Machine, instance: Instance) -> FilterArray:
        return FilterArray(instance.name, ANY_SIZE if instance.decl.name.startswith("Direct") else instance.args["size"])

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        state, index, sample = machine.state(instance, FilterArray), machine.cell(instance, call, args), args.number("val")
        if instance.decl.name.endswith("Lpf"):
            return state.smoothed(index, sample, machine.phase.now_ps)
        drop = state.drops(index, sample, machine.phase.now_ps, machine.random)
        value: int = instance.args["drop_value" if drop else "no_drop_value"]
        return value


METERS = (V1Meter(),)
TNA_METERS = (Meter(), Filter())
