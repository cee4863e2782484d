"""Targets that read P4 source text and STF files: from bytes to a checked tree, to C, to STF commands."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def p4() -> tuple[Any, ...]:
    """Preprocessor, parser and checker; for a small valid program also code generation."""
    from ina.p4.compiler import frontend
    from ina.p4.compiler.errors import CompileError, InternalError
    from ina.p4.compiler.generate import generate

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "program.p4"

    def read(data: bytes) -> None:
        assert folder
        path.write_bytes(data)
        try:
            generate(frontend.load(path))
        except InternalError as error:
            raise AssertionError(f"the compiler fell over: {error.message}") from error.__cause__

    return read, CompileError


def stf() -> tuple[Any, ...]:
    """STF commands on a small program."""
    from v1_program import TABLE, check, source

    from ina.p4.compiler.p4info import p4info
    from ina.p4.compiler.reference.interpreter import Interpreter, InterpreterError
    from ina.p4.compiler.reference.tables import TableError
    from ina.p4.runtime.entity_error import EntityError
    from ina.p4.tools import stf_file as stf
    from ina.p4.tools.stf_target import InterpreterTarget

    with tempfile.TemporaryDirectory() as folder:
        program = check(
            Path(folder), source(ingress="t.apply();", ingress_locals=TABLE % ("hdr.data.d: exact; hdr.data.a: ternary;", ""))
        )
    info = p4info.build(program)

    def read(data: bytes) -> None:
        stf.run(data.decode("latin-1"), InterpreterTarget(Interpreter(program), info))

    return read, stf.StfError, InterpreterError, TableError, EntityError
