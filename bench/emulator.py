"""Virtual time: events per second of wall time, and how much slower than the network it stands for."""

from __future__ import annotations

import statistics
import time

import numpy as np

import topologies
from bench.common import Measurement
from ina import paths
from ina.compiler.build import compile_program
from ina.emulator.fabric import Fabric, Star
from ina.emulator.network import Wire

RUNS = 5


def measure() -> list[Measurement]:
    result = Measurement(
        "emulator: SwitchML over 100 Gb/s links in virtual time",
        ["workers", "values", "events/s", "frames/s", "virtual ms", "wall ms", "ratio"],
        "virtual time over wall time",
        "a million events a second: each is a packet through the worker or the compiled switch",
    )
    for workers, values in ((4, 64), (4, 256), (16, 256)):
        program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values)})
        wire = Wire(rate=100e9, delay=1e-6)
        walls, virtual, events, frames = [], 0.0, 0, 0
        for _ in range(RUNS):
            with Star(program.so_path, up=wire, down=wire) as star:
                job = star.admit(workers=workers, slots=512, values=values)
                arrays = [np.full(values * 4000, i, np.int32) for i in range(workers)]
                start = time.perf_counter()
                outcome = star.all_reduce(job, arrays)
                walls.append(time.perf_counter() - start)
                outcome.raise_failed()
                virtual, stats = outcome.seconds, star.stats()
                events, frames = stats["events"], stats["frames"]
        wall = statistics.median(walls)
        result.add(workers, values, events / wall, frames / wall, 1e3 * virtual, 1e3 * wall, virtual / wall)
    return [result, _trees()]


def _trees() -> Measurement:
    """128 hosts and 80 switches of a fat-tree, four jobs of 32 workers, each along a tree of its own."""
    result = Measurement(
        "emulator-trees: hierarchical SwitchML in a fat-tree of 128 hosts",
        ["values", "packet-hops/s", "hops", "virtual ms", "wall ms", "ratio"],
        "virtual time over wall time",
        "fewer packets a second than around one switch: the slots of 80 do not fit a core's caches",
    )
    topology = topologies.load("fat-tree", k=8, rate=100e9, delay=1e-6)
    for values in (64, 256):
        program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values)})
        walls, hops, virtual = [], 0, 0.0
        for _ in range(3):
            with Fabric(program.so_path, topology, max_frame=60 + 4 * values) as fabric:
                hosts = [host.name for host in topology.hosts]
                jobs = [fabric.admit(hosts[i : i + 32], 256, values) for i in range(0, 128, 32)]
                source, out = np.ones(values * 1000, np.int32), np.empty(values * 1000, np.int32)
                for job in jobs:
                    for worker in range(32):
                        fabric.submit_one(job, worker, source, out)
                start = time.perf_counter()
                fabric.run()
                walls.append(time.perf_counter() - start)
                fabric.check()
                hops, virtual = fabric.stats()["frames"], fabric.now / 1e12
        wall = statistics.median(walls)
        result.add(values, hops / wall, hops, 1e3 * virtual, 1e3 * wall, virtual / wall)
    return result
