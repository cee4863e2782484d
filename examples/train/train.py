"""A training script like any other: DistributedDataParallel, with one word changed, "gloo" to "ina".

torchrun --nproc-per-node 4 examples/train/train.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

dist.init_process_group("ina")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same model everywhere; each rank draws its own data below
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
teacher = nn.Linear(64, 10)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

torch.manual_seed(rank)
for step in range(1, 201):
    x = torch.randn(128, 64)
    loss = nn.functional.cross_entropy(model(x), teacher(x).argmax(1))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 50 == 0:
        mean = loss.detach()
        dist.all_reduce(mean)  # through the switch, too
        if rank == 0:
            print(f"step {step}: loss {mean.item() / world:.3f}", flush=True)

dist.destroy_process_group()
