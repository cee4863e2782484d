"""Timelines of runs in virtual time: workers, links, queues and slot pools, for Perfetto and for the report."""

import json

import pytest
from capabilities import need
from rich.console import Console

from ina.base.settings import ConfigError
from ina.lab import run
from ina.lab.kinds import allreduce, sharing
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.sharing import Sharing
from ina.lab.virtual.timeline import Timeline

pytestmark = pytest.mark.build
need("cc")
SLOW = {"rate": 1e9, "delay": 20e-6, "values": 64}  # a packet lasts 2.7 us, a round trip 85


def shares(protocol: str, **keys) -> Timeline:
    timeline = Timeline(10e-6)
    sharing.share(Sharing(protocol=protocol, workers=4, window=32, elements=20_000, **{"jobs": 2, **keys}, **SLOW), timeline)
    return timeline


def test_a_slow_workers_job_holds_all_its_slots_and_nobody_elses():
    timeline = shares("switchml", straggler=10.0)
    occupancy = {job: [slots for _, slots in timeline.pools["s1", job]] for job in ("job 0", "job 1")}
    assert max(occupancy["job 0"]) >= 31 > max(occupancy["job 1"]), "three workers wait for the fourth in every slot"
    assert sorted(occupancy["job 0"])[len(occupancy["job 0"]) // 2] > 24, "most of the time"
    assert occupancy["job 0"][-1] == occupancy["job 1"][-1] == 0, "what is complete is not held"


def test_aggregators_that_jobs_share_are_held_by_whoever_claims_them():
    """Each aggregator is held for a round trip to the server: a job alone holds its window, two share the pool."""
    alone = [slots for _, slots in shares("atp", jobs=1).pools["s1", "job 0"]]
    both = shares("atp", share=0.25).pools
    together = [a + b for (_, a), (_, b) in zip(both["s1", "job 0"], both["s1", "job 1"], strict=True)]
    assert 16 < max(alone) <= 32 and alone[-1] == 0
    assert max(together) == 16, "a quarter of two windows"
    assert min(max(slots for _, slots in both["s1", job]) for job in ("job 0", "job 1")) >= 4, "both have some"
    assert shares("ps").pools == {}, "a plain parameter server has none"


def test_a_tree_of_switches_has_a_pool_at_each_and_a_look_changes_nothing():
    keys = {"topology": "leaf-spine leaves=2 spines=1 hosts=2", "workers": 4, "loss": 0.01, "slots": 8, **SLOW}
    keys["elements"], timeline = 20_000, Timeline(20e-6)
    watched = allreduce.reduce(AllReduce(**keys), timeline)
    assert watched == allreduce.reduce(AllReduce(**keys))
    assert {switch for switch, _ in timeline.pools} == {"s1", "s2", "s3"}
    assert all(max(slots for _, slots in samples) in range(1, 9) for samples in timeline.pools.values())
    ((name, workers),) = timeline.jobs
    assert name == "job 0" and max(end for ((_, _, end),) in workers) == watched[0].seconds


def test_perfetto_gets_workers_links_queues_and_pools_and_the_report_plots_them(tmp_path):
    need("matplotlib")
    config = AllReduce(workers=2, elements=5000, slots=8, sample=10e-6, loss=0.02, **SLOW)
    folder = run.run(config, tmp_path, Console(quiet=True))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"job 0", "worker 0", "worker 1", "links", "slot pools"}
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"h1>s1 use", "s1>h2 packets waiting", "s1 slots held by job 0"} <= counters
    assert len([event for event in events if event["ph"] == "b" and event["name"] == "all-reduce"]) == 2
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 4 and "Slots that hold sums which are not complete" in page


def test_looks_are_for_virtual_time():
    with pytest.raises(ConfigError, match="sample = 1e-05: expected 0 in world = 'local'"):
        AllReduce(world="local", sample=1e-5)
    with pytest.raises(ConfigError, match=r"sample = 2.0: expected 0 to 1 \(seconds\)"):
        Sharing(sample=2.0)
    with pytest.raises(ConfigError, match="sample = 1e-12: expected 0, or 1e-9 to 1"):
        Sharing(sample=1e-12)
