"""A rank of a training on several servers, as its own process: python server_rank.py WORK, with torch's variables set.

    examples/parallel/ddp.py   that example, whose losses it also prints, to the bit
    bytes                      steps of DDP, and what the server's network card carried meanwhile
    on                         steps of DDP until something fails; it prints each, and why it ended

The report is one line of JSON on standard output.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples/parallel")]

import common  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import ina.backend  # noqa: E402

WIDE, STEPS = 512, 6
CARD = "nic"  # of each server, as server_networks.py names it


def say(report: dict[str, Any]) -> None:
    print(json.dumps(report), flush=True)


def carried() -> tuple[int, int]:
    """Bytes that the card of this process's server has received and sent since it was made, from the Ethernet header on."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == CARD:
            fields = counters.split()
            return int(fields[0]), int(fields[8])
    raise LookupError(f"/proc/self/net/dev has no interface {CARD}: does this process run in a server?")


def example(path: Path) -> None:
    losses: dict[str, list[str]] = {}
    compare, finish = common.compare, common.finish

    def noted(name: str, ours: list[float], expected: list[float], tolerance: float = 1e-4) -> None:
        losses[name] = [loss.hex() for loss in ours]
        compare(name, ours, expected, tolerance)

    def finished() -> None:
        stats = ina.backend.stats()
        say({"losses": losses, "sums": stats["switch"]["sums"], "calls": stats["calls"]})
        dist.barrier()
        finish()

    common.compare, common.finish = noted, finished
    runpy.run_path(str(path), run_name="__main__")


def ddp() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(common.WIDTH, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU(),
                           nn.Linear(WIDE, common.CLASSES))
    net = nn.parallel.DistributedDataParallel(layers)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    inputs, labels = common.batch(number, dist.get_rank(), dist.get_world_size())
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def count_bytes() -> None:
    """Bytes are counted from a barrier on to the next: DDP's first two steps have sums of another kind, too."""
    common.start()
    net, optimizer = ddp()
    for number in range(2):
        step(net, optimizer, number)
    dist.barrier()
    sums, before = ina.backend.stats(), carried()
    for number in range(STEPS):
        step(net, optimizer, number)
    dist.barrier()
    after, stats = carried(), ina.backend.stats()
    say({
        "values": STEPS * sum(parameter.numel() for parameter in net.parameters()),
        "received": after[0] - before[0], "sent": after[1] - before[1],
        "again": stats["worker"]["retransmissions"] - sums["worker"]["retransmissions"],
        "sums": stats["switch"]["sums"] - sums["switch"]["sums"],
    })
    dist.barrier()
    dist.destroy_process_group()


def go_on() -> None:
    """The last line has the reason, and when it was known."""
    common.start()
    net, optimizer = ddp()
    try:
        for number in range(1_000_000):
            step(net, optimizer, number)
            say({"step": number})
    except BaseException as error:
        say({"error": f"{type(error).__name__}: {error}", "at": time.monotonic()})
        raise


if __name__ == "__main__":
    work = sys.argv[1]
    if work == "bytes":
        count_bytes()
    elif work == "on":
        go_on()
    else:
        example(ROOT / work)
