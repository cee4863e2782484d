"""Collectives in a program whose tensors are on a device, and float64, where it does not say else: theirs are in main memory."""

from __future__ import annotations

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

RANK = """
import ina.moe
from ina.backend.ready import Quorum, same_replicas
rank, n = start()
tensors = {str(dtype): torch.full((5000,), rank + 1, dtype=dtype) for dtype in (
    torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.int16, torch.int32, torch.int64, torch.float64)}
total, largest = sum(range(1, n + 1)), n
def uninitialised(*shape): return torch.empty(*shape, dtype=torch.int8, device="cpu")
own = torch.full((3,), rank, dtype=torch.int8)
tokens, experts = torch.ones(4, 8, requires_grad=True), torch.tensor([[0, 1]] * 4)
weights = torch.full((4, 2), 0.5, requires_grad=True)
sparse = torch.sparse_coo_tensor(torch.tensor([[rank, 3]]), torch.ones(2), (10_000,))
torch.set_default_device("meta")
torch.set_default_dtype(torch.float64)
dist.barrier()
facts = {}
for name, tensor in tensors.items():
    for op, right in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.MAX, largest)):
        if tensor.dtype == torch.bool: right = 1
        for result in (tensor[:3].clone(), tensor.clone()):
            dist.all_reduce(result, op)
            facts[f"{op} of {len(result)} {name}"] = bool((result == right).all())
lists = [uninitialised(3) for _ in range(n)]
dist.all_gather(lists, own)
facts["all_gather"] = [each.tolist() for each in lists] == [[r] * 3 for r in range(n)]
whole = uninitialised(3 * n)
dist.all_gather_into_tensor(whole, own)
facts["all_gather_into_tensor"] = whole.tolist() == [r for r in range(n) for _ in range(3)]
dist.all_to_all_single(whole, own.repeat(n))
facts["all_to_all_single"] = whole.tolist() == [r for r in range(n) for _ in range(3)]
dist.all_to_all([each[: r + 1] for r, each in enumerate(lists)], [own[: rank + 1]] * n)
facts["all_to_all"] = [each[: r + 1].tolist() for r, each in enumerate(lists)] == [[r] * (r + 1) for r in range(n)]
dist.all_reduce(sparse)
facts["sparse"] = sparse.coalesce().values().tolist() == [1.0] * n + [float(n)]
rows, plan = ina.moe.dispatch(tokens, experts, weights, num_experts=n)
result = ina.moe.combine(rows[plan.row], plan)
result.sum().backward()
facts["moe"] = result.tolist() == tokens.grad.tolist() == [[1.0] * 8] * 4 and weights.grad.tolist() == [[8.0] * 2] * 4
gradient = tensors["torch.float32"][:300].clone()
quorum = Quorum(gradient, "all")
quorum.average(gradient)
facts["quorum"] = bool((gradient == total / n).all())
quorum.close()
same_replicas([gradient])
say(wrong=[name for name, right in facts.items() if not right], count=len(facts))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("protocol", ["receivers", "switchml"])
def test_defaults_of_the_program_change_nothing(tmp_path, protocol):
    for report in succeed(run(tmp_path, 2, RANK, INA_PROTOCOL=protocol)):
        assert report["wrong"] == [] and report["count"] == 39
