"""Boards of all ends of a network's links (host/net/port_probe.h), in memory that the switches' processes share."""

from __future__ import annotations

import mmap
import secrets

import numpy as np

from ina.base.native import ffi

WORDS = ffi.sizeof("struct ina_probe_board") // 8
NAMES = [name for name, _ in ffi.typeof("struct ina_probe_board").fields]
INTERVAL, CUT, SENT, SENT_AT, HEARD, HEARD_AT, LOOKED_AT, FOREIGN, LOST = range(9)
RECEIVE, SEND = 1, 2  # bits of CUT


class LinkBoard:
    """The boards, two for each of ``links`` links; made before the switches' processes are forked. ``session``: of all probes."""

    def __init__(self, links: int):
        self.session = secrets.randbits(64)
        self._memory = mmap.mmap(-1, max(1, 2 * links) * WORDS * 8)  # shared, of zeros
        self.words = np.frombuffer(self._memory, np.uint64).reshape(-1, WORDS)[: 2 * links]

    def end(self, link: int, side: int) -> memoryview:
        """Returns the board of one end, for its port (Port.with_probes)."""
        at = (2 * link + side) * WORDS * 8
        return memoryview(self._memory)[at : at + WORDS * 8]

    def cut(self, link: int, direction: int, on: bool, at_sender: bool = False) -> None:
        """Cuts or mends a link's direction (0: from side 0 to side 1), where it is received or, if a host receives, where it is
        sent."""
        end, bit = (2 * link + direction, SEND) if at_sender else (2 * link + 1 - direction, RECEIVE)
        self.words[end, CUT] = int(self.words[end, CUT]) & ~bit | bit * on

    def is_cut(self, link: int) -> bool:
        """Returns True if a direction of the link is cut."""
        return bool(self.words[2 * link : 2 * link + 2, CUT].any())
