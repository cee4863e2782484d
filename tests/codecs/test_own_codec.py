"""The documented codec of one's own, examples/codecs/random_k.py: it learns what exact sums learn, in a fifth of the words."""

import importlib.util

import numpy as np
import pytest

from ina import codecs
from ina.base import paths
from ina.codecs import registry

pytestmark = pytest.mark.fast
EXAMPLE = paths.root() / "examples/codecs/random_k.py"


@pytest.fixture
def random_k(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    spec = importlib.util.spec_from_file_location("random_k", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(EXAMPLE.read_text().splitlines()) < 100
    return module.RandomK


def loss_after(workers: list[codecs.Codec] | codecs.Codec, steps: int = 301) -> float:
    """Least squares by gradient descent, the data split among three workers."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((300, 40)).astype(np.float32)
    target = rng.standard_normal(40).astype(np.float32)
    weights = np.zeros(40, np.float32)
    for step in range(steps):
        own = [inputs[rank::3] for rank in range(3)]
        gradients = [(each.T @ (each @ (weights - target)) / 50).astype(np.float32) for each in own]
        weights = weights - 0.05 * codecs.reduced(workers, gradients, average=True, step=step)[0]
    return float(np.mean((inputs @ (weights - target)) ** 2))


def test_random_places_with_error_feedback_learn(random_k):
    assert loss_after([codecs.named("random-k") for _ in range(3)]) < 1e-5
    assert loss_after(codecs.named("exact")) < 1e-5


def test_what_is_not_drawn_is_lost_without_error_feedback(random_k):
    class Forgetful(random_k):
        missed = property(lambda self: None, lambda self, value: None)

    assert loss_after([Forgetful() for _ in range(3)]) > 1e-5


def test_a_fifth_of_the_words_travels(random_k):
    assert random_k().traffic(100_000, 4).up == 4 * 20_000


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_workers_nan_does_not_last(random_k, bad):
    workers = [random_k() for _ in range(2)]
    own = [np.ones(4, np.float32), np.array([1, bad, 1, 1], np.float32)]
    assert np.isfinite(codecs.reduced(workers, own)[0]).all()
    assert all(np.isfinite(worker.missed).all() for worker in workers)
