"""host/net/link.c against a model in exact arithmetic: order, conservation, timing, marks and limits."""

from collections import deque
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.base.native import ffi, lib

pytestmark = pytest.mark.fast
NEVER = 2**64 - 1


class Link:
    """The compiled link with Python values."""

    def __init__(self, **config):
        self.config = {"rate_bps": 0, "delay_ps": 0, "queue_bytes": 0, "ecn_bytes": 0} | config
        self.link = ffi.gc(lib.ina_link_create(ffi.new("struct ina_link_config *", self.config)), lib.ina_link_destroy)

    def enqueue(self, handle, size, now):
        return lib.ina_link_enqueue(self.link, handle, size, now)

    def dequeue(self, now):
        item = ffi.new("struct ina_link_item *")
        return item if lib.ina_link_dequeue(self.link, now, item) else None

    def transmit(self, item, now):
        return lib.ina_link_transmit(self.link, item, now)

    def deliver(self, now):
        item = ffi.new("struct ina_link_item *")
        return item if lib.ina_link_deliver(self.link, now, item) else None

    def next_due(self):
        return lib.ina_link_next_due(self.link)

    def stats(self):
        stats = lib.ina_link_get_stats(self.link)
        return {name: getattr(stats, name) for name, _ in ffi.typeof("struct ina_link_stats").fields}


class Model:
    """Model of the link, from its description in host/net/link.h."""

    def __init__(self, rate_bps, delay_ps, queue_bytes, ecn_bytes):
        self.rate, self.delay, self.limit, self.mark = rate_bps, delay_ps, queue_bytes, ecn_bytes
        self.waiting, self.flying, self.free_at, self.stats = deque(), deque(), 0, dict.fromkeys(
            ("packets", "bytes", "tail_drops", "ecn_marks", "busy_ps", "max_queue_bytes", "waited_ps", "queue_ps"), 0
        )

    def backlog(self):
        return sum(size for _, size, _ in self.waiting)

    def enqueue(self, handle, size, now):
        waits = self.backlog()
        if self.limit and waits + size > self.limit:
            self.stats["tail_drops"] += 1
            return lib.INA_TAIL_DROP
        self.waiting.append((handle, size, now))
        self.look(now)
        self.stats["max_queue_bytes"] = max(self.stats["max_queue_bytes"], waits + size)
        if self.mark and waits > self.mark:
            self.stats["ecn_marks"] += 1
            return lib.INA_ENQUEUED_MARKED
        return lib.INA_ENQUEUED

    def dequeue(self, now):
        if not self.waiting or now < self.free_at:
            return None
        item = self.waiting.popleft()
        self.stats["waited_ps"] += now - item[2]
        self.look(now)
        return item

    def look(self, now):
        """Little's law: the queue's length over time is the waits of the frames that left and of those that still wait."""
        self.stats["queue_ps"] = self.stats["waited_ps"] + sum(now - enqueued for _, _, enqueued in self.waiting)

    def transmit(self, handle, size, now):
        lasts = ceil(Fraction(size * 8 * 10**12, self.rate)) if self.rate else 0
        self.free_at = max(now, self.free_at) + lasts
        self.flying.append((handle, size, self.free_at + self.delay))
        self.stats["packets"] += 1
        self.stats["bytes"] += size
        self.stats["busy_ps"] += lasts
        return self.free_at + self.delay

    def deliver(self, now):
        return self.flying.popleft() if self.flying and now >= self.flying[0][2] else None

    def next_due(self):
        times = [max(self.free_at, self.waiting[0][2])] if self.waiting else []
        times += [self.flying[0][2]] if self.flying else []
        return min(times, default=NEVER)


configs = st.fixed_dictionaries({
    "rate_bps": st.sampled_from([0, 1, 999_999_937, 10**10, 10**11, 4 * 10**11]),
    "delay_ps": st.sampled_from([0, 1, 10**6]),
    "queue_bytes": st.sampled_from([0, 1600, 10_000]),
    "ecn_bytes": st.sampled_from([0, 1, 3000]),
})
steps = st.tuples(
    st.sampled_from(["enqueue", "enqueue", "serve", "drop", "deliver", "due"]), st.integers(1, 1600),
    st.integers(0, 200_000))


@settings(max_examples=200, deadline=None)
@given(configs, st.lists(steps, max_size=80))
def test_agrees_with_the_model(config, plan):
    link, model, now = Link(**config), Model(**config), 0
    for handle, (step, size, pause) in enumerate(plan):
        now += pause
        if step == "due" and model.next_due() != NEVER:
            now = max(now, model.next_due())
        if step == "enqueue":
            assert link.enqueue(handle, size, now) == model.enqueue(handle, size, now)
        elif step in ("serve", "drop", "due"):
            item, expected = link.dequeue(now), model.dequeue(now)
            assert (item is None) == (expected is None)
            if item:
                assert (item.handle, item.bytes, item.enq_time) == expected
                if step != "drop":
                    item.bytes = size  # egress may change the length
                    assert link.transmit(item, now) == model.transmit(item.handle, size, now)
        if step in ("deliver", "due"):
            item, expected = link.deliver(now), model.deliver(now)
            assert (item is None) == (expected is None)
            if item:
                assert (item.handle, item.bytes, item.due) == expected
        assert link.next_due() == model.next_due()
        assert lib.ina_link_depth(link.link) == len(model.waiting)
        assert lib.ina_link_backlog(link.link) == model.backlog()
        assert link.stats() == model.stats


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_serialisation_is_exact_and_rounded_up(rate, size):
    exact = ceil(Fraction(size * 8 * 10**12, rate)) if rate else 0
    assert lib.ina_link_serialisation(rate, size) == min(exact, NEVER - 1)


def test_a_332_byte_frame_at_100_gbps_lasts_26_56_ns():
    assert lib.ina_link_serialisation(100 * 10**9, 332) == 26_560


def test_back_to_back_frames_keep_line_rate_however_late_the_poll():
    link = Link(rate_bps=10**11, delay_ps=10**6)
    for i in range(1000):
        assert link.enqueue(i, 332, 0) == lib.INA_ENQUEUED
    arrivals, now = [], 0
    while len(arrivals) < 1000:
        now += 7 * 10**6  # polls are microseconds apart
        while (due := link.next_due()) <= now:
            if item := link.dequeue(due):
                link.transmit(item, due)
            if item := link.deliver(due):
                arrivals.append(item.due)
    assert arrivals == [10**6 + 26_560 * (i + 1) for i in range(1000)]
    assert link.stats()["busy_ps"] == 1000 * 26_560


def test_what_waited_is_told_to_egress():
    link = Link(rate_bps=10**9, ecn_bytes=100)
    marks = [link.enqueue(i, 100, 5 * i) for i in range(4)]
    assert marks == [lib.INA_ENQUEUED, lib.INA_ENQUEUED, lib.INA_ENQUEUED_MARKED, lib.INA_ENQUEUED_MARKED]
    now, records = 0, []
    while link.next_due() != NEVER:
        now = link.next_due()
        if item := link.dequeue(now):
            records.append((item.handle, item.enq_time, item.enq_qdepth))
            link.transmit(item, now)
        link.deliver(now)
    assert records == [(0, 0, 0), (1, 5, 1), (2, 10, 2), (3, 15, 3)]


def test_a_batch_dequeued_at_once_still_leaves_one_after_the_other():
    link = Link(rate_bps=10**11)
    for i in range(3):
        link.enqueue(i, 332, 0)
    batch = [link.dequeue(0) for _ in range(3)]
    assert [link.transmit(item, 0) for item in batch] == [26_560, 53_120, 79_680]


@pytest.mark.parametrize("flying", [False, True])
def test_a_queue_without_a_limit_holds_whatever_comes(flying):
    """The queue grows to many times the rings' first size, while the rings have wrapped."""
    link, sent, came = Link(rate_bps=10**12, delay_ps=10**12 if flying else 0), 0, []
    now, rounds = 0, 12
    for round_ in range(rounds):
        for _ in range(1 << round_):
            assert link.enqueue(sent, 100, now) == lib.INA_ENQUEUED
            sent += 1
        for _ in range(1 if not flying else 1 << round_):  # some leave, so that rings do not begin where memory does
            now = max(now, lib.ina_link_free_at(link.link))
            link.transmit(link.dequeue(now), now)
        if item := link.deliver(now):
            came.append(item.handle)
    while (due := link.next_due()) != NEVER:
        if item := link.dequeue(due):
            link.transmit(item, due)
        if item := link.deliver(due):
            came.append(item.handle)
    assert came == list(range(sent)) and sent == (1 << rounds) - 1 and link.stats()["tail_drops"] == 0


@pytest.mark.parametrize("rate", [0, 10**11])
def test_times_near_the_end_of_the_clock_saturate(rate):
    link = Link(rate_bps=rate, delay_ps=10**6)
    link.enqueue(1, 1500, NEVER - 10)
    assert link.transmit(link.dequeue(NEVER - 10), NEVER - 10) == NEVER - 1
    assert link.next_due() == NEVER - 1


@settings(max_examples=200, deadline=None)
@given(configs, st.lists(st.tuples(st.integers(1, 1600), st.integers(0, 200_000)), max_size=60))
def test_a_whole_way_at_once_is_the_same_as_step_by_step(config, plan):
    """`forward`, which knows the arrival at once, against enqueue, dequeue and transmit as they become due."""
    quick, slow, now, arrival = Link(**config), Link(**config), 0, ffi.new("uint64_t *")
    expected, flown = [], []

    def serve(until):  # packets in flight leave at once: `forward` keeps none there
        while lib.ina_link_depth(slow.link) and lib.ina_link_free_at(slow.link) <= until:
            item = slow.dequeue(max(lib.ina_link_free_at(slow.link), waiting[0]))
            waiting.pop(0)
            expected.append(lib.ina_link_send(slow.link, item.bytes, max(lib.ina_link_free_at(slow.link), item.enq_time)))

    waiting: list[int] = []
    for size, pause in plan:
        now += pause
        serve(now)
        status = lib.ina_link_forward(quick.link, size, now, arrival)
        assert status == slow.enqueue(0, size, now)
        if status != lib.INA_TAIL_DROP:
            waiting.append(now)
            flown.append(arrival[0])
        serve(now)
        assert quick.stats() == slow.stats()
    serve(NEVER)
    lib.ina_link_settle(quick.link, NEVER)
    assert flown == expected and quick.stats() == slow.stats()


def test_what_passes_the_queue_at_once_is_counted_as_if_it_had_been_in_it():
    link = Link(rate_bps=10**10, delay_ps=5, queue_bytes=2000)
    assert lib.ina_link_pass(link.link, 1000, 0) == 1
    assert lib.ina_link_send(link.link, 1000, 0) == 800_000 + 5 and lib.ina_link_free_at(link.link) == 800_000
    assert lib.ina_link_pass(link.link, 1000, 799_999) == 0, "the transmitter is busy"
    assert lib.ina_link_pass(link.link, 2001, 800_000) == 0, "longer than the queue: enqueue drops it"
    assert link.enqueue(1, 2001, 800_000) == lib.INA_TAIL_DROP
    assert link.stats()["max_queue_bytes"] == 1000 and link.next_due() == NEVER, "nothing is in flight"
