"""Models of the trainings: a convolutional network in two sizes, and a small transformer. All of images of 28 x 28 pixels.

Smooth on purpose (GELU, averages): with ReLU and max pooling, differences of one rounding grow ten-thousandfold within 100 steps
(measured), and comparing the back ends' parameters would say nothing about their sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ina.base.extras import extra

with extra("torch"):
    import torch
    from torch import nn

from ina.lab.training import data

SIDE = 28  # pixels
TRIED = 2000  # test images of an accuracy on the way
AT_ONCE = 500  # images


def cnn(channels: int, hidden: int) -> nn.Sequential:
    """Two convolutions, of ``channels`` and twice as many, and two linear layers with ``hidden`` units between them."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(2 * channels * 7 * 7, hidden), nn.GELU(), nn.Linear(hidden, 10),
    )


class Rows(nn.Module):
    """An image's rows as a sequence: [n, 1, 28, 28] to [n, 28, width], with learned positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(SIDE, width)
        self.position = nn.Parameter(0.02 * torch.randn(SIDE, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.project(images.flatten(0, 1)) + self.position


class Mean(nn.Module):
    """The mean over a sequence: [n, 28, width] to [n, width]."""

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return sequence.mean(1)


def transformer(width: int, depth: int) -> nn.Sequential:
    """``depth`` encoder layers (Vaswani et al., 2017; the norm first, no dropout) of ``width`` over an image's 28 rows."""
    layers = [nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
              for _ in range(depth)]
    return nn.Sequential(Rows(width), *layers, nn.LayerNorm(width), Mean(), nn.Linear(width, 10))


MODELS: dict[str, Callable[[], nn.Sequential]] = {  # kinds/training.py has their numbers of parameters
    "cnn": partial(cnn, 16, 256), "small": partial(cnn, 8, 48), "transformer": partial(transformer, 64, 2),
}


@torch.no_grad()
def right_answers(model: nn.Module, dataset: data.Dataset, tried: slice) -> int:
    """Returns the number of right answers to these test images."""
    images, labels = dataset.test_images[tried], torch.from_numpy(dataset.test_labels[tried])
    right = 0
    model.eval()
    for start in range(0, len(labels), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        right += int((model(torch.from_numpy(dataset.normalised(images[here]))).argmax(1) == labels[here]).sum())
    model.train()
    return right
