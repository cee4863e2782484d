"""The compiled switch program and the real worker in virtual time: exact sums under every kind of fault."""

import native_codec as codec
import numpy as np
import pytest
from capabilities import need
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ina.aggregation.worker.errors import JobMismatch, JobTimeout
from ina.base import paths
from ina.net.ports import Faults
from ina.worlds.virtual.fabric import Star
from ina.worlds.virtual.network import LAST, EndOfTime, Wire

pytestmark = pytest.mark.build
need("cc")
RTT = 5e-6


@pytest.fixture(scope="module")
def program():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"})
    return Program(built.so_path)


def faults(rate: float, seed: int = 1) -> Faults:
    """All kinds at once; duplicates come late by up to ten round trips."""
    return Faults(
        loss=rate,
        duplicate=rate,
        reorder=rate,
        corrupt=rate / 10,
        duplicate_delay=10 * RTT,
        reorder_delay=2 * RTT,
        seed=seed,
    )


def star(program, rate: float = 0.0, seed: int = 1, **options) -> Star:
    wire = Wire(rate=10e9, delay=1e-6, faults=faults(rate, seed))
    return Star(program, up=wire, down=wire, pool=64, seed=seed, **options)


def admit(net: Star, workers: int, slots: int = 8, **options):
    return net.admit(workers, slots, 32, rto_min=20e-6, rto_max=1e-3, timeout=10.0, **options)


def random_int32(rng, count):
    return rng.integers(-(2**31), 2**31, count, dtype=np.int64).astype(np.int32)


def check_int32(net, job, rng, count):
    arrays = [random_int32(rng, count) for _ in job.machines]
    expected = np.sum(arrays, axis=0, dtype=np.int32)
    outcome = net.all_reduce(job, arrays)
    outcome.raise_failed()
    assert len(outcome.completions) == len(job.machines)
    for array in arrays:
        np.testing.assert_array_equal(array, expected)
    return outcome


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("workers", [1, 2, 5, 16])
def test_int32_is_exact_under_faults(program, workers, rate):
    with star(program, rate, seed=workers) as net:
        job = admit(net, workers)
        rng = np.random.default_rng(workers)
        for count in (1, 31, 1000, 20_000 // workers):
            check_int32(net, job, rng, count)
        stats = net.stats()
        assert stats["frames"] > 0
        if rate == 0.1:
            assert min(stats["lost"], stats["duplicated"], stats["reordered"], stats["corrupted"]) > 0
            assert sum(net.worker_stats(h)["retransmissions"] for h in job.machines) > 0


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.1])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_float32_is_within_the_bound_and_equal_on_all_ranks(program, workers, rate):
    with star(program, rate, seed=7) as net:
        job = admit(net, workers)
        rng = np.random.default_rng(3)
        for count in (2, 33, 5000):
            scale = np.exp2(rng.integers(-60, 60, -(-count // 32))).repeat(32)[:count]
            arrays = [(rng.standard_normal(count) * scale).astype(np.float32) for _ in job.machines]
            exact = np.sum([a.astype(np.float64) for a in arrays], axis=0)
            blocks = np.array(
                [codec.exponent(np.concatenate([a[i : i + 32] for a in arrays])) for i in range(0, count, 32)]
            )
            bound = np.array([codec.error_bound(int(e), workers) for e in blocks]).repeat(32)[:count]
            net.all_reduce(job, arrays).raise_failed()
            for array in arrays:
                np.testing.assert_array_equal(array, arrays[0])
                assert np.all(np.abs(array - exact) <= bound + np.abs(exact) * 2.0**-24)


@pytest.mark.later
def test_ten_million_elements(program):
    """10^7 and a few, in jumbo packets."""
    from ina.p4.compiler.build import compile_program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "2048", "SLOTS": "64"})
    wire = Wire(rate=100e9, delay=1e-6, faults=faults(0.001))
    with Star(built.so_path, up=wire, down=wire, pool=64) as net:
        job = net.admit(2, 32, 2048, rto_min=100e-6)
        check_int32(net, job, np.random.default_rng(0), 10_000_019)


def test_late_duplicates_are_dropped_as_stale(program):
    with star(program, 0.1, seed=2) as net:
        job = admit(net, 4, slots=2)
        check_int32(net, job, np.random.default_rng(0), 4000)
        drops = net.switch.counter("drops")
        assert drops[7][0] > 0, "no duplicate was late by two phases: the test shows nothing"


def test_nan_and_infinity_reach_every_rank(program):
    with star(program, 0.01) as net:
        job = admit(net, 3)
        arrays = [np.ones(320, np.float32) for _ in job.machines]
        arrays[1][40], arrays[2][200] = np.nan, -np.inf
        net.all_reduce(job, arrays).raise_failed()
        for array in arrays:
            bad = np.isnan(array).reshape(-1, 32)
            assert bad.all(1).tolist() == [i in (1, 6) for i in range(10)]
            assert np.all(array.reshape(-1, 32)[~bad.any(1)] == 3)


def test_many_tensors_in_flight_and_two_jobs_at_once(program):
    with star(program, 0.01, seed=5) as net:
        jobs = [admit(net, 3, slots=8), admit(net, 5, slots=4)]
        rng = np.random.default_rng(9)
        sent, expected = {}, {}
        for round_ in range(20):
            for job in jobs:
                count = int(rng.integers(1, 700))
                arrays = [random_int32(rng, count) for _ in job.machines]
                for host, array in zip(job.machines, arrays, strict=True):
                    sent[net.submit(host, array)] = array
                expected[id(job), round_] = np.sum(arrays, axis=0, dtype=np.int32)
                for array in arrays:
                    expected[id(array)] = expected[id(job), round_]
        assert net.run()
        done = net.completions()
        assert len(done) == 20 * 8
        for completion in done:
            assert completion.event.error() is None
            array = sent[completion.ticket]
            np.testing.assert_array_equal(array, expected[id(array)])


def test_two_runs_of_one_seed_are_equal_to_the_bit(program):
    def run(seed):
        with star(program, 0.05, seed=seed) as net:
            outcome = check_int32(net, admit(net, 4), np.random.default_rng(0), 3000)
            return net.stats(), outcome.seconds

    assert run(1) == run(1)
    assert run(1)[0]["digest"] != run(2)[0]["digest"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**20),
    workers=st.integers(1, 6),
    slots=st.sampled_from([1, 2, 8, 32]),
    rate=st.sampled_from([0.0, 0.03, 0.2]),
    counts=st.lists(st.integers(0, 900), min_size=1, max_size=5),
    starts=st.integers(0, 10**9),
)
def test_any_job_is_exact(program, seed, workers, slots, rate, counts, starts):
    with star(program, rate, seed=seed) as net:
        job = admit(net, workers, slots=slots)
        rng = np.random.default_rng(seed)
        for count in counts:
            arrays = [random_int32(rng, count) for _ in job.machines]
            expected = np.sum(arrays, axis=0, dtype=np.int32)
            outcome = net.all_reduce(job, arrays, starts=rng.integers(0, starts + 1, workers).tolist())
            outcome.raise_failed()
            for array in arrays:
                np.testing.assert_array_equal(array, expected)


def test_time_is_what_the_cost_model_says(program):
    """S up and S down at line rate, once the window covers the round trip."""
    rate, delay, count = 10e9, 1e-6, 32 * 20_000
    wire = Wire(rate=rate, delay=delay)
    with Star(program, up=wire, down=wire, pool=64) as net:
        job = net.admit(4, 64, 32, rto_min=1e-3)
        outcome = net.all_reduce(job, [np.ones(count, np.int32) for _ in range(4)])
        outcome.raise_failed()
        packets = count / 32
        wire_seconds = packets * 8 * (64 + 4 * 32 + 24) / rate
        assert outcome.seconds == pytest.approx(wire_seconds, rel=0.01)
        assert sum(net.worker_stats(h)["retransmissions"] for h in job.machines) == 0


def test_a_small_window_is_bound_by_the_round_trip(program):
    wire = Wire(rate=100e9, delay=10e-6)
    with Star(program, up=wire, down=wire, pool=64) as net:
        job = net.admit(2, 4, 32, rto_min=1e-3)
        outcome = net.all_reduce(job, [np.ones(32 * 400, np.int32) for _ in range(2)])
        assert outcome.seconds == pytest.approx(400 / 4 * 20e-6, rel=0.05)


def test_a_straggler_is_not_taken_for_loss(program):
    with star(program) as net:
        job = admit(net, 3, slots=8)
        arrays = [np.ones(1000, np.int32) for _ in job.machines]
        net.all_reduce(job, arrays, starts=[0, 0, 50 * 10**9]).raise_failed()  # 50 ms late: 10,000 round trips
        for host in job.machines[:2]:
            stats = net.worker_stats(host)
            assert stats["timeouts"] <= 8, "each slot asks once; then it knows that its packet is there"
            assert stats["probes"] <= 8 * 55, "and asks again once every rto_max (1 ms)"


def test_missing_worker_is_named_at_the_deadline(program):
    with star(program) as net:
        job = net.admit(3, 8, 32, rto_min=20e-6, rto_max=1e-3, timeout=0.05)
        for host in job.machines[:2]:
            net.submit(host, np.ones(1000, np.int32))
        net.run(until=10**12)
        done = net.completions()
        assert {c.machine for c in done} == set(job.machines[:2])
        for completion in done:
            error = completion.event.error()
            assert isinstance(error, JobTimeout)
            assert completion.event.missing == (2,)


def test_sizes_that_differ_fail_on_every_rank(program):
    with star(program) as net:
        job = admit(net, 3)
        for index, host in enumerate(job.machines):
            net.submit(host, np.ones(1000 + 64 * (index == 1), np.int32))
        net.run(until=10**12)
        done = net.completions()
        assert len(done) == 3
        assert all(isinstance(c.event.error(), JobMismatch) for c in done)


def test_planned_actions_happen_at_their_times_when_no_event_is_left(program):
    """One plans a sum, which is exact; one that only watches is left out when nothing else is, and happens when something is."""
    with star(program) as net:
        job, rng, times = admit(net, 2), np.random.default_rng(1), []
        net.plan(5000, lambda: times.append(net.now))
        net.plan(7000, lambda: times.append(net.now), watches=True)
        net.plan(9000, lambda: times.append(net.now))
        assert not net.run(3000) and (net.now, times) == (3000, [])
        assert not net.run(6000) and (net.now, times) == (6000, [5000])
        assert net.run() and times == [5000, 7000, 9000]
        net.plan(10_000, lambda: times.append(net.now), watches=True)
        net.plan(20_000, lambda: net.submit_all(job, [random_int32(rng, 64) for _ in range(2)]))
        assert net.run() and times[3:] == [10_000] and len(net.completions()) == 2
        net.plan(net.now + 1, lambda: times.append(net.now), watches=True)
        assert net.run() and len(times) == 4
        check_int32(net, job, rng, 100)
        assert len(times) == 5


def test_an_action_comes_behind_the_events_of_its_time_in_runs_of_any_length(program):
    """Two workers' results come at one time, for which an action is planned; one that is late at once, when nothing is left."""
    def run(action_at: int | None, most: int) -> tuple[int, list[int]]:
        with star(program) as net:
            job, rng, events = admit(net, 2), np.random.default_rng(1), []
            net.submit_all(job, [random_int32(rng, 64) for _ in range(2)])
            if action_at is not None:
                net.plan(action_at, lambda: events.append(net.events))
            while not net.run(max_events=most):
                pass
            (first, second) = net.completions()
            assert first.time == second.time
            net.plan(-1, lambda: events.append(net.now))
            assert net.run()
            return first.time, events

    end, _ = run(None, 10**6)
    whole = run(end, 10**6)
    assert [run(end, most) for most in (1, 2, 3, 7)] == [whole] * 4


def test_a_run_that_stops_at_completions_does_nothing_planned_for_their_time(program):
    """Completions are read first, and may change what an action of that time finds: at a time of its own, at one
    that is over, and where only the second of two completions has been waited for."""
    with star(program) as net:
        job, rng, times = admit(net, 2), np.random.default_rng(1), []
        net.submit_all(job, [random_int32(rng, 64) for _ in range(2)])
        assert net.run()
        end = net.completions()[0].time
    with star(program) as net:
        job = admit(net, 2)
        net.stop_at_completions()
        net.submit_all(job, [random_int32(np.random.default_rng(1), 64) for _ in range(2)])
        for at in (end - 1, end, 0):
            net.plan(at, lambda: times.append(net.now))
        finished = 0
        while finished < 2:
            assert not net.run() and not net.run() and times == [0, end - 1]
            done = net.completions()
            finished += len(done)
            assert done and {each.time for each in done} == {end}
        assert net.run() and times == [0, end - 1, end]


def test_a_time_that_the_emulator_does_not_have_is_said_to_be_none(program):
    with star(program) as net:
        job = admit(net, 2)
        for late in (lambda: net.plan(LAST + 1, list), lambda: net.submit(job.machines[0], np.zeros(4, np.int32), at=2**64)):
            with pytest.raises(EndOfTime, match=r"virtual time .* s: expected at most 9.223e\+06 s, .* have fewer steps"):
                late()
        net.plan(LAST, lambda: None)
        assert net.run() and net.now == LAST
