"""Fully sharded data parallel (FSDP2): parameters are gathered when needed, gradients reduced and scattered."""

import common
import torch
from common import RATE, STEPS, batch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, ranks = common.start()
mesh = init_device_mesh("cpu", (ranks,))
net = common.model()
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
losses = []
for step in range(STEPS):
    inputs, labels = batch(step, rank, ranks)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(common.mean(loss))
common.compare("FSDP2", losses, common.alone())
common.finish()
