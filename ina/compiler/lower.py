"""Lowering by architecture: a checked program to one module, or one for each pipeline of a TNA `Switch`."""

from __future__ import annotations

from ina.compiler import ir
from ina.compiler.errors import NO_SPAN, CompileError, Span
from ina.compiler.lower_tna import lower_switch
from ina.compiler.lower_v1model import V1Model
from ina.compiler.program import ARCHITECTURES, CheckedProgram


def lower(program: CheckedProgram) -> list[ir.Module]:
    """Raises CompileError for what this back end does not support."""
    main = program.main
    if main is None:
        raise CompileError(
            Span(program.filename, 0, 0, 0),
            "the program has no 'main'",
            ["a program ends with a package that is called so: V1Switch(...) main; or Switch(pipe) main;"],
        )
    architecture = ARCHITECTURES.get(main.decl.name)
    if architecture is None:
        raise CompileError(
            main.site.span if main.site else NO_SPAN,
            f"architecture package '{main.decl.name}' is not supported",
            ["this back end knows V1Switch (v1model) and Switch (TNA)"],
        )
    return [V1Model(program).lower()] if architecture == "v1model" else lower_switch(program)
