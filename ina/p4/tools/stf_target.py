"""Targets of STF files: the compiled switch and the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from ina.base.native import lib
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.compiler.reference.interpreter import CloneSession, Interpreter
from ina.p4.compiler.reference.values import leaves, number, to_bits, unpack_leaf
from ina.p4.compiler.types import fixed_width
from ina.p4.runtime import (
    CloneSessionEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    Switch,
    TableEntry,
    Update,
    ValueSetEntry,
)
from ina.p4.runtime.p4info import P4Info
from ina.p4.runtime.replication import Groups, TrafficManager
from ina.p4.tools.stf_file import FCS, MatchValue
from ina.p4.tools.stf_numbers import Json, StfError

PORTS = 32
PIPES = 2  # of a TNA switch, unless it has more pipelines
MAX_FRAME = 9216  # bytes
PERIOD = 1_000_000_000  # ps from one packet to the next


def check_packet(port: int, frame: bytes, pipes: int) -> None:
    """Raises StfError for a packet that a switch with so many pipes (0: a v1model switch) cannot get."""
    ports = port_count(pipes)
    if not 0 <= port < ports:
        raise StfError(f"port {port}: expected 0 to {ports - 1}")
    if len(frame) > MAX_FRAME:
        raise StfError(f"a packet of {len(frame)} bytes: expected up to {MAX_FRAME}")


def port_count(pipes: int) -> int:
    return min(pipes * lib.INA_TNA_PIPE_PORTS or lib.INA_DROP_PORT, lib.INA_DROP_PORT)


class ControlPlane:
    """Commands of `ina.p4.tools.stf_file.Target` that a control plane carries out, for a switch with the program of `p4info`;
    `write` takes the updates. Clones go out by replication id 0."""

    def __init__(self, p4info: P4Info, write: Callable[[list[Update]], None]) -> None:
        self.p4info: Json = p4info.message
        self._info, self._write = p4info, write
        self.entries: list[TableEntry] = []
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.sessions: set[int] = set()
        self.members: dict[str, int] = {}
        self.member_groups: dict[str, int] = {}

    def insert(self, table: str, match: dict[str, MatchValue], action: str, args: dict[str, int], priority: int) -> TableEntry:
        return self._insert(TableEntry(table, match, action, dict(args), self._priority(table, priority)))

    def _insert(self, entry: TableEntry) -> TableEntry:
        self._write([Update("INSERT", entry)])
        self.entries.append(entry)
        return entry

    def _priority(self, table: str, priority: int) -> int:
        """Returns P4Runtime's priority, from 1 and only where a table needs one; STF counts from 0."""
        return priority + 1 if self._info.table(table).needs_priority else 0

    def set_default(self, table: str, action: str, args: dict[str, int]) -> None:
        self._write([Update("MODIFY", TableEntry(table, {}, action, dict(args), is_default=True))])

    def clear_tables(self) -> None:
        self._write([Update("DELETE", entry) for entry in self.entries])
        self.entries.clear()

    def set_clone_session(self, session: int, port: int | None, group: int | None) -> None:
        replicas = [] if port is None else [(port, 0)]
        if group is not None:
            replicas = self.groups[group]
        entry = CloneSessionEntry(session, tuple(Replica(p, rid) for p, rid in replicas))
        self._write([Update("MODIFY" if session in self.sessions else "INSERT", entry)])
        self.sessions.add(session)

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        entry = MulticastGroupEntry(group, tuple(Replica(p, rid) for p, rid in replicas))
        self._write([Update("MODIFY" if group in self.groups else "INSERT", entry)])
        self.groups[group] = list(replicas)

    def write_register(self, name: str, index: int, value: int) -> None:
        self._write([Update("MODIFY", RegisterEntry(name, index, value))])

    def configure_meter(self, name: str, index: int, rates: list[tuple[float, int]]) -> None:
        self._write([Update("MODIFY", MeterEntry(name, index, MeterConfig(*rates[0], *rates[1])))])

    def configure_direct_meter(self, table: str, entry: TableEntry, rates: list[tuple[float, int]]) -> None:
        self._write([Update("MODIFY", DirectMeterEntry(entry, MeterConfig(*rates[0], *rates[1])))])

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        """Adds a member; members and groups count from 0, as in BMv2 and the interpreter."""
        number = self.members[profile] = self.members.get(profile, -1) + 1
        self._write([Update("INSERT", ProfileMember(profile, number, action, dict(args)))])
        return number

    def add_group(self, profile: str, members: list[int]) -> int:
        number = self.member_groups[profile] = self.member_groups.get(profile, -1) + 1
        self._write([Update("INSERT", ProfileGroup(profile, number, tuple((m, 1) for m in members)))])
        return number

    def point(
        self, table: str, match: dict[str, MatchValue], *, member: int | None = None, group: int | None = None, priority: int = 0
    ) -> TableEntry:
        return self._insert(TableEntry(table, match, priority=self._priority(table, priority), member=member, group=group))

    def fill_value_set(self, name: str, members: list[int]) -> None:
        self._write([Update("MODIFY", ValueSetEntry(name, tuple(members)))])


class RunningTarget(ControlPlane):
    """`ina.p4.tools.stf_file.Target` on a switch that runs and forwards: it gets entries, and is not tested."""

    def _untested(self) -> NoReturn:
        raise StfError("the switch runs: its file has entries, groups, sessions, meters and registers to write, and nothing to "
                       "send or to check")

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self._untested()

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        self._untested()

    def read_direct_counter(self, table: str, entry: TableEntry) -> tuple[int, int]:
        self._untested()

    def read_register(self, name: str, index: int, half: int | None = None) -> int:
        self._untested()

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        self._untested()


class CompiledTarget(ControlPlane):
    """`ina.p4.tools.stf_file.Target` on an embedded switch that is stepped."""

    def __init__(self, compiled: CompiledProgram, ports: Iterable[int] = range(PORTS)) -> None:
        self.switch = Switch(compiled.so_path, max_frame=MAX_FRAME)
        super().__init__(self.switch.p4info, self.switch.write)
        for port in ports:
            if port < port_count(self.switch.pipes):
                self.switch.add_port(port)
        self.now = 0

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        check_packet(port, frame, self.switch.pipes)
        self.now += PERIOD
        return self.switch.step(frame, port, self.now)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        packets, octets = self.switch.counter(name)[index]
        return int(packets), int(octets) - self._fcs * int(packets)

    def read_direct_counter(self, table: str, entry: TableEntry) -> tuple[int, int]:
        cells = self.switch.read([DirectCounterEntry(entry)])  # one for each pipe
        packets = sum(cell.packets for cell in cells)
        return packets, sum(cell.bytes for cell in cells) - self._fcs * packets

    @property
    def _fcs(self) -> int:
        """Bytes of the frame check sequence that a counter counts: TNA's does, v1model's does not."""
        return FCS if self.switch.pipes else 0

    def read_register(self, name: str, index: int, half: int | None = None) -> int:
        words = [r["name"] for r in self.switch.program.layout["registers"] if r["name"].rpartition(".")[0] == name]
        return int(self.switch.register(words[half or 0] if words else name, index, pipe=0 if self.switch.pipes else None)[0])

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(d.name, tuple(d.fields.values())) for d in self.switch.digests()[0]]


class InterpreterTarget:
    """`ina.p4.tools.stf_file.Target` on the reference interpreter."""

    def __init__(self, interpreter: Interpreter, p4info: Json) -> None:
        self.interpreter, self.p4info = interpreter, p4info
        machine = interpreter.machine
        self.pipes = max(PIPES, len(machine.pipelines)) if isinstance(machine, TnaMachine) else 0  # as many as a compiled switch
        self._engine = TrafficManager(self.pipes) if self.pipes else Groups()  # refuses what a compiled switch refuses
        self._replicated: set[tuple[type, int]] = set()
        self.now = 0

    def insert(self, table: str, match: dict[str, MatchValue], action: str, args: dict[str, int], priority: int) -> int:
        return self.interpreter.tables[table].insert(match, action, args, priority)

    def set_default(self, table: str, action: str, args: dict[str, int]) -> None:
        self.interpreter.tables[table].set_default(action, args)

    def clear_tables(self) -> None:
        for table in self.interpreter.tables.values():
            table.clear()

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        check_packet(port, frame, self.pipes)
        self.now += PERIOD
        return self.interpreter.process(frame, port, self.now)

    def set_clone_session(self, session: int, port: int | None, group: int | None) -> None:
        replicas = [(port, 0)] if port is not None else self.interpreter.multicast_groups[group or 0]
        entry = CloneSessionEntry(session, tuple(Replica(p, rid) for p, rid in replicas))
        self._replicate(entry, session)
        self.interpreter.clone_sessions[session] = CloneSession(port, group)

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        entry = MulticastGroupEntry(group, tuple(Replica(p, rid) for p, rid in replicas))
        self._replicate(entry, group)
        self.interpreter.multicast_groups[group] = list(replicas)

    def _replicate(self, entry: CloneSessionEntry | MulticastGroupEntry, number: int) -> None:
        """Checks a session or group as a compiled switch does. Raises EntityError."""
        self._engine.apply("MODIFY" if (type(entry), number) in self._replicated else "INSERT", entry, [])
        self._replicated.add((type(entry), number))

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        counter = self.interpreter.counters[name]
        return counter.packets[index], counter.octets[index] - self._fcs * counter.packets[index]

    def read_direct_counter(self, table: str, entry: int) -> tuple[int, int]:
        row = self.interpreter.tables[table].entry(entry)
        return row.packets, row.octets - self._fcs * row.packets

    @property
    def _fcs(self) -> int:
        return FCS if self.pipes else 0

    def read_register(self, name: str, index: int, half: int | None = None) -> int:
        cells = self.interpreter.registers[name]
        value, t = list(leaves(cells[index], cells.type))[half or 0]
        return to_bits(value, t)[1]

    def write_register(self, name: str, index: int, value: int) -> None:
        cells = self.interpreter.registers[name]
        cells[index] = unpack_leaf(value, cells.type)

    def configure_meter(self, name: str, index: int, rates: list[tuple[float, int]]) -> None:
        self.interpreter.meters[name].configure(index, *rates[0], *rates[1])

    def configure_direct_meter(self, table: str, entry: int, rates: list[tuple[float, int]]) -> None:
        states = self.interpreter.tables[table].meter_states
        if states is None:
            raise StfError(f"table {table} has no direct meter")
        states.configure(entry, *rates[0], *rates[1])

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        return self.interpreter.profiles[profile].add_member(action, args)

    def add_group(self, profile: str, members: list[int]) -> int:
        return self.interpreter.profiles[profile].add_group(members)

    def point(
        self, table: str, match: dict[str, MatchValue], *, member: int | None = None, group: int | None = None, priority: int = 0
    ) -> int:
        return self.interpreter.tables[table].insert(match, priority=priority, member=member, group=group)

    def fill_value_set(self, name: str, members: list[int]) -> None:
        value_set = self.interpreter.value_sets[name]
        value_set.members.clear()
        (kind,), (t,) = value_set.kinds, value_set.types
        width = fixed_width(t) or 0
        for value in members:
            seconds = {"range": value, "lpm": width, "ternary": (1 << width) - 1}
            value_set.insert((value, seconds[kind]) if kind in seconds else value)

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(d.name, tuple(map(number, d.values))) for d in self.interpreter.digests]
