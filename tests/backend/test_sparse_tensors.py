"""Sums of sparse_coo tensors through the switch, in real ranks, against Gloo's: layout, indices, values, and errors."""

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")
UDP = {"INA_PORT": "udp"}
FAULTS = {**UDP, "INA_FAULT": "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.005,seed=5", "INA_VALUES": "256"}

SUMS = """
rank, n = start()
torch.sparse.check_sparse_tensor_invariants.disable()
gloo = dist.new_group(backend="gloo")
dist.all_reduce(torch.ones(1)); ina.backend.reset_stats()

def made(shape, sparse_dims, nnz, dtype, seed, coalesced=False):
    g = torch.Generator().manual_seed(1000 * seed + rank)
    indices = torch.stack([torch.randint(0, length, (nnz,), generator=g) for length in shape[:sparse_dims]])
    values = torch.randn(nnz, *shape[sparse_dims:], generator=g, dtype=torch.float64) * 20
    if dtype == torch.bool: values = values > 0
    tensor = torch.sparse_coo_tensor(indices, values.to(dtype), shape)
    return tensor.coalesce() if coalesced else tensor

def compare(mine, theirs):
    assert mine.layout == torch.sparse_coo and mine.is_coalesced() and mine.dtype == theirs.dtype and mine.shape == theirs.shape
    assert torch.equal(mine.indices(), theirs.indices()), (mine.indices(), theirs.indices())
    ours, right = mine.values().double(), theirs.values().double()
    if mine.dtype.is_floating_point:
        places = {torch.bfloat16: 2.0**-7, torch.float32: 2.0**-18, torch.float64: 2.0**-50}[mine.dtype]
        assert (ours - right).abs().max() <= places * 100 * n if ours.numel() else True
    else:
        assert torch.equal(mine.values(), theirs.values())

calls = 0
shapes = [((50, 16), 1), ((100_000, 8), 1), ((7, 9, 4, 5), 2), ((3_000_000_000, 8), 1), ((60, 999), 1), ((900,), 1), ((12, 8), 2)]
for seed, (shape, dims) in enumerate(shapes):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.int8):
        for nnz in (0, 1, 40, 7 * rank, 500 if rank == 1 else 0):
            mine = made(shape, dims, nnz, dtype, seed + nnz, coalesced=seed % 2 == 1)
            theirs = mine.clone()
            work = dist.all_reduce(mine, async_op=True); dense = torch.ones(3000); dist.all_reduce(dense)
            dist.all_reduce(theirs, group=gloo); work.wait(); calls += 1
            assert (dense == n).all()
            compare(mine, theirs)
same = torch.sparse_coo_tensor(torch.tensor([[4, 4, 1]]), torch.ones(3, 8), (6, 8)); dist.all_reduce(same)
assert same.to_dense()[4, 0] == 2 * n and same.indices().tolist() == [[1, 4]]
gone = torch.sparse_coo_tensor(torch.tensor([[2]]), torch.full((1, 8), 1.0 if rank else 1.0 - n), (6, 8)); dist.all_reduce(gone)
assert gone._nnz() == 1 and (gone.values() == 0).all(), "rows whose values cancel out stay"
half = made((50, 16), 1, 40, torch.float16, 1); everyone = [torch.empty(50, 16) for _ in range(n)]
dist.all_gather(everyone, half.to_dense().float(), group=gloo); dist.all_reduce(half)  # which Gloo cannot add up
assert torch.allclose(half.to_dense().float(), torch.stack(everyone).sum(0), rtol=2e-3, atol=0.1)
stats = ina.backend.stats()
say(reasons=stats["reasons"], calls=stats["calls"]["allreduce"], expected=2 * calls + 3)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.gate), 3])
def test_sums_are_gloos_for_any_sparsity_shape_and_type(tmp_path, ranks):
    for report in succeed(run(tmp_path, ranks, SUMS, **FAULTS)):
        assert report["reasons"] == {} and report["calls"] == {"switch": report["expected"], "gloo": 0}


def test_a_codec_of_the_group_sums_the_values(tmp_path):
    for report in succeed(run(tmp_path, 2, """
rank, n = start()
rows, values = torch.tensor([[3, 7 + rank]]), torch.tensor([[1.0], [2.0**-40]]).repeat(1, 300)
mine = torch.sparse_coo_tensor(rows, values, (10, 300)); dist.all_reduce(mine)
assert mine.indices().tolist() == [[3, 7, 8]] and mine.values()[:, 5].tolist() == [2.0, 2.0**-40, 2.0**-40]
say(codecs=ina.backend.stats()["codecs"]); dist.destroy_process_group()
    """, INA_CODEC="exact", **UDP)):
        assert report["codecs"]["exact"]["elements"] == 900


REFUSED = """
rank, n = start()
def attempt(tensor, op=dist.ReduceOp.SUM):
    try: dist.all_reduce(tensor, op=op)
    except RuntimeError as error: return str(error)
one = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 16), (4, 16))
"""


def test_other_operations_go_to_gloo_and_it_is_said_why(tmp_path):
    for report in succeed(run(tmp_path, 2, REFUSED + """
few = torch.sparse_coo_tensor(torch.tensor([[1, 2]]), torch.ones(2), (4,)); attempt(few)
assert few.to_dense().tolist() == [0, 2, 2, 0]
say(error=attempt(one, dist.ReduceOp.AVG), reasons=ina.backend.stats()["reasons"]); dist.destroy_process_group()
""")):
        assert "only works with ReduceOp.SUM" in report["error"]
        assert report["reasons"] == {"allreduce: AVG of sparse tensors": 1}


def test_the_faster_way_is_measured_and_agreed_unless_a_codec_is_set(tmp_path):
    """Whatever the machine's times say, all ranks take one way, and give the reason."""
    reports = succeed(run(tmp_path, 2, """
rank, n = start()
from ina.backend import planner
way = planner.Planner.note
def note(self, title, allowed, way, began, work): # the first rank sees a slow switch, which the other does not
    real(self, title, allowed, way, began - (9.0 if way == "switch" and rank == 0 and "(60, 5)" in title else 0), work)
real, planner.Planner.note = way, note
for shape in ((60, 5), (70, 5)):
    for call in range(34):
        mine = torch.sparse_coo_tensor(torch.tensor([[3, 7 + rank]]), torch.ones(2, 5), shape); dist.all_reduce(mine)
        assert mine.coalesce().indices().tolist() == [[3, 7, 8]] and mine.coalesce().values()[:, 0].tolist() == [2, 1, 1]
half = torch.sparse_coo_tensor(torch.tensor([[3]]), torch.ones(1, 5).half(), (9, 5))
for call in range(8): one = half.clone(); dist.all_reduce(one); assert one.to_dense()[3, 0] == 2
stats = ina.backend.stats(); say(plans=stats["plans"], calls=stats["calls"], reasons=stats["reasons"])
dist.destroy_process_group()
""", INA_CODEC=""))
    plans = reports[0]["plans"]
    assert all(report["plans"] == plans for report in reports)
    assert set(plans) == {f"all-reduce of sparse float32 of shape ({size}, 5)" for size in (60, 70)}
    assert plans["all-reduce of sparse float32 of shape (60, 5)"].startswith("gloo: measured: gloo ")
    assert reports[0]["reasons"]["allreduce: measured to be faster, or tried"] >= 3 + 2 + 3
    assert reports[0]["calls"]["allreduce"]["switch"] >= 3 + 3 + 8, "float16, which Gloo does not have, is not tried"


@pytest.mark.parametrize(("shape", "text"), [("(4 + rank, 16)", "sparse float32 of shape (5, 16)"),
                                             ("(4, 16 + 8 * rank)", "sparse float32 of shape (4, 24)")])
def test_shapes_that_differ_are_an_error_on_all_ranks(tmp_path, shape, text):
    results = run(tmp_path, 2, REFUSED + f"""
shape = {shape}
say(error=attempt(torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, shape[1]), shape)))
""", **UDP)
    assert all("the ranks do not agree" in result.report["error"] and text in result.report["error"] for result in results)


def test_a_dense_and_a_sparse_tensor_do_not_wait_for_each_other(tmp_path):
    results = run(tmp_path, 2, REFUSED + "say(error=attempt(one if rank else torch.ones(4, 16)))", **UDP)
    assert all("the ranks do not agree" in result.report["error"] for result in results)


EMBEDDING = """
rank, n = start()
from torch.nn.parallel import DistributedDataParallel
gloo = dist.new_group(backend="gloo")
from ina.backend.hooks import Choice, per_bucket
def train(group=None, codec=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(500, 16, sparse=True), torch.nn.Linear(16, 3))
    parallel = DistributedDataParallel(model, process_group=group)
    if codec:
        parallel.register_comm_hook(lambda bucket: Choice(codec=codec), per_bucket)
    optimizer, losses = torch.optim.SGD(parallel.parameters(), lr=0.5), []
    data = torch.Generator().manual_seed(5)
    words = torch.randint(0, 500, (64,), generator=data) ** 2 // 500
    for step in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(words[rank::n]), words[rank::n] % 3)
        loss.backward(); optimizer.step(); losses.append(loss.item())
    return losses, model[0].weight.detach()
expected, right = train(gloo)
ina.backend.reset_stats()
losses, weights = train()
assert torch.allclose(weights, right, atol=1e-5)
everyone = [torch.empty_like(weights) for _ in range(n)]; dist.all_gather(everyone, weights)
assert all(torch.equal(each, weights) for each in everyone)
say(losses=losses, expected=expected, stats=ina.backend.stats())
for codec in CODECS:
    losses, weights = train(codec=codec)
    assert torch.allclose(weights, right, atol=2e-2 if codec == "nvfp4" else 1e-4), (codec, (weights - right).abs().max())
dist.destroy_process_group()
"""


def test_ddp_with_a_sparse_embedding_trains_as_with_gloo(tmp_path):
    """Without a hook, and with codecs by bucket, which are for dense gradients."""
    for report in succeed(run(tmp_path, 4, EMBEDDING.replace("CODECS", repr(["float32", "nvfp4", "auto-sparse"])), **UDP)):
        assert report["losses"] == pytest.approx(report["expected"], rel=1e-4) and report["losses"][-1] < report["losses"][0]
        assert not any("sparse" in reason for reason in report["stats"]["reasons"])
        assert report["stats"]["calls"]["allreduce"]["switch"] >= 40


def test_a_bucket_is_dense_or_sparse_by_its_blocks_and_it_is_said_why(tmp_path):
    for report in succeed(run(tmp_path, 2, """
rank, n = start()
from ina import codecs
for name, live in (("few", 256), ("all", 20 * 256)):
    codec = codecs.named("auto-sparse")
    for step in range(3):
        mine = torch.zeros(20 * 256); mine[:live] = 1.0 + rank
        dist.group.WORLD.allreduce_coded(mine, codec, True, step).wait()
        assert (mine[:live] == 1.5).all() and not mine[live:].any()
    say(**{name: ina.backend.stats()["plans"]["auto-sparse of 5,120 values"]})
dist.destroy_process_group()
""")):
        assert report["few"] == "omnireduce: blocks with values were 5% of the tensor when last counted, at most 90%"
        assert report["all"] == "block-256: blocks with values were 100% of the tensor when last counted, more than 90%"
