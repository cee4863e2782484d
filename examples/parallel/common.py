"""Shared parts of the examples: a small task, and the losses of one process that sees all the data.

Each example trains the same model on the same batches, with its own kind of parallelism, and must have the same losses.
Run one with ``torchrun --nproc-per-node 2 examples/parallel/ddp.py``; ``BACKEND=gloo`` runs those that call nothing of ina's own
without the switch.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn

import ina.backend

STEPS, BATCH, WIDTH, CLASSES, RATE = 12, 64, 32, 4, 0.5


def start() -> tuple[int, int]:
    """Starts a process group. Returns rank and number of ranks."""
    torch.set_num_threads(1)
    ina.backend.register()  # automatic with an installed package, when torch is imported
    dist.init_process_group(os.environ.get("BACKEND", "ina"))
    return dist.get_rank(), dist.get_world_size()


def model() -> nn.Sequential:
    """Returns the model, with the same weights on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def batch(step: int, rank: int = 0, ranks: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns this rank's part of the batch of ``step``."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    labels = (inputs[:, :CLASSES] * 2).argmax(1)
    return inputs.chunk(ranks)[rank], labels.chunk(ranks)[rank]


def alone(net: nn.Module | None = None, optimizer=torch.optim.SGD, rate: float = RATE) -> list[float]:
    """Trains in one process. Returns the losses."""
    net = net or model()
    optimizer = optimizer(net.parameters(), lr=rate)
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(step)
        loss = nn.functional.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mean(loss: torch.Tensor) -> float:
    """Returns the mean of a loss over all ranks."""
    loss = loss.detach().clone()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()


def compare(name: str, losses: list[float], expected: list[float], tolerance: float = 1e-4) -> None:
    """Ends the program with an error when a loss differs by more than ``tolerance`` of the expected one."""
    worst = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, expected, strict=True))
    if dist.get_rank() == 0:
        print(f"{name:32} loss {losses[0]:.4f} -> {losses[-1]:.4f}, largest difference to one process {worst:.1e}", flush=True)
    if worst > tolerance:
        raise SystemExit(f"{name}: losses {losses} are not those of one process, {expected}")


def finish() -> None:
    """Prints the collectives through the switch and through Gloo, and the averages of ready ranks, and ends the group."""
    if dist.get_backend() == "ina" and dist.get_rank() == 0:
        stats = ina.backend.stats()
        for collective, ways in stats["calls"].items():
            print(f"  {collective:30} {ways['switch']:4} through the switch {ways['gloo']:4} through Gloo", flush=True)
        if stats["ready"]["rounds"]:
            print(f"  {'averages of ready ranks':30} {stats['ready']['rounds']:4} through the switch, "
                  f"{stats['ready']['partial']} of them without some rank", flush=True)
    dist.destroy_process_group()
