"""``ina doctor``: is this machine, and this network interface, fit for a run, and what will limit it?"""

from __future__ import annotations

import argparse

from ina.aggregation import port_kinds, protocols
from ina.base.bounds import SECONDS, real, whole
from ina.lab.doctor.reachability import MOST


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to ``ina``; what it examines is imported when it does."""
    parser = commands.add_parser("doctor", description=__doc__)
    parser.add_argument("--workers", type=whole(1, 1024), default=2, help="how many will run here (2)")
    parser.add_argument("--interface", action="append", default=[], metavar="NAME", help="a network interface to check as well")
    parser.add_argument("--protocol", choices=protocols.names(),
                        help=f"(INA_PROTOCOL, else {protocols.DEFAULT})")
    parser.add_argument("--values", type=whole(1, 2048), help="int32 per packet (INA_VALUES, else 2048, as a training has it)")
    parser.add_argument("--slots", type=whole(1, 8192), help="slots of each job (INA_SLOTS, else 64)")
    parser.add_argument("--port", choices=port_kinds.made_kinds(),
                        help=f"of the trial (INA_PORT, else {port_kinds.DEFAULT})")
    parser.add_argument("--quick", action="store_true", help="no trial run")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--target", default="", choices=("tofino", "dpdk"),
                        help="tofino: check the way to other hosts through it instead; dpdk: what the fast path needs")
    parser.add_argument("--peer", action="append", default=[], metavar="IP", help="a host there, on which an agent answers")
    parser.add_argument("--agent", type=real(0, SECONDS), metavar="SECONDS",
                        help="with --target: answer other hosts' probes so long")
    parser.add_argument("--count", type=whole(1, MOST, "each is a packet on the wire"), default=5000,
                        help="probes to each peer (%(default)s)")
    parser.set_defaults(main=_main)


def _main(args: argparse.Namespace) -> int:
    from ina.lab.doctor import machine

    return machine.main(args)
