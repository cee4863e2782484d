"""Repetitions of a worker's packets on a clock that the test sets: gaps, probes, time-outs, the fixed time-out."""

import heapq
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_network import US, Network

from ina.aggregation.worker import Worker, WorkerConfig

pytestmark = pytest.mark.fast
MS = 10**9


def slot(frame: bytes) -> int:
    return int.from_bytes(frame[48:50], "big") if len(frame) >= 50 else -1


class Alone:
    """One worker of one, and a model switch that answers where the test lets it."""

    def __init__(self, **config):
        config = {"slots": 8, "values": 32, "rto_min": 1e-3, "rto_max": 0.064, "timeout": 100.0, "life": 1} | config
        self.worker = Worker(WorkerConfig(0, 1, **config))
        self.switch = Network(1, slots=config["slots"], values=32).switch

    def submit(self, packets: int) -> list[bytes]:
        self.worker.submit(np.ones(32 * packets, np.int32), now=0)
        return self.worker.frames_to_send(0)

    def answer(self, frame: bytes) -> bytes:
        [(_, reply)] = self.switch.process(0, frame)
        return reply


def test_a_result_of_a_later_packet_has_the_earlier_one_sent_again():
    alone = Alone()
    first = alone.submit(40)
    replies = [alone.answer(frame) for frame in first]
    for i, reply in enumerate(replies[1:]):  # the first one is lost
        alone.worker.receive(reply, 10 * US + i * US)
        assert slot(alone.worker.frames_to_send(10 * US + i * US)[0]) != slot(first[0])
    assert alone.worker.stats["fast_resends"] == 0, "packets that were sent together say nothing"


class Jittery(Alone):
    """Packets leave 0.1 us apart; each one's result comes 10 to 10 + ``jitter`` us later, or, if ``lose`` names it, never.
    ``waits``: us from a packet that was lost to its repetition. ``orderly``: packets, from this one on, without jitter."""

    waits: list[float]

    def run(self, packets, jitter, lose=(), seed=1, orderly=10**6):
        first = {}
        self.waits = []
        chance, now, flying, sent, left = random.Random(seed), 0, [], 0, 0
        frames = self.submit(packets)
        while self.worker.stats["results"] < packets:
            for frame in frames:
                left = max(left, now) + US // 10
                if frame in first:
                    self.waits.append((left - first.pop(frame)) / US)
                if sent in lose:
                    first[frame] = left
                else:
                    late = round((sent < orderly) * jitter * chance.random() * US)
                    heapq.heappush(flying, (left + 10 * US + late, sent, self.answer(frame)))
                sent += 1
            timer = self.worker.next_timer()
            now = min(max(timer, now), flying[0][0]) if flying else timer
            while flying and flying[0][0] <= now:
                self.worker.receive(heapq.heappop(flying)[2], now)
            frames = self.worker.frames_to_send(now)
        return self.worker.stats


@pytest.mark.parametrize("jitter", [0, 2, 5, 10])
def test_packets_that_overtake_each_other_are_rarely_sent_again(jitter):
    """Results teach how long a late one takes: an eighth of a round trip, always, had up to two thirds sent again."""
    stats = Jittery(slots=64).run(10_000, jitter)
    assert stats["retransmissions"] <= (0.01 if jitter else 0) * 10_000
    assert stats["probes"] == stats["timeouts"] == 0


def test_lost_packets_are_sent_again_at_once_where_packets_overtake_each_other():
    lost = {500 + 150 * i for i in range(20)}
    stats = Jittery(slots=64).run(4000, 5, lost)
    assert stats["fast_resends"] >= len(lost) and stats["timeouts"] + stats["probes"] == 0
    assert stats["spurious"] <= 0.02 * 4000


def test_a_path_that_keeps_the_order_again_is_trusted_again():
    path = Jittery(slots=64)
    path.run(6000, 10, {2500 + 50 * i for i in range(60)}, orderly=2000)
    assert len(path.waits) == 60 and min(path.waits[:16]) > 20 and max(path.waits[48:]) < 12


@pytest.mark.parametrize(("slots", "slower"), [(64, 120), (256, 150), (1024, 120)])
def test_a_path_that_becomes_slower_is_no_loss(slots, slower):
    """Each result comes ten times as long after its packet as those before; single probes ask, and not one for each packet."""
    alone, now = Alone(slots=slots, rto_max=0.01), 0
    flying = deque((100 * US, frame) for frame in alone.submit(2 * slots))
    while alone.worker.stats["results"] < 2 * slots:
        timer = alone.worker.next_timer()
        if flying and flying[0][0] <= timer:
            now, frame = flying.popleft()
            alone.worker.receive(alone.answer(frame), now)
        else:
            now = timer
        trip = 1000 * US if now >= 100 * US else 100 * US
        flying += [(now + trip + i * US // 10, frame) for i, frame in enumerate(alone.worker.frames_to_send(now))]
    assert 0 < alone.worker.stats["retransmissions"] <= 24


def test_a_path_that_becomes_slow_has_nothing_sent_again_while_results_come():
    """A link loses nine tenths of its rate: all packets that wait there are late, and none is lost."""
    alone = Alone()
    waiting, now = deque(alone.submit(200)), 0
    for result in range(180):
        now += MS // 8 if result < 80 else MS * 10 // 8
        while alone.worker.next_timer() <= now:
            waiting += alone.worker.frames_to_send(alone.worker.next_timer())
        alone.worker.receive(alone.answer(waiting.popleft()), now)
        waiting += alone.worker.frames_to_send(now)
    assert alone.worker.stats["results"] == 180 and alone.worker.stats["retransmissions"] <= 1, "one in doubt at the change"


@pytest.mark.parametrize(("slots", "together", "pause"), [(64, 8, 300), (64, 16, 1000), (256, 32, 3000)])
def test_a_path_that_answers_in_clumps_is_learnt(slots, together, pause):
    """Pauses between results are longer than the time-out that the round trips before had taught, and all packets, probes too,
    wait in one queue: each packet has been waiting when a probe is sent, so only answers to probes say how long the path is."""
    alone = Alone(slots=slots)
    waiting, now = deque(alone.submit(50 * slots)), 0
    while alone.worker.stats["results"] < 50 * slots:
        orderly = alone.worker.stats["results"] < 4 * slots
        now += US if orderly else pause * US
        while alone.worker.next_timer() <= now:
            waiting += alone.worker.frames_to_send(alone.worker.next_timer())
        for _ in range(1 if orderly else min(together, len(waiting))):
            alone.worker.receive(alone.answer(waiting.popleft()), now)
            waiting += alone.worker.frames_to_send(now)
    assert 0 < alone.worker.stats["retransmissions"] <= 32, "some at the change"


def test_what_waits_for_a_worker_is_no_sample_of_the_path():
    """A worker begins a tensor 1 s before the other one: replies to its probes say so."""
    network = Network(2, slots=8, rto_max=1.0)
    early, late = network.workers
    for worker in (early, late):
        worker.submit(np.ones(32 * 80, np.int32), now=network.now)
    network.run()
    known = early.stats["srtt_ps"]
    early.submit(np.ones(32 * 80, np.int32), now=network.now)
    network.run(network.now + 10**12)
    late.submit(np.ones(32 * 80, np.int32), now=network.now)
    network.run()
    assert early.stats["pending_replies"] > 5
    assert early.stats["srtt_ps"] < 2 * known


def test_probes_double_while_nobody_answers():
    alone = Alone()
    alone.submit(8)
    sent, now = [], 0
    for _ in range(5):
        now = alone.worker.next_timer()
        assert alone.worker.frames_to_send(now - 1) == []
        sent.append(len(alone.worker.frames_to_send(now)))
    assert sent[:4] == [1, 2, 4, 8]
    stats = alone.worker.stats
    assert stats["probes"] == 1 and stats["timeouts"] == sum(sent) - 1 and stats["spurious"] == 0


def test_probes_are_single_after_as_many_without_an_answer_as_there_are_slots():
    """Else they fill a path that takes longer than rto_max, and its answers come later and later."""
    alone = Alone(slots=64)
    first = alone.submit(64)
    sent, now = [], 0
    for _ in range(20):
        now = alone.worker.next_timer()
        sent.append(len(alone.worker.frames_to_send(now)))
    assert sent == [1, 2, 4, 8, 16, 32, 64] + 13 * [1]
    alone.worker.receive(alone.answer(first[0]), now)
    assert sum(len(alone.worker.frames_to_send(alone.worker.next_timer())) for _ in range(4)) > 4, "something came: probes double"


def round_trips(alone, frames, now, trip=10 * US):
    """Answers all frames and those that follow, one after the other; returns when all have results."""
    flying = deque((now + trip + i, frame) for i, frame in enumerate(frames))
    while flying or alone.worker.stats["results"] < alone.packets:
        timer = alone.worker.next_timer()
        if not flying or timer < flying[0][0]:
            now = timer
        else:
            now, frame = flying.popleft()
            alone.worker.receive(alone.answer(frame), now)
        flying += [(now + trip + i, frame) for i, frame in enumerate(alone.worker.frames_to_send(now))]
        assert alone.worker.stats["probes"] + alone.worker.stats["timeouts"] <= 3 * alone.packets
    return now


@pytest.mark.parametrize("slots", [8, 512, 8192])
@pytest.mark.parametrize("lost", [1.0, 0.7])
def test_a_first_window_that_is_lost_is_sent_again_in_a_few_round_trips(slots, lost):
    """Before the first sample nothing says how long a round trip is; after results that waited for others it looks too long."""
    alone = Alone(slots=slots, rto_max=0.1)
    alone.packets = slots - 2
    frames = alone.submit(alone.packets)
    late = frames[round(lost * len(frames)):]
    for i, frame in enumerate(late):  # these wait at the switch for a while
        alone.worker.receive(alone.answer(frame), MS // 2 + i * US)
    end = round_trips(alone, alone.worker.frames_to_send(MS // 2 + len(late) * US), MS // 2 + len(late) * US)
    assert end < 40 * MS, "each lost packet took an interval"


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([1, 8, 64]), st.integers(1, 20), st.floats(1e-5, 1e-2))
def test_a_fixed_time_out_is_each_packets_own(slots, turns, rto):
    alone = Alone(slots=slots, rto_min=rto, rto_max=0.1, rto_fixed=True)
    first = alone.submit(slots)
    for turn in range(1, turns + 1):
        now = alone.worker.next_timer()
        assert now == turn * round(rto * 10**12)
        assert alone.worker.frames_to_send(now - 1) == []
        assert sorted(alone.worker.frames_to_send(now)) == sorted(first)
    stats = alone.worker.stats
    assert stats["timeouts"] == stats["retransmissions"] == turns * len(first)
    assert stats["probes"] == stats["fast_resends"] == 0


@pytest.mark.parametrize("room", [1, 8, 64])
def test_repetitions_are_counted_by_reason_when_they_are_sent(room):
    """A port takes some of the packets; then results come, and the others are not sent again."""
    alone = Alone(slots=64, rto_fixed=True)
    replies = [alone.answer(frame) for frame in alone.submit(64)]
    now = alone.worker.next_timer()
    assert len(alone.worker.frames_to_send(now, room)) == room
    for reply in replies:
        alone.worker.receive(reply, now)
    stats = alone.worker.stats
    assert stats["timeouts"] == stats["retransmissions"] == room and stats["results"] == 64


def test_what_is_sent_again_for_a_result_that_did_not_fit_is_no_probe():
    alone = Alone()
    frames = alone.submit(8)
    now = alone.worker.next_timer()
    (probe,) = alone.worker.frames_to_send(now)
    spoilt = bytearray(alone.answer(probe))
    spoilt[-1] ^= 1
    alone.worker.receive(bytes(spoilt), now + US)
    again = alone.worker.frames_to_send(now + US)
    stats = alone.worker.stats
    assert again == [probe] == frames[:1] and stats["drop_corrupt"] == 1
    assert (stats["retransmissions"], stats["probes"], stats["timeouts"], stats["fast_resends"]) == (2, 1, 0, 0)


@settings(max_examples=50, deadline=None)
@given(st.integers(5, 60))
def test_a_needless_probe_is_counted_and_its_delay_learned(milliseconds):
    """The path is silent for a while, then both results come."""
    alone = Alone(slots=1, rto_min=1e-4, rto_max=1.0)
    frames = alone.submit(20)
    now = 0
    for _ in range(9):  # round trips of 10 us
        now += 10 * US
        alone.worker.receive(alone.answer(frames[0]), now)
        frames = alone.worker.frames_to_send(now)
    start, again = now, []
    while (timer := alone.worker.next_timer()) < start + milliseconds * MS:
        again += alone.worker.frames_to_send(timer)
    assert again
    end = start + milliseconds * MS
    replies = [alone.answer(frame) for frame in (frames[0], *again)]
    for reply in replies:
        alone.worker.receive(reply, end)
    stats = alone.worker.stats
    assert stats["spurious"] == stats["duplicates"] == len(again), "each repetition was needless"
    assert stats["delays"] == 1, "what ina why explains the needless probe with"


def test_a_probe_that_is_lost_is_repeated_after_the_same_interval_and_only_then_is_the_path_in_doubt():
    """rto_min, which may be many round trips, is for paths of which nothing is heard."""
    alone = Alone(slots=1, rto_min=1e-3, rto_max=1.0)
    frames, now = alone.submit(20), 0
    for _ in range(9):  # round trips of 10 us
        now += 10 * US
        alone.worker.receive(alone.answer(frames[0]), now)
        frames = alone.worker.frames_to_send(now)
    gaps = []
    for _ in range(4):
        timer = alone.worker.next_timer()
        assert len(alone.worker.frames_to_send(timer)) == 1
        gaps.append(timer - now)
        now = timer
    assert gaps[0] == gaps[1] < 40 * US and gaps[2:] == [MS, 2 * MS]


def test_a_caller_that_comes_late_waits_once_more():
    alone = Alone()
    alone.submit(8)
    due = alone.worker.next_timer()
    late = due + 10 * MS
    assert alone.worker.frames_to_send(late) == [], "its own process did not run, so perhaps nor did the switch's"
    assert alone.worker.next_timer() == due + 20 * MS
    assert len(alone.worker.frames_to_send(due + 20 * MS)) == 1
    assert alone.worker.stats["delays"] == 1
