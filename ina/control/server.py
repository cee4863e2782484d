"""The switch process: its switches, their controller, and a door for the workers.

    python -m ina.control.server --program p4/switchml.p4 -DVALUES=256 --name my-switch

It speaks JSON lines (channel.py) on an abstract Unix socket. Requests have ``op``; every request gets one reply with
``ok``, or ``ok: false`` with ``error`` (text) and ``code``:

    ping                                          -> pid, server (the parameter server's, 0: none), program, source_hash,
                                                     protocol, values, slots, free_slots
    join     job worker                           -> this connection is that worker of that job: its end will be told
    admit    job workers [slots] [strict]         -> number, incarnation, slot_base, slots   (all workers ask; the
                                                     first creates, all get the same answer, a refusal too; in a
                                                     network the answer waits until all have joined, for the tree)
    attach   job worker port                      -> the worker's configuration, and the port's descriptors
    release                                       -> this connection's worker leaves its job in peace
    serve    port                                 -> this connection is the parameter server, and is called from now on
                                                     (parameter_server.py); its port, and the port's descriptors
    counters                                      -> counters of the program, the switch's ports, the parameter server
    stop                                          -> ends when the last client is gone

Unasked, a connection may get ``event: left`` (worker) or ``event: failed`` (reason); after the latter it is hung up.

Liveness: a worker joins early and keeps its connection open. When its connection or its process ends before
``release``, the other workers of the job are told which one is lost, and are hung up after GRACE seconds (so that
results which are under way arrive). A parameter server that ends takes all jobs with it. The process ends when its
starter (the other end of ``--starter-fd``) and all clients are gone, and a parameter server that it started ends with it.
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
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Protocol

from ina.compiler.errors import CompileError
from ina.control.channel import Channel, ChannelClosed, listen, peer_pid
from ina.control.controller import AdmissionError, Controller, SwitchTarget
from ina.control.jobs import Job
from ina.control.ports import Plug
from ina.control.upstream import ServerGone, Upstream
from topologies.model import Topology

JOINING = 30.0  # seconds for all workers of a job in a network to join
GRACE = 1.0  # seconds between the news of a lost worker and the hang-up of the others
DEFAULT_SLOTS = 128
REMEMBERED = 1024  # refusals and failures by job name, so that all workers of a job get the same answer

log = logging.getLogger("ina.switch")


class SwitchHost(Protocol):
    """Running switches that workers can be plugged into (embedded.py, network.py; tests have a fake).

    ``targets``: the switches by name. ``topology``: of a network whose hosts workers are in; None: one switch, and ports are
    made for workers wherever they are.
    """

    targets: Mapping[str, SwitchTarget]
    topology: Topology | None

    def describe(self) -> dict:
        """``program``, ``source_hash``, ``protocol``, ``values`` (per packet), ``slots`` (of each switch's pool)."""

    def host_of(self, pid: int) -> str:
        """The host that process ``pid`` is in; "": there are no hosts. Raises ValueError: it is in none."""

    def open_port(self, kind: str, job: int, index: int, slots: int, pid: int) -> Plug:
        """A port for worker ``index`` of job number ``job`` with a window of ``slots``, which is process ``pid``.

        Raises ValueError for an unknown kind or place, OSError.
        """

    def close_port(self, number: int, job: int) -> None:
        """Worker of job number ``job`` at that port is gone."""

    def open_server_port(self, kind: str, pid: int) -> tuple[str, Plug]:
        """A port for the parameter server, which is process ``pid``, and the name of its switch. Raises as ``open_port``."""

    def close_server_port(self, number: int) -> None:
        """The parameter server is gone."""

    def counters(self) -> dict: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Session:
    """One connection."""

    channel: Channel
    pid: int
    pidfd: int  # -1: the process cannot be watched
    job: str = ""  # of which it is a member, "" before join
    index: int = -1  # as which worker
    host: str = ""  # in which host of a network, "" before join
    attached: bool = False
    released: bool = False
    hang_up_at: float = 0.0  # monotonic seconds, 0: no


@dataclass
class Pending:
    """A request that is answered later, at ``deadline`` (monotonic seconds) with an error."""

    session: Session
    request: dict
    deadline: float


class NotYet(Exception):
    """A request must wait; says for what."""


@dataclass
class Refusal:
    text: str
    code: str
    asked: int = 0


@dataclass
class Server:
    """Serves one listening socket until its starter and all clients are gone.

    ``failure``: why there is no switch; then every request is answered with it. ``starts_server``: it starts the parameter
    server itself, if the protocol needs one.
    """

    listener: socket.socket
    host: SwitchHost | None
    starter_fd: int = -1
    starter_pidfd: int = -1
    failure: str = ""
    job_slots: int = DEFAULT_SLOTS
    starts_server: bool = False
    sessions: list[Session] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.controller = None
        if self.host:
            about = self.host.describe()
            self.controller = Controller(self.host.targets, about["slots"], protocol=about["protocol"],
                                         topology=self.host.topology)
        self.ports: dict[str, list[int]] = {}  # open ports by job
        self.pending: list[Pending] = []
        self.refusals: OrderedDict[str, Refusal] = OrderedDict()
        self.failures: OrderedDict[str, str] = OrderedDict()
        self.stopping = False
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        if self.starter_fd >= 0:
            self.selector.register(self.starter_fd, selectors.EVENT_READ, lambda: self._starter_gone(self.starter_fd))
        if self.starter_pidfd >= 0:  # children that it forked may hold copies of the pipe after its end
            self.selector.register(self.starter_pidfd, selectors.EVENT_READ,
                                   lambda: self._starter_gone(self.starter_pidfd))
        self.upstream: Upstream | None = None
        if self.controller:
            self.upstream = Upstream(self.controller, about["values"], self._welcome, self.starts_server)

    # ---- the loop

    def run(self) -> None:
        while not self._finished():
            due = [s.hang_up_at for s in self.sessions if s.hang_up_at] + [p.deadline for p in self.pending]
            timeout = max(0.0, min(due) - time.monotonic()) if due else None
            for key, _ in self.selector.select(timeout):
                if key.fileobj in self.selector.get_map():  # not gone through an earlier event of this round
                    key.data()
            waiting, self.pending = self.pending, []
            for pending in waiting:
                if pending.session in self.sessions:
                    self._answer(pending.session, pending.request, pending.deadline)
            now = time.monotonic()
            for session in [s for s in self.sessions if s.hang_up_at and s.hang_up_at <= now]:
                self._drop(session, "")

    def stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        """Hang up every client and take the switch down."""
        for session in list(self.sessions):
            self._drop(session, "")
        self.selector.close()
        self.listener.close()
        if self.upstream:
            self.upstream.close()
        if self.host:
            self.host.close()

    def _finished(self) -> bool:
        return self.stopping and all(self.upstream and session is self.upstream.session for session in self.sessions)

    def _starter_gone(self, fd: int) -> None:
        log.info("the starter is gone; ending with the last client")
        self.selector.unregister(fd)
        self.stopping = True

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
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
        session = Session(Channel(sock), pid, pidfd)
        self.sessions.append(session)
        self.selector.register(sock, selectors.EVENT_READ, lambda: self._serve(session))
        if pidfd >= 0:
            self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._drop(session, "its process ended"))
        return session

    def _serve(self, session: Session) -> None:
        try:
            while True:
                request, fds = session.channel.receive(None, "a request")
                for fd in fds:
                    os.close(fd)
                self._answer(session, request)
                if not session.channel.buffered():
                    return
        except TimeoutError:  # half a line: the rest will come
            return
        except ValueError as error:
            self._drop(session, f"it sent something that is not a request: {error}")
        except ChannelClosed:
            self._drop(session, "its connection closed")

    def _answer(self, session: Session, request: dict, deadline: float = 0.0) -> None:
        fds: list[int] = []
        asked = dict(request)
        operations = {"ping": self._ping, "join": self._join, "admit": self._admit, "attach": self._attach,
                      "release": self._release, "serve": self._serve_jobs, "counters": self._counters, "stop": self._stop}
        op = request.pop("op", None)
        try:
            if self.failure and op != "stop":
                raise AdmissionError("failed", self.failure)
            if op not in operations:
                raise AdmissionError("invalid", f"unknown operation {op!r}; expected one of {', '.join(operations)}")
            reply = {"ok": True, **operations[op](session, fds, **request)}
        except NotYet as error:
            deadline = deadline or time.monotonic() + JOINING
            if time.monotonic() < deadline:
                self.pending.append(Pending(session, asked, deadline))
                return
            reply = {"ok": False, "code": "timeout", "error": f"{op}: waited {JOINING:g} s for {error}"}
        except AdmissionError as error:
            reply = {"ok": False, "code": error.code, "error": str(error)}
        except (TypeError, ValueError, OSError) as error:
            reply = {"ok": False, "code": "invalid", "error": f"{op}: {error}"}
        try:
            session.channel.send(reply, fds)
        except ChannelClosed as error:
            if not deadline:
                raise
            self._drop(session, f"its connection closed: {error}")
        finally:
            for fd in fds:
                os.close(fd)

    # ---- operations

    def _ping(self, session: Session, fds: list[int]) -> dict:
        return {"pid": os.getpid(), "server": self.upstream.pid if self.upstream.ready else 0,
                "free_slots": self.controller.free_slots(), **self.host.describe()}

    def _join(self, session: Session, fds: list[int], job: str, worker: int) -> dict:
        if job in self.failures:
            raise AdmissionError("failed", self.failures[job])
        if (session.job, session.index) not in (("", -1), (job, worker)):
            raise AdmissionError("duplicate", f"this connection is worker {session.index} of job {session.job!r} "
                                              "already; open another one")
        for other in self.sessions:
            if other is not session and (other.job, other.index) == (job, worker):
                raise AdmissionError("duplicate", f"processes {other.pid} and {session.pid} both say that they are "
                                                  f"worker {worker} of job {job!r}; ranks must differ")
        host = self.host.host_of(session.pid)
        for other in self._others(session, job):
            if host and other.host == host:
                raise AdmissionError("duplicate", f"{host} has a worker of this job already ({other.index}): each worker of a "
                                                  "job needs a host of its own")
        session.job, session.index, session.host = job, worker, host
        return {}

    def _admit(self, session: Session, fds: list[int], job: str, workers: int, slots: int | None = None,
               strict: bool = True) -> dict:
        slots = slots or self.job_slots
        if job in self.failures:
            raise AdmissionError("failed", self.failures[job])
        if refusal := self.refusals.get(job):
            refusal.asked += 1
            if refusal.asked >= workers:
                del self.refusals[job]
            raise AdmissionError(refusal.code, refusal.text)
        admitted = self.controller.jobs.get(job)
        if admitted is None and self.upstream.expected():
            self.upstream.start()
            raise NotYet("the parameter server to start")
        if admitted is None:
            hosts = self._hosts(session, job, workers) if self.host.topology and strict else ()
            try:
                tree = self.controller.place(job, hosts, slots)[0] if hosts else None
                admitted = self._new_job(self.controller.admit(job, workers, slots, strict, tree, hosts))
            except AdmissionError as error:
                if workers > 1:
                    _remember(self.refusals, job, Refusal(str(error), error.code, asked=1))
                raise
            log.info("job %s: number %d, incarnation %d, %d workers, slots %d..%d", job, admitted.number,
                     admitted.incarnation, workers, admitted.slot_base, admitted.slot_base + slots - 1)
        elif (admitted.workers, admitted.slots, admitted.strict) != (workers, slots, strict):
            raise AdmissionError("mismatch", f"job {job!r} was admitted with {admitted.workers} workers, "
                                             f"{admitted.slots} slots, strict={admitted.strict}; this worker asks for "
                                             f"{workers} workers, {slots} slots, strict={strict}")
        return {"number": admitted.number, "incarnation": admitted.incarnation, "slot_base": admitted.slot_base,
                "slots": admitted.slots, "workers": admitted.workers}

    def _new_job(self, job: Job) -> Job:
        """Tells the parameter server of an admitted job. Raises AdmissionError; then it is released again."""
        try:
            self.upstream.add(job)
        except ServerGone as error:
            self.controller.release(job.name)
            raise AdmissionError("failed", str(error)) from error
        return job

    def _hosts(self, session: Session, job: str, workers: int) -> tuple[str, ...]:
        """Of the job's workers in a network, in order. Raises NotYet, until all have joined."""
        if session.job != job:
            raise AdmissionError("invalid", f"job {job!r}: in a network its workers join before they are admitted, for its tree "
                                            "is to reach their hosts")
        joined = {s.index: s.host for s in self.sessions if s.job == job and not s.released}
        if missing := [index for index in range(workers) if index not in joined]:
            raise NotYet(f"workers {', '.join(map(str, missing))} of job {job!r} to join")
        return tuple(joined[index] for index in range(workers))

    def _attach(self, session: Session, fds: list[int], job: str, worker: int, port: str = "shm") -> dict:
        self._join(session, fds, job, worker)
        admitted = self.controller.jobs.get(job)
        if admitted is None:
            raise AdmissionError("unknown", f"there is no job {job!r}; it was never admitted, or is over")
        plug = self.host.open_port(port, admitted.number, worker, admitted.slots, session.pid)
        fds += plug.fds
        try:
            self.controller.attach(admitted, worker, plug.number, plug.address)
        except AdmissionError:
            self.host.close_port(plug.number, admitted.number)
            raise
        session.attached = True
        about = self.host.describe()
        self.ports.setdefault(job, []).append(plug.number)
        log.info("job %s: worker %d is process %d at port %d (%s)", job, worker, session.pid, plug.number, port)
        return {"port": plug.offer, "worker": worker, "workers": admitted.workers, "number": admitted.number,
                "incarnation": admitted.incarnation, "slots": admitted.slots, "values": about["values"],
                "protocol": about["protocol"], "address": astuple(plug.address), "switch": astuple(plug.switch)}

    def _release(self, session: Session, fds: list[int]) -> dict:
        if not session.job:
            raise AdmissionError("unknown", "this connection has joined no job")
        session.released = True
        for other in self._others(session):
            self._tell(other, {"event": "left", "worker": session.index, "pid": session.pid})
        self._leave(session)
        return {}

    def _serve_jobs(self, session: Session, fds: list[int], port: str = "shm") -> dict:
        if session.job:
            raise AdmissionError("invalid", f"this connection is worker {session.index} of job {session.job!r}")
        reply, offered = self.upstream.serve(session, session.channel, session.pid,
                                             lambda: self.host.open_server_port(port, session.pid))
        fds += offered
        return reply

    def _counters(self, session: Session, fds: list[int]) -> dict:
        try:
            return {**self.host.counters(), **self.upstream.counters()}
        except ServerGone as error:
            raise AdmissionError("failed", str(error)) from error

    def _stop(self, session: Session, fds: list[int]) -> dict:
        self.stopping = True
        return {}

    # ---- ends

    def _drop(self, session: Session, why: str) -> None:
        """The connection is over; ``why`` (empty: by us) is told to the other workers of its job."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        self.selector.unregister(session.channel)
        if session.pidfd >= 0:
            self.selector.unregister(session.pidfd)
            os.close(session.pidfd)
        session.channel.hang_up()
        session.channel.close()
        if self.upstream and session is self.upstream.session:
            self._server_lost(session, why)
        if not session.job or session.released:
            return
        if why:
            reason = f"worker {session.index} of job {session.job!r} (process {session.pid}) is lost: {why}"
            log.warning("%s", reason)
            _remember(self.failures, session.job, reason)
            for other in self._others(session):
                self._tell(other, {"event": "failed", "reason": reason})
                other.hang_up_at = other.hang_up_at or time.monotonic() + GRACE
        self._leave(session)

    def _server_lost(self, session: Session, why: str) -> None:
        """Every job that the parameter server served is over."""
        if self.upstream.ready:
            self.host.close_server_port(self.upstream.number)
        self.upstream.lost()
        if not why:
            return
        reason = f"the parameter server (process {session.pid}) is lost: {why}"
        log.warning("%s", reason)
        for other in self.sessions:
            if other.job in self.controller.jobs and not other.released:
                _remember(self.failures, other.job, reason)
                self._tell(other, {"event": "failed", "reason": reason})
                other.hang_up_at = other.hang_up_at or time.monotonic() + GRACE

    def _others(self, session: Session, job: str = "") -> list[Session]:
        """The other workers of its job (or of ``job``) that have not left."""
        return [s for s in self.sessions if s is not session and s.job == (job or session.job) and not s.released]

    def _tell(self, session: Session, event: dict) -> None:
        try:
            session.channel.send(event)
        except ChannelClosed as error:
            log.info("worker %d of job %s does not hear: %s", session.index, session.job, error)

    def _leave(self, session: Session) -> None:
        """The last worker that leaves a job releases it; until then ports stay, results may be under way."""
        if self._others(session) or session.job not in self.controller.jobs:
            return
        job = self.controller.jobs[session.job].number
        self.controller.release(session.job)
        self.upstream.remove(job)
        for number in self.ports.pop(session.job, []):
            self.host.close_port(number, job)
        log.info("job %s is over", session.job)


def _remember(memory: OrderedDict, job: str, what: object) -> None:
    memory[job] = what
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


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
        log.error("%s", failure, exc_info=not isinstance(error, (CompileError, OSError)))
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
