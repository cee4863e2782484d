"""NURD's predictions: its parts against closed forms, its rates against a plain regressor's on heavy-tailed times, and steps and
trainings that go on without those who are predicted to straggle."""

from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds.asynchronous import Asynchronous
from ina.lab.kinds.stragglers import Stragglers
from ina.lab.virtual.judge import Judge
from ina.lab.virtual.nurd import LEAST, Nurd, fit, propensity
from ina.lab.virtual.straggling import Lookout, counters, rates, straggling
from ina.lab.virtual.virtual_network import WrongSum

BASE = Stragglers(workers=4, steps=60, elements=64, rate=10e9, distribution="pareto")


@pytest.mark.fast
def test_the_regressor_finds_a_step_and_never_leaves_the_range_of_what_it_has_seen():
    rng = np.random.default_rng(1)
    points = rng.random((200, 3))
    times = np.where(points[:, 1] < np.quantile(points[:, 1], 5 / 9), 1.0, 3.0)
    predicted = fit(points, times).predict(points)
    assert np.abs(predicted - times).max() < 0.05
    noisy = fit(points, rng.exponential(size=200)).predict(10 * rng.random((500, 3)))
    assert 0 <= noisy.min() and noisy.max() < np.inf and fit(points, np.full(200, 2.0)).predict(points) == pytest.approx(2.0)


@pytest.mark.fast
def test_the_propensity_is_the_share_of_finished_tasks_where_counters_say_nothing_and_0_or_1_where_they_say_all():
    same = np.ones((30, 2))
    assert propensity(same, np.ones((10, 2))) == pytest.approx(10 * [0.75], rel=1e-6)
    apart = propensity(np.zeros((50, 1)), np.full((50, 1), 1.0))
    assert np.all(apart < 0.2) and propensity(np.zeros((50, 1)), np.full((50, 1), 1.0)[:1] * 9)[0] < 0.5


@pytest.mark.fast
def test_a_prediction_is_the_regressors_over_the_weight_of_the_paper():
    rng = np.random.default_rng(2)
    finished, times, running = rng.random((60, 2)), rng.random(60) + 1, rng.random((12, 2)) + 0.5
    nurd = Nurd(2.0, gamma=0.1)
    predicted = nurd.times(finished, times, running)
    both = np.vstack([finished, running])
    low, span = both.min(axis=0), np.ptp(both, axis=0)
    a, b = (finished - low) / span, (running - low) / span
    rho = np.sum(a.mean(axis=0) ** 2) / np.sum((a.mean(axis=0) - b.mean(axis=0)) ** 2)
    delta = 1 / (1 + rho) - 0.1
    assert nurd.delta == pytest.approx(delta)
    weight = [max(LEAST, min(z + delta, 1)) for z in propensity(a, b)]
    assert predicted == pytest.approx(fit(a, times).predict(b) / weight)
    assert nurd.straggling(finished, times, running).tolist() == (predicted >= 2.0).tolist()
    nurd.times(finished, times, running[:3])
    assert nurd.delta == pytest.approx(delta), "of the first prediction"


@pytest.mark.fast
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stragglers_are_found_that_a_regressor_of_finished_tasks_cannot_predict(seed):
    """A job as in the paper: 200 tasks, of which a tenth straggles; predictions whenever another tenth has finished."""
    rng = np.random.default_rng(seed)
    times = np.sort((1 + rng.pareto(2.0, 200)) / 2)
    known = np.array([counters(rng, time, 0.3) for time in times])
    threshold = float(times[180])
    nurd, found, plain = Nurd(threshold, -0.2), np.zeros(200, bool), np.zeros(200, bool)
    for done in range(20, 180, 20):
        found[done:] |= nurd.straggling(known[:done], times[:done], known[done:])
        plain[done:] |= fit(known[:done], times[:done]).predict(known[done:]) >= threshold
    result = rates(list(zip(found.tolist(), (times >= threshold).tolist(), strict=True)))
    assert not plain.any()
    assert result["true_positive"] > 0.3 and result["false_positive"] < 0.3 and result["f1"] > 0.4


@pytest.mark.fast
def test_rates_are_those_of_their_definitions():
    assert rates([(True, True), (True, False), (False, True), (False, False), (True, True)]) == {
        "true_positive": 2 / 3, "false_positive": 1 / 2, "f1": 4 / 6}
    assert rates([]) == {"true_positive": None, "false_positive": None, "f1": None}


@pytest.mark.fast
def test_the_threshold_is_a_quantile_of_the_distribution():
    assert straggling(replace(BASE, distribution="exponential")) == pytest.approx(0.1 * np.log(10), rel=0.03)
    assert straggling(BASE) == pytest.approx(0.05 * np.sqrt(10), rel=0.03)


@pytest.mark.build
def test_steps_go_on_without_those_that_are_predicted_to_straggle_and_alike_each_time():
    need("cc")
    everyone, first, again = (replace(BASE, predict=predict).measure()[0] for predict in ("none", "nurd", "nurd"))
    assert set(everyone.contributors) == {4} and not everyone.predictions
    assert 2 <= min(first.contributors) < max(first.contributors) == 4
    assert sum(first.seconds) < 0.9 * sum(everyone.seconds)
    assert (again.seconds, again.contributors, again.predictions) == (first.seconds, first.contributors, first.predictions)
    assert any(both == (True, True) for both in first.predictions)


@pytest.mark.build
@pytest.mark.parametrize(("keys", "message"), [
    ({"least": 3}, "predict = 'nurd': expected none with dynamic, least and deadline"),
    ({"deadline": 0.1}, "predict = 'nurd': expected none with dynamic"),
    ({"distribution": "constant"}, "predict = 'nurd': expected none where compute times do not differ"),
    ({"gamma": 2.0}, "gamma = 2.0"), ({"predict": "oracle"}, "predict = 'oracle'")])
def test_keys_that_make_no_sense_with_it_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **({"predict": "nurd"} | keys))


TRAINING = Asynchronous(method="nurd", updates=400, evaluate=80, width=4, rate=10e9)


@pytest.mark.build
@pytest.mark.parametrize("distribution", ["exponential", "pareto"])
def test_a_training_goes_on_without_them_and_alike_each_time(distribution):
    """No update is stale, since who is late stops; sums lack some workers, and are over sooner than those of all."""
    need("cc")
    everyone, first, again = (replace(TRAINING, method=method, distribution=distribution).measure()[0]
                              for method in ("synchronous", "nurd", "nurd"))
    assert first == again and max(first.staleness) == 0
    assert 4 * first.sums <= len(first.staleness) < 8 * first.sums
    assert first.seconds / first.sums < 0.9 * everyone.seconds / everyone.sums


@pytest.mark.build
def test_a_training_without_predictions_is_synchronous_to_the_bit(monkeypatch):
    need("cc")
    monkeypatch.setattr(Lookout, "all_straggle", lambda lookout, step, running: False)
    all_of_them, synchronous = (replace(TRAINING, method=method, updates=160).measure()[0] for method in ("nurd", "synchronous"))
    assert (all_of_them.scores, all_of_them.staleness) == (synchronous.scores, synchronous.staleness)


@pytest.mark.build
def test_sums_of_half_come_as_fast_as_a_closed_form_says_where_all_others_are_predicted(monkeypatch):
    """Exponential times have no memory: until the first four of eight are ready it takes H_8 - H_4 means."""
    need("cc")
    monkeypatch.setattr(Lookout, "all_straggle", lambda lookout, step, running: True)
    run = replace(TRAINING, updates=800).measure()[0]
    assert len(run.staleness) == 4 * run.sums
    assert run.seconds / run.sums == pytest.approx(0.01 * sum(1 / each for each in range(5, 9)), rel=0.1)


@pytest.mark.build
def test_a_sum_that_lacks_a_worker_that_is_not_predicted_is_noticed(monkeypatch):
    need("cc")
    monkeypatch.setattr(Lookout, "all_straggle", lambda lookout, step, running: True)
    monkeypatch.setattr(Judge, "lower", lambda judge, number, least: None)
    with pytest.raises(WrongSum, match="sum 0 is of 4 workers, expected 8 or more"):
        TRAINING.measure()


@pytest.mark.build
@pytest.mark.parametrize(("keys", "message"), [
    ({"distribution": "constant"}, "method = 'nurd': expected another one where compute times do not differ"),
    ({"computing": 0.0}, "method = 'nurd': expected another one where compute times do not differ"),
    ({"local": 2}, "local = 2: expected 0 or 1 with nurd"), ({"masked": True}, "masked = True: expected false"),
    ({"masked": True, "shares": 5}, "shares = 5: expected 0 with nurd"), ({"counter_noise": -1.0}, "counter_noise = -1.0")])
def test_keys_of_a_training_that_make_no_sense_with_it_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(TRAINING, **keys)
