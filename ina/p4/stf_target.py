"""The compiled switch as a target of STF files."""

from __future__ import annotations

from typing import Any

from ina.compiler.build import CompiledProgram
from ina.switch import Switch
from ina.switch.entities import (
    CloneSessionEntry,
    DirectCounterEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
)

PORTS = 32
NEEDS_PRIORITY = {"TERNARY", "RANGE", "OPTIONAL"}


class SwitchTarget:
    """`ina.compiler.stf.Target` on an embedded switch that is stepped. Clones go out by replication id 0."""

    def __init__(self, compiled: CompiledProgram) -> None:
        self.p4info: dict[str, Any] = compiled.p4info
        self.switch = Switch(compiled.so_path)
        for port in range(PORTS):
            self.switch.add_port(port)
        self.now = 0
        self.entries: list[TableEntry] = []
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.sessions: set[int] = set()

    def insert(self, table: str, match: dict[str, Any], action: str, args: dict[str, int], priority: int) -> TableEntry:
        """STF counts priorities from 0, P4Runtime from 1 and only where a table needs them."""
        (info,) = (t for t in self.p4info["tables"] if t["preamble"]["name"] == table)
        ranked = any(f.get("matchType") in NEEDS_PRIORITY for f in info.get("matchFields", []))
        entry = TableEntry(table, match, action, args, priority + 1 if ranked else 0)
        self.switch.write([Update("INSERT", entry)])
        self.entries.append(entry)
        return entry

    def set_default(self, table: str, action: str, args: dict[str, int]) -> None:
        self.switch.write([Update("MODIFY", TableEntry(table, {}, action, args, is_default=True))])

    def clear_tables(self) -> None:
        self.switch.write([Update("DELETE", entry) for entry in self.entries])
        self.entries.clear()

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.now += 1_000_000_000
        return self.switch.step(frame, port, self.now)

    def set_clone_session(self, session: int, port: int | None, group: int | None) -> None:
        replicas = [(port, 0)] if group is None else self.groups[group]
        entry = CloneSessionEntry(session, tuple(Replica(p, rid) for p, rid in replicas))
        self.switch.write([Update("MODIFY" if session in self.sessions else "INSERT", entry)])
        self.sessions.add(session)

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        entry = MulticastGroupEntry(group, tuple(Replica(p, rid) for p, rid in replicas))
        self.switch.write([Update("MODIFY" if group in self.groups else "INSERT", entry)])
        self.groups[group] = list(replicas)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        packets, octets = self.switch.counter(name)[index]
        return int(packets), int(octets)

    def read_direct_counter(self, table: str, entry: TableEntry) -> tuple[int, int]:
        (found,) = self.switch.read([DirectCounterEntry(entry)])
        return found.packets, found.bytes

    def read_register(self, name: str, index: int) -> int:
        return int(self.switch.register(name)[index])

    def write_register(self, name: str, index: int, value: int) -> None:
        self.switch.write([Update("MODIFY", RegisterEntry(name, index, value))])

    def register_size(self, name: str) -> int:
        return len(self.switch.register(name))

    def configure_meter(self, name: str, index: int, rates: list[tuple[float, int]]) -> None:
        (committed, committed_burst), (peak, peak_burst) = rates
        config = MeterConfig(committed, committed_burst, peak, peak_burst)
        self.switch.write([Update("MODIFY", MeterEntry(name, index, config))])
