"""What the examples share: a small task, and the losses of one process that sees all the data.

Each example trains the same model on the same batches, in its own way of being parallel, and must see the same losses.
Run one with ``torchrun --nproc-per-node 2 examples/parallel/ddp.py``; ``BACKEND=gloo`` runs it without the switch.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn

import ina.backend

STEPS, BATCH, WIDTH, CLASSES, RATE = 12, 64, 32, 4, 0.5


def start() -> tuple[int, int]:
    """Rank and number of ranks of a new process group."""
    torch.set_num_threads(1)
    ina.backend.register()  # an installed package does this by itself when torch is imported
    dist.init_process_group(os.environ.get("BACKEND", "ina"))
    return dist.get_rank(), dist.get_world_size()


def model() -> nn.Sequential:
    """The same weights wherever it is called."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def batch(step: int, rank: int = 0, ranks: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the batch of ``step``."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    labels = (inputs[:, :CLASSES] * 2).argmax(1)
    return inputs.chunk(ranks)[rank], labels.chunk(ranks)[rank]


def alone(net: nn.Module | None = None, optimizer=torch.optim.SGD, rate: float = RATE) -> list[float]:
    """The losses of one process."""
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
    """Over all ranks."""
    loss = loss.detach().clone()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()


def compare(what: str, losses: list[float], expected: list[float], tolerance: float = 1e-4) -> None:
    """Ends the program with an error when a loss differs by more than ``tolerance`` of the expected one."""
    worst = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, expected, strict=True))
    if dist.get_rank() == 0:
        print(f"{what:32} loss {losses[0]:.4f} -> {losses[-1]:.4f}, largest difference to one process {worst:.1e}", flush=True)
    if worst > tolerance:
        raise SystemExit(f"{what}: losses {losses} are not those of one process, {expected}")


def finish() -> None:
    """Says which way the collectives went, and ends the group."""
    if dist.get_backend() == "ina" and dist.get_rank() == 0:
        for collective, ways in ina.backend.stats()["calls"].items():
            print(f"  {collective:30} {ways['switch']:4} through the switch {ways['gloo']:4} through Gloo", flush=True)
    dist.destroy_process_group()
