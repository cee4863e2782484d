"""Semi-asynchronous rounds: their length against rounds that are played out, how many models pay, and rates by participation."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from capabilities import need

from ina.lab.kinds.asynchronous import Asynchronous
from ina.lab.virtual.asynchronous.run import Run
from ina.lab.virtual.judge import Judge
from ina.lab.virtual.learning import TRAINED, Task
from ina.lab.virtual.semi_asynchronous import LARGEST, factor, length, participants
from ina.lab.virtual.virtual_network import WrongSum

BASE = Asynchronous(method="fedsa", updates=1600, evaluate=1600, width=4, rate=10e9, straggler=4.0, distribution="constant")


def played(times: np.ndarray, seconds: float, rounds: int) -> float:
    """Returns the models of a round, of rounds that last so long; who is late gives its model to a later one, and begins anew."""
    ends, count = times.astype(float).copy(), 0
    for number in range(1, rounds + 1):
        now = number * seconds
        ready = ends <= now + 1e-9
        count += int(ready.sum())
        ends[ready] = now + times[ready]
    return count / rounds


@pytest.mark.fast
@pytest.mark.parametrize("seed", range(5))
def test_rounds_are_as_short_as_their_models_allow(seed):
    times = np.random.default_rng(seed).exponential(size=7) + 0.2
    for enough in range(1, 8):
        shortest = length(times, enough)
        assert played(times, shortest, 2000) >= enough - 0.02 and played(times, 0.98 * shortest, 2000) < enough
    assert length(times, 7) == pytest.approx(times.max())


@pytest.mark.fast
def test_as_many_models_as_pay_make_a_round():
    equal, one, far = (1.0,) * 8, (4.0,) + (1.0,) * 7, (50.0, 50.0) + (1.0,) * 6
    assert participants(equal, 4.0, 0.0) == 8 and participants(one, 4.0, 0.0) == 7 and participants(far, 4.0, 0.0) == 6
    assert participants((1.1,) + (1.0,) * 7, 4.0, 0.0) == 8, "who is a little slower is worth the while"
    assert participants(one, 1000.0, 0.0) == 7 and participants((1.0, 2.0, 4.0), 0.0, 0.0) == 1, "without noise one is enough"


@pytest.mark.fast
def test_a_budget_leaves_no_more_models_a_second():
    times = (4.0,) + (1.0,) * 7
    free = participants(times, 4.0, 0.0)
    for budget in (7.5, 5.0, 2.5):
        chosen = participants(times, 4.0, budget)
        assert chosen / length(np.array(times), chosen) <= budget < free / length(np.array(times), free) + 1
    assert participants(times, 4.0, 0.1) == 8, "the fewest there are"


@pytest.mark.fast
def test_rates_make_up_for_participation():
    assert [factor(np.array([3, 3, 3]), each) for each in range(3)] == [1, 1, 1]
    clocks = np.array([1, 3, 5, 7])
    assert np.ptp([factor(clocks, each) * (clocks[each] + 1) for each in range(4)]) == 0
    assert factor(np.array([0, 99]), 0) == LARGEST and factor(np.array([0, 0, 0, 0, 0, 0, 399]), 6) == 1 / LARGEST


@pytest.mark.build
def test_sums_are_of_those_that_are_fast_and_the_slow_one_learns_at_a_larger_rate(monkeypatch):
    """With constant times sums of the seven fast workers last as long as their models, and each fourth has the slow one's."""
    need("cc")
    rates, update, leasts = [], Task.update, {}
    monkeypatch.setattr(Task, "update", lambda task, *rest: rates.append((rest[1], rest[4])) or update(task, *rest))
    expect = Judge.expect
    monkeypatch.setattr(Judge, "expect", lambda judge, number, worker, least: leasts.setdefault(number, least) and expect(
        judge, number, worker, least))
    (run,) = BASE.measure()
    assert set(leasts.values()) == {4, 7} and [leasts[number] for number in sorted(leasts)][-8:] == [7] * 8
    words = BASE.why(asdict(run), run.summary()).shown
    assert "for 4 to 7 of 8, which changes; " in words and run.enough == [4, 7]
    own = np.zeros(8)
    for worker, rate in rates:  # who begins has all its updates in sums, others one under way, or the latest sum not yet
        mean = np.clip(rate / 0.5, None, LARGEST) * (own[worker] + 1) - 1
        assert rate / 0.5 in (LARGEST, 1 / LARGEST) or own.sum() / 8 - 1.1 <= mean <= own.sum() / 8
        own[worker] += 1
    assert own[0] == pytest.approx(run.sums / 5, abs=2), "on the wire rounds are a little longer: it is late for each fourth"
    leasts.clear()
    (equal,) = replace(BASE, straggler=1.0).measure()
    assert [leasts[number] for number in sorted(leasts)][-8:] == [8] * 8
    assert equal.summary()["per_second"] == pytest.approx(8 / 0.08, rel=0.05), "nobody waits for others"


@pytest.mark.build
def test_a_worker_that_chooses_otherwise_is_noticed(monkeypatch):
    need("cc")
    choose = Run._choose

    def one_more(run, worker, contributors, speeds):
        choose(run, worker, contributors, speeds)
        for number in worker.leasts:
            worker.leasts[number] -= worker.number == 3

    monkeypatch.setattr(Run, "_choose", one_more)
    with pytest.raises(WrongSum, match="workers are enough for worker"):
        BASE.measure()


@pytest.mark.build
@pytest.mark.parametrize("seed", [1, 3])
def test_classes_of_the_slow_worker_are_learnt_better_with_rates_by_participation(monkeypatch, seed):
    """Nobody else has them: at equal rates they count a fifth."""
    need("cc")
    learnt, score, reached = [], Task.score, []
    monkeypatch.setattr(Task, "score", lambda task, parameters: learnt.append((task, parameters)) or score(task, parameters))
    for rates in (factor, lambda clocks, worker: 1.0):
        monkeypatch.setattr("ina.lab.virtual.asynchronous.run.factor", rates)
        learnt.clear()
        replace(BASE, seed=seed, own=1.0, width=16, updates=2400, evaluate=80).measure()
        right = []
        for task, parameters in learnt[-10:]:
            points, classes = (part[TRAINED:] for part in task._points)
            own = np.isin(classes, np.unique(task._points[1][task._pieces[0]]))
            right.append(np.mean(np.argmax(task._forward(parameters, points[own])[1], axis=1) == classes[own]))
        reached.append(np.mean(right))
    assert reached[0] > reached[1] + 0.02
