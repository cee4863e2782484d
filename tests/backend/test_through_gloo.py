"""What goes through Gloo keeps the promises of docs/guide/torch.md, in groups that have the switch and in those that have not."""

from __future__ import annotations

import pytest
from ranks import run, succeed

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
