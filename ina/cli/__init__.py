"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ...

A command's module is imported when the command is called, within `main`, so that errors of imports, and Ctrl-C meanwhile, are
reported like any other. `ina --version` and `ina --help` import none.
"""

from __future__ import annotations

import sys

from ina.base.command import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def parser(argv: list[str] | None = None) -> argparse.ArgumentParser:
    """Returns the parser for a command line, with the command that it begins with; None: with all commands."""
    from ina.cli.commands import COMMANDS
    from ina.cli.parsers import nearest, parser

    if argv is None:
        return parser()
    name = argv[0] if argv else ""
    top = parser([name] if name in COMMANDS else [])
    if name and name not in COMMANDS and not name.startswith("-"):
        top.error(f"no command {name!r}{nearest(name, COMMANDS)}")
    return top


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns its exit status."""

    def command() -> int:
        words = sys.argv[1:] if argv is None else argv
        args = parser(words).parse_args(words)
        return args.main(args)

    return run("ina", command)
