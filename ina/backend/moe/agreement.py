"""Agreement of the ranks on a dispatch: each token's experts and weights, and what all ranks must have in common."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from ina.aggregation.worker.token_routes import Tokens
from ina.backend.moe.checks import DTYPES, problem_of_tokens, raise_problem
from ina.backend.moe.exchange import Exchange
from ina.backend.moe.rows import Words
from ina.backend.process_group import InaProcessGroup

LEAST = 16  # words of each rank in the first all-gather
COMMON = ("hidden size", "dtype", "experts per token", "num_experts", "having weights", "async_op")  # of all ranks of a dispatch
HEADER = 4 + len(COMMON)  # words: a problem, tokens, which gradients are needed, and those


def agreed(group: InaProcessGroup, tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor | None,
            num_experts: int, asynchronous: bool) -> Exchange:
    """Exchanges which experts the ranks' tokens have. Raises ValueError, on all ranks."""
    problem = problem_of_tokens(tokens, experts, weights, num_experts, group.size())
    own = np.array([1], np.int32)
    if not problem:
        grad = torch.is_grad_enabled()
        header = [0, len(tokens), tokens.requires_grad and grad, weights is not None and weights.requires_grad and grad,
                  tokens.shape[1], DTYPES.index(tokens.dtype), experts.shape[1], num_experts, weights is not None,
                  bool(asynchronous)]
        ids = experts.detach().cpu().numpy().astype(np.int16).reshape(-1)
        own = np.concatenate([np.array(header, np.int32), np.append(ids, np.zeros(ids.size % 2, np.int16)).view(np.int32)])
        if weights is not None:
            bits = weights.detach().to("cpu", torch.float32).contiguous().view(torch.int32)
            own = np.concatenate([own, bits.numpy().reshape(-1)])
    gathered = _gather_words(group, own)
    if any(words[0] for words in gathered):
        raise_problem(group, "dispatch", problem)
    for place, name in enumerate(COMMON, HEADER - len(COMMON)):
        if len({int(words[place]) for words in gathered}) > 1:
            each = ", ".join(f"{common_text(name, words[place])} at rank {rank}" for rank, words in enumerate(gathered))
            raise ValueError(f"ina: moe.dispatch: the ranks differ in {name}: {each}")
    k, all_experts, all_weights = experts.shape[1], [], []
    for words in gathered:
        count = int(words[1]) * k
        middle = HEADER + (count + 1) // 2
        all_experts.append(words[HEADER:middle].view(np.int16)[:count].reshape(-1, k))
        all_weights.append(words[middle:].view(np.float32))
    given = None if weights is None else torch.from_numpy(np.concatenate(all_weights).reshape(-1, k))
    return Exchange(group, Tokens(all_experts, num_experts // group.size(), group.rank()), given,
                    any(words[2] for words in gathered), any(words[3] for words in gathered))


def _gather_words(group: InaProcessGroup, own: Words) -> list[Words]:
    """All-gathers as many words as each rank has: in one all-gather of as many as a packet has room for, or a rank had the last
    time, and a second one of what is left on any rank."""
    ranks = group.size()
    room = max(LEAST, group.packet_words() // ranks, 1 + group.most_words) - 1
    first = np.zeros(1 + room, np.int32)
    first[0], first[1 : 1 + min(room, own.size)] = own.size, own[:room]
    together = torch.empty(ranks, first.size, dtype=torch.int32, device="cpu")
    dist.all_gather(list(together), torch.from_numpy(first), group=group)
    parts = together.numpy()
    group.most_words = int(parts[:, 0].max())
    left = [torch.empty(max(0, int(size) - room), dtype=torch.int32, device="cpu") for size in parts[:, 0]]
    if any(map(len, left)):
        dist.all_gather(left, torch.from_numpy(own[room:]), group=group)
    return [np.concatenate([part[1 : 1 + part[0]], rest.numpy()]) for part, rest in zip(parts, left, strict=True)]


def common_text(name: str, number: int) -> str:
    return str(DTYPES[number]).removeprefix("torch.") if name == "dtype" else str(number)
