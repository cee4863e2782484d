"""A communication hook of DistributedDataParallel that chooses, for each bucket, how its gradients travel.

    atp = dist.new_group(pg_options=ina.backend.Options(protocol="atp"))

    def choose(bucket):                       # a torch.distributed.GradBucket
        return Choice(codec="lanes-16") if bucket.buffer().numel() > 1_000_000 else Choice(group=atp)

    model.register_comm_hook(choose, per_bucket)

A codec of your own is one of ina.codecs, or an object with two functions (``Codec``). All ranks must choose alike: by properties
that a bucket has on all ranks (its size, its parameters), not by the gradients.

An index does not name a bucket: the first step is one bucket of all parameters, then DistributedDataParallel makes others, in the
order in which gradients were ready. State between steps belongs to the bucket's parameters:

    kept = {}
    model.register_comm_hook(lambda bucket: Choice(codec=kept.setdefault(tuple(bucket.parameters()), Feedback())), per_bucket)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from ina import codecs
from ina.codecs import planner

__all__ = ["Choice", "Codec", "per_bucket"]

# No postponed annotations here: DistributedDataParallel inspects those of a hook.
CODECS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}
REMEMBERED = WeakTensorKeyDictionary()  # by a bucket's first parameter: _Memory


@runtime_checkable
class Codec(Protocol):
    """Encoding of a bucket's gradients for the sum over all ranks, and decoding of the sum.

    A codec that keeps its rounding errors (error feedback) needs an object for each bucket, by its parameters, not by its index.
    """

    def encode(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        """Returns a tensor of any shape, the same on all ranks, and of any dtype that the group adds up (docs/guide/torch.md)."""

    def decode(self, total: torch.Tensor, ranks: int) -> torch.Tensor:
        """Returns the average of the gradients, in their shape, from the sum of the ranks' encoded tensors."""


@dataclass(frozen=True)
class Choice:
    """A bucket's way. ``codec``: float32 (the group's own), float16 or bfloat16 (gradients are rounded to it first, as torch's
    compression hooks do), a name of ina.codecs ("lanes-16"), one of its codecs, "auto", or a Codec. "auto:thc,lanes-16" chooses
    from these for each bucket, by measured times (ina.codecs.planner); "auto" from codecs that are harmless. ``group``: the
    group whose protocol and slots are used; None: the default group."""

    codec: str | codecs.Codec | Codec = "float32"
    group: dist.ProcessGroup | None = None

    def __post_init__(self) -> None:
        if isinstance(self.codec, str) and planner.allowed(self.codec) is not None:
            return
        known = (*CODECS, planner.AUTO, *codecs.names())
        if self.codec not in known if isinstance(self.codec, str) else not isinstance(self.codec, codecs.Codec | Codec):
            raise ValueError(f"codec {self.codec!r}: expected one of {', '.join(known)}, or an object with encode and decode")


@dataclass(frozen=True)
class _Rounded:
    """One of CODECS: ``dtype``, None: that of the gradients. The encoded tensors are averaged, not added up."""

    dtype: torch.dtype | None

    def encode(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        return gradients if self.dtype in (None, gradients.dtype) else gradients.to(self.dtype)

    def decode(self, total: torch.Tensor, ranks: int) -> torch.Tensor:
        return total


class _Memory:
    """State of a bucket's codecs, as long as the bucket has these parameters in this order: those of another bucket of as many
    values would get its rounding errors."""

    def __init__(self, parameters: list[torch.Tensor]):
        self._parameters = [TensorWeakRef(parameter) for parameter in parameters]
        self.calls: dict[str, tuple[codecs.Codec, int]] = {}  # codecs by name, and the number of their calls

    @classmethod
    def of(cls, bucket: dist.GradBucket) -> "_Memory":
        parameters = bucket.parameters()
        memory = REMEMBERED.get(parameters[0])
        if memory is None or not memory._is_of(parameters):
            memory = REMEMBERED[parameters[0]] = cls(parameters)
        return memory

    def _is_of(self, parameters: list[torch.Tensor]) -> bool:
        return len(parameters) == len(self._parameters) and all(
            ref() is parameter for ref, parameter in zip(self._parameters, parameters, strict=True))


def per_bucket(choose: Callable[[dist.GradBucket], Choice], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook: averages the bucket's gradients over the ranks of the group that ``choose`` chooses for it, in the
    codec that it chooses. To be registered with ``choose`` as its state: ``model.register_comm_hook(choose, per_bucket)``. A
    sparse_coo gradient (``torch.nn.Embedding(sparse=True)``) is summed as the group sums sparse tensors, whatever the codec.

    TypeError: ``choose`` returned no Choice. ValueError: a codec decoded a tensor of another shape than the gradients'.
    """
    choice = choose(bucket)
    if not isinstance(choice, Choice):
        raise TypeError(f"bucket {bucket.index()}: the chooser gave {choice!r}, expected an ina.backend.hooks.Choice")
    if bucket.buffer().is_sparse:
        return _as_sparse(bucket.buffer(), choice.group)
    if isinstance(choice.codec, codecs.Codec) or (isinstance(choice.codec, str) and choice.codec not in CODECS):
        return _by_rounds(choice.codec, choice.group, bucket)
    ranks, gradients = dist.get_world_size(choice.group), bucket.buffer()
    codec: Codec = _Rounded(CODECS[choice.codec]) if isinstance(choice.codec, str) else choice.codec
    op = dist.ReduceOp.AVG if isinstance(choice.codec, str) else dist.ReduceOp.SUM
    work = dist.all_reduce(codec.encode(gradients, ranks), op=op, group=choice.group, async_op=True)

    def decode(future: torch.futures.Future) -> torch.Tensor:
        average = codec.decode(future.value()[0], ranks)
        if average.shape != gradients.shape:
            raise ValueError(f"bucket {bucket.index()}: {codec!r} decoded a tensor of shape {tuple(average.shape)}, "
                             f"expected {tuple(gradients.shape)}")
        return average if average is gradients else gradients.copy_(average)

    return work.get_future().then(decode)


def _as_sparse(gradients: torch.Tensor, group: dist.ProcessGroup | None) -> torch.futures.Future[torch.Tensor]:
    """Averages a sparse_coo gradient: its places are its own, so it travels as all sparse tensors of the group do."""
    ranks = dist.get_world_size(group)
    work = dist.all_reduce(gradients, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0] / ranks)


def _by_rounds(
    chosen: str | codecs.Codec, group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages the bucket by a codec of ina.codecs, which by name is the bucket's own, as long as it has these parameters."""
    ours: Any = dist.group.WORLD if group is None else group
    if not hasattr(ours, "allreduce_coded"):
        raise ValueError(f"bucket {bucket.index()}: codec {chosen!r} needs a group of the back end 'ina', not a "
                         f"{type(ours).__name__}")
    gradients, calls = bucket.buffer(), _Memory.of(bucket).calls

    def next_call(codec: str | codecs.Codec) -> tuple[codecs.Codec, int]:
        """Returns the codec, by name the bucket's own, and the number of its calls before this one."""
        name = codec if isinstance(codec, str) else codec.name
        known, step = calls.get(name, (None, 0))
        own = (known or codecs.named(name)) if isinstance(codec, str) else codec
        calls[name] = own, step + 1
        return own, step

    if isinstance(chosen, str) and planner.allowed(chosen) is not None:
        title = f"bucket {bucket.index()}: {gradients.numel():,} {str(gradients.dtype).removeprefix('torch.')}"
        work = ours.allreduce_planned(gradients, True, title, chosen, next_call)
    else:
        codec, step = next_call(chosen)
        work = ours.allreduce_coded(gradients, codec, True, step)
    return work.get_future().then(lambda future: future.value()[0])
