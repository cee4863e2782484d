"""p4/receivers.p4 alone, and its twin for Tofino: sums for some workers only, on hostile and on right packets."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from capabilities import need
from switchml_kin import MANY, check_switches_agree, made
from switchml_targets import SLOTS, Bmv2Target, CompiledTarget, InterpreterTarget, TnaTarget, World, sealed

from ina.aggregation.controller.admission import Controller
from ina.aggregation.wire import layout
from ina.aggregation.worker import Route
from ina.base import paths

need("cc")
OTHERS = [pytest.param(InterpreterTarget, 1000, marks=pytest.mark.build, id="interpreter"),
          pytest.param(TnaTarget, MANY // 5, marks=pytest.mark.build, id="tna"),
          pytest.param(TnaTarget, MANY, marks=[pytest.mark.build, pytest.mark.later], id="tna, many"),
          pytest.param(Bmv2Target, 1000, marks=pytest.mark.hardware, id="bmv2")]
VALUES, WORKERS, WINDOW = 32, 3, 4
FULL = (1 << WORKERS) - 1
WIRE = layout.load(VALUES, paths.p4_dir() / "include/receivers/headers.p4")
TO = WIRE.constants["SWITCHML_TO"]
HEAD = (*layout.HEAD, "receivers")
COVERED = ("switchml", "exponents", "check", "receivers")  # by the check header's checksum


@pytest.fixture(scope="module", params=[CompiledTarget, TnaTarget], ids=["v1model", "tna"])
def job(request):
    target = made("receivers", request.param, VALUES, {})
    world = World(target, ports=WORKERS)
    world.wire, world.controller = WIRE, Controller(target, SLOTS, protocol="receivers", chance=random.Random(1))
    yield world.admit(WORKERS, WINDOW)
    target.close()


def packet(job, worker: int, tsi: int, ranks: int, values: np.ndarray | None, e0: int = -96,
           words: tuple[int, int] = (0, 0), members: int = FULL) -> bytes:
    wire, fields = job.world.wire, job.fields(worker, tsi, values, e0)
    fields["switchml"]["msg_type"], fields["receivers"] = TO, {"ranks": ranks, "members": members}
    fields["ipv4"]["total_len"] += WIRE.constants["RECEIVERS_LENGTH"]
    fields["udp"]["length"] += WIRE.constants["RECEIVERS_LENGTH"]
    fields["check"] |= {"check0": words[0], "check1": words[1]}
    fields["check"]["headers"] = layout.checksum(wire.pack(**{name: fields[name] for name in COVERED}))
    return sealed(wire, fields)


def answer(frame: bytes, wire: layout.Layout = WIRE) -> tuple:
    """A frame's contents: of whom nothing has come, or receivers, exponent, check words, and values if it has some."""
    head = wire["switchml"].unpack(frame, wire.offset("switchml"))
    if head["msg_type"] == wire.constants["SWITCHML_PENDING"]:
        assert len(frame) == wire.size(layout.PENDING)
        return head["tsi"], "pending", wire.unpack(frame, layout.PENDING)["pending"]["missing"]
    bare = head["size"] == wire.constants["SIZE_NONE"]
    kinds = HEAD if bare else (*HEAD, "values")
    assert head["msg_type"] == TO and len(frame) == wire.size(kinds)
    fields = wire.unpack(frame, kinds)
    assert (fields["ipv4"]["total_len"], fields["udp"]["length"]) == (len(frame) - 14, len(frame) - 34)
    assert layout.checksum(frame[14:34]) == layout.checksum(wire.pack(**{name: fields[name] for name in COVERED})) == 0
    values = None if bare else np.array(fields["values"]["v"], np.uint32).astype(np.int32).tolist()
    check = fields["check"]
    sets, words = fields["receivers"], (check["check0"], check["check1"])
    return head["tsi"], sets["ranks"], sets["members"], fields["exponents"]["e0"], words, values


@dataclass
class Row:
    """State that the switch must have of one set of one slot."""

    tsi: int
    ranks: int
    members: int
    seen: int = 0
    brought: bool = False
    e0: int = -128
    words: np.ndarray = field(default_factory=lambda: np.zeros(2, np.uint32))
    values: np.ndarray = field(default_factory=lambda: np.zeros(VALUES, np.int32))

    @property
    def missing(self) -> int:
        return FULL & self.members & ~self.seen

    def result(self, worker: int) -> tuple:
        values = self.values.tolist() if self.brought and self.ranks >> worker & 1 else None
        return self.tsi, self.ranks, self.members, self.e0, tuple(int(word) for word in self.words), values


class Reference:
    """The rules, in NumPy: which frames come because of a packet, by worker."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.drops: Counter[str] = Counter()

    def due(self, index: int) -> int:
        """The packet number that a row waits for."""
        row = self.rows.get(index)
        return index // 2 + index % 2 * WINDOW if row is None else row.tsi + 2 * WINDOW * (not row.missing)

    def take(self, worker: int, tsi: int, ranks: int, members: int, values: np.ndarray | None, e0: int,
             words: tuple[int, int]) -> list[tuple[int, tuple]]:
        index = 2 * (tsi % WINDOW) + tsi // WINDOW % 2
        row = self.rows.get(index)
        if not members >> worker & 1:
            self.drops["WRONG_SIZE"] += 1
            return []
        if row is None or (not row.missing and tsi > row.tsi):
            row = self.rows[index] = Row(tsi, ranks, members)
        elif row.tsi != tsi:
            self.drops["STALE"] += 1
            return []
        elif (row.ranks, row.members) != (ranks, members):
            self.drops["WRONG_SIZE"] += 1
            return []
        if row.seen >> worker & 1:
            return [(worker, (tsi, "pending", row.missing) if row.missing else row.result(worker))]
        row.seen |= 1 << worker
        row.e0, row.words = max(row.e0, e0), row.words + np.array(words, np.uint32)
        if values is not None:
            row.values, row.brought = row.values + values, True
        return [] if row.missing else [(each, row.result(each)) for each in range(WORKERS) if members >> each & 1]


@pytest.mark.build
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_the_definition_whatever_comes(job, seed):
    """Receivers, members, values and packet numbers at random; some twice, late, early, for or of others than the phase's, cut,
    or with a bit changed."""
    job.world.target.reset(WORKERS)
    job.world.controller = Controller(job.world.target, SLOTS, protocol="receivers", chance=random.Random(1))
    own, rng = job.world.admit(WORKERS, WINDOW), np.random.default_rng(seed)
    reference, answers = Reference(), Counter()
    for _ in range(1500):
        tsi, worker = reference.due(int(rng.integers(2 * WINDOW))), int(rng.integers(WORKERS))
        tsi = max(0, tsi + 2 * WINDOW * int(rng.choice([0, 0, 0, 0, -1, 1, -2])))
        ranks = tsi * 5 % (FULL + 1) if rng.random() < 0.97 else int(rng.integers(2**32))
        members = (tsi * 3 + 1) % (FULL + 1) or FULL
        members = members if rng.random() < 0.97 else int(rng.integers(2**32))
        values = rng.integers(-(2**31), 2**31, VALUES).astype(np.int32) if rng.random() < 0.5 else None
        e0, words = int(rng.integers(-96, 127)), (int(rng.integers(2**32)), int(rng.integers(2**32)))
        frame = bytearray(packet(own, worker, tsi, ranks, values, e0, words, members))
        kind = rng.random()
        if kind < 0.1:
            at = int(rng.choice([*range(14, 36), 38, 39, *range(42, WIRE.size(HEAD))]))
            frame[at] ^= 1 << int(rng.integers(8))
        elif kind < 0.15:
            frame = frame[: int(rng.integers(42, len(frame)))]
        sent = own.world.target.send(bytes(frame), worker)
        if kind < 0.15:
            assert sent == []
            continue
        expected = reference.take(worker, tsi, ranks, members, values, e0, words)
        with np.errstate(over="ignore"):
            assert sorted((port, answer(each)) for port, each in sent) == sorted(expected, key=lambda e: e[0]), (worker, tsi)
        answers.update("pending" if each[1] == "pending" else each[-1] is not None for _, each in expected)
    drops = own.world.drops()
    assert {name: drops.get(name, 0) for name in ("STALE", "WRONG_SIZE")} == dict(reference.drops)
    assert all(answers[kind] > 30 for kind in ("pending", True, False))


@pytest.mark.build
def test_a_packet_for_receivers_needs_a_check_header_and_is_no_larger_than_it_says(job):
    whole = packet(job, 0, 0, 1, np.arange(VALUES))
    before = job.world.drops().get("MALFORMED", 0)
    published = bytearray(whole)
    published[48] &= 0xBF  # the bit that says that there is one
    assert job.world.target.send(bytes(published), 0) == []
    longer = job.fields(0, 0, np.arange(VALUES))
    longer["switchml"]["msg_type"] = TO  # lengths of a packet for all
    longer["receivers"] = {"ranks": 1, "members": 7}
    longer["check"]["headers"] = layout.checksum(WIRE.pack(**{name: longer[name] for name in COVERED}))
    assert job.world.target.send(sealed(WIRE, longer), 0) == []
    assert job.world.drops()["MALFORMED"] == before + 2


@pytest.mark.parametrize(("other", "packets"), OTHERS)
def test_switches_agree_on_all_packets(other, packets):
    pieces = [3 * VALUES, VALUES + 1, 4 * VALUES - 1]
    routes = [Route.reduce_scatter(pieces), Route.all_gather(pieces), Route.gather(1, pieces), Route.broadcast(2)]
    work = [np.arange(8 * VALUES, dtype=np.int32) * (rank + 1) for rank in range(WORKERS)]
    check_switches_agree("receivers", other, packets, lambda seed: work, routes=routes)
