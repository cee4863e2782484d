"""Replicas that die and come back, with torchft: one is killed before its sum; the others go on, and it joins them again.

    pip install 'ina[torchft]'
    RUST_LOG=error python examples/parallel/replicas.py --replicas 3 --kill 0

torchft decides who is in a step, and gives who comes back the parameters of the others; the sums go through the switch. The
losses are those of one process that sees all the data, and the replicas are the same to the bit. The script starts torchft's
lighthouse and the replicas itself; without RUST_LOG=error torchft prints hundreds of lines more. (torchft 0.2.0's own
DistributedDataParallel ends who lives, too, when a sum fails.)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from datetime import timedelta

import common
import torch
import torch.distributed as dist
import torch.multiprocessing
from common import BATCH, RATE, STEPS, batch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import ina.backend

try:
    import torchft
    import torchft.coordination
except ModuleNotFoundError as error:
    sys.exit(f"replicas.py: {error}; pip install 'ina[torchft]' installs it")

FATAL = STEPS // 2  # the step in which a replica is killed
WAIT = timedelta(seconds=30)


def train(replica: int, replicas: int, lighthouse: str, life: int, kill: int, back: object) -> None:
    torch.set_num_threads(1)
    model = common.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses: dict[int, float] = {}

    def state() -> dict:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}

    def load(state: dict) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses.update(state["losses"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ina.backend.torchft_group(WAIT.total_seconds())
    manager = torchft.Manager(
        pg=group, load_state_dict=load, state_dict=state, min_replica_size=replicas - 1, rank=0, world_size=1,
        store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse, replica_id=f"replica_{replica}",
        timeout=WAIT, quorum_timeout=WAIT, connect_timeout=WAIT, use_async_quorum=False)
    steps = torchft.Optimizer(manager, optimizer)
    if life > 0:
        back.set()
    while manager.current_step() < STEPS:
        steps.zero_grad()  # a quorum: who is in this step
        step, rank, size = manager.current_step(), manager.participating_rank(), manager.num_participants()
        if step == FATAL + 2:
            back.wait(60)  # so that the training is not over before it is back
        inputs, labels = batch(step)
        with torch.no_grad():
            losses[step] = nn.functional.cross_entropy(model(inputs), labels).item()
        inputs, labels = batch(step, rank, size)
        loss = nn.functional.cross_entropy(model(inputs), labels, reduction="sum") * size / BATCH
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = parameters_to_vector(gradients)
        if replica == kill and life == 0 and step == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        manager.allreduce(flat).wait()  # an average over the quorum; False, and no step, where it has failed
        vector_to_parameters(flat, gradients)
        steps.step()
    parameters = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    expected = common.alone()
    worst = max(abs(losses[step] - expected[step]) / expected[step] for step in range(STEPS))
    digest = hashlib.blake2b(parameters, digest_size=4).hexdigest()
    print(f"replica {replica} ends as one of {group.size()}, with the parameters {digest} and losses that differ from "
          f"one process's by {worst:.1e}", flush=True)
    manager.shutdown(wait=False)
    group.shutdown()
    if worst > 1e-4:
        raise SystemExit(f"losses {losses} are not those of one process, {expected}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=3, help="replicas of the training, 2 or more (3)")
    parser.add_argument("--kill", type=int, default=1, metavar="REPLICA", help="the one that is killed (1)")
    args = parser.parse_args()
    if args.replicas < 2 or args.kill not in range(args.replicas):
        parser.error(f"expected two replicas or more, and --kill from 0 to {max(args.replicas, 2) - 1}")
    lighthouse = torchft.coordination.LighthouseServer(bind="127.0.0.1:0", min_replicas=args.replicas - 1, join_timeout_ms=200,
                                                       heartbeat_timeout_ms=1000)
    context = torch.multiprocessing.get_context("spawn")
    back = context.Event()

    def start(replica: int, life: int) -> torch.multiprocessing.Process:
        process = context.Process(target=train, args=(replica, args.replicas, lighthouse.address(), life, args.kill, back))
        process.start()
        return process

    processes = [start(replica, 0) for replica in range(args.replicas)]
    processes[args.kill].join()
    print(f"replica {args.kill} has ended with {processes[args.kill].exitcode}, and comes back", flush=True)
    processes[args.kill] = start(args.kill, 1)
    for process in processes:
        process.join()
    lighthouse.shutdown()
    return int(any(process.exitcode for process in processes))


if __name__ == "__main__":
    sys.exit(main())
