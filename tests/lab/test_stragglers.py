"""Steps whose sums are of the first k of n workers, in virtual time, against order statistics of exponential times."""

from dataclasses import replace
from functools import cache

import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds import stragglers
from ina.lab.kinds.stragglers import Stragglers
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual.computing import DRAWN

pytestmark = pytest.mark.build
need("cc")

WORKERS, STEPS = 8, 1500
BASE = Stragglers(steps=STEPS, elements=100, rate=10e9, computing=0.1)


def first(enough: int) -> float:
    """Expected time until so many of the workers are ready, in means of one: H_n - H_(n-k)."""
    return sum(1 / busy for busy in range(WORKERS - enough + 1, WORKERS + 1))


@cache
def dropped(fresh: int, stale: int, missing: int) -> float:
    """The same, where the stale ones have to end what they do, for nothing, before they begin: by the first event."""
    if not missing:
        return 0.0
    after = fresh * dropped(fresh - 1, stale, missing - 1) if fresh else 0.0
    after += stale * dropped(fresh + 1, stale - 1, missing) if stale else 0.0
    return (1 + after) / (fresh + stale)


def expected(late: str, enough: int) -> float:
    return dropped(enough, WORKERS - enough, enough) if late == "drop" and enough < WORKERS else first(enough)


@pytest.mark.parametrize("late", ["abort", "drop", "carry"])
@pytest.mark.parametrize("least", [0, 7, 6])
def test_steps_take_as_long_as_order_statistics_say(late, least):
    (steps,) = replace(BASE, late=late, least=least).measure()
    summary, enough = steps.summary(), least or WORKERS
    assert summary["step_ms"] == pytest.approx(100 * expected(late, enough), rel=0.05)
    assert summary["contributors"] == pytest.approx(enough, abs=0.05)
    most = 1 - enough / WORKERS if late == "drop" else 0  # those who are late may not get ready at all before the step's end
    assert 0.8 * most <= summary["lost"] <= most + 0.01


@pytest.mark.parametrize(("distribution", "least", "best"), [("half", 1, 6), ("exponential", 5, 5), ("constant", 1, 8)])
def test_a_number_that_workers_choose_is_nearly_as_good_as_the_best_fixed_one(distribution, least, best):
    """By contributions in a second, of which closed forms say the best: 6 of 8 where half of a worker's time is exponential, as
    few as may be where all of it is, all where none is."""
    constant = {"half": 0.5, "exponential": 0.0, "constant": 1.0}[distribution]
    rates = {enough: enough / (0.1 * (constant + (1 - constant) * first(enough))) for enough in range(least, WORKERS + 1)}
    assert max(rates, key=rates.__getitem__) == best
    (steps,) = replace(BASE, distribution=distribution, least=least, dynamic=True).measure()
    summary = steps.summary()
    assert 0.9 * rates[best] < summary["per_second"] < 1.03 * rates[best] and min(steps.contributors) >= least
    fixed, everybody = (replace(BASE, distribution=distribution, least=number).measure()[0].summary() for number in (best, 8))
    assert fixed["per_second"] == pytest.approx(rates[best], rel=0.05)
    if best != WORKERS:
        assert summary["per_second"] > 1.1 * everybody["per_second"] and summary["step_ms"] < 0.9 * everybody["step_ms"]


@pytest.mark.parametrize("protocol", ["atp", "ps"])
def test_a_parameter_server_decides_as_a_switch_does(protocol):
    (steps,) = replace(BASE, protocol=protocol, steps=400, least=7, payload=True).measure()
    (others,) = replace(BASE, steps=400, least=7, payload=True).measure()
    assert steps.checked and steps.summary()["step_ms"] == pytest.approx(others.summary()["step_ms"], rel=0.01)
    assert {*steps.contributors} == {7}


def test_the_ratios_are_those_of_the_closed_forms():
    assert [first(8) / expected(late, least) for late in ("abort", "drop") for least in (7, 6)] == pytest.approx(
        [1.58, 2.23, 1.41, 1.77], abs=0.01)


def test_nobody_waits_for_a_worker_that_is_always_slow():
    waited, left = (replace(BASE, distribution="constant", straggler=5.0, steps=50, least=least, ahead=16).measure()[0].summary()
                    for least in (0, 7))
    assert waited["step_ms"] == pytest.approx(500, rel=0.01) and left["step_ms"] == pytest.approx(100, rel=0.01)
    assert left["partial"] == 1 and waited["partial"] == 0


def test_a_deadline_ends_steps_and_no_worker_may_be_later_than_it_has_announced():
    constant = replace(BASE, distribution="constant", straggler=5.0, steps=50, late="drop")
    deadline = replace(constant, deadline=0.05, ahead=16).measure()[0].summary()
    assert deadline["step_ms"] == pytest.approx(150, rel=0.02) and deadline["contributors"] == pytest.approx(7, abs=0.3)
    behind = replace(constant, least=7, ahead=1).measure()[0].summary()  # five steps' time for two steps
    assert behind["step_ms"] == pytest.approx(250, rel=0.05)


@pytest.mark.parametrize("distribution", DRAWN)
def test_other_times_and_networks(distribution):
    (steps,) = replace(BASE, distribution=distribution, steps=60, least=3, workers=4, late="carry", elements=3000,
                       topology="leaf-spine leaves=2 spines=1 hosts=2", loss=0.01).measure()
    assert steps.summary()["step_ms"] > 0 and steps.summary()["contributors"] >= 3
    assert steps.stats["workers"]["retransmissions"] > 0
    assert replace(BASE, steps=20, payload=False, check="off").measure()[0].summary()["sums"] == "not checked"


def test_a_sum_that_comes_before_its_values_can_have_come_is_an_error(monkeypatch):
    config = replace(BASE, steps=10, elements=20_000)  # 64 us of values at 10 Gb/s
    assert config.measure()
    monkeypatch.setattr(stragglers._Run, "__init__", slower(stragglers._Run.__init__))
    with pytest.raises(stragglers.EarlySum, match="after its last contributor has given"):
        config.measure()


def slower(init):
    def run(self, *args):
        init(self, *args)
        self.least_ps *= 2

    return run


@pytest.mark.parametrize(("keys", "message"), [
    ({"least": 9}, "least"), ({"dynamic": True}, "1 or more"), ({"late": "wait"}, "late"), ({"algorithm": "ring"}, "algorithm"),
    ({"protocol": "switchml"}, "protocol"), ({"check": "keyed"}, "check"), ({"jobs": 2}, "jobs"),
])
def test_what_makes_no_sense_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **keys)


def test_a_run_of_the_command_has_a_table_a_report_and_a_reason(tmp_path, monkeypatch, capsys):
    from ina.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["experiment", "run", "stragglers", "--set", "steps=40", "--set", "least=7", "--set", "late=abort"]) == 0
    assert "gradients that no sum has" in capsys.readouterr().out
    folder = next((tmp_path / "results").rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert (folder / "report.html").exists()
    assert finding.bound == "straggler" and "7 of 8 are enough, late: abort" in finding.shown
