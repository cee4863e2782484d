"""Top-k at common places: the largest values, whose turn it is, what feedback keeps, and DGC's momentum by its formulas."""

import numpy as np
import pytest

from ina import codecs
from ina.base.native import lib
from ina.codecs.pointers import pointer
from ina.codecs.topk import Dgc, TopK

pytestmark = pytest.mark.fast


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest, of equal ones the first, by sorting; infinity and NaN by their bits."""
    return np.sort(np.argsort(-(values.view(np.int32) & 0x7FFFFFFF).astype(np.int64), kind="stable")[:count])


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1000, 70_000])
@pytest.mark.parametrize(
    "kind", ["normal", "rounded", "zeros", "any bits", "tiny", "one value", "ascending"]
)
def test_places_are_those_of_the_largest(size, kind):
    x = normal(size)
    if kind == "rounded":
        x = np.round(x)
    elif kind == "zeros":
        x *= 0
    elif kind == "any bits":
        x = np.random.default_rng(1).integers(0, 2**32, size, dtype=np.uint32).view(np.float32)
    elif kind == "tiny":
        x = (x.view(np.uint32) & 0x807FFFFF).view(np.float32)
    elif kind == "one value":
        x = np.full(size, -3.5, np.float32)
    elif kind == "ascending":
        x = np.arange(size, dtype=np.float32)
    for count in {0, 1, size // 100, size // 2, size}:
        places = np.full(count, 7, np.uint32)
        lib.ina_topk(size, pointer(x), count, pointer(places))
        assert np.array_equal(places, largest(x, count))


@pytest.mark.parametrize(("workers", "discount"), [(1, 1.0), (2, 1.0), (5, 1.0), (3, 0.1)])
def test_each_worker_in_turn_chooses_the_places(workers, discount):
    """CLT-k, word for word: the leader's largest of gradient and feedback; everybody's values there are added up. And the
    low-pass filter: memory is (1 - discount) of itself and discount of what was not sent."""
    size, count, each = 200_000, 2000, [TopK(discount=discount) for _ in range(workers)]
    missed = [np.zeros(size, np.float32) for _ in each]
    for step in range(2 * workers + 1):
        own = [normal(size, 100 * step + rank) for rank in range(workers)]
        wanted = [gradient + rest for gradient, rest in zip(own, missed, strict=True)]
        places = largest(wanted[step % workers], count)
        expected = np.zeros(size)
        expected[places] = np.mean([values[places] for values in wanted], axis=0, dtype=np.float64)
        for values in wanted:
            values[places] = 0
        missed = [np.float32(1 - discount) * old + np.float32(discount) * new for old, new in zip(missed, wanted, strict=True)]
        results = codecs.reduced(each, own, average=True, step=step)
        assert all(np.array_equal(result, results[0]) for result in results)
        assert np.allclose(results[0], expected, rtol=1e-6) and np.count_nonzero(results[0]) == count
        assert all(np.array_equal(codec.missed, rest) for codec, rest in zip(each, missed, strict=True))


@pytest.mark.parametrize(
    ("workers", "size", "discount"), [(1, 100, 1), (3, 1000, 1), (8, 5000, 0.5), (4, 1, 1), (4, 2, 1), (2, 66_000, 1)]
)
def test_error_feedback_keeps_what_a_sum_misses(workers, size, discount):
    """All sums together and what is still missed are what all workers gave."""
    own, each = [normal(size, rank) for rank in range(workers)], [TopK(0.05, discount) for _ in range(workers)]
    total = np.zeros(size)
    for step in range(100):
        total += codecs.reduced(each, own, step=step)[0]
    exact = 100 * np.sum(own, axis=0, dtype=np.float64)
    missed = np.sum([codec.missed for codec in each], axis=0, dtype=np.float64) / discount
    assert np.allclose(total + missed, exact, atol=2e-3)
    assert np.sum((total - exact) ** 2) < 0.05 / discount * np.sum(exact**2)


@pytest.mark.parametrize("make", [TopK, Dgc])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_one_workers_nan_makes_the_tensor_nan_once(make, bad, where):
    """Values of the leader and of others alike: what scales losses by infinities must see them on all workers."""
    own, each = [normal(1500, rank) for rank in range(2)], [make(), make()]
    codecs.reduced(each, own)
    before = [codec.missed.copy() for codec in each]
    spoilt = [values.copy() for values in own]
    spoilt[where][600] = bad
    assert all(np.isnan(result).all() for result in codecs.reduced(each, spoilt, step=1))
    assert all(np.array_equal(codec.missed, earlier) for codec, earlier in zip(each, before, strict=True))
    assert np.isfinite(codecs.reduced(each, own, step=2)[0]).all()


@pytest.mark.parametrize("make", [TopK, Dgc])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 99, 65_536, 65_537])
def test_zeros_and_tensors_of_any_length(make, size):
    each = [make(), make()]
    assert not codecs.reduced(each, [np.zeros(size, np.float32)] * 2)[0].any()
    results = codecs.reduced(each, [normal(size, rank) for rank in range(2)], step=1)
    assert all(result.shape == (size,) and np.array_equal(result, results[0]) for result in results)
    assert np.count_nonzero(results[0]) == min(size, -(-size * {TopK: 10, Dgc: 1}[make] // 1000))


def test_another_length_begins_anew():
    each = [Dgc(), Dgc()]
    for size in (1000, 500):
        results = codecs.reduced(each, [normal(size, rank) for rank in range(2)])
        assert np.array_equal(*results) and each[0].missed.size == each[0].velocity.size == size


def test_bytes_are_as_stated():
    """16 bits for a place and 32 for its value, a word for each 65,536 values, and one for infinities."""
    elements = 1 << 20
    for name, count in {"topk": 10_486, "dgc": 1_049}.items():
        traffic = codecs.named(name).traffic(elements, 8)
        assert traffic.up == traffic.down == 4 * (1 + 16 + -(-count // 2) + count)


# ---- DGC


def test_momentum_is_corrected_and_masked_as_in_the_formulas():
    """Algorithm 4 of the paper without its Nesterov form: u = m u + g, v = v + u, both zero where v is sent."""
    size, share, each = 400, 0.05, [Dgc(0.05) for _ in range(3)]
    u, v = np.zeros((3, size), np.float32), np.zeros((3, size), np.float32)
    for step in range(30):
        own = [normal(size, 100 * step + rank) for rank in range(3)]
        u = np.float32(0.9) * u + np.array(own)
        v = v + u
        places = largest(v[step % 3], int(share * size))
        expected = np.zeros(size)
        expected[places] = np.sum(v[:, places], axis=0, dtype=np.float64)
        v[:, places] = u[:, places] = 0
        assert np.allclose(codecs.reduced(each, own, step=step)[0], expected, rtol=1e-5)
    for codec, missed, velocity in zip(each, v, u, strict=True):
        assert np.array_equal(codec.missed, missed) and np.array_equal(codec.velocity, velocity)


def test_gradients_are_cut_by_their_norm():
    """Each of n workers at n^-1/2 of the norm, as n independent gradients' sum has n^1/2 of it."""
    own = [normal(500, rank) for rank in range(4)]
    cut = [3 / 2 * values / np.linalg.norm(values) for values in own]
    results = [codecs.reduced([Dgc(0.1, clip=clip) for _ in own], tensors)[0] for clip, tensors in ((3, own), (None, cut))]
    assert np.allclose(*results, rtol=1e-5)
    generous = [codecs.reduced([Dgc(0.1, clip=clip) for _ in own], own)[0] for clip in (1e6, None)]
    assert np.array_equal(*generous)


def test_the_share_goes_down_during_a_warm_up():
    each = [Dgc(0.001, warm_up=8) for _ in range(2)]
    sent = [np.count_nonzero(codecs.reduced(each, [normal(10_000, step)] * 2, step=step)[0]) for step in range(10)]
    assert sent == [2500, 2500, 625, 625, 157, 157, 40, 40, 10, 10]


@pytest.mark.parametrize("wrong", [
    lambda: TopK(0), lambda: TopK(1.1), lambda: TopK(discount=0), lambda: Dgc(momentum=1), lambda: Dgc(clip=0),
    lambda: Dgc(warm_up=-1),
])
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=r"codec (topk|dgc): .* expected"):
        wrong()


def test_places_beyond_32_bits_are_refused():
    class Endless(np.ndarray):
        size = 1 << 32

    with pytest.raises(ValueError, match="codec topk: 4294967296 values, expected less than 2"):
        next(TopK().reduce(np.zeros(1, np.float32).view(Endless), codecs.Call(2)))
