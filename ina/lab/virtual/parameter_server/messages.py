"""Messages of the parameter server as 32-bit words (Li et al., OSDI 2014, section 4.2): a range, its clock, and values.

                 header                                                         then
    push         PUSH id worker epoch begin end time entries                    values of all keys of the range (entries = -1); or
                                                                                 entries keys, and their values; or, of a
                                                                                 list that the server has, CACHED: the
                                                                                 signature of the keys, and the values
    pushed       PUSHED id worker epoch 0 0 0 0
    pull         PULL id worker epoch begin end least 0
    state        STATE (an answer to a pull) or COPY (to a server) id sender epoch begin end pieces 0
                                                                                 pieces of the clock, four words each, then values
    copied       COPIED id sender epoch 0 0 0 0
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ina.lab.virtual.parameter_server.clocks import Piece
from ina.lab.virtual.virtual_network import WrongSum

PUSH, PUSHED, PULL, STATE, COPY, COPIED = NAMES = ("push", "pushed", "pull", "state", "copy", "copied")
HEADER = 8  # words
DENSE, CACHED = -1, -2


def signature(keys: np.ndarray) -> int:
    """Returns the signature of a list of keys, int32 (key caching: Li et al., NIPS 2014, section 3.3)."""
    return int(np.uint32(zlib.crc32(keys.tobytes())).astype(np.int32))


class Header(NamedTuple):
    """First words of a message. ``time``: of a push, the least that a pull asks for, or pieces of a clock."""

    kind: str
    number: int
    sender: int
    epoch: int
    begin: int = 0
    end: int = 0
    time: int = 0
    entries: int = 0

    def words(self, *parts: np.ndarray) -> np.ndarray:
        """Returns the message with what follows: int32 words."""
        head = np.array([NAMES.index(self.kind), *self[1:]], np.int32)
        return np.concatenate([head, *(part.view(np.int32) for part in parts)])


def header(words: np.ndarray) -> Header:
    """Returns the header of a message."""
    kind, *rest = words[:HEADER].tolist()
    return Header(NAMES[kind], *rest)


def pushed(head: Header, words: np.ndarray, known: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray]:
    """Returns the keys of a push, None: all of its range, and its float32 values. ``known``: keys of the latest such push of the
    worker. Raises WrongSum: it says that it has the same keys, and they are others."""
    body = words[HEADER:]
    if head.entries == DENSE:
        return None, body.view(np.float32)
    if head.entries == CACHED:
        if known is None or signature(known) != body[0]:
            raise WrongSum(f"push {head.number} of worker {head.sender}: the server does not have its list of keys")
        return known, body[1:].view(np.float32)
    return body[: head.entries], body[head.entries :].view(np.float32)


def spread(head: Header, keys: np.ndarray | None, values: np.ndarray) -> np.ndarray:
    """Returns the values of a push for each key of its range, float32; zeros for keys that it leaves out."""
    if keys is None:
        return values
    whole = np.zeros(head.end - head.begin, np.float32)
    whole[keys - head.begin] = values
    return whole


def state(head: Header, pieces: Sequence[Piece], values: np.ndarray) -> np.ndarray:
    """Returns a message with values and their clock."""
    return head._replace(time=len(pieces)).words(np.array(pieces, np.int32).ravel(), values)


def read_state(head: Header, words: np.ndarray) -> tuple[list[Piece], np.ndarray]:
    """Returns the clock and the float32 values of such a message."""
    split = HEADER + 4 * head.time
    return [Piece(*piece) for piece in words[HEADER:split].reshape(-1, 4).tolist()], words[split:].view(np.float32)


def state_bytes(keys: int, pieces: int) -> int:
    """Returns the length of a message with values of so many keys and so many pieces of a clock."""
    return 4 * (HEADER + 4 * pieces + keys)
