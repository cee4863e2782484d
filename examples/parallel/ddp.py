"""Data parallel: DistributedDataParallel with small buckets (communication overlaps the backward pass) and its options."""

import common
import torch
from common import RATE, STEPS, batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Unused(nn.Module):
    """A model with a layer that takes no part in the forward pass of even steps."""

    def __init__(self):
        super().__init__()
        self.body, self.extra = common.model(), nn.Linear(common.CLASSES, common.CLASSES)
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        logits = self.body(inputs)
        return logits if self.calls % 2 else logits + 0.1 * self.extra(logits)


def train(net: nn.Module, accumulate: bool = False, **options) -> list[float]:
    net = DistributedDataParallel(net, bucket_cap_mb=0.003, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(step, rank, ranks)
        optimizer.zero_grad()
        if accumulate:  # two half batches, gradients exchanged after the second only
            halves = list(zip(inputs.chunk(2), labels.chunk(2), strict=True))
            with net.no_sync():
                first = nn.functional.cross_entropy(net(halves[0][0]), halves[0][1]) / 2
                first.backward()
            second = nn.functional.cross_entropy(net(halves[1][0]), halves[1][1]) / 2
            second.backward()
            loss = first + second
        else:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            loss.backward()
        optimizer.step()
        losses.append(common.mean(loss))
    return losses


rank, ranks = common.start()
expected = common.alone()
common.compare("DDP", train(common.model()), expected)
common.compare("DDP, static graph", train(common.model(), static_graph=True), expected)
common.compare("DDP, no_sync", train(common.model(), accumulate=True), expected)
torch.manual_seed(1)
extra = Unused()
torch.manual_seed(1)
common.compare("DDP, find_unused_parameters", train(Unused(), find_unused_parameters=True), common.alone(extra))
common.finish()
