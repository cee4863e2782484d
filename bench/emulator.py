"""Virtual time: packet-hops a second and core, memory per packet, and growth of time with the number of packets.

A packet-hop is one arrival of a frame, at a switch (which runs the compiled program) or at a host (which runs the worker). Times
are the processor's, of one core: other load on the machine matters little.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bench.common import Figure, Measurement
from ina import topology as topologies
from ina.aggregation import protocols
from ina.base import paths
from ina.base.native import lib
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual.fabric import Fabric, Star
from ina.worlds.virtual.network import Wire

RUNS = 5
AIM = 3e6  # packet-hops a second and core with 64 elements
DISTANCE = 1.5  # largest ratio of times a packet, from the first size to the last, that counts as linear


def measure() -> list[Measurement]:
    results = [_star(), _trees(), _linear(), _memory()]
    by_name = {measurement.name.split(":")[0]: measurement for measurement in results}
    best = max(float(row[2]) for row in by_name["emulator"].rows if row[1] == 64)
    growth = max(float(row[-1]) for row in by_name["emulator-linear"].rows)
    hop = {(row[0], row[1]): 1e9 / float(row[2]) for row in by_name["emulator-trees"].rows}
    print(f"With 64 elements: {best / 1e6:.2f} M packet-hops/s and core, aim {AIM / 1e6:g}; "
          f"time a packet at the largest size over that at the smallest: {growth:.2f}, aim below {DISTANCE:g}.")
    print(f"What bounds it: a hop takes {hop[64, 'with']:.0f} ns with 64 values, {hop[256, 'with']:.0f} ns with 256, and "
          f"{hop[256, 'without']:.0f} ns when 256 do not travel. Small packets are bound by the instructions of "
          f"event, program and worker, large ones by the memory that values go through "
          f"({1 - hop[256, 'without'] / hop[256, 'with']:.0%} of their time).")
    return results


def _program(values: int) -> Path:
    return compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values)}).so_path


def _longest(values: int) -> int:
    return max(256, protocols.frame_bytes("switchml", values))


def _star() -> Measurement:
    result = Measurement(
        "emulator: SwitchML over 100 Gb/s links around one switch",
        ["workers", "values", "packet-hops/s", "hops", "virtual ms", "processor ms", "ratio"],
        "virtual time over processor time",
        "three million packet-hops a second with 64 values; each worker's tensor is its own, and streams through memory",
        keys=2,
    )
    for workers, values in ((4, 64), (16, 64), (4, 256), (16, 256)):
        wire = Wire(rate=100e9, delay=1e-6)
        walls, virtual, hops = [], 0.0, 0
        for _ in range(RUNS):
            with Star(_program(values), hosts=workers, up=wire, down=wire) as star:
                job = star.admit(workers=workers, slots=512, values=values)
                arrays = [np.full(values * 8000, i, np.int32) for i in range(workers)]
                start = time.process_time()
                outcome = star.all_reduce(job, arrays)
                walls.append(time.process_time() - start)
                outcome.raise_failed()
                virtual, hops = outcome.seconds, star.stats()["frames"]
        wall = Figure.of(walls)
        result.add(workers, values, hops / wall, hops, 1e3 * virtual, 1e3 * wall, virtual / wall)
    return result


def _in_trees(values: int, packets: int, payload: bool = True) -> tuple[float, dict, int, int]:
    """Runs four jobs of 32 workers in a fat-tree of 128 hosts and 80 switches, each along a tree of its own. Returns processor
    time, figures, virtual ps, and bytes of a packet that waits at a switch."""
    topology = topologies.load("fat-tree", k=8, rate=100e9, delay=1e-6)
    with Fabric(_program(values), topology, max_frame=_longest(values), payload=payload) as fabric:
        hosts = [host.name for host in topology.hosts]
        jobs = [fabric.admit(hosts[i : i + 32], 256, values) for i in range(0, 128, 32)]
        source, out = np.ones(values * packets, np.int32), np.empty(values * packets, np.int32)
        for job in jobs:
            for worker in range(32):
                fabric.submit_one(job, worker, source, out)
        start = time.process_time()
        fabric.run()
        seconds = time.process_time() - start
        fabric.check()
        waiting = lib.ina_switch_parked_bytes(fabric.switches[0].pointer)
        return seconds, fabric.stats(), fabric.now, waiting


def _trees() -> Measurement:
    result = Measurement(
        "emulator-trees: hierarchical SwitchML in a fat-tree of 128 hosts, with payload and without",
        ["values", "payload", "packet-hops/s", "hops", "virtual ms", "processor ms", "ratio"],
        "virtual time over processor time",
        "as around one switch, though the slots of 80 do not fit a core's caches; large packets faster without payload",
        keys=2,
    )
    for values in (64, 256):
        for payload in (True, False):
            runs = [_in_trees(values, 2000, payload) for _ in range(3)]
            busy, hops, virtual = Figure.of(run[0] for run in runs), runs[0][1]["frames"], runs[0][2] / 1e12
            result.add(values, "with" if payload else "without", hops / busy, hops, 1e3 * virtual, 1e3 * busy, virtual / busy)
    return result


def _linear() -> Measurement:
    result = Measurement(
        "emulator-linear: time against packets, in the same fat-tree with 64 values",
        ["packets of a worker", "packet-hops", "processor ms", "ns a hop", "of the smallest"],
        "nanoseconds a hop over those of the smallest run",
        "1: the calendar and the pool take as long for an event however many there are",
    )
    first = 0.0
    for packets in (500, 2000, 8000):
        runs = [_in_trees(64, packets) for _ in range(3)]
        seconds, hops = Figure.of(run[0] for run in runs), runs[0][1]["frames"]
        first = first or seconds / hops
        result.add(packets, hops, 1e3 * seconds, 1e9 * seconds / hops, seconds / hops / first)
    return result


def _memory() -> Measurement:
    result = Measurement(
        "emulator-memory: bytes of a packet beside its payload",
        ["values", "where", "bytes", "payload", "of 200"],
        "bytes over 200",
        "headers, headroom and the calendar on wires and in NICs; at a switch also metadata and descriptor of the program",
        keys=2,
    )
    for values in (64, 256):
        _, stats, _, waiting = _in_trees(values, 500)
        wire = stats["memory"] / stats["most_frames"]
        for where, size in (("wire, NIC", wire), ("queue of a switch", float(waiting))):
            result.add(values, where, size - 4 * values, 4 * values, (size - 4 * values) / 200)
    return result
