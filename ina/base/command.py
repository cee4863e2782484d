"""The frame of a command's process: what ends any command ends each in one line, with a status that shells know."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ina.base import signals
from ina.base.extras import Missing
from ina.base.stdout import OutputError, ReaderGone, own

GONE = 141  # exit status of a command that SIGPIPE has ended, as a shell reports it


def run(name: str, command: Callable[[], int]) -> int:
    """Runs a command and returns its exit status. Handles errors outside of any command: a compiled part older than its sources,
    a missing extra or memory, Ctrl-C, SIGTERM, a closed pipe, a standard output that takes nothing."""

    def fail(message: object, status: int) -> int:
        print(f"{name}: {message}", file=sys.stderr)
        return status

    try:
        with signals.terminable(), own():
            return command()
    except (ReaderGone, BrokenPipeError):  # of standard output, or error
        return GONE
    except (OutputError, Missing) as error:
        return fail(error, 1)
    except MemoryError as error:
        return fail(f"not enough memory: {error or 'none is left'}", 1)
    except signals.Terminated:
        return fail("terminated", signals.STATUS)
    except KeyboardInterrupt:
        return fail("interrupted", 130)
