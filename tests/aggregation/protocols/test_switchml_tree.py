"""Behaviour of p4/switchml.p4 at one switch of a tree, on every switch that runs it (tests/switchml_targets.py).

    s1 (root)                 workers 0 1 2 at s3, 3 at s4, 4 at s2
    ├── s2 (leaf)             s3: a leaf, ports 1 2 3 down, 4 up
    │   └── h5                s4: an inner switch with a leaf below it (s3, port 1) and a worker (h4, port 2), port 3 up
    └── s4 (inner)            s1: ports 1 (s2) and 2 (s4)
        ├── s3 (leaf)
        │   ├── h1, h2, h3
        └── h4
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marks import marked
from model_switch import ip_checksum
from switchml_job import numbers, signed, total
from switchml_targets import SLOTS, TARGETS, World, close_targets, open_target

from ina.aggregation.controller.admission import Controller, switch_address
from ina.aggregation.wire import layout
from ina.net.ports import Address
from ina.p4.runtime.entities import TableEntry, as_int, delete, modify
from ina.topology import Link, Node, Topology
from ina.topology.tree import Tree

NODES = tuple(map(Node, ("h1", "h2", "h3", "h4", "h5", "s1", "s2", "s3", "s4")))
LINKS = (Link("h1", "s3"), Link("h2", "s3"), Link("h3", "s3"), Link("s2", "s1"), Link("s3", "s4"), Link("h4", "s4"),
         Link("s4", "s1"), Link("h5", "s2"))
NETWORK = Topology("three levels", NODES, LINKS)
TREE = Tree("s1", {"s2": "s1", "s4": "s1", "s3": "s4", "h1": "s3", "h2": "s3", "h3": "s3", "h4": "s4", "h5": "s2"},
            (3, 6, 4, 0, 1, 2, 5, 7))
LEAF, INNER, ROOT = "s3", "s4", "s1"
BIG = 2**31 - 1


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


class Elsewhere:
    """A switch that is not under test."""

    def write(self, updates) -> None:
        pass

    def read(self, entities) -> list:
        return []


@dataclass(frozen=True)
class Peer:
    """A worker or switch at a port of the switch under test."""

    port: int
    address: Address


class Member:
    """One switch of the tree: `below` are its children, `up` its parent, `own` its address."""

    def __init__(self, name: str, switch: str, values: int = 32):
        self.world = World(open_target(name, values), ports=6)
        targets = {node.name: Elsewhere() for node in NETWORK.switches} | {switch: self.world.target}
        controller = Controller(targets, SLOTS, topology=NETWORK, chance=random.Random(1))
        self.job = controller.admit("job", 5, 4, tree=TREE)
        for worker in range(5):
            controller.attach(self.job, worker)
        branch = self.job.branches[switch]
        self.below = [Peer(child.port, child.address) for child in branch.children]
        self.own = switch_address(switch)
        self.up = Peer(branch.parent.port, branch.parent.address) if branch.parent else None

    def frame(self, peer: Peer, tsi: int, values=None, e0: int = -96, *, missing: int | None = None, **changes) -> bytes:
        """A data packet (without `values`: bare), or a pending frame, from `peer` to the switch. `changes`: of headers."""
        constants = self.world.wire.constants
        payload = 4 if missing is not None else 0 if values is None else 4 * self.world.values
        headers = {
            "ethernet": {"dst_addr": as_int(self.own.mac, 48, "mac"), "src_addr": as_int(peer.address.mac, 48, "mac"),
                         "ethertype": 0x0800},
            "ipv4": {"version": 4, "ihl": 5, "total_len": 50 + payload, "flags": 2, "ttl": 9, "protocol": 17,
                     "src_addr": as_int(peer.address.ip, 32, "ip"), "dst_addr": as_int(self.own.ip, 32, "ip")},
            "udp": {"src_port": peer.address.port, "dst_port": self.own.port, "length": 30 + payload},
            "switchml": {"msg_type": constants["SWITCHML_DATA" if missing is None else "SWITCHML_PENDING"],
                         "size": constants["SIZE_NONE" if values is None else "SIZE_CODE"], "job": self.job.number,
                         "tsi": tsi, "slot": tsi % 4, "checked": 1, "set": tsi // 4 % 2},
            "exponents": {"e0": e0, "e1": (self.job.life ^ 128) - 128},
            "check": {"version": constants["WIRE_VERSION"], "check0": sum(values or ()) % 2**32, "check1": tsi},
        }
        if missing is not None:
            headers["pending"] = {"missing": missing}
        elif values is not None:
            headers["values"] = {"v": [int(v) % 2**32 for v in values]}
        for change, value in changes.items():
            header, field = change.split("__")
            headers[header][field] = value
        return self.world.bytes(headers)

    def send(self, peer: Peer, *args, port: int | None = None, **kwargs) -> list[tuple[int, bytes]]:
        return self.world.send(self.frame(peer, *args, **kwargs), peer.port if port is None else port)

    def collect(self, tsi: int, vectors, e0=-96) -> list[tuple[int, bytes]]:
        """All children send; returns the frames that the last one causes."""
        for peer, vector in zip(self.below[:-1], vectors[:-1], strict=True):
            assert self.send(peer, tsi, vector, e0) == []
        return self.send(self.below[-1], tsi, vectors[-1], e0)

    def check(self, sent, to: list[Peer], tsi: int, values, e0: int = -96, *, overflow: int = 0,
              missing: int | None = None, kind: int = 1) -> None:
        """`sent` is one frame to each of `to`, from the switch's own address."""
        assert [port for port, _ in sent] == sorted(peer.port for peer in to)
        frames, wire = dict(sent), self.world.wire
        for peer in to:
            frame = frames[peer.port]
            payload = 4 if missing is not None else 0 if values is None else 4 * self.world.values
            assert len(frame) == 64 + payload and layout.checksum(frame[42:64]) == 0
            kinds = layout.PENDING if missing is not None else layout.HEAD if values is None else layout.DATA
            headers = wire.unpack(frame, kinds)
            assert headers["ethernet"]["src_addr"] == as_int(self.own.mac, 48, "mac")
            assert headers["ethernet"]["dst_addr"] == as_int(peer.address.mac, 48, "mac")
            assert (headers["ipv4"]["src_addr"], headers["ipv4"]["dst_addr"]) == (
                as_int(self.own.ip, 32, "ip"), as_int(peer.address.ip, 32, "ip"))
            assert (headers["ipv4"]["total_len"], headers["ipv4"]["ttl"]) == (50 + payload, 64)
            assert ip_checksum(frame[14:34]) == 0
            assert headers["udp"] == {"src_port": self.own.port, "dst_port": peer.address.port, "length": 30 + payload,
                                      "checksum": 0}
            assert headers["switchml"] == {
                "msg_type": kind if missing is None else 2, "overflow": overflow, "size": 7 if values is None else 0,
                "job": self.job.number, "tsi": tsi, "set": tsi // 4 % 2, "checked": 1, "slot": tsi % 4,
            }
            assert headers["exponents"] == {"e0": e0, "e1": (self.job.life ^ 128) - 128}
            if missing is not None:
                assert headers["pending"] == {"missing": missing}
            elif values is not None:
                assert signed(headers["values"]["v"]) == signed(values)

    def drops(self) -> dict[str, int]:
        return self.world.drops()

    def vectors(self, base: int = 1) -> list[list[int]]:
        return [numbers(self.world, base + 100 * i) for i in range(len(self.below))]


@pytest.fixture(params=marked(TARGETS))
def target(request) -> str:
    return request.param


@pytest.fixture
def leaf(target) -> Member:
    return Member(target, LEAF)


@pytest.fixture(params=[LEAF, INNER])
def member(request, target) -> Member:
    """A switch that has a parent."""
    return Member(target, request.param)


# ---- collecting


def test_the_tree_is_what_the_cases_mean(leaf):
    inner, root = Member("model", INNER), Member("model", ROOT)
    assert [peer.port for peer in leaf.below] == [1, 2, 3] and leaf.up.port == 4
    assert [peer.address.ip for peer in inner.below] == [switch_address("s3").ip, "10.0.0.4"]
    assert inner.up.address == switch_address("s1") and root.up is None


def test_the_last_child_makes_one_packet_go_up(member):
    vectors = member.vectors()
    member.check(member.collect(0, vectors), [member.up], 0, total(*vectors))
    assert member.drops() == {}


def test_while_collecting_a_child_is_told_who_is_missing(leaf):
    assert leaf.send(leaf.below[0], 0, numbers(leaf.world, 1)) == []
    leaf.check(leaf.send(leaf.below[0], 0, numbers(leaf.world, 9)), [leaf.below[0]], 0, None, missing=0b00110)
    assert leaf.send(leaf.below[2], 0, numbers(leaf.world, 1)) == []
    leaf.check(leaf.send(leaf.below[2], 0, numbers(leaf.world, 9)), [leaf.below[2]], 0, None, missing=0b00010)


def test_all_workers_below_a_child_are_missing_with_it(target):
    inner, root = Member(target, INNER), Member(target, ROOT)
    root.send(root.below[0], 0, numbers(root.world, 1))
    root.check(root.send(root.below[0], 0, numbers(root.world, 1)), [root.below[0]], 0, None, missing=0b01111)
    inner = Member(target, INNER)
    inner.send(inner.below[1], 0, numbers(inner.world, 1))
    inner.check(inner.send(inner.below[1], 0, numbers(inner.world, 1)), [inner.below[1]], 0, None, missing=0b00111)


def test_exponents_and_the_overflow_flag_go_up(member):
    head = [BIG, *[0] * 31]
    exponents = [5, -3, 100][: len(member.below)]
    for i, peer in enumerate(member.below):
        sent = member.send(peer, 0, head if i < 2 else [0] * 32, exponents[i])
    member.check(sent, [member.up], 0, [2 * BIG, *[0] * 31], max(exponents), overflow=1)


@pytest.mark.parametrize("flagged", [0, 1])
def test_a_flag_from_below_goes_up(target, flagged):
    inner = Member(target, INNER)
    vectors = inner.vectors()
    for i, peer in enumerate(inner.below):
        sent = inner.send(peer, 0, vectors[i], switchml__overflow=int(i == flagged))
    inner.check(sent, [inner.up], 0, total(*vectors), overflow=1)


def test_packets_without_payload_go_up_and_down(member):
    vectors = [None] * len(member.below)
    member.check(member.collect(0, vectors, 3), [member.up], 0, None, 3)
    member.check(member.send(member.up, 0, None, 7), member.below, 0, None, 7)
    member.check(member.send(member.below[0], 0, None, -5), [member.below[0]], 0, None, 7)
    assert member.drops() == {}


# ---- sent up


def test_one_child_has_the_partial_sum_sent_up_again(member):
    vectors = member.vectors()
    member.collect(0, vectors, -7)
    lead, *others = member.below
    for peer in others:
        member.check(member.send(peer, 0, numbers(member.world, 77), -7), [peer], 0, None, -7, missing=0)
    for _ in range(2):
        member.check(member.send(lead, 0, numbers(member.world, 77), 50), [member.up], 0, total(*vectors), -7)
    assert member.drops() == {}


def test_a_row_that_is_sent_up_is_never_taken(member):
    vectors = member.vectors()
    member.collect(0, vectors)
    assert member.send(member.below[1], 8, numbers(member.world, 5)) == []
    assert member.drops() == {"STALE": 1}
    member.check(member.send(member.below[0], 0, vectors[0]), [member.up], 0, total(*vectors))


def test_news_from_above_is_told_to_all_children(member):
    member.collect(0, member.vectors())
    member.check(member.send(member.up, 0, e0=9, missing=0b10000), member.below, 0, None, 9, missing=0b10000)
    vectors = member.vectors()
    member.check(member.send(member.below[0], 0, vectors[0]), [member.up], 0, total(*vectors))  # nothing has changed
    assert member.drops() == {}


def test_the_result_goes_to_all_children_and_takes_the_place_of_the_sum(member):
    member.collect(0, member.vectors())
    result = numbers(member.world, -1000, 7)
    member.check(member.send(member.up, 0, result, 11), member.below, 0, result, 11)
    for peer in reversed(member.below):
        member.check(member.send(peer, 0, numbers(member.world, 3), 99), [peer], 0, result, 11)
    assert member.drops() == {}


@pytest.mark.parametrize("here", [0, 1])
@pytest.mark.parametrize("above", [0, 1])
def test_the_flag_of_the_result_counts_not_that_of_the_sum(leaf, here, above):
    vectors = [[BIG, *[0] * 31], [here, *[0] * 31], [0] * 32]
    leaf.check(leaf.collect(0, vectors), [leaf.up], 0, total(*vectors), overflow=here)
    leaf.check(leaf.send(leaf.up, 0, [4] * 32, switchml__overflow=above), leaf.below, 0, [4] * 32, overflow=above)
    leaf.check(leaf.send(leaf.below[1], 0, [4] * 32), [leaf.below[1]], 0, [4] * 32, overflow=above)


# ---- final, and the next phase


def finish(member: Member, tsi: int) -> list[int]:
    vectors, result = member.vectors(tsi), numbers(member.world, 5000 + tsi)
    member.check(member.collect(tsi, vectors), [member.up], tsi, total(*vectors))
    member.check(member.send(member.up, tsi, result), member.below, tsi, result)
    return result


def test_rows_are_used_again_when_they_are_final(member):
    for tsi in (0, 4, 8, 12, 16, 24, 20):
        finish(member, tsi)
    assert member.drops() == {}


def test_the_result_is_taken_once(member):
    result = finish(member, 0)
    assert member.send(member.up, 0, numbers(member.world, 1)) == []
    assert member.send(member.up, 0, missing=1) == []
    assert member.drops() == {"REPEATED": 2}
    member.check(member.send(member.below[1], 0, result), [member.below[1]], 0, result)


def test_maxima_go_up_and_come_down_as_such(member):
    vectors = [[i - 2, -i, BIG - i, -BIG - 1 + i, *[0] * 28] for i in range(len(member.below))]
    for peer, vector in zip(member.below, vectors, strict=True):
        sent = member.send(peer, 0, vector, switchml__msg_type=3)
    largest = [max(column) for column in zip(*vectors, strict=True)]
    member.check(sent, [member.up], 0, largest, kind=3)
    assert member.send(member.up, 0, largest) == []
    assert member.drops() == {"WRONG_SIZE": 1}
    member.check(member.send(member.up, 0, [7] * 32, switchml__msg_type=3), member.below, 0, [7] * 32, kind=3)
    member.check(member.send(member.below[1], 0, [9] * 32, switchml__msg_type=3), [member.below[1]], 0, [7] * 32, kind=3)


# ---- what does not fit


def test_nothing_comes_from_above_before_it_was_asked(member):
    result = numbers(member.world, 1)
    assert member.send(member.up, 0, result) == [] and member.send(member.up, 0, missing=1) == []
    member.send(member.below[0], 0, result)
    assert member.send(member.up, 0, result) == [] and member.send(member.up, 0, missing=1) == []
    assert member.drops() == {"STALE": 4}


def test_a_result_of_another_phase_is_dropped(member):
    late = member.frame(member.up, 0, numbers(member.world, 1))
    finish(member, 0)
    vectors = member.vectors()
    member.send(member.below[0], 8, vectors[0])
    assert member.world.send(late, member.up.port) == []
    for peer, vector in list(zip(member.below, vectors, strict=True))[1:]:
        member.send(peer, 8, vector)
    assert member.world.send(late, member.up.port) == []
    assert member.send(member.up, 16, vectors[0], switchml__set=0) == []
    assert member.send(member.up, 0, missing=1) == []
    assert member.drops() == {"STALE": 4}
    member.check(member.send(member.up, 8, vectors[0]), member.below, 8, vectors[0])


def test_a_newer_result_does_not_take_a_final_row(member):
    finish(member, 0)
    assert member.send(member.up, 8, numbers(member.world, 1)) == []
    assert member.drops() == {"STALE": 1}


def test_a_result_has_the_size_of_its_phase(member):
    member.collect(0, member.vectors())
    assert member.send(member.up, 0, None) == []
    assert member.drops() == {"WRONG_SIZE": 1}


def test_a_result_of_an_old_life_is_dropped(member):
    member.collect(0, member.vectors())
    other = (member.job.life + 1 ^ 128) % 256 - 128
    assert member.send(member.up, 0, numbers(member.world, 1), exponents__e1=other) == []
    assert member.send(member.up, 0, missing=1, exponents__e1=other) == []
    assert member.drops() == {"OLD_LIFE": 2}


@pytest.mark.parametrize("missing", [None, 1])
def test_only_the_parent_speaks_for_the_parent(member, missing):
    member.collect(0, member.vectors())
    values = None if missing else numbers(member.world, 1)
    stranger = Peer(member.up.port, Address(member.up.address.mac, "10.9.9.9", member.up.address.port))
    assert member.send(member.up, 0, values, missing=missing, port=member.below[0].port) == []
    assert member.send(stranger, 0, values, missing=missing) == []
    assert member.send(member.up, 0, values, missing=missing, udp__src_port=0xBEE1) == []
    assert member.drops() == {"WRONG_SOURCE": 3}


def test_a_child_does_not_say_who_is_missing(member):
    assert member.send(member.below[0], 0, missing=1) == []
    assert member.drops() == {"WRONG_SOURCE": 1}


@pytest.mark.parametrize("length", [64, 67])
def test_a_pending_frame_without_its_bitmap(member, length):
    member.collect(0, member.vectors())
    assert member.world.send(member.frame(member.up, 0, missing=1)[:length], member.up.port) == []
    assert member.send(member.up, 0, missing=1, switchml__size=0) == []
    assert member.send(member.up, 0, missing=1, udp__length=18) == []
    assert member.drops() == {"MALFORMED": 3}


def test_nobody_is_above_the_root(target):
    root = Member(target, ROOT)
    vectors = root.vectors()
    root.check(root.collect(0, vectors), root.below, 0, total(*vectors))
    root.check(root.send(root.below[0], 0, vectors[1]), [root.below[0]], 0, total(*vectors))
    assert root.send(Peer(3, switch_address("s9")), 4, vectors[0]) == []
    assert root.drops() == {"WRONG_SOURCE": 1}


def test_a_parent_that_is_nowhere(leaf):
    """The sums wait in the row until somebody says where the parent is."""
    key = {"hdr.switchml.job": leaf.job.number}
    entry = TableEntry("parent", key, "to_parent", {
        "port": 4, "mac": leaf.up.address.mac, "ip": leaf.up.address.ip, "udp_port": leaf.up.address.port,
        "own_mac": leaf.own.mac, "own_ip": leaf.own.ip, "own_port": leaf.own.port})
    leaf.world.target.write(delete(entry))
    vectors = leaf.vectors()
    assert leaf.collect(0, vectors) == []
    assert leaf.drops() == {"NO_PARENT": 1}


def test_a_parent_that_moves(leaf):
    """Another port for the rest of the job; the sums are sent up again there."""
    vectors = leaf.vectors()
    leaf.collect(0, vectors)
    params = {"port": 5, "mac": leaf.up.address.mac, "ip": leaf.up.address.ip, "udp_port": leaf.up.address.port,
              "own_mac": leaf.own.mac, "own_ip": leaf.own.ip, "own_port": leaf.own.port}
    leaf.world.target.write(modify(TableEntry("parent", {"hdr.switchml.job": leaf.job.number}, "to_parent", params)))
    leaf.check(leaf.send(leaf.below[0], 0, vectors[0]), [Peer(5, leaf.up.address)], 0, total(*vectors))


@pytest.mark.parametrize("name", marked(TARGETS))
def test_one_child(name):
    """A switch with one child only passes frames on, up and down."""
    member = Member(name, "s2")
    member.check(member.send(member.below[0], 0, numbers(member.world, 3)), [member.up], 0, numbers(member.world, 3))
    member.check(member.send(member.below[0], 0, numbers(member.world, 4)), [member.up], 0, numbers(member.world, 3))
    member.check(member.send(member.up, 0, numbers(member.world, 9)), member.below, 0, numbers(member.world, 9))


# ---- any packets


@dataclass(frozen=True)
class Step:
    """A packet: `sender`: child by number, or -1 the parent; `step` from the number that is due; pending: a bitmap."""

    sender: int
    step: int
    values: tuple[int, ...] | None
    e0: int
    overflow: int
    missing: int | None
    port: int | None
    flip: tuple[int, int] | None


RIGHT = st.builds(
    Step,
    sender=st.sampled_from([0, 0, 1, 1, 2, 2, -1, -1]),
    step=st.sampled_from([0] * 8 + [-1, -4, 1]),
    values=st.sampled_from([(1, 2), (BIG,), (-BIG, -1)]),
    e0=st.integers(-128, 127),
    overflow=st.sampled_from([0, 0, 0, 1]),
    missing=st.none(),
    port=st.none(),
    flip=st.none(),
)
ODD = st.builds(
    Step,
    sender=st.integers(-1, 2),
    step=st.sampled_from([0, 0, 0, -4, 1, 4, 2**31]),
    values=st.none() | st.just((7,)),
    e0=st.integers(-128, 127),
    overflow=st.integers(0, 1),
    missing=st.none() | st.integers(0, 31),
    port=st.none() | st.integers(0, 5),
    flip=st.none() | st.tuples(st.integers(14, 67), st.integers(1, 255)),
)
STEPS = st.lists(st.sampled_from([RIGHT] * 5 + [ODD]).flatmap(lambda kind: kind), min_size=30, max_size=60)


def compare(names: list[str], switch: str, steps: list[Step]) -> None:
    members = [Member(name, switch) for name in names]
    for i, step in enumerate(steps):
        reference = members[0]
        peer = reference.up if step.sender < 0 else reference.below[step.sender % len(reference.below)]
        values = None if step.values is None or step.missing is not None else (step.values * 32)[:32]
        tsi = (8 + i // 6 * 4 + step.step) % 2**32
        kind = {"switchml__msg_type": 3} if tsi // 4 % 3 == 1 and step.missing is None else {}
        frame = bytearray(reference.frame(peer, tsi, values, step.e0, missing=step.missing, switchml__overflow=step.overflow,
                                          **kind))
        if step.flip:
            frame[step.flip[0] % len(frame)] ^= step.flip[1]
        port = peer.port if step.port is None else step.port
        expected = reference.world.send(bytes(frame), port)
        for other in members[1:]:
            assert other.world.send(bytes(frame), port) == expected, f"port {port}, frame {frame.hex()}"
    for other in members[1:]:
        assert other.drops() == members[0].drops()


@pytest.mark.build
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([LEAF, INNER, "s2"]))
def test_model_interpreter_and_compiled_agree(steps, switch):
    compare(["model", "interpreter", "compiled"], switch, steps)


@pytest.mark.hardware
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from([LEAF, INNER, "s2"]))
def test_bmv2_agrees(steps, switch):
    compare(["model", "bmv2"], switch, steps)


@pytest.mark.fast
def test_the_sample_reaches_every_state():
    """Frames as `compare` makes them go up, come down and are dropped where they should be."""
    member = Member("model", INNER)
    outcomes = set()
    for sender, step in ((0, 0), (0, 0), (1, 0), (0, 0), (1, 0), (-1, 0), (0, 0), (-1, 0), (1, -4), (0, 4), (-1, 4)):
        peer = member.up if sender < 0 else member.below[sender]
        sent = member.send(peer, 8 + step, numbers(member.world, 1))
        outcomes |= {(len(sent), port, member.world.parse(frame)["switchml"]["msg_type"]) for port, frame in sent}
    assert outcomes == {(1, 1, 2), (1, 3, 1), (1, 2, 2), (2, 1, 1), (2, 2, 1), (1, 1, 1)}
    assert member.drops() == {"REPEATED": 1, "STALE": 2}
