"""Forged frames: those of a job's switch or workers, whose values are LIE."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from model_switch import ip_checksum

from ina.aggregation.worker import Worker, WorkerConfig
from ina.net.ports import Address

LIE = 666


def addressed(frame: bytes, source: Address, destination: Address) -> bytes:
    """The frame with other addresses and UDP ports, and a correct IPv4 checksum."""
    def mac(a: Address) -> bytes:
        return bytes.fromhex(a.mac.replace(":", ""))

    def ip(a: Address) -> bytes:
        return bytes(map(int, a.ip.split(".")))

    head = frame[14:24] + bytes(2) + ip(source) + ip(destination)
    head = head[:10] + ip_checksum(head).to_bytes(2, "big") + head[12:]
    ports = source.port.to_bytes(2, "big") + destination.port.to_bytes(2, "big")
    return mac(destination) + mac(source) + frame[12:14] + head + ports + frame[38:]


def results(config: WorkerConfig, *counts: int, kind: int | None = None) -> list[bytes]:
    """Results for all packets of a worker that sums tensors of ``counts`` integers in turn. ``kind``: their packet type,
    by default that of the packets."""
    return [_answer(config, frame, kind) for frame in contributions(config, *counts, kind=kind)]


def contributions(config: WorkerConfig, *counts: int, kind: int | None = None) -> list[bytes]:
    """All packets of a worker that sums tensors of ``counts`` integers in turn."""
    worker = Worker(replace(config, reply_in_place=False))
    for count in counts:
        worker.submit(np.full(count, LIE, np.int32))
    sent: list[bytes] = []
    while frames := worker.frames_to_send(0):
        sent += frames
        for frame in frames:
            worker.receive(_answer(config, frame, kind), 0)
    assert [event.code for event in worker.events()] == [0] * len(counts), "these are not what such a worker sends and takes"
    return sent


def _answer(config: WorkerConfig, frame: bytes, kind: int | None) -> bytes:
    """Result as if all workers had sent the same: the sum of a tensor's first packet shows whether they agree on the tensor."""
    answer = bytearray(addressed(frame, config.switch, config.address))
    if kind is not None:
        answer[42] = kind << 4 | answer[42] & 15
    begin = len(frame) - 4 * config.values - 8  # two check words, and the values
    words = np.frombuffer(frame, ">u4", offset=begin)
    return sealed(bytes(answer[:begin]) + (words * np.uint32(config.workers)).astype(">u4").tobytes(), begin - 4)


def sealed(frame: bytes, check: int) -> bytes:
    """The frame with a right checksum of its headers. ``check``: where its check header begins."""
    headers = ip_checksum(frame[42 : check + 2] + frame[check + 4 : check + 12])
    return frame[: check + 2] + headers.to_bytes(2, "big") + frame[check + 4 :]
