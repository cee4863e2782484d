"""State of a C state machine as one block, which can be compared, saved and restored as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ina.base.native import CData, ffi


class Block:
    """``size`` bytes, zero at first; state that decides the behaviour comes first, statistics and times after ``head``. It sends
    frames of up to ``room`` bytes."""

    def _reserve(self, size: int, head: int, room: int) -> None:
        self._size, self._head, self._room = size, head, room
        self._state, self._frame = ffi.new("uint64_t[]", size // 8), ffi.new("uint8_t[]", room)
        self._packet = ffi.new("struct ina_packet *")

    def _frames(self, send: Callable[[CData], int]) -> Iterator[bytes]:
        """Yields the frames that ``send`` writes into a packet, until it writes none."""
        while True:
            self._packet.data, self._packet.len, self._packet.wire_len = self._frame, 0, 0
            self._packet.headroom, self._packet.tailroom = 0, self._room
            if send(self._packet) == 0:
                return
            yield bytes(ffi.buffer(self._packet.data, self._packet.len))

    def _counters(self, kind: str) -> dict[str, int]:
        return stats_dict(ffi.cast(f"struct {kind} *", ffi.cast("uint8_t *", self._state) + self._head))

    def snapshot(self) -> bytes:
        """Returns the whole state, for ``restore``. The contents of a worker's tensors are the caller's."""
        return bytes(ffi.buffer(self._state, self._size))

    def restore(self, snapshot: bytes) -> None:
        """Restores a snapshot of this machine."""
        if len(snapshot) != self._size:
            raise ValueError(f"snapshot: {len(snapshot)} bytes, expected {self._size}: of another configuration?")
        ffi.memmove(self._state, snapshot, self._size)

    def behaviour(self) -> bytes:
        """Returns the part of the state that decides the behaviour, without times and counters."""
        return bytes(ffi.buffer(self._state, self._head))


def stats_dict(stats: CData) -> dict[str, int]:
    """Converts a C struct of counters to a dict."""
    return {name: getattr(stats, name) for name, _ in ffi.typeof(stats).item.fields}
