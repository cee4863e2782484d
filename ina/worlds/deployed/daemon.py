"""``ina controller``: the controller of switches that run elsewhere, over P4Runtime. It can be ended and started anew under
running jobs: it finds them in its state file, and makes the switches agree with that.

    ina switch run p4/switchml.p4 -i 1@veth1 -i 2@veth2 --grpc 10.1.0.1:9559         # on each switch's machine
    ina controller --topology "leaf-spine leaves=2 spines=1" --switch s1=10.1.0.1:9559 --switch s2=10.1.0.2:9559 ... \\
        --name /run/ina/controller.sock --state /var/lib/ina/jobs.json
    INA_SWITCH=/run/ina/controller.sock INA_HOST=h3 torchrun ... train.py             # on each host
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from ina import topology as topologies
from ina.aggregation.control_socket.channel import elsewhere, listen
from ina.aggregation.controller import access
from ina.aggregation.controller.access import add_arguments as add_users
from ina.aggregation.controller.api import DEFAULT_SLOTS, JOINING
from ina.aggregation.controller.failures import CHECK, SILENCES
from ina.aggregation.controller.job_incarnations import PACKET_LIFETIME
from ina.aggregation.controller.server import Server
from ina.aggregation.controller.state import StateError, StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.base import signals, tokens
from ina.base.bounds import SECONDS, real, whole
from ina.base.error_text import line
from ina.p4.rpc import connections as rpc
from ina.p4.runtime.p4info import EntityError
from ina.worlds.deployed.remote import CONNECTED, NoAnswer, over_p4runtime


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``ina controller`` to the commands."""
    parser = commands.add_parser("controller", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", required=True, help='how hosts and switches are connected: "fat-tree k=4", or a TOML file')
    parser.add_argument("--switch", action="append", required=True, metavar="NAME=HOST:PORT",
                        help="a switch of the topology and where it serves P4Runtime; once for each that jobs may use")
    rpc.add_arguments(parser)
    parser.add_argument("--name", required=True,
                        help="socket for workers and people: an abstract name, a path with a '/', or tcp:HOST:PORT")
    add_users(parser)
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help="where jobs are remembered")
    add_times(parser)
    parser.add_argument("--job-slots", type=whole(1, 8192), default=DEFAULT_SLOTS,
                        help="slots of a job that asks for none (%(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens")
    parser.set_defaults(main=_main)


def add_times(parser: argparse.ArgumentParser) -> None:
    """Adds ``--packet-lifetime`` and ``--switch-timeout`` to a controller's command."""
    parser.add_argument("--packet-lifetime", type=_seconds, default=PACKET_LIFETIME, metavar="SECONDS",
                        help="longest that a packet is under way in this network; a controller that starts admits no job before "
                        "that, as it may not know which packets are (%(default)g)")  # fmt: skip
    parser.add_argument("--switch-timeout", type=real(1e-3, SECONDS), default=CONNECTED, metavar="SECONDS",
                        help=f"longest that a switch takes to answer; it is lost when it does not {SILENCES} times in a row "
                        "(%(default)g)")  # fmt: skip


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < JOINING:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0 and less than {JOINING:g} seconds")
    return seconds


def _main(args: argparse.Namespace) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if args.verbose else logging.WARNING,
                        format="ina controller: %(message)s")  # fmt: skip
    try:
        return _run(args)
    except (StateError, topologies.TopologyError, EntityError, OSError, TimeoutError, ValueError) as error:
        print(f"ina: {line(error)}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    topology, addresses = topologies.specified(args.topology), dict(parse_switch(text) for text in args.switch)
    arguments = topology, addresses, rpc.Access.of(args), args.packet_lifetime, args.switch_timeout
    return serve(lambda: over_p4runtime(*arguments), args.name, args.state, args.job_slots, args.user)


def serve(switches: Callable[[], SwitchHost], name: str, state: Path, job_slots: int, users: Collection[str] = ()) -> int:
    """Serves workers until a signal; those that connect before the switches answer wait. ``users``: who may have jobs. Raises
    what ``switches`` (but NoAnswer), listening and the state file raise."""
    allowed, token = access.Access(os.geteuid(), access.users(users)), tokens.make() if elsewhere(name) else ""
    path = Path(name) if "/" in name else None
    if path is not None and path.is_socket():
        _free(path)
    listener = listen(name, everybody=bool(users))
    try:
        signals.raising(lambda _number: SystemExit(0), signal.SIGINT, signal.SIGTERM)
        file = StateFile(state)
        file.load()  # its errors come now, and not when the switches answer
        host = _awaited(switches)
        server = Server(listener, host, job_slots=job_slots, state=file, access=allowed, token=token)
        location = {"token": tokens.where()} if token else {}
        print(json.dumps({"pid": os.getpid(), "name": name, **location, **host.describe()}), flush=True)
        try:
            server.run()
        finally:
            server.close()
    finally:
        listener.close()
        if path is not None:
            path.unlink(missing_ok=True)
    return 0


def _awaited(switches: Callable[[], SwitchHost]) -> SwitchHost:
    """Asks the switches every CHECK seconds until they answer, as ina/aggregation/controller/failures.py does."""
    message = ""
    while True:
        try:
            return switches()
        except NoAnswer as error:
            if str(error) != message:
                print(f"ina: waiting until it answers, with a look every {CHECK:g} s: {error}", file=sys.stderr, flush=True)
            message = str(error)
        time.sleep(CHECK)


def parse_switch(text: str) -> tuple[str, str]:
    """Parses ``s1=HOST:PORT``. Raises ValueError."""
    name, equals, address = text.partition("=")
    if not equals or not name or ":" not in address:
        raise ValueError(f"--switch {text}: expected NAME=HOST:PORT, such as s1=127.0.0.1:9559")
    return name, address


def _free(path: Path) -> None:
    """Removes the socket of a controller that was killed. Raises ValueError if somebody listens there."""
    from ina.aggregation.controller.client import Client, ControlError

    try:
        Client(str(path)).close()
    except ControlError as error:
        if error.code == "gone":
            path.unlink()
            return
    raise ValueError(f"somebody listens at {path} already")
