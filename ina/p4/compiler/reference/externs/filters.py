"""TNA's low-pass filters and random early drop: Lpf, Wred, DirectLpf, DirectWred."""

from __future__ import annotations

import math

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import MASK32, TnaMachine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value


class FilterArray:
    """Cells of an Lpf or Wred: (mode, rise, fall, out, low, high) once configured, times in ns; the average and its time."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.cells: dict[int, tuple[int, float, float, float, float, float]] = {}
        self.averages: dict[int, tuple[float, int]] = {}

    def average(self, index: int, sample: int, now_ps: int) -> float:
        mode, rise, fall = self.cells[index][:3]
        before, last = self.averages.get(index, (0.0, 0))
        constant = rise if sample > before else fall
        decay = math.exp(-max(now_ps - last, 0) / 1e3 / constant) if constant > 0 else 0.0
        after = before * decay + sample if mode == 2 else sample + (before - sample) * decay
        self.averages[index] = (after, max(now_ps, last))
        return after


class Filter(ExternObject):
    names = ("Lpf", "Wred")

    def create(self, machine: Machine, instance: Instance) -> FilterArray:
        return FilterArray(instance.name, instance.args["size"])

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return _execute(machine, instance, args.number("index"), args.number("val"))


class DirectFilter(ExternObject):
    names = ("DirectLpf", "DirectWred")

    def create(self, machine: Machine, instance: Instance) -> FilterArray:
        return FilterArray(instance.name, 1 << 32)

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        entry = machine.entry(instance, call)
        return _execute(machine, instance, -1 if entry is None else entry.handle, args.number("val"))


def _execute(machine: TnaMachine, instance: Instance, index: int, sample: int) -> int:
    state = machine.state(instance, FilterArray)
    if instance.decl.name.endswith("Lpf"):
        if index not in state.cells:
            return sample
        return min(MASK32, int(state.average(index, sample, machine.phase.now_ps) * state.cells[index][3]))
    drop = _early_drop(machine, state, index, sample)
    value: int = instance.args["drop_value"] if drop else instance.args["no_drop_value"]
    return value


def _early_drop(machine: TnaMachine, state: FilterArray, index: int, sample: int) -> bool:
    if not 0 <= index < state.size:
        return False
    number = machine.random.next()
    if index not in state.cells:
        return False
    average = state.average(index, sample, machine.phase.now_ps)
    *_, out, low, high = state.cells[index]
    if average < low or average >= high:
        return average >= high
    return (number >> 11) * 2.0**-53 < out * (average - low) / (high - low)
