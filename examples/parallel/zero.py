"""ZeroRedundancyOptimizer: each rank keeps the optimizer's state of a part of the parameters, and broadcasts its updates."""

import common
import torch
from common import STEPS, batch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

rank, ranks = common.start()
net = DistributedDataParallel(common.model())
optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.Adagrad, lr=0.05)
losses = []
for step in range(STEPS):
    inputs, labels = batch(step, rank, ranks)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(common.mean(loss))
common.compare("ZeroRedundancyOptimizer", losses, common.alone(optimizer=torch.optim.Adagrad, rate=0.05), 1e-3)
common.finish()
