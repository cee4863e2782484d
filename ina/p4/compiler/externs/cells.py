"""Objects of cells: v1model's counters and meters; TNA's Counter, Meter, Lpf, Wred and their direct forms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.arch.tna_machine import MASK32, TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternObject, Objects
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import CounterArray, FilterArray, MeterArray
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.tables import Table

C = TypeVar("C", bound=ir.Cells)
ANY_SIZE = 1 << 32  # of a direct object in the interpreter: a cell for each entry's handle


def is_direct(instance: Instance) -> bool:
    """Returns True for a DirectCounter, direct_meter, ...: its cells belong to the entries of the table that names it."""
    name: str = instance.decl.name
    return name.startswith(("Direct", "direct_"))


class CellObject(ExternObject, ABC, Generic[C]):
    """A counter, meter or filter. `direct_properties`: the table properties that name direct ones. `explicit`: the program itself
    accesses the cells of a table's entries (TNA); otherwise the switch does, at every hit."""

    direct_properties: ClassVar[tuple[str, ...]]
    explicit: ClassVar[bool] = True

    @abstractmethod
    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> C:
        """Returns the cells of an object, `size` of them for the entries of a table."""

    def give(self, low: Lowering, use: TableUse, instance: Instance, cells: C) -> None:
        """Gives a direct object's cells to its table."""

    def declare(self, low: Lowering, instance: Instance) -> None:
        if not is_direct(instance):
            self.cells(low, instance)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if self.explicit and not is_direct(instance):
            return  # an object that actions index themselves
        if not is_direct(instance) or prop.name not in self.direct_properties:
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        cells = self.cells(low, instance, use.table.size)
        cells.table = use.table.name
        self.give(low, use, instance, cells)
        if self.explicit:
            use.direct.append(instance)

    def cell(self, low: Lowering, call: ast.Call, instance: Instance) -> tuple[C, ir.Expr]:
        """Returns an object's cells and the index of the one that a call uses."""
        if is_direct(instance):
            entry = direct_entry(low, call, instance)
            return self.cells(low, instance, 1), entry  # a table has made its cells already
        return self.cells(low, instance), index32(low, call.named()["index"])


def index32(low: Lowering, e: ast.Expr) -> ir.Expr:
    """Returns the index of a cell: its bits as an unsigned number, whatever its type."""
    index = low.scalar(e)
    if index.width > 64:
        raise unsupported(e, "an index of more than 64 bits")
    return fold.cast(index, index.width)


def direct_entry(low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
    """Returns the entry of its table whose cell a direct object's call uses here. One that no table names has one cell: Intel's
    compiler makes a table without a key of the statement."""
    if instance not in low.program.attached:
        return fold.const(0, 32)
    entry = low.tables.entries.get(instance)
    if entry is None:
        raise unsupported(call, f"{instance.decl.name}.{call.method} outside of the actions of the table that names it")
    return entry


def uncounted_bytes(low: Lowering, args: dict[str, ast.Expr]) -> list[ir.Expr]:
    """Returns the bytes that a call does not want counted."""
    adjustment = args.get("adjust_byte_count")
    return [] if adjustment is None else [fold.cast(low.scalar(adjustment), 32)]


def scalars_of(t: types.Type, path: str, node: ast.Node) -> list[tuple[str, int, bool]]:
    """Returns (path, width, signed) of each scalar of a register's element: "" of one that is a scalar, else ".x", ".y.z"."""
    t = types.strip_new(t)
    shape = value_trees.scalar_shape(t)
    if shape is not None:
        return [(path, *shape)]
    if isinstance(t, types.StructType):
        return [s for f in t.fields.values() for s in scalars_of(f.type, f"{path}.{f.name}", node)]
    if isinstance(t, types.TupleType):
        return [s for i, part in enumerate(t.elements) for s in scalars_of(part, f"{path}.f{i}", node)]
    raise unsupported(node, f"a register of {t}")


# --- counters ----------------------------------------------------------------------------------------------------------


class CounterObject(CellObject[ir.Counter]):
    direct_properties = ("counters",)

    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> ir.Counter:
        counters, args = low.state(Objects).counters, instance.args
        if instance not in counters:
            size = int(args["size"]) if size is None else size
            counters[instance] = ir.Counter(instance.name, args["type"].lower(), size, explicit=self.explicit)
        return counters[instance]

    def give(self, low: Lowering, use: TableUse, instance: Instance, cells: ir.Counter) -> None:
        use.table.counter = cells

    def create(self, machine: Machine, instance: Instance) -> CounterArray | None:
        if is_direct(instance):
            attached = instance in machine.program.attached
            return None if attached else CounterArray(instance.name, 1, instance.args["type"].lower())  # entries count
        return CounterArray(instance.name, instance.args["size"], instance.args["type"].lower())


class V1Counter(CounterObject):
    names = ("counter", "direct_counter")
    properties = ("counters",)
    explicit = False

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        if not is_direct(instance):
            counter, index = self.cell(low, call, instance)
            low.emit(operations.Count(counter, args=[index]))

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if not is_direct(instance):
            machine.state(instance, CounterArray).count(args.index(0), machine.packet.length)


class Counter(CounterObject):
    names = ("Counter", "DirectCounter")
    properties = ("counters", "filters", "meters")

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        counter, index = self.cell(low, call, instance)
        low.emit(operations.Count(counter, args=[index, *uncounted_bytes(low, call.named())]))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if not is_direct(instance) or instance not in machine.program.attached:
            machine.state(instance, CounterArray).count(args.index("index", 0), machine.octets(args))
        elif (entry := machine.entry(instance, call)) is not None:
            entry.packets, entry.octets = entry.packets + 1, entry.octets + machine.octets(args)


# --- meters and filters ------------------------------------------------------------------------------------------------

COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t
RANKS = {0: 0, 1: 1, 3: 2}  # by MeterColor_t


@dataclass(slots=True)
class DirectColors:
    """The colours of direct meters at the last hit of their tables; green at first."""

    variables: dict[Instance, ir.Var] = field(default_factory=dict)

    def of(self, instance: Instance) -> ir.Var:
        return self.variables.setdefault(instance, ir.Var("color", 32))


class MeterObject(CellObject[ir.Meter]):
    direct_properties = ("meters",)

    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> ir.Meter:
        meters, args = low.state(Objects).meters, instance.args
        if instance not in meters:
            size = int(args["size"]) if size is None else size
            meters[instance] = ir.Meter(instance.name, args["type"].lower(), size, explicit=self.explicit)
        return meters[instance]

    def give(self, low: Lowering, use: TableUse, instance: Instance, cells: ir.Meter) -> None:
        use.table.meter = cells

    def create(self, machine: Machine, instance: Instance) -> MeterArray:
        size = ANY_SIZE if is_direct(instance) else instance.args["size"]
        return MeterArray(instance.name, size, instance.args["type"].lower())

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        """Attaches a meter of a table's entries, configured by their handles: `table.meter_states.configure(handle, ...)`."""
        table.attached.append(instance)
        table.meter_states = machine.state(instance, MeterArray)


class V1Meter(MeterObject):
    names = ("meter", "direct_meter")
    properties = ("meters",)
    explicit = False

    def give(self, low: Lowering, use: TableUse, instance: Instance, cells: ir.Meter) -> None:
        super().give(low, use, instance, cells)
        use.color = low.state(DirectColors).of(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        if is_direct(instance):
            color = low.state(DirectColors).of(instance)
            low.assign(low.result(call, 0), fold.cast(color, *shape_of(call.params[0].type, call)), call)
            return
        meter = self.cells(low, instance)
        target, index = low.result(call, 1), index32(low, call.given(0))
        color = low.code.temp(32, name="color")
        low.emit(operations.Measure(meter, targets=[color], args=[index]))
        low.assign(target, fold.cast(color, *shape_of(call.params[1].type, call)), call)

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        packet = machine.packet
        if is_direct(instance):
            args.place(0).set(packet.colors.get(instance, 0))
        else:
            meter = machine.state(instance, MeterArray)
            args.place(1).set(meter.execute(args.index(0), packet.length, packet.now_ps))


class Meter(MeterObject):
    names = ("Meter", "DirectMeter")
    properties = ("meters", "filters", "counters")

    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> ir.Meter:
        meter = super().cells(low, instance, size)
        if meter.kind == "bytes" and meter.adjust is None:
            meter.adjust = ir.Register(f"{instance.name}.$byte_count_adjust", 64, 1)
        return meter

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
        (meter, index), args = self.cell(low, call, instance), call.named()
        octets = uncounted_bytes(low, args) or [fold.const(0, 32)]
        colors: list[ir.Expr] = []
        if "color" in args:
            color = low.code.stable(low.scalar(args["color"]))
            colors = [fold.cond(fold.eq(color, fold.const(COLORS["red"], 8)), fold.const(2, 32), fold.cast(color, 32))]
        result = low.code.temp(32, name="color")
        low.emit(operations.Measure(meter, targets=[result], args=[index, *octets, *colors]))
        green, yellow, red = (fold.const(instance.args.get(name, value), 8) for name, value in COLORS.items())
        others = fold.cond(fold.eq(result, fold.const(1, 32)), yellow, red)
        return fold.cond(fold.eq(result, fold.const(0, 32)), green, others)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int:
        meter = machine.state(instance, MeterArray)
        state = meter.states.get(machine.cell(instance, call, args))
        color = args.number("color", 0)
        rank = RANKS.get(color, color)
        if state is not None:
            rank = state.mark_aware(1 if meter.unit == "packets" else machine.octets(args), machine.phase.now_ps, rank)
        colors: list[int] = [instance.args.get(name, value) for name, value in COLORS.items()]
        return colors[min(rank, 2)]


class Filter(CellObject[ir.Filter]):
    """A low-pass filter, or weighted random early drop by the average of one."""

    names = ("Lpf", "Wred", "DirectLpf", "DirectWred")
    properties = ("filters", "meters", "counters")
    direct_properties = ("filters", "meters")

    def cells(self, low: Lowering, instance: Instance, size: int | None = None) -> ir.Filter:
        filters = low.state(Objects).filters
        if instance not in filters:
            kind = instance.decl.name.removeprefix("Direct").lower()
            filters[instance] = ir.Filter(instance.name, kind, int(instance.args["size"]) if size is None else size)
        return filters[instance]

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
        filter_, index = self.cell(low, call, instance)
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
        return FilterArray(instance.name, ANY_SIZE if is_direct(instance) else instance.args["size"])

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int:
        state, index = machine.state(instance, FilterArray), machine.cell(instance, call, args)
        sample = args.number("val") & MASK32
        if instance.decl.name.endswith("Lpf"):
            return wrap(state.smoothed(index, sample, machine.phase.now_ps), types.underlying(call.type))
        drop = state.drops(index, sample, machine.phase.now_ps, machine.random)
        value: int = instance.args["drop_value" if drop else "no_drop_value"]
        return value
