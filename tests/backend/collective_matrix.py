"""Every collective, of every dtype and operation, of values that are not finite or too large together, strided and of no
elements, in a group with the switch and in groups that go to Gloo whole: against exact mathematics.

All ranks draw the same tensors of all ranks, so each knows the right results without communication.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch
import torch.distributed as dist

from ina.backend.arguments import factor_of

R = dist.ReduceOp
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}
MOVED = (*INTEGERS, *FLOATS, *COMPLEX, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
         torch.float8_e5m2, torch.float4_e2m1fn_x2)
SIGNIFICANT = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}  # bits
ROOT = 1
Rule = Callable[[list], object]  # the right result of an element's values on all ranks

# values, pieces of three ranks in a reduce-scatter, strided
VARIANTS = (("plain", (2, 2, 2), False), ("plain", (0, 0, 0), False), ("plain", (3, 0, 4), True), ("plain", (2, 2, 2), True),
            ("plain", (300, 300, 300), False), ("odd", (2, 2, 2), False), ("huge", (1, 1, 1), False))


def drawn(dtype: torch.dtype, kind: str, count: int, ranks: int) -> list[torch.Tensor]:
    """Returns the tensors of all ranks."""
    draw = torch.Generator().manual_seed(1)
    real = COMPLEX.get(dtype, dtype)
    if dtype == torch.bool:
        return list(torch.randint(0, 2, (ranks, count), generator=draw).bool())
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        whole = torch.randint(info.min, info.max, (ranks, count), generator=draw, dtype=torch.int64)
        whole[:, :1] = info.max
        return list(whole.to(dtype))
    values = torch.randn(ranks, count * (1 + dtype.is_complex), generator=draw, dtype=torch.float64)
    if kind == "odd":  # NaN on one rank or another, infinities of one sign and of both, zeros
        nan, inf = math.nan, math.inf
        columns = [[nan, 1, 2], [1, 2, -nan], [inf, 1, 2], [inf, 0, -inf], [-0.0, 0.0, -0.0], [-1, -inf, 3]]
        values = torch.tensor(columns, dtype=torch.float64).T.repeat(1, 1 + dtype.is_complex)
    if kind == "huge":  # no sum of three fits the type, but every average does
        values = torch.finfo(real).max * torch.tensor([0.9, -0.75, 0.5], dtype=torch.float64).repeat(ranks, 1 + dtype.is_complex)
    return [row.to(real) if real == dtype else torch.view_as_complex(row.to(real).clone().view(-1, 2)) for row in values]


def total(values: list) -> object:
    """Returns the exact sum; of what is not finite as IEEE 754 has it."""
    if all(map(math.isfinite, values)):
        return sum(map(Fraction, values))
    return sum(value for value in values if not math.isfinite(value))


def extremum(choose: Callable) -> Rule:
    return lambda values: next((value for value in values if value != value), choose(values))


def operations(dtype: torch.dtype, ranks: int) -> Iterator[tuple[object, Rule]]:
    """Yields the operations that the guide promises of ``dtype``, and what is right."""
    if dtype == torch.bool:
        yield from ((R.SUM, any), (R.MAX, any), (R.MIN, all))
        return
    if dtype in INTEGERS:
        yield from ((R.SUM, sum), (R.AVG, lambda values: math.trunc(Fraction(sum(values), ranks))))
        yield dist._make_nccl_premul_sum(3.0), lambda values: 3 * sum(values)
        yield dist._make_nccl_premul_sum(0.5), lambda values: sum(math.trunc(Fraction(value, 2)) for value in values)
        if dtype != torch.int16:  # which Gloo has not
            yield from ((R.PRODUCT, math.prod), (R.BOR, lambda values: values[0] | values[1] | values[2]))
            yield from ((R.BAND, lambda values: values[0] & values[1] & values[2]), (R.BXOR, lambda v: v[0] ^ v[1] ^ v[2]))
    else:
        yield from ((R.SUM, total), (R.AVG, lambda values: total(values) / ranks))
        if dtype not in COMPLEX:
            yield dist._make_nccl_premul_sum(0.5), lambda values: total(values) / 2
    if dtype not in COMPLEX:
        yield from ((R.MAX, extremum(max)), (R.MIN, extremum(min)))


def reals(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor).flatten() if tensor.is_complex() else tensor


def laid_out(tensor: torch.Tensor, strided: bool) -> torch.Tensor:
    """Returns a copy, perhaps as every other element of a tensor whose others are zero."""
    return torch.stack([tensor, torch.zeros_like(tensor)], 1)[:, 0] if strided else tensor.clone()


def untouched(tensor: torch.Tensor) -> bool:
    """Returns True if what lies between the elements is still zero."""
    return tensor.is_contiguous() or not tensor._base[:, 1].any()


class Right:
    """The exact results of an operation, and how far off the promised ones may be."""

    def __init__(self, exact: list, tensors: list[torch.Tensor], exactly: bool, fallen: bool):
        """``fallen``: the group has no switch."""
        self.dtype = tensors[0].dtype
        real, ranks = COMPLEX.get(self.dtype, self.dtype), len(tensors)
        if real not in FLOATS:
            bits = 8 * real.itemsize
            wrapped = exact if real == torch.bool else [(v + 2 ** (bits - 1) if real.is_signed else v) % 2**bits for v in exact]
            self.values = torch.tensor([v - 2 ** (bits - 1) if real.is_signed else v for v in wrapped]).to(real)
            self.off = torch.zeros(len(exact), dtype=torch.float64)
            return
        fits = [v if not isinstance(v, Fraction) or abs(v) < 2 ** 1024 - 2**970 else math.copysign(math.inf, v) for v in exact]
        self.values = torch.tensor(list(map(float, fits)), dtype=torch.float64)
        self.off = torch.zeros(len(exact), dtype=torch.float64)
        if exactly:
            return
        sizes = torch.stack([reals(tensor).double().abs() for tensor in tensors])
        if real == torch.float64 and not fallen:
            return  # rounded once
        wide = torch.float64 if real == torch.float64 else torch.float32  # in which it is added up, and then rounded to the type
        self.off = 2 * ranks * 2.0 ** -SIGNIFICANT[wide] * sizes.nan_to_num(0, 0, 0).sum(0)
        self.off += 2.0 ** -SIGNIFICANT[real] * self.values.abs().nan_to_num(0, 0, 0)
        self.off += torch.finfo(real).smallest_normal * torch.finfo(real).eps  # the smallest number above zero
        if real != torch.float64 and not fallen and len(exact) > 150:  # blocks
            largest = sizes.max().item()
            self.off += 2 * ranks * 2.0 ** (math.ceil(math.log2(largest)) - 31 + math.ceil(math.log2(ranks)))

    def problem(self, got: torch.Tensor, start: int = 0) -> str:
        """Returns what is wrong with a result, which is that from element ``start`` on."""
        each = 1 + self.dtype.is_complex
        got = reals(got.detach().contiguous().resolve_conj())
        if got.dtype == torch.bool and max(bits(got), default=0) > 1:
            return f"bool of {bits(got)}"
        part = slice(each * start, each * start + got.numel())
        values, off = self.values[part], self.off[part]
        wanted = values.to(got.dtype)
        same = (got == wanted) | (got != got) & (wanted != wanted)
        near = (got.double() - values.double()).abs() <= off if got.is_floating_point() else same
        return "" if (same | near).all() else f"{got.tolist()[:6]}, expected {wanted.tolist()[:6]}"


def reductions(groups: dict, rank: int, ranks: int, wrong: list[str]) -> int:
    """Runs all reductions in all groups; notes what is wrong. Returns the number of results in each."""
    count = 0
    for dtype in (*INTEGERS, *FLOATS, *COMPLEX, torch.bool):
        for op, rule in operations(dtype, ranks):
            for kind, pieces, strided in VARIANTS:
                if (kind != "plain" and dtype not in (*FLOATS, *COMPLEX)) or (kind == "huge" and op != R.AVG):
                    continue
                tensors = drawn(dtype, kind, sum(pieces), ranks)
                exact = [rule(list(column)) for column in zip(*(reals(tensor).tolist() for tensor in tensors), strict=True)]
                for name, group in groups.items():
                    right = Right(exact, tensors, op in (R.MAX, R.MIN), name != "switch")
                    label = f"{op} of {dtype} {kind} {pieces}{' strided' * strided}"
                    results, problems = reduced(group, op, tensors[rank], pieces, strided, rank)
                    for collective, got, begin in results:
                        problems += [f"{collective}: {problem}"] if (problem := right.problem(got, begin)) else []
                    wrong += [f"{name}: {label}: {problem}" for problem in problems]
                count += len(results)
    return count


def reduced(group, op, mine: torch.Tensor, pieces: tuple[int, ...], strided: bool, rank: int) -> tuple[list[tuple], list[str]]:
    """Runs every reduction of ``mine``. Returns (collective, its result, the number of the first element) of each, and what is
    wrong beside the results."""
    start, at = sum(pieces[:rank]), pieces[rank]
    own, problems = laid_out(mine, strided), []
    dist.all_reduce(own, op=op, group=group)
    results = [("all_reduce", own, 0)]
    pair = [laid_out(mine, strided), laid_out(mine, strided)]
    dist.all_reduce_coalesced(pair, op=op, group=group)
    results += [("all_reduce_coalesced", each, 0) for each in pair]
    own = laid_out(mine, strided)
    dist.reduce(own, ROOT, op=op, group=group)
    if rank == ROOT:
        results.append(("reduce", own, 0))
    elif bits(own) != bits(mine):
        problems.append(f"reduce changed rank {rank}'s tensor")
    own, sources = laid_out(mine[:at], strided), [laid_out(piece, strided) for piece in mine.split(list(pieces))]
    dist.reduce_scatter(own, sources, op=op, group=group)
    results.append(("reduce_scatter", own, start))
    if len(set(pieces)) == 1:
        own, whole = laid_out(mine[:at], strided), laid_out(mine, strided)
        dist.reduce_scatter_tensor(own, whole, op=op, group=group)
        results.append(("reduce_scatter_tensor", own, start))
        problems += ["reduce_scatter_tensor changed its input"] if bits(whole) != bits(mine) else []
    if [bit for each in sources for bit in bits(each)] != bits(mine):
        problems.append("reduce_scatter changed its input")
    if not all(map(untouched, (*sources, *(got for _, got, _ in results)))):
        problems.append("elements beside a view were written to")
    return results, problems


def named(op) -> str:
    return f"PREMUL_SUM by {factor_of(op)}" if op == R.PREMUL_SUM else str(op)


MIXED = ((torch.float32, torch.int32), (torch.float64, torch.bfloat16, torch.float64), (torch.int16, torch.float16),
         (torch.int64, torch.int8, torch.bool, torch.uint8))


def of_several_types(groups: dict, rank: int, ranks: int, wrong: list[str]) -> int:
    """Runs the coalesced collectives, of tensors of several types and sizes, in all groups; notes what is wrong. Returns the
    number of results in each."""
    count = 0
    for types in MIXED:
        rules = [{named(op): (op, rule) for op, rule in operations(dtype, ranks)} for dtype in types]
        tensors = [drawn(dtype, "plain", ranks * size, ranks) for size, dtype in enumerate(types, 1)]
        columns = [list(zip(*(tensor.tolist() for tensor in each), strict=True)) for each in tensors]
        for operation in sorted(set.intersection(*map(set, rules))):
            op = rules[0][operation][0]
            exact = [[each[operation][1](list(column)) for column in own] for each, own in zip(rules, columns, strict=True)]
            for name, strided in itertools.product(groups, (False, True)):
                right = [Right(*each, op in (R.MAX, R.MIN), name != "switch") for each in zip(exact, tensors, strict=True)]
                own = [laid_out(each[rank], strided) for each in tensors]
                for collective, got, starts in reduced_together(groups[name], op, own, strided, rank):
                    count += name == "switch"
                    problems = [judge.problem(*each) if untouched(each[0]) else "written beside the view"
                                for judge, *each in zip(right, got, starts, strict=True)]
                    wrong += [f"{name}: {collective} {operation} of {types}: {problem}" for problem in problems if problem]
    for types in (*MIXED, (torch.complex64, torch.float8_e5m2, torch.uint16)):
        for name, strided in itertools.product(groups, (False, True)):
            kinds = [Octets(each, strided) for each in types]
            for collective, gathered, expected in gathered_together(groups[name], kinds, rank, ranks):
                count += name == "switch"
                if gathered != expected:
                    wrong.append(f"{name}: {collective} of {types}: {gathered[:12]}, expected {expected[:12]}")
    return count


def reduced_together(group, op, own: list[torch.Tensor], strided: bool, rank: int) -> Iterator[tuple[str, list, list[int]]]:
    """Yields (collective, its results, the number of each one's first element) of the coalesced reductions of ``own``."""
    whole, pieces = [laid_out(each, strided) for each in own], [len(each) // group.size() for each in own]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = op
    group.allreduce_coalesced(whole, options).wait()
    yield "allreduce_coalesced", whole, [0] * len(own)
    whole = [laid_out(each, strided) for each in own]
    with dist._coalescing_manager(group=group):
        for each in whole:
            dist.all_reduce(each, op, group=group)
    yield "all_reduce in a manager", whole, [0] * len(own)
    parts = [laid_out(each[:size], strided) for each, size in zip(own, pieces, strict=True)]
    with dist._coalescing_manager(group=group):
        for part, each in zip(parts, own, strict=True):
            dist.reduce_scatter_tensor(part, each, op, group=group)
    yield "reduce_scatter_tensor in a manager", parts, [rank * size for size in pieces]


def gathered_together(group, kinds: list[Octets], rank: int, ranks: int) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yields (collective, the bits of its result, the right bits) of the coalesced all-gathers."""
    counts, own = range(1, len(kinds) + 1), [kind.sent(rank, 4 * count) for count, kind in enumerate(kinds, 1)]
    whole = [kind.blank(4 * ranks * count) for count, kind in zip(counts, kinds, strict=True)]
    group.allgather_into_tensor_coalesced(whole, own).wait()
    right = [[bits(kind.of(i, 4 * count)) for i in range(ranks)] for count, kind in zip(counts, kinds, strict=True)]
    for got, each in zip(whole, right, strict=True):
        yield "allgather_into_tensor_coalesced", bits(got), sum(each, [])
    rows = [[kind.blank(4 * count) for count, kind in zip(counts, kinds, strict=True)] for _ in range(ranks)]
    group.allgather_coalesced(rows, own).wait()
    for i, row in enumerate(rows):
        for got, each in zip(row, right, strict=True):
            yield "allgather_coalesced", bits(got), each[i]


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8).flatten().tolist()


class Octets:
    """Tensors of a type, with any bits, NaN of every payload among them."""

    def __init__(self, dtype: torch.dtype, strided: bool):
        self.dtype, self.strided = dtype, strided

    def of(self, rank: int, count: int) -> torch.Tensor:
        octets = torch.arange(count * self.dtype.itemsize) * 37 + 101 * rank + 250
        return (octets % 2 if self.dtype == torch.bool else octets).to(torch.uint8).view(self.dtype)

    def blank(self, count: int) -> torch.Tensor:
        room = torch.zeros(2 * count * self.dtype.itemsize, dtype=torch.uint8).view(self.dtype)
        return room.view(count, 2)[:, 0] if self.strided else room[:count]

    def sent(self, rank: int, count: int) -> torch.Tensor:
        return self.blank(count).copy_(self.of(rank, count))

    def part(self, rank: int, count: int, start: int, length: int) -> list[int]:
        """Returns the bits of some of a rank's ``count`` elements."""
        size = self.dtype.itemsize
        return bits(self.of(rank, count))[start * size : (start + length) * size]


def movements(name: str, group, rank: int, ranks: int, wrong: list[str]) -> int:
    """Runs all collectives that only move tensors; notes what is wrong. Returns the number of their results."""
    count = 0
    for dtype in MOVED:
        for n, strided in ((0, False), (1, True), (4, False), (4, True), (200, False)):
            results = moved(group, Octets(dtype, strided), n, rank, ranks)
            count += len(results)
            for collective, got, right in results:
                if bits(got) != right:
                    label = f"{collective} of {n} {dtype}{', strided' * strided}"
                    wrong.append(f"{name}: {label}: {bits(got)[:12]}, expected {right[:12]}")
    return count


def moved(group, octets: Octets, n: int, rank: int, ranks: int) -> list[tuple[str, torch.Tensor, list[int]]]:
    """Returns (collective, its result, the right bits) of each, with pieces of ``n`` elements, and of ``n``, 2 ``n``, ..."""
    of, blank, sent, everyone = octets.of, octets.blank, octets.sent, range(ranks)
    own, sizes, whole = sent(rank, n), [n * (i + 1) for i in everyone], ranks * n
    got = sent(rank, n)
    dist.broadcast(got, ROOT, group=group)
    results = [("broadcast", got, bits(of(ROOT, n)))]
    rows = [blank(n) for _ in everyone]
    dist.all_gather(rows, own, group=group)
    results += [("all_gather", rows[i], bits(of(i, n))) for i in everyone]
    rows = list(map(blank, sizes))
    dist.all_gather(rows, sent(rank, sizes[rank]), group=group)
    results += [("all_gather of several sizes", rows[i], bits(of(i, sizes[i]))) for i in everyone]
    got = blank(whole)
    dist.all_gather_into_tensor(got, own, group=group)
    results.append(("all_gather_into_tensor", got, [bit for i in everyone for bit in bits(of(i, n))]))
    rows = [blank(n) for _ in everyone]
    dist.gather(own, rows if rank == ROOT else None, ROOT, group=group)
    results += [("gather", rows[i], bits(of(i, n))) for i in everyone if rank == ROOT]
    got = blank(n)
    dist.scatter(got, [sent(i, n) for i in everyone] if rank == ROOT else None, ROOT, group=group)
    results.append(("scatter", got, bits(of(rank, n))))
    got = blank(whole)
    dist.all_to_all_single(got, sent(rank, whole), group=group)
    right = [bit for i in everyone for bit in octets.part(i, whole, rank * n, n)]
    results.append(("all_to_all_single", got, right))
    got = blank(ranks * sizes[rank])
    dist.all_to_all_single(got, sent(rank, sum(sizes)), [sizes[rank]] * ranks, sizes, group=group)
    right = [bit for i in everyone for bit in octets.part(i, sum(sizes), sum(sizes[:rank]), sizes[rank])]
    results.append(("all_to_all_single with splits", got, right))
    rows = [blank(n) for _ in everyone]
    dist.all_to_all(rows, [sent(rank + i, n) for i in everyone], group=group)
    results += [("all_to_all", rows[i], bits(of(i + rank, n))) for i in everyone]
    rows = list(map(blank, sizes))
    dist.all_to_all(rows, [sent(rank, sizes[rank])] * ranks, group=group)
    results += [("all_to_all of several sizes", rows[i], bits(of(i, sizes[i]))) for i in everyone]
    return results
