"""codec = "auto" in real ranks: every call's sum is right whatever way it went, and all ranks have the same plans."""

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

SUMS = """
rank, n = start()
for size in (20_000, 30_000):
    for call in range(13):
        whole = torch.arange(size, dtype=torch.float32) + call
        mine = whole + rank
        dist.all_reduce(mine, op=dist.ReduceOp.AVG if call % 2 else dist.ReduceOp.SUM)
        right = whole + (n - 1) / 2 if call % 2 else n * whole + n * (n - 1) / 2
        assert torch.allclose(mine, right, rtol=3e-3, atol=n * size / 2**12), (size, call, (mine - right).abs().max())
small, whole = torch.ones(3), torch.arange(5000)
dist.all_reduce(small); dist.all_reduce(whole)
assert small.tolist() == [n] * 3 and torch.equal(whole, n * torch.arange(5000)), "neither is tried"
stats = ina.backend.stats()
say(plans=stats["plans"], calls=stats["calls"], reasons=stats["reasons"])
dist.destroy_process_group()
"""

BUCKETS = """
rank, n = start()
from torch.nn.parallel import DistributedDataParallel
from ina.backend.hooks import Choice, per_bucket
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(100, 100))
model.register_comm_hook(lambda bucket: Choice(codec="auto:thc,lanes-16"), per_bucket)
for step in range(14):
    model.zero_grad()
    inputs = torch.full((1, 100), 1.0 + rank)
    model(inputs).sum().backward()
    weight = model.module.weight.grad
    right = torch.full((100, 100), 1 + (n - 1) / 2)
    assert torch.norm(weight - right) < 0.2 * torch.norm(right), (step, weight)
stats = ina.backend.stats()
say(plans=stats["plans"], codecs=stats["codecs"])
dist.destroy_process_group()
"""


@pytest.mark.parametrize("codec", ["auto", "auto:lanes-16"])
def test_sums_are_right_in_trials_and_after_them(tmp_path, codec):
    reports = succeed(run(tmp_path, 2, SUMS, INA_CODEC=codec))
    assert all(report["plans"] == reports[0]["plans"] for report in reports)
    assert set(reports[0]["plans"]) == {"all-reduce of 20,000 float32", "all-reduce of 30,000 float32"}
    for text in reports[0]["plans"].values():
        assert text.split(":")[0] in ("block", "gloo", "lanes-16") and "measured: " in text and " a round)" in text
    assert reports[0]["calls"]["allreduce"]["gloo"] >= 6, "three calls of each size"
    assert reports[0]["reasons"].keys() == {"allreduce: measured to be faster, or tried"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_floats_are_planned_too(tmp_path, dtype):
    reports = succeed(run(tmp_path, 2, f"""
        rank, n = start()
        for call in range(16):
            mine = torch.full((20_000,), 1.0 + rank, dtype=torch.{dtype}); dist.all_reduce(mine)
            assert (mine == 3).all() and mine.dtype == torch.{dtype}, (call, mine)
        stats = ina.backend.stats()
        say(plans=stats["plans"], codecs=stats["codecs"])
        dist.destroy_process_group()
    """, INA_CODEC="auto:lanes-16", INA_RATE="1e6"))
    assert all(report["plans"] == reports[0]["plans"] for report in reports)
    assert set(reports[0]["plans"]) == {f"all-reduce of 20,000 {dtype}"}
    assert reports[0]["codecs"]["lanes-16"]["sums"] >= 2, "at the stated 1 Mb/s it is worth a trial"


EQUAL = """
rank, n = start()
size = 5000
for call in range(34):
    whole, mine, same = torch.empty(n * size), torch.full((size,), -0.0 - rank), torch.arange(size) * (rank + 1.0)
    dist.all_gather_into_tensor(whole, mine)
    assert torch.equal(whole, torch.cat([torch.full((size,), -0.0 - each) for each in range(n)]))
    pieces = [torch.empty(size) for _ in range(n)]; dist.all_gather(pieces, mine); assert torch.equal(torch.cat(pieces), whole)
    dist.broadcast(same, 1); assert torch.equal(same, torch.arange(size) * 2.0)
    whole = torch.arange(2 * size) << 40; dist.all_reduce(whole); assert torch.equal(whole, n * torch.arange(2 * size) << 40)
    part = torch.empty(size, dtype=torch.int32)
    dist.reduce_scatter_tensor(part, torch.arange(n * size).int(), op=dist.ReduceOp.MAX); assert part[0] == rank * size
    floats = torch.ones(size); dist.all_reduce(floats); assert floats[0] == n
    types = (torch.int32, torch.int64, torch.uint8)  # of tensors in one call
    own, right = [torch.arange(size).to(each) for each in types], [n * torch.arange(size).to(each) for each in types]
    wholes, parts = [torch.empty(n * size, dtype=each) for each in types], [torch.empty(size, dtype=each) for each in types]
    dist.group.WORLD.allgather_into_tensor_coalesced(wholes, own).wait()
    assert all(torch.equal(whole, each.repeat(n)) for whole, each in zip(wholes, own))
    dist.group.WORLD.reduce_scatter_tensor_coalesced(parts, wholes).wait(); assert all(map(torch.equal, parts, right))
    dist.group.WORLD.allreduce_coalesced(own).wait(); assert all(map(torch.equal, own, right))
stats = ina.backend.stats()
say(plans=stats["plans"], calls=stats["calls"], reasons=stats["reasons"])
dist.destroy_process_group()
"""


def test_by_default_gloo_takes_what_it_does_faster_with_the_same_bits(tmp_path):
    reports = succeed(run(tmp_path, 2, EQUAL, INA_CODEC=""))
    plans = reports[0]["plans"]
    assert all(report["plans"] == plans for report in reports)
    gathered = "8,192 to 16,383 float32"
    assert set(plans) == {f"_allgather_base: {gathered}", f"allgather: {gathered}", "broadcast: 4,096 to 8,191 float32",
                          "allreduce: SUM of 8,192 to 16,383 int64", "_reduce_scatter_base: MAX of 8,192 to 16,383 int32",
                          "allgather_into_tensor_coalesced: 16,384 to 32,767 int32",
                          "reduce_scatter_tensor_coalesced: SUM of 16,384 to 32,767 int32",
                          "allreduce_coalesced: SUM of 8,192 to 16,383 int32"}
    for text in plans.values():
        way, _, figures = text.partition(": measured: ")
        assert way in ("switch", "gloo") and "gloo " in figures and "switch " in figures
    for name, calls in reports[0]["calls"].items():
        assert calls["switch"] >= 3 and calls["gloo"] >= 3, (name, calls)
    assert reports[0]["calls"]["allreduce"]["switch"] >= 34 + 3, "sums of floats follow no times"


def test_asynchronous_calls_of_two_groups_in_another_order_on_each_rank_end(tmp_path):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        groups = [dist.new_group(), dist.new_group()]
        for group in groups: dist.barrier(group)
        tensors = [torch.full((20_000,), float(rank)) for _ in range(2 * 40)]
        works = [dist.broadcast(tensors[40 * which + call], 1, group=groups[which], async_op=True)
                 for which in ((0, 1) if rank else (1, 0)) for call in range(40)]
        for work in works: work.wait()
        say(right=all(bool((tensor == 1).all()) for tensor in tensors))
        dist.destroy_process_group()
    """, INA_CODEC="")):
        assert report["right"]


def test_who_names_a_codec_has_asked_for_the_switch(tmp_path):
    for report in succeed(run(tmp_path, 2, EQUAL, INA_CODEC="block")):
        assert report["plans"] == report["reasons"] == {} and not any(calls["gloo"] for calls in report["calls"].values())


def test_buckets_are_right_in_trials_and_after_them(tmp_path):
    reports = succeed(run(tmp_path, 2, BUCKETS, INA_RATE="1e6"))
    assert all(report["plans"] == reports[0]["plans"] for report in reports)
    assert set(reports[0]["plans"]) == {"bucket 0: 10,100 float32"}
    assert reports[0]["codecs"]["thc"]["sums"] >= 2, "at the stated 1 Mb/s it is worth a trial"


def test_a_codec_that_remembers_cannot_be_named_for_all_of_a_group(tmp_path):
    for rank in run(tmp_path, 2, "start()", INA_CODEC="auto:thc"):
        assert rank.code != 0 and "thc remembers each tensor: choose it for a bucket" in rank.errors


def test_ranks_whose_plans_differ_are_told(tmp_path):
    """Another list of codecs on one rank: an error within the time-out, no wrong sum."""
    body = """
        os.environ["INA_CODEC"] = "block" if os.environ["RANK"] == "1" else "auto"
        start()
        dist.group.WORLD.set_timeout(timedelta(seconds=6))
        for call in range(5):
            mine = torch.ones(20_000); dist.all_reduce(mine)
            say(**{f"call{call}": mine[0].item()})
        dist.destroy_process_group()
    """
    ranks = run(tmp_path, 2, body)
    assert all(rank.code != 0 for rank in ranks)
    assert all(value == 2 for rank in ranks for key, value in rank.report.items() if key.startswith("call"))
