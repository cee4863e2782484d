"""p4/quorum.p4 in a tree: offers go up one by one, the root decides, and its answers go to all children on their way down.

    s1 (root)                 workers 0 1 2 at s3, 3 at s4, 4 at s2
    ├── s2 (leaf): h5
    └── s4 (inner): h4, and below it
        └── s3 (leaf): h1, h2, h3
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from capabilities import need
from offers import ASK, DATA, DECIDED, GIVE, HEAD, OPEN, PASS, VALUES, WIRE, Reference, completed, offered, read
from switchml_targets import SLOTS, Bmv2Target, CompiledTarget, InterpreterTarget, Target, drop_reasons

from ina.aggregation.controller.admission import Controller, switch_address
from ina.base import paths
from ina.net.ports import Address
from ina.p4.runtime.entities import as_int
from ina.topology import Link, Node, Topology

need("cc")
WORKERS, WINDOW = 5, 4
FULL = 2**WORKERS - 1
NETWORK = Topology(
    "three levels", tuple(map(Node, ("h1", "h2", "h3", "h4", "h5", "s1", "s2", "s3", "s4"))),
    (Link("h1", "s3"), Link("h2", "s3"), Link("h3", "s3"), Link("s2", "s1"), Link("s3", "s4"), Link("h4", "s4"),
     Link("s4", "s1"), Link("h5", "s2")))
HOSTS = ("h1", "h2", "h3", "h4", "h5")
AT = ("s3", "s3", "s3", "s4", "s2")  # the workers
BELOW = {"s3": (0, 1, 2), "s4": (0, 1, 2, 3), "s2": (4,), "s1": (0, 1, 2, 3, 4)}
TOP = {"s3": "s4", "s4": "s4", "s2": "s2"}  # of the root's children, the one above
PACKETS = {"compiled": 3000, "interpreter": 400, "bmv2": 200}
KINDS = {"compiled": {}, "interpreter": dict.fromkeys(BELOW, InterpreterTarget), "bmv2": {"s3": Bmv2Target}}
BUILT = [pytest.param(name, marks=pytest.mark.hardware if name == "bmv2" else pytest.mark.build) for name in KINDS]
_open: dict[str, dict[str, Target]] = {}


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    for targets in _open.values():
        for target in targets.values():
            getattr(target, "close", lambda: None)()
    _open.clear()


class Switches:
    """The network's switches, with a job of a worker at each host, and frames between them."""

    def __init__(self, name: str):
        if name not in _open:
            kinds = {switch: KINDS[name].get(switch, CompiledTarget) for switch in BELOW}
            _open[name] = {switch: type(kind.__name__, (kind,), {"source": paths.p4_dir() / "quorum.p4"})(VALUES)
                           for switch, kind in kinds.items()}
        self.targets = _open[name]
        for target in self.targets.values():
            target.reset(6)
        controller = Controller(self.targets, SLOTS, topology=NETWORK, protocol="quorum", chance=random.Random(1))
        (tree,) = controller.place("job", HOSTS, WINDOW)
        self.job = controller.admit("job", WORKERS, WINDOW, tree=tree, hosts=HOSTS)
        for worker in range(WORKERS):
            controller.attach(self.job, worker)
        assert tree.root == "s1"
        self.far = {(a.node, a.port): (b.node, b.port) for ends in NETWORK.ends for a, b in (ends, ends[::-1])}
        self.port = {node: (far, port) for (node, _), (far, port) in self.far.items() if node in HOSTS}  # of its switch

    def fields(self, source: Address, target: Address, tsi: int) -> dict[str, dict[str, Any]]:
        constants = WIRE.constants
        return {
            "ethernet": {"dst_addr": as_int(target.mac, 48, "mac"), "src_addr": as_int(source.mac, 48, "mac"),
                         "ethertype": 0x0800},
            "ipv4": {"version": 4, "ihl": 5, "total_len": 50, "flags": 2, "ttl": 9, "protocol": 17,
                     "src_addr": as_int(source.ip, 32, "ip"), "dst_addr": as_int(target.ip, 32, "ip")},
            "udp": {"src_port": source.port, "dst_port": target.port, "length": 30},
            "switchml": {"msg_type": DATA, "size": constants["SIZE_NONE"], "job": self.job.number, "tsi": tsi % 2**32,
                         "checked": 1, "slot": tsi % WINDOW, "set": tsi // WINDOW % 2},
            "exponents": {"e0": -96, "e1": (self.job.life ^ 128) - 128},
            "check": {"version": constants["WIRE_VERSION"], "check0": 0, "check1": 0},
        }

    def of_worker(self, worker: int, tsi: int) -> dict[str, dict[str, Any]]:
        return self.fields(self.job.addresses[worker], switch_address(AT[worker]), tsi)

    def offer(
        self, worker: int, tsi: int, state: int, least: int = 1, rivals: int = 0, ranks: int | None = None, **changes: int
    ) -> bytes:
        return offered(self.of_worker(worker, tsi), state, least, rivals, 1 << worker if ranks is None else ranks, **changes)

    def data(self, worker: int, tsi: int, values: np.ndarray) -> bytes:
        fields = self.of_worker(worker, tsi)
        fields["switchml"]["size"] = WIRE.constants["SIZE_CODE"]
        fields["ipv4"]["total_len"] += 4 * VALUES
        fields["udp"]["length"] += 4 * VALUES
        return completed(fields | {"values": {"v": [int(value) % 2**32 for value in values]}})

    def send(self, worker: int, frame: bytes) -> list[tuple[int, tuple]]:
        """Sends a worker's frame, and those that it causes; returns what workers get."""
        return self.carry(*self.port[HOSTS[worker]], frame)

    def carry(self, switch: str, port: int, frame: bytes) -> list[tuple[int, tuple]]:
        """Frames arrive at a port of a switch, and those that they cause at theirs; returns what workers get."""
        waiting, got = deque([(switch, port, frame)]), []
        for _ in range(200):
            if not waiting:
                return sorted(got, key=lambda each: each[0])
            switch, port, frame = waiting.popleft()
            for out, sent in self.targets[switch].send(frame, port):
                node, at = self.far[switch, out]
                headers, contents = read(sent)
                assert headers["ethernet"]["src_addr"] == as_int(switch_address(switch).mac, 48, "mac")
                own = self.job.addresses[HOSTS.index(node)] if node in HOSTS else switch_address(node)
                assert headers["ipv4"]["dst_addr"] == as_int(own.ip, 32, "ip")
                assert (headers["udp"]["dst_port"], headers["ipv4"]["ttl"]) == (own.port, 64)
                if node in HOSTS:
                    got.append((HOSTS.index(node), contents))
                else:
                    waiting.append((node, at, sent))
        raise AssertionError("frames without an end")

    def drops(self, switch: str) -> dict[str, int]:
        return {name: count for name, count in zip(drop_reasons(), self.targets[switch].drops(), strict=True) if count}


@pytest.fixture(params=BUILT)
def name(request) -> str:
    return request.param


@pytest.fixture
def tree(name) -> Switches:
    return Switches(name)


def heard(expected: list[tuple[int, tuple]]) -> list[tuple[int, tuple]]:
    """Receivers of what the root answers: what it sends to one child goes to all workers below that."""
    if len(expected) != 1:
        return expected
    ((worker, answer),) = expected
    return [(each, answer) for each in BELOW[TOP[AT[worker]]]]


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_the_root_s_whatever_comes(name, seed):
    """Offers at random, some twice, late, early, of others, or spoilt; now and then a sum in the same row, at all switches."""
    tree, rng, reference = Switches(name), np.random.default_rng(seed), Reference(WORKERS)
    decided = opened = sums = 0
    for _ in range(PACKETS[name]):
        index, worker = int(rng.integers(2 * WINDOW)), int(rng.integers(WORKERS))
        row = reference.rows.get(index)
        tsi = reference.due(index, index // 2 + index % 2 * WINDOW, 2 * WINDOW)
        if (row is None or row.decided) and rng.random() < 0.3:
            values = rng.integers(-(2**28), 2**28, (WORKERS, VALUES)).astype(np.int32)
            for each in rng.permutation(WORKERS):
                expected = reference.reduce(index, int(each), tsi, DATA, values[each], -96)
                assert tree.send(int(each), tree.data(int(each), tsi, values[each])) == expected
            sums += 1
            continue
        tsi = (tsi + 2 * WINDOW * int(rng.choice([0] * 12 + [-1, 1, -2]))) % 2**32
        if reference.rows.get(index) is None and tsi >= 2**31:
            continue  # before the first
        state = int(rng.choice([ASK, GIVE, GIVE, PASS])) if rng.random() < 0.95 else int(rng.integers(256))
        least = int(rng.integers(WORKERS + 2)) if rng.random() < 0.9 else int(rng.integers(256))
        rivals = int(rng.choice([0, 0, 1, 2, 16])) if rng.random() < 0.8 else int(rng.integers(2**32))
        ranks = 1 << worker if rng.random() < 0.94 else int(rng.choice([0, 1 << int(rng.integers(32)), 0b11, FULL, 2**32 - 1]))
        frame, what = bytearray(tree.offer(worker, tsi, state, least, rivals, ranks)), rng.random()
        if what < 0.05:
            frame[int(rng.choice([*range(14, 36), 38, 39, *range(42, WIRE.size(HEAD))]))] ^= 1 << int(rng.integers(8))
        elif what < 0.1:
            frame = frame[: int(rng.integers(42, len(frame)))]
        sent = tree.send(worker, bytes(frame))
        if what < 0.1:
            assert sent == []
            continue
        if tsi >= 2**31:  # before the row's first: the reference has no wrap
            assert sent == []
            continue
        expected = heard(reference.offer(index, worker, tsi, state, least, rivals, ranks))
        assert sent == expected, (worker, tsi)
        decided += len(sent) == WORKERS
        opened += bool(sent) and sent[0][1][2] == OPEN
    assert min(decided, opened, sums) > PACKETS[name] // 200
    assert "STALE" not in tree.drops("s4") and tree.drops("s1")["STALE"] > 0, "only the root knows which offers are late"


def test_an_offer_goes_up_as_it_came_and_the_decision_to_all(tree):
    for worker, (state, least) in enumerate([(ASK, 4), (GIVE, 3), (PASS, 5), (GIVE, 1)]):
        assert tree.send(worker, tree.offer(worker, 9, state, least, offer__reserved=77)) == []
    sent = tree.send(4, tree.offer(4, 9, GIVE, 3, 0b00100))
    assert sent == [(worker, (9, "offer", DECIDED, 3, 0b00100, 0b11010)) for worker in range(WORKERS)]
    for worker in range(WORKERS):
        assert tree.send(worker, tree.offer(worker, 9, ASK, 2)) == heard([(worker, (9, "offer", DECIDED, 2, 0, 0b11010))])
    assert all(tree.drops(switch) == {} for switch in BELOW)


def test_answers_that_a_child_sends_are_dropped_where_it_is(tree):
    for worker in range(WORKERS):
        for state in (OPEN, DECIDED, 5, 255):
            for ranks in (1 << worker, FULL, 0):
                assert tree.send(worker, tree.offer(worker, 0, state, ranks=ranks)) == []
    assert {switch: tree.drops(switch) for switch in BELOW} == {
        "s3": {"WRONG_SIZE": 36}, "s4": {"WRONG_SIZE": 12}, "s2": {"WRONG_SIZE": 12}, "s1": {}}


def test_nor_does_the_root_take_an_answer_from_a_switch_below(tree):
    source, port = switch_address("s4"), next(port for (node, port), far in tree.far.items() if node == "s1" and far[0] == "s4")
    for state in (OPEN, DECIDED, 5):
        assert tree.carry("s1", port, offered(tree.fields(source, switch_address("s1"), 0), state, 1, 0, 1)) == []
    for ranks in (0, 0b10000, 0b00011, FULL, 2**31):  # of others, or several
        assert tree.carry("s1", port, offered(tree.fields(source, switch_address("s1"), 0), GIVE, 1, 0, ranks)) == []
    assert tree.drops("s1") == {"WRONG_SIZE": 8}
    assert tree.carry("s1", port, offered(tree.fields(source, switch_address("s1"), 0), GIVE, 1, 0, 0b01000)) == []
    sent = tree.carry("s1", port, offered(tree.fields(source, switch_address("s1"), 0), GIVE, 1, 0, 0b01000))
    assert sent == [(worker, (0, "offer", OPEN, 1, 0, 0b10111)) for worker in range(4)]


@pytest.mark.parametrize("switch", ["s3", "s4", "s2"])
def test_what_a_switch_takes_from_above(tree, switch):
    """An answer of its parent goes to all workers below; what pretends to be one, or an offer from there, does not."""
    above = {"s3": "s4", "s4": "s1", "s2": "s1"}[switch]
    port = next(port for (node, port), far in tree.far.items() if (node, far[0]) == (switch, above))
    down = next(port for (node, port), far in tree.far.items() if node == switch and far[0] in HOSTS)

    def answer(state: int, ranks: int, **changes) -> bytes:
        return offered(tree.fields(switch_address(above), switch_address(switch), 3), state, 1, 0, ranks, **changes)

    for state, ranks in ((OPEN, 0b11), (DECIDED, 0), (DECIDED, FULL), (DECIDED, 2**32 - 1)):
        sent = tree.carry(switch, port, answer(state, ranks))
        assert sent == [(worker, (3, "offer", state, 1, 0, ranks)) for worker in BELOW[switch]]
    assert tree.drops(switch) == {}
    for state in (ASK, GIVE, PASS, 5, 255):
        assert tree.carry(switch, port, answer(state, FULL)) == []
    assert tree.drops(switch) == {"WRONG_SIZE": 5}
    assert tree.carry(switch, down, answer(DECIDED, FULL)) == []
    assert tree.carry(switch, port, answer(DECIDED, FULL, udp__src_port=4000)) == []
    assert tree.carry(switch, port, answer(DECIDED, FULL, ipv4__src_addr=as_int(switch_address(switch).ip, 32, "ip"))) == []
    assert tree.drops(switch) == {"WRONG_SIZE": 5, "WRONG_SOURCE": 3}
    assert tree.carry(switch, port, answer(DECIDED, FULL, exponents__e1=99)) == []
    assert tree.carry(switch, port, answer(DECIDED, FULL, check__version=3)) == []
    assert tree.carry(switch, port, answer(DECIDED, FULL, switchml__size=0)) == []
    assert tree.carry(switch, port, answer(DECIDED, FULL)[:-1]) == []
    assert tree.drops(switch) == {"WRONG_SIZE": 5, "WRONG_SOURCE": 3, "OLD_LIFE": 1, "VERSION": 1, "MALFORMED": 2}


def test_another_version_is_refused_where_the_worker_is(tree):
    for worker in range(WORKERS):
        assert tree.send(worker, tree.offer(worker, 0, GIVE, check__version=1)) == [(worker, (0, "refused", 2))]
