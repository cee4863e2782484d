"""Experiments in virtual time: one run on the event clock, with its timeline; nothing in it reads the clock on the wall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from ina.base.bounds import Range
from ina.base.settings import key
from ina.lab.kind import Check, Experiment, Measured, Outcome, Row
from ina.lab.results import journal
from ina.lab.results.progress import Watch
from ina.lab.virtual.timeline import Timeline

WORLD = "where: virtual (the event clock; every run of one seed is equal to the bit)"
PROGRAM = "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own"
SWITCH = "embedded, or tna: the protocol's program for Tofino, on the same switch"
EMBEDDED = ("embedded", "tna")  # switches that virtual time has
SAMPLE = "s of virtual time between two looks at links, queues and slot pools, for trace.json and the report; 0: none"
PAYLOAD = "true; or false: packets without values, for scale: the same packets and times, but no sums to check"
SUMS = Row("sums", "sums (payload = false)", "sums", "{}")


def sample() -> float:
    """Returns the key `sample`."""
    return key(0.0, SAMPLE, Range(0, 1, "seconds", "s"))


def rto() -> str:
    """Returns the key `rto`."""
    return key("adaptive", "adaptive; or fixed: each packet has a time-out of rto_min, as published (SwitchML)",
               choices=("adaptive", "fixed"))


class Simulated(Experiment):
    """Base of the kinds that virtual time has: their shared keys, and their run."""

    sample: float

    def measure(self, timeline: Timeline | None = None) -> Sequence[Measured]:
        """Runs the experiment and records its events in ``timeline``. Returns a result for each job."""
        raise NotImplementedError

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        with Watch(console, journal.of(folder)) as watch:
            timeline = Timeline(self.sample, watch)
            results = self.measure(timeline)
        if timeline.jobs:
            timeline.write(folder / "trace.json")
        yield Outcome(results, plots=timeline.plots())

    def checks(self) -> Iterator[Check]:
        yield self.sample == 0 or 1e-9 <= self.sample <= 1, "sample", "0, or 1e-9 to 1"
        yield from super().checks()


def sums(checked: bool) -> str | None:
    """Returns the table's note on sums; None if they were checked."""
    return None if checked else "not checked"
