"""Layers of one all-reduce of the local world: what torch, our Python, the endpoint with its wake-ups, and the sum itself take.

The floor is what all workers and the switch compute for it, in one thread that never waits (bench/complete.py): packets are
built, added up, copied and read. With as many processors as ranks it is what each rank has to compute at least.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench import complete
from bench.common import Figure, Measurement
from ina.lab.training import launch

SIZES = [4, 16 << 10, 256 << 10, 1 << 20, 4 << 20]  # bytes
RANKS = (2, 4)
VALUES = 2048  # of the local world's packets
ROUNDS = 15

# Each layer is measured by leaving out those below it: torch alone, by a group's method that returns at once; our Python, by a
# job that says at once that the sum is there; the endpoint, by calling it without torch. Layers are taken in turn.
RANK = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("ina", timeout=timedelta(seconds=120))
from ina.backend.job import DTYPES, Job
from ina.backend.work import Ended
group, rank, done = dist.group.WORLD, dist.get_rank(), Ended([])
dist.all_reduce(torch.zeros(1))
endpoint, kind = group._job._endpoint, type(group)
whole, submit = kind.allreduce, Job.run
def nothing(self, *args): return done
def at_once(self, *args): return 0, 0, True
sizes, rounds = json.loads(sys.argv[1])
for size in sizes:
    tensor = torch.full((size // 4,), 1e-3)
    other = {dtype: torch.zeros(max(1, size // dtype.itemsize), dtype=dtype) for dtype in (torch.int64, torch.float64)}
    layers = {
        "torch": lambda: dist.all_reduce(tensor),
        "python": lambda: dist.all_reduce(tensor),
        "endpoint": lambda: endpoint.run_at(tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype], tensor, 10.0),
        "whole": lambda: dist.all_reduce(tensor),
        "async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
        "int64": lambda: dist.all_reduce(other[torch.int64]),
        "float64": lambda: dist.all_reduce(other[torch.float64]),
    }
    block, times = max(3, min(200, (4 << 20) // size)), {name: [] for name in layers}
    for turn in range(-1, rounds):
        for name, call in layers.items():
            dist.barrier()
            kind.allreduce = nothing if name == "torch" else whole
            Job.run = at_once if name == "python" else submit
            start = time.perf_counter()
            for _ in range(block):
                call()
            seconds = (time.perf_counter() - start) / block
            kind.allreduce, Job.run = whole, submit
            tensor.fill_(1e-3)
            if turn >= 0:
                times[name].append(seconds)
    if rank == 0:
        print(json.dumps({"size": size, "times": times}), flush=True)
dist.destroy_process_group()
"""


def floors(ranks: int) -> dict[int, Figure]:
    """Returns seconds of all workers' and the switch's work on as many processors as there are, by bytes of a tensor."""
    processors = min(ranks, len(os.sched_getaffinity(0)))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        bench, native = complete.compiled(Path(folder))
        for size in SIZES:
            count = max(4, (64 << 20) // max(size, 16 << 10))
            runs = [complete.in_memory(VALUES, bench, native, count=count, elements=size // 4) for _ in range(5)]
            work = Figure.of(1e-12 * rig.c.elapsed_ps / rig.c.count for rig in runs)  # of complete.WORKERS of them
            found[size] = work * (ranks / complete.WORKERS / processors)
    return found


def measure() -> list[Measurement]:
    results = []
    for ranks in RANKS:
        result = Measurement(
            f"layers {ranks} ranks: one all-reduce of float32 in shared memory",
            ["bytes", "torch us", "our Python us", "endpoint us", "whole us", "async us", "int64 us", "float64 us", "floor us",
             "ratio"],
            "the whole's time over the floor", "16 KiB and less: Python and wake-ups; from 1 MiB on the floor")
        floor = floors(ranks)

        def row(message: dict, result: Measurement = result, floor: dict[int, Figure] = floor) -> None:
            times = {name: 1e6 * Figure.of(seconds) for name, seconds in message["times"].items()}
            least = 1e6 * floor[message["size"]]
            ours = Figure.of(1e6 * (b - a) for a, b in zip(message["times"]["torch"], message["times"]["python"], strict=True))
            result.add(message["size"], times["torch"], ours, times["endpoint"], times["whole"], times["async"], times["int64"],
                       times["float64"], least, times["whole"] / least)

        with tempfile.TemporaryDirectory() as folder:
            launch.run(["-c", RANK, f"[{SIZES}, {ROUNDS}]"], ranks, Path(folder), "ranks", 120, row)
        results.append(result)
    return results
