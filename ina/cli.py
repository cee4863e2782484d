"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ..."""

from __future__ import annotations

import argparse
import sys

from ina import __version__
from ina.control import cli as control
from ina.control import daemon, parameter_server
from ina.emulator import cli as explore
from ina.experiment import cli as experiments
from ina.experiment import doctor
from ina.p4 import cli as p4
from ina.p4runtime import cli as switch
from ina.tofino import cli as tofino
from ina.tofino import deploy_cli as deploy
from ina.wire import cli as wire
from topologies import cli as networks
from topologies import show


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ina", description="In-network aggregation: P4 switch programs and real torch training."
    )
    top.add_argument("--version", action="version", version=f"ina {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    experiments.add_arguments(commands)
    doctor.add_arguments(commands)
    p4.add_arguments(commands)
    switch.add_arguments(commands)
    tofino.add_arguments(commands)
    deploy.add_arguments(commands)
    parameter_server.add_arguments(commands)
    daemon.add_arguments(commands)
    control.add_arguments(commands)
    networks.add_arguments(commands)
    show.add_arguments(commands)
    wire.add_arguments(commands)
    explore.add_arguments(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return args.main(args)


if __name__ == "__main__":
    sys.exit(main())
