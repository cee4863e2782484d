"""Recovery of jobs after the controller or a switch has ended: they go on, move to other switches, or end."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Any, Protocol

from ina.aggregation.controller.access import Principal
from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.job_records import AdmissionError, Job
from ina.aggregation.controller.state import StateError, StateFile
from ina.aggregation.controller.switch_host import SwitchHost
from ina.aggregation.controller.transaction import REFUSED

COMING_BACK = 30.0  # seconds for workers to come back to a restarted controller
CHECK = 2.0  # seconds between checks of the switches of a network
SILENCES = 3  # checks without an answer after which a switch is lost; one that refuses connections is lost at once

log = logging.getLogger(__name__)


class Member(Protocol):
    """A worker's connection."""

    attached: bool
    moves: bool

    @property
    def send(self) -> Callable[[dict[str, Any], list[int]], None]: ...


class Routes(Protocol):
    """Forwarding of what is not aggregated (LinkRecovery)."""

    def reroute(self) -> None:
        """Makes it go around links and switches that are down."""


class Jobs(Protocol):
    """Jobs and their members, as ina/aggregation/controller/api.py has them."""

    controller: Controller
    host: SwitchHost
    tokens: dict[str, str]
    principals: dict[str, Principal]
    left: dict[str, set[int]]

    @property
    def links(self) -> Routes: ...

    @property
    def failures(self) -> Container[tuple[str, str]]:
        """Failures by name and token."""

    def remember_failure(self, job: str, token: str, reason: str) -> None: ...

    def members(self, job: str) -> Iterator[Member]: ...

    def fail(self, job: str, reason: str) -> None: ...

    def over(self, job: str) -> None: ...

    def free_names(self, switch: str) -> None: ...

    def close_ports(self, job: Job) -> None: ...


def has_failed(service: Jobs, job: str) -> bool:
    """Returns True if the job is over, though some of its workers have not left yet."""
    return (job, service.tokens.get(job, "")) in service.failures


class Recovery:
    """``state``: file of jobs; None: jobs end with this process. Call ``begin`` first."""

    def __init__(self, service: Jobs, state: StateFile | None):
        self.service, self.state = service, state
        self.controller = service.controller
        self.awaited: dict[str, set[int]] = {}  # by job: workers of an earlier controller, until they come back
        self.awaited_until = 0.0  # monotonic seconds
        self.earlier: set[str] = set()  # jobs that an earlier controller admitted
        self._checked_at = time.monotonic()
        self._unsaved = False  # the state file is out of date
        self._silent: Counter[str] = Counter()  # by switch: consecutive checks without an answer
        self.quiet_until = time.monotonic() + service.host.packet_lifetime  # packets of unknown jobs die out

    # ---- this process

    def begin(self) -> None:
        """Reads what an earlier process has left at the switches and in the state, which may be older. Jobs that the switches
        hold as the state says are this process's: their workers come back, or are lost. Other entries are removed.

        Raises StateError, also for other switches' state.
        """
        if not self.service.host.outlives:
            return
        if self.state is not None and (state := self.state.load()) is not None:
            self._restore(self.state, state)
        self.controller.survey()
        for switch in self.controller.targets:
            self._check_switch(switch)
        log.info("%d jobs of an earlier controller", len(self.awaited))
        if self.controller.program.needs_server and self.awaited:
            self._end_all("its parameter server has ended with the controller that it was told of jobs by")

    def _restore(self, file: StateFile, state: dict[str, Any]) -> None:
        service, controller = self.service, self.controller
        try:
            controller.restore(state["controller"])
            service.tokens = {str(name): str(token) for name, token in state["tokens"].items()}
            service.principals = {str(name): Principal(uid if uid is None else int(uid))
                                  for name, uid in state["principals"].items()}
            service.left = {name: {int(worker) for worker in workers} for name, workers in state["left"].items()}
        except (StateError, TypeError, ValueError) as error:
            raise file.error(error) from error
        self.earlier = set(controller.jobs)
        self.awaited = {name: set(job.attached) - service.left.get(name, set()) for name, job in controller.jobs.items()}
        self.awaited_until = time.monotonic() + COMING_BACK

    def _end_all(self, reason: str) -> None:
        """Ends all jobs before any worker has come back."""
        service, self.awaited = self.service, {}
        self.earlier.clear()
        for name in list(self.controller.jobs):
            service.remember_failure(name, service.tokens.pop(name, ""), f"job {name!r} is over: {reason}")
            service.principals.pop(name, None)
            service.left.pop(name, None)
            self.controller.release(name)
        self.save_or_later()

    def save(self) -> None:
        """Saves the state, before every answer that reports a change."""
        if self.state is not None:
            departed = {job: sorted(workers) for job, workers in self.service.left.items()}
            principals = {job: principal.uid for job, principal in self.service.principals.items()}
            self.state.save({"controller": self.controller.snapshot(), "tokens": self.service.tokens, "principals": principals,
                             "left": departed})
        self._unsaved = False

    def save_or_later(self) -> None:
        """Saves the state after a change that cannot be undone; if that fails, tries again later."""
        try:
            self.save()
        except OSError as error:
            if not self._unsaved:
                log.error("%s; jobs go on, and it is tried again every %g s", error, CHECK)
            self._unsaved = True

    def came_back(self, job: Job, worker: int, incarnation: int) -> bool:
        """Returns True if the worker was attached before this process began, and is awaited. ``incarnation``: its own, 0: none.

        Raises AdmissionError: it would replace a worker whose packets and sums may still be in flight.
        """
        if incarnation and incarnation != job.incarnation:
            raise AdmissionError("failed", f"job {job.name!r} has begun anew meanwhile: worker {worker} has incarnation "
                                           f"{incarnation} of it, not {job.incarnation}")
        if job.name in self.earlier and not incarnation:
            raise AdmissionError("failed", f"job {job.name!r} began before the controller was started anew: only workers that it "
                                           "had then come back to it; choose another name, or wait until it is over, for "
                                           f"{COMING_BACK:g} s")
        if worker not in self.awaited.get(job.name, ()):
            return False
        self.awaited[job.name].discard(worker)
        return True

    def forget(self, job: str) -> None:
        """Frees the name of a job that is over, or has begun again."""
        self.awaited.pop(job, None)
        self.earlier.discard(job)

    # ---- time

    def due(self) -> float | None:
        """Returns when ``tick`` has work (monotonic seconds)."""
        times = [self.awaited_until] * bool(self.awaited) + [self._checked_at + CHECK] * (self._has_network or self._unsaved)
        times += [self.quiet_until] * (self.quiet_until > time.monotonic())
        return min(times, default=None)

    @property
    def _has_network(self) -> bool:
        return self.controller.topology is not None

    def tick(self) -> None:
        """Fails workers that have not come back in time, and checks switches."""
        now = time.monotonic()
        if self.awaited and now >= self.awaited_until:
            awaited, self.awaited = self.awaited, {}
            for job, workers in awaited.items():
                if workers:
                    missing = ", ".join(map(str, sorted(workers)))
                    self.service.fail(job, f"workers {missing} of job {job!r} have not come back within {COMING_BACK:g} s after "
                                           "the controller was started anew")
                self.service.over(job)  # unless workers are here; ends also a job that nobody attached to
        if (self._has_network or self._unsaved) and now >= self._checked_at + CHECK:
            if self._unsaved:
                self.save_or_later()
            for switch in self.controller.targets if self._has_network else ():
                self._check_switch(switch)
            self._checked_at = time.monotonic()

    # ---- switches

    def _check_switch(self, switch: str) -> None:
        """Checks that a switch answers and has its entries; else its jobs' sums are lost."""
        controller = self.controller
        try:
            if self.service.host.outlives:
                self.service.host.protect(switch)
            jobs = controller.missing(switch, ask=self.service.host.outlives)  # others end with this process
            if jobs:
                self._lost(switch, f"it does not hold the entries of {', '.join(jobs)} as they were written: it was started "
                                   "anew, or another controller has written it", jobs)
            if jobs or switch in controller.down or switch in controller.unsure:
                count = controller.repair(switch)
                log.info("switch %s is here; %d entries were not as they should be", switch, count)
                self.service.free_names(switch)
        except REFUSED as error:
            self._silent[switch] += 1
            if not isinstance(error, TimeoutError) or self._silent[switch] >= SILENCES:
                is_news = switch not in controller.down
                controller.down[switch] = str(error)
                if is_news:
                    self.service.links.reroute()
                self._lost(switch, str(error), [job.name for job in controller.jobs.values() if switch in job.branches])
            return
        self._silent[switch] = 0
        if controller.down.pop(switch, None) is not None:
            self.service.links.reroute()

    def _lost(self, switch: str, cause: str, jobs: list[str]) -> None:
        service = self.service
        for job in jobs:
            reason = f"switch {switch} is lost: {cause}"
            if not has_failed(service, job) and (obstacle := self.move(job, reason)) is not None:
                service.fail(job, reason + obstacle)
                self.forget(job)
                service.over(job)

    def can_move(self, job: Job) -> bool:
        """Returns True if the job can be moved; a parameter server would have to move with it."""
        return job.tree is not None and len(self.controller.targets) > 1 and not self.controller.program.needs_server

    def move(self, name: str, cause: str) -> str | None:
        """Moves a job to working switches and links, if all its workers are here and support that. Returns None, or why it
        stays."""
        service, job = self.service, self.controller.jobs[name]
        members = list(service.members(name))
        if not self.can_move(job):
            return "; its parameter server cannot move to another tree with it" if self.controller.program.needs_server else ""
        if len(members) < job.workers or not all(m.attached and m.moves for m in members):
            return ""
        service.close_ports(job)
        try:
            moved = self.controller.move(name)
        except AdmissionError as error:
            return f"; and there is no other way: {error}"
        self.forget(name)
        self.save_or_later()
        reason = f"{cause}; job {name} goes on over {', '.join(moved.branches)}"
        log.warning("%s", reason)
        for member in members:
            member.attached = False
            member.send({"event": "moved", "incarnation": moved.incarnation, "reason": reason}, [])
        return None
