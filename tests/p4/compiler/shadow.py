"""The reference interpreter with the compiled program as its shadow: both get every frame, and must agree on the frames
they send and on their state afterwards. The interpreter's control plane (tables, groups, sessions, registers) is mirrored before
each frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ina.p4.compiler import frontend
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.compiler.reference.tables import BoundAction, Table
from ina.p4.compiler.reference.values import to_bits
from ina.p4.compiler.types import fixed_width
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import (
    CloneSessionEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
    ValueSetEntry,
)


class Shadowed(Interpreter):
    """Interpreter and compiled program for `path`, which is compiled twice: to the interpreter's tree, and to C."""

    def __init__(
        self, path: Path, defines: dict[str, str] | None = None, seed: int = 0, cflags: list[str] | None = None
    ) -> None:
        super().__init__(frontend.load(path, defines=defines), seed)
        self.compiled = compile_program(path, defines=defines, cflags=cflags)
        self.switch = Switch(self.compiled.so_path, seed=seed)
        for port in range(128 * self.switch.pipes or 511):
            self.switch.add_port(port)
        self.mirrored: dict[Any, Any] = {}

    def process(self, frame: bytes, port: int = 0, now_ps: int = 0) -> list[tuple[int, bytes]]:
        self._mirror()
        expected = super().process(frame, port, now_ps)
        got = self.switch.step(frame, port, now_ps)
        assert sorted(got) == sorted(expected), (
            f"frame {frame.hex()} on port {port}:\n compiled    {[(p, f.hex()) for p, f in got]}\n"
            f" interpreted {[(p, f.hex()) for p, f in expected]}\n {self.compiled.c_path}"
        )
        self._same_state()
        return expected

    # --- control plane ------------------------------------------------------------------------------------------------

    def _mirror(self) -> None:
        for layout in self.compiled.layout["value_sets"]:
            members = [
                {k["name"]: m for k, m in zip(layout["keys"], member, strict=True) if m is not None}
                for member in self.value_sets[layout["name"]].members
            ]
            self._entity(ValueSetEntry(layout["name"], tuple(members)), layout["name"], "MODIFY")
        for layout in self.compiled.layout["tables"]:
            if layout["profile"] is not None:
                self._mirror_profile(layout)
        for layout in self.compiled.layout["meters"]:
            if layout["table"] is None:
                for index, s in self.meters[layout["name"]].states.items():
                    config = MeterConfig(s.committed_rate, s.committed_burst, s.peak_rate, s.peak_burst)
                    self._entity(MeterEntry(layout["name"], index, config), (layout["name"], index), "MODIFY")
        for layout in self.compiled.layout["tables"]:
            if layout["index"] >= 0:
                self._mirror_table(self.tables[layout["name"]], layout)
        for kind, numbers in (("group", self.multicast_groups), ("session", self.clone_sessions)):
            for number, value in numbers.items():
                replicas = value if kind == "group" else self._session(value)
                entry = (MulticastGroupEntry if kind == "group" else CloneSessionEntry)(
                    number, tuple(Replica(port, rid) for port, rid in replicas)
                )
                if self.mirrored.get((kind, number)) != entry:
                    self.switch.write([Update("MODIFY" if (kind, number) in self.mirrored else "INSERT", entry)])
                    self.mirrored[kind, number] = entry
        for name, index, value in () if self.switch.pipes else self._registers():
            if self.switch.register(name)[index] != value:
                self.switch.write([Update("MODIFY", RegisterEntry(name, index, value))])

    def _entity(self, entity: Any, key: Any, first: str = "INSERT") -> None:
        """Writes an entity that is new or has changed."""
        if self.mirrored.get(key) != entity:
            self.switch.write([Update("MODIFY" if key in self.mirrored else first, entity)])
            self.mirrored[key] = entity

    def _mirror_profile(self, layout: dict[str, Any]) -> None:
        name, profile = layout["profile"], self.profiles[layout["profile"]]
        for number, bound in profile.members.items():
            self._entity(ProfileMember(name, number, *self._action(bound, layout)), (name, "member", number))
        for number, members in profile.groups.items():
            self._entity(ProfileGroup(name, number, tuple((m, 1) for m in members)), (name, "group", number))

    def _session(self, session: Any) -> list[tuple[int, int]]:
        members = [] if session.group is None else list(self.multicast_groups.get(session.group, []))
        return members + ([] if session.port is None else [(session.port, 0)])

    def _mirror_table(self, table: Table, layout: dict[str, Any]) -> None:
        entries = {}
        for entry in table.entries if not layout["const_entries"] else ():
            match = {k: m for k, m in zip(table.key_names, entry.match, strict=True) if m is not None}
            match = {n: int(m) if isinstance(m, bool) else m for n, m in match.items()}
            action, params = self._action(entry.action, layout) if entry.action is not None else (None, {})
            priority = entry.priority if table.needs_priority else 0
            entries[repr(match), priority] = TableEntry(
                table.name, match, action, params, priority, member=entry.member, group=entry.group
            )
        if ("table", table.name) not in self.mirrored:  # the program's own entries are there already
            self.mirrored["table", table.name] = {k: None for k in entries} if layout["entries"] else {}
            if layout["entries"]:
                return
        have = self.mirrored["table", table.name]
        updates = [Update("DELETE", e) for k, e in have.items() if entries.get(k) != e and e is not None]
        updates += [Update("INSERT", e) for k, e in entries.items() if k not in have or have[k] not in (None, e)]
        self.mirrored["table", table.name] = {
            k: have.get(k) if have.get(k, 0) is None else e for k, e in entries.items()
        }
        if not layout["const_default"]:
            action, params = self._action(table.default, layout)
            default = TableEntry(table.name, {}, action, params, is_default=True)
            changed = table.default.ref is not table.decl.default_action or table.default.args
            if changed and self.mirrored.get(("default", table.name)) != default:
                updates.append(Update("MODIFY", default))
                self.mirrored["default", table.name] = default
        if updates:
            self.switch.write(updates)

    @staticmethod
    def _action(bound: BoundAction, layout: dict[str, Any]) -> tuple[str, dict[str, int]]:
        names = [a["name"] for a in layout["actions"]]
        name = next(n for n in names if n.split(".")[-1] == bound.ref.decl.cp_name.split(".")[-1])
        args = bound.ref.args or [None] * len(bound.ref.decl.params)
        free = [p for p, arg in zip(bound.ref.decl.params, args, strict=True) if arg is None]
        params = {p.cp_name: to_bits(v, p.type)[1] for p, v in zip(free, bound.args, strict=True)} if bound.args else {}
        return name, params

    # --- state --------------------------------------------------------------------------------------------------------

    def _registers(self) -> list[tuple[str, int, int]]:
        cells = []
        for layout in self.compiled.layout["registers"]:
            if layout["name"] not in self.registers:
                continue  # a part of a register of structs
            register = self.registers[layout["name"]]
            assert fixed_width(register.type) == layout["width"]
            for i, value in enumerate(register.values):
                cells.append((layout["name"], i, to_bits(value, register.type)[1]))
        return cells

    def _same_state(self) -> None:
        if self.switch.pipes:
            return  # a TNA switch has each cell once for every pipe
        cells: dict[str, Any] = {}
        for name, index, value in self._registers():
            if name not in cells:
                cells[name] = self.switch.register(name)
            assert int(cells[name][index]) == value, (name, index)
        for layout in self.compiled.layout["counters"]:
            if layout["table"] is not None:
                continue
            expected, got = self.counters[layout["name"]], self.switch.counter(layout["name"])
            if layout["type"] != "bytes":
                assert [int(c[0]) for c in got] == list(expected.packets), layout["name"]
            if layout["type"] != "packets":
                assert [int(c[1]) for c in got] == list(expected.octets), layout["name"]
