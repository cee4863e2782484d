"""Links that are down: routes and jobs go around them, and jobs without another way wait until a link is back.

A switch host whose links can be watched reports changes (LinkWatch in switch_host.py). Then, in this order,

    forwarding tables go around the link           first, as the workers of a moved job agree over the network
    jobs whose tree has it move to another tree    with another incarnation: no row of the old tree counts (failures.py)
    jobs without another tree are told             which link, and what to do; they go on by themselves when it is back, move when
                                                   another tree has become possible, and fail after WAIT seconds
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ina.aggregation.controller.failures import Jobs, has_failed
from ina.aggregation.controller.job_records import AdmissionError, Job
from ina.aggregation.controller.switch_host import LinkChange, LinkNews

WAIT = 60.0  # seconds that a job waits for its link
AGAIN = 0.5  # seconds between looks for another tree for a job that waits
KEPT = 64  # incidents
SILENT = 2.0  # s without a frame from a worker's host, while another's has sent within TALKING
TALKING = 1.0  # s
UNMOVED = "its workers cannot move to another tree (not all have attached, or they cannot go on elsewhere)"

log = logging.getLogger(__name__)


@dataclass
class Incident:
    """A link that was down or, by command, slow (``rate``: bit/s, 0: not that). Times as of time.time(). ``noticed``: when the
    controller knew that it is down; ``ended``: None, it still is. ``lost``: frames, where they are counted. ``moved``: jobs, and
    the roots of their other trees; ``waited``: jobs without another tree."""

    link: str
    state: str  # down, slow
    reason: str
    began: float
    rate: float = 0.0
    noticed: float | None = None
    ended: float | None = None
    lost: int = 0
    moved: dict[str, str] = field(default_factory=dict)
    waited: list[str] = field(default_factory=list)


@dataclass
class Waiting:
    """A job whose tree has a link that is down: until when it waits for that (monotonic seconds)."""

    link: str
    until: float


class LinkRecovery:
    """``move``: moves a job by its name, for a cause, to working switches and links. Returns None, or why it stays
    (Recovery.move)."""

    def __init__(self, service: Jobs, move: Callable[[str, str], str | None]):
        self.service, self._move = service, move
        self.controller = service.controller
        self.incidents: deque[Incident] = deque(maxlen=KEPT)
        self.waiting: dict[str, Waiting] = {}  # by job
        self._open: dict[tuple[str, str], tuple[Incident, int]] = {}  # by link and state; and frames lost there before
        self._cut: set[str] = set()  # links that are cut by command
        self._again_at = 0.0  # monotonic seconds

    def fileno(self) -> int:
        """Returns a descriptor that is readable when links have changed; -1: none."""
        watch = self.service.host.links
        return -1 if watch is None else watch.fileno()

    def due(self) -> float | None:
        """Returns when ``tick`` has work (monotonic seconds)."""
        watch = self.service.host.links
        times = [self._again_at] if self.waiting else []
        times += [due] if watch is not None and (due := watch.due()) is not None else []
        return min(times, default=None)

    def tick(self) -> None:
        """Reads changes of links, and looks for other trees for jobs that wait."""
        watch = self.service.host.links
        if watch is not None and (changes := watch.changes()):
            self.apply(changes)
        if self.waiting and time.monotonic() >= self._again_at:
            self._look_again()

    def shown(self) -> list[dict[str, Any]]:
        """Returns the incidents for people, the last one last; ``waiting``: the jobs that still wait for the link."""
        for (link, _), (incident, before) in self._open.items():
            incident.lost = self._lost(link) - before
        waiting = {name: self._open[one.link, "down"][0] for name, one in self.waiting.items()}
        return [asdict(incident) | {"waiting": [name for name, cause in waiting.items() if cause is incident]}
                for incident in self.incidents]

    def silent(self) -> list[dict[str, Any]]:
        """Returns workers from whose hosts nothing comes while other workers of their job send: they compute, or stand still, or
        their host's link loses everything (a host sends no probes)."""
        watch, workers = self.service.host.links, list[dict[str, Any]]()
        if watch is None:
            return workers
        for job in self.controller.jobs.values():
            ages = {worker: age for worker, host in enumerate(job.hosts) if (age := watch.silence(host)) is not None}
            if ages and min(ages.values()) < TALKING:
                workers += [{"job": job.name, "worker": worker, "host": job.hosts[worker], "seconds": age}
                            for worker, age in ages.items() if age > SILENT]
        return workers

    def plan(self, lines: Sequence[str]) -> None:
        """Changes links by command. Raises TopologyError, AdmissionError: this host's cannot be changed."""
        if self.service.host.links is None:
            raise AdmissionError("invalid", "the links of these switches are not this process's: only those of a testbed "
                                            "(ina net up, or world = 'testbed') can be cut, mended and slowed down by command")
        self.service.host.links.plan(lines)
        self.tick()

    # ---- changes

    def apply(self, changes: Sequence[LinkChange]) -> None:
        """Notes news; goes around links that have failed, and takes those that are back into use."""
        failed, known = [], dict(self.controller.down_links)
        for link, news, reason, rate in changes:
            if news is LinkNews.CUT:
                self._cut.add(link)
                if (link, "down") not in self._open or self._open[link, "down"][0].ended:
                    incident = self._begin(link, "down", "it was cut by command")
                    incident.noticed = time.time() if link in self.controller.down_links else None
            elif news is LinkNews.SLOW and reason:
                self._begin(link, "slow", reason).rate = rate
            elif news is LinkNews.SLOW:
                self._end(link, "slow")
            elif news is LinkNews.MENDED and link in self._cut:
                self._cut.remove(link)
                if link not in self.controller.down_links:
                    self._end(link, "down")
                else:  # it is open until the link is used again: jobs may wait for that
                    self._open[link, "down"][0].ended = time.time()
            elif news is LinkNews.DOWN and link not in self.controller.down_links:
                log.warning("link %s is down: %s", link, reason)
                self.controller.down_links[link] = reason
                incident = self._open[link, "down"][0] if (link, "down") in self._open else self._begin(link, "down", reason)
                incident.noticed, incident.reason = time.time(), reason
                failed.append(link)
            elif news is LinkNews.UP and self.controller.down_links.pop(link, None) is not None:
                log.warning("link %s is back", link)
                if link not in self._cut:
                    self._end(link, "down")
        if known == self.controller.down_links:
            return
        self.reroute()
        for name in [name for name in self.controller.jobs if name not in self.waiting and not has_failed(self.service, name)]:
            if links := [link for link in self._links_down(name) if link in failed]:
                self._go_around(name, links[0])
        if self.waiting:
            self._look_again()

    def reroute(self) -> None:
        """Makes forwarding tables go around links and switches that are down."""
        self.service.host.reroute([*self.controller.down_links, *self.controller.down])

    def _begin(self, link: str, state: str, reason: str) -> Incident:
        self._end(link, state)
        incident = Incident(link, state, reason, time.time())
        self._open[link, state] = incident, self._lost(link)
        self.incidents.append(incident)
        return incident

    def _end(self, link: str, state: str) -> None:
        incident, before = self._open.pop((link, state), (None, 0))
        if incident is not None:
            incident.ended, incident.lost = incident.ended or time.time(), self._lost(link) - before

    def _lost(self, link: str) -> int:
        watch = self.service.host.links
        return 0 if watch is None else watch.lost(link)

    def _links_down(self, name: str) -> list[str]:
        """Returns the links that are down of those that a job uses."""
        names = self.controller.link_names()
        return sorted(names[link] for link in self.controller.links_of(self.controller.jobs[name])
                      if names[link] in self.controller.down_links)

    def _go_around(self, name: str, link: str) -> None:
        """Moves a job, or tells it that it has to wait."""
        obstacle = self._moves(name, link)
        if obstacle is not None:
            self._wait(name, link, obstacle)

    def _wait(self, name: str, link: str, obstacle: str) -> None:
        self.waiting[name] = Waiting(link, time.monotonic() + WAIT)
        self._again_at = time.monotonic() + AGAIN
        incident, _ = self._open[link, "down"]
        incident.waited += [name] * (name not in incident.waited)
        since = time.strftime("%H:%M:%S", time.localtime(incident.began))
        self._tell(name, f"link {link} is down since {since} ({self.controller.down_links[link]}), and job {name} needs it: "
                         f"{obstacle}; it waits up to {WAIT:g} s for the link. Mend it (ina net heal {link}, or its cable or "
                         "port), or end the job")

    def _moves(self, name: str, link: str) -> str | None:
        """Moves a job off a link. Returns None, or what is in the way."""
        try:
            self.controller.alternative(name)
        except AdmissionError as error:
            return str(error)
        obstacle = self._move(name, f"link {link} is down ({self.controller.down_links[link]})")
        if obstacle is not None:
            return obstacle.removeprefix("; ") or UNMOVED
        moved: Job = self.controller.jobs[name]
        self._open[link, "down"][0].moved[name] = moved.root.switch
        return None

    def _look_again(self) -> None:
        self._again_at = time.monotonic() + AGAIN
        for name, waiting in list(self.waiting.items()):
            if name not in self.controller.jobs or has_failed(self.service, name):
                del self.waiting[name]
            elif not (links := self._links_down(name)):
                del self.waiting[name]
                self._tell(name, f"link {waiting.link} is back; job {name} goes on")
            elif (obstacle := self._moves(name, links[0])) is None:
                del self.waiting[name]
            elif waiting.link not in links:  # that one is back, and another one is down: it has its own time
                self._wait(name, links[0], obstacle)
            elif time.monotonic() > waiting.until:
                del self.waiting[name]
                cause = f"link {waiting.link} is down ({self.controller.down_links[waiting.link]})"
                self.service.fail(name, f"{cause} for more than {WAIT:g} s, and there is no other way: {obstacle}")
                self.service.over(name)

    def _tell(self, name: str, notice: str) -> None:
        log.warning("%s", notice)
        for member in self.service.members(name):
            member.send({"event": "notice", "reason": notice}, [])
