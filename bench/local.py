"""Collectives of the local world against Gloo over loopback, quiet and beside busy processes, and the time to the first one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.common import Figure, Measurement, computing
from ina.lab.training import launch

SIZES = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20]  # bytes of a rank's whole vector
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast"]
RANKS = (2, 4)
BUSY = (0, 4)  # processes that compute beside the ranks

# Both back ends in the same processes, in turn, so that other load on the machine affects both. A block of collectives is timed
# as a whole; one before it brings the ranks together.
RANK = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
began = time.perf_counter()
dist.init_process_group("ina", timeout=timedelta(seconds=120))
dist.all_reduce(torch.ones(1))
start = time.perf_counter() - began
rank, ranks = dist.get_rank(), dist.get_world_size()
groups = {"ina": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
run = {
    "all_reduce": lambda whole, piece, group: dist.all_reduce(whole, group=group),
    "all_gather": lambda whole, piece, group: dist.all_gather_into_tensor(whole, piece, group=group),
    "reduce_scatter": lambda whole, piece, group: dist.reduce_scatter_tensor(piece, whole, group=group),
    "broadcast": lambda whole, piece, group: dist.broadcast(whole, 0, group=group),
}
for size, collectives in json.loads(sys.argv[1]):
    for name in collectives:
        piece = torch.full((max(1, size // 4 // ranks),), 1e-3)
        whole = torch.full((1 if size == 4 and name in ("all_reduce", "broadcast") else len(piece) * ranks,), 1e-3)
        block, blocks = max(1, min(50, (1 << 20) // size)), max(3, min(60, (256 << 20) // size))
        wall = {back_end: [] for back_end in groups}
        for turn in range(-1, blocks):
            for back_end, group in groups.items():
                run[name](whole, piece, group)
                start_block = time.perf_counter()
                for _ in range(block):
                    run[name](whole, piece, group)
                if turn >= 0:
                    wall[back_end].append((time.perf_counter() - start_block) / block)
                whole.fill_(1e-3), piece.fill_(1e-3)
        if rank == 0:
            print(json.dumps({"name": name, "size": size, "wall": wall}), flush=True)
if rank == 0:
    stats = ina.backend.stats()
    print(json.dumps({"start": start, "run_by": stats["run_by"]}), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    starts = Measurement("start of a group: init_process_group and the first all-reduce", ["ranks", "busy processes", "ms"],
                         "milliseconds", "300 ms at most on a quiet machine", keys=2)
    results = []
    for ranks in RANKS:
        for load in BUSY:
            beside = f"beside {load} busy processes" if load else "quiet"
            result = Measurement(f"local {ranks} ranks {beside}: float32 in shared memory against Gloo over loopback",
                                 ["collective", "bytes", "ina us", "ina GB/s", "gloo us", "gloo GB/s", "ratio"],
                                 "Gloo's time over ours", "2 and more", keys=2)

            def row(message: dict, result: Measurement = result, place: tuple[int, int] = (ranks, load)) -> None:
                if "start" in message:
                    starts.add(*place, 1e3 * message["start"])
                    return
                size, wall = message["size"], {name: Figure.of(times) for name, times in message["wall"].items()}
                cells = [cell for name in ("ina", "gloo") for cell in (1e6 * wall[name], 1e-9 * size / wall[name])]
                result.add(message["name"], size, *cells, wall["gloo"] / wall["ina"])

            work = [[size, COLLECTIVES if size >= 1 << 20 else COLLECTIVES[:1]] for size in SIZES]
            with tempfile.TemporaryDirectory() as folder, computing(load):
                launch.run(["-c", RANK, str(work).replace("'", '"')], ranks, Path(folder), "ranks", 300, row)
            results.append(result)
    return [*results, starts]
