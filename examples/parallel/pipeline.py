"""Pipeline parallel: each rank has a part of the layers; activations and their gradients go from rank to rank (through Gloo), the
gradients also as matrices of low rank, as in Optimus-CC."""

import common
import torch
import torch.distributed as dist
from common import RATE, STEPS, batch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from ina import codecs
from ina.backend.pipelining import Stage

PARTS = 4  # micro-batches


def pieces(count: int) -> list[nn.Module]:
    """Splits the model's layers into ``count`` parts of nearly equal length."""
    layers = list(common.model())
    cuts = [round(i * len(layers) / count) for i in range(count + 1)]
    return [nn.Sequential(*layers[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]


def train(schedule, stages_each: int = 1, kind=PipelineStage, **options) -> list[float]:
    count = ranks * stages_each
    parts = pieces(count)
    stages = [kind(parts[i], i, count, torch.device("cpu"), **options) for i in range(rank, count, ranks)]
    runner = schedule(stages if stages_each > 1 else stages[0], PARTS, loss_fn=nn.functional.cross_entropy)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=RATE) if parameters else None
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(step)
        each: list[torch.Tensor] = []
        for stage in stages:
            stage.submod.zero_grad()
        first, last = rank == 0, rank == ranks - 1
        runner.step(*([inputs] if first else []), **({"target": labels, "losses": each} if last else {}))
        if optimizer:
            optimizer.step()
        loss = torch.stack(each).mean().detach() if last else torch.zeros(())
        dist.broadcast(loss, ranks - 1)
        losses.append(loss.item())
    return losses


rank, ranks = common.start()
expected = common.alone()
common.compare("pipeline, GPipe", train(ScheduleGPipe), expected)
common.compare("pipeline, 1F1B", train(Schedule1F1B), expected)
common.compare("pipeline, interleaved 1F1B", train(ScheduleInterleaved1F1B, stages_each=2), expected)
low_rank = train(Schedule1F1B, kind=Stage, codec=lambda shape: codecs.PowerSgd(4, shape[-1]))
common.compare("pipeline, gradients of rank 4", low_rank, expected, 5e-2)
common.finish()
