"""A job's name is the same at every point of a sweep over workers, so that its points are one line of a plot."""

from dataclasses import replace

import pytest

from ina.lab.kinds.experts import Experts
from ina.lab.kinds.preemption import Preemption
from ina.lab.kinds.sharded import Sharded

pytestmark = pytest.mark.build
SMALL = (
    Sharded(layers=2, elements=2**13),
    Experts(experts=16, top=2, tokens=4, hidden=256, batches=1),
    Preemption(elements=2560, seconds=1.0),
)


@pytest.mark.parametrize("config", SMALL, ids=lambda config: config.kind)
def test_points_over_workers_are_one_line(config):
    names = {run.summary()["job"] for workers in (2, 4) for run in replace(config, workers=workers).measure()}
    assert len(names) == 1, names
