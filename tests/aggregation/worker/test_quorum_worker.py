"""A worker that offers to contribute (p4/quorum.p4), and answers that no switch gives: they are dropped and counted, and then the
right one is taken."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from forger import addressed
from offers import ASK, DATA, DECIDED, GIVE, HEAD, OFFER, OPEN, PASS, VALUES, WIRE, completed

from ina.aggregation import protocols
from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH, Worker, WorkerConfig, worker_address
from ina.aggregation.worker.config import fill_tensor
from ina.aggregation.worker.errors import Event
from ina.aggregation.worker.offer import Offer
from ina.aggregation.worker.route import Route
from ina.base.native import lib

pytestmark = pytest.mark.fast
CONFIG = WorkerConfig(1, 3, job=2, life=3, slots=4, values=VALUES, protocol="quorum", check="off", timeout=1e3,
                      address=worker_address(2, 1), switch=SWITCH)
FULL = 0b111
STATES = {"asks": ASK, "gives": GIVE, "passes": PASS}


def offering(config: WorkerConfig, state: int, elements: int = 40) -> tuple[Worker, int, np.ndarray, np.ndarray, bytes]:
    """A worker that has sent an offer; its tensor's handle, its values, where the sum will be, and the frame."""
    worker, source, out = Worker(replace(config)), np.arange(elements, dtype=np.int32), np.full(elements, -1, np.int32)
    source = source + 1
    handle = worker.submit(source if state == GIVE else None, out, offer=Offer(min(2, config.workers), never=state == PASS))
    (frame,) = [each for each in worker.frames_to_send(0) if kind_of(each) == OFFER]
    return worker, handle, source, out, frame


def kind_of(frame: bytes) -> int:
    return WIRE["switchml"].unpack(frame, WIRE.offset("switchml"))["msg_type"]


def bare(frame: bytes, kinds: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Its headers without checksums."""
    headers = WIRE.unpack(frame, kinds)
    for header, name in (("ipv4", "hdr_checksum"), ("check", "headers")):
        del headers[header][name]
    return headers


def changed(config: WorkerConfig, frame: bytes, **changes: Any) -> bytes:
    """Answer of the switch: the frame turned round, with these fields of its headers, as offer__state=4."""
    headers = bare(addressed(frame, config.switch, config.address), HEAD)
    for change, value in changes.items():
        header, name = change.split("__")
        headers[header][name] = value
    return completed(headers)


def decided(config: WorkerConfig, frame: bytes, contributors: int) -> bytes:
    return changed(config, frame, offer__state=DECIDED, offer__ranks=contributors)


def finished(config: WorkerConfig, worker: Worker, contributors: int, now: int = 10) -> list[Event]:
    """Answers what the worker sends for its tensor until that is done, as if all contributors had the same values; returns the
    events."""
    events: list[Event] = []
    while len(events) < 2:
        sent = worker.frames_to_send(now)
        assert sent, "it sends nothing, and is not done"
        for frame in sent:
            headers = bare(addressed(frame, config.switch, config.address), layout.DATA)
            whole = headers["switchml"]["tsi"] == 1  # the first packet: what all workers say of the tensor
            times = config.workers if whole else contributors.bit_count()
            headers["values"]["v"] = [int(word) * times % 2**32 for word in headers["values"]["v"]]
            worker.receive(completed(headers), now)
        events += worker.events()
    return events


def check_right_answer_is_taken(config, worker, source, out, frame, state) -> None:
    """The switch says who contributes: this worker if it gives, and another; and then the sums."""
    contributors = 0b011 if state == GIVE else 0b101
    results = worker.stats["results"]
    worker.receive(decided(config, frame, contributors), 5)
    assert worker.stats["results"] == results + 1
    events = finished(config, worker, contributors)
    assert [event.code for event in events] == [0, 0]
    assert {event.contributors for event in events} == {tuple(i for i in range(3) if contributors >> i & 1)}
    assert np.array_equal(out, 2 * source if state == GIVE else np.zeros_like(source))


HOSTILE = [  # what is changed of a decision, and the counter
    *(({"offer__state": state}, "drop_malformed") for state in (ASK, GIVE, PASS, 5, 6, 127, 128, 255)),
    *(({"offer__ranks": ranks}, "drop_malformed") for ranks in (0b1001, 8, 2**31, 2**32 - 1, 0xFFFFFFF8)),
    *(({"switchml__size": size}, "drop_malformed") for size in range(7)),
    ({"switchml__msg_type": DATA}, "drop_malformed"), ({"switchml__slot": 4}, "drop_malformed"),
    ({"switchml__msg_type": 8}, "drop_malformed"), ({"switchml__msg_type": 12}, "drop_malformed"),
    ({"switchml__msg_type": 0}, "drop_malformed"), ({"ipv4__total_len": 50}, "drop_malformed"),
    ({"switchml__slot": 1}, "drop_stale"), ({"switchml__slot": 3}, "drop_stale"), ({"switchml__set": 1}, "drop_stale"),
    *(({"switchml__tsi": tsi}, "drop_stale") for tsi in (1, 4, 8, 2**31, 2**32 - 1, 2**32 - 4)),
    ({"switchml__job": 3}, "drop_foreign"), ({"exponents__e1": 4}, "drop_foreign"), ({"ipv4__src_addr": 1}, "drop_foreign"),
    ({"udp__dst_port": 1}, "drop_foreign"), ({"check__version": 3}, "drop_version"), ({"switchml__checked": 0}, "drop_version"),
    ({"check__headers": 0}, "drop_corrupt"),
]


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize(("changes", "counter"), HOSTILE, ids=lambda each: str(each))
def test_an_answer_that_no_switch_gives_is_dropped_and_counted(state, changes, counter):
    worker, _, source, out, frame = offering(CONFIG, state)
    before = worker.stats
    hostile = {"offer__state": DECIDED, "offer__ranks": 0b101} | changes
    if "switchml__msg_type" in hostile:
        hostile["check__headers"] = sealed_without_offer(frame, hostile)
    assert worker.receive(changed(CONFIG, frame, **hostile), 1) is None
    assert {name: value - before[name] for name, value in worker.stats.items() if value != before[name] and "drop" in name} == {
        counter: 1}
    assert worker.events() == [] and worker.stats["results"] == 0
    check_right_answer_is_taken(CONFIG, worker, source, out, frame, state)


def sealed_without_offer(frame: bytes, changes: dict[str, int]) -> int:
    """Checksum of the headers of a kind that has no offer in it, or, of those for receivers, another header."""
    headers = WIRE.unpack(changed(CONFIG, frame, **changes), HEAD)
    del headers["check"]["headers"]
    extra = {8: 8}.get(changes["switchml__msg_type"], 0)
    covered = WIRE.pack(**{name: headers[name] for name in ("switchml", "exponents", "check")})
    return layout.checksum(covered + WIRE["offer"].pack(headers["offer"])[:extra])


@pytest.mark.parametrize("state", ["asks", "passes"])
def test_a_worker_that_has_not_given_is_no_contributor(state):
    worker, _, source, out, frame = offering(CONFIG, STATES[state])
    for contributors in (0b010, 0b011, FULL):
        worker.receive(decided(CONFIG, frame, contributors), 1)
    assert worker.stats["drop_malformed"] == 3 and worker.events() == []
    check_right_answer_is_taken(CONFIG, worker, source, out, frame, STATES[state])


def test_an_answer_to_an_older_offer_is_taken_after_it_has_given():
    """A decision without it, made of what it had said before: it sends zeros."""
    worker, handle, source, out, frame = offering(CONFIG, ASK)
    worker.amend(handle, source)
    worker.receive(decided(CONFIG, frame, 0b101), 1)  # dropped: the offer that it gives is not yet sent
    assert worker.stats["results"] == 0
    (again,) = worker.frames_to_send(2)
    assert WIRE.unpack(again, HEAD)["offer"]["state"] == GIVE
    worker.receive(decided(CONFIG, frame, 0b101), 3)
    assert [event.code for event in finished(CONFIG, worker, 0b101)] == [0, 0]
    assert np.array_equal(out, np.zeros_like(source))


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_open_answers_change_nothing(state):
    worker, _, source, out, frame = offering(CONFIG, state)
    for ranks in (0, 0b001, FULL, 2**32 - 1):
        worker.receive(changed(CONFIG, frame, offer__state=OPEN, offer__ranks=ranks), 1)
    assert worker.stats["pending_replies"] == 4 and worker.events() == []
    check_right_answer_is_taken(CONFIG, worker, source, out, frame, state)


def test_an_answer_that_comes_twice_is_a_duplicate():
    worker, _, source, _, frame = offering(CONFIG, GIVE)
    worker.receive(decided(CONFIG, frame, 0b011), 1)
    for contributors in (0b011, 0b101, 0):
        worker.receive(decided(CONFIG, frame, contributors), 2)
    assert worker.stats["duplicates"] == 3
    assert {event.contributors for event in finished(CONFIG, worker, 0b011)} == {(0, 1)}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_an_offer_is_no_answer_to_a_packet_of_a_sum(state):
    worker, _, source, out, frame = offering(CONFIG, state)
    contributors = 0b011 if state == GIVE else 0b101
    worker.receive(decided(CONFIG, frame, contributors), 1)
    worker.frames_to_send(1)
    before = worker.stats["drop_malformed"]
    worker.receive(changed(CONFIG, frame, switchml__tsi=1, switchml__slot=1, offer__state=DECIDED, offer__ranks=contributors), 2)
    assert worker.stats["drop_malformed"] == before + 1
    for slot in range(CONFIG.slots):
        worker.expire(slot, 3)
    assert len(finished(CONFIG, worker, contributors)) == 2
    assert np.array_equal(out, 2 * source if state == GIVE else np.zeros_like(source))


@pytest.mark.parametrize(("workers", "seed"), [(1, 1), (2, 2), (3, 3), (3, 4), (32, 5)])
def test_no_bytes_harm_a_worker_that_offers(workers, seed):
    """Answers with any fields, cut, with bits changed, and often with right checksums, at any time. What it takes for a decision
    may be one."""
    rng = random.Random(seed)
    config = replace(CONFIG, worker=0, workers=workers)
    for _ in range(150):
        state = rng.choice([ASK, GIVE, PASS])
        worker, handle, source, out, frame = offering(config, state)
        gives = state == GIVE
        for now in range(1, rng.randint(2, 30)):
            ranks = rng.choice([0, 1, 2, rng.getrandbits(32), rng.getrandbits(workers), 1 << rng.randrange(32)])
            changes: dict[str, int] = {"offer__state": rng.choice([OPEN, DECIDED, rng.randrange(256)]), "offer__ranks": ranks}
            for name, bits in (("offer__least", 8), ("offer__rivals", 32), ("offer__reserved", 16), ("switchml__size", 3),
                               ("switchml__slot", 3), ("switchml__tsi", 3), ("switchml__set", 1), ("switchml__overflow", 1),
                               ("switchml__msg_type", 4), ("exponents__e0", 7), ("check__check0", 32)):
                if rng.random() < 0.05:
                    changes[name] = rng.getrandbits(bits)
            bad = bytearray(changed(config, frame, **changes))
            if rng.random() < 0.2:
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.1:
                bad = bad[: rng.randrange(len(bad))]
            worker.receive(bytes(bad), now)
            if rng.random() < 0.1 and state == ASK and not gives:
                worker.amend(handle, source)
                gives = True
            if rng.random() < 0.2:
                worker.frames_to_send(now)
            worker.next_timer()
        for event in worker.events():
            if event.handle == (handle - 1) % 64 and event.code == 0:
                assert gives or config.worker not in event.contributors
                assert set(event.contributors) <= set(range(workers))


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize(("least", "rivals"), [(0, 0), (4, 0), (256, 0), (1, 0b010), (1, 2**32 - 1)])
def test_an_offer_that_cannot_be_one_of_this_worker_is_refused(state, least, rivals):
    """Also where it is not submitted in Python. Its own rival, a worker would ask without an end."""
    worker, nothing = Worker(replace(CONFIG)), np.zeros(0, np.int32)
    tensor = worker._tensors[0]
    fill_tensor(tensor, nothing, nothing, False, 0, protocols.SUM)
    tensor.part = lib.INA_PART_OFFER
    tensor.offer.state, tensor.offer.least, tensor.offer.rivals = state, least, rivals
    assert worker._protocol.submit(worker._state, worker._tensors, 0, 0) == -errno.EINVAL
    assert worker.frames_to_send(0) == []
    tensor.offer.least, tensor.offer.rivals = 1, 0b101
    assert worker._protocol.submit(worker._state, worker._tensors, 0, 0) == 0


@pytest.mark.parametrize("change", ["gives", "passes", "lowers"])
def test_what_is_new_of_an_offer_and_lost_is_soon_sent_again(change):
    """However long the worker has asked: what it says is another question, of which nobody knows that it waits for others."""
    millisecond = 10**9
    config = replace(CONFIG, rto_min=1e-3, rto_max=1.0)
    worker, source, out = Worker(config), np.arange(40, dtype=np.int32), np.zeros(40, np.int32)
    handle = worker.submit(None, out, offer=Offer(2))
    now, asked = 0, 0
    while now < 3000 * millisecond:
        for frame in worker.frames_to_send(now):
            asked += 1
            if asked > 1:  # the first one is absorbed
                worker.receive(changed(config, frame, offer__state=OPEN, offer__ranks=1), now + millisecond // 100)
        now = worker.next_timer()
    assert asked < 15, "asks that are answered are ever rarer"
    worker.amend(handle, source if change == "gives" else None, least=1 if change == "lowers" else None, never=change == "passes",
                 now=now)
    assert len(worker.frames_to_send(now)) == 1
    assert worker.next_timer() - now < 20 * millisecond


@pytest.mark.parametrize("wrong", [
    {"source": np.zeros(3, np.float64)}, {"source": np.zeros(3, np.int32), "average": True},
    {"source": np.zeros(3, np.int32), "reduction": protocols.MAX}, {"source": np.zeros(6, np.int32)[::2]},
    {"source": np.zeros(3, np.int32), "out": np.zeros(4, np.int32)},
    {"source": np.zeros(3, np.int32), "route": Route.broadcast(0)}, {"source": np.zeros(3, np.int32), "offer": Offer(4)},
    {"source": None, "out": np.zeros(3, np.complex64)},
], ids=["float64", "average", "maximum", "strided", "other size", "route", "least", "complex64"])
def test_a_tensor_that_is_refused_leaves_no_offer_behind(wrong):
    """An offer without its tensor would take part in another one than those of the other workers."""
    worker = Worker(replace(CONFIG))
    with pytest.raises((ValueError, TypeError, OSError)):
        worker.submit(**({"offer": Offer(1)} | wrong))
    assert worker.frames_to_send(0) == []
    worker.submit(np.zeros(3, np.int32), offer=Offer(1))
    assert WIRE["switchml"].unpack(worker.frames_to_send(0)[0], 42)["tsi"] == 0
