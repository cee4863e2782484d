"""`ina why` names the bottleneck of a run: runs with one bottleneck each."""

import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.lab import run
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.sharing import Sharing
from ina.lab.kinds.training import Run, Training
from ina.lab.kinds.workload import Workload
from ina.lab.results import why
from ina.lab.results.record import Result
from ina.lab.virtual import layers
from ina.lab.virtual.layers import Layer

pytestmark = pytest.mark.build
MS = 10**9  # ps


def explained(config) -> why.Finding:
    runs = config.measure()
    result = Result(None, config, {}, [r.summary() for r in runs], {}, [r.__dict__ for r in runs], True)
    finding, *others = why.explain(result)
    assert all(other.bound == finding.bound for other in others)
    return finding


def reduction(**keys):
    return explained(AllReduce(**{"workers": 4, "elements": 200_000, "values": 64, "rate": 10e9, "pool": 128, **keys}))


@pytest.mark.parametrize(
    ("keys", "bound", "text"),
    [
        ({}, "link", "the busiest link, "),
        ({"algorithm": "ring"}, "link", "the busiest link, "),
        ({"pool": 4}, "pool", "each of 4 slots waits"),
        ({"host_packet": 2e-6}, "processor", "hosts' cores worked for "),
        ({"loss": 0.01, "rto_min": 1e-3, "rto": "fixed"}, "recovery", "time-outs"),
        ({"protocol": "atp", "pool": 16, "slots": 16, "jobs": 3}, "pool", "found their aggregator taken"),
        ({"protocol": "ps"}, "link", "the busiest link, h5>s1"),
        ({"elements": 2000, "delay": 10e-6}, "latency", "a worker sends 33 packets"),
        ({"algorithm": "ring", "flow": 2, "delay": 50e-6, "elements": 800_000}, "window", "flows of 2 packets"),
    ],
)
def test_what_bounds_an_all_reduce_is_named(keys, bound, text):
    need("cc")
    finding = reduction(**keys)
    assert finding.bound == bound and text in finding.shown, finding


@pytest.mark.parametrize(
    ("keys", "bound", "text"),
    [
        ({}, "compute", "of 20."),
        ({"compute": 0.01}, "link", "exposed all-reduce; the busiest link"),
        ({"slow_worker": 2.0}, "straggler", "worker 0 computes 2.00 times"),
        ({"compute": 0.0, "pool": 2}, "pool", "each of 2 slots waits"),
        ({"compute": 0.01, "host_packet": 20e-6}, "processor", "hosts' cores worked for"),
        ({"compute": 0.01, "loss": 0.02, "rto_min": 5e-3, "rto": "fixed"}, "recovery", "time-outs"),
    ],
)
def test_what_bounds_a_training_is_named(tmp_path, keys, bound, text):
    need("cc")
    path = tmp_path / "model.csv"
    layers.write(path, [Layer("a", 200_000, 10 * MS, 5 * MS), Layer("b", 200_000, 0, 5 * MS)], "a test")
    finding = explained(Workload(layers=str(path), workers=4, rate=10e9, steps=2, first_bucket_mb=0.1, **keys))
    assert finding.bound == bound and text in finding.shown, finding


@pytest.mark.parametrize(
    ("keys", "bound", "text"),
    [
        ({"protocol": "switchml"}, "link", "the busiest link"),
        ({"protocol": "ps"}, "link", "the busiest link"),
        ({"protocol": "atp", "share": 0.125}, "pool", "found their aggregator taken"),
        ({"protocol": "switchml", "share": 0.03125, "delay": 10e-6}, "pool", "each job has 2 slots"),
        ({"protocol": "switchml", "straggler": 10.0}, "straggler", "the wire of worker 0 of job 0 is 10 times as slow"),
        ({"protocol": "switchml", "period": 1e-3, "elements": 2000}, "latency", "a worker sends 9 packets of a tensor"),
    ],
)
def test_what_bounds_jobs_that_share_a_switch_is_named(keys, bound, text):
    need("cc")
    finding = explained(Sharing(jobs=2, workers=4, window=64, elements=keys.pop("elements", 100_000), tensors=2, **keys))
    assert finding.bound == bound and text in finding.shown, finding


@pytest.mark.parametrize(
    ("summary", "bound"),
    [
        ({"link_use": 0.9, "retransmissions": 0}, "link"),
        ({"link_use": 0.5, "retransmissions": 7}, "recovery"),
        ({"link_use": 0.5, "retransmissions": 0}, "unknown"),
        ({"link_use": None, "retransmissions": 0}, "unknown"),
    ],
)
def test_of_processes_only_what_was_measured_is_said(summary, bound):
    config = AllReduce(world="testbed", workers=2)
    (finding,) = why.explain(Result(None, config, {}, [{"job": "job 0", "packets": 100, **summary}], {}, [{"stats": {}}], True))
    assert finding.bound == bound


@pytest.mark.parametrize(("spurious", "delays", "busy"), [(3, 5, True), (0, 5, False), (3, 0, False)])
def test_needless_repetitions_of_late_processes_are_explained(spurious, delays, busy):
    summary = {"job": "job 0", "packets": 100, "link_use": 0.5, "retransmissions": 7, "spurious": spurious, "delays": delays}
    (finding,) = why.explain(Result(None, AllReduce(world="testbed", workers=2), {}, [summary], {}, [{"stats": {}}], True))
    assert ("processors are busy: 5 times" in finding.shown) == busy, finding


def test_needless_repetitions_of_a_training_are_said():
    config = Training(workers=2)
    worker = {"tx_packets": 900, "retransmissions": 70, "spurious": 60, "delays": 4}
    summary = {"backend": "ina", "bound": "host-limited", "allreduce_ms": 3.5, "packets": worker["tx_packets"], **worker}
    (finding,) = why.explain(Result(None, config, {}, [summary], {}, [{"stats": {"worker": worker}}], True))
    assert finding.shown == ("3.50 ms a step in all-reduce; 70 of 900 packets were sent again, 60 needlessly; processors are "
                             "busy: 4 times a process ran too late")
    run = Run(backend="ina", parameters=10, dataset="d", losses=[1.0] * 4, accuracy=0.5, step_seconds=[1.0] * 4,
              allreduce_seconds=[0.1] * 4, allreduce_bytes=[40] * 4, seconds=4.0, start_seconds=1.0, stats={"worker": worker})
    assert run.summary()["spurious"] == 60 and "needless" in [row.short for row in Training.rows]


def test_jobs_that_share_a_switch_can_have_the_published_time_out():
    need("cc")
    sent = {}
    for rto in ("adaptive", "fixed"):
        (run,) = Sharing(jobs=2, workers=2, elements=100_000, rto=rto, rto_min=20e-6, straggler=20.0).measure()
        sent[rto] = run.stats["workers"]
    assert sent["fixed"]["timeouts"] == sent["fixed"]["retransmissions"] > 10 * sent["adaptive"]["retransmissions"]
    assert sent["fixed"]["probes"] == 0


@pytest.mark.parametrize("stats", [
    {"workers": {"flushed": 1200}}, {"worker": {"flushed": 1000}, "codecs": {"block-64": {"flushed": 200}}},
])
def test_flushed_values_are_named(stats):
    config = AllReduce(world="testbed", workers=2)
    summary = {"job": "job 0", "packets": 100, "link_use": 0.9, "retransmissions": 0}
    (finding,) = why.explain(Result(None, config, {}, [summary], {}, [{"stats": stats}], True))
    assert "; 1,200 values other than zero became zero" in finding.shown
    (finding,) = why.explain(Result(None, config, {}, [summary], {}, [{"stats": {"workers": {"flushed": 0}}}], True))
    assert "became zero" not in finding.shown


def test_ranks_that_others_waited_for_are_named():
    assert why.late({"stats": {"late": {"3": {"waits": 2, "seconds": 4.06}}}}) == [
        "2 collectives waited for rank 3, 4.1 s together"]
    assert why.late({"stats": {}}) == why.late({}) == []


def test_what_the_planner_chose_is_said_with_its_reason():
    config = AllReduce(world="testbed", workers=2)
    summary = {"job": "job 0", "packets": 100, "link_use": 0.9, "retransmissions": 0}
    plans = {"bucket 0: 250,500 float32": "lanes-16: measured: lanes-16 6.51 ms, block 12.4 ms"}
    (finding,) = why.explain(Result(None, config, {}, [summary], {}, [{"stats": {"plans": plans}}], True))
    assert finding.shown.endswith("; bucket 0: 250,500 float32 by lanes-16: measured: lanes-16 6.51 ms, block 12.4 ms")


def test_the_command_explains_folders(tmp_path, capsys):
    need("cc", "matplotlib")
    folder, other = (run.run(AllReduce(workers=2, elements=100_000, name=name), tmp_path, Console(quiet=True)) for name in "ab")
    assert cli.main(["why", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("job 0: link — the busiest link, ")
    assert cli.main(["why", str(folder), str(other), str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" — ")[0] for line in lines] == [f"{each.name}: job 0: link" for each in (folder, other)], "each once"
    assert cli.main(["why", str(tmp_path)]) == 1
    assert "neither experiment.json" in capsys.readouterr().err
