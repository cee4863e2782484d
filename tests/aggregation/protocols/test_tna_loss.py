"""Losses of passes inside a Tofino: a sum that lacks a counted contribution must not be published.

Frames that go round are taken out at the recirculation port and put in again by hand, but for those that a test loses.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
import test_switchml_tree
from switchml_kin import made
from switchml_targets import TnaTarget, World, close_targets, open_target
from test_omnireduce_switch import sparse
from test_thc_switch import words

from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller
from ina.aggregation.entries import program_named
from ina.aggregation.worker import Worker, WorkerConfig
from ina.p4.runtime import Link

pytestmark = pytest.mark.build
RECIRCULATION = 68
PHASES = 8
# By the first byte of a frame that goes round: enum Pass.
PASSES = ("ARRIVE", "ADD", "LOAD", "FINISH", "LEAVE", "FLOOD", "COMPARE", "SUM", "EXPONENTS", "MANTISSAS", "OFFER", "TELL")


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


class Lossy(World):
    """A switch that loses passes: `lose(pass, chunk, number)` decides on the n-th frame that goes round."""

    def __init__(self, target: TnaTarget, ports: int = 4):
        super().__init__(target, ports)
        target.switch.add_port(RECIRCULATION)
        target.switch.set_port(RECIRCULATION, loopback=False)
        self.lose: Callable[[str, int, int], bool] = lambda *_: False
        self.rounds = 0
        self.lost = 0

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        return self.send_all([(port, frame)])

    def send_all(self, frames: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Sends all frames at once: their passes take turns."""
        waiting, out = deque(frames), []
        while waiting:
            port, frame = waiting.popleft()
            for to, sent in self.target.send(frame, port):
                if to != RECIRCULATION:
                    out.append((to, sent))
                    continue
                name, chunk = PASSES[sent[0]], sent[3]
                self.rounds += 1
                if self.lose(name, chunk, self.rounds):
                    self.lost += 1
                else:
                    waiting.append((RECIRCULATION, sent))
        return sorted(out, key=lambda sent: sent[0])


def values_of(world: World, frame: bytes) -> tuple[int, ...] | None:
    """Values of a frame; None if it only names missing workers."""
    headers = world.parse(frame)
    return headers["values"]["v"] if "values" in headers else None


@pytest.mark.parametrize("values", [32, 256])
def test_by_hand_it_is_as_by_the_switch(values):
    world = Lossy(open_target("tna", values))
    job = world.admit(3)
    vectors = [np.arange(values) * (worker + 1) for worker in range(3)]
    assert job.send(0, 0, vectors[0]) == job.send(1, 0, vectors[1]) == []
    sent = job.send(2, 0, vectors[2])
    assert [port for port, _ in sent] == [0, 1, 2]
    assert all(values_of(world, frame) == tuple(np.arange(values) * 6) for _, frame in sent)
    chunks = values // 32
    assert world.rounds == 3 * chunks + chunks + 1  # each is added; the last takes the sums along, and finishes


def after_loss(values: int, victim: int, name: str, chunk: int) -> tuple[Lossy, list[tuple[int, bytes]]]:
    """Three workers, one of which has a lost pass; returns the switch and its output when all have sent once."""
    world = Lossy(open_target("tna", values))
    job = world.admit(3)
    world.job = job
    sent = []
    for worker in range(3):
        world.lose = lambda stage, part, _, mine=worker == victim: mine and (stage, part) == (name, chunk)
        sent += job.send(worker, 0, np.arange(values) * (worker + 1))
    world.lose = lambda *_: False
    assert world.lost == 1
    return world, sent


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("values, chunk", [(32, 0), (256, 0), (256, 3), (256, 7)])
def test_an_addition_that_is_lost_is_made_good(values, chunk, victim):
    """No sum goes out; the phase is refused by name, and retransmissions give the right one."""
    world, sent = after_loss(values, victim, "ADD", chunk)
    job, right = world.job, tuple(np.arange(values) * 6)
    assert sent == []
    answers = []
    for _ in range(3):
        for worker in range(3):
            answers += job.send(worker, 0, np.arange(values) * (worker + 1))
    sums = {port: values_of(world, frame) for port, frame in answers if values_of(world, frame) is not None}
    assert sums == dict.fromkeys(range(3), right)
    assert all(values_of(world, frame) in (None, right) for _, frame in answers)
    assert set(world.drops()) == {"LOST"}


@pytest.mark.parametrize("name, chunk", [("LOAD", 7), ("LOAD", 2), ("FINISH", 0)])
def test_a_result_that_is_lost_is_asked_for(name, chunk):
    world = Lossy(open_target("tna", 256))
    job = world.admit(2)
    job.send(0, 0, np.arange(256))
    world.lose = lambda stage, part, _: stage == name and (name == "FINISH" or part == chunk)
    assert job.send(1, 0, np.arange(256)) == []
    world.lose = lambda *_: False
    ((port, frame),) = job.send(0, 0, np.arange(256))
    assert port == 0 and values_of(world, frame) == tuple(2 * np.arange(256))
    assert world.drops() == {}


def test_what_waits_is_told_the_same_while_an_addition_is_lost():
    """No worker is refused before the last worker has sent."""
    world = Lossy(open_target("tna", 64))
    job = world.admit(2)
    world.lose = lambda name, *_: name == "ADD"
    assert job.send(0, 0, [1] * 64) == []
    world.lose = lambda *_: False
    ((_, frame),) = job.send(0, 0, [1] * 64)
    assert world.parse(frame)["switchml"]["msg_type"] == world.wire.constants["SWITCHML_PENDING"]
    assert job.send(1, 0, [2] * 64) == []
    assert world.drops() == {"LOST": 1}


def test_published_clients_are_refused():
    """Their phases have no number that could go back: there is no sum, but not a wrong one."""
    world = Lossy(open_target("tna", 32))
    job = world.admit(2, strict=False)
    world.lose = lambda name, *_: name == "ADD"
    assert job.send(0, 0, [1] * 32) == []
    world.lose = lambda *_: False
    assert job.send(1, 0, [2] * 32) == []
    assert job.send(0, 0, [1] * 32) == []
    assert world.drops() == {"LOST": 2}


@pytest.mark.parametrize("seed", range(12))
def test_no_sum_is_ever_wrong(seed):
    """Workers that retransmit, through a switch that loses one pass in twelve: every answer is right, and all end."""
    rng = random.Random(seed)
    workers, phases, values = 3, PHASES, 64
    world = Lossy(open_target("tna", values))
    job = world.admit(workers, slots=2)
    world.lose = lambda *_: rng.random() < 1 / 12
    vectors = [[np.array([rng.randrange(-(2**20), 2**20) for _ in range(values)]) for _ in range(workers)] for _ in range(phases)]
    at = [0] * workers
    for _ in range(4000):
        if min(at) == phases:
            break
        senders = [worker for worker in rng.sample(range(workers), rng.randint(1, workers)) if at[worker] < phases]
        frames = [(job.ports[worker], job.frame(worker, at[worker], vectors[at[worker]][worker])) for worker in senders]
        for port, frame in world.send_all(frames):
            if (result := values_of(world, frame)) is None:
                continue
            tsi = world.parse(frame)["switchml"]["tsi"]
            assert np.array_equal(np.array(result).astype(np.uint32).view(np.int32), sum(vectors[tsi])), (tsi, port)
            if at[port] == tsi:
                at[port] += 1
    assert at == [phases] * workers and world.lost > 0
    assert set(world.drops()) <= {"LOST", "STALE"}


@pytest.mark.parametrize("lost", ["ADD", "LOAD", "FINISH"])
def test_a_result_from_above_that_is_lost_is_asked_for_again(lost, monkeypatch):
    """The parent has answered, and the leaf loses the result inside: children that send again get no partial sum in its place."""
    monkeypatch.setattr(test_switchml_tree, "World", Lossy)
    leaf = test_switchml_tree.Member("tna", test_switchml_tree.LEAF)
    world, vectors, result = leaf.world, leaf.vectors(), [7] * 32
    leaf.check(leaf.collect(0, vectors), [leaf.up], 0, np.sum(vectors, axis=0))
    world.lose = lambda name, *_: name == lost
    assert leaf.send(leaf.up, 0, result) == []
    world.lose = lambda *_: False
    if lost == "ADD":
        assert leaf.send(leaf.below[0], 0, vectors[0]) == []
        assert leaf.drops() == {"LOST": 1}
        leaf.check(leaf.collect(0, vectors), [leaf.up], 0, np.sum(vectors, axis=0))
        leaf.check(leaf.send(leaf.up, 0, result), leaf.below, 0, result)
    leaf.check(leaf.send(leaf.below[1], 0, vectors[1]), [leaf.below[1]], 0, result)


def test_a_recirculation_port_that_is_too_slow():
    """Its queue is full when four workers send at once: rounds are refused until one gets through, and no sum is wrong."""
    world = World(open_target("tna", 64), ports=4)
    switch = world.target.switch
    switch.add_port(RECIRCULATION, link=Link(rate=1e9, queue=700), loopback=True)
    job = world.admit(4, slots=8)
    rng, now = random.Random(1), 0
    at, vectors = [0] * 4, [np.arange(64) * (worker + 1) for worker in range(4)]
    while min(at) < PHASES and now < 10**12:
        sent = []
        for worker in rng.sample(range(4), rng.randint(1, 4)):
            now += rng.choice((0, 1_000_000, 30_000_000))  # picoseconds: a pass takes about 3 us
            if at[worker] < PHASES:
                sent += switch.step(job.frame(worker, at[worker], vectors[worker]), worker, now)
        for port, frame in sent:
            if (result := values_of(world, frame)) is not None:
                assert result == tuple(np.arange(64) * 10)
                at[port] += world.parse(frame)["switchml"]["tsi"] == at[port]
    assert at == [PHASES] * 4
    assert switch.port_stats(RECIRCULATION).drops["tail"] > 0 and world.drops()["LOST"] > 0


@pytest.mark.parametrize("victim", [0, 1])
def test_a_frame_that_ends_before_its_header_says_does_not_spoil_the_phase(victim):
    """It ends after its first 32 values, when it has been counted: it is dropped, by name; the retransmission is right."""
    world = World(open_target("tna", 256), ports=2)
    job = world.admit(2)
    frames = [job.frame(worker, 0, np.arange(256) * (worker + 1)) for worker in range(2)]
    short = len(frames[0]) - 300
    for worker in range(2):
        assert world.send(frames[worker][: short if worker == victim else None], worker) == []
    assert world.drops() == ({"MALFORMED": 1, "LOST": 1} if victim == 0 else {"MALFORMED": 1})
    answers = [sent for _ in range(3) for worker in range(2) for sent in world.send(frames[worker], worker)]
    sums = {port: values_of(world, frame) for port, frame in answers if values_of(world, frame) is not None}
    assert sums == dict.fromkeys(range(2), tuple(np.arange(256) * 3))




def exact_in_any_order(workers: int, count: int, seed: int) -> np.ndarray:
    """Bits of floats that FPISA-A adds without a loss: of one exponent."""
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], (workers, count)) * rng.integers(64, 128, (workers, count))).astype(np.float32).view(np.int32)


OWN = {"thc": (64, words), "omnireduce": (64, lambda workers, count, seed: sparse(workers, 2 * count, 0.1, seed)),
       "fpisa": (32, exact_in_any_order)}


def lossy_world(protocol: str, values: int, seed: int) -> tuple[Lossy, list[Worker], random.Random]:
    """A switch that loses one pass in 25, and three workers of a job."""
    rng, workers = random.Random(seed), 3
    world = Lossy(made(protocol, TnaTarget, values, {}))
    world.lose = lambda *_: rng.random() < 1 / 25
    controller = Controller(world.target, 16, protocol=protocol, chance=random.Random(1))
    admitted = controller.admit("job", workers, 4)
    addresses = [controller.attach(admitted, rank, rank).address for rank in range(workers)]
    machines = [Worker(WorkerConfig(rank, workers, job=admitted.number, life=admitted.life, slots=4, values=values, rto_min=1e-4,
                                    rto_max=4e-4, timeout=10.0, protocol=protocol, address=address))
                for rank, address in enumerate(addresses)]
    return world, machines, rng


def finish(world: Lossy, machines: list[Worker], rng: random.Random, now: int) -> int:
    """Lets workers exchange frames, in any order, until all have ended a tensor; returns the time."""
    left = len(machines)
    while left:
        now += 10_000_000  # picoseconds
        order = rng.sample(range(len(machines)), len(machines))
        frames = [(rank, frame) for rank in order for frame in machines[rank].frames_to_send(now)]
        for port, frame in world.send_all(frames):
            machines[port].receive(frame, now)
        events = [event for machine in machines for event in machine.events()]
        assert not any(event.code for event in events), events
        left -= len(events)
    return now


@pytest.mark.parametrize("protocol", OWN)
def test_no_sum_of_indices_zeros_or_floats_is_ever_wrong(protocol):
    """Workers whose packets have something else in the place of values."""
    now, (values, work) = 0, OWN[protocol]
    world, machines, rng = lossy_world(protocol, values, 4)
    for seed in range(4):
        arrays = work(len(machines), 1500, seed)
        expected = program_named(protocol).reduced(np.array(arrays))
        for machine, array in zip(machines, arrays, strict=True):
            machine.submit(array, reduction=protocols.OWN, now=now)
        now = finish(world, machines, rng, now)
        assert all(np.array_equal(array, expected) for array in arrays)
    assert world.lost > 20 and set(world.drops()) <= {"LOST", "STALE"}
    world.target.close()
