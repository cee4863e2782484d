"""Frames of p4/quorum.p4, and the rules of its phases in Python, from what p4/include/quorum/headers.p4 says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ina.aggregation.wire import layout
from ina.base import paths

VALUES = 32
WIRE = layout.load(VALUES, paths.p4_dir() / "include/quorum/headers.p4")
DATA, PENDING, MAXIMUM, REFUSED, OFFER = (
    WIRE.constants[f"SWITCHML_{name}"] for name in ("DATA", "PENDING", "MAXIMUM", "REFUSED", "OFFER"))
ASK, GIVE, PASS, OPEN, DECIDED = (WIRE.constants[f"OFFER_{name}"] for name in ("ASK", "GIVE", "PASS", "OPEN", "DECIDED"))
HEAD = (*layout.HEAD, "offer")
COVERED = ("switchml", "exponents", "check", "offer")  # by the check header's checksum


def completed(headers: Mapping[str, Mapping[str, Any]], tail: bytes = b"") -> bytes:
    """The frame with both checksums filled in, unless they are given, and more bytes behind it."""
    headers = {name: dict(values) for name, values in headers.items()}
    if "hdr_checksum" not in headers["ipv4"]:
        headers["ipv4"]["hdr_checksum"] = layout.checksum(WIRE["ipv4"].pack(headers["ipv4"]))
    if "headers" not in headers.get("check", {"headers": 0}):
        headers["check"]["headers"] = layout.checksum(WIRE.pack(**{name: headers[name] for name in COVERED if name in headers}))
    return WIRE.pack(**headers) + tail


def offered(fields: dict[str, dict[str, Any]], state: int, least: int, rivals: int, ranks: int, **changes: int) -> bytes:
    """A packet without values, made an offer. ``changes``: of fields of its headers, as switchml__size=3; ipv4__total_len and
    udp__length are added to."""
    fields["switchml"]["msg_type"] = OFFER
    fields["offer"] = {"state": state, "least": least, "reserved": 0, "rivals": rivals, "ranks": ranks}
    for header, name in (("ipv4", "total_len"), ("udp", "length")):
        fields[header][name] += WIRE.constants["OFFER_LENGTH"] + changes.pop(f"{header}__{name}", 0)
    for change, value in changes.items():
        header, name = change.split("__")
        fields[header][name] = value
    return completed(fields)


def read(frame: bytes) -> tuple[dict[str, dict[str, Any]], tuple]:
    """A frame's headers, all of which must be right, and its contents: packet number, kind, and what a frame of it says."""
    head = WIRE["switchml"].unpack(frame, WIRE.offset("switchml"))
    kind = head["msg_type"]
    kinds = HEAD if kind == OFFER else layout.PENDING if kind == PENDING else layout.HEAD
    if head["size"] != WIRE.constants["SIZE_NONE"]:
        assert head["size"] == WIRE.constants["SIZE_CODE"] and kind in (DATA, MAXIMUM)
        kinds = layout.DATA
    assert len(frame) == WIRE.size(kinds), (len(frame), kinds)
    headers = WIRE.unpack(frame, kinds)
    assert (headers["ipv4"]["total_len"], headers["udp"]["length"]) == (len(frame) - 14, len(frame) - 34)
    assert layout.checksum(frame[14:34]) == layout.checksum(WIRE.pack(**{n: headers[n] for n in COVERED if n in headers})) == 0
    assert head["checked"] == 1
    if kind == OFFER:
        offer = headers["offer"]
        assert head["overflow"] == 0
        return headers, (head["tsi"], "offer", offer["state"], offer["least"], offer["rivals"], offer["ranks"])
    if kind == PENDING:
        return headers, (head["tsi"], "pending", headers["pending"]["missing"])
    if kind == REFUSED:
        return headers, (head["tsi"], "refused", headers["check"]["version"])
    values = np.array(headers["values"]["v"], np.uint32).astype(np.int32).tolist()
    return headers, (head["tsi"], kind, headers["exponents"]["e0"], head["overflow"], values)


@dataclass
class Row:
    """Phase of one set of one slot."""

    tsi: int
    kind: int
    seen: int = 0
    given: int = 0  # contributors
    passed: int = 0  # who never contributes
    decided: bool = False  # or complete
    e0: int = -128
    overflow: int = 0
    values: np.ndarray = field(default_factory=lambda: np.zeros(VALUES, np.int64))


class Reference:
    """The rules of a switch that knows all workers: what is answered to a packet, by worker. Rows have numbers of the caller."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.full = (1 << workers) - 1
        self.rows: dict[int, Row] = {}
        self.drops: Counter[str] = Counter()

    def _row(self, index: int, tsi: int, kind: int) -> Row | None:
        """The packet's phase; None: it is of none that is due, and dropped."""
        row = self.rows.get(index)
        if row is None or (row.decided and tsi > row.tsi):
            row = self.rows[index] = Row(tsi, kind)
        if row.tsi != tsi or row.kind != kind:
            self.drops["STALE" if row.tsi != tsi else "WRONG_SIZE"] += 1
            return None
        return row

    def _all(self, answer: tuple) -> list[tuple[int, tuple]]:
        return [(worker, answer) for worker in range(self.workers)]

    def offer(
        self, index: int, worker: int, tsi: int, state: int, least: int, rivals: int, ranks: int
    ) -> list[tuple[int, tuple]]:
        if state not in (ASK, GIVE, PASS) or ranks != 1 << worker:
            self.drops["WRONG_SIZE"] += 1
            return []
        if (row := self._row(index, tsi, OFFER)) is None:
            return []
        if row.decided:
            return [(worker, (tsi, "offer", DECIDED, least, rivals, row.given))]
        asked = bool(row.seen & ranks)  # something
        final = bool((row.given | row.passed) & ranks)  # what it has said does not change
        row.seen |= ranks
        if state == GIVE and not final:
            if row.given & rivals:
                row.passed |= ranks
            else:
                row.given |= ranks
        elif state == PASS and not final:
            row.passed |= ranks
        may = self.full & ~(row.given | row.passed)
        if row.seen == self.full and (row.given.bit_count() >= least or not may):
            row.decided = True
            return self._all((tsi, "offer", DECIDED, least, rivals, row.given))
        if asked and (final or state == ASK):  # nothing new
            return [(worker, (tsi, "offer", OPEN, least, rivals, self.full & ~row.seen or may))]
        return []

    def reduce(self, index: int, worker: int, tsi: int, kind: int, values: np.ndarray, e0: int) -> list[tuple[int, tuple]]:
        if (row := self._row(index, tsi, kind)) is None:
            return []
        if row.seen >> worker & 1 and not row.decided:
            return [(worker, (tsi, "pending", self.full & ~row.seen))]
        if not row.seen >> worker & 1:
            first, row.seen, row.e0 = not row.seen, row.seen | 1 << worker, max(row.e0, e0)
            if kind == MAXIMUM:
                row.values = values.astype(np.int64) if first else np.maximum(row.values, values)
            else:
                wide = row.values + values
                row.values = wide.astype(np.int32).astype(np.int64)
                row.overflow |= int((row.values != wide).any())
            row.decided = row.seen == self.full
            if not row.decided:
                return []
            return self._all(self._result(row))
        return [(worker, self._result(row))]

    def _result(self, row: Row) -> tuple:
        return row.tsi, row.kind, row.e0, row.overflow, row.values.tolist()

    def due(self, index: int, first: int, step: int) -> int:
        """The packet number that a row waits for."""
        row = self.rows.get(index)
        return first if row is None else row.tsi + step * row.decided
