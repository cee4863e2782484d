"""What workers and people can ask of the controller's process, whatever way they ask (server.py, http.py).

    ping                                          -> pid, server (the parameter server's, 0: none), program, source_hash,
                                                     protocol, values, slots, free_slots
    join     job worker                           -> this connection is that worker of that job: its end will be told
    admit    job workers [slots] [strict] [hosts] -> number, incarnation, life, slot_base, slots (all workers ask; the first
                                                     creates, all get the same answer, a refusal too)
    attach   job worker port [protocol] [values]  -> the worker's configuration, and the port's descriptors; whether the job is
             [moves] [held]                          moved when a switch fails, where its workers say that they can be; ``held``:
                                                     the incarnation that a worker has which comes back to a controller
    release                                       -> this connection's worker leaves its job in peace
    end      job                                  -> the job is over: its workers are told, as if one were lost
    serve    port [host]                          -> this connection is the parameter server, and is called from now on
                                                     (parameter_server.py); its port, and the port's descriptors
    jobs, switches, counters                      -> what there is, and what it has done
    stop                                          -> ends when the last client is gone

Who may ask what, access.py says. A job belongs to who knows its ``token``: the one that its first request brings; later ones must
bring the same. One without a token is its user's. When a job has failed, its name can be used again with another token.

In a network a job's tree is placed once all workers have joined, as only then their hosts are known; requests for admission
wait for that, up to JOINING seconds. Joining waits for nobody, so whichever order members take their jobs in, nothing can
dead-lock.

A request (messages.py) is done as a whole, or nothing of it: what it has taken is given back when a later step fails. A job that
was admitted and that nobody has joined is its asker's: it is over with that connection, or after LEASE seconds.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

from ina.aggregation.controller.access import Access, JobOwner, Principal, Role, Rule
from ina.aggregation.controller.controller import AdmissionError, Controller
from ina.aggregation.controller.jobs import Job
from ina.aggregation.controller.ps_client import PsClient, ServerGone
from ina.aggregation.controller.recovery import Recovery
from ina.aggregation.controller.state import StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.socket import messages
from ina.aggregation.socket.messages import Malformed, Request, decode, parse

JOINING = 30.0  # seconds for all workers of a job in a network to join
GRACE = 1.0  # seconds between the news of a lost worker and the hang-up of the others
DEFAULT_SLOTS = 128
LEASE = 60.0  # seconds for somebody to join a job that was admitted before
UNJOINED = 16  # such jobs of one user at a time
JOBS = 64  # of a user who is not the switch's owner
REMEMBERED = 1024  # refusals and failures by job, so that all workers of a job get the same answer

log = logging.getLogger("ina.p4.runtime")


@dataclass(frozen=True)
class Failure:
    """Why a job is over, as its late workers are told until then (monotonic seconds)."""

    reason: str
    until: float


@dataclass(eq=False)
class Session:
    """One connection. ``send``: a message with descriptors; errors are its business. ``sock``: where it has one."""

    pid: int
    send: Callable[[dict, list[int]], None]
    principal: Principal
    sock: socket.socket | None = None
    job: str = ""  # of which it is a member, "" before join
    index: int = -1  # as which worker
    host: str = ""  # where the worker is, if that matters
    attached: bool = False
    moves: bool = False  # it goes on when its job is moved
    released: bool = False
    hang_up_at: float = 0.0  # monotonic seconds, 0: no


class NotYet(Exception):
    """A request must wait; says for what."""


@dataclass
class Pending:
    """A request that waits, until ``deadline`` (monotonic seconds)."""

    session: Session
    request: Request
    deadline: float


@dataclass
class Lease:
    """A job that nobody has joined: whose connection asked for it, and until when it stays (monotonic seconds)."""

    session: Session
    until: float


@dataclass
class Refusal:
    text: str
    code: str
    asked: int = 0


class Operations:
    """``failure``: why there is no switch; then every request is answered with it. ``state``: where jobs are remembered, for
    switches that outlive this process. ``access``: who may have jobs; default: this process's user, and root. Raises StateError
    for a state that is of other switches.

    ``host``, ``controller`` and ``watch`` are there where ``works`` is true: without them every request but a stop is refused.
    """

    host: SwitchHost
    controller: Controller
    watch: Recovery

    def __init__(self, host: SwitchHost | None, failure: str = "", job_slots: int = DEFAULT_SLOTS,
                 state: StateFile | None = None, access: Access | None = None):
        self.works, self.failure, self.job_slots = host is not None, failure, job_slots
        self.access = access or Access(os.geteuid())
        self.stopping = False
        self.sessions: list[Session] = []
        self.upstream: PsClient | None = None  # of the parameter server
        if host is not None:
            self.host, about = host, host.describe()
            self.controller = Controller(host.targets, about["slots"], protocol=getattr(host, "job_program", about["protocol"]),
                                         topology=host.topology)
        self.ports: dict[str, list[int]] = {}  # open ports by job
        self.tokens: dict[str, str] = {}
        self.principals: dict[str, Principal] = {}  # by job: who asked for it first
        self.left: dict[str, set[int]] = {}  # by job: workers that have left in peace
        self.refusals: OrderedDict[tuple[str, str], Refusal] = OrderedDict()
        self.failures: OrderedDict[tuple[str, str], Failure] = OrderedDict()
        self.pending: list[Pending] = []
        self.leases: dict[str, Lease] = {}  # by job
        self.operations: dict[type, Callable[[Session, list[int], Any], dict]] = {
            messages.Ping: self.ping, messages.Join: self.join, messages.Admit: self.admit, messages.Attach: self.attach,
            messages.Release: self.release, messages.End: self.end, messages.Serve: self.serve, messages.Jobs: self.jobs,
            messages.Switches: self.switches, messages.Counters: self.counters, messages.Stop: self.stop,
        }  # fmt: skip
        if self.works:
            self.watch = Recovery(self, state)
            self.watch.begin()

    # ---- answers

    def hear(self, session: Session, line: bytes) -> None:
        """Answer what one line asks."""
        try:
            message = decode(line)
        except Malformed as error:
            session.send(_refusal("invalid", str(error)), [])
            return
        self.answer(session, message)

    def answer(self, session: Session, message: dict) -> None:
        """Do what ``message`` asks, and reply to ``session``: now, or when it can be said."""
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
            session.send(_refusal(code, text), [])
            if code == "internal":
                self._give_up(session, text)
        finally:
            for fd in fds:
                os.close(fd)

    def _give_up(self, session: Session, why: str) -> None:
        """Nobody knows what was done for it: its connection and its job are over, and nobody else's."""
        if session.job and not session.released:
            self.fail(session.job, f"a request of worker {session.index} of job {session.job!r} failed: {why}")
        session.hang_up_at = time.monotonic()

    def retry(self) -> None:
        """What waits, once more: somebody has come, or time has passed."""
        waiting, self.pending = self.pending, []
        for pending in waiting:
            if pending.session in self.sessions:
                self._answer(pending.session, pending.request, pending.deadline)

    def tick(self) -> None:
        """Do what is due: because a client has come or gone, or because time has passed."""
        self.retry()
        now = time.monotonic()
        for job, lease in list(self.leases.items()):
            if lease.until <= now:
                log.warning("job %s is over: nobody has joined it for %g s", job, LEASE)
                self.over(job)
        if self.works:
            self.watch.tick()

    def due(self) -> float | None:
        """When something is to be done without anybody asking (monotonic seconds); None: nothing is."""
        times = [p.deadline for p in self.pending] + [s.hang_up_at for s in self.sessions if s.hang_up_at]
        times += [lease.until for lease in self.leases.values()]
        times += [due] if self.works and (due := self.watch.due()) is not None else []
        return min(times, default=None)

    def call(self, session: Session, fds: list[int], request: Request) -> dict:
        """The reply. Raises AdmissionError, NotYet, OSError (the machine's no), ValueError: it makes no sense here."""
        if self.failure and not isinstance(request, messages.Stop):
            raise AdmissionError("failed", self.failure)
        rule = self.access.check(session.principal, request)
        if rule.of_job:
            assert isinstance(request, messages.OfJob)
            self._check_owner(session.principal, rule, request.job, request.token)
        return self.operations[type(request)](session, fds, request)

    def _check_owner(self, principal: Principal, rule: Rule, job: str, token: str) -> None:
        """Raises AdmissionError: the job is another's, or has failed."""
        if failure := self.failures.get((job, token)):
            if failure.until > time.monotonic():
                raise AdmissionError("failed", failure.reason)
            del self.failures[job, token]
        by_switch = rule.or_switch and not token and self.access.role(principal) is Role.OWNER
        if (owner := self._owner(job)) is not None and not by_switch:
            JobOwner(owner, self.tokens.get(job, "")).check(job, principal, token)

    def _owner(self, job: str) -> Principal | None:
        """None: there is no such job. One that nobody asked for is the switch's."""
        admitted = self.works and job in self.controller.jobs
        return self.principals.get(job) or (Principal(self.access.owner) if admitted else None)

    # ---- about the switches

    def ping(self, session: Session, fds: list[int], asked: messages.Ping) -> dict:
        server = self.upstream.pid if self.upstream and self.upstream.ready else 0
        return {"pid": os.getpid(), "server": server, "free_slots": self.controller.free_slots(), **self.host.describe()}

    def jobs(self, session: Session, fds: list[int], asked: messages.Jobs) -> dict:
        """``jobs``: by name, what each has at its switches, and its workers that are here."""
        return {"jobs": {name: self._job(job) for name, job in self.controller.jobs.items()}}

    def _job(self, job: Job) -> dict:
        processes = {s.index: s.pid for s in self.members(job.name)}
        return {
            "number": job.number, "incarnation": job.incarnation, "life": job.life, "workers": job.workers, "slots": job.slots,
            "strict": job.strict, "open": not self.tokens.get(job.name), "owner": str(self._owner(job.name)),
            "root": job.root.switch,
            "switches": {b.switch: {"slot_base": b.slot_base, "children": list(b.seats)} for b in job.branches.values()},
            "members": {i: {"pid": processes.get(i), "host": job.hosts[i] if job.hosts else None, "port": child.port,
                            "ip": child.address.ip} for i, child in job.attached.items()},
        }  # fmt: skip

    def switches(self, session: Session, fds: list[int], asked: messages.Switches) -> dict:
        """``switches``: by name, its pool and jobs."""
        controller = self.controller
        return {"switches": {name: {
            "slots": controller.slots[name], "free_slots": controller.free_slots(name),
            "state": controller.down.get(name) or ("unsure" if name in controller.unsure else "up"),
            "jobs": [job.name for job in controller.jobs.values() if name in job.branches]} for name in controller.targets},
            **self.host.describe()}  # fmt: skip

    def counters(self, session: Session, fds: list[int], asked: messages.Counters) -> dict:
        try:
            return {**self.host.counters(), **(self.upstream.counters() if self.upstream else {})}
        except ServerGone as error:
            raise AdmissionError("failed", str(error)) from error

    def stop(self, session: Session, fds: list[int], asked: messages.Stop) -> dict:
        self.stopping = True
        return {}

    # ---- members

    def join(self, session: Session, fds: list[int], asked: messages.Join) -> dict:
        self._enter(session, asked, self._seat(session, asked, asked.host))
        return {}

    def _seat(self, session: Session, asked: messages.Join | messages.Attach, host: str) -> str:
        """The host that the worker is in, if it may be that worker. Changes nothing. Raises AdmissionError, ValueError."""
        job, worker = asked.job, asked.worker
        if (session.job, session.index) not in (("", -1), (job, worker)):
            raise AdmissionError("duplicate", f"this connection is worker {session.index} of job {session.job!r} "
                                              "already; open another one")
        for other in self.sessions:
            if other is not session and (other.job, other.index) == (job, worker):
                raise AdmissionError("duplicate", f"processes {other.pid} and {session.pid} both say that they are "
                                                  f"worker {worker} of job {job!r}; ranks must differ")
        host = session.host or self.host.host_of(session.pid, host)
        for other in self.members(job):
            if host and other is not session and other.host == host:
                raise AdmissionError("duplicate", f"{host} has a worker of this job already ({other.index}): each worker of a "
                                                  "job needs a host of its own")
        return host

    def _enter(self, session: Session, asked: messages.Join | messages.Attach, host: str) -> None:
        self._own(session, asked.job, asked.token)
        self.leases.pop(asked.job, None)
        session.job, session.index, session.host = asked.job, asked.worker, host

    def admit(self, session: Session, fds: list[int], asked: messages.Admit) -> dict:
        job, workers, strict = asked.job, asked.workers, asked.strict
        slots = asked.slots or self.job_slots
        if refusal := self.refusals.get((job, asked.token)):
            refusal.asked += 1
            if refusal.asked >= workers:
                del self.refusals[job, asked.token]
            raise AdmissionError(refusal.code, refusal.text)
        admitted = self.controller.jobs.get(job)
        if admitted is None and (quiet := self.watch.quiet_until - time.monotonic()) > 0:
            raise NotYet(f"packets of earlier jobs to die out: {quiet:.1f} s of {self.host.packet_lifetime:g} s are left")
        if admitted is None and self.upstream and self.upstream.failure:
            raise AdmissionError("failed", self.upstream.failure)
        if admitted is None and self.upstream and self.upstream.expected():
            self.upstream.start()
            raise NotYet("the parameter server to start")
        if admitted is None:
            self._check_share(session.principal, job)
            at = tuple(asked.hosts or self._hosts(job, workers)) if strict and self.controller.topology else ()
            try:
                admitted = self._new_job(session, asked, slots, at)
            except AdmissionError as error:
                if workers > 1:
                    _remember(self.refusals, (job, asked.token), Refusal(str(error), error.code, asked=1))
                raise
            if not any(True for _ in self.members(job)):
                self.leases[job] = Lease(session, time.monotonic() + LEASE)
            log.info("job %s: number %d, life %d, incarnation %d, %d workers, %d slots at %s", job, admitted.number,
                     admitted.life, admitted.incarnation, workers, slots, ", ".join(admitted.branches))
        elif (admitted.workers, admitted.slots, admitted.strict) != (workers, slots, strict):
            raise AdmissionError("mismatch", f"job {job!r} was admitted with {admitted.workers} workers, "
                                             f"{admitted.slots} slots, strict={admitted.strict}; this worker asks for "
                                             f"{workers} workers, {slots} slots, strict={strict}")
        return {"number": admitted.number, "incarnation": admitted.incarnation, "life": admitted.life,
                "slot_base": admitted.slot_base, "slots": admitted.slots, "workers": admitted.workers}

    def _check_share(self, principal: Principal, job: str) -> None:
        """Nobody can lock the others out: jobs of other users are not all there are, and those that nobody has joined are few."""
        of_user = [name for name in self.controller.jobs if self.principals.get(name) == principal]
        if len(of_user) >= JOBS and self.access.role(principal) is not Role.OWNER:
            raise AdmissionError("full", f"job {job!r}: {principal} has {JOBS} jobs already; end one")
        if not any(True for _ in self.members(job)) and len(self.leases.keys() & of_user) >= UNJOINED:
            raise AdmissionError("full", f"job {job!r}: {UNJOINED} jobs have been admitted that nobody has joined; join one, or "
                                         f"wait: each is over after {LEASE:g} s")

    def _new_job(self, session: Session, asked: messages.Admit, slots: int, at: tuple[str, ...]) -> Job:
        """Admitted, known to the parameter server and remembered; or nothing of it. Raises AdmissionError, OSError."""
        name = asked.job
        tree = self.controller.place(name, at, slots)[0] if at else None
        job = self.controller.admit(name, asked.workers, slots, asked.strict, tree, at)
        is_joined, is_told = name in self.principals, False
        self._own(session, name, asked.token)
        try:
            if self.upstream:
                self.upstream.add(job)
                is_told = True
            self.watch.save()
        except BaseException as error:
            if not is_joined:
                self._disown(name)
            if self.upstream and is_told:
                self.upstream.remove(job.number)
            self.controller.release(name)
            if isinstance(error, ServerGone):
                raise AdmissionError("failed", str(error)) from error
            raise
        return job

    def _own(self, session: Session, job: str, token: str) -> None:
        """It is the session's, unless it is somebody's."""
        if job not in self.principals:
            self.principals[job], self.tokens[job] = session.principal, token

    def _disown(self, job: str) -> None:
        self.principals.pop(job, None)
        self.tokens.pop(job, None)

    def _hosts(self, job: str, workers: int) -> tuple[str, ...]:
        """Of the job's workers in a network, in order. Raises NotYet, until all have joined."""
        joined = {s.index: s.host for s in self.members(job)}
        if not joined:
            raise AdmissionError("invalid", f"job {job!r}: in a network its workers join before they are admitted, for its tree "
                                            "is to reach their hosts; or say hosts")
        if missing := [index for index in range(workers) if index not in joined]:
            raise NotYet(f"workers {', '.join(map(str, missing))} of job {job!r} to join")
        return tuple(joined[index] for index in range(workers))

    def attach(self, session: Session, fds: list[int], asked: messages.Attach) -> dict:
        job, worker = asked.job, asked.worker
        host = self._seat(session, asked, "")
        admitted = self.controller.jobs.get(job)
        if admitted is None:
            raise AdmissionError("unknown", f"there is no job {job!r}; it was never admitted, or is over")
        about = self.host.describe()
        for what, wanted in (("protocol", asked.protocol), ("values", asked.values)):
            if wanted and wanted != about[what]:
                raise AdmissionError("mismatch", f"worker {worker} of job {job!r} has {what}={wanted}, but the switch runs "
                                                 f"{about['program']} with {what}={about[what]}; start both alike")
        plug = self.host.open_port(asked.port, admitted.number, worker, admitted.slots, host)
        fds += plug.fds
        try:
            _check_reach(session, plug)
            if not self.watch.came_back(admitted, worker, asked.held):
                self._attach(admitted, worker, plug)
        except BaseException:
            self.host.close_port(plug.number, admitted.number)
            raise
        self._enter(session, asked, host)
        session.attached, session.moves = True, asked.moves
        self.ports.setdefault(job, []).append(plug.number)
        log.info("job %s: worker %d is process %d at port %d (%s)", job, worker, session.pid, plug.number, asked.port)
        return {"port": plug.offer, "worker": worker, "workers": admitted.workers, "number": admitted.number,
                "incarnation": admitted.incarnation, "life": admitted.life, "slots": admitted.slots, "values": about["values"],
                "protocol": about["protocol"], "address": astuple(plug.address), "switch": astuple(plug.switch),
                "outlives": self.host.outlives, "moves": asked.moves and self.watch.can_move(admitted)}

    def _attach(self, job: Job, worker: int, plug: Plug) -> None:
        """At the switches and remembered, or neither. Raises AdmissionError, OSError."""
        self.controller.attach(job, worker, plug.number, plug.address)
        try:
            self.watch.save()
        except BaseException:
            with suppress(AdmissionError):  # then that switch is unsure, and repaired before it is written next
                self.controller.detach(job, worker)
            raise

    def release(self, session: Session, fds: list[int], asked: messages.Release) -> dict:
        if not session.job:
            raise AdmissionError("unknown", "this connection has joined no job")
        job, worker = session.job, session.index
        self.left.setdefault(job, set()).add(worker)
        try:
            self.watch.save()
        except BaseException:
            self.left[job].discard(worker)
            raise
        session.released = True
        for other in self._others(session):
            other.send({"event": "left", "worker": worker, "pid": session.pid}, [])
        self.over(job)
        return {}

    def end(self, session: Session, fds: list[int], asked: messages.End) -> dict:
        job = asked.job
        if job not in self.controller.jobs:
            raise AdmissionError("unknown", f"there is no job {job!r}")
        self.fail(job, f"job {job!r} was ended by process {session.pid}")
        self.over(job)
        return {}

    # ---- the parameter server

    def serve(self, session: Session, fds: list[int], asked: messages.Serve) -> dict:
        if session.job:
            raise AdmissionError("invalid", f"this connection is worker {session.index} of job {session.job!r}")
        if session.sock is None:
            raise AdmissionError("invalid", "a parameter server is called over its connection, and needs one of its own")
        assert self.upstream is not None  # the server's
        reply, offered = self.upstream.serve(session, session.sock, session.pid, lambda: self._server_port(session, asked))
        fds += offered
        return reply

    def _server_port(self, session: Session, asked: messages.Serve) -> tuple[str, Plug]:
        switch, plug = self.host.open_server_port(asked.port, session.pid, asked.host)
        try:
            _check_reach(session, plug)
        except AdmissionError:
            self.host.close_server_port(plug.number)
            for fd in plug.fds:
                os.close(fd)
            raise
        return switch, plug

    def _server_lost(self, upstream: PsClient, session: Session, why: str) -> None:
        """Every job that the parameter server served is over."""
        if upstream.ready:
            self.host.close_server_port(upstream.number)
        upstream.lost()
        if why:
            reason = f"the parameter server (process {session.pid}) is lost: {why}"
            log.warning("%s", reason)
            for job in list(self.controller.jobs):
                self.fail(job, reason)

    # ---- ends

    def deserted(self) -> bool:
        """Nobody is here but the parameter server, and those who may only look."""
        return all(self.upstream and session is self.upstream.session or self.access.role(session.principal) is Role.ANYONE
                   for session in self.sessions)

    def gone(self, session: Session, why: str) -> None:
        """Its connection is over; ``why`` (empty: by us) is told to the other workers of its job."""
        self.sessions.remove(session)
        if self.upstream and session is self.upstream.session:
            self._server_lost(self.upstream, session, why)
        for job in [name for name, lease in self.leases.items() if lease.session is session]:
            self.over(job)
        if not session.job or session.released:
            return
        if why:
            reason = f"worker {session.index} of job {session.job!r} (process {session.pid}) is lost: {why}"
            log.warning("%s", reason)
            self.fail(session.job, reason)
        self.over(session.job)

    def fail(self, job: str, reason: str) -> None:
        """The job cannot go on: its workers are told, and hung up after GRACE, so that results which are under way arrive."""
        self.remember_failure(job, self.tokens.get(job, ""), reason)
        for member in self.members(job):
            member.send({"event": "failed", "reason": reason}, [])
            member.hang_up_at = member.hang_up_at or time.monotonic() + GRACE

    def remember_failure(self, job: str, token: str, reason: str) -> None:
        """For workers of the job that come late. A token is one run's; without one the name is all that there is, and another
        run may have it soon, or at once where everybody had come (over)."""
        _remember(self.failures, (job, token), Failure(reason, math.inf if token else time.monotonic() + JOINING))

    def members(self, job: str) -> Iterator[Session]:
        """Workers of the job that are here and have not left."""
        return (s for s in self.sessions if s.job == job and not s.released)

    def _others(self, session: Session) -> list[Session]:
        return [s for s in self.members(session.job) if s is not session]

    def over(self, job: str) -> None:
        """The last worker that leaves a job releases it; until then ports stay, results may be under way."""
        if any(True for _ in self.members(job)) or self.watch.awaited.get(job):
            return
        self.watch.forget(job)
        self.leases.pop(job, None)
        self._disown(job)
        self.left.pop(job, None)
        if job not in self.controller.jobs:
            return
        ended = self.controller.jobs[job]
        if len(ended.attached) == ended.workers:
            self.failures.pop((job, ""), None)
        self.controller.release(job)
        if self.upstream:
            self.upstream.remove(ended.number)
        self.close_ports(ended)
        self.watch.save_or_later()
        log.info("job %s is over", job)

    def close_ports(self, job: Job) -> None:
        for port in self.ports.pop(job.name, []):
            self.host.close_port(port, job.number)


def _check_reach(session: Session, plug: Plug) -> None:
    """Check that the port's descriptors can be sent to the session. Raises AdmissionError."""
    if plug.fds and session.principal.uid is None:
        raise AdmissionError("invalid", "this switch process is plugged into its workers by descriptors, which no TCP connection "
                                        "carries: name its Unix socket, on its machine, with INA_SWITCH")


def explain(error: Exception, what: str) -> tuple[str, str]:
    """Code and text of the refusal of ``what`` that ``error`` is. ``internal``: it is a defect of ours, and logged."""
    if isinstance(error, AdmissionError):
        return error.code, str(error)
    if isinstance(error, OSError):  # the machine's no, not the asker's fault
        return "system", f"{what}: {error.strerror or error}"
    if isinstance(error, ValueError):
        return "invalid", f"{what}: {error}"
    log.error("%s: this should not have happened; please report it", what, exc_info=error)
    return "internal", f"{what}: the switch process has a defect: {type(error).__name__}: {error}"


def _refusal(code: str, text: str) -> dict:
    return {"ok": False, "code": code, "error": text}


def _name(request: Request) -> str:
    return type(request).__name__.lower()


def _remember(memory: OrderedDict, key: object, what: object) -> None:
    memory[key] = what
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
