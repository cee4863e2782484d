"""Random sequences of collectives, of random types, sizes, operations and groups, in real ranks against exact mathematics.

All ranks draw the same sequence from one seed, and every rank's tensors from (seed, step, rank), so each knows the expected
results without communication. Integers must be right to the bit, floats within the bound of docs/design/protocol.md and one
rounding.
"""

from __future__ import annotations

import itertools
import math
import random

import torch
import torch.distributed as dist

R = dist.ReduceOp
INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128)
ANY = (*INTEGERS, *FLOATS, torch.bool)
SIZES = (0, 1, 2, 3, 7, 60, 61, 170, 171, 255, 256, 257, 700, 2047, 2048, 5000, 20_000)


def values(dtype: torch.dtype, count: int, *seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash(seed) % 2**63)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        return torch.randint(info.min // 2, info.max // 2, (count,), generator=generator).mul(2).add(1).to(dtype)
    if dtype.is_complex:
        return torch.randn(count, dtype=dtype, generator=generator)
    sample = torch.randn(count, generator=generator, dtype=torch.float64) * 2.0 ** (seed[1] % 9 - 4)
    if count and seed[1] % 5 == 0 and dtype == torch.float32 and count <= 3:  # in the exact code
        sample[seed[2] % count] = (math.inf, -math.inf, math.nan)[seed[0] % 3]
    return sample.to(dtype)


def exact(op, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Integers: sums in int64 (modulo 2^64), averages by docs/guide/torch.md; others in float64 or complex128."""
    dtype = tensors[0].dtype
    if op == R.AVG and dtype in INTEGERS:
        n, totals = len(tensors), map(sum, zip(*(tensor.tolist() for tensor in tensors), strict=True))
        return torch.tensor([total // n if total >= 0 else -(-total // n) for total in totals], dtype=torch.int64)
    wide = torch.int64 if dtype in INTEGERS else torch.complex128 if dtype.is_complex else torch.float64
    if dtype == torch.bool:
        stacked = torch.stack(tensors)
        return stacked.all(0) if op == R.MIN else stacked.any(0)
    stacked = torch.stack([tensor.to(wide) for tensor in tensors])
    if op == R.MAX:
        return stacked.amax(0)
    if op == R.MIN:
        return stacked.amin(0)
    total = stacked.sum(0)
    return total / len(tensors) if op == R.AVG else total


def check(call: str, result: torch.Tensor, expected: torch.Tensor, tensors: list[torch.Tensor] | None = None) -> None:
    """Checks a result. ``tensors``: those of all ranks, if ``result`` is a sum of floats."""
    if tensors is None or result.dtype in INTEGERS or result.dtype == torch.bool:
        expected = expected.to(result.dtype)
        same = (result == expected) | ((result != result) & (expected != expected))
        assert same.all(), f"{call}: {result.tolist()[:5]}..., expected {expected.tolist()[:5]}..."
        return
    if not result.numel():
        return
    n = len(tensors)
    if not expected.isfinite().all():  # small float32: exact, each element by itself
        assert torch.equal(result.nan_to_num(), expected.to(result.dtype).nan_to_num()), f"{call}: {result}, expected {expected}"
        return
    largest = max(torch.view_as_real(t).abs().max() if t.is_complex() else t.abs().max() for t in tensors).item()
    if result.dtype in (torch.float64, torch.complex128):  # exact, and rounded once; the expected sum is rounded n times
        limit = n * 2.0**-52 * n * largest
        assert (result - expected).abs().max() <= limit, f"{call}: off by {(result - expected).abs().max()}"
        return
    bound = n * 2.0 ** (math.ceil(math.log2(largest or 1)) - 31 + math.ceil(math.log2(n))) if largest else 0.0
    rounding = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(result.dtype, 2.0**-22)
    off = (result.to(expected.dtype) - expected).abs()
    limit = 2 * bound + rounding * expected.abs() + 6e-8 * (result.dtype == torch.float16)
    assert (off <= limit).all(), f"{call}: off by {off.max()}"


class Sequence:
    def __init__(self, seed: int, groups: list):
        """A sequence of all ranks. ``groups``: (process group, its members); None in place of a group without this rank."""
        self.seed, self.groups, self.draw, self.rank = seed, groups, random.Random(seed), dist.get_rank()
        self.waiting: list = []
        self.wrong: list[str] = []  # what was not as it must be; the sequence goes on, as that of the other ranks

    def run(self, steps: int) -> list[str]:
        for step in range(steps):
            group, members = self.draw.choice(self.groups)
            kind = self.draw.choice((self.all_reduce, self.all_reduce, self.reduce, self.broadcast, self.all_gather,
                                     self.into_one, self.reduce_scatter, self.barrier, self.all_to_all, self.objects,
                                     self.settle))
            arguments = (step, group, members, self.draw.choice(SIZES), self.draw.random())
            rng = random.Random(self.draw.random())
            if kind == self.settle or self.rank in members:
                kind(rng, *arguments)
        self.settle()
        return self.wrong

    def settle(self, *_) -> None:
        waiting, self.waiting = self.waiting, []
        for work, verify in waiting:
            if work is not None:
                work.wait()
            try:
                verify()
            except AssertionError as error:
                self.wrong.append(str(error)[:300])

    def later(self, rng: random.Random, work, verify) -> None:
        """Checks some results at once, some after other collectives have begun."""
        self.waiting.append((work, verify))
        if rng.random() < 0.6:
            self.settle()

    def tensors(self, rng: random.Random, dtypes, count: int, step: int, members) -> list[torch.Tensor]:
        dtype = rng.choice(dtypes)
        return [values(dtype, count, self.seed, step, rank) for rank in members]

    def all_reduce(self, rng, step, group, members, count, strided):
        op = rng.choice((R.SUM, R.SUM, R.AVG, R.MAX, R.MIN))
        dtypes = [d for d in ANY if not (d.is_complex and op in (R.MAX, R.MIN)) and not (op == R.AVG and d == torch.bool)]
        if op in (R.MAX, R.MIN):
            dtypes = [d for d in dtypes if d != torch.float64]
        everyone = self.tensors(rng, dtypes, count, step, members)
        mine = everyone[members.index(self.rank)].clone()
        if strided < 0.3:
            mine = torch.stack([mine, mine], 1)[:, 0]
        work = dist.all_reduce(mine, op=op, group=group, async_op=True)
        label = f"seed {self.seed}, step {step}: all_reduce {op} of {count} {mine.dtype} in {members}"
        self.later(rng, work, lambda: check(label, mine, exact(op, everyone), None if op in (R.MAX, R.MIN) else everyone))

    def reduce(self, rng, step, group, members, count, _):
        root, op = rng.choice(members), rng.choice((R.SUM, R.AVG))
        everyone = self.tensors(rng, (*INTEGERS, torch.float32), count, step, members)
        before = everyone[members.index(self.rank)]
        mine = before.clone()
        work = dist.reduce(mine, root, op=op, group=group, async_op=True)
        expected = exact(op, everyone) if root == self.rank else before
        label = f"seed {self.seed}, step {step}: reduce {op} of {count} {mine.dtype} to {root} of {members}"
        self.later(rng, work, lambda: check(label, mine, expected, everyone if root == self.rank else None))

    def broadcast(self, rng, step, group, members, count, _):
        root = rng.choice(members)
        everyone = self.tensors(rng, ANY, count, step, members)
        mine = everyone[members.index(self.rank)].clone()
        label = f"seed {self.seed}, step {step}: broadcast of {count} {mine.dtype} from {root} of {members}"
        work = dist.broadcast(mine, root, group=group, async_op=True)
        self.later(rng, work, lambda: check(label, mine, everyone[members.index(root)]))

    def all_gather(self, rng, step, group, members, count, _):
        dtype = rng.choice(ANY)
        everyone = [values(dtype, count + rng.choice((0, 0, 1, 5)), self.seed, step, rank) for rank in members]
        rows = [torch.empty_like(tensor) for tensor in everyone]
        work = dist.all_gather(rows, everyone[members.index(self.rank)].clone(), group=group, async_op=True)
        label = f"seed {self.seed}, step {step}: all_gather of {count} {dtype} in {members}"
        self.later(rng, work, lambda: [check(label, row, tensor) for row, tensor in zip(rows, everyone, strict=True)])

    def into_one(self, rng, step, group, members, count, _):
        everyone = self.tensors(rng, ANY, count, step, members)
        whole = torch.empty(count * len(members), dtype=everyone[0].dtype)
        work = dist.all_gather_into_tensor(whole, everyone[members.index(self.rank)], group=group, async_op=True)
        label = f"seed {self.seed}, step {step}: all_gather_into_tensor of {count} {whole.dtype} in {members}"
        self.later(rng, work, lambda: check(label, whole, torch.cat(everyone)))

    def reduce_scatter(self, rng, step, group, members, count, _):
        n, at, op = len(members), members.index(self.rank), rng.choice((R.SUM, R.AVG))
        everyone = self.tensors(rng, (*INTEGERS, torch.float32, torch.bfloat16), max(count, 4) * n, step, members)
        part = torch.empty(max(count, 4), dtype=everyone[0].dtype)
        work = dist.reduce_scatter_tensor(part, everyone[at].clone(), op=op, group=group, async_op=True)
        expected = exact(op, everyone)[at * len(part) : (at + 1) * len(part)]
        label = f"seed {self.seed}, step {step}: reduce_scatter {op} of {count} {part.dtype} in {members}"
        self.later(rng, work, lambda: check(label, part, expected, everyone))

    def barrier(self, rng, step, group, *_):
        dist.barrier(group=group)

    def all_to_all(self, rng, step, group, members, count, _):
        at, n = members.index(self.rank), len(members)
        everyone = [values(torch.float32, max(count, 4) * n, self.seed, step, rank) for rank in members]
        result = torch.empty_like(everyone[0])
        dist.all_to_all_single(result, everyone[at], group=group)
        pieces = [tensor.chunk(n)[at] for tensor in everyone]
        label = f"seed {self.seed}, step {step}: all_to_all of {count} in {members}"
        self.later(rng, None, lambda: check(label, result, torch.cat(pieces)))

    def objects(self, rng, step, group, members, *_):
        objects = [None] * len(members)
        dist.all_gather_object(objects, {"rank": self.rank, "step": step}, group=group)
        right = objects == [{"rank": rank, "step": step} for rank in members]
        self.wrong += [] if right else [f"seed {self.seed}, step {step}: objects {objects} of {members}"]


def groups(options: list) -> list:
    """The world, and some of its subsets; the n-th has the n-th of ``options`` (then none)."""
    n = dist.get_world_size()
    subsets = [*itertools.combinations(range(n), 2), *itertools.combinations(range(n), n - 1)][:4]
    pairs = [(dist.group.WORLD, list(range(n)))]
    for i, members in enumerate(subsets):
        pairs.append((dist.new_group(list(members), pg_options=options[i] if i < len(options) else None), list(members)))
    return pairs


def wrong(first: int, count: int, process_groups: list, steps: int = 12) -> list[str]:
    """Runs ``count`` sequences, from seed ``first`` on; returns a line for each error."""
    return [line for seed in range(first, first + count) for line in Sequence(seed, process_groups).run(steps)]
