"""Guard of a switch: it forwards only for hosts that send their own addresses. Without it, forged results make wrong sums."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager

import atp_targets
import numpy as np
import pytest
import switchml_targets
from capabilities import need
from forger import LIE, addressed, contributions, results
from marks import least
from model_switch import ip_checksum

from ina import topology as topologies
from ina.aggregation.controller.admission import Controller, switch_address
from ina.aggregation.controller.forwarding import GUARD, forwarding, guards
from ina.aggregation.controller.reconcile import agree
from ina.aggregation.entries import Parent, program_named
from ina.aggregation.ps.state_machine import ParameterServer, ServerConfig
from ina.aggregation.worker import SERVER, Worker, WorkerConfig
from ina.base import paths
from ina.net.ports import Address
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Program, Switch
from ina.p4.runtime.entities import TableEntry, delete, insert, modify
from ina.topology import routes
from ina.worlds.deployed.remote import Reconnecting, SwitchesElsewhere

TARGETS = [
    pytest.param((protocol, name), marks=least(*target.needs))
    for protocol, targets in (("switchml", switchml_targets.TARGETS), ("atp", atp_targets.TARGETS))
    for name, target in targets.items()
]
OWN, OTHER, SWITCH = ((node.mac, node.ip) for node in topologies.load("star", hosts=2).nodes[:2] + (topologies.Node("s1"),))
NOBODY = "00:00:00:00:00:77", "10.0.0.119"
OUT = 3  # the port of h3, to whom all frames here go


@pytest.fixture(scope="module", autouse=True)
def close():
    yield
    switchml_targets.close_targets()
    atp_targets.close_targets()


def layer2(topology, switch="s1"):
    ports = {topology.by_name[host].mac: hop.port for host, hop in routes.tables(topology)[switch].items()}
    return forwarding(ports)


@pytest.fixture(params=TARGETS, ids=lambda target: "-".join(target))
def target(request):
    """A switch with three hosts, at its ports 1 to 3; it knows none at ports 0 and 4."""
    protocol, name = request.param
    opened = switchml_targets.open_target(name, 32) if protocol == "switchml" else atp_targets.open_target(name)
    opened.reset(5)
    opened.write(layer2(topologies.load("star", hosts=3)))
    return opened


def to(mac: str, kind: int, payload: bytes) -> bytes:
    frame = bytes.fromhex("000000000003" + mac.replace(":", "")) + kind.to_bytes(2, "big") + payload
    return frame.ljust(60, b"\0")


def ip(mac: str, source: str, *, first: int = 0x45, fragment: int = 0, port: int = 5000) -> bytes:
    """A datagram from UDP port 0xBEE0."""
    udp = b"\xbe\xe0" + port.to_bytes(2, "big") + (26).to_bytes(2, "big") + bytes(20)
    head = bytes([first, 0]) + (20 + len(udp)).to_bytes(2, "big") + bytes(2) + fragment.to_bytes(2, "big") + b"\x40\x11\0\0"
    head += bytes(map(int, source.split("."))) + bytes([10, 0, 0, 3])
    return to(mac, 0x0800, head[:10] + ip_checksum(head).to_bytes(2, "big") + head[12:] + udp)


def arp(mac: str, source: str, kind: int = 0x0806) -> bytes:
    payload = bytes.fromhex("0001080006040002" + mac.replace(":", "")) + bytes(map(int, source.split(".")))
    return to(mac, kind, payload + bytes.fromhex("0000000000030a000003"))


TRUE = {
    "IPv4": ip(*OWN), "ARP": arp(*OWN), "ARP, before it has an address": arp(OWN[0], "0.0.0.0"), "DHCP": ip(OWN[0], "0.0.0.0"),
    "a fragment": ip(*OWN, fragment=9), "options": ip(*OWN, first=0x46), "another protocol": to(OWN[0], 0x88B6, b"hello"),
}
FORGED = {
    "as the switch": ip(*SWITCH), "with its IPv4 address": ip(OWN[0], SWITCH[1]), "with its MAC address": ip(SWITCH[0], OWN[1]),
    "as another host": ip(*OTHER), "as nobody": ip(*NOBODY), "in a fragment": ip(OWN[0], SWITCH[1], fragment=9),
    "behind options": ip(OWN[0], SWITCH[1], first=0x46), "an address in ARP": arp(OWN[0], SWITCH[1]),
    "another protocol": to(OTHER[0], 0x88B6, b"hello"),
    "in a VLAN": to(OWN[0], 0x8100, b"\0\0\x08\0" + ip(*SWITCH)[14:]),
    "in a service VLAN": to(OWN[0], 0x88A8, b"\0\0\x08\0" + ip(*SWITCH)[14:]),
}


def in_vlan(frame: bytes) -> bool:
    """The kernel takes tags out of frames, before BMv2 has them."""
    return frame[12:14] in (b"\x81\x00", b"\x88\xa8")


def test_a_switch_that_was_told_of_no_hosts_forwards_for_everybody(target):
    for frame in (*TRUE.values(), *FORGED.values()):
        if target.name != "bmv2" or not in_vlan(frame):
            assert target.send(frame, 1) == [(OUT, frame)]


def test_a_host_is_forwarded_for_if_it_says_who_it_is(target):
    target.write(guards(topologies.load("star", hosts=3))["s1"])
    for label, frame in TRUE.items():
        assert target.send(frame, 1) == [(OUT, frame)], label
    for label, frame in FORGED.items():
        if target.name != "bmv2" or not in_vlan(frame):
            assert target.send(frame, 1) == [], label
    for port in (0, 2, 4):
        assert target.send(TRUE["IPv4"], port) == [], "it is not there"
    if target.name in ("compiled", "tna"):
        forged = next(cells for name, cells in target.switch.counters().items() if name.endswith("forged"))
        assert {port: int(cell[0]) for port, cell in enumerate(forged) if cell[0]} == {0: 1, 1: len(FORGED), 2: 1, 4: 1}


def test_other_switches_have_checked_what_they_send(target):
    net = topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)
    leaf = net.switch_of("h1")
    trunk = next(hop.port for hop in net.hops[leaf] if not net.is_host(hop.node))
    target.reset(5)
    target.write(layer2(net, leaf) + guards(net)[leaf])
    away = net.by_name["h3"]
    frame = ip(away.mac, away.ip).replace(bytes.fromhex("000000000003"), bytes.fromhex("000000000001"), 1)
    here = next(hop.port for hop in net.hops[leaf] if hop.node == "h1")
    assert target.send(frame, trunk) == [(here, frame)]
    assert target.send(frame, next(hop.port for hop in net.hops[leaf] if hop.node == "h2")) == []


@pytest.mark.build
def test_a_guard_that_was_lost_or_changed_is_made_again():
    need("cc")
    entries = [update.entity for update in guards(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2))["s1"]]
    program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "4"})
    with Switch(program.so_path) as switch:
        assert len(agree(switch, GUARD, entries)) == len(entries) == 6
        assert agree(switch, GUARD, entries) == []
        stray = TableEntry("guard", {"standard.ingress_port": 77}, "trust")
        switch.write([*delete(entries[1]), *insert(stray), *modify(TableEntry("guard", {}, "trust", is_default=True))])
        assert len(agree(switch, GUARD, entries)) == 3
        assert agree(switch, GUARD, entries) == []
        assert [entry.action.rpartition(".")[2] for entry in switch.read([TableEntry("guard", is_default=True)])] == ["check"]


class Near(Reconnecting):
    """A switch of this process in place of a remote one."""

    def __init__(self, switch: Switch):
        super().__init__("here", lambda: self.switch)
        self.switch = switch

    @contextmanager
    def connected(self):
        yield self.switch


@pytest.mark.build
def test_the_controller_of_switches_elsewhere_writes_the_guard_and_writes_it_anew():
    need("cc")
    program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "4"})
    with Switch(program.so_path) as first, Switch(program.so_path) as second:
        net = topologies.load("star", hosts=3)
        for switch in (first, second):
            for port in range(1, 4):
                switch.add_port(port)
            switch.write(layer2(net))  # somebody else's, such as ina deploy's
        near = Near(first)
        host = SwitchesElsewhere(net, {"s1": near}, "P4Runtime")
        assert first.step(FORGED["as the switch"], 1) == [] and first.step(TRUE["IPv4"], 1) != []
        near.switch = second  # it was started anew
        assert second.step(FORGED["as the switch"], 1) != []
        host.protect("s1")
        assert second.step(FORGED["as the switch"], 1) == []


# ---- an attack

VALUES, SLOTS, PACKETS, WORKERS = 32, 16, 8, 3
US = 10**6


class Star:
    """A job of three workers at one switch, a fourth host that is in no job, and for ATP the server as the fifth; on a clock that
    only timers move."""

    def __init__(self, protocol: str, guarded: bool):
        need("cc")
        self.topology = topologies.load("star", hosts=5)
        compiled = compile_program(paths.p4_dir() / f"{protocol}.p4", defines={"VALUES": str(VALUES), "SLOTS": str(SLOTS)})
        self.switch = Switch(Program(compiled.so_path))
        for port in range(1, 6):
            self.switch.add_port(port)
        self.switch.write(layer2(self.topology) + (guards(self.topology)["s1"] if guarded else []))
        program = program_named(protocol)
        own, host = switch_address("s1", program.udp_port), self.topology.by_name["h5"]
        self.server_address = Address(host.mac, host.ip, SERVER.port)
        controller = Controller({"s1": self.switch}, SLOTS, protocol=protocol, topology=self.topology)
        if program.needs_server:
            controller.servers["s1"] = Parent(5, self.server_address, own)
        hosts = [f"h{i + 1}" for i in range(WORKERS)]
        (tree,) = controller.place("job", hosts, SLOTS)
        job = controller.admit("job", WORKERS, SLOTS, tree=tree, hosts=hosts)
        addresses = [controller.attach(job, i).address for i in range(WORKERS)]
        self.configs = [WorkerConfig(i, WORKERS, job=job.number, life=job.life, slots=SLOTS, values=VALUES,
                                     address=address, switch=own, server=own, protocol=protocol)
                        for i, address in enumerate(addresses)]
        self.workers = [Worker(config) for config in self.configs]
        self.server = ParameterServer(ServerConfig(WORKERS, job.number, life=job.life, slots=SLOTS, values=VALUES, switch=own,
                                                   address=self.server_address))
        self.now, self.events = 0, [[] for _ in range(WORKERS)]
        self.queue: deque[tuple[int, bytes]] = deque()

    def all_reduce(self, forged: list[bytes]) -> list[np.ndarray]:
        """Sums vectors of ones, while the fourth host sends ``forged`` as soon as workers have begun; returns their results."""
        arrays = [np.ones(VALUES * PACKETS, np.int32) for _ in self.workers]
        for worker, array in zip(self.workers, arrays, strict=True):
            worker.submit(array)
        self._pump()
        self.queue.extendleft((4, frame) for frame in reversed(forged))
        while not all(self.events):
            while self.queue:
                port, frame = self.queue.popleft()
                for out, sent in self.switch.step(frame, port, self.now):
                    self._deliver(out, sent)
            self._pump()
            if not self.queue and not all(self.events):
                self.now = max(self.now, min(t for w in self.workers if (t := w.next_timer()) is not None))
                assert self.now < 10**6 * US, "no end"
        assert [event.code for events in self.events for event in events] == [0] * WORKERS
        return arrays

    def _deliver(self, port: int, frame: bytes) -> None:
        if port <= WORKERS:
            self.workers[port - 1].receive(frame, self.now)
        elif port == 5:
            self.server.receive(frame, self.now)
            self.queue += [(5, answer) for answer in self.server.frames_to_send(self.now)]
        self._pump()

    def _pump(self) -> None:
        for port, worker in enumerate(self.workers, 1):
            self.queue += [(port, frame) for frame in worker.frames_to_send(self.now)]
            self.events[port - 1] += worker.events()

    def counted(self, counter: str) -> np.ndarray:
        return next(cells[:, 0] for name, cells in self.switch.counters().items() if name.endswith(counter))


RESULT = {"switchml": None, "atp": 3}


def to_workers(star: Star, protocol: str) -> list[bytes]:
    return [f for config in star.configs for f in results(config, VALUES * PACKETS, kind=RESULT[protocol])]


def to_server(star: Star, protocol: str) -> list[bytes]:
    config = star.configs[0]
    frames = contributions(config, VALUES * PACKETS, kind=RESULT[protocol])
    return [addressed(frame, config.switch, star.server_address) for frame in frames]


def from_itself(star: Star, protocol: str) -> list[bytes]:
    """The same frames, with its own address."""
    h4, frames = star.topology.by_name["h4"], to_workers(star, protocol) + to_server(star, protocol)
    ends = [config.address for config in star.configs] + [star.server_address]
    own = Address(h4.mac, h4.ip, star.configs[0].switch.port)
    return [addressed(frame, own, end) for frame in frames for end in ends]


@pytest.mark.build
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("protocol", "attack"), [("switchml", to_workers), ("atp", to_workers), ("atp", to_server)])
def test_forged_results_and_contributions_reach_nobody(protocol, attack, guarded):
    """Without the guard all sums are wrong, and nobody notices."""
    star = Star(protocol, guarded)
    forged = attack(star, protocol)
    sums = star.all_reduce(forged)
    if guarded:
        assert all((array == WORKERS).all() for array in sums)
        assert star.counted("forged").tolist()[4] == star.counted("forged").sum() == len(forged)
    else:
        assert all((array == WORKERS * LIE).all() or (array == LIE + WORKERS - 1).all() for array in sums)


@pytest.mark.build
@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_what_a_stranger_sends_in_its_own_name_reaches_hosts_that_do_not_take_it(protocol):
    star = Star(protocol, guarded=True)
    sums = star.all_reduce(from_itself(star, protocol))
    assert all((array == WORKERS).all() for array in sums) and star.counted("forged").sum() == 0


@pytest.mark.build
@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_contributions_to_the_switch_are_taken_from_the_workers_own_ports_only(protocol):
    star = Star(protocol, guarded=True)
    forged = [frame for config in star.configs for frame in contributions(config, VALUES * PACKETS, kind=RESULT[protocol])]
    sums = star.all_reduce(forged)
    assert all((array == WORKERS).all() for array in sums)
    assert star.counted("drops").tolist()[4] == len(forged)  # WRONG_SOURCE
