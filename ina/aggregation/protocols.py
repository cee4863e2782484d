"""Protocols: each is a switch program, a worker in C and the entries of its tables, found by one name.

    switchml                       p4/switchml.p4, host/protocol/switchml.c (listed in host/protocol/protocols.h),
    ina/aggregation/entries/switchml.py
    examples/lockstep/lockstep.p4  the user's own: lockstep.c and lockstep.py lie beside it; the worker is compiled when needed
    toy                            a package's: its entry point `toy` of the group `ina.protocols` is the path of such a toy.p4

docs/guide/new-protocol.md shows how to add one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ina.base import abi, native, paths
from ina.base.native import CData, ffi, lib

POOL = 16384  # slots of a switch for anybody's jobs: as many as slot numbers, of 14 bits, tell apart
DEFAULT = "switchml"
GROUP = "ina.protocols"  # of entry points
OFFERING = "quorum"  # where none is named and sums are of those workers that can contribute
SUM, MAX, OWN = lib.INA_SUM, lib.INA_MAX, lib.INA_OWN
CHECKS = ("off", "sum", "keyed")  # how check words are made: the option `check` of a protocol (host/protocol/check.h)
REDUCTIONS = {SUM: "sums", MAX: "maxima", OWN: "a reduction of its own"}


def names() -> tuple[str, ...]:
    """Returns the names of all protocols in the package, in the order of ``host/protocol/protocols.h``."""
    return tuple(ffi.string(protocol.name).decode() for protocol in native.rows(lib.ina_protocol_at))


def named(name: str) -> CData:
    """Returns the ``const struct ina_protocol *``. ValueError: there is no protocol of that name, or its worker does not
    compile."""
    if is_own(name):
        return _load(own_path(name))
    protocol = lib.ina_protocol_named(name.encode())
    if protocol == ffi.NULL:
        raise ValueError(f"protocol: {name!r}, expected {expected()}")
    return protocol


def expected() -> str:
    """Returns the possible names of protocols, for messages."""
    known = ", ".join([*names(), *(name for name in _entry_points() if name not in names())])
    return f"one of {known}, or the path of a .p4 file beside which its worker (.c) and entries (.py) lie"


def is_own(name: str) -> bool:
    """Returns True for a protocol that is not of this package: the path of a user's program, or the name of another package's."""
    return _is_program(Path(name)) or (name not in names() and name in _entry_points())


def own_path(name: str) -> Path:
    """Returns the program, an absolute path, of a protocol for which ``is_own`` is true. ValueError: the package that has it
    cannot be used; it is named."""
    return Path(name).resolve() if _is_program(Path(name)) else _installed(name)


def installed() -> tuple[str, ...]:
    """Returns the names of the protocols that other packages have, also of those that cannot be used."""
    return tuple(_entry_points())


def check_name(name: str) -> None:
    """Raises ValueError: there is no protocol of this name, or it is several packages', this one's among them."""
    if name in names() and (packages := _entry_points().get(name)):
        raise ValueError(f"{name!r} is a protocol of ina, and {_packages(packages)} has an entry point of this name in the group "
                         f"{GROUP}: rename that one, or uninstall the package")
    if name not in names() and not is_own(name):
        raise ValueError(f"expected {expected()}")
    if is_own(name):
        own_path(name)


def _is_program(program: Path) -> bool:
    return program.suffix == ".p4" and all(program.with_suffix(suffix).is_file() for suffix in (".p4", ".c", ".py"))


@functools.cache
def _entry_points() -> dict[str, list[metadata.EntryPoint]]:
    """Returns the entry points of the group, by name; it takes milliseconds."""
    points: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    return points


def _packages(points: Iterable[metadata.EntryPoint]) -> str:
    distributions = [point.dist for point in points]
    return "package " + " and ".join(f"{each.name} {each.version}" if each else "unknown" for each in distributions)


@functools.cache
def _installed(name: str) -> Path:
    """Returns the program of another package's protocol. Raises ValueError, which names the package."""
    point, *others = _entry_points()[name]
    where = f"{_packages([point])}, entry point {name} = {point.value!r} in the group {GROUP}"
    if others:
        raise ValueError(f"{_packages([point, *others])} each have a protocol {name!r}: uninstall all but one")
    try:
        value = point.load()
    except Exception as error:  # whatever the package's module raises
        raise ValueError(f"{where}: cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{where}: is of type {type(value).__name__}, expected the path of {name}.p4 (str or Path)")
    path = Path(value).resolve()
    if path.name != f"{name}.p4":
        raise ValueError(f"{where}: is {path}, expected a file {name}.p4, whose name is the protocol's")
    if missing := [each.name for each in map(path.with_suffix, (".p4", ".c", ".py")) if not each.is_file()]:
        raise ValueError(f"{where}: {path.parent} lacks {', '.join(missing)}: a protocol is a program, a worker and entries")
    return path


def frame_bytes(name: str, values: int) -> int:
    """Returns the longest frame of a protocol whose packets carry ``values`` int32, from the Ethernet header on.

    ValueError: there is no protocol of that name, or it has no packets of that size.
    """
    size: int = named(name).frame_size(ffi.new("struct ina_worker_config *", {"values": values}))
    if not size:
        raise ValueError(f"values: {values}: the protocol {name!r} has no packets of that size")
    return size


def reductions(name: str, keyed: bool = False) -> frozenset[int]:
    """Returns those of REDUCTIONS that the protocol declares; ``keyed``: those whose check words can have a key. ValueError:
    there is no protocol of that name."""
    declared = named(name).keyed if keyed else named(name).reductions
    return frozenset(reduction for reduction in REDUCTIONS if declared >> reduction & 1)


def has_routes(name: str, check: str = "") -> bool:
    """Returns True if the protocol's sums may be from and to some workers only, with this one of CHECKS. ValueError: there is no
    protocol of that name."""
    return bool(named(name).routes) and check != "keyed"


def has_offers(name: str, check: str = "") -> bool:
    """Returns True if the protocol's sums may be of those workers that can contribute, with this one of CHECKS. ValueError:
    there is no protocol of that name."""
    return bool(named(name).offers) and check != "keyed"


def offering(name: str = "", check: str = "") -> str:
    """Returns the ``name`` of a protocol whose sums may be of those workers that can contribute, with this one of CHECKS; else
    OFFERING. ValueError: there is no protocol of that name."""
    return name if name and has_offers(name, check) else OFFERING


def routed() -> tuple[str, ...]:
    """Returns the names of all protocols whose sums may be from and to some workers only, as they check sums by default."""
    return tuple(name for name in names() if has_routes(name, default_check(name)))


def check_offer(name: str, check: str = "") -> None:
    """Raises ValueError: sums of the protocol are always of all workers."""
    if not has_offers(name, check):
        keyed = " with check 'keyed'" if check == "keyed" else ""
        raise ValueError(f"offer: sums of the protocol {name!r}{keyed} are always of all workers; {OFFERING!r} has others")


def check_route(name: str, check: str = "") -> None:
    """Raises ValueError: sums of the protocol are from all and to all."""
    if not has_routes(name, check):
        keyed = " with check 'keyed'" if check == "keyed" else ""
        raise ValueError(f"route: sums of the protocol {name!r} are from all workers and to all{keyed}")


@dataclass(frozen=True)
class Option:
    """An option that a protocol's worker declares: its place among them, its range, and ``unset``, its value where it is not
    set."""

    index: int
    name: str
    meaning: str
    least: int
    most: int
    unset: int
    power_of_two: bool

    def check(self, value: int) -> None:
        """Raises ValueError: the value is out of range."""
        if not self.least <= value <= self.most:
            raise ValueError(f"{self.name}: {value}, expected {self.least}..{self.most}")
        if self.power_of_two and value & (value - 1):
            raise ValueError(f"{self.name}: {value}, expected a power of two")


def options(name: str) -> dict[str, Option]:
    """Returns the options that the protocol declares, by name. ValueError: there is no protocol of that name."""
    declared = named(name).options
    result: dict[str, Option] = {}
    while declared != ffi.NULL and (raw := declared[len(result)]).name != ffi.NULL:
        text, meaning = (ffi.string(each).decode() for each in (raw.name, raw.meaning))
        result[text] = Option(len(result), text, meaning, raw.least, raw.most, raw.unset, bool(raw.power_of_two))
    return result


def checks(name: str) -> tuple[str, ...]:
    """Returns those of CHECKS that the protocol's worker has, "off" where its frames have no check words. ValueError: there is no
    protocol of that name."""
    declared = options(name).get("check")
    return CHECKS[: declared.most + 1] if declared else CHECKS[:1]


def default_check(name: str) -> str:
    """Returns the one of CHECKS that is used where none is set. ValueError: there is no protocol of that name."""
    declared = options(name).get("check")
    return CHECKS[declared.unset] if declared else CHECKS[0]


def check_check(name: str, check: str) -> None:
    """Raises ValueError: ``check`` is none of the protocol's."""
    if check not in (own := checks(name)):
        without = "; its frames have no check words" if len(own) == 1 else ""
        raise ValueError(f"check: {check!r}: the protocol {name!r} has {', '.join(own)}{without}")


def check_options(name: str, values: Mapping[str, int]) -> None:
    """Raises ValueError: the protocol does not declare one of these options, or a value is out of its range."""
    declared = options(name) if values else {}
    for option, value in values.items():
        if option not in declared:
            known = f"it has {', '.join(declared)}" if declared else "it has none"
            raise ValueError(f"options: {option!r}: the protocol {name!r} has no such option: {known}")
        declared[option].check(value)


def check_reduction(name: str, reduction: int) -> None:
    """Raises ValueError: the protocol does not declare this reduction."""
    if reduction not in (declared := reductions(name)):
        titles = " and ".join(REDUCTIONS[each] for each in sorted(declared)) or "nothing"
        lacking = REDUCTIONS.get(reduction, str(reduction)).removeprefix("a ")
        raise ValueError(f"the protocol {name!r} has no {lacking}: it declares {titles} "
                         "(`reductions` of its worker)")


def program(name: str, twin: str = "") -> Path:
    """Returns the protocol's switch program; ``twin``: that for another architecture, in the folder of this name beside it
    ("tofino").

    ValueError: there is no protocol of that name.
    """
    named(name)
    path = Path(name) if _is_program(Path(name)) else own_path(name) if is_own(name) else paths.p4_dir() / f"{name}.p4"
    return path.parent / twin / path.name


@functools.cache
def _load(path: Path) -> CData:
    """Loads the worker ``ina_<name>`` of ``<name>.c``."""
    error = ffi.new("char[]", 512)
    shared = _compile(path.with_suffix(".c"))
    protocol = lib.ina_protocol_load(os.fsencode(shared), f"ina_{path.stem}".encode(), error, 512)
    if protocol == ffi.NULL:
        raise ValueError(f"{path.with_suffix('.c')}: no `const struct ina_protocol ina_{path.stem}`: "
                         f"{ffi.string(error).decode(errors='replace')}")
    members: Any = ffi.typeof("struct ina_protocol").fields
    functions = [name for name, member in members if member.type.kind == "function"]
    if not protocol.offers:
        functions.remove("amend")
    if missing := [name for name in ("name", *functions) if getattr(protocol, name) == ffi.NULL]:
        raise ValueError(f"{path.with_suffix('.c')}: ina_{path.stem} has no {', '.join(missing)}, which every protocol has "
                         "(host/protocol/protocol.h)")
    if protocol.max_workers > lib.INA_MAX_WORKERS:
        raise ValueError(f"{path.with_suffix('.c')}: ina_{path.stem}.max_workers: {protocol.max_workers}, expected at most "
                         f"{lib.INA_MAX_WORKERS}")
    return protocol


def _compile(worker: Path) -> Path:
    """Returns the shared object, cached; at run time it uses functions of the package's compiled part.

    ValueError: it does not compile, or the compiled part was built with other headers.
    """
    from ina.base.cc import BuildError, shared_object

    try:
        headers = abi.made_with()
    except ValueError as error:
        raise ValueError(f"{worker}: {error}") from error
    flags = ["-std=gnu11", "-O3", "-march=native", "-Wall", *(f"-I{folder}" for folder in paths.host_dirs())]
    try:
        return shared_object(f"{worker.stem}-worker", flags, [worker], [native.PATH], also=headers)
    except BuildError as error:
        raise ValueError(f"{worker} does not compile: {error}") from error
