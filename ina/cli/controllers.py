"""``ina controller``: the controller of switches that run elsewhere, over P4Runtime. It can be ended and started anew under
running jobs: it finds them in its state file, and makes the switches agree with that.

    ina switch run p4/switchml.p4 -i 1@veth1 -i 2@veth2 --grpc 10.1.0.1:9559         # on each switch's machine
    ina controller --topology "leaf-spine leaves=2 spines=1" --switch s1=10.1.0.1:9559 --switch s2=10.1.0.2:9559 ... \\
        --name /run/ina/controller.sock --state /var/lib/ina/jobs.json
    INA_SWITCH=/run/ina/controller.sock INA_HOST=h3 torchrun ... train.py             # on each host
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from ina.aggregation.control_socket.peers import add_user_option
from ina.aggregation.controller.job_incarnations import PACKET_LIFETIME
from ina.base.bounds import SECONDS, real, whole
from ina.p4.rpc import connections as rpc


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``ina controller`` to the commands."""
    parser = commands.add_parser("controller", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", required=True, help='how hosts and switches are connected: "fat-tree k=4", or a TOML file')
    parser.add_argument("--switch", action="append", required=True, metavar="NAME=HOST:PORT", type=_switch,
                        help="a switch of the topology and where it serves P4Runtime; once for each that jobs may use")
    parser.add_argument("--election-id", type=whole(1, 2**128 - 1), default=rpc.ELECTION_ID, metavar="N",
                        help="of P4Runtime: clients with a lower one cannot take the switches away (default: 2^80)")
    add_common(parser, "socket for workers and people: an abstract name, a path with a '/', or tcp:HOST:PORT", "128")
    parser.set_defaults(main=_main)


def add_common(parser: argparse.ArgumentParser, name: str, job_slots: str) -> None:
    """Adds the options of every controller's command. ``name``: help of ``--name``; ``job_slots``: the default, in words."""
    rpc.add_arguments(parser)
    parser.add_argument("--name", required=True, help=name)
    add_user_option(parser)
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help="where jobs are remembered")
    parser.add_argument("--packet-lifetime", type=_seconds, default=PACKET_LIFETIME, metavar="SECONDS",
                        help="longest that a packet is under way in this network; a controller that starts admits no job before "
                        "that, as it may not know which packets are (%(default)g)")
    parser.add_argument("--switch-timeout", type=real(1e-3, SECONDS), default=rpc.CONNECTED, metavar="SECONDS",
                        help="longest that a switch takes to answer; it is lost when it does not 3 times in a row (%(default)g)")
    parser.add_argument("--job-slots", type=whole(1, 8192), help=f"slots of a job that asks for none (default: {job_slots})")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens")


def _switch(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not equals or not name or ":" not in address:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=HOST:PORT, such as s1=127.0.0.1:9559")
    return name, address


def _seconds(text: str) -> float:
    from ina.aggregation.controller.api import JOINING

    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < JOINING:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0 and less than {JOINING:g} seconds")
    return seconds


def _main(args: argparse.Namespace) -> int:
    from ina.worlds.deployed import daemon

    return daemon.run(args)
