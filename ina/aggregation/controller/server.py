"""The switch process: running switches, their controller, and the control socket.

    python -m ina.aggregation.controller.server --program p4/switchml.p4 -DVALUES=256 --name my-switch

Workers send JSON lines (channel.py) on a Unix socket: requests have ``op`` (api.py lists them); every request gets one
reply with ``ok``, or ``ok: false`` with ``error`` (text) and ``code``. A connection may also get ``event: left`` (worker),
``event: failed`` or ``event: refused`` (reason); after these two it is hung up. The same socket takes HTTP (http.py).

Liveness: a worker joins early and keeps its connection open. When its connection or its process ends before ``release``, the
other workers of the job get an event that names the lost worker, and are hung up after GRACE seconds. When a parameter server
ends, all jobs fail. The process ends when its starter (the other end of ``--starter-fd``) and all clients are gone, and a
parameter server that it started ends with it.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ina import __version__
from ina.aggregation.control_socket import liveness
from ina.aggregation.control_socket.channel import ChannelClosed, elsewhere, listen
from ina.aggregation.control_socket.connection import CHUNK, UNREAD, Connection
from ina.aggregation.control_socket.greeting import MOST, Callee, Refused
from ina.aggregation.control_socket.peers import address_of_peer, peer
from ina.aggregation.controller import http, metrics_door
from ina.aggregation.controller.access import NOBODY, Access, Principal, Role
from ina.aggregation.controller.api import DEFAULT_SLOTS, Operations, Session
from ina.aggregation.controller.metrics_door import MetricsDoor
from ina.aggregation.controller.process_tree import ProcessTree, why_not
from ina.aggregation.controller.ps_client import PsClient
from ina.aggregation.controller.state import StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.base import logs, notices, signals, tokens
from ina.base.bounds import whole
from ina.base.cc import BuildError
from ina.base.error_text import reason
from ina.base.logs import event
from ina.base.service_manager import ServiceManager
from ina.p4.compiler.errors import CompileError

HTTP_PATIENCE = 60.0  # seconds for an HTTP client to send its request, and to read the response
SLOW = int(HTTP_PATIENCE)  # seconds for a reader whose buffers are full, which the kernel takes for silence
HEADROOM = 64  # descriptors reserved for ports of workers, the state file, switches
SHARE = 64  # connections of a user other than the switch's owner and root; of clients without a token, before and in greetings
LAST_WORDS = 1 << 18  # bytes to read from an ended process: more than its socket holds
GREETING = 60.0  # seconds to send the socket's token
STRANGERS = 10.0  # seconds between lines of the log about clients without the token
PAUSE = 1.0  # seconds without accepting connections, after the system had no resources for one

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Client:
    """A client at a connection. ``trusted``: it is authenticated; over TCP, once it has proved that it has the socket's token.
    ``greeting``: what it has to prove, once it has begun."""

    connection: Connection
    session: Session
    pidfd: int  # -1: the process cannot be watched
    trusted: bool
    greeting: Callee | None = None
    door: MetricsDoor | None = None  # by which it came; None: by the control socket
    lines: bool | None = None  # protocol: JSON lines, or HTTP; None: nothing received yet
    answered: bool = False  # HTTP: to be closed once the response is read
    ends_at: float = 0.0  # monotonic seconds of its time limit; 0: none


class Server:
    """Serves one listening socket until its starter and all clients are gone.

    ``failure``: why there is no switch; then it is the reply to every request. ``starts_server``: start the parameter server
    here, if the protocol needs one. ``state``, ``access``, ``tags`` and ``tree``: as Operations's. ``token``: the socket's,
    required where other machines reach it. ``manager``: is told when workers can attach, and of the end. ``metrics``: a socket
    for Prometheus.
    Raises ValueError: it has no token.
    """

    def __init__(self, listener: socket.socket, host: SwitchHost | None, starter_fd: int = -1, starter_pidfd: int = -1,
                 failure: str = "", job_slots: int = DEFAULT_SLOTS, starts_server: bool = False, state: StateFile | None = None,
                 access: Access | None = None, token: str = "", tags: bool = True, manager: ServiceManager | None = None,
                 metrics: MetricsDoor | None = None, tree: ProcessTree | None = None):
        if listener.family != socket.AF_UNIX and not token:
            raise ValueError("other machines reach this socket: it needs a token (ina/base/tokens.py)")
        self.service = Operations(host, failure, job_slots, state, access, tags, tree)
        self.listener, self.host, self._token, self.metrics = listener, host, token, metrics
        self.clients: dict[Connection, Client] = {}
        self.hurried: set[Client] = set()  # clients with a time limit
        self.manager = manager or ServiceManager()
        self.selector = selectors.DefaultSelector()
        self.listener.setblocking(False)
        self._reserve = _reserved()  # a descriptor to close for a moment, in order to refuse a connection
        bound = listener.getsockname() if listener.family != socket.AF_UNIX else ("",)
        self.names = {str(bound[0])}  # names by which clients reach it
        self._listens_at = 0.0  # monotonic seconds when to accept connections again; 0: now
        self._is_full = False
        self._strangers, self._strangers_at = 0, 0.0  # clients without the token since the last line; when is the next
        self._listen()
        if starter_fd >= 0:
            self.selector.register(starter_fd, selectors.EVENT_READ, lambda: self._starter_gone(starter_fd))
        if starter_pidfd >= 0:  # children that it forked may hold copies of the pipe after its end
            self.selector.register(starter_pidfd, selectors.EVENT_READ, lambda: self._starter_gone(starter_pidfd))
        if self.service.works and (links := self.service.links.fileno()) >= 0:
            self.selector.register(links, selectors.EVENT_READ, lambda: None)  # wakes `tick`
        if self.service.tree:
            self.selector.register(self.service.tree.fileno(), selectors.EVENT_READ, lambda: None)
        if host is not None:
            values = host.describe()["values"]
            self.service.upstream = PsClient(self.service.controller, values,
                                             lambda sock, pid: self._take(sock, pid, Principal(os.geteuid())), starts_server)

    def run(self) -> None:
        self.manager.ready()
        while not (self.service.stopping and self.service.deserted()):
            due = self._due()
            timeout = max(0.0, due - time.monotonic()) if due else None
            for key, _ in self.selector.select(timeout):
                if key.fileobj in self.selector.get_map():  # not gone through an earlier event of this round
                    self._attempt(key.data)
            self._attempt(self.service.tick)
            self._attempt(self._tick)

    def _attempt(self, do: Callable[[], None]) -> None:
        """Runs ``do``; a defect of ours that was not answered as a request's must not end what others use."""
        try:
            do()
        except Exception:
            log.exception("this should not have happened; please report it. The switch process goes on")

    def _due(self) -> float | None:
        times = [at for at in (self.service.due(), self._listens_at, self.manager.due()) if at]
        times += [at for client in self.hurried for at in (client.ends_at, client.connection.stuck_until) if at]
        return min(times, default=None)

    def _tick(self) -> None:
        """Performs work that is due by time."""
        self.manager.tick()
        now = time.monotonic()
        if self._listens_at and now >= self._listens_at:
            self._listen()
        for client in [c for c in self.clients.values() if c.connection.broken or c.session.hang_up_at]:
            if client.connection.broken:
                self._drop(client, client.connection.broken)
            elif client.session.hang_up_at <= now:
                self._drop(client, "")
        for client in list(self.hurried):
            if client.ends_at and now >= client.ends_at:
                self._drop(client, "")
            elif client.connection.stuck_until and now >= client.connection.stuck_until:
                self._drop(client, f"it has not read what it was told for {UNREAD:g} s")

    def close(self) -> None:
        """Hangs up every client and closes the switch; saved jobs go on without this process."""
        self.manager.stopping()
        if self.service.tree:  # before the workers go, who would seem to have left in peace: the parent is to fail their jobs
            self.service.tree.close()
        for client in list(self.clients.values()):
            if not self.service.works or self.service.recovery.state is None:
                self._drop(client, "")
            else:
                client.connection.hang_up()
        self.selector.close()
        self.listener.close()
        if self.metrics:
            self.metrics.listener.close()
        if self._reserve >= 0:
            os.close(self._reserve)
        if self.service.upstream:
            self.service.upstream.close()
        if self.host:
            self.host.close()

    def _starter_gone(self, fd: int) -> None:
        log.info("the starter is gone; ending with the last client")
        self.selector.unregister(fd)
        self.service.stopping = True

    # ---- connections

    def _listen(self) -> None:
        self._listens_at = 0.0
        self.selector.register(self.listener, selectors.EVENT_READ, lambda: self._accept(self.listener))
        if door := self.metrics:
            self.selector.register(door.listener, selectors.EVENT_READ, lambda: self._accept(door.listener, door))

    def _accept(self, listener: socket.socket, door: MetricsDoor | None = None) -> None:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone already
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._turn_away(listener, error):
                self._log_full(f"no connections are taken for {PAUSE:g} s: {error.strerror}")
                self.selector.unregister(self.listener)
                if self.metrics:
                    self.selector.unregister(self.metrics.listener)
                self._listens_at = time.monotonic() + PAUSE
            return
        if sock.fileno() >= most_descriptors():
            self._refuse(sock, f"all {most_descriptors()} descriptors for connections are in use (ulimit -n)")
            return
        if sock.family != socket.AF_UNIX:
            liveness.watch(sock, SLOW if door else 0)
            pid, principal = 0, NOBODY
            self._make_room(door, greets=False)
        else:
            pid, uid = peer(sock)
            principal = Principal(uid)
            if self.service.access.role(principal) is not Role.OWNER and sum(
                    client.session.principal == principal for client in self.clients.values()) >= SHARE:
                self._refuse(sock, f"{principal} has {SHARE} connections, and may not have more")
                return
        self._is_full = False
        self._take(sock, pid, principal, door)

    def _make_room(self, door: MetricsDoor | None, greets: bool) -> None:
        """Drops the oldest client without a token where there are SHARE: one that has it sends its greeting at once, and its
        proof as soon as it is asked, so others do not keep it out. Those whose greeting has begun are counted apart: that costs
        both ends a computation, and who only connects is not to drop them while their proofs are on the way."""
        mute = [client for client in self.clients.values()
                if not client.trusted and client.door is door and (client.greeting is not None) == greets]
        if len(mute) >= SHARE:
            self._drop(mute[0], "")

    def _turn_away(self, listener: socket.socket, error: OSError) -> bool:
        """Accepts a connection with the reserved descriptor, and refuses it; returns False if it could not."""
        if self._reserve < 0:
            self._reserve = _reserved()
            return False
        os.close(self._reserve)
        try:
            sock, _ = listener.accept()
            self._refuse(sock, f"it cannot open another connection: {error.strerror}")
        except BlockingIOError:  # it has gone again
            return True
        except OSError:  # another process was faster
            return False
        finally:
            self._reserve = _reserved()
        return True

    def _refuse(self, sock: socket.socket, cause: str) -> None:
        self._log_full(cause)
        connection = Connection(sock, lambda _: None)
        connection.send({"event": "refused", "code": "full", "reason": f"the switch process (process {os.getpid()}) has no room: "
                         f"{cause}"}, [])
        connection.hang_up()

    def _log_full(self, cause: str) -> None:
        """Logs once that connections are refused, not for each."""
        if not self._is_full:
            event(log, logging.WARNING, "connections_refused", f"connections are refused: {cause}", reason=cause)
        self._is_full = True

    def _take(self, sock: socket.socket, pid: int, principal: Principal, door: MetricsDoor | None = None) -> Session | None:
        """Adds a connection of process ``pid``; returns None if it cannot be served."""
        pidfd = _watched(pid)
        connection = Connection(sock, self._interest)
        session = Session(pid, connection.send, principal, sock, peer=address_of_peer(sock))
        client = Client(connection, session, pidfd, sock.family == socket.AF_UNIX, door=door)
        try:
            self.selector.register(sock, selectors.EVENT_READ, lambda: self._serve(client))
            if pidfd >= 0:
                self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(client))
        except OSError as error:  # no memory for it, or too many are watched
            log.warning("a connection of process %d is refused: %s", pid, error.strerror)
            if sock in self.selector.get_map():
                self.selector.unregister(sock)
            connection.hang_up()
            if pidfd >= 0:
                os.close(pidfd)
            return None
        self.clients[connection] = client
        if not client.trusted:
            client.ends_at = time.monotonic() + GREETING
            self.hurried.add(client)
        self.service.sessions.append(client.session)
        return client.session

    def _interest(self, connection: Connection) -> None:
        """Selects for reading, or for writing while data wait for the client."""
        client = self.clients[connection]
        (self.hurried.add if connection.is_stuck or client.ends_at else self.hurried.discard)(client)
        self.selector.modify(connection.sock, selectors.EVENT_WRITE if connection.is_stuck else selectors.EVENT_READ,
                             lambda: self._serve(client))

    def _serve(self, client: Client, cause: str = "") -> None:
        """Reads or writes a connection. ``cause``: why it is dropped if it ends; default: the connection's error."""
        try:
            if client.connection.is_stuck:
                client.connection.flush()
            else:
                client.connection.read()
            self._answer(client)
        except ChannelClosed as error:
            self._drop(client, cause or str(error))
        except Exception as error:  # not handled in api.py: it would repeat for ever
            log.exception("this should not have happened; please report it")
            self._drop(client, f"the switch process has a defect: {error!r}")

    def _answer(self, client: Client) -> None:
        """Answers the requests that have arrived completely, as long as the client reads the answers. Raises ChannelClosed."""
        connection = client.connection
        if client.door:
            self._show(client, client.door)
            return
        if client.lines is None and connection.text:
            client.lines = not http.looks_like(connection.text[0])
            if not client.lines:
                client.ends_at = time.monotonic() + HTTP_PATIENCE
                if connection.sock.family != socket.AF_UNIX:
                    liveness.watch(connection.sock, SLOW)
                self.hurried.add(client)
        if not client.trusted and not self._greet(client):
            return
        if client.lines:
            while (line := connection.line()) is not None:
                self.service.hear(client.session, line)
        elif not client.answered:
            response = http.answer(self.service, client.session, bytes(connection.text), self.names)
            client.answered = response is not None
            if response is not None:
                connection.put(response, [])
        if client.answered and not connection.is_stuck:
            self._drop(client, "")

    def _show(self, client: Client, door: MetricsDoor) -> None:
        """Answers a client of the socket for Prometheus, which is never trusted: it has a time limit."""
        if not client.answered and (response := metrics_door.answer(door, self.service, client.session,
                                                                    bytes(client.connection.text))) is not None:
            client.answered = True
            client.connection.put(response, [])
        if client.answered and not client.connection.is_stuck:
            self._drop(client, "")

    def _greet(self, client: Client) -> bool:
        """Returns True if the client has the socket's token, or a pass; nothing else is parsed before that. Raises
        ChannelClosed."""
        if client.lines is None:
            return False
        if not client.lines:
            return self._check_bearer(client)
        connection = client.connection
        try:
            while not client.trusted and (line := connection.line(most=MOST)) is not None:
                if client.greeting is None:
                    greeting = Callee(self._token, line)
                    self._make_room(None, greets=True)
                    client.greeting = greeting
                    connection.put(client.greeting.answer() + b"\n", [])
                else:
                    proof, seal = client.greeting.proof(line)
                    connection.put(proof + b"\n", [])
                    connection.seal = client.session.seal = seal
                    client.session.principal = Principal(None, client.greeting.job_token)
                    client.trusted, client.ends_at = True, 0.0
                    self._interest(connection)
        except Refused as error:
            self._log_stranger(client.session.shown_address())
            connection.send({"event": "refused", "code": error.code, "reason": str(error)}, [])
            self._drop(client, "")
        return client.trusted

    def _check_bearer(self, client: Client) -> bool:
        """Returns True if a client that speaks HTTP has sent the socket's token."""
        try:
            token = http.bearer(bytes(client.connection.text))
        except ValueError:
            token = ""
        if token is None:
            return False
        client.trusted = tokens.is_same(token, self._token)
        if client.trusted:
            client.session.principal = Principal(None)
        else:
            self._log_stranger(client.session.shown_address())
            client.connection.put(http.unauthorised(), [])
            self._drop(client, "")
        return client.trusted

    def _log_stranger(self, address: str) -> None:
        """Logs a client without the token, but no more than one in STRANGERS seconds: anyone can come as often as they like."""
        self._strangers += 1
        if time.monotonic() < self._strangers_at:
            return
        event(log, logging.WARNING, "token_refused", f"a client at {address} has no token of this socket ({self._strangers} such "
              "since the last line of this kind)", address=address, count=self._strangers)
        self._strangers, self._strangers_at = 0, time.monotonic() + STRANGERS

    def _ended(self, client: Client) -> None:
        """Handles the end of a client's process, after what it had sent: it may have joined a job, whose workers wait for it."""
        cause = "its process ended"
        for _ in range(LAST_WORDS // CHUNK):
            if client.connection not in self.clients:  # all read, and dropped
                return
            self._serve(client, cause)
        self._drop(client, cause)

    def _drop(self, client: Client, cause: str) -> None:
        """Drops a connection; the other workers of its job get ``cause`` (empty: we dropped it)."""
        if self.clients.pop(client.connection, None) is None:
            return
        self.hurried.discard(client)
        self.selector.unregister(client.connection.sock)
        if client.pidfd >= 0:
            self.selector.unregister(client.pidfd)
            os.close(client.pidfd)
        client.connection.hang_up()
        self.service.gone(client.session, cause)


def _reserved() -> int:
    """Returns a descriptor; -1: there is none."""
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return -1


def most_descriptors() -> int:
    """Returns the descriptor number from which on none is for connections: half of them where there are few."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(most // 2, most - HEADROOM)


class Made(NamedTuple):
    """Switches of one process. `starts_server`: it starts the parameter server; else one is to connect."""

    host: SwitchHost
    starts_server: bool


def embedded(program: Path, defines: dict[str, str], args: argparse.Namespace) -> Made:
    """Makes one embedded switch, with ports for workers anywhere on this machine."""
    from ina.aggregation.controller.embedded import EmbeddedSwitch

    return Made(EmbeddedSwitch(program, defines), True)


def parser(name: str) -> argparse.ArgumentParser:
    """Returns the command line of a process of switches, which is module ``name``."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description="the switch process")
    parser.add_argument("--program", required=True, help="the P4 program")
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]",
                        help="preprocessor definition, such as -DVALUES=256")
    parser.add_argument("--name", help="abstract Unix socket to listen at, or, with a '/', a path")
    parser.add_argument("--listen-fd", type=whole(0, 2**31 - 1), help="descriptor that listens already, instead of --name")
    parser.add_argument("--starter-fd", type=whole(-1, 2**31 - 1), default=-1, help="pipe whose other end the starter holds")
    parser.add_argument("--starter-pid", type=whole(0, 2**31 - 1), default=0, help="process whose end counts as the starter's")
    parser.add_argument("--notices-fd", type=whole(0, 2**31 - 1), help="descriptor for notices to people while the switch is "
                        "made (default: standard error without a starter, else none)")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="serve /metrics for Prometheus there")
    parser.add_argument("--metrics-token-file", type=Path, metavar="FILE", help="file with the token that /metrics needs")
    parser.add_argument("--job-slots", type=whole(1, 8192), default=DEFAULT_SLOTS, help="slots of a job that asks for no number")
    parser.add_argument("--parent", default="", help="socket of the switch process above this one")
    parser.add_argument("--parent-token-file", type=Path, metavar="FILE", help="file with its token (default: clients')")
    parser.add_argument("--no-tags", action="store_true", help="frames of workers on other machines have no tags")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens")
    parser.add_argument("--log-level", type=whole(0, logging.CRITICAL + 1), help="level of Python's logging (default: by -v)")
    parser.add_argument("--log", choices=logs.FORMS, help="log with times, as text or as JSON (ina/base/logs.py)")
    return parser


def main(
    argv: list[str] | None = None, options: argparse.ArgumentParser | None = None,
    make: Callable[[Path, dict[str, str], argparse.Namespace], Made] = embedded,
    say: Callable[[dict[str, Any]], None] = lambda about: print(json.dumps(about), flush=True),
) -> int:
    """Runs a process of switches until its end; returns the exit status. ``options``: its command line; ``make``: makes the
    switches; ``say``: says what runs, once it does."""
    options = options or parser("ina.aggregation.controller.server")
    args = options.parse_args(argv)
    if (args.name is None) == (args.listen_fd is None):
        options.error("expected one of --name and --listen-fd")
    level = args.log_level if args.log_level is not None else logging.INFO if args.verbose else logging.WARNING
    if args.log:
        logs.begin(args.log, level)
    else:
        logging.basicConfig(stream=sys.stderr, level=level, format="ina switch: %(message)s")
    # The variables of a service that starts this process by a starter are the starter's.
    manager = ServiceManager.of() if args.starter_fd < 0 else ServiceManager()
    listener = listen(args.name) if args.name is not None else socket.socket(fileno=args.listen_fd)
    token = "" if listener.family == socket.AF_UNIX else tokens.make()
    door = metrics_door.opened(args.metrics, args.name or "", args.metrics_token_file, token) if args.metrics else None

    host: SwitchHost | None = None
    tree: ProcessTree | None = None
    failure, starts_server = "", True
    try:
        program, defines = Path(args.program), dict(d.partition("=")[::2] for d in args.defines)
        with _notices(args):
            host, starts_server = make(program, defines, args)
        tree = _tree(host, args) if args.parent else None
    except Exception as error:  # the reply to every client's request
        failure = f"the switch process cannot run {args.program}: {reason(error)}"
        log.error("%s", failure, exc_info=not isinstance(error, (BuildError, CompileError, ValueError, OSError)))
        if args.starter_fd < 0:
            listener.close()
            return 1
    server = Server(listener, host, args.starter_fd, _watched(args.starter_pid), failure, args.job_slots,
                    starts_server=starts_server, token=token, tags=not args.no_tags, manager=manager, metrics=door, tree=tree)
    if door and host:
        metrics_door.prepare(server.service)
    # A signal ends the process at once: clients see the hang-up.
    signals.raising(lambda number: SystemExit(128 + number), signal.SIGINT, signal.SIGTERM)
    if args.starter_fd >= 0:
        # A Ctrl-C at the terminal is meant for the job; this process ends with it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if host:
        event(log, logging.INFO, "ready", f"process {os.getpid()} of ina {__version__} sums for workers at {args.name}",
              name=args.name, version=__version__, process=os.getpid(), **host.describe())
        say({"pid": os.getpid(), "name": args.name, **host.describe(), **({"metrics": door.address} if door else {})})
    try:
        server.run()
    finally:
        jobs = len(server.service.controller.jobs) if host else 0
        event(log, logging.INFO, "stopping", f"process {os.getpid()} ends", jobs=jobs)
        server.close()
    return 1 if failure else 0


def _tree(host: SwitchHost, args: argparse.Namespace) -> ProcessTree:
    """Returns the place of this process below another one. Raises ControlError: that does not answer; ValueError, TokenError."""
    if why := why_not(host):
        raise ValueError(f"--parent {args.parent}: {why}")
    access = tokens.read(args.parent_token_file) if args.parent_token_file else ""
    if elsewhere(args.parent) and not access:
        access = tokens.find()
    return ProcessTree(host, args.parent, access)


def _notices(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Returns a context in which notices go where the command line says: a starter's log is no place for them."""
    if args.notices_fd is not None:
        return notices.to(args.notices_fd)
    return notices.to(-1) if args.starter_fd >= 0 else nullcontext()


def _watched(pid: int) -> int:
    """Returns a descriptor that becomes readable when process ``pid`` ends; -1: there is none. Its connection or pipe shows its
    end, too, unless children of it hold copies."""
    try:
        return os.pidfd_open(pid) if pid > 0 else -1
    except ProcessLookupError:  # it has ended
        return -1
    except OSError as error:
        log.warning("cannot watch process %d (%s); only its connection tells when it ends", pid, error.strerror)
        return -1


if __name__ == "__main__":
    sys.exit(main())
