"""Frames of p4/atp_routes.p4 that name receivers and members, built and read by the program's own layout."""

from __future__ import annotations

from ipaddress import IPv4Address

import numpy as np

from ina.aggregation.wire import layout
from ina.base.paths import p4_dir
from ina.net.ports import Address

VALUES = 32
WIRE = layout.load(VALUES, p4_dir() / "include/atp_routes/headers.p4")
HEAD = (*layout.ATP_HEAD, "receivers")
BARE = WIRE.size(HEAD)  # bytes of a frame without values
COVERED = ("atp", "check", "receivers")  # by the check header's checksum
TO, RESULT, PENDING = (WIRE.constants[f"ATP_{name}"] for name in ("TO", "TO_RESULT", "PENDING"))


def routed(kind: int, source: Address, target: Address, sequence: int, bitmap: int, receivers: int, members: int,
           values: np.ndarray | None, words: tuple[int, int] = (0, 0), *, life: int = 1, **fields: int) -> bytes:
    """Returns a frame; ``values``: int32 (VALUES,), None: it has none; ``fields``: more of ATP's header."""
    payload = 0 if values is None else 4 * VALUES
    headers = {
        "ethernet": {"ethertype": 0x800},
        "ipv4": {"version": 4, "ihl": 5, "ttl": 64, "protocol": 17, "src_addr": int(IPv4Address(source.ip)),
                 "dst_addr": int(IPv4Address(target.ip)), "total_len": BARE - 14 + payload},
        "udp": {"src_port": source.port, "dst_port": target.port, "length": BARE - 34 + payload},
        "atp": {"msg_type": kind, "exponent": -96, "life": life, "sequence": sequence, "bitmap": bitmap} | fields,
        "check": {"version": WIRE.constants["WIRE_VERSION"], "check0": words[0], "check1": words[1]},
        "receivers": {"ranks": receivers, "members": members},
    }
    headers["ipv4"]["hdr_checksum"] = layout.checksum(WIRE["ipv4"].pack(headers["ipv4"]))
    headers["check"]["headers"] = layout.checksum(WIRE.pack(**{name: headers[name] for name in COVERED}))
    return WIRE.pack(**headers) + (b"" if values is None else values.astype(">i4").tobytes())


def contents(frame: bytes) -> tuple:
    """Returns bitmap, receivers, members, check words, exponent and values (None: it has none) of a frame that names receivers;
    of a pending one "pending", the bitmap, and who is there."""
    head = WIRE.unpack(frame, layout.ATP_HEAD)
    kind, bitmap = head["atp"]["msg_type"], head["atp"]["bitmap"]
    if kind == PENDING:
        return "pending", bitmap, int.from_bytes(frame[70:], "big")
    assert kind in (TO, RESULT) and len(frame) in (BARE, BARE + 4 * VALUES)
    fields = WIRE.unpack(frame, HEAD)
    assert layout.checksum(frame[14:34]) == layout.checksum(WIRE.pack(**{name: fields[name] for name in COVERED})) == 0
    assert (fields["ipv4"]["total_len"], fields["udp"]["length"]) == (len(frame) - 14, len(frame) - 34)
    sets, check = fields["receivers"], fields["check"]
    values = np.frombuffer(frame[BARE:], ">i4").tolist() if len(frame) > BARE else None
    return bitmap, sets["ranks"], sets["members"], (check["check0"], check["check1"]), fields["atp"]["exponent"], values
