"""Rows of a mixture of experts as words that travel: their bits, or integers that a switch adds up."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

NOTHING, APART = -(1 << 20), 1 << 20  # levels of rows of zeros, and of those that are not added up on the way
BITS = 31  # of a sum, without its sign
WORD = torch.int32.itemsize  # bytes
Words: TypeAlias = npt.NDArray[np.int32]


def words_of(rows: torch.Tensor) -> torch.Tensor:
    """Returns the bits of rows as int32, each with zeros up to a whole word; their own memory where possible."""
    size = rows.element_size()
    whole = rows.detach().resolve_neg().contiguous()
    if rows.shape[1] * size % WORD:
        whole = torch.nn.functional.pad(whole, (0, 1))
    elif whole.storage_offset() * size % WORD or whole.data_ptr() % WORD:
        whole = whole.clone()
    return whole.flatten().view(torch.int32).view(len(whole), whole.shape[1] * size // WORD)  # no rows have any strides


def values_of(words: torch.Tensor, dtype: torch.dtype, width: int) -> torch.Tensor:
    """Returns rows of ``width`` values, of their bits as int32."""
    return words.view(dtype)[:, :width].contiguous()


def levels_of(rows: torch.Tensor) -> torch.Tensor:
    """Returns for each row the least e so that all absolute values are below 2^e; NOTHING for zeros, APART if some are not
    finite."""
    largest = rows.abs().amax(1).float()
    levels = torch.where(largest == 0, NOTHING, torch.frexp(largest).exponent)
    return torch.where(largest.isfinite(), levels, APART).to(torch.int32)


def scaled(rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Multiplies float32 rows by 2^shift in place, and returns them. Two factors, as one may be beyond float32; both products
    are exact, or too small to be more than 0 as integers."""
    half = shift // 2
    return rows.mul_(powers(half, torch.float32)).mul_(powers(shift - half, torch.float32))


def powers(exponents: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns 2^exponents, of normal numbers."""
    if dtype == torch.float64:
        return (exponents + 1023 << 52).view(dtype)
    return (exponents + 127 << 23).to(torch.int32).view(dtype)
