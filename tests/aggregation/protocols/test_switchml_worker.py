"""The SwitchML worker against a plain model of the switch, on an event clock with seeded faults."""

import subprocess
from pathlib import Path

import child
import native_codec as codec
import numpy as np
import pytest
from c_program import INCLUDES, host_source
from capabilities import need
from hypothesis import given, settings
from hypothesis import strategies as st
from model_network import DELAY, US, Faults, Network

from ina.aggregation import protocols
from ina.aggregation.worker import JobAborted, JobMismatch, JobTimeout, Worker, WorkerConfig, slots_for

FAULTS = [
    Faults(),
    Faults(loss=0.01, duplicate=0.01, reorder=0.01),
    Faults(loss=0.1, duplicate=0.1, reorder=0.1),
    Faults(duplicate=0.5, reorder=0.5),
]


def tensors(workers: int, count: int, dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == np.int32:
        return rng.integers(-(2**31), 2**31, (workers, count)).astype(np.int32)
    return (rng.standard_normal((workers, count)) * np.exp2(rng.integers(-20, 20, (workers, 1)))).astype(np.float32)


def reduce(network: Network, rows: np.ndarray, average: bool = False, **kw) -> None:
    for worker, row in zip(network.workers, rows, strict=True):
        worker.submit(row, average=average, now=network.now, **kw)


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


def all_done(network: Network, count: int) -> None:
    for events in network.run():
        assert [e.code for e in events] == [0] * count


sizes = st.one_of(st.integers(0, 400), st.sampled_from([1, 2, 29, 30, 31, 32, 33, 127, 128, 129, 4095, 5001]))


@pytest.mark.fast
@settings(max_examples=60, deadline=None)
@given(
    workers=st.integers(1, 16), size=sizes, dtype=st.sampled_from([np.int32, np.float32]), average=st.booleans(),
    faults=st.sampled_from(FAULTS), slots=st.sampled_from([1, 2, 8, 64, 256]), values=st.sampled_from([32, 64, 256]),
    in_place=st.booleans(), seed=st.integers(0, 2**32),
)
def test_sums(workers, size, dtype, average, faults, slots, values, in_place, seed):
    average = average and dtype == np.float32
    before = tensors(workers, size, dtype, seed)
    after = before.copy()
    network = Network(workers, faults, seed, slots=slots, values=values, reply_in_place=in_place)
    reduce(network, after, average)
    all_done(network, 1)
    check_sum(before, after, values, average)


@pytest.mark.fast
@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(1, 16), size=sizes, faults=st.sampled_from(FAULTS), slots=st.sampled_from([1, 2, 8, 64]),
    values=st.sampled_from([32, 256]), seed=st.integers(0, 2**32),
)
def test_maxima(workers, size, faults, slots, values, seed):
    """Maxima between sums, in the same slots."""
    rows = [tensors(workers, size, np.int32, seed + i) for i in range(3)]
    before = [each.copy() for each in rows]
    network = Network(workers, faults, seed=seed, slots=slots, values=values)
    for number, each in enumerate(rows):
        reduce(network, each, reduction=protocols.MAX if number == 1 else protocols.SUM)
    all_done(network, 3)
    for number in (0, 2):
        check_sum(before[number], rows[number], values)
    assert (rows[1] == before[1].max(axis=0)).all()
    assert all(worker.stats["overflows"] == network.workers[0].stats["overflows"] for worker in network.workers)


@pytest.mark.fast
@pytest.mark.parametrize("values", [128, 1024, 2048])
def test_large_frames_and_long_tensors(values):
    for dtype in (np.int32, np.float32):
        before = tensors(2, 20011, dtype, values)
        after = before.copy()
        network = Network(2, FAULTS[1], 3, values=values, slots=4)
        reduce(network, after)
        all_done(network, 1)
        check_sum(before, after, values)


@pytest.mark.fast
@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 5), st.sampled_from(FAULTS), st.sampled_from([1, 4, 32]), st.integers(0, 2**32))
def test_many_tensors_in_flight(data, workers, faults, slots, seed):
    """Tensors in place or not, mixed types and sizes, submitted while others are in flight, workers skewed in time."""
    network = Network(workers, faults, seed, slots=slots, reply_in_place=data.draw(st.booleans()))
    plan = data.draw(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=64))
    before = [tensors(workers, n, np.float32 if f else np.int32, seed + i) for i, (n, f) in enumerate(plan)]
    outs = [b.copy() if data.draw(st.booleans()) else np.zeros_like(b) for b in before]
    inputs = [o if o.any() else b for o, b in zip(outs, before, strict=True)]
    for i, worker in enumerate(network.workers):
        for tag, (source, out) in enumerate(zip(inputs, outs, strict=True)):
            worker.submit(source[i], out[i], tag=tag, now=network.now)
        network.run(until=network.now + data.draw(st.integers(0, 300)) * US)
    for events in network.run():
        assert sorted(e.handle for e in events) == list(range(len(plan)))
    for b, o in zip(before, outs, strict=True):
        check_sum(b, o, 32)


@pytest.mark.fast
def test_handles_are_lent_again():
    network = Network(2)
    for i in range(200):
        rows = tensors(2, 50, np.int32, i)
        expected = rows.sum(axis=0, dtype=np.int32)
        reduce(network, rows)
        network.run()
        assert (rows == expected).all()
    assert [e.handle for e in network.events[0]] == [i % 64 for i in range(200)]
    for _ in range(64):
        network.workers[0].submit(np.zeros(1, np.int32), now=network.now)
    with pytest.raises(BlockingIOError, match="64 tensors in flight"):
        network.workers[0].submit(np.zeros(1, np.int32), now=network.now)


@pytest.mark.fast
def test_one_packet_for_a_small_tensor():
    for count, dtype in ((0, np.int32), (29, np.int32), (2, np.float32)):
        network = Network(3)
        reduce(network, tensors(3, count, dtype, 1))
        all_done(network, 1)
        assert [w.stats["tx_packets"] for w in network.workers] == [1] * 3
        assert network.now == 2 * DELAY


@pytest.mark.fast
def test_round_trips_of_a_large_tensor():
    """float32: exponents once, a window ahead; then one round trip per window. int32: none ahead."""
    for dtype, trips in ((np.float32, 1 + 8), (np.int32, 1 + 8)):
        network = Network(2, slots=8, values=32)
        reduce(network, tensors(2, 64 * 32, dtype, 1))
        all_done(network, 1)
        assert network.now == trips * 2 * DELAY
        assert network.workers[0].stats["retransmissions"] == 0


@pytest.mark.fast
def test_tsi_wraps():
    before = tensors(2, 2000, np.int32, 5)
    after = before.copy()
    network = Network(2, FAULTS[2], 7, slots=2, first_packet=2**32 - 21)
    reduce(network, after)
    all_done(network, 1)
    assert (after == before.sum(axis=0, dtype=np.int32)).all()
    assert all(row.tsi < 100 for row in network.switch.rows.values())


@pytest.mark.fast
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 2, 300])
def test_nonfinite_blocks_are_nan_on_every_rank_and_small_tensors_exact(bad, size):
    rows = tensors(3, size, np.float32, 1)
    before = rows.copy()
    at = min(size - 1, 70)
    rows[1, at] = bad
    network = Network(3, FAULTS[2], 1)
    reduce(network, rows)
    all_done(network, 1)
    block = ~np.isfinite(rows[0])
    if size < 3:  # in the exact code: the value itself, and no other
        np.testing.assert_equal(rows[0][at], np.float32(bad))
        assert block.sum() == 1
    else:
        assert np.isnan(rows[0][at]) and np.isnan(rows[0][block]).all() and block.sum() == 32
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)
    np.testing.assert_allclose(rows[0][~block], before.sum(axis=0)[~block], atol=1e-3)
    assert [w.stats["nonfinite_blocks"] for w in network.workers] == [1] * 3


@pytest.mark.fast
def test_zeros_denormals_and_huge_values():
    rows = np.zeros((2, 96), np.float32)
    rows[:, :32] = 2.0**-140
    rows[:, 64:] = 2.0**126
    network = Network(2)
    reduce(network, rows)
    all_done(network, 1)
    assert (rows[:, :64] == 0).all() and (rows[:, 64:] == np.float32(2.0**127)).all()


@pytest.mark.fast
@pytest.mark.parametrize("size", [3, 100])
def test_overflow_is_reported(size):
    for value, overflow in ((2**30, True), (2**29, False), (-(2**30) - 1, True)):
        rows = np.zeros((2, size), np.int32)
        rows[:, size - 1] = value
        expected = rows.sum(axis=0, dtype=np.int32)
        network = Network(2)
        reduce(network, rows)
        all_done(network, 1)
        assert (rows == expected).all()
        assert [e[0].overflow for e in network.events] == [overflow] * 2


@pytest.mark.fast
def test_float_sums_never_report_overflow():
    network = Network(16, Faults())
    reduce(network, np.full((16, 70), -3e38, np.float32))
    reduce(network, np.full((16, 2), 3e38, np.float32))
    for events in network.run():
        assert [e.overflow for e in events] == [False, False]


MISMATCHES = {
    "size": lambda i: (np.zeros(100 + (i == 1), np.int32), {}),
    "inline and not": lambda i: (np.zeros(100 if i == 1 else 3, np.int32), {}),
    "dtype": lambda i: (np.zeros(100, np.float32 if i == 1 else np.int32), {}),
    "average": lambda i: (np.zeros(100, np.float32), {"average": i == 1}),
    "order": lambda i: (np.zeros(100, np.float32), {"tag": int(i == 1)}),
    "sum and maximum": lambda i: (np.zeros(100, np.int32), {"reduction": protocols.MAX if i == 1 else protocols.SUM}),
    "small sum and maximum": lambda i: (np.zeros(2, np.int32), {"reduction": protocols.MAX if i == 1 else protocols.SUM}),
    "all different": lambda i: (np.zeros(100 + i, np.float32), {}),
    "two groups": lambda i: (np.zeros(100 + i % 2, np.float32), {}),
}


@pytest.mark.fast
@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("case", MISMATCHES)
@pytest.mark.parametrize("faults", FAULTS)
def test_mismatch_is_seen_on_every_rank(case, workers, faults):
    network = Network(workers, faults, seed=workers)
    first = np.ones((workers, 40), np.int32)
    reduce(network, first)
    for i, worker in enumerate(network.workers):
        array, options = MISMATCHES[case](i)
        worker.submit(array, now=0, **options)
        worker.submit(np.zeros(1000, np.int32), now=0)
    for events in network.run():
        # the tensor before it fails too where it still lacked a packet when the disagreement was seen
        failed = [e for e in events if e.code]
        assert [e.handle for e in failed] in ([1, 2], [1, 0, 2])
        if faults == Faults():
            assert [e.handle for e in events] == [0, 1, 2]
        for event in failed:
            assert isinstance(event.error(), JobMismatch) and "do not agree" in str(event.error())
    with pytest.raises(BrokenPipeError):
        network.workers[0].submit(np.zeros(1, np.int32))


@pytest.mark.fast
def test_deadline_names_who_is_missing():
    network = Network(4, timeout=0.05, slots=8)
    network.deaf = {1, 3}
    reduce(network, tensors(4, 1000, np.int32, 1))
    network.run()
    for i in (0, 2):
        (event,) = network.events[i]
        assert (event.slot, event.tsi, event.missing) == (0, 0, (1, 3))
        assert 0 < event.last_rx <= 0.05e12
        error = event.error(0.05)
        assert isinstance(error, JobTimeout) and isinstance(error, TimeoutError)
        for text in ("slot 0", "(tsi) 0", "worker 1, 3", "0.05 s", "last packet"):
            assert text in str(error)
    assert abs(network.now - 0.05e12) < 1e9


@pytest.mark.fast
def test_who_waits_says_for_whom_until_a_result_comes():
    network = Network(4, timeout=10.0, slots=8)
    network.deaf = {1, 3}
    reduce(network, tensors(4, 1000, np.int32, 1))
    network.run(until=0.02e12)
    assert [worker.stats["waits_for"] for worker in network.workers] == [0b1010, 0, 0b1010, 0]
    network.deaf = set()
    network.run()
    assert all(worker.stats["results"] and not worker.stats["waits_for"] for worker in network.workers)


@pytest.mark.fast
def test_deadline_when_nothing_answers():
    network = Network(2, Faults(loss=1.0), timeout=0.02)
    reduce(network, tensors(2, 10, np.float32, 1))
    for (event,) in network.run():
        assert event.missing is None and event.last_rx == 0
        assert "never answered" in str(event.error())


@pytest.mark.fast
def test_deadline_starts_with_the_first_packet_not_with_submit():
    """A queue of tensors, each of which takes most of the deadline."""
    network = Network(2, slots=1, values=32, timeout=1.5 * 100 * 2 * DELAY / 1e12)
    for _ in range(5):
        reduce(network, np.zeros((2, 100 * 32), np.int32))
    all_done(network, 5)


@pytest.mark.fast
def test_waiting_for_a_straggler_is_slow_and_not_loss():
    network = Network(2, slots=64, values=32, rto_max=0.01)
    late, early = network.workers
    rows = tensors(2, 20000, np.int32, 1)
    expected = rows.sum(axis=0, dtype=np.int32)
    early.submit(rows[1], now=0)
    network.run(until=10**12)
    stats = early.stats
    assert stats["timeouts"] == stats["fast_resends"] == stats["spurious"] == 0
    assert 99 < stats["probes"] == stats["retransmissions"] < 115, "doubling intervals, then one probe per rto_max"
    late.submit(rows[0], now=network.now)
    start = network.now
    all_done(network, 1)
    assert (rows == expected).all()
    assert network.now - start < 30 * 2 * DELAY, "and it is there at once when the straggler comes"


@pytest.mark.fast
def test_results_lost_to_one_worker_come_again():
    """The multicast result is lost on its way to a worker with a pending reply."""
    network = Network(2, Faults(loss=0.3), seed=3, slots=32, rto_max=0.1)
    rows = tensors(2, 3000, np.float32, 1)
    network.workers[0].submit(rows[0], now=0)
    network.run(until=5 * 10**10)
    network.workers[1].submit(rows[1], now=network.now)
    start = network.now
    all_done(network, 1)
    assert network.now - start < 0.05e12


@pytest.mark.fast
def test_rto_follows_the_round_trip():
    network = Network(2, slots=4, rto_min=1e-6, rto_max=1.0)
    reduce(network, tensors(2, 5000, np.int32, 1))
    all_done(network, 1)
    stats = network.workers[0].stats
    assert abs(stats["srtt_ps"] - 2 * DELAY) < DELAY
    assert 2 * DELAY <= stats["rto_ps"] <= 8 * DELAY, "three round trips, and how much too short the first RTO was"
    assert stats["retransmissions"] == stats["spurious"] < 5


@pytest.mark.fast
def test_back_off_is_exponential_and_ends_at_rto_max():
    worker = Worker(WorkerConfig(0, 2, life=1, rto_min=1e-3, rto_max=0.064, timeout=10))
    worker.submit(np.zeros(1, np.int32), now=0)
    times = [0]
    worker.frames_to_send(0)
    while (timer := worker.next_timer()) < 10**12:
        assert len(worker.frames_to_send(timer - 1)) == 0
        assert len(worker.frames_to_send(timer)) == 1
        times.append(timer)
    gaps = np.diff(times) // 10**9
    assert gaps[:6].tolist() == [4, 8, 16, 32, 64, 64]


@pytest.mark.fast
def test_abort():
    network = Network(2)
    reduce(network, tensors(2, 100, np.int32, 1))
    network.workers[0].submit(np.zeros(5, np.int32), now=0)
    network.workers[0].abort(0)
    events = network.workers[0].events()
    assert [type(e.error()) for e in events] == [JobAborted, JobAborted]
    assert network.workers[0].next_timer() is None and network.workers[0].frames_to_send(0) == []


# MAC, tos, ttl, identification, don't-fragment bit and checksums are not the worker's business
CHECKED = [12, 13, 14, 16, 17, 21, 23, *range(26, 40), 42, 43, *range(44, 64)]


@pytest.mark.fast
def test_every_checked_bit_matters():
    worker = Worker(WorkerConfig(0, 1, life=1, slots=4, values=32))
    switch = Network(1, slots=4, values=32).switch
    worker.submit(np.zeros(1000, np.int32), now=0)
    replies = [switch.process(0, frame)[0][1] for frame in worker.frames_to_send(0)]
    for reply in replies:
        for at in CHECKED:
            for bit in range(8):
                frame = bytearray(reply)
                frame[at] ^= 1 << bit
                worker.receive(bytes(frame), 1)
                assert worker.stats["results"] == 0, (at, bit)
        for length in (0, 41, 63, 64, len(reply) - 1):
            worker.receive(reply[:length], 1)
    assert worker.stats["results"] == 0
    for reply in replies:
        worker.receive(reply, 1)
    assert worker.stats["results"] == 4


@pytest.mark.build
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_are_dropped_and_counted(data):
    """Random bytes, and real replies with bytes changed, cut and grown: nothing but a result is taken for one."""
    config = WorkerConfig(0, 2, life=1, slots=2, values=32, reply_in_place=data.draw(st.booleans()))
    worker = Worker(config)
    network = Network(2, slots=2, values=32)
    tensor = np.zeros(100, np.float32)
    worker.submit(tensor, now=0)
    network.workers[1].submit(np.zeros(100, np.float32), now=0)
    replies = []
    for i, w in ((0, worker), (1, network.workers[1])):
        for frame in w.frames_to_send(0):
            replies += [f for to, f in network.switch.process(i, frame) if to == 0]
    assert len(replies) == 2
    before = worker.stats
    for n in range(data.draw(st.integers(1, 10))):
        frame = bytearray(data.draw(st.sampled_from(replies)))
        if data.draw(st.booleans()):
            frame = bytearray(data.draw(st.binary(max_size=200)))
        for at in data.draw(st.lists(st.sampled_from(CHECKED), max_size=3)):
            if at < len(frame):
                frame[at] ^= 1 << data.draw(st.integers(0, 7).filter(lambda b, at=at: (at, b) != (42, 3)))
        if data.draw(st.booleans()):
            frame = frame[: data.draw(st.integers(0, len(frame)))]
        untouched = bytes(frame[:64]) in {r[:64] for r in replies}
        if untouched:
            continue
        worker.receive(bytes(frame), n + 1)
    after = worker.stats
    reasons = ("drop_malformed", "drop_foreign", "drop_stale", "drop_corrupt", "drop_version", "duplicates")
    drops = sum(after[k] - before[k] for k in reasons)
    assert after["rx_packets"] == drops and after["results"] == 0
    for frame in replies:
        worker.receive(frame, 50)
    assert worker.stats["results"] == 2


@pytest.mark.fast
def test_state_is_a_value():
    """A snapshot taken at any time goes on to the same bytes."""
    worker = Worker(WorkerConfig(0, 1, life=1, slots=4, values=32, reply_in_place=True))
    network = Network(1, slots=4, values=32)
    source, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    worker.submit(source, out, now=0)
    frames = worker.frames_to_send(0)
    snapshot = worker.snapshot()

    def finish() -> list[bytes]:
        sent, queue = [], list(frames)
        while queue:
            for _, reply in network.switch.process(0, queue.pop(0)):
                if (answer := worker.receive(reply, 1)) is not None:
                    queue.append(answer)
                    sent.append(answer)
            queue += worker.frames_to_send(1)
        return sent

    once, state = finish(), worker.snapshot()
    worker.restore(snapshot)
    network.switch.rows.clear()
    assert finish() == once and worker.snapshot() == state
    np.testing.assert_allclose(out, source, atol=1e-6 * 1000)


@pytest.mark.fast
def test_explicit_time_outs():
    worker = Worker(WorkerConfig(0, 2, life=1, slots=2, values=32))
    assert not worker.expire(0, 0)
    worker.submit(np.zeros(100, np.int32), now=0)
    assert not worker.expire(0, 0), "not yet sent"
    first = worker.frames_to_send(0)
    behaviour = worker.behaviour()
    assert worker.expire(1, 0) and not worker.expire(2, 0)
    assert worker.frames_to_send(0) == first[1:]
    assert worker.behaviour() == behaviour


@pytest.mark.fast
@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"workers": 1025}, "workers: 1025"),
            ({"workers": 33, "protocol": "atp"}, "workers: 33"), ({"worker": 2}, "worker: 2"), ({"slots": 3}, "power of two"),
        ({"slots": 16384}, "slots: 16384"), ({"values": 100}, "values: 100"), ({"rto_min": 0}, "rto_min"),
        ({"timeout": 0}, "timeout"), ({"job": 256}, "job: 256"), ({"life": 0}, "life: 0"), ({"life": 65536}, "life: 65536"),
    ],
)
def test_configuration_is_checked(config, text):
    with pytest.raises(ValueError, match=text):
        WorkerConfig(**{"worker": 0, "workers": 2, "life": 1} | config)


@pytest.mark.fast
def test_no_worker_has_a_life_unless_it_is_told():
    """A default life made two runs one job to the switch."""
    with pytest.raises(TypeError, match="life"):
        WorkerConfig(0, 2)
    with pytest.raises(ValueError, match="the protocol refuses .*life=256"):
        Worker(WorkerConfig(0, 2, life=256))
    assert Worker(WorkerConfig(0, 2, life=256, protocol="atp")).config.life == 256
    config = WorkerConfig(0, 2, life=1).to_c()
    config.life = 0  # as C leaves what nobody sets
    assert protocols.named("switchml").state_size(config) == protocols.named("atp").state_size(config) == 0


@pytest.mark.fast
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda w: w.submit(np.zeros(4)), TypeError, "float64"),
        (lambda w: w.submit(np.zeros((4, 4), np.float32).T[::2]), ValueError, "contiguous"),
        (lambda w: w.submit(np.zeros(4, np.int32), average=True), ValueError, "average"),
        (lambda w: w.submit(np.zeros(4, np.float32), reduction=protocols.MAX), ValueError, "maximum: only of int32"),
        (lambda w: w.submit(np.zeros(4, np.int32), np.zeros(5, np.int32)), ValueError, "int32 x 4"),
        (lambda w: w.submit(np.zeros(4, np.int32), np.zeros(4, np.float32)), ValueError, "float32"),
    ],
)
def test_tensors_are_checked(call, error, text):
    with pytest.raises(error, match=text):
        call(Worker(WorkerConfig(0, 2, life=1)))


@pytest.mark.fast
def test_slots_cover_the_bandwidth_delay_product():
    for rate in (1e9, 10e9, 100e9):
        for rtt in (1e-6, 13e-6, 1e-4):
            slots = slots_for(rate, rtt, 308)
            assert slots & (slots - 1) == 0
            assert slots == 8192 or slots * 332 * 8 >= rate * rtt > slots / 2 * 332 * 8 or slots == 1
    assert slots_for(100e9, 10e-6, 308) == 512
    with pytest.raises(ValueError, match="must be positive"):
        slots_for(0, 1e-6, 308)


def run_c(folder: Path, test: str, sources: list[str], *flags: str) -> None:
    """Builds tests/c/<test>.c with files of host/, warnings being errors, and runs it."""
    files = [Path(__file__).parent.parent.parent / "c" / f"{test}.c", *(host_source(s) for s in sources)]
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
    command = ["cc", "-std=gnu11", "-O1", "-g", *warnings, *flags, *INCLUDES, *files, "-o", folder / test]
    subprocess.run([*command, "-lm", "-lpthread"], check=True)
    done = child.run([folder / test], child.TRAINING)
    assert done.returncode == 0, done.stderr


WORKER_SOURCES = ["switchml.c", "ahead.c", "route.c", "indices.c", "check.c", "keyed.c", "slots.c", "offers.c", "tensors.c",
                  "frame.c", "internet.c", "rto.c", "codec.c", "lane.c", "halves.c"]


@pytest.mark.build
@pytest.mark.later
def test_worker_and_codec_are_clean_under_sanitizers(tmp_path):
    """Exact-size buffers, lossy runs, wrong bytes."""
    need("cc", "sanitizers")
    run_c(tmp_path, "switchml", WORKER_SOURCES, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
