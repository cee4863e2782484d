"""PowerSGD over NumPy: the formulas, what feedback keeps, warm starts, and matrices that have no rank."""

import numpy as np
import pytest

from ina import codecs
from ina.base.native import lib
from ina.codecs.pointers import pointer
from ina.codecs.powersgd import PowerSgd

pytestmark = pytest.mark.fast


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize(("rows", "rank"), [(1, 1), (5, 3), (16, 16), (333, 4), (1000, 8)])
def test_columns_are_orthonormal_and_span_what_they_spanned(rows, rank):
    before = normal(rows * rank).reshape(rank, rows)
    after = before.copy()
    lib.ina_orthogonalise(rows, rank, pointer(after))
    assert np.allclose(after @ after.T, np.eye(rank), atol=1e-6)
    assert np.allclose(before - (before @ after.T) @ after, 0, atol=1e-5 * np.abs(before).max())


def test_a_column_that_others_span_becomes_zero():
    one, other = normal(100), normal(100, 1)
    columns = np.array([one, 3 * one, 0 * one, other, one + other])
    lib.ina_orthogonalise(100, 5, pointer(columns))
    assert columns.any(axis=1).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("count", [12, 11, 9, 8, 1])
def test_the_product_is_cut_to_the_tensor(count):
    left, right, x = normal(3 * 3).reshape(3, 3), normal(3 * 4, 1).reshape(3, 4), np.full(13, 7, np.float32)
    lib.ina_outer(count, 3, 4, 3, pointer(left), pointer(right), 2.0, pointer(x))
    assert np.allclose(x[:count], (2 * left.T @ right).ravel()[:count], atol=1e-5) and (x[count:] == 7).all()


def reference(gradients: list[list[np.ndarray]], rank: int, right: np.ndarray) -> list[np.ndarray]:
    """Averages of all steps by algorithms 1 and 2 of the paper, with NumPy's QR; columns, then rows, of 30."""
    missed, results = [np.zeros((30, 30)) for _ in gradients[0]], []
    for step in gradients:
        wanted = [each.reshape(30, 30) + rest for each, rest in zip(step, missed, strict=True)]
        left, _ = np.linalg.qr(np.mean([each @ right for each in wanted], axis=0))
        right = np.mean([each.T @ left for each in wanted], axis=0)
        missed = [each - left @ right.T for each in wanted]
        results.append((left @ right.T).ravel())
    return results


@pytest.mark.parametrize("workers", [1, 3])
def test_averages_are_those_of_the_formulas(workers):
    steps = [[normal(900, 10 * step + rank) for rank in range(workers)] for step in range(6)]
    each = [PowerSgd(3) for _ in range(workers)]
    right = each[0]._begun(np.zeros((3, 30), np.float32), 0)
    for step, expected in enumerate(reference(steps, 3, right.T.astype(float))):
        results = codecs.reduced(each, steps[step], average=True, step=step)
        assert all(np.array_equal(result, results[0]) for result in results)
        assert np.allclose(results[0], expected, atol=1e-4)


def test_the_error_of_a_fixed_matrix_shrinks_from_a_warm_start():
    """Without feedback, each call is one power iteration, from where the last one ended."""
    columns, _ = np.linalg.qr(normal(900).reshape(30, 30))
    own = ((columns * 0.8 ** np.arange(30)) @ columns.T).astype(np.float32).ravel()
    best = float(np.sqrt(np.sum(0.8 ** (2 * np.arange(3, 30)))))
    codec, errors = PowerSgd(3), []
    for step in range(20):
        errors.append(float(np.linalg.norm(codecs.reduced(codec, [own], step=step)[0] - own)))
        codec.missed[:] = 0
    assert errors[-1] == pytest.approx(best, rel=0.01) and errors[0] > 1.05 * best


@pytest.mark.parametrize(("workers", "size"), [(1, 900), (3, 1000), (8, 5000), (2, 4097)])
def test_error_feedback_keeps_what_a_sum_misses(workers, size):
    """All sums together and what is still missed are what all workers gave."""
    own, each = [normal(size, rank) for rank in range(workers)], [PowerSgd() for _ in range(workers)]
    total = np.zeros(size)
    for step in range(200):
        total += codecs.reduced(each, own, step=step)[0]
    exact = 200 * np.sum(own, axis=0, dtype=np.float64)
    missed = np.sum([codec.missed for codec in each], axis=0, dtype=np.float64)
    assert np.allclose(total + missed, exact, atol=1e-2)
    assert np.sum((total - exact) ** 2) < 0.05 * np.sum(exact**2)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 63])
def test_what_would_not_become_smaller_travels_as_it_is(size):
    own, each = [normal(size, rank) for rank in range(3)], [PowerSgd() for _ in range(3)]
    assert np.allclose(codecs.reduced(each, own)[0], np.sum(own, axis=0), atol=1e-6)
    assert each[0].traffic(size, 3).up == 4 * size


def test_zeros_are_zero_and_its_columns_begin_anew():
    each = [PowerSgd(2), PowerSgd(2)]
    for step in range(2):
        assert not codecs.reduced(each, [np.zeros(900, np.float32)] * 2, step=step)[0].any()
    own = [normal(900, rank) for rank in range(2)]
    results = codecs.reduced(each, own, step=2)
    assert np.array_equal(*results) and results[0].any() and each[0].right.any(axis=1).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_one_workers_nan_makes_the_tensor_nan_once(bad):
    """So does what is beyond float32 once multiplied."""
    own, each = [normal(900, rank) for rank in range(2)], [PowerSgd(), PowerSgd()]
    codecs.reduced(each, own)
    before = [(codec.missed.copy(), codec.right.copy()) for codec in each]
    spoilt = own[1].copy()
    spoilt[300:400] = bad
    assert all(np.isnan(result).all() for result in codecs.reduced(each, [own[0], spoilt], step=1))
    for codec, (missed, right) in zip(each, before, strict=True):
        assert np.array_equal(codec.missed, missed) and np.array_equal(codec.right, right)
    assert np.isfinite(codecs.reduced(each, own, step=2)[0]).all()


def test_bytes_are_as_stated():
    assert PowerSgd(4).traffic(1 << 20, 8).up == 4 * 4 * (1024 + 1024)  # 128 times less
    assert PowerSgd(1).traffic(1000, 8).up == 4 * (32 + 32)
    with pytest.raises(ValueError, match="codec powersgd: rank 0, columns 0, expected 1 and 0 at least"):
        PowerSgd(0)


def test_columns_are_those_of_the_layer():
    """A matrix of rank 2 is one only by its own columns: then two columns of P and Q are all of it."""
    own = (normal(40, 1).reshape(20, 2) @ normal(100, 2).reshape(2, 50)).ravel()
    missed = {}
    for columns in (50, 0):
        codec = PowerSgd(2, columns)
        for step in range(3):
            result = codecs.reduced(codec, [own], step=step)[0]
            codec.missed[:] = 0
        missed[columns] = np.sum((result - own) ** 2) / np.sum(own**2)
    assert missed[50] < 1e-9 and missed[0] > 0.1
    assert PowerSgd(2, 50).traffic(1000, 2).up == 4 * 2 * (20 + 50)
    with pytest.raises(ValueError, match="columns -1"):
        PowerSgd(2, -1)
