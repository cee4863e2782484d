"""torch.compile around collectives: the same programs work over Gloo and over the switch."""

from __future__ import annotations

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

# As a user writes it; each is tried with both back ends. Dynamo's compiler "eager" runs the traced graph as it is.
CASES = """
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
compiled = torch.compile(backend="eager")
cases = {}
def case(function): cases[function.__name__] = function; return function

def train(model, steps=2):
    for _ in range(steps): model(torch.arange(32.0).reshape(4, 8) + rank).sum().backward()
    return [p.grad for p in model.parameters()]
def layers(middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), middle, nn.Linear(8, 2))
@case
def compiled_ddp(): return train(torch.compile(DDP(layers(nn.ReLU())), backend="eager"))
@case
def compiled_ddp_with_buffers(): return train(torch.compile(DDP(layers(nn.BatchNorm1d(8))), backend="eager"))
@case
def compiled_ddp_in_aot(): return train(torch.compile(DDP(layers(nn.ReLU())), backend="aot_eager"))
@case
def ddp_of_compiled(): return train(DDP(torch.compile(layers(nn.ReLU()), backend="eager")))
@case
def training_and_evaluation():
    model = torch.compile(DDP(layers(nn.ReLU())), backend="eager")
    train(model); model.eval()
    return model(torch.ones(2, 8))
@case
def fsdp():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    model = torch.compile(fully_shard(layers(nn.ReLU()), mesh=init_device_mesh("cpu", (n,))), backend="eager")
    return [grad.full_tensor() for grad in train(model)]
@case
@compiled
def all_reduce(): y = mine.clone(); dist.all_reduce(y); return y
@case
@compiled
def all_reduce_in_flight(): y = mine.clone(); work = dist.all_reduce(y, async_op=True); work.wait(); return y
@case
@compiled
def broadcast(): y = mine.clone(); dist.broadcast(y, 0); return y
@case
@compiled
def all_gather(): rows = [torch.empty_like(mine) for _ in range(2)]; dist.all_gather(rows, mine); return rows[0] - rows[1]
@case
@compiled
def flat():
    whole, y = torch.empty(6), torch.empty(3)
    dist.all_gather_into_tensor(whole, mine); dist.reduce_scatter_tensor(y, whole)
    return y
@case
@compiled
def barrier_and_reduce(): dist.barrier(); y = mine + 1; dist.reduce(y, 0); return y * (1 - dist.get_rank())  # the root has it
@case
@compiled
def ranks(): return mine * dist.get_rank() + dist.get_world_size()
@case
def a_group_as_argument():
    @compiled
    def reduced(x, group): y = x.clone(); dist.all_reduce(y, group=group); return y * dist.get_rank(group)
    return reduced(mine, dist.new_group())
@case
@compiled
def doubles(): y = mine.double(); dist.all_reduce(y); return y

rank, n = start(400, os.environ["BACKEND"])
mine = torch.arange(3.0) + rank
for name, function in cases.items():
    torch._dynamo.reset()
    try: result = torch.utils._pytree.tree_map(lambda t: [round(v, 3) for v in t.detach().reshape(-1).tolist()], function())
    except Exception as error: result = f"{type(error).__name__}: {str(error)[:300]}"
    say(**{name: result})
    dist.barrier()
dist.destroy_process_group()
"""


def test_what_compiles_over_gloo_compiles_over_the_switch(tmp_path):
    ours, theirs = (succeed(run(tmp_path, 2, "import torch._dynamo\n" + CASES, timeout=430, BACKEND=backend))
                    for backend in ("ina", "gloo"))
    for rank, (with_ina, with_gloo) in enumerate(zip(ours, theirs, strict=True)):
        with_ina.pop("switch")
        assert len(with_gloo) == 15 and not any(isinstance(result, str) for result in with_gloo.values()), with_gloo
        for name, result in with_gloo.items():
            assert with_ina[name] == result, f"rank {rank}: {name}"
