"""The controller of switches that run elsewhere, over P4Runtime. It can be ended and started anew under
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
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

from ina import topology as topologies
from ina.aggregation.control_socket.channel import elsewhere, listening
from ina.aggregation.controller import access
from ina.aggregation.controller.api import DEFAULT_SLOTS
from ina.aggregation.controller.failures import CHECK
from ina.aggregation.controller.server import Server
from ina.aggregation.controller.state import StateError, StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.base import signals, tokens
from ina.base.error_text import line
from ina.base.service_manager import ServiceManager
from ina.p4.rpc import connections as rpc
from ina.p4.runtime.entity_error import EntityError
from ina.worlds.deployed.remote import NoAnswer, over_p4runtime


def run(args: argparse.Namespace) -> int:
    """Runs ``ina controller``; returns its exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if args.verbose else logging.WARNING,
                        format="ina controller: %(message)s")
    try:
        arguments = (topologies.specified(args.topology), dict(args.switch), rpc.Access.of(args), args.packet_lifetime,
                     args.switch_timeout, args.election_id)
        return serve(lambda: over_p4runtime(*arguments), args.name, args.state, args.job_slots, args.user)
    except topologies.TopologyError as error:
        print(f"ina: {error}", file=sys.stderr)
        return 2
    except (StateError, EntityError, OSError, TimeoutError, ValueError) as error:
        print(f"ina: {line(error)}", file=sys.stderr)
        return 1


def serve(switches: Callable[[], SwitchHost], name: str, state: Path, job_slots: int | None, users: Collection[str] = ()) -> int:
    """Serves workers until a signal; those that connect before the switches answer wait. ``users``: who may have jobs. Raises
    what ``switches`` (but NoAnswer), listening and the state file raise."""
    manager = ServiceManager.of()
    allowed, token = access.Access(os.geteuid(), access.users(users)), tokens.make() if elsewhere(name) else ""
    with listening(name, everybody=bool(users)) as listener:
        signals.raising(lambda _number: SystemExit(0), signal.SIGINT, signal.SIGTERM)
        file = StateFile(state)
        file.load()  # its errors come now, and not when the switches answer
        host = _awaited(switches)
        location = {"token": tokens.where()} if token else {}
        server = Server(listener, host, job_slots=job_slots or DEFAULT_SLOTS, state=file, access=allowed, token=token,
                        manager=manager)
        with closing(server):
            print(json.dumps({"pid": os.getpid(), "name": name, **location, **host.describe()}), flush=True)
            server.run()
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
