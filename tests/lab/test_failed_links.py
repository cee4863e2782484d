"""Experiments whose links fail: their keys, what is said of wrong ones, and what the report and `ina why` say of a run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ina.aggregation.worker.errors import RankTimeout
from ina.base import paths
from ina.base.settings import ConfigError
from ina.lab import plan
from ina.lab.kinds.allreduce import AllReduce, reduce
from ina.lab.virtual import failed_links
from ina.lab.virtual.timeline import Timeline


@pytest.mark.fast
@pytest.mark.parametrize(("keys", "message"), [
    ({"link_events": ("at 200us drop s1-s9",)}, "link_events.*link event 'at 200us drop s1-s9': 'drop': expected fail, heal"),
    ({"link_events": ("at 1us fail h1",), "tensors": "common"}, "tensors = 'common': expected own with link_events"),
    ({"link_events": ("at 1us fail h1",), "world": "local"}, "link_events.*expected none in world = 'local'"),
    ({"link_probe": 1e-3, "world": "testbed"}, "link_probe = 0.001: expected 0.005 s or more"),
    ({"link_events": ("at 1s slow s1-s3 delay 1ms",)}, "no delays outside world = .testbed."),
    ({"link_misses": 0}, "link_misses = 0: expected"),
])
def test_wrong_keys_are_named(keys, message):
    with pytest.raises(ConfigError, match=message):
        AllReduce(**keys)


@pytest.mark.fast
def test_a_link_that_the_network_does_not_have_is_named_before_the_run():
    experiment = AllReduce(topology="fat-tree k=4", link_events=("at 1us fail s1-s99",))
    with pytest.raises(ConfigError, match="link_events: link event 'at 1us fail s1-s99': there is no link 's1-s99' in fat-tree"):
        AllReduce.check_networks([experiment])


@pytest.mark.build
def test_the_report_and_why_say_what_was_down_and_what_it_cost():
    """The experiment of the repository, with a smaller tensor: the plot has a gap, and the text its reason."""
    experiment = plan.load(paths.root() / "experiments" / "link-failure.toml").single
    assert isinstance(experiment, AllReduce)
    small = replace(experiment, elements=600_000, link_events=("at 50us fail s9-s17 for 2ms",))
    timeline = Timeline(small.sample)
    (result,) = reduce(small, timeline)
    finding = failed_links.explained(small.why({"job": "", **vars(result)}, result.summary()), vars(result))
    assert re.search(r"link s9-s17 was down from 0\.050 ms to the end, \d+ frames were lost on it, "
                     r"it was noticed after 0\.250 ms, which moved job 0 to a tree with root s1[78], "
                     r"where \d parts of tensors began again, next result after 0\.2\d+ ms", finding.shown)
    assert "Link s9-s17 was down" in small.describe([result])
    rates = timeline.goodput["job 0"]
    gap = [rate for end, rate in rates if 100e-6 < end <= 300e-6]
    assert max(gap) == 0 and max(rate for _, rate in rates) > 50e9, "nothing while it is down, then at the rate of the links"
    caption, drawing = timeline.plots()[0]
    assert caption.startswith("Goodput") and "s9-s17" in drawing
    assert result.stats["drops"]["link down"] == result.stats["links"]["incidents"][0]["lost"]


@pytest.mark.build
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "parameter-server"])
def test_a_baseline_without_a_way_to_a_host_ends_at_its_deadline(algorithm):
    experiment = AllReduce(topology="star", workers=4, elements=50_000, algorithm=algorithm, timeout=0.02,
                           link_events=("at 20us fail h1",))
    with pytest.raises(RankTimeout, match="Timed out: rank (0 waits for rank [123]|[123] waits for rank 0), which is late"):
        reduce(experiment)


@pytest.mark.build
def test_without_events_nothing_is_different():
    """The same packets at the same time as before links could fail: events are the only difference."""
    plain = AllReduce(topology="leaf-spine leaves=2 spines=2 hosts=2", workers=4, elements=50_000)
    late = replace(plain, link_events=("at 1s fail s1-s3",))
    (one,), (other,) = reduce(plain), reduce(late)
    assert one.seconds == pytest.approx(other.seconds, rel=1e-3) and other.stats["links"]["incidents"] == []
    assert "links" not in one.stats


@pytest.mark.fast
def test_a_link_that_is_slow_by_its_delay_alone_was_not_down():
    incident = {"link": "s1-s3", "state": "slow", "reason": "delay 5 ms", "began": 100.0, "rate": 0.0, "noticed": None,
                "ended": 101.0, "lost": 0, "moved": {}, "waited": []}
    (record,) = failed_links.of_testbed([incident], {"job 0": [(99.9, 100.3)]}, 100.0)["incidents"]
    assert failed_links.sentence(record) == ("link s1-s3 was slow (delay 5 ms) from 0.000 ms to 1000.000 ms, next result after "
                                             "300.000 ms")


@pytest.mark.fast
def test_incidents_of_the_testbed_are_recorded_like_those_of_virtual_time():
    incident = {"link": "s9-s17", "state": "down", "reason": "cut", "began": 100.4, "rate": 0.0, "noticed": 100.6, "ended": None,
                "lost": 7, "moved": {"job 0": "s18"}, "waited": []}
    stalls = {"job 0": [(99.0, 99.5), (100.42, 100.7), (100.41, 100.8), (101.0, 101.5)]}
    (record,) = failed_links.of_testbed([incident], stalls, 100.0)["incidents"]
    assert record["began"] == pytest.approx(0.4) and record["noticed"] == pytest.approx(0.6) and record["ended"] is None
    assert record["progress"] == {"job 0": pytest.approx(0.4)}, "until the last worker had a result again"
    text = failed_links.sentence(record)
    assert "link s9-s17 was down from 400.000 ms to the end" in text and "noticed after 200.000 ms" in text
    assert "moved job 0 to a tree with root s18" in text and "began again" not in text and "next result after 400.000 ms" in text
