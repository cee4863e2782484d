"""The deep task to learn: gradients against those of torch, images against their patterns, and that it can be learnt."""

import numpy as np
import pytest
from capabilities import need

from ina.lab.virtual.images import CHANNELS, NOISE, PATTERN, SIDE, Images
from ina.lab.virtual.learning import CLASSES, TRAINED

pytestmark = pytest.mark.fast


def test_gradients_and_scores_are_those_of_torch():
    """The same network of torch's layers, whose autograd knows nothing of ours; its kernels are (out, in, row, column)."""
    need("torch")
    import torch
    from torch.nn.functional import avg_pool2d, conv2d, cross_entropy

    task, chosen = Images(2, 5, 0.0, 3), np.arange(24)
    parameters = task.initial() + np.float32(0.01)
    one, bias1, two, bias2, three, bias3, four, bias4 = (
        torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in task._split(parameters))
    images, classes = (torch.tensor(part[chosen]) for part in task._points)
    first, second = CHANNELS
    kernels1, kernels2 = one.reshape(3, 3, 1, first).permute(3, 2, 0, 1), two.reshape(3, 3, first, second).permute(3, 2, 0, 1)
    hidden = avg_pool2d(conv2d(images.double().permute(0, 3, 1, 2), kernels1, bias1).relu(), 2)
    hidden = conv2d(hidden, kernels2, bias2).relu().permute(0, 2, 3, 1).flatten(1)
    scores = (hidden @ three + bias3).relu() @ four + bias4
    cross_entropy(scores, classes).backward()
    right = np.concatenate([each.grad.numpy().ravel() for each in (one, bias1, two, bias2, three, bias3, four, bias4)])
    assert np.allclose(task._forward(parameters, images.numpy())[1], scores.detach().numpy(), atol=1e-4)
    assert np.allclose(task._gradient(parameters, chosen), right, atol=1e-5) and np.abs(right).max() > 0.01
    assert task.parameters == right.size and task.deep == right.size - sum(each.numel() for each in (three, bias3, four, bias4))


def test_an_image_is_its_classes_pattern_somewhere_and_noise():
    """Noise is left of images without their class's pattern, where that fits best; and no place is preferred."""
    task = Images(4, 4, 0.0, 2)
    images, classes = task._points[0][..., 0], task._points[1]
    assert images.shape[1:] == (SIDE, SIDE) and np.bincount(classes[:TRAINED]).min() > TRAINED / CLASSES * 0.85
    windows = np.lib.stride_tricks.sliding_window_view(images, (PATTERN, PATTERN), axis=(1, 2))
    rng = np.random.default_rng((2, 0))
    drawn = rng.standard_normal((CLASSES, PATTERN + 1, PATTERN + 1))
    patterns = sum(drawn[:, row : row + PATTERN, column : column + PATTERN] for row in (0, 1) for column in (0, 1)) / 2
    errors = ((windows - patterns[classes][:, None, None]) ** 2).mean(axis=(3, 4)).reshape(len(images), -1)
    assert errors.min(axis=1).mean() == pytest.approx(NOISE**2, rel=0.02)
    places = np.bincount(errors.argmin(axis=1), minlength=16)
    assert places.min() > len(images) / 16 * 0.85 and places.max() < len(images) / 16 * 1.15


def test_the_task_can_be_learnt_but_not_at_once():
    task = Images(4, 16, 0.0, 1)
    parameters, rng = task.initial(), np.random.default_rng(0)
    reached = [task.score(parameters)]
    for _ in range(3):
        for step in range(100):
            parameters = parameters - task.update(parameters, step % 4, rng, 64, 0.2, 1)
        reached.append(task.score(parameters))
    assert reached[0] < 0.3 < 0.5 < reached[1] < 0.8 < reached[3]
    assert parameters.dtype == np.float32 and parameters.size == task.parameters == 1034


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_images_are_dealt_as_points_are(skew):
    task = Images(8, 4, skew, 2)
    assert np.array_equal(np.sort(np.concatenate(task._pieces)), np.arange(TRAINED))
    own = np.mean([np.bincount(task._points[1][piece], minlength=CLASSES).max() / len(piece) for piece in task._pieces])
    assert (own > 0.7) == (skew == 1.0)
