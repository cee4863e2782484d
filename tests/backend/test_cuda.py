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
