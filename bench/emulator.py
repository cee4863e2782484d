"""Virtual time: events per second of wall time, and how much slower than the network it stands for."""

from __future__ import annotations

import statistics
import time

import numpy as np

from bench.common import Measurement
from ina import paths
from ina.compiler.build import compile_program
from ina.emulator.fabric import Star
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
    return [result]
