"""Shrinking in place: ranks are killed in the middle of DDP training; the others go on in the same processes, on the same data.

    python examples/parallel/shrink.py --ranks 4 --kill 1 2

The losses are those of one process that sees all the data, before and after. torchrun would end the other ranks, too, when one
dies, so this script starts its ranks itself, and serves their store.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import common
import torch
import torch.distributed as dist
import torch.multiprocessing
from common import RATE, STEPS, batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ina.backend

FATAL = STEPS // 2  # the step in which ranks are killed


def agree(step: int, model: nn.Module) -> int:
    """Returns the step that all ranks go on with. One may have had the sums of its last step, and others not: all take the
    parameters of a rank that has made the most steps."""
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(steps, torch.tensor([step]))
    most = max(range(len(steps)), key=lambda rank: steps[rank].item())
    for parameter in model.parameters():
        dist.broadcast(parameter.data, most)
    return int(steps[most].item())


def train(rank: int, ranks: int, port: int, killed: list[int]) -> None:
    ina.backend.register()
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(os.environ.get("BACKEND", "ina"), store=store, rank=rank, world_size=ranks)
    first, expected, losses, step = rank, common.alone(), [], 0
    net = DistributedDataParallel(common.model())
    while step < STEPS:
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        try:
            while step < STEPS:
                if step == FATAL and first in killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                inputs, labels = batch(step)
                with torch.no_grad():
                    whole = nn.functional.cross_entropy(net.module(inputs), labels).item()
                inputs, labels = batch(step, dist.get_rank(), dist.get_world_size())
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(inputs), labels).backward()
                optimizer.step()
                step += 1
                losses[step - 1 :] = [whole]
        except RuntimeError as error:
            began = time.monotonic()
            ina.backend.shrink_group()
            step = agree(step, net.module)
            net = DistributedDataParallel(net.module)
            print(f"rank {first} of {ranks} is rank {dist.get_rank()} of {dist.get_world_size()} after "
                  f"{time.monotonic() - began:.2f} s, and goes on with step {step}: {str(error).splitlines()[0]}", flush=True)
    common.compare(f"shrunk from {ranks} to {dist.get_world_size()}", losses, expected)
    common.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kill", type=int, nargs="+", default=[1, 2], metavar="RANK")
    args = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=train, args=(rank, args.ranks, store.port, args.kill)) for rank in range(args.ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return int(any(process.exitcode for rank, process in enumerate(processes) if rank not in args.kill))


if __name__ == "__main__":
    sys.exit(main())
