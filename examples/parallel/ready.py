"""Replicas in place of waiting: each part of a batch is computed by two ranks, and whichever of them is ready first is enough.

A rank that sleeps now and then holds up nobody, and the losses are exactly those of one process: gradient coding by fractional
repetition (Tandon et al., ICML 2017). The other way, the first k of n ranks, is `Buckets("k=3")`: then averages have fewer parts.
"""

import time

import common
import torch
import torch.distributed as dist
from common import RATE, STEPS, batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ina.backend.ready import Buckets, average_ready, same_replicas

rank, ranks = common.start()
if dist.get_backend() != "ina":
    raise SystemExit("ready.py: needs the back end ina")
parts = max(1, ranks // 2)
buckets = Buckets(replicas=[[other for other in range(ranks) if other % parts == part] for part in range(parts)])
net = DistributedDataParallel(common.model(), bucket_cap_mb=0.003)
net.register_comm_hook(buckets, average_ready)
optimizer, losses = torch.optim.SGD(net.parameters(), lr=RATE), []
for step in range(STEPS):
    inputs, labels = batch(step)
    with torch.no_grad():
        losses.append(nn.functional.cross_entropy(net.module(inputs), labels).item())
    inputs, labels = batch(step, rank % parts, parts)
    if rank == ranks - 1 and step % 3 == 2:
        time.sleep(0.05)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
same_replicas(net.parameters())
buckets.close()
common.compare("the first of each pair of ranks", losses, common.alone())
common.finish()
