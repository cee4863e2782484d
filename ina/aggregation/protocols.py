"""Protocols: each is a switch program, a worker in C and the entries of its tables, found by one name.

    switchml                       p4/switchml.p4, host/protocol/switchml.c (listed in host/protocol/protocols.c),
    ina/aggregation/entries/switchml.py
    examples/lockstep/lockstep.p4  the user's own: lockstep.c and lockstep.py lie beside it; the worker is compiled when needed

docs/new-protocol.md shows how to add one.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ina.base import abi, native, paths
from ina.base.native import CData, ffi, lib

DEFAULT = "switchml"
SUM, MAX, OWN = lib.INA_SUM, lib.INA_MAX, lib.INA_OWN
REDUCTIONS = {SUM: "sums", MAX: "maxima", OWN: "a reduction of its own"}


def names() -> tuple[str, ...]:
    """All that come with the package, in the order of ``host/protocol/protocols.c``."""
    found: list[str] = []
    while (protocol := lib.ina_protocol_at(len(found))) != ffi.NULL:
        found.append(ffi.string(protocol.name).decode())
    return tuple(found)


def named(name: str) -> CData:
    """``const struct ina_protocol *``. ValueError: there is no protocol of that name, or its worker does not compile."""
    if is_own(name):
        return _load(Path(name).resolve())
    protocol = lib.ina_protocol_named(name.encode())
    if protocol == ffi.NULL:
        raise ValueError(f"protocol: {name!r}, expected {expected()}")
    return protocol


def expected() -> str:
    """What a protocol's name can be, for messages."""
    return f"one of {', '.join(names())}, or the path of a .p4 file beside which its worker (.c) and entries (.py) lie"


def is_own(name: str) -> bool:
    """Whether it is a protocol of the user's, by the path of its program."""
    program = Path(name)
    return program.suffix == ".p4" and all(program.with_suffix(suffix).is_file() for suffix in (".p4", ".c", ".py"))


def frame_bytes(name: str, values: int) -> int:
    """Longest frame of a protocol whose packets carry ``values`` int32, from the Ethernet header on.

    ValueError: there is no protocol of that name, or it has no packets of that size.
    """
    size: int = named(name).frame_size(ffi.new("struct ina_worker_config *", {"values": values}))
    if not size:
        raise ValueError(f"values: {values}: the protocol {name!r} has no packets of that size")
    return size


def reductions(name: str) -> frozenset[int]:
    """Those of REDUCTIONS that the protocol declares. ValueError: there is no protocol of that name."""
    declared = named(name).reductions
    return frozenset(reduction for reduction in REDUCTIONS if declared >> reduction & 1)


def check_reduction(name: str, wanted: int) -> None:
    """ValueError: the protocol does not declare this one."""
    if wanted not in (has := reductions(name)):
        there = " and ".join(REDUCTIONS[each] for each in sorted(has)) or "nothing"
        lacking = REDUCTIONS.get(wanted, str(wanted)).removeprefix("a ")
        raise ValueError(f"the protocol {name!r} has no {lacking}: it declares {there} "
                         "(`reductions` of its worker)")


def program(name: str, twin: str = "") -> Path:
    """The protocol's switch program; ``twin``: that for another architecture, in the folder of this name beside it ("tofino").

    ValueError: there is no protocol of that name."""
    named(name)
    path = Path(name) if is_own(name) else paths.p4_dir() / f"{name}.p4"
    return path.parent / twin / path.name


@functools.cache
def _load(path: Path) -> CData:
    """The worker ``ina_<name>`` of ``<name>.c``."""
    error = ffi.new("char[]", 512)
    shared = _compile(path.with_suffix(".c"))
    protocol = lib.ina_protocol_load(os.fsencode(shared), f"ina_{path.stem}".encode(), error, 512)
    if protocol == ffi.NULL:
        raise ValueError(f"{path.with_suffix('.c')}: no `const struct ina_protocol ina_{path.stem}`: "
                         f"{ffi.string(error).decode(errors='replace')}")
    return protocol


def _compile(worker: Path) -> Path:
    """The shared object, cached by what it depends on; it finds what host/ has in the package's compiled part.

    ValueError: it does not compile, or the compiled part was made with other headers than it would be."""
    from ina.base.cc import BuildError, shared_object

    try:
        made_with = abi.made_with()
    except ValueError as error:
        raise ValueError(f"{worker}: {error}") from error
    flags = ["-std=gnu11", "-O3", "-march=native", "-Wall", *(f"-I{folder}" for folder in paths.host_dirs())]
    try:
        return shared_object(f"{worker.stem}-worker", flags, [worker], [native.PATH], also=made_with)
    except BuildError as error:
        raise ValueError(f"{worker} does not compile: {error}") from error
