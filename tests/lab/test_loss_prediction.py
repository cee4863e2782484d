"""Losses that are predicted, against a quadratic function whose gradients are known, and in trainings."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds.asynchronous import Asynchronous, Learned
from ina.lab.virtual.asynchronous.run import Run
from ina.lab.virtual.images import Images
from ina.lab.virtual.learning import Task
from ina.lab.virtual.loss_prediction import FEWEST, LossTrend

BASE = Asynchronous(method="foresight", updates=400, evaluate=400, width=4, rate=10e9)


@pytest.mark.fast
@pytest.mark.parametrize("stale", [0, 1, 5, 40])
def test_a_stale_gradient_of_a_quadratic_function_becomes_the_one_that_is_due(stale):
    """Gradient descent on |x|^2/2 makes x smaller by the same factor in each step: so does the weight make its gradient x."""
    trend, position = LossTrend(), np.array([3.0, -4.0])
    for version in range(30):
        trend.know(version, float(position @ position) / 2)
        before, position = position, 0.9 * position
    now = before * 0.9**stale
    assert trend.weight(stale) * before == pytest.approx(now, rel=1e-9)


@pytest.mark.fast
def test_the_trend_is_of_the_latest_losses_and_there_is_none_without_enough_or_where_losses_rise():
    trend = LossTrend()
    for version in range(FEWEST - 1):
        trend.know(version, 0.5**version)
        assert trend.weight(3) == 1
    trend.know(FEWEST - 1, 0.5 ** (FEWEST - 1))
    assert trend.weight(2) == pytest.approx(0.5)
    for version in range(80):
        trend.know(100 + version, 0.9 ** (2 * version))
    assert trend.weight(1) == pytest.approx(0.9)
    for version in range(100):
        trend.know(300 + version, 1.1**version)
    assert trend.weight(1) == 1
    same = LossTrend()
    for _ in range(FEWEST):
        same.know(5, 1.0)
    assert same.weight(9) == 1


@pytest.mark.fast
@pytest.mark.parametrize("kind", [Task, Images])
def test_the_loss_is_that_whose_gradient_the_next_update_is(kind):
    """By differences of the loss along some directions; and drawing is not disturbed."""
    task, rng = kind(2, 4, 0.0, 1), np.random.default_rng(5)
    at = task.initial().astype(np.float64)
    twin = np.random.default_rng(5)
    losses, slopes, step = [], [], 1e-4
    directions = np.random.default_rng(6).standard_normal((3, task.parameters))
    for direction in directions:
        ends = [task.loss(at + sign * step * direction, 1, rng, 16) for sign in (1, -1)]
        slopes.append((ends[0] - ends[1]) / (2 * step))
        losses.append(ends[0])
    gradient = task.update(at, 1, rng, 16, 1.0, 1)
    assert directions @ gradient == pytest.approx(slopes, rel=1e-3)
    assert np.array_equal(gradient, task.update(at, 1, twin, 16, 1.0, 1)) and min(losses) > 0


@cache
def learnt(**keys) -> Learned:
    return replace(BASE, **keys).measure()[0]


@pytest.mark.build
def test_losses_in_sums_weigh_updates_as_one_process_does_it(monkeypatch):
    """Each weight of a run against a trend of the losses that the worker's versions have had, kept apart."""
    need("cc")
    weights, true = [], {}
    offer, compute = Run._offer, Run._compute

    def computes(run, worker):
        loss = run.task.loss(worker.parameters, worker.number, worker.data, run.config.batch)
        true.setdefault(worker.number, []).append((worker.version, loss))
        compute(run, worker)

    def offers(run, worker, update):
        trend, turn = LossTrend(), Counter()
        for number in range(worker.version):
            for each in run.judge.sets[number]:  # a worker's updates are in sums in the order in which it has made them
                trend.know(*true[each][turn[each]])
                turn[each] += 1
        offer(run, worker, update)
        number = worker.offered[0]
        values = run.judge._values[number, worker.number][: run.task.parameters]
        weights.append(trend.weight(number - update.version))
        assert values == pytest.approx(np.float32(weights[-1]) * update.values, rel=1e-5, abs=1e-9)

    monkeypatch.setattr(Run, "_offer", offers)
    monkeypatch.setattr(Run, "_compute", computes)
    run = replace(BASE, updates=80).measure()[0]
    assert len(run.staleness) >= 80
    assert min(weights) < 0.95 and max(weights) == 1


@pytest.mark.build
def test_nobody_waits_and_the_same_keys_give_the_same_bits():
    need("cc")
    run = learnt()
    assert run.summary()["per_second"] == pytest.approx(800, rel=0.1)
    assert run.summary()["staleness"] == pytest.approx(8, rel=0.06)
    again = replace(BASE).measure()[0]
    assert again.scores == run.scores and again.staleness == run.staleness and again.stats == run.stats


@pytest.mark.build
@pytest.mark.parametrize(("keys", "message"), [
    ({"task": "cartpole"}, "task = 'cartpole': expected classes or images with foresight: cartpole has no loss that falls"),
    ({"local": 2}, "local = 2: expected 0 or 1 with foresight: a loss is of one step"),
    ({"masked": True}, "masked = True: expected false with sums of 1 of 8")])
def test_keys_that_make_no_sense_with_it_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **keys)
