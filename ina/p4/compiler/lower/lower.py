"""Lowering by architecture: turns a checked program into one module, or one for each pipeline of a TNA `Switch`."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.arch.architecture import supported_architecture
from ina.p4.compiler.arch.lower_tna import lower_switch
from ina.p4.compiler.arch.lower_v1model import lower_v1switch
from ina.p4.compiler.checked_program import CheckedProgram


def lower(program: CheckedProgram) -> list[ir.Module]:
    """Returns the program's modules. Raises CompileError for what this back end does not support."""
    if supported_architecture(program) == "v1model":
        return [lower_v1switch(program)]
    return lower_switch(program)
