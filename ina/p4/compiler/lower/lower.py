"""Lowering by architecture: turns a checked program into one module, or one for each pipeline of a TNA `Switch`."""

from __future__ import annotations

from pathlib import Path

from ina.p4.compiler import ir
from ina.p4.compiler.arch.architecture import supported_architecture
from ina.p4.compiler.arch.lower_tna import lower_switch
from ina.p4.compiler.arch.lower_v1model import lower_v1switch
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.externs.user import UserBodies, externs_of


def lower(program: CheckedProgram, externs: str | Path | UserBodies | None = None) -> list[ir.Module]:
    """Returns the program's modules. `externs`: a Python file with externs of the program's own. Raises CompileError for what
    this back end does not support."""
    architecture = supported_architecture(program)
    known = externs_of(architecture, externs)
    return [lower_v1switch(program, known)] if architecture == "v1model" else lower_switch(program, known)
