"""The pipelines of a checked TNA program: their parsers and controls."""

from __future__ import annotations

from dataclasses import dataclass

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError

BLOCKS = ("ingress_parser", "ingress", "ingress_deparser", "egress_parser", "egress", "egress_deparser")


class NotTna(ValueError):
    """The program is for another architecture."""


@dataclass(frozen=True)
class Gress:
    """Ingress or egress of one pipeline. `name`: "ingress", or "pipe_a.ingress" where there are several pipelines."""

    name: str
    parser: Instance
    control: Instance
    deparser: Instance


@dataclass(frozen=True)
class Pipeline:
    name: str
    gresses: tuple[Gress, ...]


def pipelines(program: CheckedProgram) -> list[Pipeline]:
    """Returns the program's pipelines. Raises NotTna."""
    main = program.main
    if main is None or main.decl.name not in ("Switch", "MultiParserSwitch"):
        package = f"a {main.decl.name}" if main else "no main package"
        raise NotTna(
            f"{program.filename} has {package}: expected a program for Tofino (TNA), whose main is Switch(Pipeline(...))"
        )
    pipes = [a for a in main.args.values() if isinstance(a, Instance)]
    result = []
    for pipe in pipes:
        blocks = [a for a in pipe.args.values() if isinstance(a, Instance)]
        parsers = [b for b in blocks if isinstance(b.decl, ast.ParserDecl)]
        controls = [b for b in blocks if isinstance(b.decl, ast.ControlDecl)]
        if len(parsers) != 2 or len(controls) < 4:
            raise CompileError((pipe.site or main.origin).span,
                               "a pipeline with other than two parsers and four controls is not looked into")  # fmt: skip
        prefix = f"{pipe.site.name}." if len(pipes) > 1 and pipe.site else ""
        result.append(Pipeline(pipe.site.name if pipe.site else "pipe", (
            Gress(f"{prefix}ingress", parsers[0], controls[0], controls[1]),
            Gress(f"{prefix}egress", parsers[1], controls[2], controls[3]),
        )))  # fmt: skip
    return result
