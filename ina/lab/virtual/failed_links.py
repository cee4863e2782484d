"""Links that fail or become slow in an experiment: their events, the jobs that move, and what it cost."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ina.base.bounds import Range
from ina.base.plurals import counted
from ina.base.settings import ConfigError, key
from ina.lab import limits
from ina.lab.kind import Check, Experiment, Finding, Measured
from ina.lab.virtual import virtual_network
from ina.lab.virtual.virtual_network import Networked, Place
from ina.topology import TopologyError, link_events
from ina.topology.link_events import LinkEvent
from ina.worlds.testbed.description import LINK_PROBE
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.link_failures import INTERVAL, MISSES, LinkFailures
from ina.worlds.virtual.moving import Finished, MovingJob
from ina.worlds.virtual.network import Completion
from ina.worlds.virtual.parameter_servers import Servers

NAMED = 6  # incidents in a finding
LEAST_PROBE = 5e-3  # s in the testbed, whose switches share processors


@dataclass(frozen=True)
class FailingLinks(Networked):
    """Keys of an experiment whose links may fail."""

    link_events: tuple[str, ...] = key((), "of links in virtual time or the testbed, such as 'at 200us fail s1-s9 for 1ms', "
                                           "'at 1ms heal s1-s9', 'at 1ms flap s1-s9 every 50us for 1ms', "
                                           "'at 300us slow s2-h3 10G'")
    link_probe: float = key(0.0, "s between two probes of each link, by which the controller notices that it is down; 0: "
                            "100 us in virtual time, 50 ms in the testbed", limits.TIME)
    link_misses: int = key(MISSES, "probes in a row without an answer after which a link is down: routes and jobs go around it",
                           Range(1, 1000))

    def checks(self) -> Iterator[Check]:
        testbed = self.world == "testbed"
        try:
            delayed = any(link_events.statement(line).delay is not None for line in self.link_events)
            yield testbed or not delayed, "link_events", "no delays outside world = 'testbed'"
        except TopologyError as error:
            yield False, "link_events", f"events of links: {error}"
        least = LEAST_PROBE if testbed else 1e-12
        yield self.link_probe >= least, "link_probe", f"{least:g} s or more in world = {self.world!r}"
        yield from super().checks()

    def derived(self) -> dict[str, object]:
        probe = LINK_PROBE if self.world == "testbed" else INTERVAL
        return {**super().derived(), "link_probe": self.link_probe or probe}

    @classmethod
    def check_networks(cls, experiments: Sequence[Experiment]) -> None:
        super().check_networks(experiments)
        for experiment in experiments:
            if isinstance(experiment, FailingLinks) and experiment.link_events:
                events(experiment, virtual_network.place(experiment))

    def describe(self, results: Sequence[Measured]) -> str:
        """Returns a paragraph, in HTML."""
        incidents = results[0].stats.get("links", {}).get("incidents", ()) if results else ()
        return " ".join((super().describe(results), *(f"L{html.escape(sentence(incident))[1:]}." for incident in incidents)))


def events(config: FailingLinks, place: Place) -> tuple[LinkEvent, ...]:
    """Returns the events of ``config.link_events``. Raises ConfigError."""
    try:
        return link_events.events(place.topology, config.link_events)
    except TopologyError as error:
        raise ConfigError(f"link_events: {error}") from None


class Failing:
    """A run whose links fail: jobs of workers that can be moved; collectives between hosts are routed around what is down."""

    def __init__(self, fabric: Fabric, config: FailingLinks, place: Place, jobs: Sequence[FabricJob], above: Servers | None):
        self._fabric, self._finished, self._jobs = fabric, Finished(fabric), list(jobs)
        waits = virtual_network.waits(config)
        self._moving = [MovingJob(fabric, job, config.window, config.values, self._finished, above, **waits) if job.jobs else None
                        for job in jobs]
        self._failures = LinkFailures(fabric, events(config, place), config.link_probe, config.link_misses,
                                      [job for job in self._moving if job])

    def submit(self, number: int, arrays: Sequence[np.ndarray], reduction: int) -> None:
        """Submits the tensors of a job, in place."""
        moving = self._moving[number]
        if moving:
            moving.submit(arrays, reduction)
        else:
            self._fabric.submit_all(self._jobs[number], arrays, reduction=reduction)

    def jobs(self) -> list[FabricJob]:
        """Returns the jobs as they are now."""
        return [moving.job if moving else job for moving, job in zip(self._moving, self._jobs, strict=True)]

    def done(self) -> dict[int, Completion]:
        """Returns by present machine the last completion of its worker."""
        self._finished.read()
        done = dict(self._finished.latest)
        for moving in self._moving:
            if moving:
                done |= moving.completions()
        return done

    def figures(self) -> dict[str, object]:
        """Returns what was down or slow, for the record."""
        return {"incidents": [asdict(incident) for incident in self._failures.incidents()]}

    def outages(self) -> list[tuple[str, float, float | None]]:
        """Returns names, beginnings and ends of what was down or slow, s; None: it lasts."""
        return [(incident.link, incident.began, incident.ended) for incident in self._failures.incidents()]


def of_testbed(
    incidents: Sequence[Mapping], stalls: Mapping[str, Sequence[tuple[float, float]]], began: float
) -> dict[str, object]:
    """Returns what was down or slow in the testbed, as ``Failing.figures`` has it. ``incidents``: the controller's
    (ina/aggregation/controller/link_recovery.py); ``stalls``: by job, times without a result; ``began``: the run's start; all as
    of time.time()."""
    records = []
    for one in incidents:
        noticed = one["noticed"]
        since = noticed if one["state"] == "down" else one["began"]  # a slow link is not taken for down
        ends = {job: [end for start, end in times if since is not None and start <= since <= end]
                for job, times in stalls.items()}
        records.append({
            "link": one["link"], "state": one["state"], "reason": one["reason"], "rate": one["rate"], "lost": one["lost"],
            "began": one["began"] - began,
            "ended": None if one["ended"] is None else one["ended"] - began,
            "noticed": None if noticed is None else noticed - began, "moved": one["moved"], "stayed": one["waited"],
            "again": None, "progress": {job: max(times) - one["began"] for job, times in ends.items() if times},
        })
    return {"incidents": records}


def explained(finding: Finding, run: Mapping) -> Finding:
    """Adds to a finding which links were down or slow, from when to when, and what it cost."""
    incidents = run["stats"].get("links", {}).get("incidents", ())
    if not incidents:
        return finding
    texts = [sentence(incident) for incident in incidents[:NAMED]]
    rest = [f"and {len(incidents) - NAMED} more events of links"] * (len(incidents) > NAMED)
    return replace(finding, shown="; ".join((finding.shown, *texts, *rest)))


def sentence(incident: Mapping) -> str:
    """Returns a text about an incident, as it was recorded (link_failures.Incident)."""
    slow = incident.get("state") == "slow" or incident["rate"] > 0
    how = incident.get("reason") or f"{incident['rate'] / 1e9:g} Gb/s"
    state = f"slow ({how})" if slow else "down"
    end = "the end" if incident["ended"] is None else f"{1e3 * incident['ended']:.3f} ms"
    text = [f"link {incident['link']} was {state} from {1e3 * incident['began']:.3f} ms to {end}"]
    if incident["lost"]:
        text.append(f"{counted(incident['lost'], 'frame was', 'frames were')} lost on it")
    if incident["noticed"] is not None:
        text.append(f"it was noticed after {1e3 * (incident['noticed'] - incident['began']):.3f} ms")
    elif not slow:
        text.append("it was not noticed")
    if incident["moved"]:
        moves = ", ".join(f"{job} to a tree with root {root}" for job, root in incident["moved"].items())
        again = incident["again"]  # None: not known
        text.append(f"which moved {moves}" + (f", where {again} parts of tensors began again" if again is not None else ""))
    if incident["stayed"]:
        text.append(f"{', '.join(incident['stayed'])} had no other tree")
    if incident["progress"]:
        text.append(f"next result after {1e3 * max(incident['progress'].values()):.3f} ms")
    return ", ".join(text)
