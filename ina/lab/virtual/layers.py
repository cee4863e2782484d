"""Workloads: a model's layers with their sizes and compute times, and DDP's gradient buckets for them.

    name,elements,forward_ns,backward_ns       in the order of the forward pass; lines that begin with # are comments
    conv1,9408,810000,1620000                  elements: parameters of the layer, 0: it has none
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.base import error_text
from ina.base.settings import ConfigError

COLUMNS = ("name", "elements", "forward_ns", "backward_ns")
NS = 1000  # ps
MIB = 1 << 20
FLOAT = np.dtype(np.float32).itemsize  # bytes of a parameter


@dataclass(frozen=True)
class Layer:
    """A layer; ``forward`` and ``backward`` in ps."""

    name: str
    elements: int
    forward: int
    backward: int

    def scaled(self, share: float) -> Layer:
        """Returns a layer with this share of its times and elements; a layer with parameters keeps at least one."""
        elements = max(1, round(self.elements * share)) if self.elements else 0
        return Layer(self.name, elements, round(self.forward * share), round(self.backward * share))


@dataclass(frozen=True)
class Bucket:
    """A bucket. ``ready``: ps from the start of the backward pass to the last of its gradients."""

    elements: int
    ready: int


def read(path: Path) -> list[Layer]:
    """Reads a file of layers. Raises ConfigError with file and line."""
    try:
        lines = [(number, line) for number, line in enumerate(path.read_text().splitlines(), start=1)
                 if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise ConfigError(error_text.line(error)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file: expected lines of {','.join(COLUMNS)}") from None
    if not lines or tuple(name.strip() for name in lines[0][1].split(",")) != COLUMNS:
        raise ConfigError(f"{path}: expected the columns {','.join(COLUMNS)} in the first line")
    layers = []
    for number, line in lines[1:]:
        try:
            (row,) = csv.reader([line])  # quotes end in their line
            name, elements, forward, backward = row
            layer = Layer(name, int(elements), round(float(forward) * NS), round(float(backward) * NS))
        except (ValueError, OverflowError, csv.Error):  # infinity overflows
            raise ConfigError(f"{path}:{number}: {line!r}: expected a name and three numbers") from None
        if layer.elements < 0 or layer.forward < 0 or layer.backward < 0:
            raise ConfigError(f"{path}:{number}: {line!r}: expected numbers of 0 or more")
        layers.append(layer)
    if not any(layer.elements for layer in layers):
        raise ConfigError(f"{path}: no layer has elements: there is nothing to reduce")
    return layers


def write(path: Path, layers: Sequence[Layer], about: str) -> None:
    rows = [f"{layer.name},{layer.elements},{layer.forward // NS},{layer.backward // NS}" for layer in layers]
    path.write_text("\n".join([*(f"# {line}" for line in about.splitlines()), ",".join(COLUMNS), *rows]) + "\n")


def buckets(layers: Sequence[Layer], first_bytes: float, bucket_bytes: float) -> list[Bucket]:
    """Fills buckets as DDP does, in the order of the backward pass: a bucket is full when it has reached its size, float32; the
    first one is smaller, so that communication begins early (torch.nn.parallel.DistributedDataParallel, bucket_cap_mb)."""
    filled: list[Bucket] = []
    size, elapsed, ready, limit = 0, 0, 0, first_bytes
    for layer in reversed(layers):
        elapsed += layer.backward
        if not layer.elements:
            continue
        size, ready = size + layer.elements, elapsed
        if FLOAT * size >= limit:
            filled.append(Bucket(size, ready))
            size, limit = 0, bucket_bytes
    if size:
        filled.append(Bucket(size, ready))
    return filled
