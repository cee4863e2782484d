"""All-reduce of float32 over shared memory through the P4 switch, against Gloo over loopback, on this machine."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.common import Measurement
from ina.experiment import launch

SIZES = [4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]  # bytes
RANKS = (2, 4)

RANK = """
import json, os, statistics, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
torch.set_num_threads(1)
backend, sizes = sys.argv[1], json.loads(sys.argv[2])
if backend == "ina":
    import ina.backend
    ina.backend.register()
dist.init_process_group(backend, timeout=timedelta(seconds=60))
for size in sizes:
    tensor = torch.randn(size // 4)
    count = max(5, min(200, (256 << 20) // size))
    for _ in range(3):
        dist.all_reduce(tensor)
        tensor.fill_(1e-3)
    times = []
    for _ in range(count):
        dist.barrier() if size > 1 << 16 else None
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
        tensor.fill_(1e-3)
    if dist.get_rank() == 0:
        print(json.dumps({"size": size, "seconds": statistics.median(times)}), flush=True)
dist.destroy_process_group()
"""


def times(backend: str, ranks: int, runs: int = 3) -> dict[int, float]:
    """Median over `runs` jobs of each job's median, seconds by size in bytes."""
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            launch.run(
                ["-c", RANK, backend, str(SIZES)],
                ranks,
                Path(folder),
                backend,
                120,
                lambda message: found[message["size"]].append(message["seconds"]),
            )
    return {size: statistics.median(values) for size, values in found.items()}


def measure() -> list[Measurement]:
    results = []
    for ranks in RANKS:
        result = Measurement(
            f"allreduce {ranks} ranks: float32, shared memory against Gloo over loopback",
            ["bytes", "ina us", "ina GB/s", "gloo us", "gloo GB/s", "ratio"],
            "Gloo's time over ours",
            "twice Gloo's bandwidth from 1 MiB up: the switch moves S up and S down a worker, the ring 2(n-1)/n S",
        )
        ina, gloo = times("ina", ranks), times("gloo", ranks)
        for size in SIZES:
            result.add(
                size, 1e6 * ina[size], 1e-9 * size / ina[size], 1e6 * gloo[size], 1e-9 * size / gloo[size],
                gloo[size] / ina[size],
            )  # fmt: skip
        results.append(result)
    return results
