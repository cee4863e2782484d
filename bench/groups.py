"""Groups: how long the first one of ranks that run takes to start, and what many of them cost, beside Gloo's own.

Each rank makes groups, one after the other, and sums 4 bytes in each. The switch process starts with the first one, finds its
program compiled, and ends with the job. With so many groups the ranks then do nothing for a second, and sum in the newest one.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.common import Figure, Measurement
from ina.lab.training import launch

RANKS = (2, 4)
COUNTS = (1, 10, 50, 100, 200)
STARTS = 5
BACK_ENDS = ("ina", "gloo")

RANK = """
import json, os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
from ina.backend import process_group, rendezvous
ina.backend.register()
torch.set_num_threads(1)
back_end, counts = json.loads(sys.argv[1])
group, word = None, torch.zeros(1)
def cost(pid):
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return len(os.listdir(f"/proc/{pid}/fd")), memory / 1024
began = time.perf_counter()
dist.init_process_group(back_end, timeout=timedelta(seconds=120))
dist.all_reduce(word)
start = torch.tensor([time.perf_counter() - began])
dist.all_reduce(start, op=dist.ReduceOp.MAX)
made, seconds = 1, start.item()
for count in counts:
    if count > made:
        began = time.perf_counter()
        for _ in range(count - made):
            group = dist.new_group(backend=back_end)
            dist.all_reduce(word, group=group)
        seconds, made = (time.perf_counter() - began) / (count - made), count
    dist.barrier()
    idle = time.process_time()
    time.sleep(1.0)
    idle, sums = time.process_time() - idle, []
    for _ in range(7):
        dist.barrier()
        began = time.process_time()
        for _ in range(300):
            dist.all_reduce(word, group=group)
        sums.append((time.process_time() - began) / 500)
    if dist.get_rank() == 0:
        switch = cost(next(iter(rendezvous._pids.values()))) if back_end == "ina" else (0, 0)
        print(json.dumps([count, seconds, idle, sums, *cost("self"), *switch]), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    starts = Measurement("start of the first group: in ranks that run, and a sum", ["ranks", "ina ms", "Gloo ms", "ratio"],
                         "times Gloo's", "300 ms at most on a quiet machine")
    costs = Measurement("many groups: what they cost",
                        ["ranks", "back end", "groups", "one more ms", "idle ms/s", "CPU of a sum us", "descriptors", "MiB",
                         "switch's descriptors", "switch's MiB", "ratio"],
                        "descriptors of a rank over Gloo's", "the same for each group, however many there are", keys=3)
    _run("ina", RANKS[0], [1])  # so that the program is compiled
    for ranks in RANKS:
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(STARTS):
            for back_end in BACK_ENDS:
                seconds[back_end].append(_run(back_end, ranks, [1])[0][1])
        ours, peer = (1e3 * Figure.of(seconds[back_end]) for back_end in BACK_ENDS)
        starts.add(ranks, ours, peer, ours / peer)
        rows = {back_end: _run(back_end, ranks, COUNTS) for back_end in BACK_ENDS}
        for back_end in BACK_ENDS:
            for row, least in zip(rows[back_end], rows["gloo"], strict=True):
                count, each, idle, sums, descriptors, memory, *switch = row
                costs.add(ranks, back_end, count, 1e3 * each, 1e3 * idle, 1e6 * Figure.of(sums), descriptors, memory,
                          *(switch if back_end == "ina" else ("–", "–")), descriptors / least[4])
    return [starts, costs]


def _run(back_end: str, ranks: int, counts: list[int] | tuple[int, ...]) -> list[list]:
    """Returns what rank 0 says for each of the counts."""
    rows: list[list] = []
    with tempfile.TemporaryDirectory() as folder:
        launch.run(["-c", RANK, json.dumps([back_end, counts])], ranks, Path(folder), "ranks", 120, rows.append)
    return rows
