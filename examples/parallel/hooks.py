"""Communication hooks of DistributedDataParallel: gradients in 16 bits, PowerSGD, a choice for each bucket, and a codec."""

import common
import torch
import torch.distributed as dist
from common import RATE, STEPS, batch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ina.backend
from ina.backend.hooks import Choice, per_bucket


def bfloat16(state, bucket):
    """Compresses to bfloat16: torch offers its hook by name to NCCL only, but it works with any back end that adds bfloat16
    up."""
    return default_hooks.bf16_compress_hook(state, bucket)


def train(hook, state=None, bucket_cap_mb: float = 0.003) -> list[float]:
    net = DistributedDataParallel(common.model(), bucket_cap_mb=bucket_cap_mb)
    net.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(step, rank, ranks)
        loss = nn.functional.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(common.mean(loss))
    return losses


rank, ranks = common.start()
expected = common.alone()
common.compare("hook: allreduce", train(default_hooks.allreduce_hook), expected)
common.compare("hook: float16", train(default_hooks.fp16_compress_hook), expected, 2e-3)
common.compare("hook: bfloat16", train(bfloat16), expected, 2e-2)
# PowerSGD starts all-reduces in callbacks of others. On the CPU these run when a bucket is done, so with several buckets the
# order of all-reduces would be each rank's own: one bucket.
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=3)
common.compare("hook: PowerSGD, rank 4", train(powerSGD_hook.powerSGD_hook, state, 25), expected, 5e-2)
others = dist.new_group(pg_options=ina.backend.Options(values=64, slots=8) if dist.get_backend() == "ina" else None)


SMALL = 1100  # values of a bucket


def choose(bucket) -> Choice:
    """Chooses a group with short packets for small buckets; bfloat16 for the others, as for the first step's, which has all
    parameters."""
    return Choice(group=others) if bucket.buffer().numel() < SMALL else Choice(codec="bfloat16")


class FixedPoint:
    """A user's own codec: multiples of 2^-20 as int32."""

    def encode(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        return (gradients * 2**20).round().to(torch.int32)

    def decode(self, total: torch.Tensor, ranks: int) -> torch.Tensor:
        return total.to(torch.float32) / (2**20 * ranks)


class Feedback(FixedPoint):
    """Multiples of 2^-8; what rounding missed is added to the bucket's next gradients."""

    missed: torch.Tensor | float = 0.0

    def encode(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        wanted = gradients + self.missed
        rounded = (wanted * 2**8).round()
        self.missed = wanted - rounded / 2**8
        return rounded.to(torch.int32) * 2**12


kept: dict[tuple, Feedback] = {}  # by parameters: the first step's only bucket has others than those after it


def feedback(bucket) -> Choice:
    return Choice(codec=kept.setdefault(tuple(bucket.parameters()), Feedback()))


common.compare("hook: a choice for each bucket", train(per_bucket, choose), expected, 2e-2)
common.compare("hook: error feedback", train(per_bucket, feedback), expected, 2e-2)
common.compare("hook: a codec of one's own", train(per_bucket, lambda bucket: Choice(codec=FixedPoint())), expected, 1e-4)
common.finish()
