"""Links of a fabric that fail, heal, flap and become slow while it runs, and what the control plane does about it.

    events = link_events.events(topology, ["at 200us fail s1-s9 for 1ms"])
    failures = LinkFailures(fabric, events, jobs=[job])     # a MovingJob
    fabric.run()
    failures.incidents()                                    # what was down or slow, from when to when, and what it cost

The controller probes every link at each multiple of ``interval``. When ``misses`` probes in a row have not been answered, it
takes the link for down: forwarding tables go around it, and jobs whose tree has it are moved to another tree, with another
incarnation (ina/aggregation/controller/admission.py). A job without another tree stays, and goes on when its link is back, or
another one that it can use; the first probe that is answered makes a link usable again, for routes and later trees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import gt

from ina.aggregation.controller.job_records import AdmissionError
from ina.net.ports import PS
from ina.topology.link_events import Action, LinkEvent
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.moving import MovingJob

INTERVAL = 100e-6  # s between two probes of a link
MISSES = 3  # probes without an answer after which a link is taken for down
STEP = round(1e-6 * PS)  # ps between two looks for progress, at first


@dataclass
class Incident:
    """A link, or a direction of it, that was down, or slower than its topology says. Times in s of virtual time.

    ``rate``: bit/s, 0: it was down. ``ended``, ``noticed``: None, if it was not. ``lost``: frames. ``moved``: jobs, and the
    roots of their other trees; ``stayed``: jobs without another tree; ``again``: parts of tensors that began again.
    ``progress``: by job, from its beginning until every worker had a result since it was noticed; of a slow link, which nobody
    notices, that of a packet which the worker sent since its beginning.
    """

    link: str
    began: float
    rate: float = 0.0
    ended: float | None = None
    noticed: float | None = None
    lost: int = 0
    moved: dict[str, str] = field(default_factory=dict)
    stayed: list[str] = field(default_factory=list)
    again: int = 0
    progress: dict[str, float] = field(default_factory=dict)


class LinkFailures:
    """Plans ``events`` in a fabric. ``jobs``: those that can be moved."""

    def __init__(
        self, fabric: Fabric, events: Sequence[LinkEvent], interval: float = INTERVAL, misses: int = MISSES,
        jobs: Sequence[MovingJob] = (),
    ):
        self._fabric, self._jobs = fabric, jobs
        self._interval, self._misses = max(1, round(interval * PS)), misses
        self._names = fabric.topology.link_names()
        self._down: set[tuple[int, int]] = set()  # link, direction
        self._slow: dict[tuple[int, int], float] = {}  # and its rate
        self._probing: set[int] = set()
        self._missed: Counter[int] = Counter()
        self._open: dict[tuple[int, str], tuple[Incident, int]] = {}  # by link and state; and frames lost there before
        self._incidents: list[Incident] = []
        for event in events:
            fabric.plan(round(event.at * PS), partial(self._apply, event), watches=True)

    def incidents(self) -> list[Incident]:
        """Returns what has happened so far, in its order."""
        for (link, state), (incident, before) in self._open.items():
            incident.lost = self._lost(link) - before if state == "down" else 0
        return self._incidents

    # ---- links

    def _apply(self, event: LinkEvent) -> None:
        fabric, link = self._fabric, event.link
        own_rate = fabric.topology.links[link].rate
        for direction in event.directions:
            end = fabric.end(link, direction)
            if event.action is Action.FAIL:
                fabric.set_up(end, False)
                self._down.add((link, direction))
                continue
            if event.action is Action.HEAL:
                fabric.set_up(end, True)
                self._down.discard((link, direction))
            rate = own_rate if event.action is Action.HEAL else event.rate
            fabric.set_rate(end, rate)
            self._slow.pop((link, direction), None)
            if rate != own_rate:
                self._slow[link, direction] = rate
        self._note(link, "down", {direction: 0.0 for number, direction in self._down if number == link})
        if self._note(link, "slow", {direction: rate for (number, direction), rate in self._slow.items() if number == link}):
            self._watch_jobs(link)
        if link not in self._probing:
            self._probing.add(link)
            self._probe_later(link)

    def _note(self, link: int, state: str, rates: dict[int, float]) -> bool:
        """Notes the directions of a link that are in a ``state``, with their rates (bit/s; 0: down). While one is, with the same
        lowest rate, it is one incident. Returns True if another one begins."""
        name = self._names[link]
        if len(rates) == 1 and not self._fabric.topology.links[link].simplex:
            (direction,), ends = rates, self._fabric.topology.ends[link]
            name = f"{ends[direction].node}>{ends[1 - direction].node}"
        if (link, state) in self._open:
            incident, before = self._open[link, state]
            if rates and incident.rate == min(rates.values()):
                incident.link = self._names[link] if len(rates) > 1 else incident.link
                return False
            incident.ended, incident.lost = self._now, self._lost(link) - before if state == "down" else 0
            del self._open[link, state]
        if not rates:
            return False
        known = state == "down" and self._names[link] in self._fabric.controller.down_links
        incident = Incident(name, self._now, min(rates.values()), noticed=self._now if known else None)
        self._open[link, state] = incident, self._lost(link)
        self._incidents.append(incident)
        if known:
            self._move_jobs(link)  # no probe will be missed anew: what stays is noted now
        return True

    def _lost(self, link: int) -> int:
        """Returns the frames that were lost on a link because it was down."""
        directions = range(1 if self._fabric.topology.links[link].simplex else 2)
        return sum(self._fabric.wire_stats(self._fabric.end(link, direction))["down"] for direction in directions)

    @property
    def _now(self) -> float:
        return self._fabric.now / PS

    # ---- the controller

    def _probe_later(self, link: int) -> None:
        self._fabric.plan((self._fabric.now // self._interval + 1) * self._interval, partial(self._probe, link),
                          watches=True)

    def _probe(self, link: int) -> None:
        """Probes a link until the controller knows how it is."""
        name, known = self._names[link], self._fabric.controller.down_links
        answered = not any(number == link for number, _ in self._down)
        self._missed[link] = 0 if answered else self._missed[link] + 1
        if self._missed[link] == self._misses and name not in known:
            known[name] = f"{self._misses} probes in a row were not answered"
            self._go_around(link)
        elif answered and name in known:
            del known[name]
            self._fabric.reroute()
            for other in [number for number, link_name in enumerate(self._names) if link_name in known]:
                self._move_jobs(other)  # those that had no other tree
        if answered == (name not in known):
            self._probing.discard(link)
        else:
            self._probe_later(link)

    def _go_around(self, link: int) -> None:
        self._fabric.reroute()
        for incident in self._incidents_of(link, "down"):
            incident.noticed = self._now
        self._move_jobs(link)

    def _incidents_of(self, link: int, state: str) -> list[Incident]:
        return [self._open[link, state][0]] if (link, state) in self._open else []

    def _move_jobs(self, link: int) -> None:
        """Moves jobs whose tree has the link to other trees, where there are any."""
        incidents = self._incidents_of(link, "down")
        for job in self._jobs:
            for stripe in job.stripes_over(link):
                name = job.job.jobs[stripe].name
                try:
                    again = job.move(stripe)
                except AdmissionError:
                    for incident in incidents:
                        incident.stayed += [name] * (name not in incident.stayed)
                else:
                    tree = job.job.jobs[stripe].tree
                    assert tree is not None  # it has been moved along one
                    for incident in incidents:
                        incident.moved[name] = tree.root
                        incident.stayed = [stayed for stayed in incident.stayed if stayed != name]
                        incident.again += again
                for incident in incidents:
                    self._watch(job, stripe, name, incident, job.results(stripe))

    def _watch_jobs(self, link: int) -> None:
        for job in self._jobs:
            for stripe in job.stripes_over(link):
                under_way = [results + job.slots for results in job.results(stripe)]
                for incident in self._incidents_of(link, "slow"):
                    self._watch(job, stripe, job.job.jobs[stripe].name, incident, under_way)

    def _watch(self, job: MovingJob, stripe: int, name: str, incident: Incident, before: list[int]) -> None:
        """Looks for results of all workers after ``before`` ones, within a hundredth of the time that they take."""
        if name in incident.progress or job.job.jobs[stripe].name != name:
            return
        if all(map(gt, job.results(stripe), before)):
            incident.progress[name] = self._now - incident.began
            return
        step = max(STEP, round((self._now - incident.began) * PS / 100))
        self._fabric.plan(self._fabric.now + step, partial(self._watch, job, stripe, name, incident, before), watches=True)
