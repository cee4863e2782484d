"""``ina jobs``, ``ina switches``, ``ina counters`` and ``ina top``: options. ina/cli/running.py does what they say."""

from __future__ import annotations

import argparse
import os

from ina.base.bounds import real, whole

COMMANDS = ("jobs", "switches", "counters", "top")


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the commands to ``ina``."""
    for name in COMMANDS:
        parser = commands.add_parser(name)
        parser.add_argument("--switch", metavar="NAME", default=os.environ.get("INA_SWITCH"),
                            help="socket of a switch process: an abstract name, or a path with a '/' (default: INA_SWITCH, else "
                                 "all that this machine's jobs and networks have started)")
        parser.add_argument("--json", action="store_true", help="JSON, an object with a key for each switch process")
        parser.set_defaults(main=_main, operation=name)
    parser.add_argument("-d", "--delay", type=real(0.05, 86400), default=1.0, metavar="SECONDS",
                        help="between two looks (default: 1)")
    parser.add_argument("-n", "--count", type=whole(0, 10**9), default=0, metavar="N",
                        help="print so many and end (default: on a terminal a screen with keys until q, else until Ctrl-C)")
    parser.add_argument("--once", action="store_true", help="as -n 1")


def _main(args: argparse.Namespace) -> int:
    from ina.cli import running

    return running.run(args)
