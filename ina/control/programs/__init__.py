"""Protocols that the controller can set up, by name. A new one is a JobProgram and a line here."""

from __future__ import annotations

from ina.control.programs.base import Child, JobProgram, Parent, Place, Sizes
from ina.control.programs.switchml import SwitchML
from ina.switch.p4info import P4Info

PROGRAMS: dict[str, JobProgram] = {program.name: program for program in (SwitchML(),)}

__all__ = ["PROGRAMS", "Child", "JobProgram", "Parent", "Place", "Sizes", "program_named", "recognise"]


def program_named(name: str) -> JobProgram:
    """Raises ValueError for a protocol that there is no controller for."""
    if name not in PROGRAMS:
        raise ValueError(f"there is no controller for the protocol {name!r}; expected one of {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


def recognise(p4info: P4Info) -> tuple[JobProgram, Sizes] | None:
    """Whose program a switch runs, by what it declares; None: no protocol's that the controller knows."""
    for program in PROGRAMS.values():
        if sizes := program.sizes(p4info):
            return program, sizes
    return None
