"""Arguments of a mixture of experts: what is wrong with those of any rank, all ranks say."""

from __future__ import annotations

from numbers import Integral

import torch
import torch.distributed as dist

from ina.backend.membership import membership_of
from ina.backend.process_group import InaProcessGroup
from ina.base.native import lib

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # dtypes of experts
MOST_EXPERTS = 1 << 15  # whose numbers travel as int16


def routing_group(group: dist.ProcessGroup | None) -> InaProcessGroup:
    ours = membership_of(group)
    assert isinstance(ours, InaProcessGroup)
    if ours.size() > lib.INA_BITMAP_WORKERS:
        raise ValueError(f"ina: moe.dispatch: a group of {ours.size()} ranks, expected {lib.INA_BITMAP_WORKERS} at most")
    return ours


def problem_of_tokens(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None, num_experts: int,
                       ranks: int) -> str:
    """Returns what is wrong with the arguments of `dispatch`; "": nothing."""
    if problem := _problem_of_rows("tokens", tokens):
        return problem
    if not isinstance(num_experts, Integral) or not 1 <= num_experts <= MOST_EXPERTS or num_experts % ranks:
        return f"num_experts: {num_experts!r}, expected an integer, a multiple of the {ranks} ranks, {MOST_EXPERTS} at most"
    if not _dense(experts) or experts.dtype not in NUMBERS:
        return f"experts: {_described(experts)}, expected int64, int32, int16, int8 or uint8"
    if experts.dim() != 2 or len(experts) != len(tokens) or experts.shape[1] < 1:
        return f"experts: {_described(experts)}, expected ({len(tokens)}, k): k of each token"
    if experts.numel() and not (-1 <= int(experts.min()) and int(experts.max()) < num_experts):
        return f"experts: from {int(experts.min())} to {int(experts.max())}, expected 0 to {num_experts - 1}, or -1 for none"
    if weights is not None and not (_dense(weights) and weights.is_floating_point() and weights.shape == experts.shape):
        return f"weights: {_described(weights)}, expected floats, {tuple(experts.shape)} as experts"
    return ""


def problem_of_outputs(outputs: torch.Tensor, row: torch.Tensor) -> str:
    """Returns what is wrong with the outputs of a `combine`, one for each of ``row``, those of the plan's pairs; "": nothing."""
    if problem := _problem_of_rows("outputs", outputs):
        return problem
    if len(outputs) != len(row):
        return f"outputs: {_described(outputs)}, expected ({len(row)}, H): one for each of the plan's pairs"
    if outputs.device != row.device:
        return f"outputs: on {outputs.device}, expected {row.device}, as the rows"
    return ""


def _problem_of_rows(name: str, rows: torch.Tensor) -> str:
    if not _dense(rows) or rows.dtype not in DTYPES:
        return f"{name}: {_described(rows)}, expected dense float32, bfloat16 or float16"
    if rows.dim() != 2 or rows.shape[1] < 1:
        return f"{name}: {_described(rows)}, expected two dimensions, the second of 1 or more"
    return ""


def _dense(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type in ("cpu", "cuda")


def _described(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    where = f" on {value.device}" * (value.device.type != "cpu")
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}{where}"


def raise_problem(group: InaProcessGroup, call: str, problem: str) -> None:
    """Raises ValueError on all ranks, with the problem of the first rank that has one."""
    problems: list[str] = [""] * group.size()
    dist.all_gather_object(problems, problem, group=group)
    rank = next(rank for rank, each in enumerate(problems) if each)
    raise ValueError(f"ina: moe.{call}: rank {rank}: {problems[rank]}")
