"""The same packets into every switch that runs p4/atp.p4: interpreter, compiled program and BMv2 answer and count alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from atp_targets import ANSWER, DATA, FLOAT_RESULT, FLOATS, OFFER, PENDING, RESULT, VALUES, World, close_targets, open_target
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from switchml_targets import some_guards

PACE = 8
PORTS = 10
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # sequences must be long to reach far
EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**30]


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


@dataclass(frozen=True)
class Packet:
    """A packet to be made for job `job` (an index), then spoiled: bytes changed, cut off or appended."""

    job: int
    child: int | None  # None: the parent's
    kind: int
    step: int  # sequence = start + step, and one more for every PACE packets sent
    index: int
    resend: int
    part: int  # which of the child's workers: of a switch below, any of them
    values: tuple[int, ...] | None  # repeated to fill the packet
    exponent: int
    flags: int
    port: int | None = None  # None: its own
    flips: tuple[tuple[int, int], ...] = ()
    cut: int | None = None
    tail: bytes = b""


INTEGERS = st.sampled_from(EDGES) | st.integers(-(2**31), 2**31 - 1)
VECTORS = st.lists(INTEGERS, min_size=1, max_size=2).map(tuple)
COMMON = {
    "job": st.integers(0, 1), "index": st.sampled_from([5, 5, 5, 6, 21]), "resend": st.sampled_from([0, 0, 0, 1]),
    "part": st.integers(0, 3), "exponent": st.integers(-128, 127), "flags": st.sampled_from([0, 0, 0, 1, 2, 4, 7]),
}
UP = st.builds(Packet, child=st.integers(0, 2), kind=st.sampled_from([DATA] * 6 + [6, 6, FLOATS, OFFER]),
               step=st.sampled_from([0, 0, 0, 0, 1, -1]), values=VECTORS | VECTORS | VECTORS | st.none(), **COMMON)
DOWN = st.builds(Packet, child=st.none(), kind=st.sampled_from([RESULT, RESULT, FLOAT_RESULT, PENDING, ANSWER]),
                 step=st.sampled_from([0, 0, -1, -2]), values=VECTORS | st.none(), **COMMON)
ODD = st.builds(
    Packet, child=st.none() | st.integers(0, 2), kind=st.integers(0, 15),
    step=st.sampled_from([0, 1, -8, 2**31, 2**39, 2**39 - 1]), values=VECTORS | st.none(),
    port=st.none() | st.integers(0, PORTS - 1),
    flips=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 255)), max_size=2).map(tuple),
    cut=st.none() | st.integers(14, 190), tail=st.binary(max_size=10), **COMMON,
)
RAW = st.tuples(st.integers(0, PORTS - 1), st.binary(min_size=14, max_size=60))
KINDS = [UP] * 8 + [DOWN] * 3 + [ODD] * 2 + [RAW]
STEPS = st.lists(st.sampled_from(KINDS).flatmap(lambda kind: kind), min_size=40, max_size=60)
STARTS = st.sampled_from([0, 2**32 - 3, 2**40 - 3])


def odd_for_sockets(frame: bytes) -> bool:
    """The kernel takes VLAN tags out of frames, so that a packet socket receives different frames than were sent."""
    return frame[12:14] in (b"\x81\x00", b"\x88\xa8", b"\x88\xb5")


class Network:
    """One target with a job of three workers, the root of a job of two racks and a worker, and forwarding."""

    def __init__(self, name: str):
        self.name = name
        self.world = World(open_target(name), PORTS)
        self.jobs = [self.world.admit([0b001, 0b010, 0b100]),
                     self.world.admit([0b00011, 0b01100, 0b10000], first_port=3, port=8)]
        self.world.flood("ff:ff:ff:ff:ff:ff", 1000, range(PORTS))
        self.world.forward("02:00:00:00:ff:fe", 5)
        self.world.target.write(some_guards())

    def frame(self, packet: Packet, now: int) -> tuple[int, bytes]:
        job = self.jobs[packet.job]
        sequence = (now + packet.step) % 2**40
        atp = {"index": packet.index, "exponent": packet.exponent, "resend": packet.resend, "collision": packet.flags >> 2,
               "ecn": packet.flags >> 1 & 1, "overflow": packet.flags & 1}
        values = (packet.values or ()) * VALUES
        payload = b"".join((v % 2**32).to_bytes(4, "big") for v in values[:VALUES])
        payload = bytes(4) if packet.kind == PENDING else payload
        if packet.child is None:
            port, source = job.parent.port, job.parent.address
            bits = (job.full, job.full, 1, 4)[packet.part]
        else:
            port, source = job.port(packet.child), job.addresses[packet.child]
            own = job.children[packet.child]
            bits = (own, own, own & -own, own & (own - 1) or own)[packet.part]
        headers = job.fields(source, packet.kind, sequence, bits, len(payload), **atp)
        frame = bytearray(self.world.bytes(headers) + payload)
        for at, flip in packet.flips:
            frame[at % len(frame)] ^= flip
        return port if packet.port is None else packet.port, (bytes(frame) + packet.tail)[: packet.cut]


def number_far_away() -> list[Packet]:
    """A number is claimed, then a result comes whose low 32 bits of the sequence are the same: the aggregator is free."""
    common = {"job": 1, "index": 5, "resend": 0, "part": 0, "exponent": 0, "flags": 0}
    claim = Packet(child=0, kind=DATA, step=0, values=(0,), **common)
    return [claim, Packet(child=None, kind=RESULT, step=2**39, values=(0,), **common), replace(claim, job=0)]


def compare(names: list[str], steps: list, start: int) -> None:
    networks = [Network(name) for name in names]
    reference, others = networks[0], networks[1:]
    for i, step in enumerate(steps):
        port, frame = step if isinstance(step, tuple) else reference.frame(step, start + i // PACE)
        if odd_for_sockets(frame):
            continue
        expected = reference.world.send(frame, port)
        for other in others:
            assert other.world.send(frame, port) == expected, f"{other.name}: port {port}, frame {frame.hex()}"
    drops = reference.world.drops()
    for other in others:
        assert other.world.drops() == drops, other.name
        if {reference.name, other.name} == {"compiled", "tna"}:
            fates = [network.world.target.switch.counter("fates")[:16, 0].tolist() for network in (reference, other)]
            assert fates[0] == fates[1]


@pytest.mark.build
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(STEPS, STARTS)
def test_interpreter_and_compiled_agree(steps, start):
    compare(["interpreter", "compiled"], steps, start)


@pytest.mark.build
@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@example(number_far_away(), 0)
@given(STEPS, STARTS)
def test_tna_agrees(steps, start):
    compare(["compiled", "tna"], steps, start)


@pytest.mark.hardware
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(STEPS, STARTS)
def test_bmv2_agrees(steps, start):
    compare(["compiled", "bmv2"], steps, start)


@pytest.mark.build
def test_the_sample_reaches_what_it_is_for():
    """Frames as the strategies make them are claimed, merged, completed and evicted: both sides do send frames."""
    network = Network("compiled")
    for number, children in ((0, (0, 1, 2)), (1, (0, 1, 2))):
        for step, resend in ((0, 0), (1, 1)):
            for child in children:
                packet = Packet(number, child, DATA, step, 5 + number, resend * (child == 2), 0, (1, 2), 3, 0)
                port, frame = network.frame(packet, 0)
                network.world.send(frame, port)
            network.world.send(*reversed(network.frame(Packet(number, None, RESULT, step, 5 + number, 0, 0, (1,), 3, 0), 0)))
    fates = network.world.target.switch.counter("fates")[:16, 0].tolist()
    assert fates == [2, 2, 1, 0, 0, 1, 0, 0] * 2
    assert network.world.drops() == {}
