"""Expert parallel: each rank has three experts; examples travel to the two that a trained gate chooses, and the sums of their
outputs come back, through the switch (ina.moe). While the experts have one half of the examples, the other half travels."""

import os

import common
import torch
import torch.distributed as dist
from common import CLASSES, RATE, STEPS, WIDTH, batch
from torch import nn

import ina.moe

EACH, TOP = 3, 2  # experts of a rank, and of an example


def experts(count: int) -> list[nn.Module]:
    torch.manual_seed(2)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)) for _ in range(count)]


def gate(count: int) -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(WIDTH, count)


def choose(gate: nn.Module, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the experts of each example, and their weights, whose gradients train the gate."""
    chosen = gate(inputs).topk(TOP)
    return chosen.indices, chosen.values.softmax(1)


class Everything(nn.Module):
    """The gate and all experts in one process."""

    def __init__(self, count: int):
        super().__init__()
        self.gate, self.experts = gate(count), nn.ModuleList(experts(count))

    def forward(self, inputs):
        chosen, weights = choose(self.gate, inputs)
        logits = torch.zeros(len(inputs), CLASSES)
        for number, expert in enumerate(self.experts):
            example, place = torch.nonzero(chosen == number, as_tuple=True)
            logits = logits.index_add(0, example, expert(inputs[example]) * weights[example, place, None])
        return logits


os.environ.setdefault("INA_PROTOCOL", "receivers")  # with others, ina.moe goes through Gloo
rank, ranks = common.start()
router, mine = gate(EACH * ranks), experts(EACH * ranks)[EACH * rank : EACH * (rank + 1)]
parameters = [*router.parameters(), *(parameter for expert in mine for parameter in expert.parameters())]
optimizer = torch.optim.SGD(parameters, lr=RATE)
losses = []
for step in range(STEPS):
    inputs, labels = batch(step, rank, ranks)
    calls, ways_back = [], []
    for half in inputs.chunk(2):
        chosen, weights = choose(router, half)
        calls.append(ina.moe.dispatch(half, chosen, weights, num_experts=EACH * ranks, async_op=True))
    for call in calls:
        rows, plan = call.wait()
        parts = rows[plan.row].split(plan.tokens_per_expert)
        outputs = torch.cat([expert(part) for expert, part in zip(mine, parts, strict=True)])
        ways_back.append(ina.moe.combine(outputs, plan, async_op=True))
    loss = nn.functional.cross_entropy(torch.cat([way_back.wait() for way_back in ways_back]), labels)
    optimizer.zero_grad()
    (loss / ranks).backward()  # the mean over all ranks' examples
    for parameter in router.parameters():  # each rank has one, and an expert only its own
        dist.all_reduce(parameter.grad)
    optimizer.step()
    losses.append(common.mean(loss))
common.compare("expert parallel", losses, common.alone(Everything(EACH * ranks)))
common.finish()
