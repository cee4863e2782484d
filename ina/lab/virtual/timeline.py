"""Timeline of a run in virtual time: spans of every worker, and samples of links, queues and slot pools.

``trace.json`` is in Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: one process a job, one
thread a worker; spans that overlap, such as all-reduces and the backward pass, are asynchronous. Links and pools are counters of
processes of their own. The report plots the busiest ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ina.lab.results import report
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.network import NEVER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVENTS_AT_ONCE = 100_000  # between two checks for Ctrl-C
US = 1e6
PLOTTED = 6  # lines of a plot: the busiest ones

Span = tuple[str, float, float]  # name, begin, end, s


@dataclass
class Timeline:
    """Spans and samples. ``every``: s between two samples, 0: none. A packet counts for a link's use where its sending begins.

    ``links``: by direction, (end, share of the time in use, packets waiting on average); ``pools``: by switch and job,
    (time, slots held); times in s. ``jobs``: spans of each worker. ``progress``: returns by job the bits of its tensor that a
    worker has; ``goodput``: by job, (end, bit/s since the sample before). ``outages``: name, beginning and end of a link's; None:
    it lasts.
    """

    every: float = 0.0
    watch: Callable[[Fabric], None] | None = None  # called after each step of the run
    jobs: list[tuple[str, list[list[Span]]]] = field(default_factory=list)
    links: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    pools: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    progress: Callable[[], Mapping[str, float]] | None = None
    goodput: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    outages: list[tuple[str, float, float | None]] = field(default_factory=list)
    _bits: dict[str, float] = field(default_factory=dict)
    _before: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)  # busy and queue, cumulative
    _last: int = 0

    def run(self, fabric: Fabric, until: int = NEVER - 1) -> bool:
        """Runs ``fabric``, to ``until`` ps at most, and takes samples when they are due."""
        step = round(self.every * PS)
        idle = fabric.run(min(until, self._last + step if step else until), EVENTS_AT_ONCE)
        if self.watch:
            self.watch(fabric)
        if step and fabric.now > self._last and (idle or fabric.now >= self._last + step):
            self._sample(fabric)
        return idle

    def _sample(self, fabric: Fabric) -> None:
        now, span = fabric.now, fabric.now - self._last
        for traffic in fabric.links():
            busy, queue = (traffic.utilisation or 0) * now, traffic.mean_queue * now
            was_busy, was_queue = self._before.get((traffic.link, traffic.source), (0, 0))
            self.links.setdefault(traffic.name, []).append((now / PS, (busy - was_busy) / span, (queue - was_queue) / span))
            self._before[traffic.link, traffic.source] = busy, queue
        for place, slots in fabric.held().items():
            self.pools.setdefault(place, []).append((now / PS, slots))
        for job, bits in (self.progress() if self.progress else {}).items():
            self.goodput.setdefault(job, []).append((now / PS, (bits - self._bits.get(job, 0.0)) * PS / span))
            self._bits[job] = bits
        self._last = now

    # ---- for Perfetto

    def write(self, path: Path) -> None:
        """Writes the trace; times in us of virtual time."""
        events: list[dict] = []
        for pid, (job, workers) in enumerate(self.jobs, start=1):
            events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": job}})
            for tid, spans in enumerate(workers):
                events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": f"worker {tid}"}})
                events += _spans(pid, tid, spans)
        events += self._link_counters(len(self.jobs) + 1) + self._pool_counters(len(self.jobs) + 2)
        path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))

    def _link_counters(self, pid: int) -> list[dict]:
        events = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": "links"}}] if self.links else []
        for name, samples in self.links.items():
            begin = 0.0
            for end, use, waiting in samples:  # a counter's value holds until its next one
                for quantity, value in (("use", use), ("packets waiting", waiting)):
                    events.append(_counter(pid, f"{name} {quantity}", begin, {quantity: round(value, 4)}))
                begin = end
        return events

    def _pool_counters(self, pid: int) -> list[dict]:
        events = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": "slot pools"}}] if self.pools else []
        for (switch, job), samples in self.pools.items():
            events += [_counter(pid, f"{switch} slots held by {job}", when, {"slots": slots}) for when, slots in samples]
        return events

    # ---- for the report

    def plots(self) -> list[tuple[str, str]]:
        """Returns captions and SVGs; none without samples."""
        if not self.links:
            return []
        busiest = sorted(self.links, key=lambda name: -_mean(self.links[name], 1))[:PLOTTED]
        longest = sorted(self.links, key=lambda name: -_mean(self.links[name], 2))[:PLOTTED]
        fullest = sorted(self.pools, key=lambda place: -max(slots for _, slots in self.pools[place]))[:PLOTTED]
        use = {name: [(t, 100 * use) for t, use, _ in self.links[name]] for name in busiest}
        queues = {name: [(t, waiting) for t, _, waiting in self.links[name]] for name in longest}
        figures = [("Use of the busiest links", _plot(use, "use of the link, %")),
                   ("The longest queues", _plot(queues, "packets that wait"))]
        if self.goodput:
            rates = {job: [(t, 1e-9 * rate) for t, rate in samples] for job, samples in self.goodput.items()}
            figures.insert(0, ("Goodput of a worker, and links that are down or slow", _plot(rates, "Gb/s", self.outages)))
        if fullest:
            slots_held = {f"{switch}, {job}": self.pools[switch, job] for switch, job in fullest}
            figures.append(("Slots that hold sums which are not complete", _plot(slots_held, "slots of the switch")))
        return figures


def _spans(pid: int, tid: int, spans: Sequence[Span]) -> list[dict]:
    events: list[dict] = []
    for number, (name, begin, end) in enumerate(spans):
        common = {"pid": pid, "tid": tid, "name": name}
        if is_compute(name):
            events.append({**common, "cat": "compute", "ph": "X", "ts": US * begin, "dur": US * (end - begin)})
        else:
            mark = {**common, "cat": name.split(" ")[0], "id": f"{pid}.{tid}.{number}"}
            events += [{**mark, "ph": "b", "ts": US * begin}, {**mark, "ph": "e", "ts": US * end}]
    return events


def is_compute(name: str) -> bool:
    """Returns True for a span in which the worker computes; others may overlap."""
    return name.startswith(("forward", "backward", "compute"))


def busy_time(spans: Sequence[Span]) -> float:
    """Returns the time in which at least one of the spans was under way, in their unit."""
    total: float = 0
    end: float = 0
    for _, first, last in sorted(spans, key=lambda span: span[1]):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def _counter(pid: int, name: str, when: float, values: dict[str, float]) -> dict:
    return {"ph": "C", "pid": pid, "ts": US * when, "name": name, "args": values}


def _mean(samples: Sequence[tuple[float, float, float]], column: int) -> float:
    """Returns the mean over time: samples may be of different lengths."""
    begins = [0.0, *(sample[0] for sample in samples)]
    return sum(s[column] * (s[0] - begin) for s, begin in zip(samples, begins, strict=False)) / samples[-1][0]


def _plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], ylabel: str, outages: Sequence[tuple[str, float, float | None]] = ()
) -> str:
    def draw(axes: Axes) -> None:
        for name, samples in lines.items():
            axes.step([1e3 * t for t, _ in samples], [y for _, y in samples], where="pre", label=name, linewidth=1)
        last = max(samples[-1][0] for samples in lines.values())
        for number, (name, begin, end) in enumerate(outages):
            color = f"C{len(lines) + number % 4}"
            axes.axvspan(1e3 * begin, 1e3 * (last if end is None else end), color=color, alpha=0.25, label=name)
        axes.set(xlabel="virtual time, ms", ylabel=ylabel, ylim=(0, None), xlim=(0, None))
        report.legend(axes)

    return report.svg(draw)
