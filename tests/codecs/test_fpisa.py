"""The arithmetic of FPISA over NumPy: by examples worked out by hand, and within its bound."""

import numpy as np
import pytest

from ina import codecs
from ina.codecs.fpisa import Fpisa, sums

pytestmark = pytest.mark.fast
INF, NAN = float("inf"), float("nan")
LARGEST, SMALLEST = float(np.finfo(np.float32).max), 2.0**-149


def total(*values: float, shifts_stored: bool = True) -> float:
    return sums([np.array([value], np.float32) for value in values], shifts_stored)[0]


@pytest.mark.parametrize(("values", "expected"), [
    ((0.1,), np.float32(0.1)), ((1, 2, 3), 6), ((1, -1), 0), ((-0.0, -0.0), 0),
    ((2.0**24, 1.5, 1.0), 2.0**24),        # its unit is 2: both are cut to nothing
    ((1.5, 1.0, 2.0**24), 2.0**24 + 2),    # 2.5 is cut to 2
    ((-(2.0**24), -1.5), -(2.0**24)),      # towards zero
    ((2.0**24 + 2, 2.0**24), 2.0**25), ((2.0**24 + 2, 2.0**24 + 2), 2.0**25 + 4),
    ((SMALLEST, 3 * SMALLEST), 4 * SMALLEST), ((2.0**-126, -SMALLEST), 2.0**-126 - SMALLEST),
    ((LARGEST, LARGEST), INF), ((-LARGEST, -LARGEST), -INF), ((LARGEST, -LARGEST), 0),
    ((LARGEST, LARGEST, -LARGEST), LARGEST),  # beyond float32 on the way
    ((INF, 1), INF), ((1, -INF, LARGEST), -INF), ((INF, -INF), NAN), ((NAN, INF), NAN), ((INF, INF), INF),
])
def test_sums_are(values, expected):
    result = total(*values)
    assert np.float32(result).tobytes() == np.float32(expected).tobytes()


@pytest.mark.parametrize(("values", "expected"), [
    ((1, 128), 129), ((1, 256), 256), ((1, -256, 1), -255),  # 8 places: it takes the sum's place
    ((1, 100, 100, 100), 256 - 2.0**-16), ((1, -128, -128, -128), -256),  # ends of the head-room
    ((256, 1.0 + 2**-23), 257), ((LARGEST, INF), INF), ((INF, LARGEST), INF), ((1, NAN), NAN),
])
def test_sums_of_fpisa_a_are(values, expected):
    assert np.array_equal(total(*values, shifts_stored=False), np.float32(expected), equal_nan=True)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 32])
def test_errors_stay_within_the_bound(workers, average):
    rng = np.random.default_rng(workers)
    for spread in (0, 3, 30):
        own = [(rng.standard_normal(4000) * 2.0 ** rng.integers(-spread, spread + 1, 4000)).astype(np.float32)
               for _ in range(workers)]
        exact = np.sum(np.array(own, float), axis=0) / (workers if average else 1)
        result = codecs.reduced(Fpisa(), own, average=average)[0].astype(float)
        assert (np.abs(result - exact) <= Fpisa().bound(own, average)).all()
        assert workers == 1 or np.abs(result - exact).max() * 100 > Fpisa().bound(own, average).max()  # it says something


def test_its_values_stay_unchanged():
    values = np.array([1, 2, 3], np.float32)
    codecs.reduced(Fpisa(), [values, values])
    assert values.tolist() == [1, 2, 3]
