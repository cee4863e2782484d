"""The small task to learn: gradients against differences, points against their shares, and that it can be learnt."""

import numpy as np
import pytest

from ina.lab.virtual.learning import CLASSES, FEATURES, TRAINED, Task

pytestmark = pytest.mark.fast


def loss(task: Task, parameters: np.ndarray, chosen: np.ndarray) -> float:
    """Returns the mean cross-entropy in float64, written from its definition."""
    ends = np.cumsum([FEATURES * task.hidden, task.hidden, task.hidden * CLASSES])
    into, bias, out, last = np.split(parameters.astype(np.float64), ends)
    points, classes = task._points[0][chosen].astype(np.float64), task._points[1][chosen]
    total = 0.0
    for point, right in zip(points, classes, strict=True):
        hidden = np.maximum(point @ into.reshape(FEATURES, task.hidden) + bias, 0)
        scores = hidden @ out.reshape(task.hidden, CLASSES) + last
        total += np.log(np.sum(np.exp(scores))) - scores[right]
    return total / len(classes)


def test_gradients_are_slopes_of_the_loss():
    task, chosen = Task(2, 5, 0.0, 3), np.arange(12)
    parameters = task.initial() + np.float32(0.01)
    gradient = task._gradient(parameters, chosen)
    for number in range(0, task.parameters, 7):
        step = np.zeros(task.parameters)
        step[number] = 1e-5
        slope = (loss(task, parameters + step, chosen) - loss(task, parameters - step, chosen)) / 2e-5
        assert gradient[number] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_an_update_is_what_steps_of_sgd_take_away():
    task = Task(4, 8, 0.0, 1)
    parameters = task.initial()
    one = task.update(parameters, 2, np.random.default_rng(5), 16, 0.5, 1)
    rng = np.random.default_rng(5)
    chosen = task._pieces[2][rng.integers(len(task._pieces[2]), size=16)]
    assert np.allclose(one, 0.5 * task._gradient(parameters, chosen), atol=1e-7)
    two = task.update(parameters, 2, np.random.default_rng(5), 16, 0.5, 2)
    then = task.update(parameters - one, 2, rng, 16, 0.5, 1)
    assert np.allclose(two, one + then, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
def test_each_point_is_one_workers(workers, skew):
    task = Task(workers, 4, skew, 2)
    assert np.array_equal(np.sort(np.concatenate(task._pieces)), np.arange(TRAINED))
    shares = [np.bincount(task._points[1][piece], minlength=CLASSES) / len(piece) for piece in task._pieces]
    if workers == 8:
        own = np.mean([share.max() for share in shares])
        low, high = {0.0: (0.1, 0.4), 0.5: (0.4, 0.7), 1.0: (0.7, 1.0)}[skew]
        assert low < own < high, "of the class that a worker has most of"


@pytest.mark.parametrize("concentration", [0.01, 0.1, 1.0])
def test_shares_of_classes_are_of_a_dirichlet_distribution(concentration):
    """Each point is one worker's, as many each. Of the first worker, whose shares no other one has limited, a share's variance
    over seeds is p (1 - p) / (10 a + 1) with p = 1/10, and what drawing 200 points adds."""
    shares = []
    for seed in range(12):
        task = Task(40, 4, 0.0, seed, concentration)
        assert np.array_equal(np.sort(np.concatenate(task._pieces)), np.arange(TRAINED))
        assert [len(piece) for piece in task._pieces] == [TRAINED // 40] * 40
        shares.append(np.bincount(task._points[1][task._pieces[0]], minlength=CLASSES) / 200)
    variance, drawn = np.mean((np.array(shares) - 0.1) ** 2), 0.09 / (CLASSES * concentration + 1)
    assert variance == pytest.approx(drawn + (0.09 - drawn) / 200, rel=0.35)


def test_the_task_can_be_learnt_but_not_at_once():
    task = Task(4, 16, 0.0, 1)
    parameters, rng = task.initial(), np.random.default_rng(0)
    reached = [task.score(parameters)]
    for _ in range(4):
        for step in range(150):
            parameters = parameters - task.update(parameters, step % 4, rng, 64, 0.5, 1)
        reached.append(task.score(parameters))
    assert reached[0] < 0.3 < 0.6 < reached[1] < 0.75 < reached[4]
    assert parameters.dtype == np.float32 and parameters.size == task.parameters == 506
