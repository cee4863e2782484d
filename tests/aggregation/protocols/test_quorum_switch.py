"""p4/quorum.p4 alone: offers, and sums and maxima in the same rows, on hostile and on right packets."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from capabilities import need
from offers import (
    ASK,
    DATA,
    DECIDED,
    GIVE,
    HEAD,
    MAXIMUM,
    OFFER,
    OPEN,
    PASS,
    REFUSED,
    VALUES,
    WIRE,
    Reference,
    completed,
    offered,
    read,
)
from switchml_targets import SLOTS, Bmv2Target, CompiledTarget, InterpreterTarget, Job, World

from ina.aggregation.controller.admission import Controller
from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH, worker_address
from ina.base import paths
from ina.p4.runtime.entities import as_int

need("cc")
WINDOW = 4
SOURCE = paths.p4_dir() / "quorum.p4"
TARGETS = {"compiled": (CompiledTarget, 4000), "interpreter": (InterpreterTarget, 700), "bmv2": (Bmv2Target, 300)}
BUILT = [pytest.param(name, marks=pytest.mark.hardware if name == "bmv2" else pytest.mark.build) for name in TARGETS]
_open: dict[str, CompiledTarget] = {}


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    for target in _open.values():
        getattr(target, "close", lambda: None)()
    _open.clear()


def begun(name: str, workers: int, *, strict: bool = True) -> Job:
    """A job of so many workers at a switch that has just started."""
    if name not in _open:
        kind = TARGETS[name][0]
        _open[name] = type(kind.__name__, (kind,), {"source": SOURCE})(VALUES)
    world = World(_open[name], ports=workers + 1)
    world.wire, world.controller = WIRE, Controller(_open[name], SLOTS, protocol="quorum", chance=random.Random(1))
    return world.admit(workers, WINDOW, strict=strict)


@pytest.fixture(params=BUILT)
def target(request) -> str:
    return request.param


@pytest.fixture
def job(target) -> Job:
    return begun(target, 3)


def offer(job: Job, worker: int, tsi: int, state: int, least: int = 1, rivals: int = 0, ranks: int | None = None, e0: int = -96,
          **changes: int) -> bytes:
    return offered(job.fields(worker, tsi, None, e0), state, least, rivals, 1 << worker if ranks is None else ranks, **changes)


def data(job: Job, worker: int, tsi: int, kind: int, values: np.ndarray, e0: int = -96) -> bytes:
    fields = job.fields(worker, tsi, values, e0)
    fields["switchml"]["msg_type"] = kind
    return completed(fields)


def answers(job: Job, sent: list[tuple[int, bytes]]) -> list[tuple[int, tuple]]:
    """Frames' contents by port. Each must be addressed to the worker there, and be of this job."""
    found = []
    for port, frame in sent:
        headers, contents = read(frame)
        own = worker_address(job.number, port)
        assert headers["ethernet"] == {"dst_addr": as_int(own.mac, 48, "mac"), "src_addr": as_int(SWITCH.mac, 48, "mac"),
                                       "ethertype": 0x0800}
        ip = headers["ipv4"]
        assert (ip["src_addr"], ip["dst_addr"]) == (as_int(SWITCH.ip, 32, "ip"), as_int(own.ip, 32, "ip"))
        assert (headers["udp"]["src_port"], headers["udp"]["dst_port"], headers["udp"]["checksum"]) == (SWITCH.port, own.port, 0)
        assert headers["ipv4"]["ttl"] == 64
        assert headers["exponents"]["e1"] & 255 == job.admitted.life
        assert headers["switchml"]["job"] == job.number
        assert headers["switchml"]["slot"] == headers["switchml"]["tsi"] % WINDOW
        assert headers["switchml"]["set"] == headers["switchml"]["tsi"] // WINDOW % 2
        found.append((port, contents))
    return sorted(found, key=lambda each: each[0])


def send(job: Job, frame: bytes, worker: int) -> list[tuple[int, tuple]]:
    return answers(job, job.world.target.send(frame, job.ports[worker]))


SPOILT = (  # frames with right checksums that are of no use, whatever their offer says
    {"exponents__e1": 100}, {"switchml__job": 77}, {"switchml__slot": WINDOW}, {"switchml__slot": 2**14 - 1},
    {"udp__src_port": 4999}, {"ipv4__src_addr": 0x0A0000FE}, {"ipv4__total_len": 4}, {"ipv4__total_len": -12},
    {"udp__length": 1}, {"udp__length": -12}, {"ipv4__total_len": -12, "udp__length": -12},
    {"ipv4__total_len": 4 * VALUES, "udp__length": 4 * VALUES},
    *({"switchml__size": size} for size in range(7)),
    *({"switchml__msg_type": kind} for kind in (0, 2, 4, 5, 6, 7, 8, 9, 10, 12, 15)),
    {"switchml__checked": 0}, {"switchml__msg_type": DATA}, {"switchml__msg_type": MAXIMUM},
)


@pytest.mark.parametrize(("workers", "seed"), [(3, 1), (3, 2), (3, 3), (1, 4), (2, 5), (32, 6)])
def test_answers_are_those_of_the_definition_whatever_comes(target, workers, seed):
    """States, numbers of contributors that are enough, rivals and packet numbers at random; some packets twice, late, early, of
    other kinds than the phase's, or of others, cut, with a bit changed, or with right checksums and a wrong header."""
    packets = TARGETS[target][1] * (3 if workers == 32 else 1)
    job, rng, reference = begun(target, workers), np.random.default_rng(seed), Reference(workers)
    kinds: Counter[str] = Counter()
    rows = 2 * WINDOW if workers < 32 else 2
    for _ in range(packets):
        index, worker = int(rng.integers(rows)), int(rng.integers(workers))
        slot, chosen = (index // 2, index % 2)
        tsi = reference.due(index, slot + chosen * WINDOW, 2 * WINDOW)
        tsi += 2 * WINDOW * int(rng.choice([0] * 12 + [-1, 1, -2]))
        tsi = tsi if tsi >= 0 else tsi + 2 * WINDOW * 2
        kind = (OFFER, OFFER, OFFER, DATA, MAXIMUM)[tsi * 7 // WINDOW % 5]
        kind = kind if rng.random() < 0.96 else int(rng.choice([OFFER, DATA]))
        e0, what = int(rng.integers(-96, 127)), rng.random()
        if kind == OFFER:
            state = int(rng.choice([ASK, GIVE, GIVE, PASS])) if rng.random() < 0.95 else int(rng.integers(256))
            least = int(rng.integers(workers + 2)) if rng.random() < 0.9 else int(rng.integers(256))
            rivals = int(rng.choice([0, 0, 1, 2, 4])) if rng.random() < 0.8 else int(rng.integers(2**32))
            ranks = 1 << worker
            if rng.random() < 0.06:
                ranks = int(rng.choice([0, 1 << int(rng.integers(32)), ranks | 1 << int(rng.integers(32)), 2**32 - 1,
                                        int(rng.integers(2**32))]))
            spoil = SPOILT[int(rng.integers(len(SPOILT)))] if what < 0.1 else {}
            frame = bytearray(offer(job, worker, tsi, state, least, rivals, ranks, e0,
                                    offer__reserved=int(rng.integers(2**16)), **spoil))
            head = WIRE.size(HEAD)
        else:
            values, what = rng.integers(-(2**31), 2**31, VALUES).astype(np.int32), max(what, 0.1)
            frame, head = bytearray(data(job, worker, tsi, kind, values, e0)), WIRE.size(layout.HEAD)
        if 0.1 <= what < 0.16:
            at = int(rng.choice([*range(14, 36), 38, 39, *range(42, head)]))
            frame[at] ^= 1 << int(rng.integers(8))
        elif 0.16 <= what < 0.2:
            frame = frame[: int(rng.integers(42, len(frame)))]
        sent = send(job, bytes(frame), worker)
        if what < 0.2:
            assert sent == [], (what, frame.hex())
            continue
        if kind == OFFER:
            expected = reference.offer(index, worker, tsi, state, least, rivals, ranks)
        else:
            expected = reference.reduce(index, worker, tsi, kind, values, e0)
        assert sent == expected, (worker, tsi, kind)
        for _, each in expected[:1]:
            kinds[f"{each[1]} {each[2]} to {'all' if len(expected) > 1 else 'one'}" if each[1] == "offer" else str(each[1])] += 1
    drops = job.world.drops()
    assert drops.get("STALE", 0) == reference.drops["STALE"]
    assert reference.drops["WRONG_SIZE"] <= drops["WRONG_SIZE"]
    least_seen = packets // 1000
    assert kinds[f"offer {DECIDED} to {'all' if workers > 1 else 'one'}"] > least_seen and kinds[str(DATA)] > least_seen / 3
    assert workers == 1 or (kinds[f"offer {OPEN} to one"] > least_seen and kinds[f"offer {DECIDED} to one"])


@pytest.mark.parametrize("state", [ASK, GIVE, PASS, OPEN, DECIDED, 255])
def test_an_offer_of_another_version_is_refused_in_a_frame_that_workers_take(job, state):
    """A refusal is SwitchML's header, exponents and a check header; nothing follows."""
    ((port, contents),) = send(job, offer(job, 1, 0, state, check__version=3), 1)
    assert (port, contents) == (1, (0, "refused", WIRE.constants["WIRE_VERSION"]))
    assert job.world.drops() == {"VERSION": 1}
    assert send(job, offer(job, 1, 0, ASK, switchml__msg_type=REFUSED, check__version=3), 1) == []


def test_answers_that_a_child_sends_are_dropped(job):
    for state in (OPEN, DECIDED):
        for worker in range(3):
            assert send(job, offer(job, worker, 0, state, ranks=7), worker) == []
            assert send(job, offer(job, worker, 0, state), worker) == []
    assert job.world.drops() == {"WRONG_SIZE": 12}
    for worker in range(2):
        assert send(job, offer(job, worker, 0, GIVE), worker) == []
    sent = send(job, offer(job, 2, 0, ASK, 2, 5), 2)
    assert sent == [(worker, (0, "offer", DECIDED, 2, 5, 0b011)) for worker in range(3)]


def test_offers_of_one_worker_for_another_change_nothing(job):
    for ranks in (0, 1, 2, 0b101, 8, 2**31, 2**32 - 1):
        assert send(job, offer(job, 2, 0, GIVE, ranks=ranks), 2) == []
    assert job.world.drops() == {"WRONG_SIZE": 7}
    assert send(job, offer(job, 0, 0, ASK), 0) == []
    assert send(job, offer(job, 0, 0, ASK), 0) == [(0, (0, "offer", OPEN, 1, 0, 0b110))]


def test_published_clients_have_no_offers(target):
    """Neither with a check header nor without, whatever it says; their sums are as before."""
    job = begun(target, 2, strict=False)
    checked = {"version": WIRE.constants["WIRE_VERSION"], "check0": 0, "check1": 0}
    for state in (ASK, GIVE, PASS, OPEN, DECIDED, 9):
        for check in (True, False):
            fields = job.fields(0, 0, None)
            if check:
                fields["check"], fields["switchml"]["checked"] = dict(checked), 1
                for header, name in (("ipv4", "total_len"), ("udp", "length")):
                    fields[header][name] += WIRE.constants["CHECK_LENGTH"]
            assert job.world.target.send(offered(fields, state, 1, 0, 1), 0) == []
    assert job.world.drops() == {"WRONG_SIZE": 6, "MALFORMED": 6}
    values = np.arange(VALUES)
    assert job.send(0, 0, values) == []
    sent = job.send(1, 0, values)
    assert [port for port, _ in sent] == [0, 1]
    assert all(list(WIRE.unpack(frame, (*layout.PUBLISHED, "values"))["values"]["v"]) == list(2 * values) for _, frame in sent)


def test_an_offer_takes_the_row_of_a_finished_sum_and_a_sum_that_of_a_decided_offer(job):
    values = np.arange(VALUES, dtype=np.int32)
    for round_, tsi in enumerate(range(0, 16 * WINDOW, 2 * WINDOW)):
        if round_ % 2:
            sent = [send(job, offer(job, worker, tsi, GIVE, 3), worker) for worker in range(3)]
            assert sent[2] == [(worker, (tsi, "offer", DECIDED, 3, 0, 7)) for worker in range(3)]
            assert send(job, data(job, 0, tsi, DATA, values), 0) == []
        else:
            sent = [send(job, data(job, worker, tsi, DATA, values), worker) for worker in range(3)]
            assert sent[2] == [(worker, (tsi, DATA, -96, 0, (3 * values).tolist())) for worker in range(3)]
            assert send(job, offer(job, 0, tsi, GIVE), 0) == []
    assert job.world.drops() == {"WRONG_SIZE": 8}


def test_numbers_of_packets_wrap(job):
    tsi = 2**32 - 2 * WINDOW
    for each in (tsi, 0):
        sent = [send(job, offer(job, worker, each, GIVE, 3), worker) for worker in range(3)]
        assert sent[2] == [(worker, (each, "offer", DECIDED, 3, 0, 7)) for worker in range(3)]
    assert send(job, offer(job, 0, tsi, GIVE), 0) == [] and job.world.drops() == {"STALE": 1}


def test_another_life_of_the_job_begins_with_nothing(job):
    """Contributors of a job that has ended are none of the next one's, whose rows are the same."""
    for worker in range(2):
        assert send(job, offer(job, worker, 0, GIVE), worker) == []
    job.world.controller.release("job")
    again = job.world.admit(3, WINDOW)
    assert send(again, offer(again, 2, 0, GIVE, 3), 2) == []
    assert send(again, offer(again, 2, 0, GIVE, 3), 2) == [(2, (0, "offer", OPEN, 3, 0, 0b011))]
