"""Numbers of a worker's configuration: whole ones, as C takes them."""

import math

import numpy as np
import pytest

from ina.aggregation.worker.config import WorkerConfig

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", ["worker", "workers", "job", "life", "slots", "first_packet"])
@pytest.mark.parametrize("value", [1.0, True, math.nan])
def test_a_number_that_is_not_whole_is_refused_by_name(name, value):
    numbers = {"worker": 0, "workers": 2, "life": 1, "slots": 64}
    with pytest.raises(ValueError, match=f"^{name}: {value!r}, expected a whole number, "):
        WorkerConfig(**(numbers | {name: value}))
    assert WorkerConfig(**(numbers | {"slots": np.int64(64)})).slots == 64
