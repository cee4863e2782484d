"""Collectives on CUDA tensors, in the order of CUDA's streams. Several ranks share the first device."""

from __future__ import annotations

import pytest
from capabilities import need
from ranks import run, succeed

pytestmark = [pytest.mark.hardware, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

SLOW = """
rank, n = start()
torch.cuda.set_device(0)
def slow(): torch.cuda._sleep(2_000_000_000)  # clock cycles: about a second
def passed(): event = torch.cuda.Event(); event.record(); return event
slow(); torch.cuda.synchronize()
"""


@pytest.fixture(autouse=True)
def cuda():
    need("cuda")


def test_cuda_tensors(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        rank, n = start()
        def of(*shape, value=0.0, dtype=torch.float32): return torch.full(shape, value, device="cuda", dtype=dtype)
        tensor = of(100_000, value=rank + 1.0); tensor *= 2; dist.all_reduce(tensor)
        assert (tensor == 6).all() and tensor.is_cuda
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
            tensor = of(1000, value=rank + 1, dtype=dtype); dist.all_reduce(tensor); assert (tensor == 3).all(), dtype
        whole = of(6, 4, value=1.0); view = whole.t()[::2]; dist.all_reduce(view)
        assert (view == 2).all() and (whole[:, 1::2] == 1).all()
        tensor = of(5, value=rank); dist.broadcast(tensor, 1); assert (tensor == 1).all()
        rows = [of(3), of(3)]; dist.all_gather(rows, of(3, value=rank)); assert [row[0].item() for row in rows] == [0, 1]
        flat = of(2); dist.all_gather_into_tensor(flat, of(1, value=rank)); assert flat.tolist() == [0, 1]
        part = of(2); dist.reduce_scatter_tensor(part, torch.arange(4.0, device="cuda")); assert part[0] == 4 * rank
        turned = of(2); dist.all_to_all_single(turned, of(2, value=rank)); assert turned.tolist() == [0, 1]
        if rank == 0: dist.send(torch.arange(4.0, device="cuda"), 1)
        else: got = of(4); dist.recv(got); assert got.tolist() == [0, 1, 2, 3]
        dist.barrier()
        say(stats=ina.backend.stats())
        dist.destroy_process_group()
    """)):
        assert each["stats"]["calls"]["allreduce"]["switch"] >= 7


def test_tokens_of_experts_on_the_device(tmp_path):
    for each in succeed(run(tmp_path, 3, """
        import ina.moe
        rank, n = start()
        tokens = torch.arange(1.0, 25.0, device="cuda").view(6, 4).requires_grad_()
        weights = torch.full((6, 3), 0.5, device="cuda", requires_grad=True)
        experts = torch.tensor([[0, 1, 2], [1, 2, -1]] * 3, device="cuda")
        rows, plan = ina.moe.dispatch(tokens, experts, weights, num_experts=n)
        result = ina.moe.combine(rows[plan.row] * (rank + 1), plan)
        result.sum().backward()
        factor = torch.tensor([[3.0], [2.5]] * 3, device="cuda")
        say(right=torch.equal(result, tokens * factor) and torch.equal(tokens.grad, factor.expand(6, 4)),
            weights=torch.equal(weights.grad, (experts + 1) * tokens.detach().sum(1, keepdim=True)), on=str(result.device))
        dist.destroy_process_group()
    """, INA_PROTOCOL="receivers")):
        assert each["right"] and each["weights"] and each["on"] == "cuda:0"


def test_a_call_waits_for_nothing_and_reads_what_the_stream_writes_before_it(tmp_path):
    for each in succeed(run(tmp_path, 2, SLOW + """
tensor, other = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
dist.all_reduce(tensor)  # the first one pins memory, for which CUDA waits until the device is idle
slow(); tensor.fill_(rank + 1.0); written = passed()
work = dist.all_reduce(tensor, async_op=True)
blocked = written.query()  # if the call had waited for the device, it would be over
slow(); other.fill_(1.0); later = passed()
work.wait()
say(blocked=blocked, waited=later.query(), result=tensor.unique().tolist())
again = torch.cuda.Stream()  # on another stream, whose work the collective follows
with torch.cuda.stream(again):
    slow(); tensor.fill_(5.0); dist.all_reduce(tensor); tensor.add_(1)
again.synchronize()
say(again=tensor.unique().tolist())
dist.destroy_process_group()
""")):
        assert not each["blocked"] and not each["waited"]
        assert each["result"] == [3.0] and each["again"] == [11.0]


def test_memory_is_pinned_once(tmp_path):
    """Repeated collectives of one size take the same pinned memory again."""
    for each in succeed(run(tmp_path, 2, SLOW + """
tensors = [torch.ones(300_000, device="cuda") for _ in range(4)]
def step():
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]: work.wait()
    torch.cuda.synchronize()
for _ in range(3): step()
before = torch.cuda.host_memory_stats()["num_host_alloc"]
for _ in range(20): step()
say(pinned=torch.cuda.host_memory_stats()["num_host_alloc"] - before, result=tensors[0].unique().tolist())
dist.destroy_process_group()
""")):
        assert each["pinned"] <= 4, "each step takes pinned memory anew"
        assert each["result"] == [2.0**23]


def test_distributed_data_parallel_and_fsdp_compute_what_one_process_does(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        from torch.nn.parallel import DistributedDataParallel
        from torch.distributed.fsdp import fully_shard
        rank, n = start()
        torch.cuda.set_device(0)
        def model(): torch.manual_seed(0); return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).cuda()
        data = torch.randn(8, 64, generator=torch.Generator().manual_seed(1)).cuda()
        def train(net, mine):
            optimizer = torch.optim.SGD(net.parameters(), 0.01)
            for _ in range(5): optimizer.zero_grad(); net(mine).square().mean().backward(); optimizer.step()
            return net
        alone = torch.cat([p.detach().flatten() for p in train(model(), data).parameters()])
        half = data[4 * rank : 4 * rank + 4]
        ddp = train(DistributedDataParallel(model(), bucket_cap_mb=0.02), half)
        ddp = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        net = model()
        for layer in net: fully_shard(layer)
        net = train(fully_shard(net), half)
        fsdp = torch.cat([p.full_tensor().detach().flatten() for p in net.parameters()])
        say(ddp=(ddp - alone).abs().max().item(), fsdp=(fsdp - alone).abs().max().item())
        dist.destroy_process_group()
    """)):
        assert each["ddp"] < 1e-5 and each["fsdp"] < 1e-5


def test_groups_meshes_and_objects(tmp_path):
    """A group bound to its device, sub-groups of a mesh, distributed tensors, objects, and barriers that name the device."""
    for number, each in enumerate(succeed(run(tmp_path, 4, """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
        torch.cuda.set_device(0)
        dist.init_process_group("ina", init_method=os.environ["INIT"], rank=int(os.environ["RANK"]), world_size=4,
                                device_id=torch.device("cuda:0"))
        rank = dist.get_rank()
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("a", "b"))
        sums = {}
        for name in ("a", "b"):
            tensor = torch.full((5,), float(rank), device="cuda")
            dist.all_reduce(tensor, group=mesh[name].get_group()); sums[name] = tensor[0].item()
        flat, whole = init_device_mesh("cuda", (4,)), torch.arange(32.0, device="cuda").reshape(8, 4)
        rows = distribute_tensor(whole, flat, [Shard(0)])
        columns = rows.redistribute(flat, [Shard(1)]).to_local()
        added = DTensor.from_local(whole, flat, [Partial()]).redistribute(flat, [Shard(0)]).to_local()
        right = [bool((rows.redistribute(flat, [Replicate()]).to_local() == whole).all()),
                 bool((columns == whole[:, rank : rank + 1]).all()), bool((added == 4 * whole[2 * rank : 2 * rank + 2]).all())]
        objects = [None] * 4; dist.all_gather_object(objects, {"rank": rank})
        dist.barrier(); dist.barrier(device_ids=[0])
        say(sums=sums, right=right, objects=objects)
        dist.destroy_process_group()
    """))):
        assert each["sums"] == {"a": 2 * (number % 2) + 2, "b": 4 * (number // 2) + 1}
        assert each["right"] == [True] * 3 and each["objects"] == [{"rank": rank} for rank in range(4)]


def test_a_back_end_for_each_device(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        torch.cuda.set_device(0)
        rank, n = start(backend="cpu:gloo,cuda:ina")
        there, here = torch.ones(10, device="cuda") * (rank + 1), torch.ones(10) * (rank + 1)
        dist.all_reduce(there); dist.all_reduce(here)
        say(there=there.tolist(), here=here.tolist())
        dist.destroy_process_group()
    """)):
        assert each["there"] == each["here"] == [3.0] * 10


def test_messages_and_exchanges(tmp_path):
    for number, each in enumerate(succeed(run(tmp_path, 2, """
        torch.cuda.set_device(0)
        rank, n = start()
        sent, got = torch.full((1000,), float(rank), device="cuda"), torch.empty(1000, device="cuda")
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]):
            work.wait()
        parts = [torch.empty(2, device="cuda") for _ in range(2)]
        dist.all_to_all(parts, [torch.full((2,), 10.0 * to + rank, device="cuda") for to in range(2)])
        uneven = [torch.empty(rank + 1, device="cuda") for _ in range(2)]
        dist.all_to_all(uneven, [torch.full((to + 1,), 10.0 * to + rank, device="cuda") for to in range(2)])
        say(got=got.unique().tolist(), parts=[part.tolist() for part in parts], uneven=[part.tolist() for part in uneven])
        dist.destroy_process_group()
    """))):
        assert each["got"] == [1.0 - number] and each["parts"] == [[10.0 * number] * 2, [10.0 * number + 1] * 2]
        assert each["uneven"] == [[10.0 * number] * (number + 1), [10.0 * number + 1] * (number + 1)]


def test_graphs_are_refused_and_compiled_collectives_compute_what_plain_ones_do(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        import torch.distributed._functional_collectives as functional
        torch.cuda.set_device(0)
        rank, n = start()
        world = dist.group.WORLD
        def step(x): return functional.all_reduce(2 * x, "sum", world) + functional.all_gather_tensor(x, 0, world).sum()
        x = torch.ones(8, device="cuda") * (rank + 1)
        plain, compiled = step(x), torch.compile(step)(x)
        tensor, error = torch.ones(10, device="cuda"), ""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()): dist.all_reduce(tensor)
        except RuntimeError as refused: error = str(refused)
        dist.all_reduce(tensor)
        say(plain=plain.tolist(), compiled=compiled.tolist(), error=error, after=tensor.tolist())
        dist.destroy_process_group()
    """)):
        assert each["plain"] == each["compiled"] == [30.0] * 8
        assert "cannot be captured" in each["error"] and each["after"] == [2.0] * 10


def test_hooks_of_ddp_keep_the_ranks_equal(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
        from torch.nn.parallel import DistributedDataParallel
        torch.cuda.set_device(0)
        rank, n = start()
        generator = torch.Generator().manual_seed(rank)
        x, y = torch.randn(16, 64, generator=generator).cuda(), torch.randn(16, 8, generator=generator).cuda()
        def train(hook=None, state=None, **options):
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
            net = DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=0.01, **options)
            if hook: net.register_comm_hook(state, hook)
            optimizer = torch.optim.SGD(net.parameters(), 0.05)
            for _ in range(10): optimizer.zero_grad(); loss = (net(x) - y).square().mean(); loss.backward(); optimizer.step()
            mine = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
            first = mine.clone(); dist.broadcast(first, 0)
            return loss.item(), bool((mine == first).all())
        power = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
        say(plain=train(), views=train(gradient_as_bucket_view=True, static_graph=True),
            half=train(default_hooks.fp16_compress_hook), brain=train(default_hooks.bf16_compress_hook),
            power=train(powerSGD_hook.powerSGD_hook, power))
        dist.destroy_process_group()
    """)):
        losses, equal = zip(*(each[name] for name in ("plain", "views", "half", "brain", "power")), strict=True)
        assert all(equal), each
        assert losses[:4] == pytest.approx(losses[:1] * 4, rel=0.02)
