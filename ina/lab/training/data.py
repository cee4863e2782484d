"""Data sets: Fashion-MNIST from its IDX files, or scikit-learn's bundled digits where they are not there."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.base.extras import Missing, extra

SYSTEM_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist"))
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

MOST_DIMS = 4  # of an IDX file: NumPy has no more than 32


class DataError(RuntimeError):
    """The data set is not there or not well formed; the message names the file."""


@dataclass(frozen=True)
class Dataset:
    """Images: uint8 [n, 28, 28]. Labels: int64 [n], 0..9. ``mean`` and ``std`` are of the training pixels."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    mean: float
    std: float

    def normalised(self, images: np.ndarray) -> np.ndarray:
        """Returns float32 [n, 1, 28, 28] of zero mean and unit variance; for a batch at a time the cost is negligible."""
        return ((images.astype(np.float32) - self.mean) / self.std)[:, None, :, :]


def read_idx(path: Path) -> np.ndarray:
    """Reads an IDX file of unsigned bytes (magic 0x000008nn, n big-endian sizes, then the data), gzipped or not."""
    try:
        raw = path.read_bytes()
        blob = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {error}") from None
    if len(blob) < 4 or blob[:3] != b"\x00\x00\x08":
        raise DataError(f"{path}: not an IDX file of unsigned bytes (magic {blob[:4].hex()}, expected 000008..)")
    dims = blob[3]
    if len(blob) < 4 + 4 * dims:
        raise DataError(f"{path}: ends within its header of {dims} sizes")
    shape = struct.unpack(f">{dims}I", blob[4 : 4 + 4 * dims])
    data = np.frombuffer(blob, np.uint8, offset=4 + 4 * dims)
    if data.size != math.prod(shape):
        raise DataError(f"{path}: {data.size} bytes of data, but its header says {shape}")
    if dims > MOST_DIMS:
        raise DataError(f"{path}: {dims} dimensions, expected {MOST_DIMS} at most")
    return data.reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.exists():
            return candidate
    raise DataError(f"{folder}: neither {name}.gz nor {name} is there")


def _moments(images: np.ndarray) -> tuple[float, float]:
    """Returns mean and standard deviation of uint8 pixels, exactly, from their histogram."""
    counts = np.bincount(images.reshape(-1), minlength=256)
    levels = np.arange(256)
    mean = float(counts @ levels) / images.size
    return mean, (float(counts @ (levels * levels)) / images.size - mean * mean) ** 0.5


def fashion_mnist(folder: Path) -> Dataset:
    train, train_labels, test, test_labels = (read_idx(_find(folder, name)) for name in FILES)
    if train.shape[1:] != (28, 28) or len(train) != len(train_labels) or len(test) != len(test_labels):
        raise DataError(f"{folder}: expected 28x28 images with a label each, found {train.shape}, {train_labels.shape}")
    labels, test_labels = train_labels.astype(np.int64), test_labels.astype(np.int64)
    return Dataset("Fashion-MNIST", train, labels, test, test_labels, *_moments(train))


def digits() -> Dataset:
    """Returns scikit-learn's 8x8 digits, each pixel three by three, centred in a 28x28 image; every fifth is for testing."""
    with extra("data"):
        from sklearn.datasets import load_digits

    bundle = load_digits()
    images = np.zeros((len(bundle.images), 28, 28), np.uint8)
    images[:, 2:26, 2:26] = np.kron(bundle.images * 15, np.ones((1, 3, 3)))  # 0..16 to 0..240
    labels = bundle.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 0
    train = images[~test]
    return Dataset("scikit-learn digits", train, labels[~test], images[test], labels[test], *_moments(train))


def load(folder: str = "") -> tuple[Dataset, str]:
    """Returns the data set of ``folder`` (or of the distribution's package), and a sentence that names it and the reason.

    Raises:
        DataError: ``folder`` was given and is not a Fashion-MNIST folder, or there is no data set at all.
    """
    if folder:
        return fashion_mnist(Path(folder)), f"Fashion-MNIST from {folder}"
    for candidate in SYSTEM_FOLDERS:
        if candidate.is_dir():
            return fashion_mnist(candidate), f"Fashion-MNIST from {candidate}"
    try:
        return digits(), (
            "scikit-learn's bundled digits, because Fashion-MNIST is not installed "
            "(Debian/Ubuntu: apt install dataset-fashion-mnist, or give --data FOLDER)"
        )
    except Missing as error:
        raise DataError(
            "no data set: install Fashion-MNIST (Debian/Ubuntu: apt install dataset-fashion-mnist), or give --data FOLDER "
            f"with its IDX files; {error}"
        ) from None
