"""Tensor parallel through DTensor: the first layer is split by columns, the second by rows, their sum goes through the switch."""

import common
import torch
from common import RATE, STEPS, batch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

rank, ranks = common.start()
mesh = init_device_mesh("cpu", (ranks,))
net = parallelize_module(common.model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
losses = []
for step in range(STEPS):
    inputs, labels = batch(step)  # every rank sees all of it
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(common.mean(loss))
common.compare("tensor parallel", losses, common.alone())
common.finish()
