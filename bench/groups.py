"""Groups: how long the first one of ranks that run takes to start, beside other libraries', and what many of them cost, beside
Gloo's.

Each rank makes groups, one after the other, and sums 4 bytes in each. The switch process starts with the first one, finds its
program compiled, and ends with the job. With so many groups the ranks then do nothing for a second, and sum in the newest one.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.common import Figure, Measurement, computing
from bench.local import BUSY, RANKS, installed
from bench.peers import standing
from ina.lab.training import launch

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
CALLS = 300  # of a sample
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
        for _ in range(CALLS):
            dist.all_reduce(word, group=group)
        sums.append((time.process_time() - began) / CALLS)
    if dist.get_rank() == 0:
        switch = cost(next(iter(rendezvous._pids.values()))) if back_end == "ina" else (0, 0)
        print(json.dumps([count, seconds, idle, sums, *cost("self"), *switch]), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    return [starts(), costs()]


def starts(all_ranks: Sequence[int] = RANKS, loads: Sequence[int] = BUSY, times: int = STARTS) -> Measurement:
    """Times from the call that joins a group to the first sum, of the slowest rank."""
    libraries = installed()
    result = Measurement("start of a group: in ranks that run, and the first all-reduce",
                         ["ranks", "beside", *(f"{library.names[0]} ms" for library in libraries)], "milliseconds",
                         "300 ms at most on a quiet machine", keys=2)
    for ranks, load in itertools.product(all_ranks, loads):
        seconds: dict[str, list[float]] = {library.names[0]: [] for library in libraries}
        with tempfile.TemporaryDirectory() as folder, computing(load):
            for turn, library in itertools.product(range(-1, times), libraries):  # the first one may compile the program
                with standing([library], ranks, Path(folder)) as groups:
                    name = library.names[0]
                    seconds[name] += [max(groups[name].starts)] * (turn >= 0)
        result.add(ranks, f"{load} busy" if load else "quiet", *(1e3 * Figure.of(each) for each in seconds.values()))
    return result


def costs(all_ranks: Sequence[int] = RANKS, counts: Sequence[int] = COUNTS) -> Measurement:
    result = Measurement("many groups: what they cost",
                         ["ranks", "back end", "groups", "one more ms", "idle ms/s", "CPU of a sum us", "descriptors", "MiB",
                          "switch's descriptors", "switch's MiB", "ratio"],
                         "descriptors of a rank over Gloo's", "the same for each group, however many there are", keys=3)
    for ranks in all_ranks:
        rows = {back_end: _run(back_end, ranks, counts) for back_end in BACK_ENDS}
        for back_end, own in rows.items():
            for (count, each, idle, sums, descriptors, memory, *switch), least in zip(own, rows["gloo"], strict=True):
                result.add(ranks, back_end, count, 1e3 * each, 1e3 * idle, 1e6 * Figure.of(sums), descriptors, memory,
                           *(switch if back_end == "ina" else ("–", "–")), descriptors / least[4])
    return result


def _run(back_end: str, ranks: int, counts: Sequence[int]) -> list[list]:
    """Returns what rank 0 says for each of the counts."""
    rows: list[list] = []
    with tempfile.TemporaryDirectory() as folder:
        launch.run(["-c", RANK, json.dumps([back_end, list(counts)])], ranks, Path(folder), "ranks", 120, rows.append)
    return rows
