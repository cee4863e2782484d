"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ...

A command's module is imported when the command is called, within `main`, so that errors of imports, and Ctrl-C meanwhile, are
reported like any other. `ina --version` and `ina --help` import none.
"""

from __future__ import annotations

import sys

from ina.base import signals
from ina.base.extras import Missing
from ina.cli.stdout import OutputError, own

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
    """Runs a command. Handles errors outside of any command: a compiled part older than its sources, a missing extra or memory,
    Ctrl-C, SIGTERM, a closed pipe, a standard output that takes nothing."""
    try:
        with signals.terminable(), own():
            argv = sys.argv[1:] if argv is None else argv
            args = parser(argv).parse_args(argv)
            return args.main(args)
    except BrokenPipeError:
        return 141
    except OutputError as error:
        return _fail(error, 1)
    except Missing as error:
        return _fail(error, 1)
    except MemoryError as error:
        return _fail(f"not enough memory: {error or 'none is left'}", 1)
    except signals.Terminated:
        return _fail("terminated", signals.STATUS)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _fail(message: object, status: int) -> int:
    print(f"ina: {message}", file=sys.stderr)
    return status

