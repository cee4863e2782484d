"""A communication hook of DistributedDataParallel that chooses, for each bucket, how its gradients travel.

    atp = dist.new_group(pg_options=ina.backend.Options(protocol="atp"))

    def choose(bucket):                       # a torch.distributed.GradBucket
        return Choice(codec="bfloat16") if bucket.buffer().numel() > 1_000_000 else Choice(group=atp)

    model.register_comm_hook(choose, per_bucket)

All ranks must choose alike: from what a bucket has in common (its index, size, parameters), not from the gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

# No postponed annotations here: DistributedDataParallel looks at those of a hook.
CODECS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Choice:
    """``codec``: float32 (the protocol's own, at full precision), float16 or bfloat16 (gradients are rounded to it first, as
    torch's compression hooks do); ``group``: whose protocol, and whose slots; None: the default group."""

    codec: str = "float32"
    group: dist.ProcessGroup | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"codec {self.codec!r}: expected one of {', '.join(CODECS)}")


def per_bucket(choose: Callable[[dist.GradBucket], Choice], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook: averages the bucket's gradients over the ranks of the chosen group, in the chosen codec."""
    choice = choose(bucket)
    if not isinstance(choice, Choice):
        raise TypeError(f"bucket {bucket.index()}: the chooser gave {choice!r}, expected an ina.backend.hooks.Choice")
    gradients, dtype = bucket.buffer(), CODECS[choice.codec]
    tensor = gradients if dtype is None or gradients.dtype == dtype else gradients.to(dtype)
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=choice.group, async_op=True)

    def decode(future: torch.futures.Future) -> torch.Tensor:
        average = future.value()[0]
        return average if average is gradients else gradients.copy_(average)

    return work.get_future().then(decode)
