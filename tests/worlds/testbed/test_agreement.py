"""Worlds agree: one experiment file under Mininet at 10 Mb/s and in virtual time, on times and on packets."""

import re
from dataclasses import replace

import pytest
from capabilities import need
from real_networks import alone, ina
from rich.console import Console

from ina import cli
from ina.base.settings import ConfigError
from ina.lab import agree
from ina.lab.kinds.allreduce import AllReduce, Reduction
from ina.lab.results.record import Result

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture


def result(milliseconds: float, packets: int, **keys) -> Result:
    return Result(None, AllReduce(**keys), {}, [{"job": "job 0", "time_ms": milliseconds, "packets": packets}], {}, [], True)


@pytest.mark.parametrize(
    ("real", "virtual", "loss", "wrong"),
    [
        ((108.0, 50), (100.0, 50), 0.0, ""),
        ((92.0, 50), (100.0, 50), 0.0, ""),
        ((112.0, 50), (100.0, 50), 0.0, r"times are \+12.0% apart, expected at most 10% \(the fastest of 1\)"),
        ((100.0, 51), (100.0, 50), 0.0, "51 and 50 packets were sent, expected the same number: nothing was lost"),
        ((100.0, 51), (100.0, 50), 0.01, ""),
    ],
)
@pytest.mark.gate
def test_what_agrees_and_what_does_not(real, virtual, loss, wrong):
    (pair,) = agree.pairs([result(*real, loss=loss)], [result(*virtual, loss=loss)], ["loss"])
    assert re.fullmatch(wrong, pair.wrong)


@pytest.mark.gate
def test_a_slow_point_is_tried_again_and_the_fastest_counts(monkeypatch):
    config, times = AllReduce(workers=2), iter([0.130, 0.105, 0.2])
    stats = {"workers": {"tx_packets": 50, "retransmissions": 0}}
    monkeypatch.setattr(agree, "in_processes", lambda c: [Reduction("job 0", 2, 4, next(times), "", 0, None, None, stats)])
    slow = agree.Pair("p", "job 0", (0.150, 0.100), (50, 50), True)
    result = agree.again(slow, config)
    assert (result.seconds, result.tries, result.wrong) == ((0.105, 0.100), 3, "")
    assert agree.again(replace(slow, packets=(51, 50)), config).tries == 1, "another number of packets is no matter of time"


@pytest.mark.gate
def test_what_cannot_run_in_both_worlds_is_refused(tmp_path, capsys):
    need("matplotlib")
    with pytest.raises(ConfigError, match="world = 'local': expected none"):
        agree.agree(tmp_path / "no.toml", {"world": "local"}, {}, tmp_path, Console(quiet=True), 1)
    assert cli.main(["experiment", "agree", "switchml-ring", "--results", str(tmp_path)]) == 2
    assert "algorithm = 'ring': expected in-network in world = 'testbed'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.machine
@pytest.mark.judge
def test_mininet_at_ten_megabits_and_virtual_time_agree(tmp_path):
    """All three shapes of the file: a star, small packets, and a tree of three switches."""
    need("matplotlib")
    small = ["--sweep", "workers=[4]", "--set", "dtype=int32"]
    done = ina("experiment", "agree", "ten-megabits", *small, "--results", str(tmp_path))
    assert "packets were sent, expected the same number" not in done.stderr, "exact, however busy the machine"
    if "times are" in done.stderr:
        print(done.stderr)
        need("idle-processors")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 3 agree" in done.stdout
    assert len(list(tmp_path.glob("ten-megabits-*/experiment.json"))) == 2
