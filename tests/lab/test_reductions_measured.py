"""All-reduces as experiments, by processes and in virtual time: checked, counted, and as fast as the wires allow."""

import select
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need
from waiting import until

from ina.base.settings import ConfigError
from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce, in_processes
from ina.lab.processes.crew import Crew
from ina.lab.training.launch import JobFailed, end

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.build
@pytest.mark.later
def test_reductions_by_processes_are_checked_and_counted():
    need("cc")
    reductions = in_processes(AllReduce(world="local", workers=2, jobs=2, elements=5000, values=32, loss=0.05, pool=64))
    assert [(r.job, r.workers, r.bytes, r.busiest_link) for r in reductions] == [("job 0", 2, 20000, ""), ("job 1", 2, 20000, "")]
    for reduction in reductions:
        summary = reduction.summary()
        assert summary["packets"] - summary["retransmissions"] >= 2 * 5000 // 32 and summary["retransmissions"] > 0
        assert summary["link_use"] is summary["link_mb"] is summary["ring_model_ms"] is None
    assert set(summary) == set(allreduce.reduce(AllReduce(elements=100, workers=2))[0].summary()), "one schema"


@pytest.mark.build
@pytest.mark.later
def test_a_worker_that_fails_is_named():
    need("cc")
    # The other one may be told of the end of the first before its own time-out.
    message = r"process \d \(pid \d+\) exited with status 1; its log ends:\n(.*\n)*.*(JobTimeout: Timed out|PeerLost: )"
    with pytest.raises(JobFailed, match=message):
        in_processes(AllReduce(world="local", workers=2, elements=50_000, values=32, loss=0.9, pool=64, timeout=0.5))


@pytest.mark.build
@pytest.mark.later
def test_processes_that_are_waited_for_say_where_they_are(tmp_path):
    code = """
import pathlib, sys, time
from ina.lab.training.launch import say_where_on_request
def in_the_way():
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(3600)
say_where_on_request()
if sys.argv[1] == "0":
    print("{}", flush=True)
in_the_way()
"""
    logs, marks = ([tmp_path / f"{number}.{end}" for number in range(2)] for end in ("log", "here"))
    crew = []
    try:
        for number, log in enumerate(logs):
            with log.open("wb") as errors:
                crew.append(subprocess.Popen([sys.executable, "-c", code, str(number), marks[number]], stdout=subprocess.PIPE,
                                             stderr=errors, text=True))
        expected = r"waited 0 s for processes 1 to be ready:\nprocess 1 \(pid \d+\) runs; its log ends:"
        until(lambda: all(mark.exists() for mark in marks), "both to be in the way")
        assert select.select([crew[0].stdout], [], [], 0)[0]
        with pytest.raises(JobFailed, match=expected) as caught:
            Crew(crew, logs).answers(0, "ready")
        assert "in in_the_way" in str(caught.value)
    finally:
        end(crew)
        for process in crew:
            process.stdout.close()


@pytest.mark.fast
@pytest.mark.parametrize(("key", "value"), [("algorithm", "ring"), ("stripes", 2), ("latency", 1e-6), ("ecn", 9000)])
def test_what_processes_cannot_do_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key} = {value!r}: expected .* in world = 'testbed'"):
        AllReduce(world="testbed", **{key: value})


# ---- virtual time ------------------------------------------------------------------------------------------------


@pytest.mark.build
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_reductions_are_deterministic_and_counted(dtype):
    need("cc")
    config = AllReduce(workers=3, jobs=2, elements=5000, values=32, loss=0.02, reorder=0.02, duplicate=0.02, dtype=dtype)
    first, again = allreduce.reduce(config), allreduce.reduce(config)
    assert first == again and [r.job for r in first] == ["job 0", "job 1"]
    other = allreduce.reduce(AllReduce(**{**config.as_dict(), "seed": 2}))
    assert other[0].stats["network"]["digest"] != first[0].stats["network"]["digest"]
    assert first[0].stats["workers"]["retransmissions"] > 0


@pytest.mark.build
def test_time_is_what_the_wires_allow():
    """Without faults a tensor takes its bytes at the rate of the wire, and a window below a round trip takes longer."""
    need("cc")
    config = AllReduce(workers=4, elements=256 * 1000, values=256, rate=10e9, delay=1e-6, pool=64)
    (run,) = allreduce.reduce(config)
    frame_bits = 8 * (14 + 20 + 8 + 8 + 2 + 4 * 256 + 24)
    assert run.seconds == pytest.approx(1000 * frame_bits / 10e9, rel=0.02)
    assert 0.95 < run.link_use <= 1.0
    (narrow,) = allreduce.reduce(AllReduce(**{**config.as_dict(), "pool": 2}))
    assert narrow.seconds > 1.5 * run.seconds
    assert run.summary()["ring_model_ms"] == pytest.approx(6e3 * (8 * 1024e3 / 4 / 10e9 + 2e-6))


@pytest.mark.build
def test_the_whole_pool_is_used():
    """A window of 1024 slots, more than the program has by default: that many packets are under way at once."""
    need("cc")
    config = AllReduce(workers=2, elements=32 * 3000, values=32, delay=100e-6, pool=1024, rto_min=1e-3)
    (run,) = allreduce.reduce(config)
    assert run.seconds == pytest.approx(3 * 2e-4, rel=0.1), "3000 packets in three windows: three round trips"
    assert run.stats["workers"]["retransmissions"] == 0, "the switch holds what its links carry"


@pytest.mark.build
def test_a_wrong_sum_is_found(monkeypatch):
    need("cc")
    right = allreduce.expected
    monkeypatch.setattr(allreduce, "expected", lambda *arguments: (right(*arguments)[0] + 1, 0.0))
    with pytest.raises(allreduce.WrongSum, match="job 0: worker 0's result is off by 1"):
        allreduce.reduce(AllReduce(workers=2, elements=10, values=32))
