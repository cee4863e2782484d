"""Arguments of collectives: tensors, operations and options, in any of the forms that torch's overloads take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

Tensors = torch.Tensor | Sequence[torch.Tensor]
ListsOfTensors = Sequence[torch.Tensor] | Sequence[Sequence[torch.Tensor]]
OptionsType = TypeVar("OptionsType")
SUMS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)
EXTREMA = (dist.ReduceOp.MAX, dist.ReduceOp.MIN)


def as_list(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def as_lists(tensors: ListsOfTensors) -> list[list[torch.Tensor]]:
    """Returns one list or several as a list of lists."""
    single = [each for each in tensors if isinstance(each, torch.Tensor)]
    return [single] if single else [list(each) for each in tensors if not isinstance(each, torch.Tensor)]


def asynchronous(options: object) -> bool:
    """Returns True unless the caller waits for the collective. ``options``: torch's, of any kind; before 2.8 they do not say."""
    return getattr(options, "asyncOp", True)


def tensors_in(argument: object) -> list[torch.Tensor]:
    """Returns the tensors in an argument, however deep in its lists."""
    if isinstance(argument, (list, tuple)):
        return [tensor for each in argument for tensor in tensors_in(each)]
    return [argument] if isinstance(argument, torch.Tensor) else []


def inputs_and_outputs(args: Sequence[object], writes: bool, by_all: bool) -> tuple[object, object]:
    """Returns the arguments of a process group's method that it reads and that it writes; (): none.

    ``writes``: the first one is an output; ``by_all``: it is a collective, and no message.
    """
    first, second = (args[0] if args else ()), (args[1] if len(args) > 1 else ())
    read = second if by_all and tensors_in(second) else first if by_all or not writes else ()
    return read, first if writes else ()


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns True if the memory of ``tensor`` is its elements one after the other, with no pending negation or conjugation, at
    an address that C takes for their type (`torch.frombuffer` begins anywhere)."""
    aligned = tensor.data_ptr() % _part(tensor) == 0
    return aligned and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def _part(tensor: torch.Tensor) -> int:
    return tensor.element_size() // (1 + tensor.is_complex())


def contiguous(argument: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Returns ``argument`` with its tensors made plain: contiguous, with no pending negation or conjugation, which Gloo would
    not see in their memory. ``copies`` gets (original, copy) of those that were not."""
    if isinstance(argument, torch.Tensor):
        if argument.layout != torch.strided or is_plain(argument):
            return argument
        copy = argument.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        copies.append((argument, copy))
        return copy
    if isinstance(argument, (list, tuple)):
        return [contiguous(item, copies) for item in argument]
    return argument


def flat(argument: Any) -> Any:
    """Returns ``argument`` with its tensors, which are plain, in one dimension: the same memory."""
    if isinstance(argument, torch.Tensor):
        return argument.detach().view(-1) if argument.layout == torch.strided else argument
    return [flat(item) for item in argument] if isinstance(argument, (list, tuple)) else argument


def octets(argument: Any) -> Any:
    """Returns ``argument`` with its tensors, which are plain, as their memory in uint8, with as many rows."""
    if isinstance(argument, torch.Tensor):
        rows = len(argument) if argument.dim() else 1
        columns = argument.numel() // max(1, rows)
        plain = argument.detach().as_strided((rows, columns), (columns, 1))  # one element counts as plain with any stride
        return plain.view(torch.uint8)
    return [octets(item) for item in argument] if isinstance(argument, (list, tuple)) else argument


def options_of(options: OptionsType, argument: object, timeout: timedelta | None, **values: object) -> OptionsType:
    """Returns the arguments of a collective's overloads as options: from options, or single values (an operation, a root, or,
    without either, a time-out)."""
    if isinstance(argument, type(options)):
        return argument
    if isinstance(argument, timedelta):
        argument, timeout = None, argument
    if argument is not None:
        values["rootRank" if isinstance(options, c10d.BroadcastOptions) or isinstance(argument, int) else "reduceOp"] = argument
    for key, value in {**values, "timeout": timeout}.items():
        if value is not None:
            setattr(options, key, value)
    return options


def is_one_of(op: dist.ReduceOp, kinds: Sequence[object]) -> bool:
    return any(op == each for each in kinds)  # in this order: ReduceOp defines the comparison, its kinds do not


def factor_of(op: dist.ReduceOp) -> float | torch.Tensor | None:
    """Returns the factor of PREMUL_SUM; None: it is another operation."""
    return _state(op)[1] if op == dist.ReduceOp.PREMUL_SUM else None


def op_name(op: object) -> str:
    kind = _state(op)[0] if isinstance(op, dist.ReduceOp) else op
    return str(kind).rsplit(".", 1)[-1].split(":")[0].strip("<>")


def _state(op: dist.ReduceOp) -> tuple[object, float | torch.Tensor | None]:
    """Returns the kind of an operation, and the factor of PREMUL_SUM."""
    return cast(tuple[object, float | torch.Tensor | None], op.__getstate__())


def dtypes(tensors: Sequence[torch.Tensor]) -> str:
    return ",".join(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
