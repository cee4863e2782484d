"""The switch process of a network of real interfaces: ``python -m ina.worlds.testbed.switch_process --network FILE``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ina.aggregation.controller.server import Made, main, parser
from ina.worlds.testbed.description import Description
from ina.worlds.testbed.switch_host import NetworkSwitch


def network(program: Path, defines: dict[str, str], args: argparse.Namespace) -> Made:
    return Made(NetworkSwitch(program, defines, Description.read(args.network)), False)


if __name__ == "__main__":
    options = parser("ina.worlds.testbed.switch_process")
    options.add_argument("--network", type=Path, required=True, help="JSON file that describes the interfaces to run on")
    sys.exit(main(None, options, network))
