"""Recovery: all-reduce with losses, packets that a late worker costs, and needless repetitions on a busy machine.

In virtual time for each protocol, network, size and loss rate over seeds, beside the published fixed time-out.
In Mininet networks with and without four busy processes beside them, and beside virtual time, if there is Mininet.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bench.common import Measurement, computing, console
from ina.lab.kinds.allreduce import AllReduce, Reduction, in_processes
from ina.lab.processes import testbed
from ina.lab.virtual import virtual_network
from ina.net.ports import PS

NETWORKS = ("star", "fat-tree k=8")
LOSSES = (1e-4, 1e-3, 1e-2)
SIZES = ((200_000, 200), (2_000_000, 20))  # elements, seeds
STRAGGLERS = (1.5, 3.0)
BUSY = 4  # processes
TURNS = 3
TESTBED_NETWORKS = ("star", "fat-tree k=4", "topoopt")


def measure() -> Iterator[Measurement]:
    """Yields each table when it is complete: an error in a testbed does not cost the others."""
    yield _losses()
    yield _fixed()
    yield _stragglers()
    yield from _testbed()


def _config(**keys: Any) -> AllReduce:
    config = AllReduce(payload=False, workers=16, slots=256, placement="spread")
    return replace(config, **keys).resolved()


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _slowdown(config: AllReduce, seeds: int) -> tuple[float, list[float], list[Reduction]]:
    """Returns the seconds without loss, slow-downs in order, and the runs."""
    base = replace(config, loss=0.0).measure()[0].seconds
    runs = [replace(config, seed=seed).measure()[0] for seed in range(1, seeds + 1)]
    return base, sorted(run.seconds / base for run in runs), runs


def _again(runs: list[Reduction], name: str = "retransmissions") -> float:
    """Returns that count's share of all packets."""
    return sum(run.stats["workers"][name] for run in runs) / sum(run.stats["workers"]["tx_packets"] for run in runs)


def _losses() -> Measurement:
    result = Measurement(
        "recovery: all-reduce of 16 workers, 256 slots, 100 Gb/s, virtual time, by loss rate of each wire",
        ["protocol", "network", "elements", "loss %", "seeds", "no loss ms", "again %", "p50", "max", "p99"],
        "time over that without loss, 99th percentile over seeds", "at most 3 at 0.1 %", keys=4,
    )
    for protocol in ("switchml", "atp"):
        for network in NETWORKS:
            for elements, seeds in SIZES:
                for loss in LOSSES:
                    config = _config(protocol=protocol, topology=network, elements=elements, loss=loss)
                    base, times, runs = _slowdown(config, seeds)
                    result.add(protocol, network, elements, 100 * loss, seeds, 1e3 * base, 100 * _again(runs),
                               statistics.median(times), times[-1], _percentile(times, 0.99))
    return result


def _fixed() -> Measurement:
    result = Measurement(
        "fixed time-out: SwitchML, 16 workers in a star, 2,000,000 elements, virtual time, 1 ms as published beside adaptive",
        ["time-out", "loss %", "seeds", "again %", "p50", "max", "p99"],
        "time over that without loss, 99th percentile over seeds", "a fixed time-out costs a millisecond for each loss of a slot",
        keys=2,
    )
    for rto in ("fixed", "adaptive"):
        for loss in LOSSES:
            _, times, runs = _slowdown(_config(elements=2_000_000, loss=loss, rto=rto, rto_min=1e-3), 5)
            result.add(rto, 100 * loss, 5, 100 * _again(runs), statistics.median(times), times[-1], _percentile(times, 0.99))
    return result


def late(config: AllReduce, factor: float) -> tuple[int, int, int]:
    """Returns packets, repetitions and needless ones of an all-reduce in which one worker comes late, as if a step before, as
    long as the all-reduce, took it ``factor`` times as long."""
    place, alone = virtual_network.place(config), config.measure()[0].seconds
    with virtual_network.fabric(config, place) as fabric:
        above = virtual_network.servers(fabric, config, place)
        (job,) = virtual_network.admit(fabric, config, place, above)
        for worker in range(config.workers):
            after = round((factor - 1) * alone * PS) if worker == 3 else 0
            fabric.submit_one(job, worker, np.zeros(config.elements, np.int32), after=after)
        fabric.run()
        stats = [fabric.worker_stats(machine) for machine in job.machines]
    names = ("tx_packets", "retransmissions", "spurious")
    packets, again, needless = (sum(each[name] for each in stats) for name in names)
    return packets, again, needless


def _stragglers() -> Measurement:
    result = Measurement(
        "straggler: packets sent again while 15 workers wait for one, virtual time, no loss",
        ["protocol", "network", "elements", "straggler", "packets", "needless", "again %"],
        "share of packets that are sent again", "at most 2 %", keys=4,
    )
    for protocol in ("switchml", "atp"):
        for network in NETWORKS:
            for elements, _ in SIZES:
                for factor in STRAGGLERS:
                    packets, again, needless = late(_config(protocol=protocol, topology=network, elements=elements), factor)
                    result.add(protocol, network, elements, factor, packets, needless, 100 * again / packets)
    return result


def _testbed() -> Iterator[Measurement]:
    if reason := testbed.missing():
        console.print(f"recovery in a testbed: not measured: {reason}", highlight=False)
        return
    yield _needless()
    yield _agreement()


def _needless() -> Measurement:
    result = Measurement(
        "recovery in a testbed: SwitchML, 4 workers, links of 1 Gb/s, 500,000 elements, with busy processes beside",
        ["network", "busy", "loss %", "runs", "again %", "p50 ms", "max ms", "needless %"],
        "share of packets sent again though nothing was lost", "at most 1 % without loss", keys=3,
    )
    config = AllReduce(world="testbed", workers=4, elements=500_000, values=256, slots=64, pool=512, rate=1e9)
    for network in TESTBED_NETWORKS:
        for busy in (0, BUSY):
            for loss in (0.0, 1e-3):
                with computing(busy):
                    runs = [in_processes(replace(config, topology=network, loss=loss, seed=seed))[0]
                            for seed in range(1, TURNS + 1)]
                times = sorted(1e3 * run.seconds for run in runs)
                result.add(network, busy, 100 * loss, TURNS, 100 * _again(runs), statistics.median(times), times[-1],
                           100 * _again(runs, "spurious"))
    return result


def _agreement() -> Measurement:
    result = Measurement(
        "the same all-reduce in a testbed and in virtual time: SwitchML, 4 workers in a star of 20 Mb/s, 100,000 elements",
        ["world", "loss %", "runs", "again %", "p50 ms", "max ms", "p50"],
        "time over that without loss in the same world", "as in virtual time", keys=2,
    )
    config = AllReduce(workers=4, elements=100_000, values=256, slots=16, pool=512, rate=20e6, rto_min=0.01, rto_max=0.5)
    for world, runs_each in (("virtual", 20), ("testbed", 5)):
        base = 0.0
        for loss in (0.0, 1e-2, 5e-2):
            configs = [replace(config, world=world, loss=loss, seed=seed).resolved() for seed in range(1, runs_each + 1)]
            runs = [in_processes(each)[0] if world == "testbed" else each.measure()[0] for each in configs]
            times = sorted(1e3 * run.seconds for run in runs)
            median = statistics.median(times)
            base = base or median
            result.add(world, 100 * loss, runs_each, 100 * _again(runs), median, times[-1], median / base)
    return result
