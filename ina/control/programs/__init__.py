"""The protocols' tables, found by the protocol's name: ``ina/control/programs/<name>.py`` makes one JobProgram, ``PROGRAM``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ina.control.programs.base import Child, JobProgram, Parent, Place, Sizes
from ina.switch.p4info import P4Info
from ina.transport import protocols

__all__ = ["Child", "JobProgram", "Parent", "Place", "Sizes", "program_named", "programs", "recognise"]


def program_named(name: str) -> JobProgram:
    """Raises ValueError: there is no such protocol, or no controller for it."""
    protocols.named(name)
    module = f"{__name__}.{name}"
    if find_spec(module) is None:
        raise ValueError(f"there is no controller for the protocol {name!r}: no file ina/control/programs/{name}.py")
    return import_module(module).PROGRAM


def programs() -> list[JobProgram]:
    """Of all protocols that the controller can set up."""
    return [program_named(name) for name in protocols.names() if find_spec(f"{__name__}.{name}")]


def recognise(p4info: P4Info, path: Path | None = None) -> tuple[JobProgram, Sizes] | None:
    """Whose program a switch runs: of a protocol's own it is known by its ``path``, of another by what it declares; None: no
    protocol's that the controller knows."""
    for program in sorted(programs(), key=lambda p: path is None or path.resolve() != protocols.program(p.name).resolve()):
        if sizes := program.sizes(p4info):
            return program, sizes
    return None
