"""Messages from one worker to another in a codec: what a pipeline's stages send each other.

What a codec returns is made from the rounds' results, which all workers get. Of one worker alone these are its own words, so the
words of all rounds, one after another, are a message. Its reader runs the codec, too, over zeros, and takes the message's words
for the rounds' results: it returns what the writer does, to the bit, and feedback stays with the writer.

    4 bytes: CRC-32 of the codec's title, the number of values and the step      then the words     all little-endian
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable

import numpy as np

from ina.codecs.codec import OWN, Call, Codec

_HEAD = struct.Struct("<I")
assert sys.byteorder == "little", "messages are a machine's own words"


def message_bytes(codec: Codec, elements: int) -> int:
    """Returns the size of a message of so many values. ValueError: no size holds for all values, or a round needs a switch."""
    if OWN in codec.operations:
        needed = codec.protocol or "that it needs"
        raise ValueError(f"codec {codec.name}: the program {needed} sums in its own way, but no switch "
                         "is between two workers; expected a codec that only adds")
    traffic = codec.traffic(elements, 1)
    if not traffic.exact:
        raise ValueError(f"codec {codec.name}: how many bytes travel depends on the values, but a reader has to know; expected a "
                         "codec of a fixed size, such as powersgd, thc or lanes-16")
    return _HEAD.size + traffic.up


def write(codec: Codec, values: np.ndarray, step: int) -> np.ndarray:
    """Returns the message of ``values`` (flat, contiguous float32, which stay unchanged): uint8, of `message_bytes`.

    ``step``: the number of the codec's messages before this one. What rounding misses of these values is added to the next
    ones by a codec with feedback. ValueError: as `message_bytes`; or this call of the codec has another size than the others.
    """
    size, parts = message_bytes(codec, values.size), [_head(codec, values.size, step)]

    def send(words: np.ndarray) -> np.ndarray:
        parts.append(words.tobytes())
        return words.copy()

    _summed(codec, values, step, send)
    message = b"".join(parts)
    if len(message) > size:
        raise ValueError(f"codec {codec.name}: {len(message)} bytes in step {step}, expected at most {size} in each: choose "
                         "another codec, such as powersgd, thc or lanes-16")
    return np.frombuffer(message.ljust(size, b"\0"), np.uint8)


def read(codec: Codec, message: np.ndarray, elements: int, step: int) -> np.ndarray:
    """Returns the values of a message, float32: what the writer's codec would return to all workers.

    ``codec``: made as the writer's, and as old: it has read all messages before this one. ValueError: the message is of
    another codec, step or number of values.
    """
    size = message_bytes(codec, elements)
    if message.dtype != np.uint8 or message.shape != (size,) or message[: _HEAD.size].tobytes() != _head(codec, elements, step):
        raise ValueError(f"a message of {message.size} bytes was not written as number {step} of codec {codec.title}, with "
                         f"{elements} values and {size} bytes: both sides need the same codec, and all messages in their order")
    place = _HEAD.size

    def receive(words: np.ndarray) -> np.ndarray:
        nonlocal place
        begin, place = place, place + words.nbytes
        return np.frombuffer(message[begin:place].tobytes(), words.dtype).copy()

    try:
        return _summed(codec, np.zeros(elements, np.float32), step, receive)
    except IndexError:
        raise ValueError(f"a message of codec {codec.title}: its words are none that the codec writes") from None


def _summed(codec: Codec, values: np.ndarray, step: int, exchange: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Returns what the codec returns to one worker alone; ``exchange``: from a round's words to its result."""
    running = codec.reduce(values, Call(1, step=step))
    try:
        turn = next(running)
        while True:
            turn = running.send(exchange(turn.words))
    except StopIteration as end:
        total: np.ndarray = end.value
        return total


def _head(codec: Codec, elements: int, step: int) -> bytes:
    return _HEAD.pack(zlib.crc32(f"{codec.title} {elements} {step}".encode()))
