"""The baselines: exact sums on any fabric, times as their cost models say, losses recovered."""

import math

import numpy as np
import pytest
from capabilities import need
from hypothesis import given, settings
from hypothesis import strategies as st

from ina import topology as topologies
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.aggregation.worker.errors import JobAborted, RankTimeout
from ina.base import paths
from ina.net.ports import Faults
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
need("cc")
RATE, DELAY = 10e9, 1e-6


def wire_bytes(elements: int, values: int) -> int:
    """Returns bytes on the wire of a message of ``elements`` in packets of ``values``, without acknowledgements."""
    packets = -(-elements // values)
    return 4 * elements + packets * (collectives.HEADERS + ETHERNET_OVERHEAD)


@pytest.fixture(scope="module")
def program():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"})
    return Program(built.so_path)


def star(program, hosts, **options):
    return Fabric(program, topologies.load("star", hosts=hosts, rate=RATE, delay=DELAY, queue=0), **options)


def schedules(n):
    yield collectives.ring([range(n)])
    yield collectives.ring([range(n), range(n - 1, -1, -1)])
    yield collectives.ring([range(n)], slices=3)
    yield collectives.tree(n, slices=4)
    yield collectives.parameter_server(n, 1, slices=4)
    yield collectives.parameter_server(n, n, slices=2)
    yield collectives.byteps(n, [rank % 3 for rank in range(n)], slices=3)
    if n & (n - 1) == 0:
        yield collectives.halving_doubling(n)


def names(n):
    return [f"h{i + 1}" for i in range(n)]


def reduce_exactly(fabric, job, count, rng, dtype=np.int32, **options):
    if dtype == np.int32:
        arrays = [rng.integers(-(2**31), 2**31, count, np.int32) for _ in job.machines]
    else:
        arrays = [rng.integers(-1000, 1000, count).astype(np.float32) for _ in job.machines]
    expected = np.sum(arrays, axis=0, dtype=dtype)
    outcome = fabric.all_reduce(job, arrays, **options)
    outcome.raise_failed()
    assert len(outcome.completions) == len(job.machines)
    for array in arrays:
        np.testing.assert_array_equal(array, expected)
    fabric.check()
    return outcome


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_every_schedule_adds_exactly(program, n):
    rng = np.random.default_rng(n)
    for schedule in schedules(n):
        with star(program, n) as fabric:
            job = fabric.collective(names(n), schedule, 32)
            for count in (1, 7, 5000):
                for dtype in (np.int32, np.float32):
                    reduce_exactly(fabric, job, count, rng, dtype)
            assert sum(fabric.collective_stats(machine)["retransmissions"] for machine in job.machines) == 0


@pytest.mark.parametrize("name", ["leaf-spine", "fat-tree", "topoopt"])
def test_they_run_on_any_topology(program, name):
    topology = topologies.load(name, rate=RATE, delay=DELAY)
    for schedule in schedules(8):
        with Fabric(program, topology) as fabric:
            job = fabric.collective(names(8), schedule, 256)
            reduce_exactly(fabric, job, 10_000, np.random.default_rng(1))


@pytest.mark.parametrize("congestion", [collectives.IDEAL, collectives.DCTCP])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_losses_are_recovered(program, rate, congestion):
    faults = Faults(rate, rate, rate, 0, 50e-6, 10e-6)
    for seed, schedule in enumerate(schedules(4)):
        with star(program, 4, faults=faults, seed=seed) as fabric:
            job = fabric.collective(names(4), schedule, 32, rto=50e-6, congestion=congestion, window=16)
            reduce_exactly(fabric, job, 9000, np.random.default_rng(1))
            assert sum(fabric.collective_stats(machine)["retransmissions"] for machine in job.machines) > 0


def test_late_ranks_and_many_tensors_in_flight(program):
    """Ranks that begin late find what came early; tensors are reduced in order."""
    rng = np.random.default_rng(5)
    for schedule in schedules(4):
        with star(program, 4) as fabric:
            job = fabric.collective(names(4), schedule, 32, window=8, rto=20e-6)
            sent, expected = {}, {}
            for round_ in range(12):
                arrays = [rng.integers(-99, 99, 50 + 300 * (round_ % 3)).astype(np.int32) for _ in range(4)]
                total = np.sum(arrays, axis=0, dtype=np.int32)
                for rank, machine in enumerate(job.machines):
                    ticket = fabric.submit(machine, arrays[rank], at=(rank * 77 + round_ * 3) * 10**6)
                    sent[ticket], expected[ticket] = arrays[rank], total
            assert fabric.run()
            done = fabric.completions()
            assert len(done) == 48
            for completion in done:
                np.testing.assert_array_equal(sent[completion.ticket], expected[completion.ticket])
            fabric.check()


def latency(values, hops=2):
    """One way through a star: two serialisations beyond the first, two delays; and the acknowledgement's way back."""
    frame = 8 * (wire_bytes(values, values)) / RATE
    return hops * DELAY + (hops - 1) * frame


@pytest.mark.parametrize("n", [2, 4, 8])
def test_ring_costs_what_its_model_says(program, n):
    """2(n-1) steps of S/n and one latency each."""
    count, values = n * 256 * 60, 256
    with star(program, n) as fabric:
        job = fabric.collective(names(n), collectives.ring([range(n)]), values)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        step = 8 * wire_bytes(count // n, values) / RATE + latency(values)
        assert outcome.seconds == pytest.approx(2 * (n - 1) * step, rel=0.05)
        data = 2 * (n - 1) * wire_bytes(count // n, values)
        for traffic in fabric.links():
            assert data < traffic.bytes < 1.05 * data, "and acknowledgements"


@pytest.mark.parametrize("delay", [1e-6, 50e-6])
def test_a_ring_in_slices_hides_the_latency(program, delay):
    """2(n-1)/n S while a step lasts longer than the latency; else 2(n-1) latencies."""
    n, values = 8, 256
    count = n * 256 * 64
    topology = topologies.load("star", hosts=n, rate=RATE, delay=delay, queue=0)
    with Fabric(program, topology) as fabric:
        job = fabric.collective(names(n), collectives.ring([range(n)], slices=16), values, window=512)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        slice_ = 8 * wire_bytes(count // n // 16, values) / RATE
        busy = 2 * (n - 1) * 16 * slice_
        waits = 2 * (n - 1) * (2 * delay + 2 * slice_)
        assert outcome.seconds == pytest.approx(max(busy, waits), rel=0.1)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_halving_doubling_costs_what_its_model_says(program, n):
    """2(n-1)/n S, in 2 log2(n) steps."""
    count, values = n * 256 * 60, 256
    with star(program, n) as fabric:
        job = fabric.collective(names(n), collectives.halving_doubling(n), values)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        moved = 2 * 8 * wire_bytes(count // n, values) * (n - 1) / RATE
        assert outcome.seconds == pytest.approx(moved + 2 * math.log2(n) * latency(values), rel=0.07)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_parameter_servers_cost_what_their_model_says(program, n):
    """One server's NIC takes n-1 tensors and gives n-1 back meanwhile; if all ranks serve, the load is that of a ring."""
    count, values = n * 256 * 64, 256
    with star(program, n) as fabric:
        job = fabric.collective(names(n), collectives.parameter_server(n, 1, slices=64), values)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        assert outcome.seconds == pytest.approx((n - 1) * 8 * wire_bytes(count, values) / RATE, rel=0.15)
    with star(program, n) as fabric:
        job = fabric.collective(names(n), collectives.parameter_server(n, n, slices=16), values)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        assert outcome.seconds == pytest.approx(2 * (n - 1) / n * 8 * wire_bytes(count, values) / RATE, rel=0.25)


@pytest.mark.parametrize("k", [0, 4, 8])
def test_byteps_costs_what_its_paper_says_and_every_link_carries_its_part(program, k):
    """Jiang et al., OSDI 2020, Theorem 1: loads and time of the least time; the bytes of all links follow from the loads."""
    n, values, slices = 8, 1024, 128
    whole = n * n + k * n - 2 * k
    scale = 2816 // whole  # packets
    gpu, cpu, packets = (n - k) * scale, 2 * (n - 1) * scale, whole * scale
    schedule = collectives.byteps(n, [gpu] * n + [cpu] * k, slices)
    with star(program, n + k, nic=32768, max_frame=8192) as fabric:
        job = fabric.collective(names(n + k), schedule, values, window=16)
        rng = np.random.default_rng(k)
        arrays = [rng.integers(-(2**31), 2**31, packets * values, np.int32) if rank < n else np.zeros(packets * values, np.int32)
                  for rank in range(n + k)]
        right = np.sum(arrays, axis=0, dtype=np.int32)
        outcome = fabric.all_reduce(job, arrays)
        outcome.raise_failed()
        fabric.check()
        for array in arrays[:n]:
            np.testing.assert_array_equal(array, right)
        acknowledgement = collectives.HEADERS + 16 + ETHERNET_OVERHEAD
        for traffic in fabric.links():
            host = traffic.source if traffic.target == "s1" else traffic.target
            data = n * cpu if host in names(n + k)[n:] else packets + (n - 2) * gpu  # both ways
            own = data * wire_bytes(values, values) + (traffic.packets - data) * acknowledgement
            assert traffic.bytes == own and data < traffic.packets < 1.6 * data, traffic.name
        published = 2 * n * (n - 1) / whole * 8 * wire_bytes(packets * values, values) / RATE
        assert published < outcome.seconds < 1.03 * published


def test_a_tree_costs_what_its_model_says(program):
    """An inner rank receives 2 S and passes on S upwards, and S and 2 S downwards."""
    count, values = 256 * 640, 256
    with star(program, 7) as fabric:
        job = fabric.collective(names(7), collectives.tree(7, slices=64), values)
        outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
        assert outcome.seconds == pytest.approx(3 * 8 * wire_bytes(count, values) / RATE, rel=0.15)


def test_an_all_to_all_takes_what_its_bytes_last_however_many_packets_wait(program):
    """More packets wait at each NIC, and then at the switch, than any table of fixed size had places for: without a limit nothing
    is dropped or sent again, every wire is busy from the first packet to the last, and the time is the closed form's."""
    n, window = 16, 1024
    with star(program, n) as fabric:
        job = fabric.collective(names(n), collectives.all_to_all(n), 32, window=window, bare=True)
        source = np.zeros(n * n * window * 32, np.int32)
        tickets = [ticket for rank in range(n) for ticket in fabric.submit_one(job, rank, source)]
        assert fabric.run()
        done = fabric.completions()
        fabric.check()
        assert len(done) == len(tickets) and fabric.drops() == {}
        assert all(fabric.collective_stats(machine)["retransmissions"] == 0 for machine in job.machines)
        from_hosts = [traffic for traffic in fabric.links() if traffic.source != "s1"]
        assert min(traffic.max_queue for traffic in from_hosts) > 14_000 * wire_bytes(32, 32)
        last = max(wire_bytes(32, 32), 8 * 84)  # bytes that cross the second wire when the first has carried everything
        at_least = 8 * max(traffic.bytes for traffic in from_hosts) / RATE + 2 * DELAY
        assert at_least <= done[-1].time / 1e12 <= at_least + 8 * last / RATE


def test_held_back_hosts_send_the_same_in_the_same_time_from_less_memory(program):
    """NICs with room for 16 packets keep the wires as busy, and a hundredth of the frames exist at once."""
    results = []
    for nic in (0, 16 * 300):
        with star(program, 8, nic=nic) as fabric:
            job = fabric.collective(names(8), collectives.all_to_all(8), 32, window=512, bare=True)
            source = np.zeros(8 * 8 * 512 * 32, np.int32)
            for rank in range(8):
                fabric.submit_one(job, rank, source)
            assert fabric.run()
            fabric.check()
            assert fabric.drops() == {}
            stats = fabric.stats()
            results.append((max(c.time for c in fabric.completions()), stats["most_frames"]))
            assert (stats["nic_held"] > 0) == (nic > 0)
    (free, frames), (limited, fewer) = results
    assert limited == pytest.approx(free, rel=0.02) and fewer < frames / 10


def test_two_rings_use_both_directions_of_topoopt(program):
    """A ring and its reverse on circuits of their own take half the time of one ring."""
    topology = topologies.load("topoopt", servers=8, degree=2, rate=RATE, delay=DELAY)
    seconds = []
    for orders in ([range(8)], [range(8), range(7, -1, -1)]):
        with Fabric(program, topology) as fabric:
            job = fabric.collective(names(8), collectives.ring(orders), 256)
            seconds.append(reduce_exactly(fabric, job, 8 * 256 * 100, np.random.default_rng(0)).seconds)
    assert seconds[0] / seconds[1] == pytest.approx(2, rel=0.1)


def test_dctcp_keeps_an_incast_queue_short(program):
    """Seven senders to one: the queue stays near the threshold, the link stays busy."""
    ecn, values, count = 30_000, 256, 256 * 2000
    queues, seconds = {}, {}
    for congestion in (collectives.IDEAL, collectives.DCTCP):
        with star(program, 8, ecn=ecn) as fabric:
            job = fabric.collective(names(8), collectives.parameter_server(8, 1, slices=500), values, window=64,
                                    congestion=congestion)
            outcome = reduce_exactly(fabric, job, count, np.random.default_rng(0))
            down = next(traffic for traffic in fabric.links() if traffic.name == "s1>h1")
            queues[congestion], seconds[congestion] = down.max_queue, outcome.seconds
            assert down.marked > 0
    assert queues[collectives.IDEAL] > 5 * ecn, "the test shows nothing"
    assert queues[collectives.DCTCP] < 0.6 * queues[collectives.IDEAL]
    assert seconds[collectives.DCTCP] < 1.1 * seconds[collectives.IDEAL]


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(2, 7),
    index=st.integers(0, 6),
    window=st.sampled_from([1, 2, 5, 64]),
    counts=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    rate=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 1000),
)
def test_any_collective_is_exact(program, n, index, window, counts, rate, seed):
    schedule = list(schedules(n))[index]
    with star(program, n, faults=Faults(rate, rate, rate, 0, 50e-6, 10e-6), seed=seed) as fabric:
        job = fabric.collective(names(n), schedule, 32, window=window, rto=30e-6)
        rng = np.random.default_rng(seed)
        for count in counts:
            reduce_exactly(fabric, job, count, rng, starts=rng.integers(0, 10**8, n).tolist())


def test_what_does_not_fit_is_said(program):
    with pytest.raises(ValueError, match="power of two"):
        collectives.halving_doubling(6)
    with pytest.raises(ValueError, match="servers"):
        collectives.parameter_server(4, 5)
    with star(program, 3) as fabric, pytest.raises(ValueError, match="expected 4"):
        fabric.collective(names(3), collectives.ring([range(4)]))


def test_a_rank_that_never_comes_fails_the_others_at_their_deadline(program):
    """And the run ends: nothing is left that would send again. Buffers are the caller's from then on."""
    for schedule in schedules(4):
        with star(program, 4) as fabric:
            job = fabric.collective(names(4), schedule, 32, timeout=5e-3)
            reduce_exactly(fabric, job, 900, np.random.default_rng(1))
            began, arrays = fabric.now, [np.ones(900, np.int32) for _ in range(3)]
            tickets = [fabric.submit_one(job, rank, array)[0] for rank, array in enumerate(arrays) for _ in range(2)]
            fabric.run()
            done = {each.ticket: each for each in fabric.completions()}
            waited = [done[ticket].event.error() for ticket in tickets if ticket in done]
            assert waited and all(isinstance(error, RankTimeout) for error in waited), schedule.name
            assert all("late, waits itself, or cannot be reached; its last packet came at 0.00" in str(error) for error in waited)
            assert any("waits for rank 3, which is late" in str(error) for error in waited), "its neighbours'"
            assert all(0 <= each.time - began - 5 * 10**9 < 10**8 for each in done.values()), "5 ms after its turn"
            assert fabric.frames_held == 0 and fabric.submit_one(job, 0, arrays[0])
            fabric.run()
            (late,) = fabric.completions()
            with pytest.raises(JobAborted):
                late.raise_failed()


def test_a_rank_that_only_receives_has_time_from_the_first_packet_on(program):
    """It may wait for a message as long as its sender computes."""
    with star(program, 2) as fabric:
        job = fabric.collective(names(2), collectives.message(), 32, timeout=1e-3, bare=True)
        outcome = fabric.all_reduce(job, [np.zeros(64, np.int32) for _ in range(2)], starts=[20 * 10**9, 0])
        outcome.raise_failed()
        assert len(outcome.completions) == 2 and fabric.now > 20 * 10**9


@pytest.mark.parametrize("congestion", [collectives.IDEAL, collectives.DCTCP])
def test_packets_without_their_values_take_the_same_time_and_bytes(program, congestion):
    """The optional mode for scale: what is on the wire has its length, but no payload."""
    faults = Faults(0.01, 0.01, 0.01, 0, 50e-6, 10e-6)
    for schedule in schedules(4):
        results = []
        for bare in (False, True):
            with star(program, 4, faults=faults, ecn=20_000, seed=2) as fabric:
                job = fabric.collective(names(4), schedule, 256, bare=bare, rto=50e-6, congestion=congestion)
                outcome = fabric.all_reduce(job, [np.ones(30_000, np.int32) for _ in range(4)])
                fabric.check()
                results.append((outcome.seconds, [t.bytes for t in fabric.links()], fabric.stats()["events"]))
        assert results[0] == results[1]
