"""Collectives of the local world beside Gloo, Open MPI, MPICH and oneCCL on one machine, in turn in the same run, quiet and
beside busy processes."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.common import Cell, Figure, Measurement, computing, console
from bench.peers import LIBRARIES, Group, Library, standing

SIZES = (4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20, 256 << 20)  # bytes of a rank's whole vector
RANKS = (2, 4)
BUSY = (0, 4)  # processes that compute beside the ranks
# Bytes of the vector that cross each rank's link in each direction, at least, if ranks only send to each other: bytes/time times
# this is the bus bandwidth (NVIDIA's nccl-tests, doc/PERFORMANCE.md). An aggregated all-reduce carries each byte once up and once
# down, however many ranks there are; it has the ring's factor here, so that the figures compare.
BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
}
EXPECTED = "less than 1 where each rank has a core: MPI's spin and read each other's memory; more where they share cores"
BLOCK = 10e-3  # seconds of a turn, if one call does not take longer: several slices of a scheduler where others compute, too
MOST_CALLS = 10_000  # of a turn
LEAST_TURNS = 3  # of a peer for a collective and size
SECONDS = 0.2  # of a peer for a collective and size; after them it takes no more turns
LARGE = 100 << 20  # bytes from which there are only all-reduces, and no more turns than the least


@dataclass
class Samples:
    """Seconds and processor seconds of a call, by turns."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def take_turns(groups: dict[str, Group], collective: str, size: int) -> dict[str, Samples]:
    """Compares one result of each peer, then measures them in turn, in another order each time. Peers that wait for a processor
    take milliseconds, so turns are bound by time, not by calls."""
    samples = {name: Samples() for name in groups}
    calls = dict.fromkeys(groups, 1)
    spent = dict.fromkeys(groups, 0.0)

    def take(name: str, more: float) -> None:
        began = time.monotonic()
        turn = groups[name].turn(name, collective, size, calls[name])
        spent[name] += time.monotonic() - began
        samples[name].seconds.append(turn.seconds)
        samples[name].processor.append(turn.processor)
        calls[name] = max(1, min(round(more * calls[name]), round(BLOCK / turn.seconds)))

    for name, group in groups.items():
        group.turn(name, collective, size, 0)
    for name in groups:
        take(name, MOST_CALLS)
        if calls[name] > 1:  # a call by itself is no turn like the others
            samples[name] = Samples()
    order = random.Random(size)
    budget = 0.0 if size >= LARGE else SECONDS
    while names := [name for name in groups if len(samples[name].seconds) < LEAST_TURNS or spent[name] < budget]:
        for name in order.sample(names, len(names)):
            take(name, 2)
    return samples


def columns(names: Sequence[str]) -> list[str]:
    """Headings of what `cells` returns."""
    return ["ina us", "ina CPU us", "ina GB/s", "ina bus GB/s", *(f"{name} us" for name in names if name != "ina"),
            "best peer", "best peer us", "its CPU us", "its bus GB/s", "ratio"]


def cells(samples: dict[str, Samples], collective: str, size: int, ranks: int) -> list[Cell]:
    """Figures of one collective and size; the ratio is that to the peer with the least median in this run."""
    seconds = {name: Figure.of(each.seconds) for name, each in samples.items()}
    processor = {name: Figure.of(each.processor) for name, each in samples.items()}
    best = min((name for name in seconds if name != "ina"), key=lambda name: seconds[name])

    def bandwidth(name: str, factor: float) -> Cell:
        return 1e-9 * factor * size / seconds[name] if size else "–"

    bus = BUS[collective](ranks) if size else 0.0
    return [1e6 * seconds["ina"], 1e6 * processor["ina"], bandwidth("ina", 1), bandwidth("ina", bus),
            *(1e6 * each for name, each in seconds.items() if name != "ina"),
            best, 1e6 * seconds[best], 1e6 * processor[best], bandwidth(best, bus), seconds[best] / seconds["ina"]]


def installed() -> list[Library]:
    """Returns the libraries that are there; says what to install for the others."""
    for library in LIBRARIES:
        if missing := library.missing():
            console.print(f"  {library.label} is left out: {missing}", highlight=False)
    return [library for library in LIBRARIES if not library.missing()]


def measure(sizes: Sequence[int] = SIZES, all_ranks: Sequence[int] = RANKS, loads: Sequence[int] = BUSY) -> Iterator[Measurement]:
    libraries = installed()
    names = [name for library in libraries for name in library.names]
    titles = [library.title() for library in libraries]
    for ranks in all_ranks:
        title = f"{ranks} ranks: float32 on one machine, by {', '.join(titles)}"
        limit = "time of the row's fastest peer over ours"
        sums = Measurement(f"allreduce {title}", ["beside", "bytes", *columns(names)], limit, EXPECTED, keys=2)
        others = Measurement(f"collectives {title}", ["collective", "beside", "bytes", *columns(names)], limit, EXPECTED, keys=3)
        for load in loads:
            beside = f"{load} busy" if load else "quiet"
            with tempfile.TemporaryDirectory() as folder, computing(load), standing(libraries, ranks, Path(folder)) as groups:
                for collective in (*BUS, "barrier"):
                    began = time.monotonic()
                    console.print(f"  {ranks} ranks, {beside}, {collective}:", end="", highlight=False)
                    for size in _sizes(collective, sizes):
                        console.print(f" {size}", end="", highlight=False)
                        row = cells(take_turns(groups, collective, size), collective, size, ranks)
                        if collective == "all_reduce":
                            sums.add(beside, size, *row)
                        else:
                            others.add(collective, beside, size, *row)
                    console.print(f" bytes in {time.monotonic() - began:.0f} s", highlight=False)
        yield from (sums, others)


def _sizes(collective: str, sizes: Sequence[int]) -> Sequence[int]:
    if collective == "barrier":
        return [0]
    return sizes if collective == "all_reduce" else [size for size in sizes if 4 < size < LARGE]
