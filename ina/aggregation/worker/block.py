"""A machine's state as one block of C: what is compared, kept and put back as bytes."""

from __future__ import annotations

from ina.base.native import CData, ffi


class Block:
    """``size`` bytes, zero at first; what decides the machine's behaviour comes first, statistics and times behind ``head``."""

    _size: int
    _head: int

    def _reserve(self, size: int, head: int) -> None:
        self._size, self._head = size, head
        self._state = ffi.new("uint64_t[]", size // 8)

    def _counters(self, kind: str) -> dict[str, int]:
        return stats_dict(ffi.cast(f"struct {kind} *", ffi.cast("uint8_t *", self._state) + self._head))

    def snapshot(self) -> bytes:
        """The whole state; ``restore`` takes it back. What a worker's tensors contain is the caller's."""
        return bytes(ffi.buffer(self._state, self._size))

    def restore(self, snapshot: bytes) -> None:
        """Goes back to a snapshot of this machine."""
        if len(snapshot) != self._size:
            raise ValueError(f"snapshot: {len(snapshot)} bytes, expected {self._size}: of another configuration?")
        ffi.memmove(self._state, snapshot, self._size)

    def behaviour(self) -> bytes:
        """The part of the state that decides what the machine does, without times and counters."""
        return bytes(ffi.buffer(self._state, self._head))


def stats_dict(stats: CData) -> dict[str, int]:
    """A C struct of counters as a dict."""
    return {name: getattr(stats, name) for name, _ in ffi.typeof(stats).item.fields}
