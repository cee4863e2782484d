"""p4/switchml.p4 alone on a switch, behind one small interface, for every kind of switch.

target = targets("bmv2")(values=32)     # or "model", "interpreter", "compiled"
world = World(target, ports=4)          # as just started
job = world.admit(workers=2)            # through the real controller
world.send(job.frame(0, tsi=0, values=range(32)), port=0)       -> [(port, frame), ...]
world.drops()                           -> {"STALE": 1}
"""

from __future__ import annotations

import functools
import random
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from bmv2_switch import SHORTEST, Bmv2, compile_p4
from capabilities import need
from model_switch import ABOVE, ModelSwitch
from model_switch import Job as ModelJob

from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.admission import Job as AdmittedJob
from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH, worker_address
from ina.base.paths import p4_dir
from ina.net.ports import Address
from ina.p4.compiler import build, frontend
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.runtime import Program, Switch
from ina.p4.runtime.entities import MulticastGroupEntry, Replica, TableEntry, Update, as_int, insert, modify

PROGRAM = p4_dir() / "switchml.p4"
SLOTS = 16
MAX_PORTS = 34


@functools.cache
def checked(values: int, source: Path = PROGRAM, variant: tuple[tuple[str, str], ...] = ()):
    return frontend.load(source, defines={"VALUES": str(values), "SLOTS": str(SLOTS), **dict(variant)})


@functools.cache
def drop_reasons(source: Path = PROGRAM) -> list[str]:
    """Names of the P4 enum `Drop` by value; 0 is no drop."""
    members = checked(32, source).types["Drop"].members
    return sorted(members, key=members.get)


def address(mac) -> bytes:
    return as_int(mac, 48, "mac").to_bytes(6, "big")


def end(params: dict[str, Any]) -> tuple[bytes, int, int]:
    """MAC, IPv4 address and UDP port as the model has them."""
    return address(params["mac"]), as_int(params["ip"], 32, "ip"), params["port"]


def some_guards() -> list[Update]:
    """Guards that check all ports but 4; at port 1 is the second worker, at port 0 a host without an IPv4 address."""
    hosts = [(1, worker_address(0, 1)), (0, Address("00:00:00:00:00:01", "0.0.0.0", 0))]
    entries = [TableEntry("host", {"standard.ingress_port": port, "hdr.ethernet.src_addr": a.mac, "source": a.ip}, "is_here")
               for port, a in hosts]
    return [*insert(TableEntry("guard", {"standard.ingress_port": 4}, "trust"), *entries),
            *modify(TableEntry("guard", {}, "check", is_default=True))]


class Target(ABC):
    """A switch with the program for `values` integers per packet and SLOTS slots; the controller's switch target."""

    name: str
    source = PROGRAM
    variant: tuple[tuple[str, str], ...] = ()  # more macros of the program
    needs: tuple[str, ...] = ()  # capabilities (tests/capabilities.py)
    shortest = 0  # bytes of the shortest frame that can be sent into it

    def __init__(self, values: int):
        self.values = values
        self.reset(0)

    @abstractmethod
    def reset(self, ports: int) -> None:
        """Restores the initial state, with ports 0 .. `ports`-1."""

    @abstractmethod
    def write(self, updates: list[Update]) -> None:
        """Writes entities, as a control plane does."""

    @abstractmethod
    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        """Sends one frame; returns the frames that it causes."""

    @abstractmethod
    def drops(self) -> list[int]:
        """Packets dropped, by value of the P4 enum `Drop`."""


class ModelTarget(Target):
    """The model of tests/model_switch.py, whose jobs are built from the controller's entities."""

    name = "model"

    def reset(self, ports: int) -> None:
        self.model = ModelSwitch([], self.values)
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.entries: dict[tuple, TableEntry] = {}

    def write(self, updates: list[Update]) -> None:
        for update in updates:
            entity = update.entity
            if isinstance(entity, MulticastGroupEntry):
                self.groups[entity.group_id] = [(r.port, r.rid) for r in entity.replicas]
                continue
            key = (entity.table, tuple(sorted(entity.match.items())))
            if update.type == "DELETE":
                del self.entries[key]
            else:
                self.entries[key] = entity
        self.model.jobs = {e.match["hdr.switchml.job"]: self._job(e.match["hdr.switchml.job"], e.params)
                           for e in self._of("job")}
        self.model.checks = any(e.is_default and e.action == "check" for e in self._of("guard"))
        self.model.trusted = {e.match["standard.ingress_port"] for e in self._of("guard") if e.action == "trust" and e.match}
        self.model.hosts = {(e.match["standard.ingress_port"], address(e.match["hdr.ethernet.src_addr"]),
                             as_int(e.match["source"], 32, "source").to_bytes(4, "big")) for e in self._of("host")}
        for entry in self._of("l2"):
            ports = [port for port, _ in self.groups[entry.params["group"]]] if entry.action == "flood" else entry.params["port"]
            self.model.forwarding[address(entry.match["hdr.ethernet.dst_addr"])] = ports

    def _of(self, table: str, job: int | None = None) -> list[TableEntry]:
        return [e for e in self.entries.values() if e.table == table and job in (None, e.match.get("hdr.switchml.job"))]

    def _job(self, number: int, params: dict[str, Any]) -> ModelJob:
        job = ModelJob(number, params["last"] + 1, params["mask"] + 1, params["full"], params["incarnation"], params["life"],
                       params["base"], bool(params["strict"]), has_parent=bool(params["parent"]))
        for entry in self._of("worker", number):
            match = entry.match
            source = match["standard.ingress_port"], as_int(match["hdr.ipv4.src_addr"], 32, "ip"), match["hdr.udp.src_port"]
            job.senders[source] = ABOVE if entry.action == "set_parent" else entry.params["worker"]
        names = {entry.match["standard.egress_rid"]: end(entry.params) for entry in self._of("replica", number)}
        job.group = [(port, names[rid]) for port, rid in self.groups.get(params["group"], []) if rid in names]
        for entry in self._of("parent", number):
            own = {key: entry.params[f"own_{key}"] for key in ("mac", "ip", "port")}
            job.parent = entry.params["port"], end({**entry.params, "port": entry.params["udp_port"]}), end(own)
        return job

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        return self.model.process(port, frame)

    def drops(self) -> list[int]:
        return [self.model.drops[name.lower().replace("_", " ")] for name in drop_reasons()]


class InterpreterTarget(Target):
    name = "interpreter"

    def reset(self, ports: int) -> None:
        self.interpreter = Interpreter(checked(self.values, self.source, self.variant))
        self._handles: dict[tuple, int] = {}

    def write(self, updates: list[Update]) -> None:
        for update in updates:
            entity = update.entity
            if isinstance(entity, MulticastGroupEntry):
                groups = self.interpreter.multicast_groups
                groups[entity.group_id] = [(r.port, r.rid) for r in entity.replicas]
                if update.type == "DELETE":
                    del groups[entity.group_id]
                continue
            table = self.interpreter.tables[entity.table]
            if entity.is_default:
                table.set_default(entity.action)
                continue
            match = {key: as_int(value, 64, key) for key, value in entity.match.items()}
            params = {key: as_int(value, 64, key) for key, value in entity.params.items()}
            place = (table.name, tuple(sorted(match.items())))
            if update.type == "INSERT":
                self._handles[place] = table.insert(match, entity.action, params)
            elif update.type == "MODIFY":
                table.modify(self._handles[place], entity.action, params)
            else:
                table.delete(self._handles.pop(place))

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        return self.interpreter.process(frame, port)

    def drops(self) -> list[int]:
        return list(self.interpreter.counters["drops"].packets)


class CompiledTarget(Target):
    name = "compiled"
    needs = ("cc",)
    buffer = 0  # bytes, of the switch

    def __init__(self, values: int):
        need(*self.needs)
        compiled = build.compile_program(self.source, defines={"VALUES": str(values), "SLOTS": str(SLOTS), **dict(self.variant)})
        self.program = Program(compiled.so_path)
        super().__init__(values)

    def reset(self, ports: int) -> None:
        self.close()
        self.switch = Switch(self.program, buffer=self.buffer, max_frame=9500)
        for port in range(ports):
            self.switch.add_port(port)

    def close(self) -> None:
        if hasattr(self, "switch"):
            self.switch.close()

    def write(self, updates: list[Update]) -> None:
        self.switch.write(updates)

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        return self.switch.step(frame, port)

    def drops(self) -> list[int]:
        return self.switch.counter("drops")[:, 0].tolist()


class TnaTarget(CompiledTarget):
    """The TNA twin, compiled, on the embedded switch."""

    name = "tna"
    source = p4_dir() / "tofino" / "switchml.p4"


class Bmv2Target(Target):
    name = "bmv2"
    needs = ("p4c", "bmv2", "netns")
    shortest = SHORTEST

    def __init__(self, values: int):
        need(*self.needs)
        with tempfile.TemporaryDirectory() as folder:
            config = compile_p4(self.source, Path(folder) / "program.json", VALUES=values, SLOTS=SLOTS, **dict(self.variant))
            self.switch = Bmv2(config, MAX_PORTS if values == 32 else 5)  # ports take time to make
        super().__init__(values)

    def reset(self, ports: int) -> None:
        self.switch.reset(ports)

    def close(self) -> None:
        self.switch.close()

    def write(self, updates: list[Update]) -> None:
        self.switch.write(updates)

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        return self.switch.send(frame, port)

    def drops(self) -> list[int]:
        return self.switch.counter("drops", len(drop_reasons(self.source)))


TARGETS: dict[str, type[Target]] = {t.name: t for t in (ModelTarget, InterpreterTarget, CompiledTarget, TnaTarget, Bmv2Target)}
_open: dict[tuple[str, int], Target] = {}


def open_target(name: str, values: int) -> Target:
    """The target, created on first use; `close_targets` closes all of them."""
    if (name, values) not in _open:
        _open[name, values] = TARGETS[name](values)
    return _open[name, values]


def close_targets() -> None:
    for target in _open.values():
        if hasattr(target, "close"):
            target.close()
    _open.clear()


class Job:
    """An admitted job with all its workers attached, and the frames that they send."""

    def __init__(self, world: World, admitted: AdmittedJob):
        self.world, self.admitted, self.number = world, admitted, admitted.number
        self.ports = [worker.port for _, worker in sorted(admitted.attached.items())]

    @property
    def head_size(self) -> int:
        """Bytes in front of the values."""
        return self.world.wire.size(layout.HEAD if self.admitted.strict else layout.PUBLISHED)

    def head(self, worker: int, payload: int) -> dict[str, dict[str, int]]:
        """Ethernet, IPv4 and UDP of a frame of `worker` with `payload` bytes after the check header, or after the exponents."""
        own = worker_address(self.number, worker)
        constants = self.world.wire.constants
        payload += constants["CHECK_LENGTH"] if self.admitted.strict else 0
        return {
            "ethernet": {"dst_addr": as_int(SWITCH.mac, 48, "mac"), "src_addr": as_int(own.mac, 48, "mac"),
                         "ethertype": constants["ETHERTYPE_IPV4"]},
            "ipv4": {"version": 4, "ihl": 5, "total_len": constants["IPV4_LENGTH"] + payload, "flags": 2, "ttl": 64,
                     "protocol": constants["IPPROTO_UDP"], "src_addr": as_int(own.ip, 32, "ip"),
                     "dst_addr": as_int(SWITCH.ip, 32, "ip")},
            "udp": {"src_port": own.port, "dst_port": SWITCH.port, "length": constants["UDP_LENGTH"] + payload},
        }

    def fields(
        self, worker: int, tsi: int, values=None, e0: int = -96, *, slot: int | None = None, set_: int | None = None,
        e1: int | None = None,
    ) -> dict[str, dict[str, Any]]:
        """A data packet by header; without `values` it has no payload. Slot and set follow from `tsi` unless given."""
        constants, slots = self.world.wire.constants, self.admitted.slots
        headers: dict[str, dict[str, Any]] = self.head(worker, 0 if values is None else 4 * self.world.values)
        headers["switchml"] = {
            "msg_type": constants["SWITCHML_DATA"],
            "size": constants["SIZE_NONE" if values is None else "SIZE_CODE"],
            "job": self.number,
            "tsi": tsi % 2**32,
            "set": tsi // slots % 2 if set_ is None else set_,
            "slot": tsi % slots if slot is None else slot,
        }
        headers["switchml"]["checked"] = int(self.admitted.strict)
        if self.admitted.strict:
            headers["check"] = {"version": constants["WIRE_VERSION"], "check0": (1000003 * worker + 7 * tsi) % 2**32,
                                "check1": (tsi - 77777777 * worker) % 2**32}
        headers["exponents"] = {"e0": e0, "e1": (self.admitted.life ^ 128) - 128 if e1 is None else e1}
        if values is not None:
            headers["values"] = {"v": [int(v) % 2**32 for v in values]}
        return headers

    def frame(self, *args, **kwargs) -> bytes:
        """Bytes of `fields` with the right IPv4 checksum."""
        return self.world.bytes(self.fields(*args, **kwargs))

    def send(self, worker: int, *args, **kwargs) -> list[tuple[int, bytes]]:
        """Sends `frame` from `worker`."""
        return self.world.send(self.frame(worker, *args, **kwargs), self.ports[worker])


class World:
    """A target as just started, with a controller of its own."""

    def __init__(self, target: Target, ports: int = 5):
        self.target, self.values = target, target.values
        self.wire = layout.load(target.values)
        target.reset(ports)
        self.controller = Controller(target, SLOTS, chance=random.Random(1))  # targets that are compared have the same jobs

    def admit(
        self, workers: int, slots: int = 4, *, strict: bool = True, name: str = "job", ports: list[int] | None = None
    ) -> Job:
        """A job with worker i on switch port `ports[i]`, by default i."""
        admitted = self.controller.admit(name, workers, slots, strict)
        for worker, port in enumerate(ports or range(workers)):
            self.controller.attach(admitted, worker, port)
        return Job(self, admitted)

    def forward(self, address: str, port: int) -> None:
        self.target.write(insert(TableEntry("l2", {"hdr.ethernet.dst_addr": address}, "forward", {"port": port})))

    def flood(self, address: str, group: int, ports: range) -> None:
        self.target.write(insert(MulticastGroupEntry(group, tuple(Replica(p, 0) for p in ports))))
        self.target.write(insert(TableEntry("l2", {"hdr.ethernet.dst_addr": address}, "flood", {"group": group})))

    def bytes(self, headers: dict[str, dict[str, Any]]) -> bytes:
        """The frame, with both checksums filled in unless they are given."""
        return sealed(self.wire, headers)

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        """Sends a frame; returns the frames that leave, sorted by port, in their order at each port."""
        return sorted(self.target.send(frame, port), key=lambda sent: sent[0])

    def drops(self) -> dict[str, int]:
        """Packets dropped by reason; reasons without any are left out."""
        return {name: count for name, count in zip(drop_reasons(), self.target.drops(), strict=True) if count}

    def parse(self, frame: bytes) -> dict[str, dict[str, Any]]:
        """Headers of an answer, by what its SwitchML header says it is."""
        constants = self.wire.constants
        head = self.wire["switchml"].unpack(frame, self.wire.offset("switchml"))
        if head["msg_type"] == constants["SWITCHML_PENDING"]:
            return self.wire.unpack(frame, layout.PENDING)
        kinds = layout.HEAD if head["size"] == constants["SIZE_NONE"] else layout.DATA
        return self.wire.unpack(frame, kinds if head["checked"] else [kind for kind in kinds if kind != "check"])


def sealed(wire: layout.Layout, headers: dict[str, dict[str, Any]]) -> bytes:
    """The frame of either protocol, with both checksums filled in unless they are given."""
    if "hdr_checksum" not in headers["ipv4"]:
        bare = wire["ipv4"].pack(headers["ipv4"])
        headers = {**headers, "ipv4": {**headers["ipv4"], "hdr_checksum": layout.checksum(bare)}}
    if "headers" not in headers.get("check", {"headers": 0}):
        names = ("switchml", "exponents", "atp", "check", "offer")
        covered = wire.pack(**{name: headers[name] for name in names if name in headers})
        headers = {**headers, "check": {**headers["check"], "headers": layout.checksum(covered)}}
    return wire.pack(**headers)


def check_cut_before_its_header(world: Any, whole: bytes, mac: bytes, port: int) -> None:
    """Checks, for either protocol, that frames which end before the protocol's header are no aggregation: they are forwarded by
    address once there is an entry for it, and never counted as drops of the program."""
    frames = [whole[:length] for length in (0, 1, 13, 14, 15, 33, 34, 35, 41)]
    frames = [frame for frame in frames if len(frame) >= world.target.shortest]
    for frame in frames:
        assert world.send(frame, 0) == []
    world.forward(mac, port)
    for frame in frames:
        assert world.send(frame, 0) == ([(port, frame)] if len(frame) >= 14 else [])
    assert world.drops() == {}
