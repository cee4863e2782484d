"""Cost of check words: none, sums, and with a key, in turn; a worker's packets by themselves, and whole all-reduces on one core.

Processor time of one thread, so that other processes of the machine count little. A worker alone is a job of one: each packet
comes back as its own result.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from bench import complete
from bench.common import Figure, Measurement
from ina.aggregation import protocols
from ina.aggregation.worker.config import HEADERS, WorkerConfig, fill_tensor
from ina.base.native import ffi, lib

VALUES, SLOTS, ROUNDS, RUNS = (256, 2048), 64, 160, 9  # 256 values: 1 KiB
NOW = 10**9


def worker(values: int, check: str) -> tuple[float, float]:
    """Returns ns of processor time for each packet that a worker builds, and for each result that it checks and decodes."""
    config = WorkerConfig(0, 1, life=1, slots=SLOTS, values=values, rto_min=1.0, rto_max=1.0, check=check,
                          key=complete.KEY if check == "keyed" else b"")
    c, protocol, size = config.to_c(), lib.ina_protocol_named(b"switchml"), HEADERS + 4 * values
    state, tensors = ffi.new("uint64_t[]", protocol.state_size(c) // 8), ffi.new("struct ina_tensor[]", complete.MAX_OPS)
    protocol.init(state, c, 0)
    array = np.random.default_rng(1).standard_normal(SLOTS * ROUNDS * values).astype(np.float32)
    fill_tensor(tensors[0], array, np.empty_like(array), False, 0)
    out = np.empty_like(array)
    fill_tensor(tensors[0], array, out, False, 0)
    protocol.submit(state, tensors, 0, 0)
    room = np.zeros((SLOTS, -(-(size + 64) // 64) * 64), np.uint8)
    first = -(room.ctypes.data + HEADERS) % 64  # values begin a cache line, as in ports
    frames, packets = room[:, first : first + size], ffi.new("struct ina_packet[]", SLOTS)
    spent, counts = [0, 0], [0, 0]
    for _ in range(ROUNDS + 1):
        for packet, frame in zip(packets, frames, strict=True):
            packet.data, packet.len, packet.wire_len = ffi.cast("uint8_t *", frame.ctypes.data), 0, 0
            packet.headroom, packet.tailroom = 0, size
        began = time.thread_time_ns()
        count = protocol.frames_to_send(state, tensors, packets, SLOTS, NOW)
        middle = time.thread_time_ns()
        sent = frames[:count]
        for a, b, width in ((0, 6, 6), (26, 30, 4), (34, 36, 2)):  # both ends' addresses
            sent[:, a : a + width], sent[:, b : b + width] = sent[:, b : b + width].copy(), sent[:, a : a + width].copy()
        full = packets[count - 1].len == size
        decoding = time.thread_time_ns()
        protocol.receive(state, tensors, packets, count, NOW)
        ended = time.thread_time_ns()
        if full:  # others have exponents only
            spent, counts = [spent[0] + middle - began, spent[1] + ended - decoding], [counts[0] + count, counts[1] + count]
    stats = ffi.cast("struct ina_worker_stats *", ffi.cast("uint8_t *", state) + protocol.stats_offset(c))
    if stats.results != stats.tx_packets or not np.allclose(out, array, rtol=1e-6, atol=1e-5):
        raise SystemExit(f"bench: {stats.results} results of {stats.tx_packets} packets, {stats.drop_corrupt} corrupt")
    return spent[0] / counts[0], spent[1] / counts[1]


def measure() -> list[Measurement]:
    result = Measurement(
        f"check words: a worker, and one core run to completion in memory, {complete.WORKERS} workers",
        ["values", "check", "encode ns", "decode ns", "all-reduce ns", "goodput Gb/s", "ratio"],
        "goodput over that without check words", "0.95 or more with sums, made in the passes of the codec",
        keys=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        bench, native = complete.compiled(Path(folder))
        for values in VALUES:
            alone: dict[str, list[tuple[float, float]]] = {check: [] for check in protocols.CHECKS}
            rates: dict[str, list[float]] = {check: [] for check in protocols.CHECKS}
            for _ in range(RUNS):
                for check in protocols.CHECKS:
                    alone[check].append(worker(values, check))
                    rates[check].append(complete.in_memory(values, bench, native, check=check).rate())
            for check in protocols.CHECKS:
                encode, decode = map(Figure.of, zip(*alone[check], strict=True))
                pps = Figure.of(rates[check])
                ratio = Figure.of(own / off for own, off in zip(rates[check], rates["off"], strict=True))
                result.add(values, check, encode, decode, 1e9 / pps, pps * values * 32e-9, ratio)
    return [result]
