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


def exit_status(error: Exception, wrong: int = 1) -> int:
    """Prints an error on standard error, or raises it, if it is none for the user. Returns the exit status: 2 for a wrong
    configuration, else ``wrong``."""
    if not is_expected(error):
        raise error
    print(error if isinstance(error, CompileError) else f"ina: {line(error)}", file=sys.stderr)
    return 2 if isinstance(error, ConfigError) else wrong


def reported(command: Command, wrong: int = 1) -> Command:
    """Returns the command with its errors reported."""

    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except Exception as error:
            return exit_status(error, wrong)

    return run
