"""ATP's workers, servers and compiled switches together, on an event clock with seeded faults; NumPy's sums are the judge."""

import native_codec as codec
import numpy as np
import pytest
from atp_network import US, Faults, JobSpec, Network, fixed_point
from capabilities import need
from hypothesis import given, settings
from hypothesis import strategies as st
from test_switchml_worker import run_c

from ina.aggregation import protocols
from ina.aggregation.worker import JobMismatch, JobTimeout

pytestmark = pytest.mark.build
need("cc")

FAULTS = [
    Faults(),
    Faults(loss=0.02, duplicate=0.02, reorder=0.02),
    Faults(loss=0.1, duplicate=0.1, reorder=0.1),
    Faults(duplicate=0.5, reorder=0.5),
]
sizes = st.one_of(st.integers(0, 400), st.sampled_from([1, 2, 29, 30, 33, 127, 128, 1000]))


def tensors(workers: int, count: int, dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == np.int32:
        return rng.integers(-(2**31), 2**31, (workers, count)).astype(np.int32)
    return (rng.standard_normal((workers, count)) * np.exp2(rng.integers(-20, 20, (workers, 1)))).astype(np.float32)


def check_sum(before: np.ndarray, after: np.ndarray, values: int, average: bool = False) -> None:
    """int32: exact modulo 2**32; float32: the same on all ranks and within the codec's bound of the exact sum."""
    if before.dtype == np.int32:
        assert (after == before.sum(axis=0, dtype=np.int32)).all()
        return
    n = len(before)
    assert all(after[0].tobytes() == row.tobytes() for row in after[1:])
    exact = before.astype(np.float64).sum(axis=0) / (n if average else 1)
    bound = np.zeros_like(exact)
    if before.shape[1] > (values - 3) // codec.EXACT_WORDS:
        for at in range(0, before.shape[1], values):
            e = max(codec.exponent(row[at : at + values]) for row in before)
            bound[at : at + values] = codec.error_bound(e, n, average)
    assert (np.abs(after[0] - exact) <= bound + (np.abs(exact) + bound) * 2**-22).all()


def all_done(events: list, count: int) -> None:
    for worker in events:
        assert [e.code for e in worker] == [0] * count


@settings(max_examples=60, deadline=None)
@given(
    workers=st.integers(1, 6), size=sizes, dtype=st.sampled_from([np.int32, np.float32]), average=st.booleans(),
    faults=st.sampled_from(FAULTS), slots=st.sampled_from([1, 2, 8, 64]), pool=st.sampled_from([1, 4, 64]),
    leaves=st.sampled_from([0, 0, 1, 2]), plain=st.booleans(), in_place=st.booleans(), window=st.integers(0, 8),
    seed=st.integers(0, 2**32),
)
def test_sums(workers, size, dtype, average, faults, slots, pool, leaves, plain, in_place, window, seed):
    average = average and dtype == np.float32
    before = tensors(workers, size, dtype, seed)
    after = before.copy()
    spec = JobSpec(workers, slots, plain, {"reply_in_place": in_place, "options": {"window": window} if window else {}})
    network = Network([spec], pool=pool, leaves=leaves, faults=faults, seed=seed)
    network.submit(0, after, average=average)
    (events,) = network.run()
    all_done(events, 1)
    check_sum(before, after, 32, average)


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 4, 16]), st.integers(1, 1500), st.booleans()),
                  min_size=2, max_size=5),
    pool=st.sampled_from([1, 2, 8, 32]), leaves=st.sampled_from([0, 2]), faults=st.sampled_from(FAULTS),
    seed=st.integers(0, 2**32),
)
def test_jobs_that_collide_in_a_small_pool(jobs, pool, leaves, faults, seed):
    """Several tensors each, starting at different times."""
    network = Network([JobSpec(w, s) for w, s, *_ in jobs], pool=pool, leaves=leaves, faults=faults, seed=seed, lifetime=1e-3)
    before = [tensors(w, n, np.float32 if f else np.int32, seed + i) for i, (w, _, n, f) in enumerate(jobs)]
    after = [[b.copy(), b.copy()] for b in before]
    for again in range(2):
        for number, rows in enumerate(after):
            network.submit(number, rows[again])
            network.run(until=network.now + seed % 300 * US)
    for events in network.run():
        all_done(events, 2)
    for b, rows in zip(before, after, strict=True):
        for a in rows:
            check_sum(b, a, 32)


@settings(max_examples=20, deadline=None)
@given(
    workers=st.integers(1, 5), size=sizes, faults=st.sampled_from(FAULTS), pool=st.sampled_from([1, 64]),
    leaves=st.sampled_from([0, 2]), plain=st.booleans(), seed=st.integers(0, 2**32),
)
def test_maxima(workers, size, faults, pool, leaves, plain, seed):
    before = tensors(workers, size, np.int32, seed)
    after = before.copy()
    network = Network([JobSpec(workers, 8, plain)], pool=pool, leaves=leaves, faults=faults, seed=seed)
    network.submit(0, after, reduction=protocols.MAX)
    all_done(network.run()[0], 1)
    assert (after == before.max(axis=0)).all()


@pytest.mark.parametrize("leaves", [0, 2])
def test_a_job_alone_is_summed_by_the_switches(leaves):
    """One packet up from the root for each number; nothing raw, nothing sent again."""
    network = Network([JobSpec(4, 16)], pool=4096, leaves=leaves)
    rows = tensors(4, 3200, np.int32, 1)
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert (rows == expected).all()
    packets = 1 + 100
    stats = network.jobs[0].server.stats
    assert (stats["rx_packets"], stats["tx_packets"], stats["merged_partial"]) == (packets, packets, packets)
    assert network.jobs[0].workers[0].stats["retransmissions"] == 0
    fates = network.fates(0)
    assert fates["completed"] == packets and fates["merged"] == (0 if leaves else 2 * packets)
    assert [network.held(s) for s in range(1 + leaves)] == [0] * (1 + leaves), "results free what they pass"


def test_a_plain_server_does_without_the_switch():
    network = Network([JobSpec(3, 16, plain=True)], pool=64)
    rows = tensors(3, 3200, np.int32, 1)
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert (rows == expected).all()
    stats = network.jobs[0].server.stats
    assert stats["merged_raw"] == stats["tx_packets"] == 3 * 101 and stats["merged_partial"] == 0
    assert network.fates(0) == {"passed": 3 * 101} | dict.fromkeys(
        ("claimed", "merged", "completed", "collided", "evicted", "taken"), 0)


def test_workers_move_to_aggregators_that_are_free():
    """Two jobs whose slots collide at first; after some rounds they have found places of their own."""
    network = Network([JobSpec(2, 8), JobSpec(2, 8)], pool=64)
    late = []
    for _ in range(12):
        before = [network.fates(job)["collided"] for job in (0, 1)]
        for job in (0, 1):
            network.submit(job, np.ones((2, 32 * 40), np.int32))
        network.run()
        late.append(sum(network.fates(job)["collided"] - b for job, b in zip((0, 1), before, strict=True)))
    assert sum(late) > 0 and late[-3:] == [0, 0, 0], late
    indices = [{f[44:46] for w in job.workers for f in w.frames_to_send(0)} for job in network.jobs]
    assert indices == [set(), set()]


# ---- numbers


@pytest.mark.parametrize("start", [2**31 - 20, 2**32 - 20, 2**40 - 20])
def test_packet_numbers_wrap(start):
    before = tensors(2, 2000, np.int32, 5)
    after = before.copy()
    network = Network([JobSpec(2, 2, options={"first_packet": start})], faults=FAULTS[2], seed=7)
    network.submit(0, after)
    all_done(network.run()[0], 1)
    check_sum(before, after, 32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("size", [1, 2, 300])
@pytest.mark.parametrize("exponent", [None, 0])
@pytest.mark.parametrize("faults", [FAULTS[0], FAULTS[2]])
def test_blocks_that_integers_cannot_carry_are_summed_as_floats(bad, size, exponent, faults):
    """The value alone has the IEEE 754 result; its neighbours have their sums."""
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, (3, size)).astype(np.float32)
    at = min(size - 1, 70)
    rows[1, at] = bad
    rows[2, at] = 0
    exact = rows.astype(np.float64).sum(axis=0).astype(np.float32)
    network = Network([JobSpec(3, 4, options=fixed_point(exponent))], faults=faults, seed=3)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert all(rows[0].tobytes() == row.tobytes() for row in rows)
    np.testing.assert_array_equal(rows[0][at], exact[at])
    np.testing.assert_allclose(rows[0], exact, atol=1e-6)
    assert all(w.stats["float_blocks"] == (size > 2) for w in network.jobs[0].workers), "small tensors: in the exact code"


def test_fixed_point_overflow_is_sent_again_as_floats():
    """One exponent for all blocks, one pass: most blocks fit; those that do not are found in the result."""
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (4, 32 * 50)).astype(np.float32)
    rows[:, 32 * 20 : 32 * 22] *= 1000
    exact = rows.astype(np.float64).sum(axis=0)
    network = Network([JobSpec(4, 16, options=fixed_point(0))], pool=256, faults=FAULTS[1], seed=1)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert [w.stats["float_blocks"] for w in network.jobs[0].workers] == [2] * 4
    bound = codec.error_bound(0, 4)
    assert (np.abs(rows[0] - exact) <= bound + np.abs(exact) * 2**-22).all()
    assert all(rows[0].tobytes() == row.tobytes() for row in rows)


@settings(max_examples=30, deadline=None)
@given(
    workers=st.integers(1, 6), size=sizes, exponent=st.integers(-10, 10), average=st.booleans(), faults=st.sampled_from(FAULTS),
    pool=st.sampled_from([1, 64]), leaves=st.sampled_from([0, 2]), seed=st.integers(0, 2**32),
)
def test_fixed_point_sums(workers, size, exponent, average, faults, pool, leaves, seed):
    """Any one exponent: blocks that fit are within its bound, others are summed as floats."""
    rng = np.random.default_rng(seed)
    before = (rng.standard_normal((workers, size)) * np.exp2(rng.integers(-12, 12, (workers, size)))).astype(np.float32)
    after = before.copy()
    network = Network([JobSpec(workers, 8, options=fixed_point(exponent))], pool=pool, leaves=leaves, faults=faults, seed=seed)
    network.submit(0, after, average=average)
    all_done(network.run()[0], 1)
    assert all(after[0].tobytes() == row.tobytes() for row in after)
    exact = before.astype(np.float64).sum(axis=0) / (workers if average else 1)
    bound = codec.error_bound(exponent, workers, average) + np.abs(before.astype(np.float64)).sum(axis=0) * 2**-22
    assert (np.abs(after[0] - exact) <= bound).all()


def test_averages():
    for exponent in (None, 2):
        rows = np.random.default_rng(2).standard_normal((3, 500)).astype(np.float32)
        rows[0, 77] = np.inf
        exact = rows.astype(np.float64).mean(axis=0)
        network = Network([JobSpec(3, 4, options=fixed_point(exponent))])
        network.submit(0, rows, average=True)
        all_done(network.run()[0], 1)
        assert rows[0, 77] == np.inf
        np.testing.assert_allclose(np.delete(rows[0], 77), np.delete(exact, 77), atol=1e-6)


def test_overflow_is_reported_wherever_it_happens():
    """The overflow is within the switch, at the server, or in one rack only."""
    for pool, leaves, plain in ((64, 0, False), (64, 0, True), (64, 2, False), (1, 2, False)):
        for value, overflow in ((2**30, True), (2**29, False), (-(2**30) - 1, True)):
            rows = np.zeros((4, 200), np.int32)
            rows[::2, 150] = value
            expected = rows.sum(axis=0, dtype=np.int32)
            network = Network([JobSpec(4, 8, plain)], pool=pool, leaves=leaves)
            network.submit(0, rows)
            (events,) = network.run()
            assert (rows == expected).all()
            assert [e[0].overflow for e in events] == [overflow] * 4


# ---- things that go wrong


@pytest.mark.parametrize("faults", FAULTS)
def test_mismatch_is_seen_on_every_rank(faults):
    network = Network([JobSpec(3)], faults=faults)
    network.submit(0, np.ones((3, 40), np.int32))
    for i, worker in enumerate(network.jobs[0].workers):
        worker.submit(np.zeros(100 + (i == 1), np.int32), now=0)
    for events in network.run()[0]:
        failed = [e for e in events if e.code]
        assert failed and all(isinstance(e.error(), JobMismatch) for e in failed)


@pytest.mark.parametrize("pool", [64, 1])
def test_deadline_names_who_is_missing(pool):
    network = Network([JobSpec(4, 8, options={"timeout": 0.02})], pool=pool)
    network.silent = {(0, 1), (0, 3)}
    network.submit(0, tensors(4, 1000, np.int32, 1))
    network.run()
    for i in (0, 2):
        (event,) = network.events[0][i]
        assert (event.slot, event.tsi, event.missing) == (0, 0, (1, 3))
        assert isinstance(event.error(0.02), JobTimeout)


def test_a_straggler_finds_the_others_at_the_server():
    """The early workers ask about the oldest number alone: its sum goes to the server, the others stay in the switch."""
    network = Network([JobSpec(4, 16)], pool=256)
    rows = tensors(4, 3200, np.int32, 1)
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows, only=[0, 1, 2])
    network.run(until=20_000 * US)
    early = network.jobs[0].workers[0].stats
    assert network.jobs[0].server.stats["merged_partial"] == 1
    assert early["pending_replies"] > 10 and early["retransmissions"] < 30 and early["waits_for"] == 0b1000
    start = network.now
    network.submit(0, rows, only=[3])
    all_done(network.run()[0], 1)
    assert (rows == expected).all()
    assert network.now - start < 600 * US and network.jobs[0].workers[0].stats["waits_for"] == 0


def test_a_result_lost_for_one_worker_is_sent_to_it_alone():
    network = Network([JobSpec(3, 16, options={"rto_min": 1e-3})], pool=4096)
    lost = []

    def lose(source, to, frame):
        hit = to == ("worker", 0, 1) and frame[42] >> 4 == 3 and frame[49:54] == bytes([0, 0, 0, 0, 5]) and not lost
        lost.extend([frame] * hit)
        return hit

    network.lose = lose
    rows = tensors(3, 3200, np.int32, 1)
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert (rows == expected).all() and lost
    assert [w.stats["retransmissions"] for w in network.jobs[0].workers] == [0, 1, 0]
    assert network.jobs[0].server.stats["repeated"] == 1
    assert [w.stats["duplicates"] for w in network.jobs[0].workers] == [0, 0, 0]


@pytest.mark.later
def test_ten_million_elements():
    """No number wraps, and the sum is exact."""
    count = 10**7
    network = Network([JobSpec(2, 256)], pool=1024, values=2048)
    base = np.arange(count, dtype=np.int64) * 2654435761
    rows = np.stack([base.astype(np.int32), (base * 3).astype(np.int32)])
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows)
    all_done(network.run()[0], 1)
    assert (rows == expected).all()


@pytest.mark.later
def test_worker_and_server_are_clean_under_sanitizers(tmp_path):
    """Exact-size buffers, lossy runs, wrong bytes."""
    need("sanitizers")
    sources = ["atp.c", "check.c", "keyed.c", "atp_frame.c", "ps.c", "slots.c", "offers.c", "route.c", "tensors.c",
               "internet.c", "rto.c", "codec.c", "lane.c", "halves.c"]
    run_c(tmp_path, "atp", sources, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
