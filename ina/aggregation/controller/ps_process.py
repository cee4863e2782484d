"""The parameter server as a process: ``ina ps``, or started by the switch process of the local world.

It asks the switch process for a port of the switch (``serve``), and then takes calls over the same connection, one at a time,
each of which it answers (``op: answer``, with ``error``):

    add     number life workers        slots values multicast key      -> serves that job from now on
    remove  number                                                     -> with the job's last counters
    counters                                                           -> jobs: counters by number; port

It ends when the switch process hangs up, or by a signal; the switch process then fails the jobs that it served.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ina.aggregation import port_kinds, protocols
from ina.aggregation.control_socket.channel import Channel, ChannelClosed, connect
from ina.aggregation.control_socket.greeting import Seal, found
from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller.worker_ports import open_offered_port
from ina.base import signals
from ina.base.error_text import reason
from ina.net.ports import Address

if TYPE_CHECKING:
    from ina.aggregation.ps.server import Server

CONNECTED = 60.0  # seconds to reach a controller elsewhere
ANSWER = 60.0  # seconds for the switch process, which may have to compile its program first


def serve(channel: Channel, port: str, say: Callable[[str], None], host: str = "") -> None:
    """Serves until the switch process hangs up. ``host``: this process's host, for a controller that cannot see it. Raises
    ValueError if it gets no port, OSError, TimeoutError."""
    from ina.aggregation.ps.server import Server

    channel.send({"op": "serve", "port": port, "host": host})
    offer, fds = channel.receive(time.monotonic() + ANSWER, "the switch process to give a port")
    try:
        if not offer.get("ok"):
            message = offer.get("error") or offer.get("reason", "no reason given")
            raise ValueError(f"the switch process refuses: {printable(message)}")
        own, switch = Address(*offer["address"]), Address(*offer["switch"])
        max_frame = protocols.frame_bytes(offer["protocol"], offer["values"])
        switch_port = open_offered_port(offer["port"], fds, own, switch, max_frame, offer["frames"])
    finally:
        for fd in fds:
            os.close(fd)
    say(f"serving jobs of {offer['protocol']} at {own.ip}, port {own.port}")
    with Server(switch_port) as server:
        while True:
            try:
                call, _ = channel.receive(time.monotonic() + 3600, "a call")
            except TimeoutError:
                continue
            except ChannelClosed:
                return
            channel.send({"op": "answer", **answer(server, own, switch, call, say, channel.seal)})


def answer(server: Server, own: Address, switch: Address, call: dict[str, Any], say: Callable[[str], None],
           seal: Seal | None = None) -> dict[str, Any]:
    """Performs a call of the switch process; returns the answer's fields. ``seal``: its connection's."""
    from ina.aggregation.ps.server import ServerConfig

    operation = call.pop("call", None)
    try:
        if operation == "add":
            number = call.pop("number")
            key = found(seal, call.pop("key"))
            server.add(ServerConfig(address=own, switch=switch, job=number, key=key, **call))
            say(f"job {number}: {call['workers']} workers, windows of {call['slots']} packets")
            return {}
        if operation == "remove":
            stats = server.stats(call["number"])
            server.remove(call["number"])
            say(f"job {call['number']} is over: " + ", ".join(f"{n} {name}" for name, n in stats.items() if n))
            return {"stats": stats}
        if operation == "counters":
            return {"jobs": {str(job): server.stats(job) for job in server.jobs}, "port": server.port_stats}
        return {"error": f"unknown call {operation!r}"}
    except (KeyError, TypeError, ValueError, OSError) as error:
        return {"error": f"{operation}: {reason(error)}"}


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``ina ps`` to the commands."""
    _add_options(commands.add_parser("ps"))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--switch", required=True, help="socket of the switch process: an abstract name, a path with a '/', or "
                        "tcp:HOST:PORT")
    parser.add_argument("--host", default=os.environ.get("INA_HOST", ""),
                        help="the host that this is, for a controller elsewhere, which cannot see it (default: INA_HOST)")
    parser.add_argument("--port", choices=port_kinds.made_kinds(), default=port_kinds.DEFAULT,
                        help="how packets go to the switch; in a network of real interfaces it is udp anyway "
                             "(default: %(default)s)")
    parser.set_defaults(main=lambda args: run(lambda: connect(args.switch, CONNECTED), args.port,
                                              lambda text: print(text, flush=True), args.host))


def run(connection: Callable[[], Channel], port: str, say: Callable[[str], None], host: str = "") -> int:
    """Serves until the end; returns the exit status."""
    signals.raising(lambda number: SystemExit(128 + number), signal.SIGTERM)
    try:
        serve(connection(), port, say, host)
        return 0
    except (OSError, ValueError) as error:
        message = getattr(error, "strerror", None) or error
        print(f"ina ps: {message}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("ina ps: interrupted", file=sys.stderr, flush=True)
        return 130


def main() -> int:
    """``python -m ina.aggregation.controller.ps_process``: as ``ina ps``; or, as a child of the switch process, with the
    only argument CHANNEL-FD."""
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        parser = argparse.ArgumentParser(prog="ina ps")
        _add_options(parser)
        args = parser.parse_args()
        status: int = args.main(args)
        return status
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is meant for the job; this process ends with the switch's
    return run(lambda: Channel(socket.socket(fileno=int(sys.argv[1]))), port_kinds.DEFAULT, lambda text: None)


if __name__ == "__main__":
    sys.exit(main())
