"""All-reduce of narrow types in real ranks over shared memory, beside as many float32, and codec "auto" beside the fixed one."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

from bench.common import Figure, Measurement
from ina.lab.training import launch

ELEMENTS = 1_000_000
RANKS = (2, 4)
CASES = {  # dtype, codec; "auto" by itself, as groups that are used less often have colder caches
    "narrow types": (
        ("float32", "block"), ("bfloat16", "block"), ("bfloat16", "lanes-16"), ("float16", "lanes-16"), ("int32", "block"),
        ("int16", "block"), ("int8", "block"), ("uint8", "block"), ("bool", "block"),
    ),
    "chosen codec": (("float32", "block"), ("float32", "auto")),
}

# All in the same processes, in another order in each turn. The first calls, in which "auto" tries its ways, are not measured.
RANK = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
elements, cases = json.loads(sys.argv[1])
dist.init_process_group("ina", timeout=timedelta(seconds=60))
options = {codec: ina.backend.Options(codec=codec) for _, codec in cases}
groups = {codec: dist.new_group(pg_options=each) for codec, each in options.items()}
tensors = [(torch.arange(elements) % 2).to(getattr(torch, dtype)) for dtype, _ in cases]
wall, packets = [[] for _ in cases], [0] * len(cases)
for turn in range(-20, 40):
    for i in torch.randperm(len(cases), generator=torch.Generator().manual_seed(100 + turn)).tolist():
        codec, tensor = cases[i][1], tensors[i].clone()
        dist.barrier()
        before, start = ina.backend.stats()["worker"]["results"], time.perf_counter()
        dist.all_reduce(tensor, group=groups[codec])
        if turn >= 0:
            wall[i].append(time.perf_counter() - start)
        packets[i] = ina.backend.stats()["worker"]["results"] - before
if dist.get_rank() == 0:
    print(json.dumps({"wall": wall, "packets": packets, "plans": ina.backend.stats()["plans"]}), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    results = []
    for ranks, (name, cases) in itertools.product(RANKS, CASES.items()):
        result = Measurement(
            f"{name}, {ranks} ranks: all-reduce of {ELEMENTS:,} values over shared memory",
            ["dtype", "codec", "packets", "us", "ratio"], "time over that of as many float32", "at most 1; auto at most 1.05",
            keys=2,
        )

        def rows(message: dict, result: Measurement = result, cases: tuple[tuple[str, str], ...] = cases) -> None:
            times = [Figure.of(each) for each in message["wall"]]
            for (dtype, codec), packets, seconds in zip(cases, message["packets"], times, strict=True):
                result.add(dtype, codec, packets, 1e6 * seconds, seconds / times[0])

        with tempfile.TemporaryDirectory() as folder:
            launch.run(["-c", RANK, json.dumps([ELEMENTS, cases])], ranks, Path(folder), "ranks", 120, rows)
        results.append(result)
    return results
