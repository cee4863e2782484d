"""Deep layers that travel in some sums only: against a training in one process, and bytes against their closed form."""

from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds.asynchronous import Asynchronous
from ina.lab.virtual.images import Images
from ina.lab.virtual.judge import Judge

pytestmark = pytest.mark.build
need("cc")

BASE = Asynchronous(method="layerwise", task="images", updates=1024, evaluate=64, local=4, rate=10e9, values=256)


def shallow(sums: int, loop: int, deep: int) -> int:
    """Returns how many of the first sums have shallow layers only."""
    return sum(number % loop < loop - deep for number in range(sums))


def test_layers_that_travel_always_are_local_steps():
    always, local = replace(BASE, deep=15).measure()[0], replace(BASE, method="local").measure()[0]
    assert always.scores == local.scores and always.busiest_bytes == local.busiest_bytes


def test_bytes_are_those_of_the_layers_that_travel():
    """Packets have 256 values: five all layers, and two the convolutions, 336 of 1,034 parameters. Each packet that is not sent
    saves as many bytes: its values, headers, and the question for it."""
    always, saved = replace(BASE, deep=15).measure()[0], []
    assert always.sums == 32
    for loop, deep in ((15, 5), (15, 10), (4, 1)):
        run = replace(BASE, loop=loop, deep=deep).measure()[0]
        assert run.sums == always.sums
        saved.append((always.busiest_bytes - run.busiest_bytes) / ((5 - 2) * shallow(run.sums, loop, deep)))
    assert saved == pytest.approx(3 * [saved[0]], rel=0.002), "at the end one question more or less"
    assert 4 * 256 < saved[0] < 4 * 256 * 1.25


def test_training_is_that_of_one_process():
    """The same steps on the same images: who waits for deep layers goes on with its own. Only numbers on the wire are rounded."""
    (run,) = replace(BASE, loop=4, deep=1, evaluate=32).measure()
    task, rngs = Images(8, 16, 0.0, 1), [np.random.default_rng((1, 4, worker)) for worker in range(8)]
    first, scores = task.deep, []
    shared, own = task.initial(), [task.initial()[first:] for _ in range(8)]
    for number in range(32):
        models = []
        for worker in range(8):
            begin = np.concatenate([shared[:first], own[worker]])
            models.append(begin - task.update(begin, worker, rngs[worker], 16, 0.2, 4))
        own = [model[first:] for model in models]
        shared = np.concatenate([np.mean([model[:first] for model in models], axis=0), shared[first:]])
        if number % 4 == 3:
            shared = np.mean(models, axis=0)
            own = 8 * [shared[first:]]
        scores.append(task.score(shared))
    assert [score for *_, score in run.scores[1:]] == pytest.approx(scores, abs=0.01) and scores[-1] > 0.4


def test_stale_models_weigh_less(monkeypatch):
    """By (e/2) to the power of minus their staleness, as published (arXiv 1903.07424)."""
    updates, offers, update, offer = [], [], Images.update, Judge.offer

    def compute(task, parameters, worker, *rest):
        updates.append((worker, update(task, parameters, worker, *rest)))
        return updates[-1][1]

    def compare(judge, number, worker, version, values, plain):
        alone = [each for by, each in updates if by == worker][-1]
        assert np.allclose(values, alone * (np.e / 2) ** (version - number), rtol=1e-5, atol=1e-9)
        offers.append(number - version)
        offer(judge, number, worker, version, values, plain)

    monkeypatch.setattr(Images, "update", compute)
    monkeypatch.setattr(Judge, "offer", compare)
    replace(BASE, least=5, damping="exponential", deep=15).measure()
    assert len(offers) > 200 and {0, 1, 2} <= set(offers)


@pytest.mark.parametrize(("keys", "expected"), [
    ({"deep": 16}, "deep = 16: expected at most 15"), ({"outer": "adagrad"}, "outer = 'adagrad': expected sgd with layerwise"),
    ({"outer_momentum": 0.5}, "outer_momentum = 0.5: expected 0 with layerwise"),
])
def test_wrong_keys_are_refused(keys, expected):
    with pytest.raises(ConfigError, match=expected):
        replace(BASE, **keys)
