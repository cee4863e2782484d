"""Cost of tags: processor time of a port for each frame that it sends and receives, with them and without, in memory.

Only the port's two calls for each batch are timed, in one thread, so that other processes of the machine count little.
"""

from __future__ import annotations

import time

from bench.common import Figure, Measurement
from ina.base.native import ffi, lib
from ina.net.ports import TAG, Port, memory_pair

PAYLOADS, BATCH, ROUNDS, RUNS = (1024, 8192), 64, 100, 9
KEY = bytes(range(16))


def headers(payload: int) -> bytes:
    """Returns Ethernet, IPv4 and UDP of a frame with ``payload`` bytes behind them; the ports write the checksum."""
    ip = b"\x45\0" + (28 + payload).to_bytes(2, "big") + bytes(5) + b"\x11" + bytes(10)
    return bytes(12) + b"\x08\0" + ip + bytes(4) + (8 + payload).to_bytes(2, "big") + bytes(2)


def port(payload: int, tagged: bool) -> tuple[float, float]:
    """Returns ns of processor time for each frame that a port sends, and for each that it receives."""
    near, far = memory_pair(2 * BATCH, 42 + payload + TAG)
    with near, far:
        if tagged:
            near.with_tags(KEY, KEY)
            far.with_tags(KEY, KEY)
        return _passed(near, far, headers(payload) + bytes(payload))


def _passed(near: Port, far: Port, frame: bytes) -> tuple[float, float]:
    packets, spent, count = ffi.new("struct ina_packet[]", BATCH), [0, 0], BATCH * ROUNDS
    for turn in range(ROUNDS + 1):
        lib.ina_port_tx_get(near.handle, packets, BATCH)
        for packet in packets:
            ffi.memmove(packet.data, frame, len(frame))
            packet.len = packet.wire_len = len(frame)
        began = time.thread_time_ns()
        lib.ina_port_tx_put(near.handle, packets, BATCH, 0)
        middle = time.thread_time_ns()
        received = lib.ina_port_rx(far.handle, packets, BATCH, 0)
        ended = time.thread_time_ns()
        lib.ina_port_rx_done(far.handle, received)
        if received != BATCH or packets[BATCH - 1].len != len(frame):
            raise SystemExit(f"bench: {received} of {BATCH} frames came")
        if turn:  # the first one touches new memory
            spent = [spent[0] + middle - began, spent[1] + ended - middle]
    return spent[0] / count, spent[1] / count


def measure() -> list[Measurement]:
    result = Measurement(
        "tags: a port in memory, batches of 64 frames", ["payload bytes", "tags", "send ns", "receive ns", "both ns"],
        "processor time of both calls for a frame", "none: a core that sums without tags is the comparison", keys=2)
    for payload in PAYLOADS:
        runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(RUNS):
            for tagged, each in runs.items():
                each.append(port(payload, tagged))
        for tagged, each in runs.items():
            send, receive = map(Figure.of, zip(*each, strict=True))
            result.add(payload, "yes" if tagged else "no", send, receive, Figure.of(map(sum, each)))
    return [result]
