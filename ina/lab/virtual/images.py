"""A small deep task to learn, in NumPy: which of ten classes an image is of, by a convolutional network of four layers.

Each class has a pattern, which lies anywhere in an image, among noise: so that convolutions help, as with LeNet-5 (LeCun et al.,
Proceedings of the IEEE, 1998), after which the network is built: two convolutions, between which pixels are averaged, and two
full layers. Everything is of one seed. Parameters and updates are flat float32 vectors, layer by layer, as they travel.

      image            convolution        mean of 2 x 2      convolution        full           full
    10 x 10 x 1  ->  8 x 8 x CHANNELS[0]  ->  4 x 4  ->  2 x 2 x CHANNELS[1]  ->  hidden  ->  10 scores
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ina.lab.virtual.learning import CLASSES, TESTED, TRAINED, Task

SIDE, PATTERN, KERNEL = 10, 7, 3  # pixels
CHANNELS = 4, 8
NOISE = 0.5  # standard deviation of a pixel, of a pattern's without it: 1


@dataclass(frozen=True)
class Images(Task):
    """The images of ``workers`` workers; keys are those of Task. ``hidden``: units of the first full layer."""

    def __post_init__(self) -> None:
        first, second = CHANNELS
        matrices = (KERNEL**2, first), (KERNEL**2 * first, second), (4 * second, self.hidden), (self.hidden, CLASSES)
        object.__setattr__(self, "_shapes", tuple(each for shape in matrices for each in (shape, shape[1:])))

    @cached_property
    def deep(self) -> int:
        """Number of the first parameter of deep layers, the full ones: those before it are of convolutions."""
        return self._ends[3]

    def _drawn(self, rng: np.random.Generator) -> np.ndarray:
        parts = [rng.standard_normal(shape) * np.sqrt(2 / shape[0]) if len(shape) == 2 else np.zeros(shape)
                 for shape in self._shapes]
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    def _layers(self, parameters: np.ndarray, images: np.ndarray) -> list[np.ndarray]:
        """Returns each layer's inputs, and the scores at the end: (n, 8, 8, 9), (n, 2, 2, 9 x channels), (n, 4 x channels),
        (n, hidden), (n, 10)."""
        one, bias1, two, bias2, three, bias3, four, bias4 = self._split(parameters)
        first = _windows(images)
        second = _windows(_pooled(np.maximum(first @ one + bias1, 0)))
        third = np.maximum(second @ two + bias2, 0).reshape(len(images), -1)
        fourth = np.maximum(third @ three + bias3, 0)
        return [first, second, third, fourth, fourth @ four + bias4]

    def _forward(self, parameters: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        *_, last, scores = self._layers(parameters, points)
        return last, scores

    def _gradient(self, parameters: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        images, classes = self._points[0][chosen], self._points[1][chosen]
        one, bias, two, _, three, _, four, _ = self._split(parameters)
        first, second, third, fourth, scores = self._layers(parameters, images)
        error = np.exp(scores - scores.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(classes)), classes] -= 1
        error /= len(classes)
        back4 = (error @ four.T) * (fourth > 0)
        back3 = ((back4 @ three.T) * (third > 0)).reshape(*second.shape[:3], -1)
        back2 = _spread(_gathered(back3 @ two.T)) * (first @ one + bias > 0)
        parts = []
        for inputs, outputs in ((first, back2), (second, back3), (third, back4), (fourth, error)):
            flat = outputs.reshape(-1, outputs.shape[-1])
            parts += [(inputs.reshape(len(flat), -1).T @ flat).ravel(), flat.sum(axis=0)]
        return np.concatenate(parts).astype(np.float32)

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """Images, float32 (n, SIDE, SIDE, 1), and their classes."""
        rng = np.random.default_rng((self.seed, 0))
        patterns = rng.standard_normal((CLASSES, PATTERN + 1, PATTERN + 1))
        patterns = (patterns[:, 1:, 1:] + patterns[:, 1:, :-1] + patterns[:, :-1, 1:] + patterns[:, :-1, :-1]) / 2
        count, room = TRAINED + TESTED, SIDE - PATTERN + 1
        classes, places = rng.integers(CLASSES, size=count), rng.integers(room, size=(count, 2))
        images = NOISE * rng.standard_normal((count, SIDE, SIDE))
        for image, each, (row, column) in zip(images, classes, places, strict=True):
            image[row : row + PATTERN, column : column + PATTERN] += patterns[each]
        return images[..., None].astype(np.float32), classes


def _windows(images: np.ndarray) -> np.ndarray:
    """Returns the KERNEL x KERNEL pixels around each: (n, h, w, c) to (n, h - 2, w - 2, 9 c)."""
    views = np.lib.stride_tricks.sliding_window_view(images, (KERNEL, KERNEL), axis=(1, 2))  # (n, h', w', c, 3, 3)
    return np.ascontiguousarray(np.moveaxis(views, 3, 5)).reshape(*views.shape[:3], -1)


def _gathered(windows: np.ndarray) -> np.ndarray:
    """Returns the sum of each pixel's values in all windows: the transpose of _windows."""
    count, high, wide, size = windows.shape
    images = np.zeros((count, high + KERNEL - 1, wide + KERNEL - 1, size // KERNEL**2), windows.dtype)
    parts = windows.reshape(count, high, wide, KERNEL, KERNEL, -1)
    for row in range(KERNEL):
        for column in range(KERNEL):
            images[:, row : row + high, column : column + wide] += parts[:, :, :, row, column]
    return images


def _pooled(images: np.ndarray) -> np.ndarray:
    """Returns the means of 2 x 2 pixels: (n, h, w, c) to (n, h/2, w/2, c)."""
    count, high, wide, channels = images.shape
    return images.reshape(count, high // 2, 2, wide // 2, 2, channels).mean(axis=(2, 4))


def _spread(images: np.ndarray) -> np.ndarray:
    """Returns the transpose of _pooled."""
    return images.repeat(2, axis=1).repeat(2, axis=2) / images.dtype.type(4)
