"""Errors that a command's user can act on: one message each, and an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ina.base.error_text import line
from ina.base.extras import Missing
from ina.base.settings import ConfigError
from ina.base.stdout import OutputError
from ina.p4.compiler.errors import CompileError

Command = Callable[[argparse.Namespace], int]


def is_expected(error: Exception) -> bool:
    """Returns True if the error's text is for the user: the system's, one of a value, or an exception of this package; but those
    that end any command in the same way are ina/base/command.py's."""
    is_own = type(error).__module__.startswith("ina.") and not isinstance(error, (OutputError, Missing))
    return is_own or isinstance(error, (OSError, ValueError))


def reported(command: Command, wrong: int = 1) -> Command:
    """Returns the command with its errors as messages on standard error. Exit status: 2 for a wrong configuration, else
    ``wrong``."""

    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except Exception as error:
            if not is_expected(error):
                raise
            print(error if isinstance(error, CompileError) else f"ina: {line(error)}", file=sys.stderr)
            return 2 if isinstance(error, ConfigError) else wrong

    return run
