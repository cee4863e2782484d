"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ...

Imports happen in `parser`, so that their errors, and Ctrl-C meanwhile, are reported like any other.
"""

from __future__ import annotations

import os
import sys

from ina import __version__
from ina.base.extras import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def parser() -> argparse.ArgumentParser:
    import argparse

    from ina.aggregation.controller import ps_process
    from ina.cli import deploy, equal, explore, p4, switch, tofino, wire
    from ina.cli import experiment as experiments
    from ina.cli import jobs as control
    from ina.cli import net as networks
    from ina.cli import topo as show
    from ina.lab.doctor import machine
    from ina.worlds.deployed import daemon

    top = argparse.ArgumentParser(
        prog="ina", description="In-network aggregation: P4 switch programs and real torch training."
    )
    top.add_argument("--version", action="version", version=f"ina {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    experiments.add_arguments(commands)
    machine.add_arguments(commands)
    p4.add_arguments(commands)
    equal.add_arguments(commands)
    switch.add_arguments(commands)
    tofino.add_arguments(commands)
    deploy.add_arguments(commands)
    ps_process.add_arguments(commands)
    daemon.add_arguments(commands)
    control.add_arguments(commands)
    networks.add_arguments(commands)
    show.add_arguments(commands)
    wire.add_arguments(commands)
    explore.add_arguments(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Runs a command. Handles errors outside of any command: a compiled part older than its sources, a missing extra or memory,
    Ctrl-C, a closed pipe."""
    try:
        args = parser().parse_args(argv)
        status = args.main(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 141
    except Missing as error:
        return _fail(error, 1)
    except MemoryError as error:
        return _fail(f"not enough memory: {error or 'none is left'}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _fail(message: object, status: int) -> int:
    print(f"ina: {message}", file=sys.stderr)
    return status

