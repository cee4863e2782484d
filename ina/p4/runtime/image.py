"""Bytes of table images (table.h), in which compiled programs look up keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ina.base.native import ffi

EXACT, TERNARY, RANGE = 0, 1, 2
KINDS = {"exact": EXACT, "lpm": TERNARY, "ternary": TERNARY, "optional": TERNARY, "range": RANGE}
DEFAULT_PARAM_WORDS = 64
ACTION_GROUP = 0x7FFFFFFF
_EMPTY = 0xFFFFFFFF
_HEADER_WORDS = 5 + DEFAULT_PARAM_WORDS  # struct ina_table, in 64-bit words

Key = tuple[tuple[int, int], ...]
Bound = tuple[int, list[int]]  # an action's index and its parameter words


def words_of(value: int, width: int) -> list[int]:
    """`value` in ceil(width / 64) words, least significant first."""
    return [(value >> (64 * i)) & 0xFFFFFFFFFFFFFFFF for i in range(max(1, (width + 63) // 64))]


def key_hash(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`ina_key_hash` of table.h for keys of shape (n, words), uint64."""
    h = np.zeros(len(keys), np.uint64)
    nothing = np.zeros(len(keys), np.uint64)
    for w in range(0, keys.shape[1], 2):
        other = keys[:, w + 1] if w + 1 < keys.shape[1] else nothing
        a, b = keys[:, w] ^ np.uint64(0x9E3779B97F4A7C15), other ^ np.uint64(0xFF51AFD7ED558CCD)
        h = (h << np.uint64(23) | h >> np.uint64(41)) ^ a * b ^ _high_half(a, b)
    return h


def _high_half(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Bits 127..64 of the products of 64-bit numbers."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross, other = (a & low) * (b >> half), (a >> half) * (b & low)
    carry = ((a & low) * (b & low) >> half) + (cross & low) + (other & low)
    high: npt.NDArray[np.uint64] = (a >> half) * (b >> half) + (cross >> half) + (other >> half) + (carry >> half)
    return high


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An entry: `key` as (value, mask or high bound) in the order of `keys`, and the action or group that it runs."""

    key: Key
    id: int
    action: Bound | None
    group: Sequence[Bound] | None = None


def build(
    keys: list[dict[str, Any]], key_words: int, param_words: int, rows: Sequence[ImageRow], default: Bound
) -> Any:
    """The image as cffi-owned 64-bit words. `keys`: width, match, first word (and bit in it) of each field, as in the
    layout; the first of `rows` wins.
    """
    kind = max((KINDS[k["match"]] for k in keys), default=EXACT)
    exact = kind == EXACT
    n, kw = len(rows), key_words
    param_offset = kw if exact else 2 * kw
    entry_words = 1 + param_offset + param_words
    body = np.zeros((n, entry_words), np.uint64)
    buckets = np.zeros(0, np.uint32)
    bucket_mask = 0
    if exact:
        count = 2
        while count < 2 * n:
            count *= 2
        bucket_mask = count - 1
        buckets = np.full(count, _EMPTY, np.uint32)
    groups: list[int] = []
    groups_at = _HEADER_WORDS + len(buckets) // 2 + body.size
    places: dict[int, int] = {}
    for r, row in enumerate(rows):
        words = [0] * entry_words
        for k, (value, mask) in zip(keys, row.key, strict=True):
            at, length = 1 + k["word"], len(words_of(0, k["width"]))
            if exact and length == 1:
                words[at] |= value << k.get("shift", 0)
                continue
            words[at : at + length] = words_of(value, k["width"])
            if not exact:
                words[at + kw : at + kw + length] = words_of(mask, k["width"])
        if row.group is not None:
            words[0] = ACTION_GROUP | row.id << 32
            if id(row.group) not in places:
                places[id(row.group)] = groups_at + len(groups)
                for action, params in row.group:
                    groups += [action, *params, *[0] * (param_words - len(params))]
            words[1 + param_offset] = places[id(row.group)] | len(row.group) << 32
        else:
            action, params = row.action or (0, [])
            words[0] = action | row.id << 32
            words[1 + param_offset : 1 + param_offset + len(params)] = params
        body[r] = words
    if exact:
        for i, at in enumerate((key_hash(body[:, 1 : 1 + kw]) & np.uint64(bucket_mask)).tolist()):
            while buckets[at] != _EMPTY:
                at = (at + 1) & bucket_mask
            buckets[at] = 4 * len(buckets) + i * entry_words * 8
    header = np.zeros(_HEADER_WORDS, np.uint64)
    header[:4].view(np.uint32)[:] = [kind, kw, param_offset, entry_words * 8, n, bucket_mask, default[0], 0]
    header[4] = sum(1 << k["word"] for k in keys if k["match"] == "range")
    header[5 : 5 + len(default[1])] = default[1]
    blob = header.tobytes() + buckets.tobytes() + body.tobytes() + np.array(groups, np.uint64).tobytes()
    memory = ffi.new("uint64_t[]", (len(blob) + 7) // 8)
    ffi.memmove(memory, blob, len(blob))
    return memory
