"""Collectives through Gloo keep the promises of docs/guide/torch.md, in groups that have the switch and in those without it."""

from __future__ import annotations

import pytest
from ranks import ROOT, run, succeed

pytest.importorskip("torch", reason="the back end needs torch")

GROUPS = """
import dataclasses
from types import SimpleNamespace
from ina.backend import membership
from ina.backend.settings import Settings
R, nan, inf = dist.ReduceOp, float("nan"), float("inf")
def groups():  # that have the switch; that it has no room for; of more ranks than it has bits for
    small = dataclasses.replace(Settings.read(), pool=64)
    Settings.read = classmethod(lambda cls, options: small)
    start()
    dist.barrier()
    members = list(range(dist.get_world_size()))
    made = {"switch": dist.group.WORLD, "refused": dist.new_group(members)}
    dist.barrier(made["refused"])
    membership.lib = SimpleNamespace(INA_BITMAP_WORKERS=len(members) - 1)
    made["large"] = dist.new_group(members)
    return made
"""


def agree(tmp_path, ranks: int, body: str) -> list[dict]:
    """Runs ``body`` in ranks, each of which says what is wrong; nothing is. Returns their reports."""
    reports = succeed(run(tmp_path, ranks, GROUPS + "wrong = []\n" + body + """
say(wrong=wrong, reasons=ina.backend.stats()["reasons"])
meet(); dist.destroy_process_group()
""", INA_SLOTS="64"))
    assert [report["wrong"] for report in reports] == [[]] * ranks
    return reports


@pytest.mark.build
@pytest.mark.gate
def test_a_nan_on_any_rank_wins_maxima_and_minima(tmp_path):
    reports = agree(tmp_path, 3, """
for name, group in groups().items():
    rank, n = dist.get_rank(), 3
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        # a NaN on the first, second, third, and on no rank; zeros, infinities, signs
        columns = [[nan, 1, 2], [1, nan, 2], [1, 2, -nan], [1, -3, 2], [-0.0, 0.0, -0.0], [inf, -inf, 0], [-1.5, -2.5, -3.5]]
        mine = torch.tensor([column[rank] for column in columns], dtype=torch.float64).to(dtype)
        for op, best in ((R.MAX, max), (R.MIN, min)):
            wanted = [nan if any(v != v for v in column) else best(column) for column in columns]
            whole = {"all_reduce": mine.clone(), "strided": torch.stack([mine, mine], 1)[:, 0], "reduce": mine.clone()}
            dist.all_reduce(whole["all_reduce"], op=op, group=group)
            dist.all_reduce(whole["strided"], op=op, group=group)
            dist.reduce(whole["reduce"], 1, op=op, group=group)
            whole["reduce_scatter_tensor"] = torch.zeros_like(mine)
            dist.reduce_scatter_tensor(whole["reduce_scatter_tensor"], mine.repeat(n), op=op, group=group)
            whole["reduce_scatter"] = torch.zeros_like(mine)
            dist.reduce_scatter(whole["reduce_scatter"], [mine] * n, op=op, group=group)
            for kind, got in whole.items():
                right = mine if kind == "reduce" and rank != 1 else torch.tensor(wanted, dtype=torch.float64).to(dtype)
                if not torch.allclose(got, right, rtol=0, atol=0, equal_nan=True):
                    wrong.append(f"{name}: {kind} {op} of {dtype}: {got.tolist()}, expected {right.tolist()}")
            dist.all_reduce(torch.zeros(0, dtype=dtype), op=op, group=group)
""")
    for report in reports:
        assert {reason.partition(": ")[2] for reason in report["reasons"]} == {"MAX of float64", "MIN of float64",
                                                                              "refused by the switch", "more than 2 ranks"}


@pytest.mark.build
@pytest.mark.later
def test_a_reduce_changes_the_roots_tensor_only(tmp_path):
    agree(tmp_path, 5, """
for name, group in groups().items():
    rank, n, total = dist.get_rank(), 5, {R.SUM: 15, R.MAX: 5, R.PRODUCT: 120}
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8):
        for op, right in ((op, total[op]) for op in (R.SUM, R.MAX, R.PRODUCT)):
            for root in (0, 3):
                flat, pairs = torch.full((4,), rank + 1).to(dtype), torch.full((2, 4), rank + 1).to(dtype)
                strided = pairs.t()[1:, 0]
                for tensor in (flat, strided):
                    work = dist.reduce(tensor, root, op=op, group=group, async_op=True)
                    work.wait()
                    if rank != root and any(each is not tensor for each in work.result()): wrong.append("a result of its own")
                if not (flat == (right if rank == root else rank + 1)).all() or flat[1:].tolist() != strided.tolist():
                    wrong.append(f"{name}: {op} of {dtype} to {root}: {flat.tolist()}, {strided.tolist()}")
                if not (pairs[:, 0] == rank + 1).all() or not (pairs[1] == rank + 1).all(): wrong.append("beside the view")
""")


@pytest.mark.build
@pytest.mark.later
def test_tensors_of_any_type_are_moved_bit_for_bit(tmp_path):
    agree(tmp_path, 3, """
def lacking(*args): raise RuntimeError("Backend gloo does not support alltoall")  # as in torch 2.11
dist.ProcessGroup.alltoall = lacking
types = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.int16, torch.uint16,
         torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128, torch.float16, torch.int64)
def bits(tensor): return tensor.contiguous().view(torch.uint8).flatten().tolist()
def joined(tensors): return torch.cat([tensor.view(torch.uint8) for tensor in tensors]).view(tensors[0].dtype)
def of(rank, count, dtype, columns=None):  # octets of a rank; 48 of them are whole elements of each type
    octets = (torch.arange(48 * count) * 7 + 31 * rank + 1).to(torch.uint8)
    octets = octets & 1 if dtype == torch.bool else octets
    return octets.view(dtype) if columns is None else octets.view(dtype).view(-1, columns)
for name, group in groups().items():
    rank, n = dist.get_rank(), 3
    for dtype in types:
        def blank(count): return torch.zeros(48 * count, dtype=torch.uint8).view(dtype)
        def check(what, got, *expected):
            right = [bit for each in expected for bit in bits(each)]
            if bits(got) != right: wrong.append(f"{name}: {what} of {dtype}: {bits(got)}, expected {right}")
        mine, each = of(rank, 1, dtype), [of(r, 1, dtype) for r in range(n)]
        got = blank(n); dist.all_to_all_single(got, of(rank, n, dtype), group=group)
        check("all_to_all_single", got, *(of(r, n, dtype).chunk(n)[rank] for r in range(n)))
        rows = [blank(1) for r in range(n)]; dist.all_to_all(rows, list(of(rank, n, dtype).chunk(n)), group=group)
        for r in range(n): check("all_to_all", rows[r], of(r, n, dtype).chunk(n)[rank])
        rows = [blank(r) for r in range(n)]; dist.all_to_all(rows, [of(r, rank, dtype) for r in range(n)], group=group)
        for r in range(n): check("all_to_all of several sizes", rows[r], of(rank, r, dtype))
        width = 1 if mine.numel() % 2 else mine.numel() // 2  # elements of a row, of which there are several in 48 octets
        out = [of(0, 1, dtype, width)[:0] if r == 1 else of(rank, 1, dtype, width) for r in range(n)]
        got = blank(n if rank != 1 else 0).view(-1, width)
        dist.all_to_all_single(got, joined(out), [0 if rank == 1 else len(out[0])] * n, [len(part) for part in out], group=group)
        check("all_to_all_single with splits", got, *(each if rank != 1 else []))
        pairs, got = blank(2 * n)[::2], blank(2 * n)[::2]; pairs.copy_(of(rank, n, dtype))
        dist.all_to_all_single(got, pairs, group=group)
        check("strided all_to_all_single", got, *(of(r, n, dtype).chunk(n)[rank] for r in range(n)))
        dist.all_to_all_single(blank(0), blank(0), group=group)
        got = mine.clone(); dist.broadcast(got, 2, group=group); check("broadcast", got, each[2])
        rows = [blank(1) for r in range(n)]; dist.all_gather(rows, mine, group=group)
        for r in range(n): check("all_gather", rows[r], each[r])
        got = blank(n); dist.all_gather_into_tensor(got, mine, group=group); check("all_gather_into_tensor", got, *each)
        rows = [blank(1) for r in range(n)]; dist.gather(mine, rows if rank == 1 else None, 1, group=group)
        for r in range(n) if rank == 1 else (): check("gather", rows[r], each[r])
        got = blank(1); dist.scatter(got, list(of(2, n, dtype).chunk(n)) if rank == 2 else None, 2, group=group)
        check("scatter", got, of(2, n, dtype).chunk(n)[rank])
        if rank == 0: dist.send(mine, 1, group=group)
        if rank == 1: got = blank(1); dist.recv(got, 0, group=group); check("recv", got, each[0])
""")


@pytest.mark.build
@pytest.mark.later
def test_sums_and_averages_are_those_of_the_table_in_every_group(tmp_path):
    agree(tmp_path, 3, """
def exact(values, dtype): return torch.tensor(values, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
for name, group in groups().items():
    rank, n = dist.get_rank(), 3
    def reduced(op, values, dtype):
        tensor = exact(values, dtype)
        parts = [tensor.clone(), torch.stack([tensor, tensor], 1)[:, 1], torch.zeros_like(tensor), torch.zeros_like(tensor)]
        for part in parts[:2]: group.allreduce([part], op).wait()  # of complex numbers as such, past torch's views
        group.reduce_scatter([parts[2]], [[tensor] * n], op=op).wait()
        dist.reduce_scatter_tensor(parts[3], tensor.repeat(n), op=op, group=group)
        if not all(torch.equal(part, parts[0]) for part in parts): wrong.append(f"{name}: {op} of {dtype}: {parts}")
        return parts[0]
    def check(op, dtype, mine, *right):
        got = reduced(op, mine, dtype)
        if not torch.equal(got, (expected := exact(right, dtype))):
            wrong.append(f"{name}: {op} of {dtype}: {got.tolist()}, expected {expected.tolist()}")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        half = torch.finfo(dtype).max / 2  # of these no sum of three fits the type, but their average does
        check(R.AVG, dtype, [half * 1.5, half, -half * 1.5], half * 1.5, half, -half * 1.5)
        check(R.AVG, dtype, [rank * 3.0, 2.0 - rank], 3.0, 1.0)
        check(dist._make_nccl_premul_sum(0.5), dtype, [rank * 4.0], 6.0)
    for dtype in (torch.complex64, torch.complex128):
        check(R.AVG, dtype, [complex(3 * rank, 1), 0.25j], 3 + 1j, 0.25j)
        check(R.SUM, dtype, [complex(3 * rank, 1)], 9 + 3j)
    check(R.SUM, torch.float16, [[2048.0, 1.0, 1.0][rank], [65504.0, 65504.0, -65504.0][rank]], 2050.0, 65504.0)
    check(R.SUM, torch.bfloat16, [[256.0, 1.0, 1.0][rank]], 258.0)
    check(R.SUM, torch.int16, [[30000, 30000, -5][rank], rank], 60000 - 5 - 65536, 3)
    check(dist._make_nccl_premul_sum(0.5), torch.int16, [rank - 5], -1 - 2 - 2)
    check(dist._make_nccl_premul_sum(3.0), torch.int8, [50, rank], 450 - 512, 9)
    true = torch.tensor([True, rank == 1, False]); dist.all_reduce(true, group=group)
    if true.view(torch.uint8).tolist() != [1, 1, 0]: wrong.append(f"{name}: bool {true.view(torch.uint8).tolist()}")
""")


SPARSE_TYPES = """
torch.sparse.check_sparse_tensor_invariants.disable()
def exact(values, dtype): return torch.tensor(values, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
def sparse(rows, values, dtype): return torch.sparse_coo_tensor(torch.tensor([rows]), exact(values, dtype), (9,))
"""


@pytest.mark.build
@pytest.mark.later
def test_sums_of_sparse_tensors_are_those_of_the_table_in_every_group(tmp_path):
    """By dist.all_reduce, which replaces complex tensors by views, and by the group's own method."""
    agree(tmp_path, 3, SPARSE_TYPES + """
for name, group in groups().items():
    rank, n = dist.get_rank(), 3
    def check(dtype, rows, values, places, right):
        for way in ("all_reduce", "asynchronous", "method", "coalesced"):
            mine = sparse(rows, values, dtype)
            mine = mine.coalesce() if way == "coalesced" else mine
            if way == "method": group.allreduce([mine]).wait()
            elif way == "asynchronous": dist.all_reduce(mine, group=group, async_op=True).wait()
            else: dist.all_reduce(mine, group=group)
            expected, shape = exact(right, dtype), torch.Size([9])
            same = mine.is_coalesced() and mine.dtype == dtype and mine.shape == shape and mine.indices().tolist() == [places]
            if not same or not torch.equal(mine.values(), expected): wrong.append(f"{name}: {way} of {dtype}: {mine}, {right}")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int8,
                  torch.uint8, torch.int16, torch.int32, torch.int64):
        check(dtype, [rank, 5, 5], [rank + 1, 3, 1], [0, 1, 2, 5], [1, 2, 3, 12])
        check(dtype, [], [], [], [])
        check(dtype, [4] * (rank == 1), [7] * (rank == 1), [4], [7])
        check(dtype, [8], [[5, 5, -10][rank] if dtype != torch.uint8 else [128, 100, 28][rank]], [8], [0])  # its row stays
    for dtype in (torch.complex64, torch.complex128): check(dtype, [4], [complex(rank, 0.5)], [4], [3 + 1.5j])
    check(torch.float16, [1], [[2048.0, 1.0, 1.0][rank]], [1], [2050.0])
    check(torch.bfloat16, [1], [[256.0, 1.0, 1.0][rank]], [1], [258.0])
    check(torch.int16, [1], [[30000, 30000, -5][rank]], [1], [60000 - 5 - 65536])
    check(torch.int8, [1], [50], [1], [150 - 256])
    check(torch.bool, [rank, 5, 5, 6], [True, rank == 1, False, False], [0, 1, 2, 5, 6], [True, True, True, True, False])
    matrix = torch.sparse_coo_tensor(torch.tensor([[rank, 4]]), torch.full((2, 3), 1j + rank), (9, 3))
    dist.all_reduce(matrix, group=group)
    if matrix.to_dense()[:, 2].tolist() != [1j, 1 + 1j, 2 + 1j, 0, 3 + 3j, 0, 0, 0, 0]: wrong.append(f"{name}: {matrix}")
""")


@pytest.mark.build
@pytest.mark.later
def test_of_sparse_views_what_is_summed_arrives_or_an_error_says_so(tmp_path):
    """Sums of torch.view_as_real of a complex tensor reach it; those of its transpose would not. Real views are summed."""
    agree(tmp_path, 2, SPARSE_TYPES + """
for name, group in groups().items():
    rank, n = dist.get_rank(), 2
    for whole in (sparse([rank], [1 + 1j], torch.complex64), sparse([rank], [1 + 1j], torch.complex64).requires_grad_(),
                  sparse([rank], [1 + 1j], torch.complex64).detach()):
        dist.all_reduce(whole, group=group)
        if whole.detach().to_dense()[:3].tolist() != [1 + 1j, 1 + 1j, 0]: wrong.append(f"{name}: {whole}")
    square = torch.sparse_coo_tensor(torch.tensor([[rank], [2]]), torch.tensor([1 + 1j]), (4, 4))
    try: dist.all_reduce(square.t(), group=group); wrong.append(f"{name}: a transposed complex tensor")
    except ValueError as error:
        if "view of a sparse complex64 tensor" not in str(error): wrong.append(str(error))
    dist.all_reduce(square, group=group)
    if square.to_dense()[:3, 2].tolist() != [1 + 1j, 1 + 1j, 0]: wrong.append(f"{name}: {square}")
    real = torch.sparse_coo_tensor(torch.tensor([[rank], [2]]), torch.tensor([1.0]), (4, 4)).t()
    dist.all_reduce(real, group=group)
    if real.to_dense()[2, :3].tolist() != [1, 1, 0]: wrong.append(f"{name}: {real}")
""")


@pytest.mark.build
@pytest.mark.later
def test_every_collective_keeps_the_guides_promises_in_every_group(tmp_path):
    reports = agree(tmp_path, 3, f"sys.path.insert(0, {str(ROOT / 'tests' / 'backend')!r})\n" + """
import collective_matrix as matrix
made, rank = groups(), dist.get_rank()
say(reduced=matrix.reductions(made, rank, 3, wrong), moved=[matrix.movements(*each, rank, 3, wrong) for each in made.items()],
    mixed=matrix.of_several_types(made, rank, 3, wrong))
wrong = wrong[:20]
""")
    for report in reports:
        assert report["reduced"] > 1000 and min(report["moved"]) > 1000 and report["mixed"] > 100
        reasons = {"allreduce: MAX of float64", "reduce: refused by the switch", "reduce: more than 2 ranks"}
        assert reasons <= set(report["reasons"])


@pytest.mark.build
@pytest.mark.later
def test_a_reduce_scatter_into_tensors_of_another_size_is_an_error(tmp_path):
    agree(tmp_path, 2, """
for name, group in groups().items():
    for dtype, op in ((torch.float32, R.SUM), (torch.float64, R.MAX), (torch.int32, R.AVG)):
        for size in (3, 5):
            try: dist.reduce_scatter(torch.zeros(size, dtype=dtype), [torch.ones(4, dtype=dtype)] * 2, op=op, group=group)
            except RuntimeError as error: continue
            wrong.append(f"{name}: {op} of {dtype}: pieces of 4 into {size}")
""")


@pytest.mark.build
@pytest.mark.later
def test_types_that_do_not_fit_in_a_coalesced_all_gather_are_an_error(tmp_path):
    agree(tmp_path, 2, """
for name, group in groups().items():
    for types in ((torch.float32, torch.int32), (torch.int32, torch.float64), (torch.float64, torch.int64)):
        out = [torch.zeros(8, dtype=dtype) for dtype in (torch.float32, torch.float64)]
        rows = [[torch.zeros(4, dtype=dtype) for dtype in (torch.float32, torch.float64)] for _ in range(2)]
        own = [torch.ones(4, dtype=dtype) for dtype in types]
        for gather, into in ((group.allgather_into_tensor_coalesced, out), (group.allgather_coalesced, rows)):
            try: gather(into, own).wait()
            except (RuntimeError, ValueError): continue
            wrong.append(f"{name}: {gather.__name__} of {types}")
""")


@pytest.mark.build
@pytest.mark.later
def test_tensors_of_other_shapes_with_as_many_elements_fit_in_either_way(tmp_path):
    """Scalars, too."""
    agree(tmp_path, 2, """
for name, group in groups().items():
    n = dist.get_world_size()
    for call in range(4):  # the first go through the switch, later ones perhaps not
        for dtype in (torch.float32, torch.int32, torch.int64):
            whole = torch.zeros(n * 6000, dtype=dtype)
            dist.all_gather_into_tensor(whole, torch.full((60, 100), 3, dtype=dtype), group=group)
            pieces = [torch.zeros(6000, dtype=dtype) for _ in range(n)]
            dist.all_gather(pieces, torch.full((60, 100), 3, dtype=dtype), group=group)
            part = torch.zeros(60, 100, dtype=dtype)
            dist.reduce_scatter_tensor(part, torch.ones(n * 6000, dtype=dtype), group=group)
            flat = torch.zeros(6000, dtype=dtype)
            dist.reduce_scatter(flat, [torch.ones(60, 100, dtype=dtype)] * n, group=group)
            pair, halves = [torch.zeros(n * 6000, dtype=dtype) for _ in range(2)], [torch.ones(60, 100, dtype=dtype)] * 2
            group.allgather_into_tensor_coalesced(pair, halves).wait()
            parts = [torch.zeros(60, 100, dtype=dtype) for _ in range(2)]
            group.reduce_scatter_tensor_coalesced(parts, pair).wait()
            if not all((each == 1).all() for each in pair) or not all((each == n).all() for each in parts):
                wrong.append(f"{name}, call {call}: coalesced {dtype}")
            one = torch.tensor(0, dtype=dtype)
            dist.reduce_scatter_tensor(one, torch.ones(n, dtype=dtype), op=R.PRODUCT if call else R.SUM, group=group)
            expected = [3] * (2 * n * 6000) + [n] * 12000 + [1 if call else n]
            if torch.cat([whole, *pieces, part.view(-1), flat, one.view(-1)]).tolist() != expected:
                wrong.append(f"{name}, call {call}: {dtype}")
    try: dist.reduce_scatter_tensor(torch.tensor(0.0), torch.ones(7), group=group)
    except RuntimeError: continue
    wrong.append(f"{name}: a scalar of seven")
""")
