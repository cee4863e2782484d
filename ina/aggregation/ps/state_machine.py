"""A parameter server without I/O: frames in, frames out, at times that the caller passes.

It wraps the C state machine of ``host/protocol/ps.c``, for one job: it sums what the switches could not, and replies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.aggregation import completion
from ina.aggregation.lane import DEFAULT, Lane
from ina.aggregation.worker.block import Block
from ina.aggregation.worker.config import ATP_SWITCH, KEY_BYTES, SERVER, check_numbers, fill_address
from ina.base.native import CData, ffi, lib
from ina.net.ports import Address


@dataclass(frozen=True)
class ServerConfig:
    """``struct ina_ps_config``; its own and the switch's address default to those of the local world.

    ``direct``: a plain parameter server, to which workers send without a switch's help, from ``worker_addresses``. Otherwise
    frames come from the switch, and with ``multicast`` it spreads the results; without, each worker gets a copy of its own.
    ``routes``: sums may be from and for some workers only.
    """

    workers: int
    job: int = 0
    life: int = field(kw_only=True)  # the workers'; no default
    slots: int = 64
    values: int = 256
    lane: Lane = DEFAULT
    direct: bool = False
    multicast: bool = True
    routes: bool = False
    address: Address = SERVER
    switch: Address = ATP_SWITCH
    worker_addresses: tuple[Address, ...] = ()  # of each worker, with direct only
    rule: str = completion.DEFAULT  # the job's completion rule
    key: bytes = field(default=b"", repr=False)  # the workers', for check words of mode keyed; b"": of another one

    def __post_init__(self) -> None:
        check_numbers(self, workers=(1, lib.INA_BITMAP_WORKERS))
        if len(self.key) not in (0, KEY_BYTES):
            raise ValueError(f"key: {len(self.key)} bytes, expected {KEY_BYTES} or none")
        completion.named(self.rule)
        if len(self.worker_addresses) != (expected := self.workers if self.direct else 0):
            raise ValueError(f"worker_addresses: {len(self.worker_addresses)}, expected {expected} (direct is {self.direct})")

    def to_c(self) -> CData:
        """Returns a new ``struct ina_ps_config *``."""
        c = ffi.new("struct ina_ps_config *")
        fill_address(c.self, self.address)
        fill_address(c.peer, self.switch)
        for worker, address in enumerate(self.worker_addresses):
            fill_address(c.worker[worker], address)
        c.job, c.life, c.workers, c.slots, c.values = self.job, self.life, self.workers, self.slots, self.values
        c.lane = self.lane.number
        c.keyed, c.key = bool(self.key), self.key.ljust(KEY_BYTES, b"\0")
        completion.named(self.rule).to_c(c.rule)
        c.direct, c.multicast, c.routes = self.direct, self.multicast and not self.direct, self.routes
        return c


class ParameterServer(Block):
    """The server of one job. Times are integer picoseconds of any clock; nothing here reads one."""

    def __init__(self, config: ServerConfig, now: int = 0):
        self.config = config
        c = config.to_c()
        self._reserve(lib.ina_ps_state_size(c), lib.ina_ps_stats_offset(c), lib.ina_ps_frame_size(c))
        if lib.ina_ps_init(self._state, c, now) < 0:
            raise ValueError(f"the parameter server refuses {config}")

    def receive(self, frame: bytes, now: int) -> None:
        """Takes a frame, any bytes."""
        buffer = ffi.new("uint8_t[]", max(1, len(frame)))
        ffi.memmove(buffer, frame, len(frame))
        self._packet.data, self._packet.len, self._packet.wire_len = buffer, len(frame), len(frame)
        self._packet.headroom = self._packet.tailroom = 0
        lib.ina_ps_receive(self._state, self._packet, now)

    def frames_to_send(self, now: int) -> list[bytes]:
        """Returns all replies that are due."""
        return list(self._frames(lambda packet: lib.ina_ps_frames_to_send(self._state, packet, 1, now)))

    def next_timer(self) -> int | None:
        """Returns the next timer; None: it only replies."""
        t = lib.ina_ps_next_timer(self._state)
        return None if t == 2**64 - 1 else t

    @property
    def stats(self) -> dict[str, int]:
        """Counters of ``struct ina_ps_stats``."""
        return self._counters("ina_ps_stats")
