"""Comparison of two worlds: one experiment under Mininet, by the clock on the wall, and in virtual time, point by point.

Where links are slow enough for this machine to keep up (10 Mb/s is), times must be within ``TOLERATED`` of each
other; where nothing was lost, every worker must have sent the same number of packets in both. Other load on this machine only
adds to the time on the wall: where times disagree the testbed tries again, ``TRIES`` times at most, and the fastest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ina.base.settings import ConfigError
from ina.lab import plan, sweep
from ina.lab.kinds.allreduce import AllReduce, in_processes
from ina.lab.results import compare
from ina.lab.results.record import Result

TOLERATED = 0.10  # of the time in virtual time
TRIES = 4
WORLDS = ("testbed", "virtual")


class Disagreement(RuntimeError):
    """Worlds differ by more than they may; the message names point, job and figures."""


@dataclass(frozen=True)
class Pair:
    """One job at one point of the sweep: seconds and packets (sums over its workers) in either world."""

    point: str
    job: str
    seconds: tuple[float, float]  # testbed, virtual
    packets: tuple[int, int]
    lossless: bool
    tries: int = 1  # of the testbed, of which this is the fastest

    @property
    def apart(self) -> float:
        """Relative difference of the times: positive if the testbed took longer."""
        return self.seconds[0] / self.seconds[1] - 1

    @property
    def wrong(self) -> str:
        """The disagreement in words; empty: there is none."""
        if abs(self.apart) > TOLERATED:
            return f"times are {self.apart:+.1%} apart, expected at most {TOLERATED:.0%} (the fastest of {self.tries})"
        return self.wrong_packets

    @property
    def wrong_packets(self) -> str:
        """The part of ``wrong`` that does not depend on the speed of this machine."""
        if self.lossless and self.packets[0] != self.packets[1]:
            return f"{self.packets[0]} and {self.packets[1]} packets were sent, expected the same number: nothing was lost"
        return ""


def pairs(real: Sequence[Result], virtual: Sequence[Result], names: Sequence[str]) -> list[Pair]:
    """Pairs the results of both worlds. ``names``: of the points, in the order of both lists."""
    rows = []
    for name, measured, simulated in zip(names, real, virtual, strict=True):
        config = simulated.config
        assert isinstance(config, AllReduce)
        lossless = config.loss == config.corrupt == config.duplicate == config.reorder == 0
        for a, b in zip(measured.summary, simulated.summary, strict=True):
            rows.append(Pair(name, a["job"], (1e-3 * a["time_ms"], 1e-3 * b["time_ms"]), (a["packets"], b["packets"]), lossless))
    return rows


def again(pair: Pair, config: AllReduce) -> Pair:
    """Tries the testbed again until times agree. Returns the fastest time, and the packets of the last try."""
    while pair.tries < TRIES and not pair.wrong_packets and abs(pair.apart) > TOLERATED:
        job = next(run for run in in_processes(config) if run.job == pair.job)
        packets = (int(job.stats["workers"]["tx_packets"]), pair.packets[1])
        pair = replace(pair, seconds=(min(job.seconds, pair.seconds[0]), pair.seconds[1]), packets=packets, tries=pair.tries + 1)
    return pair


def table(rows: Sequence[Pair]) -> Table:
    result = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("point", "testbed ms", "of", "virtual ms", "apart", "packets", "packets"):
        result.add_column(heading, justify="left" if heading == "point" else "right")
    for pair in rows:
        jobs = f" {pair.job}" if pair.job != "job 0" else ""
        real, virtual = (f"{1e3 * s:.2f}" for s in pair.seconds)
        result.add_row(pair.point + jobs, real, str(pair.tries), virtual, f"{pair.apart:+.1%}", *(f"{n:,}" for n in pair.packets))
    result.caption = "testbed ms: the fastest of so many"
    return result


def agree(path: Path, overrides: dict[str, str], sweeps: dict[str, str], root: Path, console: Console, at_once: int) -> None:
    """Runs the experiment in both worlds and prints the figures of each.

    Raises:
        Disagreement: a point differs by more than it may.
        ConfigError: the experiment cannot run in both worlds. Also what sweep does.
    """
    if "world" in overrides:
        raise ConfigError(f"world = {overrides['world']!r}: expected none: the experiment runs in {' and '.join(WORLDS)}")
    plans = [plan.load(path, {**overrides, "world": world}, sweeps) for world in WORLDS]
    if not isinstance(plans[0].base, AllReduce):
        raise ConfigError(f"kind = {plans[0].base.kind!r}: expected {AllReduce.kind!r}, which both worlds have")
    real, virtual = (compare.points(sweep.sweep(each, root, console, processes=at_once, tables=False)) for each in plans)
    compared = pairs(real, virtual, [str(point) for point in plans[0].points])
    configs = {str(point): point.config for point in plans[0].points if isinstance(point.config, AllReduce)}
    compared = [again(pair, configs[pair.point]) for pair in compared]
    console.print(table(compared))
    if wrong := [f"{pair.point} {pair.job}: {pair.wrong}" for pair in compared if pair.wrong]:
        raise Disagreement("\n".join([f"{len(wrong)} of {len(compared)} do not agree", *wrong]))
    console.print(f"All {len(compared)} agree: times within {TOLERATED:.0%}, as many packets where nothing was lost")
