"""The reference interpreter: the slow, obvious definition of what a P4 program does, to compare compiled switches with.

It walks only the checked tree. Each construct reads like its clause in the P4_16 v1.2.5 specification:
    values.py        values, validity, copying, bits (§7, §8.18-§8.20)
    places.py        evaluated lvalues (§6.6)
    machine.py       the context of a run: the program's objects, and the variables of an activation
    expressions.py   expressions (§8)
    statements.py    statements (§12)
    blocks.py        copy-in and copy-out (§6.7), parsers, controls, table application (§13, §14)
    calls.py         calls of every kind
    tables.py        match kinds, priorities, profiles, value sets, and their control plane
    packet.py        packet_in, packet_out (§13.8, §16)
    ../externs/      the architectures' externs
    ../arch/interpret_*.py   the architectures: pipeline and replication
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.arch.architecture import supported_architecture
from ina.p4.compiler.arch.interpret_tna import Tna
from ina.p4.compiler.arch.interpret_v1model import V1Model
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.externs.user import externs_of
from ina.p4.compiler.frontend import deep_recursion
from ina.p4.compiler.instances import (
    action_name,
    entry_priorities,
    instances_of,
    property_instance,
    tables_of,
    value_set_fields,
    value_set_kind,
)
from ina.p4.compiler.reference import calls as calls
from ina.p4.compiler.reference.expressions import evaluate, evaluate_number
from ina.p4.compiler.reference.machine import Architecture, CloneSession, Frame, Item, Output, Semantics
from ina.p4.compiler.reference.objects import CounterArray, MeterArray, RegisterArray
from ina.p4.compiler.reference.signals import InterpreterError, PacketFailed
from ina.p4.compiler.reference.tables import ActionProfile, BoundAction, Entry, Match, Table, ValueSet, canonical
from ina.p4.compiler.types import Type, fixed_width

T = TypeVar("T")
ARCHITECTURES: dict[str, Callable[[CheckedProgram, Semantics, int], Architecture]] = {"v1model": V1Model, "tna": Tna}
TABLE_OBJECTS = ("implementation", "counters", "meters", "registers", "filters")


class NameMap(dict[str, T]):
    """Objects by control-plane name; `map[name]` also takes a suffix after a dot that is unique. Unknown names raise KeyError."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: str) -> T:
        matches = [n for n in self if n.endswith("." + name)]
        if len(matches) != 1:
            problem = "ambiguous" if matches else "unknown"
            raise KeyError(f"{self._kind} '{name}' is {problem}; there are: {', '.join(self)}")
        return self[matches[0]]


class Interpreter:
    """A v1model or TNA switch that runs `checked`; `seed` starts its random numbers; `externs`: a Python file with the
    bodies of externs that the program itself declares.

    Control plane: `tables`, `profiles`, `value_sets`, `registers`, `counters`, `meters` (by name),
    `multicast_groups` (group -> [(port, rid)]), `clone_sessions` (session -> CloneSession).
    Results besides output: `digests`, `log`, `drops` (by reason). Raises CompileError for other architectures.
    """

    def __init__(self, checked: CheckedProgram, seed: int = 0, externs: str | Path | None = None) -> None:
        name = supported_architecture(checked)
        self.architecture: Architecture = ARCHITECTURES[name](checked, externs_of(name, externs), seed)
        self.program, self.machine = checked, self.architecture.machine
        self.tables: NameMap[Table] = NameMap("table")
        self.profiles: NameMap[ActionProfile] = NameMap("action profile")
        self.value_sets: NameMap[ValueSet] = NameMap("value set")
        self.registers: NameMap[RegisterArray] = NameMap("register")
        self.counters: NameMap[CounterArray] = NameMap("counter")
        self.meters: NameMap[MeterArray] = NameMap("meter")
        machine = self.machine
        self.multicast_groups, self.clone_sessions = machine.multicast_groups, machine.clone_sessions
        self.digests, self.log, self.drops = machine.digests, machine.log, machine.drops
        instances = list(instances_of(checked))
        for instance in instances:
            self._create_object(instance)
        for instance in instances:
            self._create_tables(instance)

    # --- data plane -----------------------------------------------------------------------------------------------

    def process(self, frame: bytes, port: int, now_ps: int = 0) -> list[tuple[int, bytes]]:
        """Runs the whole switch; returns every (port, frame) that leaves because of this frame, first in first out. A frame
        without bytes is dropped as malformed."""
        if not frame:
            self.drops["malformed"] += 1
            return []
        queue = deque([self.architecture.item(frame, port, now_ps)])
        sent = []
        while queue:
            for result in self.step(queue.popleft()):
                if isinstance(result, Output):
                    sent.append((result.port, result.frame))
                else:
                    queue.append(result)
        return sent

    def step(self, item: Item) -> Sequence[Item | Output]:
        """Runs the next pass of `item`: ingress or egress."""
        self.machine.loops.start()
        try:
            with deep_recursion():
                return self.architecture.step(item)
        except PacketFailed as failed:
            self.drops[failed.reason] += 1
            self.log.append(str(failed))
            return []

    # --- construction ---------------------------------------------------------------------------------------------

    def _create_object(self, instance: Instance) -> None:
        if not isinstance(instance.decl, ast.ExternDecl) or instance in self.machine.objects:
            return
        match self.machine.create(instance):
            case RegisterArray() as register:
                self.registers[register.name] = register
            case CounterArray() as counter:
                self.counters[counter.name] = counter
            case MeterArray() as meter:
                self.meters[meter.name] = meter
            case ActionProfile() as profile:
                self.profiles[profile.name] = profile

    def _create_tables(self, instance: Instance) -> None:
        if isinstance(instance.decl, ast.ControlDecl):
            for table in tables_of(instance):
                self._create_table(instance, table)
        elif isinstance(instance.decl, ast.ParserDecl):
            for node in instance.decl.locals:
                if isinstance(node, ast.ValueSetDecl):
                    self._create_value_set(instance, node)

    def _create_table(self, instance: Instance, decl: ast.TableDecl) -> None:
        actions = {action_name(instance, ref.decl): ref for ref in [decl.default_action, *decl.actions]}
        table = Table(instance.cp_names[decl.name], decl, actions)
        for name in TABLE_OBJECTS:
            if name in decl.properties:
                extern = property_instance(self.program, instance, table.name, decl.properties[name])
                self._create_object(extern)
                self.machine.join(table, name, extern)
        self.machine.tables[instance, decl] = table
        self.tables[table.name] = table
        frame = Frame(self.machine, instance)
        for entry, priority in zip(decl.entries, entry_priorities(decl), strict=True):
            match = [
                canonical(kind, _entry_match(kind, key, t, frame), t, table.name)
                for kind, key, t in zip(table.kinds, entry.keys, table.key_types, strict=True)
            ]
            table.append(Entry(match, BoundAction(entry.action, []), priority, is_const=entry.is_const or decl.const_entries))

    def _create_value_set(self, instance: Instance, decl: ast.ValueSetDecl) -> None:
        """Creates a value set. Elements of a struct or tuple are matched one by one: `@match(kind)` on a field, else exact
        (§13.11)."""
        fields = value_set_fields(getattr(decl.type, "element", decl.type), value_set_kind(self.program))
        types, kinds = [t for _, t, _ in fields], [kind for *_, kind in fields]
        value_set = ValueSet(instance.cp_names.get(decl.name, decl.cp_name), decl, types, kinds)
        self.machine.value_sets[instance, decl] = value_set
        self.value_sets[value_set.name] = value_set


def _entry_match(kind: str, key: ast.Expr, t: Type, frame: Frame) -> Match:
    """Returns a key of an entry in the program (§14.2.1.4) as a match."""
    width = fixed_width(t) or 0
    match key:
        case ast.DontCare():
            return None
        case ast.Mask():
            value, mask = evaluate_number(key.value, frame), evaluate_number(key.mask, frame)
            if kind == "lpm":
                return value, (mask & ((1 << width) - 1)).bit_count()
            return value, mask
        case ast.Range():
            return evaluate_number(key.lo, frame), evaluate_number(key.hi, frame)
    exact = evaluate(key, frame)
    if isinstance(exact, str):  # an enum or error matches as a whole, whatever the match kind
        return exact
    assert isinstance(exact, int)
    if kind == "ternary":
        return exact, (1 << width) - 1
    if kind == "lpm":
        return exact, width
    return (exact, exact) if kind == "range" else exact


__all__ = ["CloneSession", "Interpreter", "InterpreterError", "NameMap", "Output", "Table"]
