"""Operations of the controller's process, for both of its protocols (server.py, http.py).

    ping                                          -> pid, server (the parameter server's, 0: none), program, source_hash,
                                                     protocol, values, slots, free_slots, version (of ina), wire, process (what
                                                     it uses of the machine: ina/base/own_process.py)
    join     job worker [paths] [child] [above]   -> this connection is that worker of that job: its end is reported; in a tree of
                                                     switch processes (process_tree.py) perhaps one below, with its workers
    report   [left] [failed] [lost]               -> news of workers below, of a switch process that has joined
    admit    job workers [slots] [strict] [hosts] -> number, incarnation, life, slot_base, slots (all workers ask; the first
                                                     creates, all get the same answer, also a refusal)
    attach   job worker port [protocol] [values]  -> the worker's configuration, and the port's descriptors; whether the job is
             [moves] [held] [runs] [tags]            moved when a switch fails (its workers must support that); ``held``: the
                                                     incarnation of a worker that comes back to a restarted controller;
                                                     ``runs``: it runs the job's switch itself, where it may
                                                     (shared_switches.py); the first worker decides for the job
    release                                       -> this connection's worker leaves its job without failing it
    end      job                                  -> the job is over: its workers get the event of a lost worker
    serve    port [host]                          -> this connection is the parameter server, and takes calls from now on
                                                     (ps_process.py); its port, and the port's descriptors
    jobs, switches, counters                      -> their state and counters
    topology                                      -> the network of the switches
    links    events                               -> links of a testbed fail, heal, become slow (ina/topology/link_events.py)
    stop                                          -> ends when the last client is gone

access.py defines permissions. A job belongs to the holders of its ``token``: its first request has it, and later ones must have
the same. Holders of a pass (ina/base/tokens.py) have the job with its token, and no other. A job without a token is its user's.
When a job has failed, its name can be used again with another token.

In a network a job's tree is placed once all workers have joined, as only then their hosts are known; requests for admission
wait for that, up to JOINING seconds. Joining never waits, so members may take their jobs in any order without a dead-lock.

A request (messages.py) takes effect as a whole or not at all: resources are freed when a later step fails. A job that was
admitted and that nobody has joined is its requester's: it is over with that connection, or after LEASE seconds.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

from ina import __version__
from ina.aggregation import completion, port_kinds, protocols
from ina.aggregation.control_socket import messages
from ina.aggregation.control_socket.channel import Channel
from ina.aggregation.control_socket.greeting import Seal, hidden
from ina.aggregation.control_socket.messages import Malformed, Request, decode, parse
from ina.aggregation.controller.access import Access, Principal, Role, Rule, check_owner
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.failures import Recovery, has_failed
from ina.aggregation.controller.job_records import Job, NotYet
from ina.aggregation.controller.link_recovery import LinkRecovery
from ina.aggregation.controller.memory import Memory
from ina.aggregation.controller.port_requests import check_reach, tag_salt
from ina.aggregation.controller.process_tree import ProcessTree
from ina.aggregation.controller.ps_client import PsClient, ServerGone
from ina.aggregation.controller.shared_switches import SharedSwitches
from ina.aggregation.controller.state import StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.port_kinds import shm
from ina.aggregation.worker.addresses import taken
from ina.base import own_process, tokens
from ina.base.logs import event
from ina.base.native import lib

JOINING = 30.0  # seconds for all workers of a job in a network to join
GRACE = 1.0  # seconds between the news of a lost worker and the hang-up of the others
DEFAULT_SLOTS = 128
LEASE = 60.0  # seconds for a first worker to join an admitted job
UNJOINED = 16  # such jobs of one user at a time
JOBS = 64  # of a user other than the switch's owner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """Reason why a job is over, which late workers get ``until`` then (monotonic seconds). ``switches``: those of its tree."""

    reason: str
    until: float
    switches: frozenset[str]


@dataclass(eq=False)
class Session:
    """One connection. ``send``: sends a message with descriptors, and handles errors itself. ``sock``: its socket, if any.
    ``seal``: its keys, over TCP."""

    pid: int
    send: Callable[[dict[str, Any], list[int]], None]
    principal: Principal
    sock: socket.socket | None = None
    seal: Seal | None = None
    job: str = ""  # the job that it joined, "" before
    index: int = -1  # the worker's number
    host: str = ""  # the worker's host, in a network
    below: tuple[int, ...] = ()  # workers that this connection stands for: of a switch process several
    child: str = ""  # id of the switch process below that it is
    looks_on: bool = False  # of a switch process below, for no job
    attached: bool = False
    moves: bool = False  # it goes on when its job is moved
    released: bool = False
    refused: bool = False  # its job was not admitted
    hang_up_at: float = 0.0  # monotonic seconds, 0: no
    peer: str = ""  # IP address and port of a client on another machine, or of this one by TCP

    def __str__(self) -> str:
        """Returns how people find the client: its process, or the other end of its TCP connection."""
        return f"the process at {self.peer}" if self.peer else f"process {self.pid}"

    def control(self) -> port_kinds.Control:
        """Returns the IP addresses of the connection's ends. Raises OSError: it has been hung up."""
        if self.sock is None or self.sock.family == socket.AF_UNIX:
            return port_kinds.LOCAL
        return port_kinds.Control(_unmapped(self.sock.getsockname()[0]), _unmapped(self.sock.getpeername()[0]))

    def shown_address(self) -> str:
        """Returns the client's IP address for a log; "": it is a process of this machine, or gone, and the kernel knows it no
        more."""
        with suppress(OSError):
            return self.control().worker
        return ""


@dataclass
class Pending:
    """A request that waits, until ``deadline`` (monotonic seconds)."""

    session: Session
    request: Request
    deadline: float


@dataclass
class Lease:
    """A job that nobody has joined: the connection that requested it, and how long it stays (monotonic seconds)."""

    session: Session
    until: float


@dataclass
class Refusal:
    """Refusal of a job, which its other workers get ``until`` then (monotonic seconds)."""

    text: str
    code: str
    until: float
    count: int = 0  # workers that got it


class Operations:
    """``failure``: why there is no switch; then it is the reply to every request. ``state``: file of jobs, for switches that
    outlive this process. ``access``: users who may have jobs; default: this process's user, and root. ``tags``: frames of workers
    on other machines have tags, where the switches can check them. ``tree``: its place among other switch processes; default: the
    root of those that name it as their parent. Raises StateError for a state that is of other switches.

    ``host``, ``controller``, ``recovery`` and ``links`` exist if ``works`` is true: without them every request but a stop is
    refused.
    """

    host: SwitchHost
    controller: Controller
    recovery: Recovery
    links: LinkRecovery

    def __init__(self, host: SwitchHost | None, failure: str = "", job_slots: int = DEFAULT_SLOTS,
                 state: StateFile | None = None, access: Access | None = None, tags: bool = True,
                 tree: ProcessTree | None = None):
        self.tags = tags and getattr(host, "tags", False)
        self.works, self.failure, self.job_slots = host is not None, failure, job_slots
        self.access = access or Access(os.geteuid())
        self.stopping = False
        self.sessions: list[Session] = []
        self.upstream: PsClient | None = None  # the parameter server
        if host is not None:
            self.host, config = host, host.describe()
            self.controller = Controller(host.targets, config["slots"], protocol=getattr(host, "job_program", config["protocol"]),
                                         topology=host.topology, seats=host.seats)
        self.tree = tree or (ProcessTree(host) if host is not None and getattr(host, "in_trees", False) else None)
        if self.tree:
            self.tree.service = self
        self.ports: dict[str, list[int]] = {}  # open ports by job
        self.tokens: dict[str, str] = {}
        self.principals: dict[str, Principal] = {}  # by job: principal of its first request
        self.shared: SharedSwitches | None = getattr(host, "shared", None)
        self.run_by_workers: dict[str, bool] = {}  # by job with attached workers: they run its switch
        self.left: dict[str, set[int]] = {}  # by job: workers that have left without failing it
        # By job and token, so that all workers of a job get the same answer:
        self.refusals: Memory[tuple[str, str], Refusal] = Memory()
        self.failures: Memory[tuple[str, str], Failure] = Memory()
        self.passes: Memory[str, str] = Memory()  # jobs by the token in passes: also those that are over
        self.pending: list[Pending] = []
        self.leases: dict[str, Lease] = {}  # by job
        self.operations: dict[type, Callable[[Session, list[int], Any], dict[str, Any]]] = {
            messages.Ping: self.ping, messages.Join: self.join, messages.Admit: self.admit, messages.Attach: self.attach,
            messages.Report: self.report,
            messages.Release: self.release, messages.End: self.end, messages.Serve: self.serve, messages.Jobs: self.jobs,
            messages.Switches: self.switches, messages.Counters: self.counters, messages.Topology: self.topology,
            messages.Links: self.change_links,
            messages.Stop: self.stop,
        }
        if self.works:
            self.recovery = Recovery(self, state)
            self.links = LinkRecovery(self, self.recovery.move)
            self.recovery.begin()

    # ---- answers

    def hear(self, session: Session, line: bytes) -> None:
        """Answers the request in one line."""
        try:
            message = decode(line)
        except Malformed as error:
            session.send(_refusal("invalid", str(error)), [])
            return
        self.answer(session, message)

    def answer(self, session: Session, message: dict[str, Any]) -> None:
        """Performs the request ``message``, and replies to ``session`` at once or later."""
        try:
            request = parse(message)
            if any(pending.session is session for pending in self.pending):
                raise Malformed(f"{_name(request)}: an earlier request of this connection still waits for its answer")
        except Malformed as error:
            session.send(_refusal("invalid", str(error)), [])
            return
        self._answer(session, request, time.monotonic() + JOINING)

    def _answer(self, session: Session, request: Request, deadline: float) -> None:
        fds: list[int] = []
        try:
            session.send({"ok": True, **self.call(session, fds, request)}, fds)
        except NotYet as error:
            if time.monotonic() < deadline:
                self.pending.append(Pending(session, request, deadline))
            else:
                session.send(_refusal("timeout", f"{_name(request)}: waited {JOINING:g} s for {error}"), [])
        except Exception as error:
            code, text = explain(error, _name(request))
            about = {"job": request.job} if isinstance(request, messages.OfJob) else {}
            event(log, logging.INFO, "request_refused", f"refused ({code}): {text}", op=_name(request), code=code, reason=text,
                  address=session.shown_address(), **about)
            session.send(_refusal(code, text), [])
            if code == "internal":  # its effects are unknown: the connection and its job end, and nothing else
                if session.job and not session.released:
                    self.fail(session.job, f"a request of worker {session.index} of job {session.job!r} failed: {text}")
                session.hang_up_at = time.monotonic()
        finally:
            for fd in fds:
                os.close(fd)

    def retry(self) -> None:
        """Tries pending requests again, after a client has come or time has passed."""
        earlier, self.pending = self.pending, []
        for pending in earlier:
            if pending.session in self.sessions:
                self._answer(pending.session, pending.request, pending.deadline)

    def tick(self) -> None:
        """Performs due work, after a client has come or gone or time has passed."""
        if self.tree:
            self.tree.tick()
        self.retry()
        now = time.monotonic()
        for job, lease in list(self.leases.items()):
            if lease.until <= now:
                event(log, logging.WARNING, "job_unjoined", f"nobody has joined job {job} for {LEASE:g} s: it is over", job=job)
                self.over(job)
        if self.works:
            self.links.tick()
            self.recovery.tick()

    def due(self) -> float | None:
        """Returns when there is work without a request (monotonic seconds); None: never."""
        times = [p.deadline for p in self.pending] + [s.hang_up_at for s in self.sessions if s.hang_up_at]
        times += [lease.until for lease in self.leases.values()]
        for part in (self.recovery, self.links, *([self.tree] if self.tree else ())) if self.works else ():
            times += [due] if (due := part.due()) is not None else []
        return min(times, default=None)

    def call(self, session: Session, fds: list[int], request: Request) -> dict[str, Any]:
        """Returns the reply. Raises AdmissionError, NotYet, OSError (the system refuses), ValueError: invalid here."""
        if self.failure and not isinstance(request, messages.Stop):
            raise AdmissionError("failed", self.failure)
        if isinstance(request, (messages.OfJob, messages.Serve)) and not self.controller.program.max_jobs:
            raise AdmissionError("denied", f"the switches here run {self.host.describe()['program']}, a program alone: they "
                                           "serve no jobs (docs/guide/testbed.md)")
        rule = self.access.check(session.principal, request)
        if rule.of_job:
            assert isinstance(request, messages.OfJob)
            self._check_owner(session.principal, rule, request.job, request.token)
        return self.operations[type(request)](session, fds, request)

    def _check_owner(self, principal: Principal, rule: Rule, job: str, token: str) -> None:
        """Raises AdmissionError: the job is another's, or has failed."""
        if principal.job_token:
            self._check_pass(principal.job_token, job, token)
        if failure := self.failures.get((job, token)):
            if failure.until > time.monotonic():
                raise AdmissionError("failed", failure.reason)
            self.failures.forget((job, token))
        by_switch = rule.or_switch and not token and self.access.role(principal) is Role.OWNER
        if (owner := self._owner(job)) is not None and not by_switch:
            check_owner(job, owner, self.tokens.get(job, ""), principal, token)

    def _check_pass(self, job_token: str, job: str, token: str) -> None:
        """Raises AdmissionError: the pass does not cover the request's token, or that is of another job: the first that it was
        used for."""
        if not tokens.covers(job_token, token):
            raise AdmissionError("token", f"job {job!r}: this connection's pass is of a job with another token")
        own = self.passes.get(token) or next((name for name, each in self.tokens.items() if each == token), job)
        if own != job:
            raise AdmissionError("denied", f"job {job!r}: this connection's pass is of job {own!r}")

    def _owner(self, job: str) -> Principal | None:
        """Returns a job's owner; None: there is no such job. A job without a known request is the switch's."""
        admitted = self.works and job in self.controller.jobs
        return self.principals.get(job) or (Principal(self.access.owner) if admitted else None)

    # ---- about the switches

    def ping(self, session: Session, fds: list[int], request: messages.Ping) -> dict[str, Any]:
        session.looks_on = bool(request.child)
        server = self.upstream.pid if self.upstream and self.upstream.ready else 0
        return {"pid": os.getpid(), "server": server, "free_slots": self.controller.free_slots(),
                "wire": lib.INA_WIRE_VERSION, "version": __version__, "process": own_process.used(), **self.host.describe(),
                **(self.tree.about() if self.tree else {})}

    def jobs(self, session: Session, fds: list[int], request: messages.Jobs) -> dict[str, Any]:
        """``jobs``: by name, each job's resources at its switches, and its connected workers."""
        return {"jobs": {name: self._job(job) for name, job in self.controller.jobs.items()}}

    def _job(self, job: Job) -> dict[str, Any]:
        processes = {s.index: s.pid for s in self.members(job.name)}
        return {
            "number": job.number, "incarnation": job.incarnation, "life": job.life, "workers": job.workers, "slots": job.slots,
            "strict": job.strict, "check": job.check, "open": not self.tokens.get(job.name), "owner": str(self._owner(job.name)),
            "root": job.root.switch, "run_by": "workers" if self.run_by_workers.get(job.name) else "process",
            "tree": {"parent": job.tree.parent, "links": list(job.tree.links)} if job.tree else None,
            "switches": {b.switch: {"slot_base": b.slot_base, "children": list(b.seats)} for b in job.branches.values()},
            "members": {i: {"pid": processes.get(i), "host": job.hosts[i] if job.hosts else None, "port": child.port,
                            "ip": child.address.ip} for i, child in job.attached.items()},
            **(self.tree.shown(job.name) if self.tree else {}),
        }

    def switches(self, session: Session, fds: list[int], request: messages.Switches) -> dict[str, Any]:
        """``switches``: by name, its pool and jobs; ``links``: incidents of links (link_recovery.py), the last one last;
        ``silent``: workers from which nothing comes while others of their job send."""
        controller = self.controller
        return {"switches": {name: {
            "slots": controller.slots[name], "free_slots": controller.free_slots(name),
            "state": controller.down.get(name) or ("unsure" if name in controller.unsure else "up"),
            "jobs": [job.name for job in controller.jobs.values() if name in job.branches]} for name in controller.targets},
            "links": self.links.shown(), "silent": self.links.silent(), **self.host.describe()}

    def counters(self, session: Session, fds: list[int], request: messages.Counters) -> dict[str, Any]:
        try:
            return {**self.host.counters(), **(self.upstream.counters() if self.upstream else {})}
        except ServerGone as error:
            raise AdmissionError("failed", str(error)) from error

    def topology(self, session: Session, fds: list[int], request: messages.Topology) -> dict[str, Any]:
        """``topology``: its ``name``, ``nodes`` (name, and the node that this one is like, or "") and ``links`` (both ends, rate
        in bit/s, 0: no limit, and whether it is simplex); None: the switches are in no network that this process knows."""
        topology = self.controller.topology
        if topology is None:
            return {"topology": None}
        return {"topology": {"name": topology.name, "nodes": [[node.name, node.like] for node in topology.nodes],
                             "links": [[link.a, link.b, link.rate, link.simplex] for link in topology.links]}}

    def change_links(self, session: Session, fds: list[int], request: messages.Links) -> dict[str, Any]:
        self.links.plan(request.events)
        return {}

    def stop(self, session: Session, fds: list[int], request: messages.Stop) -> dict[str, Any]:
        self.stopping = True
        return {}

    # ---- members

    def join(self, session: Session, fds: list[int], request: messages.Join) -> dict[str, Any]:
        own, wire = lib.INA_WIRE_VERSION, request.wire  # the programs' is ours: others are refused when they are loaded
        if wire != own and len(protocols.checks(self.host.describe()["protocol"])) > 1:
            older = "the worker's machine" if wire < own else "the switch's machine, and load its program anew"
            raise AdmissionError("version", f"worker {request.worker} of job {request.job!r} speaks wire version {wire}, the "
                                            f"switch's program {own}: upgrade ina on {older}")
        host = self._seat(session, request, request.host)
        if self.tree is None and request.paths:
            raise AdmissionError("invalid", f"job {request.job!r}: switch processes above or below this one, but it runs "
                                            f"{self.host.describe()['program']} on switches that are in no tree of processes")
        session.below, session.child = self.tree.join(request) if self.tree else (request.worker,), request.child
        self._enter(session, request, host)
        return {}

    def _seat(self, session: Session, request: messages.Join | messages.Attach, host: str) -> str:
        """Returns the host of the worker, if it may be that worker. Changes nothing. Raises AdmissionError, ValueError."""
        job, worker = request.job, request.worker
        if session.released:
            raise AdmissionError("duplicate", f"this connection was worker {session.index} of job {session.job!r}, and has left "
                                              "it; open another one")
        if (session.job, session.index) not in (("", -1), (job, worker)):
            raise AdmissionError("duplicate", f"this connection is worker {session.index} of job {session.job!r} "
                                              "already; open another one")
        for other in self.sessions:
            if other is not session and (other.job, other.index) == (job, worker):
                raise AdmissionError("duplicate", f"{other} and {session} both say that they are worker "
                                                  f"{worker} of job {job!r}; ranks must differ")
        host = session.host or self.host.host_of(session.pid, host)
        others = {other.index: other.host for other in self.members(job) if other is not session}
        if reason := taken(host, others):
            raise AdmissionError("duplicate", reason)
        return host

    def _enter(self, session: Session, request: messages.Join | messages.Attach, host: str) -> None:
        self._own(session, request.job, request.token)
        self.leases.pop(request.job, None)
        session.job, session.index, session.host = request.job, request.worker, host

    def admit(self, session: Session, fds: list[int], request: messages.Admit) -> dict[str, Any]:
        job, workers, strict = request.job, request.workers, request.strict
        slots = request.slots or self.job_slots
        if (refusal := self.refusals.get((job, request.token))) and refusal.until > time.monotonic():
            session.refused = True
            refusal.count += 1
            if refusal.count >= workers:
                self.refusals.forget((job, request.token))
            raise AdmissionError(refusal.code, refusal.text)
        admitted = self.controller.jobs.get(job)
        if admitted is None and (quiet := self.recovery.quiet_until - time.monotonic()) > 0:
            raise NotYet(f"packets of earlier jobs to die out: {quiet:.1f} s of {self.host.packet_lifetime:g} s are left")
        if admitted is None and self.upstream and self.upstream.failure:
            raise AdmissionError("failed", self.upstream.failure)
        if admitted is None and self.upstream and self.upstream.expected():
            self.upstream.start()
            raise NotYet("the parameter server to start")
        if admitted is None:
            self._check_share(session.principal, job)
            at = tuple(request.hosts or self._hosts(job, workers)) if strict and self.controller.topology else ()
            try:
                admitted = self._new_job(session, request, slots, at)
            except AdmissionError as error:
                session.refused = True
                if workers > 1:
                    refusal = Refusal(str(error), error.code, _until(request.token), count=1)
                    self.refusals.remember((job, request.token), refusal, session.principal)
                raise
            if not any(True for _ in self.members(job)):
                self.leases[job] = Lease(session, time.monotonic() + LEASE)
            event(log, logging.INFO, "job_admitted", f"job {job}: number {admitted.number}, life {admitted.life}, incarnation "
                  f"{admitted.incarnation}, {workers} workers, {slots} slots at {', '.join(admitted.branches)}", job=job,
                  number=admitted.number, workers=workers, slots=slots, switches=list(admitted.branches))
        elif (admitted.workers, admitted.strict) != (workers, strict) or (
                admitted.slots != slots and (request.slots or not admitted.root.parent)):  # a parent has its own default
            raise AdmissionError("mismatch", f"job {job!r} was admitted with {admitted.workers} workers, "
                                             f"{admitted.slots} slots, strict={admitted.strict}; this worker asks for "
                                             f"{workers} workers, {slots} slots, strict={strict}")
        elif request.check and request.check != admitted.check:
            raise AdmissionError("mismatch", f"job {job!r} was admitted with check={admitted.check!r}; this worker asks for "
                                             f"{request.check!r}: set the same for all workers, or none")
        return {"number": admitted.number, "incarnation": admitted.incarnation, "life": admitted.life,
                "slot_base": admitted.slot_base, "slots": admitted.slots, "workers": admitted.workers, "check": admitted.check}

    def _check_share(self, principal: Principal, job: str) -> None:
        """Keeps room for other users: one may not have all jobs, and only few that nobody has joined."""
        of_user = [name for name in self.controller.jobs if self.principals.get(name) == principal]
        if len(of_user) >= JOBS and self.access.role(principal) is not Role.OWNER:
            raise AdmissionError("full", f"job {job!r}: {principal} has {JOBS} jobs already; end one")
        if not any(True for _ in self.members(job)) and len(self.leases.keys() & of_user) >= UNJOINED:
            raise AdmissionError("full", f"job {job!r}: {UNJOINED} jobs have been admitted that nobody has joined; join one, or "
                                         f"wait: each is over after {LEASE:g} s")

    def _new_job(self, session: Session, request: messages.Admit, slots: int, at: tuple[str, ...]) -> Job:
        """Admits a job, adds it to the parameter server and saves it; or does none of these. Raises AdmissionError, OSError."""
        name = request.job
        job = self._admitted(request, slots, at)
        is_joined, is_served = name in self.principals, False
        self._own(session, name, request.token)
        try:
            if self.upstream:
                self.upstream.add(job)
                is_served = True
            self.recovery.save()
        except BaseException as error:
            if not is_joined:
                self._disown(name)
            if self.upstream and is_served:
                self.upstream.remove(job.number)
            self.controller.release(name)
            if isinstance(error, ServerGone):
                raise AdmissionError("failed", str(error)) from error
            raise
        return job

    def _admitted(self, request: messages.Admit, slots: int, at: tuple[str, ...]) -> Job:
        """Has a job admitted, where it is in a tree of processes by the one above first. Raises AdmissionError, NotYet."""
        name, part = request.job, self.tree.part(request) if self.tree else None
        if part is None or part.above is None:
            tree = self.controller.place(name, at, slots)[0] if at else None
            return self.controller.admit(name, request.workers, slots, request.strict, tree, at, request.check, part=part)
        try:
            return self.controller.admit(name, request.workers, part.above.slots, check=part.above.check, rule=part.above.rule,
                                         part=part)
        except AdmissionError as error:  # others have been admitted: nobody may do without the switch now
            self.fail(name, f"the switch process {os.getpid()} of workers {', '.join(map(str, part.share.workers))}: {error}")
            raise AdmissionError("failed", str(error)) from error

    def _own(self, session: Session, job: str, token: str) -> None:
        """Makes the session's principal the owner, unless the job has one."""
        if job not in self.principals:
            self.principals[job], self.tokens[job] = session.principal, token
        if session.principal.job_token:
            self.passes.remember(token, job, session.principal)

    def _disown(self, job: str) -> None:
        self.principals.pop(job, None)
        self.tokens.pop(job, None)

    def _hosts(self, job: str, workers: int) -> tuple[str, ...]:
        """Returns the hosts of the job's workers in a network, in order. Raises NotYet, until all have joined."""
        joined = {s.index: s.host for s in self.members(job)}
        if not joined:
            raise AdmissionError("invalid", f"job {job!r}: in a network its workers join before they are admitted, for its tree "
                                            "is to reach their hosts; or say hosts")
        if missing := completion.named(completion.DEFAULT).awaited(workers, joined):
            raise NotYet(f"workers {', '.join(map(str, missing))} of job {job!r} to join")
        return tuple(joined[index] for index in range(workers))

    def attach(self, session: Session, fds: list[int], request: messages.Attach) -> dict[str, Any]:
        job, worker = request.job, request.worker
        host = self._seat(session, request, "")
        admitted = self.controller.jobs.get(job)
        if admitted is None:
            raise AdmissionError("unknown", f"there is no job {job!r}; it was never admitted, or is over")
        admitted.check_worker(worker)
        config: Mapping[str, object] = self.host.describe()
        for name, value in (("protocol", request.protocol), ("values", request.values)):
            if value and value != config[name]:
                raise AdmissionError("mismatch", f"worker {worker} of job {job!r} has {name}={value}, but the switch runs "
                                                 f"{config['program']} with {name}={config[name]}; start both alike")
        salt = tag_salt(self.tags, session.seal, request, control := session.control())
        if session.seal is not None and salt:
            control = control._replace(tags=port_kinds.Tags.of(session.seal.derive, salt))
        plug = self._open_port(session, request, admitted, host, control)
        fds += plug.fds
        try:
            check_reach(session.principal, plug)
            if not self.recovery.came_back(admitted, worker, request.held):
                self._attach(admitted, worker, plug)
        except BaseException:
            self.host.close_port(plug.number, admitted.number)
            raise
        self._enter(session, request, host)
        session.attached, session.moves = True, request.moves
        self.ports.setdefault(job, []).append(plug.number)
        event(log, logging.INFO, "worker_attached",
              f"job {job}: worker {worker} is {session} at port {plug.number} ({request.port})", job=job,
              worker=worker, process=session.pid, port=plug.number, kind=request.port, address=session.shown_address())
        offer = plug.offer | ({"tags": salt} if salt else {})
        return {"port": offer, "worker": worker, "workers": admitted.workers, "number": admitted.number,
                "incarnation": admitted.incarnation, "life": admitted.life, "slots": admitted.slots, "values": config["values"],
                "protocol": config["protocol"], "address": astuple(plug.address), "switch": astuple(plug.switch),
                "check": admitted.check, **completion.stated(admitted.rule), "key": hidden(session.seal, admitted.key),
                "outlives": self.host.outlives, "moves": request.moves and self.recovery.can_move(admitted)}

    def _open_port(self, session: Session, request: messages.Attach, job: Job, host: str,
                   control: port_kinds.Control) -> Plug:
        """Opens a worker's port, at the job's own switch if its workers run that. Raises AdmissionError, ValueError, OSError."""
        may = request.runs and request.port == shm.KIND.name and self.shared is not None and self.shared.takes(
            job, session.principal.uid, session.pid)
        if not self.run_by_workers.setdefault(job.name, may) or self.shared is None:
            return self.host.open_port(request.port, job, request.worker, host, control)
        if not may:
            raise AdmissionError("mismatch", f"the workers of job {job.name!r} run its switch, in memory that they share; worker "
                                             f"{request.worker} ({session.principal}) cannot, or does not ask for it: set "
                                             "INA_RUN_BY=process for all workers, or start all as the switch process's user")
        return self.shared.open(job, request.worker)

    def _attach(self, job: Job, worker: int, plug: Plug) -> None:
        """Attaches at the switches and saves that, or does neither. Raises AdmissionError, OSError."""
        self.controller.attach(job, worker, plug.number)
        try:
            self.recovery.save()
        except BaseException:
            with suppress(AdmissionError):  # then that switch is unsure, and repaired before it is written next
                self.controller.detach(job, worker)
            raise

    def release(self, session: Session, fds: list[int], request: messages.Release) -> dict[str, Any]:
        if not session.job:
            raise AdmissionError("unknown", "this connection has joined no job")
        job, worker = session.job, session.index
        self.left.setdefault(job, set()).add(worker)
        try:
            self.recovery.save()
        except BaseException:
            self.left[job].discard(worker)
            raise
        session.released = True
        event(log, logging.INFO, "worker_left", f"worker {worker} of job {job} has left", job=job, worker=worker)
        if not session.child:  # else it has reported each of its workers
            self.tell_left(job, worker, session.pid)
        self.over(job)
        return {}

    def tell_left(self, job: str, worker: int, pid: int) -> None:
        """Tells the other workers of a job that one has left it in peace."""
        for other in [member for member in self.members(job) if worker not in member.below]:
            other.send({"event": "left", "worker": worker, "pid": pid}, [])
        if self.tree:
            self.tree.left(job, worker)

    def report(self, session: Session, fds: list[int], request: messages.Report) -> dict[str, Any]:
        if self.tree is None:
            raise AdmissionError("invalid", "report: only switch processes below report, and this one has none")
        self.tree.report(session, request)
        return {}

    def end(self, session: Session, fds: list[int], request: messages.End) -> dict[str, Any]:
        job = request.job
        if job not in self.controller.jobs:
            raise AdmissionError("unknown", f"there is no job {job!r}")
        self.fail(job, f"job {job!r} was ended by {session}")
        self.over(job)
        return {}

    # ---- the parameter server

    def serve(self, session: Session, fds: list[int], request: messages.Serve) -> dict[str, Any]:
        if session.job:
            raise AdmissionError("invalid", f"this connection is worker {session.index} of job {session.job!r}")
        if session.sock is None:
            raise AdmissionError("invalid", "a parameter server is called over its connection, and needs one of its own")
        assert self.upstream is not None  # the server's
        channel = Channel(session.sock, seal=session.seal)
        reply, descriptors = self.upstream.serve(session, channel, session.pid, lambda: self._server_port(session, request))
        fds += descriptors
        return reply

    def _server_port(self, session: Session, request: messages.Serve) -> tuple[str, Plug]:
        switch, plug = self.host.open_server_port(request.port, session.pid, request.host)
        try:
            check_reach(session.principal, plug)
        except AdmissionError:
            self.host.close_server_port(plug.number)
            for fd in plug.fds:
                os.close(fd)
            raise
        return switch, plug

    def _server_lost(self, upstream: PsClient, session: Session, cause: str) -> None:
        """Fails every job that the parameter server served."""
        if upstream.ready:
            self.host.close_server_port(upstream.number)
        upstream.lost()
        if cause:
            reason = f"the parameter server ({session}) is lost: {cause}"
            event(log, logging.WARNING, "server_lost", reason, reason=cause, process=session.pid)
            for job in list(self.controller.jobs):
                self.fail(job, reason)

    # ---- ends

    def deserted(self) -> bool:
        """Returns True if only the parameter server and clients that may only read are connected, and the switch process above
        knows of the end of all jobs."""
        if self.tree and self.tree.is_telling:
            return False
        return all(self.upstream and session is self.upstream.session or self.access.role(session.principal) is Role.ANYONE
                   or session.looks_on for session in self.sessions)

    def gone(self, session: Session, cause: str) -> None:
        """Handles the end of a connection; the other workers of its job get ``cause`` (empty: we ended it)."""
        self.sessions.remove(session)
        if self.upstream and session is self.upstream.session:
            self._server_lost(self.upstream, session, cause)
        for job in [name for name, lease in self.leases.items() if lease.session is session]:
            self.over(job)
        if not session.job or session.released:
            return
        known = session.refused and session.job not in self.controller.jobs  # then others get the refusal, too
        if cause and not known and not (session.child and has_failed(self, session.job)):
            reason = f"worker {session.index} of job {session.job!r} ({session}) is lost: {cause}"
            if session.child:
                reason = (f"the switch process {session.child} of workers {', '.join(map(str, session.below))} of job "
                          f"{session.job!r} is lost: {cause}")
            if self._switch_died(session.job, session.index):
                reason += "; it ran the job's switch, whose sums nobody can vouch for any more"
            event(log, logging.WARNING, "worker_lost", reason, job=session.job, worker=session.index, process=session.pid,
                  reason=cause)
            self.fail(session.job, reason, session.below or (session.index,))
        self.over(session.job)

    def _switch_died(self, job: str, worker: int) -> bool:
        """Tells whether a lost worker of the job has ended in the middle of a turn at its switch."""
        admitted = self.controller.jobs.get(job) if self.run_by_workers.get(job) else None
        return admitted is not None and self.shared is not None and self.shared.died_with(admitted.number, worker)

    def fail(self, job: str, reason: str, lost: Sequence[int] = ()) -> None:
        """Fails the job: its workers get the reason, and are hung up after GRACE, so that results in flight arrive. ``lost``:
        workers that have ended."""
        self.remember_failure(job, self.tokens.get(job, ""), reason)
        event(log, logging.WARNING, "job_failed", f"job {job} has failed: {reason}", job=job, reason=reason)
        for member in self.members(job):
            for worker in lost or (None,):
                member.send({"event": "failed", "reason": reason} | ({} if worker is None else {"lost": worker}), [])
            member.hang_up_at = member.hang_up_at or time.monotonic() + GRACE
        if self.tree:
            self.tree.failed(job, reason, lost)

    def remember_failure(self, job: str, token: str, reason: str) -> None:
        """Keeps the reason for late workers of the job; without a token for JOINING seconds, and no longer than its
        workers are here where all had come (over), or the switch is not (free_names)."""
        switches = self.controller.jobs[job].branches if job in self.controller.jobs else ()
        self.failures.remember((job, token), Failure(reason, _until(token), frozenset(switches)), self.principals.get(job))

    def free_names(self, switch: str) -> None:
        """Frees the names of jobs without a token that were refused, or have failed at a switch that is back, unless workers of
        theirs are here: what was in their way may be over."""
        busy = {*self.controller.jobs, *(session.job for session in self.sessions)}
        for (job, token), _ in self.refusals.items():
            if not token and job not in busy:
                self.refusals.forget((job, token))
        for (job, token), failure in self.failures.items():
            if not token and job not in busy and (switch in failure.switches or not failure.switches):
                self.failures.forget((job, token))

    def members(self, job: str) -> Iterator[Session]:
        """Yields workers of the job that are connected and have not left."""
        return (s for s in self.sessions if s.job == job and not s.released)

    def over(self, job: str) -> None:
        """Releases the job after its last worker has left; until then ports stay, as results may be in flight."""
        if any(True for _ in self.members(job)) or self.recovery.awaited.get(job):
            return
        nobody_is_late = job in self.recovery.earlier  # who had not come before the controller was started anew cannot join
        in_peace = not has_failed(self, job)
        self.recovery.forget(job)
        self.leases.pop(job, None)
        self._disown(job)
        self.left.pop(job, None)
        self.run_by_workers.pop(job, None)
        if job not in self.controller.jobs:
            if self.tree:
                self.tree.over(job, in_peace)
            return
        ended = self.controller.jobs[job]
        if nobody_is_late or ended.is_complete:
            self.failures.forget((job, ""))
        self.controller.release(job)
        if self.upstream:
            self.upstream.remove(ended.number)
        self.close_ports(ended)
        if self.tree:
            self.tree.over(job, in_peace)
        self.recovery.save_or_later()
        event(log, logging.INFO, "job_over", f"job {job} is over", job=job)

    def close_ports(self, job: Job) -> None:
        for port in self.ports.pop(job.name, []):
            self.host.close_port(port, job.number)


def _unmapped(ip: str) -> str:
    """Returns an IP address, and IPv4's where it is mapped into IPv6 (RFC 4291, section 2.5.5.2)."""
    return str(getattr(ipaddress.ip_address(ip), "ipv4_mapped", None) or ip)


def explain(error: Exception, operation: str) -> tuple[str, str]:
    """Returns code and text of the refusal for ``error`` in ``operation``. ``internal``: a defect of ours, which is logged."""
    if isinstance(error, AdmissionError):
        return error.code, str(error)
    if isinstance(error, OSError):  # the system refused, the request is valid
        return "system", f"{operation}: {error.strerror or error}"
    if isinstance(error, ValueError):
        return "invalid", f"{operation}: {error}"
    log.error("%s: this should not have happened; please report it", operation, exc_info=error)
    return "internal", f"{operation}: the switch process has a defect: {type(error).__name__}: {error}"


def _refusal(code: str, text: str) -> dict[str, Any]:
    return {"ok": False, "code": code, "error": text}


def _until(token: str) -> float:
    """Returns how long an answer holds for the workers of a job (monotonic seconds). A token belongs to one run; without one, the
    name may soon be another run's."""
    return math.inf if token else time.monotonic() + JOINING


def _name(request: Request) -> str:
    return type(request).__name__.lower()
