"""UDP traffic in virtual time: machines that send datagrams on schedule and record arrivals."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.base.native import ffi
from ina.worlds.virtual.fabric import Fabric

PORT = 9
HEADERS = 42  # Ethernet, IPv4, UDP
NEVER = 2**64 - 1


@dataclass(frozen=True)
class Datagram:
    """A datagram. ``wire``: its length on a wire in bytes, with all headers and Ethernet's overhead; ``time``: ps. ``more``: the
    payload behind its number."""

    time: int
    source: str
    target: str
    wire: int
    number: int
    more: bytes = b""


class Sender:
    """A host's machine: sends ``datagrams`` in order of time; ``arrivals``: number -> ps of arrival here; ``data``: payloads."""

    def __init__(self, fabric: Fabric, host: str, datagrams: Iterable[Datagram], port: int = PORT):
        self.todo = sorted(datagrams, key=lambda d: (d.time, d.number))
        self.arrivals: dict[int, int] = {}
        self.data: dict[int, bytes] = {}
        self._nodes = {node.name: node for node in fabric.topology.hosts}
        self._host, self._sent = host, 0
        protocol = ffi.new("struct ina_protocol *")
        types = dict(ffi.typeof("struct ina_protocol").fields)
        functions = {
            "next_handle": lambda state: -errno.EAGAIN, "events": lambda state, events, most: 0, "next_timer": self._due,
            "receive": self._receive, "frames_to_send": self._send,
        }
        self._callbacks = {name: ffi.callback(types[name].type, function) for name, function in functions.items()}
        for name, function in self._callbacks.items():
            setattr(protocol, name, function)
        protocol.reductions = 1 << protocols.SUM
        self._protocol = protocol
        self.machine = fabric.add_machine(fabric.host(host), protocol, ffi.NULL, port, 1)
        fabric.submit(self.machine, np.zeros(1, np.int32))  # wakes it; it takes no tensor

    def _due(self, _state) -> int:
        return self.todo[self._sent].time if self._sent < len(self.todo) else NEVER

    def _send(self, _state, _tensors, packets, most: int, now: int) -> int:
        count = 0
        while count < most and self._due(None) <= now:
            datagram = self.todo[self._sent]
            frame = self._frame(datagram)
            ffi.memmove(packets[count].data, frame, len(frame))
            packets[count].len = packets[count].wire_len = len(frame)
            self._sent += 1
            count += 1
        return count

    def _frame(self, datagram: Datagram) -> bytes:
        own, to = self._nodes[self._host], self._nodes[datagram.target]
        size = datagram.wire - ETHERNET_OVERHEAD - HEADERS
        mac = b"".join(bytes.fromhex(node.mac.replace(":", "")) for node in (to, own))
        addresses = b"".join(IPv4Address(node.ip).packed for node in (own, to))
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + size, 0, 0, 64, 17, 0) + addresses
        udp = struct.pack("!HHHH", PORT, PORT, 8 + size, 0)
        payload = struct.pack("!I", datagram.number) + datagram.more
        return mac + b"\x08\x00" + ip + udp + payload + bytes(size - len(payload))

    def _receive(self, _state, _tensors, packet, _one: int, now: int) -> int:
        payload = ffi.buffer(packet.data, packet.len)[HEADERS:]
        (number,) = struct.unpack_from("!I", payload)
        assert number not in self.arrivals
        self.arrivals[number], self.data[number] = now, payload
        return 0
