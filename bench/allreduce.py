"""All-reduce of float32 over shared memory through the P4 switch, against Gloo over loopback, on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.common import Figure, Measurement
from ina.lab.training import launch

SIZES = [4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]  # bytes
RANKS = (2, 4)

# Both back ends in the same processes, in turn, so that other load on the machine affects both. A block of all-reduces
# is timed as a whole; one before it brings the ranks together. Processor time is of all ranks and the switch process.
RANK = """
import json, os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
from ina.backend import rendezvous
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
groups = {name: dist.new_group(backend=name) for name in ("ina", "gloo")}
def processor(pid):
    return sum(int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) for task in os.listdir(f"/proc/{pid}/task"))
def spent():
    return 1e-9 * sum(processor(pid) for pid in ([os.getpid(), *rendezvous._pids.values()] if rank == 0 else [os.getpid()]))
for size in json.loads(sys.argv[1]):
    tensor = torch.full((size // 4,), 1e-3)
    block, blocks = max(1, min(50, (1 << 20) // size)), max(5, min(100, (512 << 20) // size))
    wall, cpu = {name: [] for name in groups}, {name: [] for name in groups}
    for turn in range(-1, blocks):
        for name, group in groups.items():
            dist.all_reduce(tensor, group=group)
            tensor.fill_(1e-3)
            before, start = spent(), time.perf_counter()
            for _ in range(block):
                dist.all_reduce(tensor, group=group)
            if turn >= 0:
                wall[name].append((time.perf_counter() - start) / block)
                cpu[name].append((spent() - before) / block)
            tensor.fill_(1e-3)
    total = torch.tensor([cpu[name] for name in groups], dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        print(json.dumps({"size": size, "wall": wall, "cpu": dict(zip(groups, total.tolist()))}), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    results = []
    for ranks in RANKS:
        result = Measurement(
            f"allreduce {ranks} ranks: float32, shared memory against Gloo over loopback",
            ["bytes", "ina us", "ina GB/s", "ina CPU us", "gloo us", "gloo GB/s", "gloo CPU us", "ratio"],
            "Gloo's time over ours",
            "twice Gloo's bandwidth from 1 MiB up: the switch moves S up and S down a worker, the ring 2(n-1)/n S",
        )

        def row(message: dict, result: Measurement = result) -> None:
            size = message["size"]
            wall, cpu = ({name: Figure.of(times) for name, times in message[kind].items()} for kind in ("wall", "cpu"))
            cells = [cell for name in ("ina", "gloo") for cell in (1e6 * wall[name], 1e-9 * size / wall[name], 1e6 * cpu[name])]
            result.add(size, *cells, wall["gloo"] / wall["ina"])

        with tempfile.TemporaryDirectory() as folder:
            launch.run(["-c", RANK, str(SIZES)], ranks, Path(folder), "ranks", 120, row)
        results.append(result)
    return results
