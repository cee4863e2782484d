"""omnireduce-ahead: one exponent for the whole tensor, so that zeros stay zeros."""

import numpy as np
import pytest

from ina import codecs

pytestmark = pytest.mark.fast


def sparse(workers: int, count: int, scale: float, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.where(rng.random(count) < 0.1, scale * rng.standard_normal(count), 0).astype(np.float32) for _ in range(workers)]


def reduced(tensors, average=False):
    each = [codecs.named("omnireduce-ahead") for _ in tensors]
    return each, codecs.reduced(each, tensors, average=average)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e37])
@pytest.mark.parametrize("workers", [1, 2, 7, 32])
def test_sums_are_within_the_bound_and_zeros_stay_zeros(workers, scale, average):
    tensors = sparse(workers, 1000, scale, seed=workers)
    each, results = reduced(tensors, average)
    exact = np.sum(np.asarray(tensors, np.float64), axis=0) / (workers if average else 1)
    assert np.all(np.abs(results[0] - exact) <= each[0].bound(tensors, average))
    assert all(result.tobytes() == results[0].tobytes() for result in results)
    assert not results[0][np.all(np.asarray(tensors) == 0, axis=0)].any()


def test_what_one_exponent_flushes_is_counted():
    each, results = reduced([np.array([1.0, 1e-12, 0], np.float32), np.array([1e-12, 2.0, 0], np.float32)])
    assert results[0].tolist() == [1, 2, 0]
    assert [codec.flushed for codec in each] == [1, 1]


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_all_of_it_nan(value):
    _, results = reduced([np.array([1, 0], np.float32), np.array([0, value], np.float32)])
    assert np.isnan(results).all()


def test_nothing_but_zeros_and_nothing_at_all():
    assert [result.tolist() for result in reduced([np.zeros(3, np.float32)] * 2)[1]] == [[0, 0, 0]] * 2
    assert [result.size for result in reduced([np.zeros(0, np.float32)] * 2)[1]] == [0, 0]
