"""The syntax tree of a program, for `ina p4 equal`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.walk import walk


def nodes(program: CheckedProgram) -> Iterator[ast.Node]:
    """Yields all nodes but the declarations of core.p4 and the architecture."""
    return walk([d for d in program.declarations if "p4include" not in Path(d.span.file).parts])
