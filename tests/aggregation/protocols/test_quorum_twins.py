"""p4/quorum.p4 and its twin for Tofino: the same packets into both, and offers whose passes take turns, or are lost."""

from __future__ import annotations

import random
import shutil
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from model_switch import ip_checksum
from switchml_kin import CHECK, SLOTS, WORKERS, Stream, made
from switchml_targets import CompiledTarget, Job, Target, TnaTarget, World

from ina.aggregation.controller.admission import Controller
from ina.aggregation.wire import layout
from ina.aggregation.wire.layout import Layout
from ina.aggregation.worker.offer import ASK, GIVE, PASS, Offer
from ina.base import paths

need("cc")
pytestmark = pytest.mark.build
VALUES = 32
OPEN, DECIDED = 3, 4
OFFER = 11  # type of a packet
RECIRCULATION = 68
ENOUGH = 20_000  # frames that a switch takes until all phases are over


class Pass(IntEnum):
    """The first byte of a frame that goes round: enum Pass."""

    ARRIVE, FINISH, OFFER = 0, 3, 10



@cache
def wire() -> Layout:
    return layout.load(VALUES, paths.p4_dir() / "include/quorum/headers.p4")


def offering_world(target: Target, ports: int = 5) -> World:
    """A world whose controller and layout are those of jobs with offers."""
    world = World(target, ports)
    world.wire, world.controller = wire(), Controller(target, SLOTS, protocol="quorum", chance=random.Random(1))
    return world


def offer(world: World, job: Job, worker: int, tsi: int, state: int, *, least: int = 1, rivals: int = 0) -> bytes:
    """A worker's offer."""
    constants = world.wire.constants
    headers = job.head(worker, constants["OFFER_LENGTH"])
    slots = job.admitted.slots
    headers["switchml"] = {"msg_type": OFFER, "size": constants["SIZE_NONE"], "job": job.number, "tsi": tsi % 2**32,
                           "set": tsi // slots % 2, "slot": tsi % slots, "checked": 1}
    headers["exponents"] = {"e0": 0, "e1": (job.admitted.life ^ 128) - 128}
    headers["check"] = {"version": constants["WIRE_VERSION"]}
    headers["offer"] = {"state": state, "least": least, "rivals": rivals, "ranks": 1 << worker}
    return world.bytes(headers)


def sealed_offer(frame: bytes, state: int, least: int) -> bytes:
    """The offer with another state and ``least``."""
    data, end = bytearray(frame), CHECK + 24
    data[CHECK + 12 : CHECK + 14] = bytes((state, least))
    data[CHECK + 2 : CHECK + 4] = ip_checksum(bytes(data[42 : CHECK + 2] + data[CHECK + 4 : end])).to_bytes(2, "big")
    return bytes(data)


def answer(frame: bytes) -> tuple[int, int, int]:
    """Returns tsi, state and ranks of an answer."""
    headers = wire().unpack(frame, ["ethernet", "ipv4", "udp", "switchml", "exponents", "check", "offer"])
    assert headers["switchml"]["msg_type"] == OFFER and ip_checksum(frame[42 : CHECK + 24]) == 0
    return headers["switchml"]["tsi"], headers["offer"]["state"], headers["offer"]["ranks"]


# ---- the same packets into both


class Offering(Stream):
    """A stream whose workers also offer to contribute: at once, later, never; with rivals, and a lower ``least`` meanwhile."""

    def submit(self) -> None:
        if self.tensors % 3 == 2:
            super().submit()
            return
        self.tensors += 1
        rng = np.random.default_rng(self.tensors)
        self.later: list[tuple[int, int, np.ndarray]] = []
        for rank, worker in enumerate(self.workers):
            words = rng.integers(-(2**31), 2**31, 2 * self.values).astype(np.int32)
            part, least = int(rng.integers(4)), int(rng.integers(1, WORKERS + 1))
            rivals = [other for other in range(2) if other != rank] if rank < 2 and self.tensors % 2 else []
            offer = Offer(least, rivals, never=part == 0)
            handle = worker.submit(words if part > 1 else None, np.zeros_like(words), now=self.now, offer=offer)
            if part == 1:
                self.later.append((rank, handle, words))
        self.left = 2 * WORKERS  # the offer's end is one of its own

    def next(self) -> tuple[int, bytes]:
        if getattr(self, "later", None) and self.rng.random() < 0.05:
            rank, handle, words = self.later.pop()
            try:
                self.workers[rank].amend(handle, words if self.tensors % 2 else None, least=1, now=self.now)
            except ValueError:  # it is decided
                pass
        return super().next()

    def begin(self) -> None:
        self.later = []
        super().begin()

    def spoilt(self, port: int, frame: bytes) -> tuple[int, bytes]:
        """Offers often have a field changed, and right checksums."""
        if frame[42] >> 4 != OFFER or self.rng.random() < 0.3:
            where, other = super().spoilt(port, frame)
            made_offer = len(other) > 42 and other[42] >> 4 == OFFER != frame[42] >> 4
            return (port, frame) if made_offer and self.values > VALUES else (where, other)  # it is too short: see SHORT
        data, end = bytearray(frame), CHECK + 24
        for _ in range(self.rng.randint(1, 2)):
            at = self.rng.choice((42, CHECK, *range(44, 52), *range(CHECK + 12, end), *range(CHECK + 12, end)))
            data[at] = self.rng.choice((0, 1, 2, 3, 4, data[at] ^ 1 << self.rng.randrange(8)))
        data[CHECK + 2 : CHECK + 4] = ip_checksum(bytes(data[42 : CHECK + 2] + data[CHECK + 4 : end])).to_bytes(2, "big")
        return port, bytes(data)


def check_twins_agree(seed: int, packets: int, values: int = VALUES) -> None:
    targets = [made("quorum", kind, values, {}) for kind in (CompiledTarget, TnaTarget)]
    stream = Offering(targets, "quorum", lambda n: list(np.random.default_rng(n).integers(-9, 9, (WORKERS, 200), np.int32)), seed)
    stream.run(packets)
    assert {1, 2, OFFER} <= {kind >> 4 for kind in stream.kinds}  # results, pending frames, answers to offers
    assert stream.ended > packets // 200, stream.ended
    for target in targets:
        target.close()


@pytest.mark.parametrize("values", [VALUES, 64])
def test_twins_agree_on_all_packets(values):
    check_twins_agree(1, 20_000, values)


@pytest.mark.later
@pytest.mark.parametrize("seed", range(2, 6))
def test_twins_agree_on_all_packets_of_long_streams(seed):
    check_twins_agree(seed, 100_000, 64 if seed % 2 else VALUES)


@pytest.mark.parametrize("version", [0, 3, 255])
def test_an_offer_of_another_version_that_has_values(version):
    """Refuses an offer with values, without them: the twin takes them off in two passes."""
    answers = []
    for kind in (CompiledTarget, TnaTarget):
        world = offering_world(made("quorum", kind, 64, {}))
        job = world.admit(2)
        plain = offer(world, job, 1, 0, GIVE)
        head, end = bytearray(plain), CHECK + 24
        head[42] = head[42] & ~7 | layout.load(64).constants["SIZE_CODE"]
        head[CHECK] = version
        head[CHECK + 2 : CHECK + 4] = ip_checksum(bytes(head[42 : CHECK + 2] + head[CHECK + 4 : end])).to_bytes(2, "big")
        answers.append(world.send(bytes(head) + bytes(range(256)), 1))
        assert world.drops() == {"VERSION": 1}
        world.target.close()
    assert answers[0] == answers[1] and [(port, frame[42] >> 4) for port, frame in answers[0]] == [(1, 4)]


# ---- passes that take turns, or are lost


class Passes(World):
    """A twin whose frames that go round are put in again by hand: in order, between those that arrive, unless they get lost.

    A ``model`` is v1model's program, for which an offer is an ask when it arrives, and itself when its pass does its work.
    """

    def __init__(self, target: TnaTarget, ports: int, loss: float = 0, seed: int = 0, model: World | None = None):
        super().__init__(target, ports)
        self.wire = wire()
        self.controller = Controller(target, SLOTS, protocol="quorum", chance=random.Random(1))
        target.switch.add_port(RECIRCULATION)
        target.switch.set_port(RECIRCULATION, loopback=False)
        self.rng, self.loss, self.model = random.Random(seed), loss, model
        self.inside: deque[tuple[bytes, tuple[bytes, int]]] = deque()  # frames, and as what they came
        self.again = 0  # offers that another came before
        self.decisions: dict[int, int] = {}  # of the model: contributors, by tsi

    def step(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        """Sends a frame in; returns what leaves, without what goes round."""
        self._tell_model(sealed_offer(frame, ASK, 255), port)
        return self._pass(frame, port, (frame, port))

    def go_round(self) -> list[tuple[int, bytes]]:
        frame, came = self.inside.popleft()
        again = self.again
        out = self._pass(frame, RECIRCULATION, came)
        if frame[0] == Pass.OFFER and self.again == again:
            self._tell_model(*came)
        return out

    def _pass(self, frame: bytes, port: int, came: tuple[bytes, int]) -> list[tuple[int, bytes]]:
        out = []
        for to, sent in self.target.send(frame, port):
            if to != RECIRCULATION:
                out.append((to, sent))
                continue
            self.again += sent[0] == Pass.ARRIVE
            if self.rng.random() >= self.loss:
                self.inside.append((sent, came))
        return out

    def _tell_model(self, frame: bytes, port: int) -> None:
        for _, reply in self.model.send(frame, port) if self.model else []:
            tsi, state, ranks = answer(reply)
            if state == DECIDED:
                self.decisions[tsi] = ranks

    def finish(self) -> list[tuple[int, bytes]]:
        out = []
        while self.inside:
            out += self.go_round()
        return out


@dataclass
class Phase:
    """A phase: what workers have sent in it, and what they were told."""

    sent: set[int] = field(default_factory=set)
    gave: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    least: int = 99
    contributors: int | None = None


@cache
def v1model() -> CompiledTarget:
    return made("quorum", CompiledTarget, VALUES, {})


@cache
def twin(folder: Path | None = None) -> TnaTarget:
    """A switch with the twin, of the programs in ``folder``."""
    source = (folder or paths.p4_dir()) / "tofino" / "quorum.p4"
    return type("Twin", (TnaTarget,), {"source": source})(VALUES)


def check_turns(target: TnaTarget, seed: int, workers: int, loss: float, phases: int = 30) -> Passes:
    """Workers that offer, all in one slot, and repeat it until they know: all are told the same, which is right; and if no pass
    is lost, what v1model's program decides."""
    model = None if loss else offering_world(v1model(), workers)
    world = Passes(target, workers, loss, seed, model)
    job, rng = world.admit(workers, slots=1), world.rng
    if model:
        model.admit(workers, slots=1)
    at, seen = [0] * workers, [Phase() for _ in range(phases)]
    parts = [[(rng.choice((ASK, GIVE, GIVE, PASS)), rng.randint(1, workers)) for _ in range(workers)] for _ in range(phases)]
    paired = [rng.random() < 0.5 for _ in range(phases)]  # workers 0 and 1 would contribute the same
    for _ in range(ENOUGH):
        if min(at) == phases:
            break
        if len(world.inside) > rng.randrange(2 * workers):  # it keeps up with what arrives
            out = world.go_round()
        else:
            worker = rng.randrange(workers)
            tsi = max(0, at[worker] - (rng.random() < 0.1))  # a duplicate that is late, now and then
            if tsi == phases:
                continue
            phase, (state, least) = seen[tsi], parts[tsi][worker]
            if state == ASK and rng.random() < 0.1:
                parts[tsi][worker] = state, least = rng.choice(((GIVE, least), (PASS, least), (ASK, max(1, least - 1))))
            rivals = 3 & ~(1 << worker) if paired[tsi] and worker < 2 else 0
            if tsi == at[worker]:
                phase.sent.add(worker)
                phase.least = min(phase.least, least)
                phase.gave |= {worker} if state == GIVE else set()
                phase.settled |= {worker} if state != ASK else set()
            out = world.step(offer(world, job, worker, tsi, state, least=least, rivals=rivals), worker)
        for port, frame in out:
            tsi, state, ranks = answer(frame)
            phase = seen[tsi]
            if state == OPEN:
                assert ranks
                continue
            assert state == DECIDED and phase.contributors in (None, ranks), "contributors have changed"
            phase.contributors = ranks
            chosen = {worker for worker in range(workers) if ranks >> worker & 1}
            assert len(phase.sent) == workers, "before all have asked"
            assert chosen <= phase.gave and not (paired[tsi] and {0, 1} <= chosen)
            assert len(chosen) >= phase.least or len(phase.settled) == workers
            if at[port] == tsi:
                at[port] += 1
    assert at == [phases] * workers, "it does not end"
    assert set(world.drops()) <= {"STALE"}
    assert loss or world.decisions == {tsi: phase.contributors for tsi, phase in enumerate(seen)}
    return world


@pytest.mark.parametrize("loss", [0, 0.05], ids=["none lost", "some lost"])
@pytest.mark.parametrize("seed", range(6))
def test_passes_that_take_turns(seed, loss):
    world = check_turns(twin(), seed, 3 + seed % 3, loss)
    assert world.again > 10


def test_who_comes_between_is_not_forgotten():
    """Both have read who contributes before one of them is added: the other arrives once more."""
    world = Passes(twin(), 2)
    job = world.admit(2)
    out = [sent for worker in range(2) for sent in world.step(offer(world, job, worker, 0, GIVE, least=2), worker)]
    out += world.finish()
    assert world.again == 1
    assert [(port, answer(frame)) for port, frame in sorted(out)] == [(0, (0, DECIDED, 3)), (1, (0, DECIDED, 3))]


def test_an_ask_for_fewer_that_comes_between_is_not_forgotten():
    """Two are enough for the one that gives, one for the other: whose packet counts last decides."""
    world = Passes(twin(), 2)
    job = world.admit(2)
    out = world.step(offer(world, job, 0, 0, GIVE, least=2), 0) + world.step(offer(world, job, 1, 0, ASK, least=1), 1)
    out += world.finish()
    assert [(port, answer(frame)) for port, frame in sorted(out)] == [(0, (0, DECIDED, 1)), (1, (0, DECIDED, 1))]


@pytest.mark.parametrize("state", [GIVE, PASS])
def test_as_many_workers_as_there_can_be_at_one_time(state):
    """One gets through each time: all others arrive once more."""
    world, workers = Passes(twin(), 32), 32
    job = world.admit(workers)
    out = [sent for worker in range(workers) for sent in world.step(offer(world, job, worker, 0, state, least=32), worker)]
    out += world.finish()
    assert world.again == workers * (workers - 1) // 2
    assert [answer(frame) for _, frame in out] == [(0, DECIDED, 2**32 - 1 if state == GIVE else 0)] * workers


@pytest.mark.parametrize("before", [0, 1], ids=["decides", "tells"])
def test_a_pass_of_an_offer_that_is_lost(before):
    """The deciding packet loses one. It is told when it is sent once more, and so are all."""
    world = Passes(twin(), 2)
    job = world.admit(2)
    assert world.step(offer(world, job, 0, 0, GIVE), 0) + world.finish() == []
    assert world.step(offer(world, job, 1, 0, GIVE), 1) == []
    for _ in range(before):
        world.go_round()
    assert [Pass(sent[0]) for sent, _ in world.inside] == [Pass.FINISH if before else Pass.OFFER]
    world.inside.clear()
    ((port, frame), *_) = world.step(offer(world, job, 1, 0, GIVE), 1) + world.finish()
    assert answer(frame)[:2] == (0, DECIDED)
    ranks = answer(frame)[2]
    ((port, frame),) = world.step(offer(world, job, 0, 0, ASK), 0) + world.finish()
    assert port == 0 and answer(frame) == (0, DECIDED, ranks)


def test_workers_in_two_pipes():
    world = offering_world(made("quorum", TnaTarget, VALUES, {}), ports=0)
    for port in (0, 130):
        world.target.switch.add_port(port)
    job = world.admit(2, ports=[0, 130])
    assert world.send(offer(world, job, 0, 0, GIVE, least=2), 0) == []
    sent = world.send(offer(world, job, 1, 0, PASS), 130)
    assert [(port, answer(frame)) for port, frame in sent] == [(0, (0, DECIDED, 1)), (130, (0, DECIDED, 1))]
    world.target.close()


DEFECTS = {
    "whoever comes, the round is the packet's": (
        "switchml/rounds.p4", "            if (round == bridge.round) {\n                round",
        "            if (round == round) {\n                round"),
    "a decision is not remembered": ("quorum/offers.p4", "meta.without = ALL_KNOWN;", "meta.without = meta.without;"),
    "it is decided before all have asked": (
        "quorum/offers.p4", "(_, 0, 0, _, _, _, _):         decide();", "(_, _, 0, _, _, _, _):         decide();"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_are_found(name, tmp_path):
    file, old, new = DEFECTS[name]
    shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    part = tmp_path / "p4/tofino/include" / file
    assert part.read_text().count(old) == 1, "the plant must follow the code"
    part.write_text(part.read_text().replace(old, new))
    with pytest.raises(AssertionError):
        for seed in range(6):
            check_turns(twin(tmp_path / "p4"), seed, 4, 0)
