"""The switch process: running switches, their controller, and a door for workers and people.

    python -m ina.control.server --program p4/switchml.p4 -DVALUES=256 --name my-switch

Workers speak JSON lines (channel.py) on a Unix socket: requests have ``op`` (service.py says which there are); every request
gets one reply with ``ok``, or ``ok: false`` with ``error`` (text) and ``code``. Unasked, a connection may get ``event: left``
(worker) or ``event: failed`` (reason); after the latter it is hung up. On the same socket people speak HTTP (http.py).

Liveness: a worker joins early and keeps its connection open. When its connection or its process ends before ``release``, the
other workers of the job are told which one is lost, and are hung up after GRACE seconds. A parameter server that ends takes all
jobs with it. The process ends when its starter (the other end of ``--starter-fd``) and all clients are gone, and a parameter
server that it started ends with it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ina.compiler.cc import BuildError
from ina.compiler.errors import CompileError
from ina.control import http
from ina.control.channel import Channel, ChannelClosed, keep_alive, listen, peer_pid
from ina.control.host import SwitchHost
from ina.control.service import DEFAULT_SLOTS, Service, Session
from ina.control.state import StateFile
from ina.control.upstream import Upstream

HTTP_PATIENCE = 5.0  # seconds for someone with HTTP to take an answer

log = logging.getLogger("ina.switch")


@dataclass(eq=False)
class Connection:
    """A client's socket. ``asked``: what came of a request in HTTP; None: it speaks JSON lines, or has not spoken yet."""

    channel: Channel
    session: Session
    pidfd: int  # -1: the process cannot be watched
    asked: bytes | None = None
    spoke: bool = False


class Server:
    """Serves one listening socket until its starter and all clients are gone.

    ``failure``: why there is no switch; then every request is answered with it. ``starts_server``: it starts the parameter
    server itself, if the protocol needs one. ``state``: as Service's.
    """

    def __init__(self, listener: socket.socket, host: SwitchHost | None, starter_fd: int = -1, starter_pidfd: int = -1,
                 failure: str = "", job_slots: int = DEFAULT_SLOTS, starts_server: bool = False, state: StateFile | None = None):
        self.service = Service(host, failure, job_slots, state)
        self.listener, self.host = listener, host
        self.connections: list[Connection] = []
        self.selector = selectors.DefaultSelector()
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        if starter_fd >= 0:
            self.selector.register(starter_fd, selectors.EVENT_READ, lambda: self._starter_gone(starter_fd))
        if starter_pidfd >= 0:  # children that it forked may hold copies of the pipe after its end
            self.selector.register(starter_pidfd, selectors.EVENT_READ, lambda: self._starter_gone(starter_pidfd))
        if self.service.controller:
            values = self.host.describe()["values"]
            self.service.upstream = Upstream(self.service.controller, values, self._welcome, starts_server)

    def run(self) -> None:
        while not (self.service.stopping and self.service.deserted()):
            due = self.service.due()
            timeout = max(0.0, due - time.monotonic()) if due else None
            for key, _ in self.selector.select(timeout):
                if key.fileobj in self.selector.get_map():  # not gone through an earlier event of this round
                    key.data()
            self.service.retry()
            if self.service.watch is not None:
                self.service.watch.tick()
            now = time.monotonic()
            for connection in [c for c in self.connections if c.session.hang_up_at and c.session.hang_up_at <= now]:
                self._drop(connection, "")

    def close(self) -> None:
        """Hang up every client and take the switch down; jobs that are remembered go on without this process."""
        for connection in list(self.connections):
            if self.service.watch is None or self.service.watch.state is None:
                self._drop(connection, "")
            else:
                connection.channel.hang_up()
                connection.channel.close()
        self.selector.close()
        self.listener.close()
        if self.service.upstream:
            self.service.upstream.close()
        if self.host:
            self.host.close()

    def _starter_gone(self, fd: int) -> None:
        log.info("the starter is gone; ending with the last client")
        self.selector.unregister(fd)
        self.service.stopping = True

    # ---- connections

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
        self._welcome(sock, peer_pid(sock))

    def _welcome(self, sock: socket.socket, pid: int) -> Session | None:
        """A new connection, of process ``pid``; None if that has ended already."""
        try:
            pidfd = os.pidfd_open(pid) if pid > 0 else -1
        except ProcessLookupError:  # it died meanwhile; the connection says so, too
            sock.close()
            return None
        except OSError as error:
            log.warning("cannot watch process %d (%s); only its connection tells when it ends", pid, error.strerror)
            pidfd = -1
        channel = Channel(sock)
        connection = Connection(channel, Session(pid, lambda message, fds: _send(channel, message, fds), channel), pidfd)
        self.connections.append(connection)
        self.service.sessions.append(connection.session)
        self.selector.register(sock, selectors.EVENT_READ, lambda: self._serve(connection))
        if pidfd >= 0:
            self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._drop(connection, "its process ended"))
        return connection.session

    def _serve(self, connection: Connection) -> None:
        try:
            if not connection.spoke:
                connection.spoke = True
                connection.asked = b"" if http.looks_like(connection.channel.peek()) else None
            if connection.asked is None:
                self._serve_lines(connection)
            else:
                self._serve_http(connection)
        except TimeoutError:  # half a line: the rest will come
            return
        except ValueError as error:
            self._drop(connection, f"it sent something that is not a request: {error}")
        except ChannelClosed:
            self._drop(connection, "its connection closed")

    def _serve_lines(self, connection: Connection) -> None:
        while True:
            request, fds = connection.channel.receive(None, "a request")
            for fd in fds:
                os.close(fd)
            self.service.answer(connection.session, request)
            if not connection.channel.buffered():
                return

    def _serve_http(self, connection: Connection) -> None:
        sock = connection.channel.sock
        connection.asked += sock.recv(http.MAX_REQUEST)
        if (request := http.parse(connection.asked)) is not None:
            sock.settimeout(HTTP_PATIENCE)
            try:
                sock.sendall(http.respond(self.service, request, connection.session.pid))
            except OSError as error:
                log.info("process %d does not take its answer: %s", connection.session.pid, error)
            self._drop(connection, "")

    def _drop(self, connection: Connection, why: str) -> None:
        """The connection is over; ``why`` (empty: by us) is told to the other workers of its job."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self.selector.unregister(connection.channel)
        if connection.pidfd >= 0:
            self.selector.unregister(connection.pidfd)
            os.close(connection.pidfd)
        connection.channel.hang_up()
        connection.channel.close()
        self.service.gone(connection.session, why)


def _send(channel: Channel, message: dict, fds: list[int]) -> None:
    try:
        channel.send(message, fds)
    except ChannelClosed as error:  # its hang-up is on the way to us
        log.info("a client does not hear: %s", error)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ina.control.server", description="the switch process")
    parser.add_argument("--program", required=True, help="the P4 program")
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]",
                        help="preprocessor definition, such as -DVALUES=256")
    parser.add_argument("--name", help="abstract Unix socket to listen at, or, with a '/', a path")
    parser.add_argument("--network", type=Path, help="JSON file that describes the interfaces to run on (network.py)")
    parser.add_argument("--listen-fd", type=int, help="descriptor that listens already, instead of --name")
    parser.add_argument("--starter-fd", type=int, default=-1, help="pipe whose other end the starter holds")
    parser.add_argument("--starter-pid", type=int, default=0, help="process whose end counts as the starter's")
    parser.add_argument("--job-slots", type=int, default=DEFAULT_SLOTS, help="slots of a job that asks for no number")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens")
    args = parser.parse_args(argv)
    if (args.name is None) == (args.listen_fd is None):
        parser.error("expected one of --name and --listen-fd")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if args.verbose else logging.WARNING,
                        format="ina switch: %(message)s")
    listener = listen(args.name) if args.name is not None else socket.socket(fileno=args.listen_fd)

    host, failure = None, ""
    try:
        program, defines = Path(args.program), dict(d.partition("=")[::2] for d in args.defines)
        if args.network:
            from ina.control.description import Description
            from ina.control.network import NetworkSwitch

            host = NetworkSwitch(program, defines, Description.read(args.network))
        else:
            from ina.control.embedded import EmbeddedSwitch

            host = EmbeddedSwitch(program, defines)
    except Exception as error:  # told to every client: they must not be left with a connection that says nothing
        failure = f"the switch process cannot run {args.program}: {error}"
        log.error("%s", failure, exc_info=not isinstance(error, (BuildError, CompileError, OSError)))
        if args.starter_fd < 0:
            return 1
    server = Server(listener, host, args.starter_fd, _watch_starter(args.starter_pid), failure, args.job_slots,
                    starts_server=not args.network)
    if args.starter_fd >= 0:
        # A Ctrl-C at the terminal is meant for the job; this process ends with it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    if host:
        print(json.dumps({"pid": os.getpid(), "name": args.name, **host.describe()}), flush=True)
    try:
        server.run()
    finally:
        server.close()
    return 1 if failure else 0


def _watch_starter(pid: int) -> int:
    """A descriptor that becomes readable when process ``pid`` ends; -1 if there is nothing to watch."""
    if pid <= 0:
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:  # its pipe tells, unless it left children behind
        log.warning("cannot watch the starter, process %d: %s", pid, error.strerror)
        return -1


def _interrupt(number: int, frame: object) -> None:
    """A signal ends the process at once: clients see the hang-up."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
