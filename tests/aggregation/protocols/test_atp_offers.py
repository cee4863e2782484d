"""Offers of ATP's workers, and the parameter server that decides on them: frames in, frames out."""

import random
from collections import Counter

import numpy as np
import pytest
from atp_network import Faults, JobSpec, Network
from offers import ASK, DECIDED, GIVE, OPEN, PASS, Reference
from test_atp_machines import relayed, resealed, server, to_worker, worker

from ina.aggregation import protocols
from ina.aggregation.worker import JobMismatch
from ina.aggregation.worker.offer import Offer

pytestmark = pytest.mark.build
OFFER, ANSWER = 8, 9
WORKERS, SLOTS = 3, 2
DROPS = ("drop_malformed", "drop_stale", "drop_foreign")


def changed(frame: bytes, kind: int, state: int, least: int, rivals: int, number: int, bitmap: int) -> bytes:
    """The frame of an offer that says something else."""
    head = bytearray(frame)
    head[42], head[44], head[45] = kind << 4, state, least
    head[49:54], head[54:58] = number.to_bytes(5, "big"), bitmap.to_bytes(4, "big")
    head[62:66] = rivals.to_bytes(4, "big")
    return resealed(head)


def terms(frame: bytes) -> tuple[int, int, int, int]:
    """Workers that an answer is for, its number, its state and the workers that it names."""
    assert frame[42] == ANSWER << 4 and len(frame) == 70 and frame[45] == 0
    bitmap, number, ranks = frame[54:58], frame[49:54], frame[62:66]
    return int.from_bytes(bitmap, "big"), int.from_bytes(number, "big"), frame[44], int.from_bytes(ranks, "big")


def an_offer() -> bytes:
    """A worker's, as it comes to the server."""
    asking = worker(0, WORKERS, slots=SLOTS)
    asking.submit(None, np.zeros(8, np.int32), offer=Offer(2))
    (frame,) = asking.frames_to_send(0)
    assert len(frame) == 70 and frame[42:46] == bytes([OFFER << 4, 160, ASK, 2])  # exponent -96
    return relayed(frame)


def spoilt(chance: random.Random, ranks: int, full: int) -> dict[str, int]:
    """Fields that make an offer one that is dropped, in any phase."""
    return chance.choice([{"state": chance.choice((OPEN, DECIDED, 5, 255))}, {"least": chance.choice((0, WORKERS + 1, 255))},
                          {"rivals": ranks}, {"rivals": 1 << WORKERS}, {"bitmap": full}, {"bitmap": 0}, {"bitmap": 1 << WORKERS}])


@pytest.mark.parametrize("seed", range(4))
def test_the_server_answers_as_the_rules_say(seed):
    """All that comes, in any order and of any number, and hostile packets among it."""
    chance, frame, full, rows = random.Random(seed), an_offer(), (1 << WORKERS) - 1, 2 * SLOTS
    ps, reference, seen = server(WORKERS, slots=SLOTS), Reference(WORKERS), Counter()
    for _ in range(6000):
        row, rank = chance.randrange(rows), chance.randrange(WORKERS)
        number = reference.due(row, rows + row, rows) + chance.choice((0, 0, 0, 0, -rows, rows))
        if row not in reference.rows and number != rows + row:
            continue
        ranks = 1 << rank
        packet = {"kind": OFFER, "state": chance.choice((ASK, ASK, GIVE, PASS)), "least": chance.randint(1, WORKERS),
                  "rivals": chance.choice((0, 0, 0, full & ~ranks, chance.randrange(full + 1) & ~ranks)), "number": number,
                  "bitmap": ranks}
        spoils, before = chance.random() < 0.1, ps.stats
        if spoils:
            packet |= spoilt(chance, ranks, full)
        elif row in reference.rows and chance.random() < 0.1:
            packet |= {"kind": 1, "number": reference.rows[row].tsi}  # a sum's packet, of a phase of offers
            spoils = True
        ps.receive(changed(frame, **packet), 0)
        answers = [] if spoils else reference.offer(row, rank, number, packet["state"], packet["least"], packet["rivals"], ranks)
        expected = [(1 << to, tsi, state, named) for to, (tsi, _, state, _, _, named) in answers]
        if len(answers) == WORKERS:
            expected = [(full, *expected[0][1:])]
        assert [terms(answer) for answer in ps.frames_to_send(0)] == expected, packet
        after = ps.stats
        dropped = sum(after[name] - before[name] for name in DROPS)
        assert dropped + sum(after[name] - before[name] for name in ("merged_raw", "overlaps")) == 1
        assert dropped or not spoils
        seen.update(["spoilt" if spoils else "all" if len(answers) == WORKERS else "stale" if dropped else
                     {OPEN: "open", DECIDED: "again"}[expected[0][2]] if expected else "nothing"])
    assert min(seen[name] for name in ("spoilt", "all", "stale", "open", "again", "nothing")) > 50, seen


def test_values_behind_an_offer_and_keys_are_refused():
    frame = bytearray(an_offer())
    length = 4 * 32
    frame[16:18], frame[38:40] = (56 + length).to_bytes(2, "big"), (36 + length).to_bytes(2, "big")
    ps, keyed = server(WORKERS), server(WORKERS, key=bytes(range(16)))
    ps.receive(bytes(frame) + bytes(length), 0)
    keyed.receive(an_offer(), 0)
    assert ps.stats["drop_malformed"] + ps.stats["drop_corrupt"] == 1 and ps.stats["merged_raw"] == 0
    assert keyed.stats["drop_malformed"] == 1
    with pytest.raises(ValueError, match="always of all workers"):
        worker(0, 2, check="keyed", key=bytes(range(16))).submit(np.zeros(8, np.int32), offer=Offer(1))
    assert protocols.has_offers("atp", "sum") and not protocols.has_offers("atp", "keyed")


def answers(ps, *frames: bytes) -> list[bytes]:
    for frame in frames:
        ps.receive(relayed(frame), 0)
    return ps.frames_to_send(0)


def test_an_answer_that_comes_before_news_are_sent_does_not_hold_them_back():
    first, ps = worker(0, 2), server(2)
    handle = first.submit(None, np.zeros(8, np.int32), offer=Offer(2))
    assert answers(ps, *first.frames_to_send(0)) == []
    first.expire(0, 0)
    (still_open,) = answers(ps, *first.frames_to_send(0))
    assert terms(still_open)[2:] == (OPEN, 0b10)
    first.amend(handle, np.ones(8, np.int32))
    first.receive(to_worker(still_open, 0), 0)
    assert [frame[44] for frame in first.frames_to_send(0)] == [GIVE]


@pytest.mark.parametrize("leaves", [0, 2])
def test_averages_of_blocks_that_go_as_floats_are_over_the_contributors(leaves):
    """Values beyond 2^126 in one block of three: integers do not represent it. Worker 2 says that it never contributes."""
    network = Network([JobSpec(3)], leaves=leaves, faults=Faults(loss=0.02))
    rows = np.random.default_rng(1).standard_normal((3, 96)).astype(np.float32)
    rows[:, 40] = 2.0**127, -(2.0**126), 1
    outs = [np.empty(96, np.float32) for _ in rows]
    for rank, (each, out) in enumerate(zip(network.jobs[0].workers, outs, strict=True)):
        each.submit(None if rank == 2 else rows[rank], out, average=True, offer=Offer(3, never=rank == 2))
    events = network.run()[0]
    assert [event.contributors for each in events for event in each] == [(0, 1)] * 6  # of the offer, and of the sum
    assert all(each.stats["float_blocks"] == 1 for each in network.jobs[0].workers)
    mean = rows[:2].astype(np.float64).mean(axis=0)
    assert all(np.allclose(out, mean, rtol=1e-6, atol=1e-6) for out in outs)


def test_workers_that_a_server_without_memory_told_others_do_not_agree():
    """One worker is told that both contribute, by a server that then loses its state, and another that it does alone."""
    workers, ps = [worker(rank, 2) for rank in (0, 1)], server(2)
    outs = [np.zeros(8, np.int32) for _ in workers]
    for each, out in zip(workers, outs, strict=True):
        each.submit(np.ones(8, np.int32), out, offer=Offer(1))
    new, offers = ps.snapshot(), [relayed(frame) for each in workers for frame in each.frames_to_send(0)]
    for turn, states in enumerate(((GIVE, GIVE), (PASS, GIVE))):
        ps.restore(new)
        for rank, state in enumerate(states):
            ps.receive(changed(offers[0], OFFER, state, 2, 0, 0, 1 << rank), 0)
        (answer,) = ps.frames_to_send(0)
        assert terms(answer)[2:] == (DECIDED, (0b11, 0b10)[turn])
        workers[turn].receive(to_worker(answer, turn), 0)
    for each in workers:
        for frame in each.frames_to_send(0):
            ps.receive(relayed(frame), 0)
    (result,) = ps.frames_to_send(0)
    for rank, each in enumerate(workers):
        each.receive(to_worker(result, rank), 0)
        assert any(isinstance(event.error(), JobMismatch) for event in each.events())
    assert not any(out.any() for out in outs)
