"""One job by each protocol: all-reduce of float32 through SwitchML, ATP and a plain parameter server, against Gloo's ring."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.common import Figure, Measurement
from ina.aggregation import protocols
from ina.lab.training import launch

SIZES = [16 << 10, 1 << 20, 25 << 20]  # bytes
RANKS = 2
VALUES = 1024

# All in the same processes, in turn, so that other load on the machine affects all of them.
RANK = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=120))
sizes, names, values = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
groups = {name: dist.new_group(backend="ina", pg_options=ina.backend.Options(protocol=name, values=values)) for name in names}
groups["gloo"] = dist.new_group(backend="gloo")
for size in sizes:
    tensor = torch.full((size // 4,), 1e-3)
    block, blocks = max(1, min(50, (1 << 20) // size)), max(5, min(50, (256 << 20) // size))
    wall = {name: [] for name in groups}
    for turn in range(-2, blocks):
        for name, group in groups.items():
            dist.all_reduce(tensor.fill_(1e-3), group=group)
            start = time.perf_counter()
            for _ in range(block):
                dist.all_reduce(tensor, group=group)
            if turn >= 0:
                wall[name].append((time.perf_counter() - start) / block)
    if dist.get_rank() == 0:
        print(json.dumps({"size": size, "wall": wall}), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Measurement]:
    names = list(protocols.names())
    result = Measurement(
        f"protocols: all-reduce of float32, {RANKS} ranks, {VALUES} values in a packet, shared memory against Gloo over loopback",
        ["bytes", *(f"{name} us" for name in names), "gloo us", "ratio"],
        f"Gloo's time over {names[0]}'s",
        "SwitchML once through the switch, ATP once more through its server, the plain server every worker's packets",
    )

    def row(message: dict) -> None:
        wall = {name: Figure.of(times) for name, times in message["wall"].items()}
        result.add(message["size"], *(1e6 * wall[name] for name in (*names, "gloo")), wall["gloo"] / wall[names[0]])

    with tempfile.TemporaryDirectory() as folder:
        launch.run(["-c", RANK, str(SIZES), str(names).replace("'", '"'), str(VALUES)], RANKS, Path(folder), "ranks", 300, row)
    return [result]
