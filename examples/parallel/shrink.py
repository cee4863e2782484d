"""Shrinking and growing in place: ranks are killed in the middle of DDP training; the others go on in the same processes, on the
same data. With --back, those that were killed are started again, and come back as what they were.

    python examples/parallel/shrink.py --ranks 4 --kill 1 2 --back

The losses are those of one process that sees all the data, all the time. torchrun would end the other ranks, too, when one dies,
so this script starts its ranks itself, and serves their store.
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
    """Returns the step that all ranks go on with. One may have had the sums of its last step, and others not, and who has just
    come has none: all take the parameters of a rank that has made the most steps."""
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(steps, torch.tensor([step]))
    most = max(range(len(steps)), key=lambda rank: steps[rank].item())
    for parameter in model.parameters():
        dist.broadcast(parameter.data, most)
    return int(steps[most].item())


def train(first: int, args: argparse.Namespace, port: int, again: bool) -> None:
    ina.backend.register()
    torch.set_num_threads(1)
    store, model, net, step = dist.TCPStore("127.0.0.1", port, is_master=False), common.model(), None, 0
    if again:
        group = ina.backend.join_group(first, store)
    else:
        dist.init_process_group(os.environ.get("BACKEND", "ina"), store=store, rank=first, world_size=args.ranks)
        group = dist.group.WORLD
    expected, losses = common.alone(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    while step < STEPS:
        try:
            if net is not None:  # who is new begins with what the others do after this
                wait = (args.ranks, 60.0) if args.back and step == FATAL + 2 else ()
                group, before = ina.backend.grow_group(*wait), group
                net = net if group is before else None
            if net is None:
                step, net = agree(step, model), DistributedDataParallel(model)
                print(f"rank {first} of {args.ranks} is rank {dist.get_rank()} of {dist.get_world_size()} from step {step} on",
                      flush=True)
            if step == FATAL and first in args.kill and not again:
                os.kill(os.getpid(), signal.SIGKILL)
            inputs, labels = batch(step)
            with torch.no_grad():
                losses[step] = nn.functional.cross_entropy(model(inputs), labels).item()
            inputs, labels = batch(step, dist.get_rank(), dist.get_world_size())
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            step += 1
        except RuntimeError as error:
            began, net = time.monotonic(), None
            group = ina.backend.shrink_group()
            print(f"rank {first} of {args.ranks} goes on after {time.monotonic() - began:.2f} s: {str(error).splitlines()[0]}",
                  flush=True)
    seen = sorted(losses)
    common.compare(f"{args.ranks} ranks, {len(args.kill)} killed, {dist.get_world_size()} at the end",
                   [losses[step] for step in seen], [expected[step] for step in seen])
    common.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="ranks of the training (4)")
    parser.add_argument("--kill", type=int, nargs="+", default=[1, 2], metavar="RANK", help="those that are killed (1 2)")
    parser.add_argument("--back", action="store_true", help="start them again")
    args = parser.parse_args()
    if not set(args.kill) < {*range(args.ranks)}:
        parser.error(f"--kill: expected ranks from 0 to {args.ranks - 1}, and not all of them")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = torch.multiprocessing.get_context("spawn")

    def start(rank: int, again: bool) -> torch.multiprocessing.Process:
        process = context.Process(target=train, args=(rank, args, store.port, again))
        process.start()
        return process

    processes = {rank: start(rank, False) for rank in range(args.ranks)}
    for rank in args.kill:
        processes[rank].join()
        if args.back:
            processes[rank] = start(rank, True)
    for process in processes.values():
        process.join()
    return int(any(process.exitcode for rank, process in processes.items() if args.back or rank not in args.kill))


if __name__ == "__main__":
    sys.exit(main())
