"""A program in C that executes commands in each frame (tests/c/tna_probe.c), a TNA switch with it, and the frames it sends.

Test modules import the fixtures by name: `probe`, `switch`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from c_program import compiled

from ina.p4.runtime import Program, Switch

(END, UCAST, GROUP_A, GROUP_B, HASH1, HASH2, XID1, XID2, RID, CPU, BYPASS, DROP_CTL, MIRROR, RESUBMIT, DIGEST, QID,
 PARSER_DROP, FAIL) = range(18)
EGRESS_DROP, EGRESS_MIRROR = 32, 33
FRONT = 27
PORTS = (0, 1, 2, 3, 5, 128, 129, 140)


@pytest.fixture(scope="session")
def probe(tmp_path_factory) -> Program:
    return compiled("tna_probe", tmp_path_factory.mktemp("tna"))


@pytest.fixture
def switch(probe):
    with Switch(probe, max_passes=8) as sw:
        for number in PORTS:
            sw.add_port(number)
        yield sw


def frame(*operations: tuple[int, int] | int, length: int = 64) -> bytes:
    body = b""
    for operation in operations:
        code, argument = operation if isinstance(operation, tuple) else (operation, 0)
        body += bytes([code]) + argument.to_bytes(2, "big")
    head = bytes(range(1, 15)) + body + b"\0"
    return head + bytes(i & 0xFF for i in range(length - len(head)))


@dataclass(frozen=True)
class Sent:
    """A frame sent by egress: its metadata by field, then the bytes from ingress or a mirror."""

    port: int
    data: bytes

    def bits(self, at: int, width: int) -> int:
        value = int.from_bytes(self.data[:FRONT], "big")
        return value >> (8 * FRONT - at - width) & ((1 << width) - 1)

    @property
    def egress_port(self) -> int:
        return self.bits(7, 9)

    @property
    def enq_qdepth(self) -> int:
        return self.bits(21, 19)

    @property
    def enq_tstamp(self) -> int:
        return self.bits(62, 18)

    @property
    def deq_qdepth(self) -> int:
        return self.bits(85, 19)

    @property
    def deq_timedelta(self) -> int:
        return self.bits(134, 18)

    @property
    def rid(self) -> int:
        return self.bits(152, 16)

    @property
    def first(self) -> int:
        return self.bits(175, 1)

    @property
    def qid(self) -> int:
        return self.bits(179, 5)

    @property
    def pkt_length(self) -> int:
        return self.bits(200, 16)

    @property
    def body(self) -> bytes:
        return self.data[FRONT:]

    @property
    def ingress_front(self) -> bytes:
        assert self.body[:1] == b"N"
        return self.body[1:17]

    @property
    def frame(self) -> bytes:
        assert self.body[:1] == b"N"
        return self.body[17:]


def step(switch: Switch, data: bytes, port: int = 0, now: int = 0) -> list[Sent]:
    return [Sent(*sent) for sent in switch.step(data, port, now)]


def passed(data: bytes, times: int = 1) -> bytes:
    """The frame as the program leaves it after this number of ingress passes."""
    return data[:13] + bytes([data[13] + times]) + data[14:]


def ports_of(sent: list[Sent]) -> list[int]:
    return sorted(s.port for s in sent)


def drops(switch: Switch, port: int) -> dict[str, int]:
    return {k: v for k, v in switch.port_stats(port).drops.items() if v}
