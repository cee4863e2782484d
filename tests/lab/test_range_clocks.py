"""Clocks of ranges against a reference with a time for each key, and ranges on the ring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ina.lab.virtual.parameter_server import ring
from ina.lab.virtual.parameter_server.clocks import VectorClock
from ina.lab.virtual.parameter_server.filters import FILTERS, Entries
from ina.lab.virtual.parameter_server.messages import (
    CACHED,
    COPIED,
    COPY,
    DENSE,
    PUSH,
    PUSHED,
    STATE,
    Header,
    header,
    pushed,
    read_state,
    signature,
    spread,
    state,
    state_bytes,
)
from ina.lab.virtual.parameter_server.server import Layout, Rules, Server
from ina.lab.virtual.virtual_network import WrongSum

pytestmark = pytest.mark.fast
KEYS, WORKERS = 24, 3
ranges = st.tuples(st.integers(0, KEYS - 1), st.integers(1, KEYS)).map(lambda pair: (min(pair), max(max(pair), min(pair) + 1)))
steps = st.lists(st.tuples(st.booleans(), st.integers(0, WORKERS - 1), ranges, st.integers(0, 4)), max_size=30)


@given(steps)
def test_range_clocks_are_those_of_a_reference_with_a_time_for_each_key(steps):
    """Pushes set a range of one of two servers' clocks; else the other one takes over a range, as in a copy."""
    clocks = [VectorClock(WORKERS, KEYS) for _ in range(2)]
    reference = np.zeros((2, WORKERS, KEYS), int)
    for pushes, worker, (begin, end), time in steps:
        if pushes:
            clocks[time % 2].set(worker, begin, end, time)
            reference[time % 2, worker, begin:end] = time
        else:
            source, target = worker % 2, 1 - worker % 2
            clocks[target].merge(clocks[source].pieces(begin, end))
            reference[target, :, begin:end] = reference[source, :, begin:end]
        for clock, times in zip(clocks, reference, strict=True):
            assert [[clock.at(worker, key) for key in range(KEYS)] for worker in range(WORKERS)] == times.tolist()
            assert clock.least(begin, end) == times[:, begin:end].min()
            assert len(clock) == WORKERS + np.count_nonzero(np.diff(times, axis=1)), "no range more than there have to be"
            cut = [piece for worker in range(WORKERS) for piece in clock.ranges(worker, begin, end)]
            assert sum(last - first for first, last, _ in cut) == WORKERS * (end - begin)
            assert [piece[1:] for piece in clock.pieces(begin, end)] == cut


@pytest.mark.parametrize("bounds", [(-1, 3), (3, 3), (4, 3), (0, KEYS + 1)])
def test_a_range_that_is_none_is_refused(bounds):
    with pytest.raises(ValueError, match=f"expected a range of the {KEYS} keys"):
        VectorClock(1, KEYS).set(0, *bounds, 1)


@pytest.mark.parametrize("points", [1, 5])
@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_each_server_has_copies_of_the_ranges_that_follow_its_own(points, replicas):
    """And a server that leaves changes nothing but the ranges that it had."""
    parts = ring.segments(10_000, range(6), replicas, points)
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])] and parts[-1].end == 10_000
    for place, part in enumerate(parts):
        assert len(set(part.chain)) == len(part.chain) == 1 + replicas
        before = list(dict.fromkeys(parts[(place - back) % len(parts)].chain[0] for back in range(len(parts))))
        assert list(part.chain) == before[: 1 + replicas]
    for gone in range(6):
        after = ring.segments(10_000, set(range(6)) - {gone}, replicas, points)
        for _, _, old, new in ring.refined(parts, after):
            assert old == new or gone in old
            assert [each for each in old if each != gone] == list(new)[: len(old) - (gone in old)]


def test_fewer_servers_than_copies_each_have_everything():
    assert {part.chain for part in ring.segments(100, [4, 7], 3, 1)} <= {(4, 7), (7, 4)}
    with pytest.raises(ValueError, match="without servers"):
        ring.segments(100, [], 1, 1)


@pytest.mark.parametrize("keys", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("servers", [1, 2, 5])
@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_servers_whose_points_are_at_one_key_have_copies_too(keys, servers, replicas):
    for points in (1, 4, 16):
        parts = ring.segments(keys, range(servers), replicas, points)
        assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])] and parts[-1].end == keys
        assert all(part.begin < part.end for part in parts)
        assert all(len(set(part.chain)) == len(part.chain) == min(servers, 1 + replicas) for part in parts)


def test_messages_are_read_as_they_were_written():
    clock, values = VectorClock(2, 10), np.arange(5, dtype=np.float32) / 3
    clock.set(1, 4, 6, 9)
    words = state(Header(STATE, 7, 1, 3, 2, 7), clock.pieces(2, 7), values)
    pieces, again = read_state(header(words), words)
    assert pieces == clock.pieces(2, 7) and again.tobytes() == values.tobytes()
    assert words.nbytes == state_bytes(5, 4) == 4 * (8 + 4 * 4 + 5)
    dense = Header(PUSH, 1, 0, 0, 2, 7, 1, DENSE).words(values)
    keys = np.array([3, 6], np.int32)
    sparse = Header(PUSH, 1, 0, 0, 2, 7, 1, 2).words(keys, values[:2])
    cached = Header(PUSH, 1, 0, 0, 2, 7, 1, CACHED).words(np.array([signature(keys)], np.int32), values[:2])
    for words, known, right in ((dense, None, values.tolist()), (sparse, None, [0, values[0], 0, 0, values[1]]),
                                (cached, keys, [0, values[0], 0, 0, values[1]])):
        assert spread(header(words), *pushed(header(words), words, known)).tolist() == right
    for known in (None, keys + 1):
        with pytest.raises(WrongSum, match="does not have its list of keys"):
            pushed(header(cached), cached, known)


def test_a_server_that_comes_back_is_not_told_of_copies_that_an_earlier_one_has_sent():
    layout, posted = Layout((ring.Segment(0, 4, (0, 1)),), epoch=3), []
    server = Server(0, Rules(1, 4, True, 1.0), layout, np.zeros(4, np.float32), lambda *message: posted.append(message), born=3)
    server.receive(Header(PUSH, 7, 0, 3, 0, 4, 1, DENSE).words(np.ones(4, np.float32)))
    assert [(number, kind) for number, _, _, kind in posted] == [(1, COPY)] and server.values.tolist() == [-1] * 4
    copy = header(posted.pop()[2])
    for epoch, acknowledged in ((2, []), (3, [(0, True, PUSHED)])):
        server.receive(Header(COPIED, copy.number, 1, epoch).words())
        assert [(number, is_worker, kind) for number, is_worker, _, kind in posted] == acknowledged


def test_filters_choose_what_they_say():
    values, rng = np.array([0.5, -2.0, 1.0, 0.0], np.float32), np.random.default_rng(1)
    weights = np.array([0, 0, 0, 3], np.float32)
    assert FILTERS["significant"].sent(Entries(values, weights, 0.5, 0.0), rng).tolist() == [False, True, True, False]
    assert FILTERS["kkt"].sent(Entries(values, weights, 0.1, 1.2), rng).tolist() == [False, True, False, True]
    for name in ("random", "skip"):
        many = np.zeros(20_000, np.float32)
        sent = FILTERS[name].sent(Entries(many, many, 0.7, 0.0), rng).mean()
        assert abs(sent - 0.3) < 5 * (0.3 * 0.7 / 20_000) ** 0.5
