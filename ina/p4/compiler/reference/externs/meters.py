"""Meters: v1model's `meter` and `direct_meter`, TNA's Meter and DirectMeter."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.counters import octets
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import MeterArray, MeterState
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value

ANY_SIZE = 1 << 32  # of a direct meter: a cell for each entry's handle
COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t
RANKS = {0: 0, 1: 1, 3: 2}  # by MeterColor_t


class V1Meter(ExternObject):
    names = ("meter",)

    def create(self, machine: Machine, instance: Instance) -> MeterArray:
        return MeterArray(instance.name, instance.args["size"], instance.args["type"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        meter, packet = machine.state(instance, MeterArray), machine.packet
        args.place(1).set(meter.execute(args.number(0), packet.length, packet.now_ps))
        return None


class V1DirectMeter(ExternObject):
    """A meter of a table's entries, configured by an entry's handle: `table.meter_states.configure(handle, ...)`."""

    names = ("direct_meter",)

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)
        table.meter_states = MeterArray(instance.name, ANY_SIZE, instance.args["type"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        args.place(0).set(machine.packet.colors.get(instance, 0))
        return None


class Meter(ExternObject):
    names = ("Meter",)

    def create(self, machine: Machine, instance: Instance) -> MeterArray:
        return MeterArray(instance.name, instance.args["size"], instance.args["type"].lower())

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return _execute(machine, instance, args.number("index"), args)


class DirectMeter(ExternObject):
    names = ("DirectMeter",)

    def create(self, machine: Machine, instance: Instance) -> MeterArray:
        return MeterArray(instance.name, ANY_SIZE, instance.args["type"].lower())

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)
        table.meter_states = machine.state(instance, MeterArray)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        entry = machine.entry(instance, call)
        return _execute(machine, instance, -1 if entry is None else entry.handle, args)


def _execute(machine: TnaMachine, instance: Instance, index: int, args: Arguments) -> int:
    meter = machine.state(instance, MeterArray)
    color = args.number("color", 0)
    color = RANKS.get(color, color)
    state = meter.states.get(index)
    if state is not None:
        color = _aware(state, 1 if meter.unit == "packets" else octets(machine, args), machine.phase.now_ps, color)
    colors: list[int] = [instance.args.get(name, value) for name, value in COLORS.items()]
    return colors[min(color, 2)]


def _aware(state: MeterState, amount: int, now_ps: int, before: int) -> int:
    """Marks colour-aware (RFC 2698 section 3): 0 green, 1 yellow, 2 red."""
    if before == 0:
        return state.mark(amount, now_ps)
    elapsed = max(now_ps - state.last_ps, 0) / 1e12
    committed = min(state.committed_tokens + elapsed * state.committed_rate, state.committed_burst)
    color = state.mark(amount if before == 1 else 0, now_ps)
    state.committed_tokens = committed
    return 2 if before == 2 or color == 2 else 1
