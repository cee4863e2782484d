"""Expert parallel: each rank has one expert; examples travel to their expert and back by all-to-all (through Gloo)."""

import common
import torch
import torch.distributed as dist
from common import CLASSES, RATE, STEPS, WIDTH, batch
from torch import nn
from torch.distributed.nn.functional import all_to_all_single


def experts(count: int) -> list[nn.Module]:
    torch.manual_seed(2)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)) for _ in range(count)]


def choose(inputs: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the expert of each example: a fixed gate."""
    return inputs[:, -count:].argmax(1)


class Everything(nn.Module):
    """All experts in one process."""

    def __init__(self, count: int):
        super().__init__()
        self.experts = nn.ModuleList(experts(count))

    def forward(self, inputs):
        gate = choose(inputs, len(self.experts))
        logits = torch.zeros(len(inputs), CLASSES)
        for number, expert in enumerate(self.experts):
            logits = logits.index_put((torch.nonzero(gate == number)[:, 0],), expert(inputs[gate == number]))
        return logits


rank, ranks = common.start()
expert = experts(ranks)[rank]
optimizer = torch.optim.SGD(expert.parameters(), lr=RATE)
losses = []
for step in range(STEPS):
    inputs, labels = batch(step, rank, ranks)
    gate = choose(inputs, ranks)
    order = gate.argsort(stable=True)
    sent = torch.bincount(gate, minlength=ranks)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    from_ranks, to_ranks = received.tolist(), sent.tolist()
    arrivals = all_to_all_single(torch.empty(sum(from_ranks), WIDTH), inputs[order], from_ranks, to_ranks)
    logits = all_to_all_single(torch.empty(len(inputs), CLASSES), expert(arrivals), to_ranks, from_ranks)
    loss = nn.functional.cross_entropy(logits, labels[order])
    optimizer.zero_grad()
    (loss / ranks).backward()  # the mean over all ranks' examples
    optimizer.step()
    losses.append(common.mean(loss))
common.compare("expert parallel", losses, common.alone(Everything(ranks)))
common.finish()
