"""Protocols by name: a worker (``host/<name>.c``, listed in ``host/protocols.c``) and a switch program (``p4/<name>.p4``).

docs/new-protocol.md shows how to add one.
"""

from __future__ import annotations

from pathlib import Path

from ina import paths
from ina._native import ffi, lib

DEFAULT = "switchml"


def names() -> tuple[str, ...]:
    """All protocols, in the order of ``host/protocols.c``."""
    found = []
    while (protocol := lib.ina_protocol_at(len(found))) != ffi.NULL:
        found.append(ffi.string(protocol.name).decode())
    return tuple(found)


def named(name: str) -> ffi.CData:
    """``const struct ina_protocol *``. ValueError: there is no protocol of that name."""
    protocol = lib.ina_protocol_named(name.encode())
    if protocol == ffi.NULL:
        raise ValueError(f"protocol: {name!r}, expected one of {', '.join(names())}")
    return protocol


def frame_bytes(name: str, values: int) -> int:
    """Longest frame of a protocol whose packets carry ``values`` int32, from the Ethernet header on.

    ValueError: there is no protocol of that name, or it has no packets of that size.
    """
    size = named(name).frame_size(ffi.new("struct ina_worker_config *", {"values": values}))
    if not size:
        raise ValueError(f"values: {values}: the protocol {name!r} has no packets of that size")
    return size


def program(name: str) -> Path:
    """The protocol's switch program. ValueError: there is no protocol of that name."""
    named(name)
    return paths.p4_dir() / f"{name}.p4"
