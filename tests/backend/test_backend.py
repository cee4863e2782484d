"""The torch back end in real ranks: each test runs processes, checks their output, and that nothing is left."""

from __future__ import annotations

import json
import time

import pytest
from ranks import ROOT, run, succeed

pytestmark = pytest.mark.later
pytest.importorskip("torch", reason="the back end needs torch")


@pytest.fixture(params=["switchml", "atp"])
def protocol(request, monkeypatch):
    monkeypatch.setenv("INA_PROTOCOL", request.param)
    return request.param


ALLREDUCE = """
import numpy as np
rank, n = start()
generator = np.random.default_rng(1)
def mine(values): return values[rank]
for count in (1, 2, 255, 256, 257, 2048, 5000, 100_003):
    ints = generator.integers(-2**31, 2**31, (n, count), dtype=np.int64).astype(np.int32)
    tensor = torch.from_numpy(mine(ints).copy())
    dist.all_reduce(tensor)
    with np.errstate(over="ignore"):
        assert np.array_equal(tensor.numpy(), ints.sum(axis=0, dtype=np.int32)), count
    floats = generator.standard_normal((n, count)).astype(np.float32)
    tensor = torch.from_numpy(mine(floats).copy())
    dist.all_reduce(tensor)
    exact = floats.astype(np.float64).sum(axis=0)
    bound = n * 2.0 ** (np.ceil(np.log2(np.abs(floats).max())) - 31 + np.ceil(np.log2(n))) + 2.0**-24 * np.abs(exact)
    assert (np.abs(tensor.numpy() - exact) <= bound).all(), count
    everyone = [torch.empty_like(tensor) for _ in range(n)]
    dist.all_gather(everyone, tensor)
    assert all(torch.equal(everyone[0], other) for other in everyone)
# averages, shapes, strides
tensor = torch.full((3, 4, 5), float(rank)); dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
assert torch.allclose(tensor, torch.full((3, 4, 5), (n - 1) / 2))
tensor = torch.tensor([-7, 7], dtype=torch.int32) * (rank + 1); dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
assert tensor.tolist() == [int(-7 * (n + 1) / 2), int(7 * (n + 1) / 2)], tensor
whole = torch.ones(4, 6); view = whole.t()[::2]; dist.all_reduce(view)
assert (view == n).all() and (whole[:, 1::2] == 1).all()
scalar = torch.tensor(1.5); dist.all_reduce(scalar); assert scalar.item() == 1.5 * n
empty = torch.empty(0); dist.all_reduce(empty)
special = torch.tensor([0.0, float("inf") if rank == 0 else 1.0]); dist.all_reduce(special)
assert special.tolist() == [0.0, float("inf")]
# many in flight, in any order of waiting
tensors = [torch.full((1000 + i,), float(i + rank)) for i in range(150)]
works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
for i in reversed(range(150)):
    assert works[i].wait() and works[i].is_completed() and works[i].is_success()
    assert torch.allclose(tensors[i], torch.full((1000 + i,), n * i + n * (n - 1) / 2), rtol=1e-6)
# futures, and callbacks that wait for all-reduces and their futures
def again(future):
    return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(again)
assert torch.equal(future.wait(), torch.full((10,), float(n * n)))
# coalesced
with dist._coalescing_manager() as manager:
    for tensor in (parts := [torch.full((i,), float(rank)) for i in (1, 10, 3000)]):
        dist.all_reduce(tensor)
assert all((tensor == n * (n - 1) / 2).all() for tensor in parts)
# every group is a job of its own
mixed = dist.new_group([0, n - 1])
if rank in (0, n - 1):
    tensor = torch.ones(100); dist.all_reduce(tensor, group=mixed); assert (tensor == 2).all()
product = torch.full((3,), 2.0); dist.all_reduce(product, op=dist.ReduceOp.PRODUCT); assert (product == 2**n).all()
say(stats=ina.backend.stats())
dist.destroy_process_group()
"""


FAULTS = {"INA_FAULT": "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=3", "INA_VALUES": "256"}


@pytest.mark.build
@pytest.mark.parametrize("env", [
    pytest.param({}, marks=pytest.mark.gate), {"INA_VALUES": "256"}, {"INA_PORT": "udp", "INA_VALUES": "256"}, FAULTS,
    pytest.param({**FAULTS, "INA_PROTOCOL": "atp"}, marks=pytest.mark.gate),
    {"INA_PROTOCOL": "atp", "INA_PORT": "udp", "INA_VALUES": "256"}, {"INA_PROTOCOL": "ps", "INA_VALUES": "256"},
    pytest.param({**FAULTS, "INA_PROTOCOL": str(ROOT / "examples" / "lockstep" / "lockstep.p4")}, marks=pytest.mark.gate),
], ids=["default", "1024 B", "udp", "faults", "atp, faults", "atp, udp", "ps", "own protocol, faults"])
def test_allreduce(tmp_path, env):
    for report in succeed(run(tmp_path, 3, ALLREDUCE, **env)):
        stats = report["stats"]
        assert stats["reasons"] == {"allreduce: operation PRODUCT": 1}
        assert stats["switch"]["calls"] > 170 and stats["switch"]["seconds"] > 0
        assert stats["worker"]["results"] > 400
        assert "INA_FAULT" not in env or stats["worker"]["retransmissions"] > 0


@pytest.mark.build
@pytest.mark.parametrize(("env", "check"), [({}, "off"), ({"INA_PORT": "udp"}, "sum"), ({"INA_CHECK": "sum"}, "sum")])
def test_sums_that_stay_in_memory_have_no_check_words_unless_they_are_asked_for(tmp_path, env, check):
    for report in succeed(run(tmp_path, 2, """
        from ina.backend.job import Client
        attach, checks = Client.attach, []
        def recorded(self, *args, **keys):
            attachment = attach(self, *args, **keys)
            checks.append(attachment.check)
            return attachment
        Client.attach = recorded
        rank, n = start()
        total = torch.ones(10); dist.all_reduce(total); assert (total == n).all()
        say(checks=checks)
        dist.destroy_process_group()
    """, **env)):
        assert report["checks"] == [check]


@pytest.mark.build
def test_infinities_and_nan_of_small_tensors_concern_their_own_element(tmp_path, protocol):
    for report in succeed(run(tmp_path, 3, """
        rank, n = start()
        inf, nan = float("inf"), float("nan")
        mine = [[inf, 1.0, inf, nan], [1.0, 2.0, -inf, 1.0], [inf, 2.0**-30, 1.0, inf]][rank]
        total = torch.tensor(mine); dist.all_reduce(total)
        mean = torch.tensor(mine); dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        say(total=[str(v) for v in total.tolist()], mean=[str(v) for v in mean.tolist()])
        dist.destroy_process_group()
    """)):
        assert report["total"] == ["inf", "3.0", "nan", "nan"]
        assert report["mean"] == ["inf", "1.0", "nan", "nan"]


@pytest.mark.build
def test_counters_are_there_before_the_first_collective(tmp_path):
    for report in succeed(run(tmp_path, 2, """
        say(alone=ina.backend.stats()["worker"])
        rank, n = start()
        say(open=ina.backend.stats()["worker"])
        dist.all_reduce(torch.ones(1))
        say(after=ina.backend.stats()["worker"])
        dist.destroy_process_group()
    """)):
        assert report["alone"] == report["open"] == dict.fromkeys(report["after"], 0)
        assert report["after"]["results"] >= 1


@pytest.mark.build
def test_long_tensors_are_staged_piece_by_piece(tmp_path):
    """Staging takes half as much memory again for int64, twice as much for float16: of a piece, not of the tensor. No later
    collective overtakes the pieces that wait."""
    for report in succeed(run(tmp_path, 2, """
        from ina.backend import sums
        sums.STAGE = 1 << 20
        rank, n = start()
        def peak():
            return int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]) << 10
        dist.all_reduce(torch.ones(1 << 20, dtype=torch.int64))
        tensor = torch.arange(1 << 23) * (2 * rank - 1) + 2**60
        small = [torch.full((9,), rank + i) for i in range(5)]
        with open("/proc/self/clear_refs", "w") as file: file.write("5")
        before = peak()
        work = dist.all_reduce(tensor, async_op=True)
        others = [dist.all_reduce(each, async_op=True) for each in small]
        others[-1].wait(); work.wait()
        grown = (peak() - before) / (8 * tensor.numel())
        for each in others: each.wait()
        assert (tensor == 2**61).all() and all((each == 2 * i + 1).all() for i, each in enumerate(small))
        half = torch.full((1 << 20,), rank + 1.0, dtype=torch.float16)
        dist.all_reduce(half); assert (half == 3).all()
        dist.all_reduce(half, op=dist.ReduceOp.MAX); assert (half == 3).all()
        part = torch.zeros(1 << 19, dtype=torch.int64); whole = torch.arange(1 << 20)
        dist.reduce_scatter_tensor(part, whole); assert torch.equal(part, whole[rank << 19 : rank + 1 << 19] * 2)
        view = torch.zeros(1 << 18, 2, dtype=torch.int64).t(); view += rank; dist.all_reduce(view); assert (view == 1).all()
        say(grown=grown, sums=ina.backend.stats()["switch"]["sums"])
        dist.destroy_process_group()
    """)):
        assert report["grown"] < 0.5 and report["sums"] > 100


@pytest.mark.build
def test_options_of_a_group_count_more_than_the_environment(tmp_path):
    reports = succeed(run(tmp_path, 2, """
        options = ina.backend.Options(values=64, slots=4, port="udp")
        dist.init_process_group("ina", init_method=os.environ["INIT"], rank=int(os.environ["RANK"]), world_size=2,
                                pg_options=options)
        tensor = torch.ones(6400, dtype=torch.int32)
        dist.all_reduce(tensor)
        assert (tensor == 2).all()
        try: dist.new_group([0, 1], pg_options={"values": 64})
        except ValueError as error: say(error=str(error))
        say(packets=ina.backend.stats()["worker"]["results"])
        dist.destroy_process_group()
    """, INA_VALUES="256", INA_PORT="serial"))
    for each in reports:
        assert each["packets"] == 101
        assert "expected ina.backend.Options" in each["error"]


COLLECTIVES = """
rank, n = start()
R = dist.ReduceOp
before = ina.backend.stats
# reductions in other types
for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
    tensor = torch.full((300,), rank + 1).to(dtype); dist.all_reduce(tensor)
    assert tensor.dtype == dtype and (tensor == n * (n + 1) // 2).all(), tensor
big = torch.tensor([2**62 + rank, -2**63, 2**24 * rank - 1]); dist.all_reduce(big)
exact = [sum(v) for v in zip(*([2**62 + r, -2**63, 2**24 * r - 1] for r in range(n)))]
assert big.tolist() == [(v + 2**63) % 2**64 - 2**63 for v in exact]
flag = torch.tensor([rank == 1, False]); dist.all_reduce(flag); assert flag.tolist() == [True, False]
half = torch.full((5,), rank + 0.5, dtype=torch.float16); dist.all_reduce(half, op=R.AVG); assert (half == n / 2).all()
scaled = torch.arange(5) * (rank + 1); dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(2.0))
assert scaled.tolist() == [i * n * (n + 1) for i in range(5)]
scaled = torch.ones(5) * (rank + 1); dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
assert (scaled == n * (n + 1) / 4).all()
# maxima and minima: exact, and a NaN wins
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8):
    for op, wanted in ((R.MAX, n), (R.MIN, 1)):
        tensor = torch.full((5000,), rank + 1).to(dtype); dist.all_reduce(tensor, op=op); assert (tensor == wanted).all()
tensor = torch.tensor([-1.5 * (rank + 1), float("nan") if rank == 1 else 1.0]); dist.all_reduce(tensor, op=R.MIN)
assert tensor[0] == -1.5 * n and tensor[1].isnan()
part = torch.zeros(2); dist.reduce_scatter_tensor(part, torch.arange(2.0 * n) * (rank + 1), op=R.MAX)
assert part.tolist() == [2 * rank * n, (2 * rank + 1) * n]
tensor = torch.full((3,), rank); dist.reduce(tensor.int(), 0, op=R.MAX)
# broadcast: any type, any strides, from any rank
for root in range(n):
    view = torch.zeros(4, 5, dtype=torch.float64).t()[::2]; view += rank; dist.broadcast(view, root); assert (view == root).all()
odd = torch.full((7,), rank, dtype=torch.uint8); dist.broadcast(odd, 1); assert odd.tolist() == [1] * 7
nan = torch.tensor([float("nan"), -0.0]) if rank == 0 else torch.ones(2); dist.broadcast(nan, 0)
assert nan[0].isnan() and torch.signbit(nan[1])
# reduce: the others keep what they have
tensor = torch.full((1000,), rank + 1.0); dist.reduce(tensor, 1)
assert (tensor == (n * (n + 1) / 2 if rank == 1 else rank + 1)).all()
# all-gather: lists, uneven, into one tensor, coalesced, objects
rows = [torch.zeros(2) for _ in range(n)]; dist.all_gather(rows, torch.full((2,), rank + 0.0))
assert [row.tolist() for row in rows] == [[r, r] for r in range(n)]
rows = [torch.zeros(r + 1, dtype=torch.int16) for r in range(n)]
dist.all_gather(rows, torch.full((rank + 1,), rank, dtype=torch.int16))
assert [row.tolist() for row in rows] == [[r] * (r + 1) for r in range(n)]
flat = torch.zeros(2 * n); dist.all_gather_into_tensor(flat, torch.full((2,), rank + 0.0))
assert flat.tolist() == [r for r in range(n) for _ in range(2)]
flat = torch.zeros(3 * n, dtype=torch.uint8); dist.all_gather_into_tensor(flat, torch.full((3,), rank, dtype=torch.uint8))
assert flat.tolist() == [r for r in range(n) for _ in range(3)]
with dist._coalescing_manager():
    for flat in (parts := [torch.zeros(n), torch.zeros(2 * n)]):
        dist.all_gather_into_tensor(flat, torch.full((flat.numel() // n,), rank + 1.0))
assert parts[0].tolist() == [r + 1 for r in range(n)] and parts[1].sum() == n * (n + 1)
objects = [None] * n; dist.all_gather_object(objects, {"rank": rank}); assert objects == [{"rank": r} for r in range(n)]
# reduce-scatter
part = torch.zeros(2); dist.reduce_scatter_tensor(part, torch.arange(2 * n).float())
assert part.tolist() == [2 * n * rank, n * (2 * rank + 1)]
part = torch.zeros(rank + 1, dtype=torch.int64); dist.reduce_scatter(part, [torch.full((r + 1,), r) for r in range(n)])
assert part.tolist() == [n * rank] * (rank + 1)
dist.barrier()
future = dist.broadcast(torch.full((3,), float(rank)), 0, async_op=True).get_future()
assert future.wait()[0].tolist() == [0, 0, 0]
say(through_switch=ina.backend.stats())
# the rest is Gloo's
turned = torch.zeros(n); dist.all_to_all_single(turned, torch.full((n,), rank + 0.0)); assert turned.tolist() == list(range(n))
turned = [torch.zeros(r + 1) for r in range(n)]; dist.all_to_all(turned, [torch.full((rank + 1,), rank + 0.0) for _ in range(n)])
assert [t.tolist() for t in turned] == [[r] * (r + 1) for r in range(n)]
gathered = [torch.zeros(1) for _ in range(n)] if rank == 0 else None
dist.gather(torch.full((1,), rank + 0.0), gathered); assert rank or gathered[1].item() == 1
pieces = [torch.full((1,), i + 5.0) for i in range(n)] if rank == 0 else None
piece = torch.zeros(1); dist.scatter(piece, pieces); assert piece.item() == rank + 5
if rank == 0: dist.send(torch.arange(8).reshape(2, 4).t(), 1)
elif rank == 1:
    got = torch.zeros(2, 4, dtype=torch.int64).t(); dist.recv(got)
    assert torch.equal(got, torch.arange(8).reshape(2, 4).t())
doubles = torch.full((5,), rank + 1.0, dtype=torch.float64); dist.all_reduce(doubles, op=R.MAX); assert (doubles == n).all()
whole = torch.ones(4, 4, dtype=torch.float64); view = whole.t()[::2]; dist.all_reduce(view, op=R.PRODUCT)
assert (view == 1).all() and (whole[:, 1::2] == 1).all()
try: dist.all_reduce(torch.ones(2), op=R.BAND)
except RuntimeError as error: say(refused=str(error))
dist.group.WORLD.monitored_barrier(timedelta(seconds=20))
assert dist.get_backend() == "ina"
say(stats=ina.backend.stats())
dist.destroy_process_group()
"""


AVERAGES = """
R = dist.ReduceOp
def averages(group, n, at):
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        columns = [[high - r for r in range(3)], [low + r for r in range(3)], [high, low, 1], [0, 0, 5], [7, 2, 2],
                   [max(low, -1), 0, 0], [max(low, -7), max(low, -2), 1], [high - 1, high, high]]
        totals = [sum(column[:n]) for column in columns]
        wanted = [total // n if total >= 0 else -(-total // n) for total in totals]
        def mine(): return torch.tensor([column[at] for column in columns], dtype=dtype)
        got = {"all_reduce": mine(), "strided": mine().repeat_interleave(2)[::2], "coalesced": mine(), "async": mine()}
        dist.all_reduce(got["all_reduce"], op=R.AVG, group=group)
        dist.all_reduce(got["strided"], op=R.AVG, group=group)
        dist.all_reduce_coalesced([got["coalesced"]], op=R.AVG, group=group)
        dist.all_reduce(got["async"], op=R.AVG, group=group, async_op=True).get_future().wait()
        with dist._coalescing_manager(group=group):
            for tensor in (managed := [mine(), mine()]): dist.all_reduce(tensor, op=R.AVG, group=group)
        root = dist.get_global_rank(group, n - 1)
        tensor = mine(); dist.reduce(tensor, root, op=R.AVG, group=group)
        if at == n - 1: got["reduce"] = tensor
        else: assert tensor.tolist() == mine().tolist(), dtype
        parts = [torch.zeros(len(wanted), dtype=dtype) for _ in range(4)]
        dist.reduce_scatter_tensor(parts[0], mine().repeat(n), op=R.AVG, group=group)
        dist.reduce_scatter(parts[1], [mine() for _ in range(n)], op=R.AVG, group=group)
        with dist._coalescing_manager(group=group):
            for part in parts[2:]: dist.reduce_scatter_tensor(part, mine().repeat(n), op=R.AVG, group=group)
        got |= {f"managed {i}": tensor for i, tensor in enumerate(managed)}
        got |= {f"reduce_scatter {i}": part for i, part in enumerate(parts)}
        for name, tensor in got.items(): assert tensor.tolist() == wanted, (n, dtype, name, tensor.tolist(), wanted)
        dist.all_reduce(torch.zeros(0, dtype=dtype), op=R.AVG, group=group)
    try: dist.all_reduce(torch.ones(3, dtype=torch.bool), op=R.AVG, group=group)
    except TypeError as error: say(bool=str(error))
    total = torch.ones(3); dist.all_reduce(total, group=group); assert total.tolist() == [n] * 3
"""


@pytest.mark.build
def test_averages_of_integers_are_exact_in_every_collective(tmp_path, protocol):
    for report in succeed(run(tmp_path, 3, AVERAGES + """
rank, n = start()
averages(dist.group.WORLD, n, rank)
say(stats=ina.backend.stats())
dist.destroy_process_group()
""", INA_PROTOCOL=protocol, INA_VALUES="256")):
        assert "AVG of bool: expected numbers" in report["bool"]
        assert not report["stats"]["reasons"] and not any(ways["gloo"] for ways in report["stats"]["calls"].values())


@pytest.mark.build
def test_averages_of_integers_are_the_same_in_groups_that_go_to_gloo(tmp_path):
    for report in succeed(run(tmp_path, 3, AVERAGES + """
import dataclasses
from ina.backend.settings import Settings
small = dataclasses.replace(Settings.read(), pool=64)
Settings.read = classmethod(lambda cls, options: small)
rank, n = start()
dist.barrier()
refused, alone = dist.new_group([0, 1, 2]), [dist.new_group([r]) for r in range(n)][rank]
averages(refused, n, rank)
averages(alone, 1, 0)
say(stats=ina.backend.stats())
dist.destroy_process_group()
""", INA_SLOTS="64")):
        assert "AVG of bool: expected numbers" in report["bool"]
        reasons = report["stats"]["reasons"]
        assert reasons["reduce: refused by the switch"] == reasons["reduce: one rank"] == 5, reasons


FORMS = """
rank, n = start()
def forms(group, soon=timedelta(seconds=30)):
    total, tensor, pieces = dist.ReduceOp.SUM, lambda: torch.arange(4.0) + rank, lambda: [torch.full((4,), float(rank))] * n
    def collective(name, *args, **kwargs):
        getattr(group, name)(*args, **kwargs).wait()
        written = [*args[:1], *(value for key, value in kwargs.items() if key.startswith(("output", "tensor")))]
        return [each for each in torch.utils._pytree.tree_leaves(written) if isinstance(each, torch.Tensor)]
    empty = lambda: [torch.zeros(4) for _ in range(n)]
    yield collective("barrier", soon)
    yield collective("barrier", timeout=soon)
    yield collective("allreduce", tensor(), total, soon)
    yield collective("allreduce", tensor=tensor(), op=total)
    yield collective("allreduce", tensors=[tensor()])
    yield collective("broadcast", tensor(), 1, soon)
    yield collective("broadcast", tensor=tensor(), root=1)
    for args in ((1,), (1, total), (1, total, soon)):
        reduced = collective("reduce", tensor(), *args)
        yield reduced if rank == 1 else []
    yield collective("allgather", empty(), tensor(), soon)
    yield collective("allgather", output_tensors=empty(), input_tensor=tensor())
    yield collective("allgather", output_tensors=[empty()], input_tensors=[tensor()])
    yield collective("reduce_scatter", torch.zeros(4), pieces(), total, soon)
    yield collective("reduce_scatter", output=torch.zeros(4), input=pieces(), timeout=soon)
    yield collective("reduce_scatter", output_tensors=[torch.zeros(4)], input_tensors=[pieces()])
    yield collective("_reduce_scatter_base", outputTensor=torch.zeros(4), inputTensor=torch.arange(4.0 * n))
    yield collective("_allgather_base", output=torch.zeros(4 * n), input=tensor())
    yield collective("alltoall", output_tensors=empty(), input_tensors=pieces())
    yield collective("allgather_coalesced", output_lists=[[part] for part in empty()], input_list=[tensor()])
gloo = dist.new_group(backend="gloo")
for number, (ours, theirs) in enumerate(zip(forms(dist.group.WORLD), forms(gloo), strict=True)):
    assert len(ours) == len(theirs) and all(map(torch.equal, ours, theirs)), (number, ours, theirs)
assert ina.backend.stats()["switch"]["calls"] >= 15
meet(); dist.destroy_process_group()
"""


@pytest.mark.build
def test_collectives_take_arguments_in_every_form_that_torch_has(tmp_path):
    succeed(run(tmp_path, 2, FORMS))


@pytest.mark.build
def test_every_collective(tmp_path):
    for each in succeed(run(tmp_path, 3, COLLECTIVES)):
        through = each["through_switch"]
        assert not through["reasons"] and not any(ways["gloo"] for ways in through["calls"].values())
        assert set(through["calls"]) >= {"allreduce", "broadcast", "reduce", "allgather", "_allgather_base", "barrier",
                                         "allgather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base"}
        reasons = each["stats"]["reasons"]
        to_all = "its sums are from all ranks and to all: INA_PROTOCOL=receivers and atp_routes have others"
        for reason, count in {"allreduce: operation PRODUCT": 1, "allreduce: MAX of float64": 1, "allreduce: operation BAND": 1,
                              f"gather: {to_all}": 1, f"scatter: {to_all}": 1, f"alltoall: {to_all}": 1}.items():
            assert reasons[reason] == count
        assert "BAND" in each["refused"]


@pytest.mark.build
@pytest.mark.gate
def test_three_steps_of_training_are_those_over_gloo(tmp_path):
    for each in succeed(run(tmp_path, 2, """
        from torch.nn.parallel import DistributedDataParallel
        def train():
            torch.manual_seed(0)
            layers = torch.nn.Linear(8, 300), torch.nn.ReLU(), torch.nn.Linear(300, 2)
            model = DistributedDataParallel(torch.nn.Sequential(*layers))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            generator = torch.Generator().manual_seed(dist.get_rank())
            for _ in range(3):
                loss = model(torch.randn(16, 8, generator=generator)).square().mean()
                optimizer.zero_grad(); loss.backward(); optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()])
        start()
        switch = train()
        say(stats=ina.backend.stats())
        dist.destroy_process_group()
        start(backend="gloo")
        gloo = train()
        say(error=((switch - gloo).norm() / gloo.norm()).item())
        dist.destroy_process_group()
    """)):
        assert each["error"] < 1e-6
        assert each["stats"]["calls"]["allreduce"] == {"switch": 3, "gloo": 0} and not each["stats"]["reasons"]


@pytest.mark.build
def test_distributed_data_parallel_trains_as_over_gloo(tmp_path):
    reports = succeed(run(tmp_path, 2, """
        from torch.nn.parallel import DistributedDataParallel
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        def train(hook=False):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 2))
            # PowerSGD's callbacks start all-reduces: with several buckets their order would be each rank's own
            model = DistributedDataParallel(model, bucket_cap_mb=25 if hook else 0.01)
            if hook:
                state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            generator = torch.Generator().manual_seed(dist.get_rank())
            for _ in range(20):
                inputs = torch.randn(16, 20, generator=generator)
                loss = torch.nn.functional.cross_entropy(model(inputs), (inputs.sum(1) > 0).long())
                optimizer.zero_grad(); loss.backward(); optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()]), loss.item()
        start()
        switch, _ = train()
        _, loss = train(hook=True)
        say(stats=ina.backend.stats(), loss=loss)
        dist.destroy_process_group()
        start(backend="gloo")
        gloo, _ = train()
        say(error=((switch - gloo).norm() / gloo.norm()).item())
        dist.destroy_process_group()
    """))
    for each in reports:
        assert each["error"] < 1e-5
        assert each["loss"] < 0.7
        assert each["stats"]["switch"]["sums"] > 20 * 2 and not each["stats"]["reasons"]


@pytest.mark.build
def test_tensors_elsewhere_are_staged(tmp_path):
    """A stand-in for a device works in a thread of its own, its streams for copies ahead of the caller's."""
    for each in succeed(run(tmp_path, 2, f"""
        sys.path.insert(0, {str(ROOT / "tests/backend")!r})
        import fake_device, ina.backend.staging as staging
        device = fake_device.Device(); device.run_forever()
        staging.device_of = device.device_of
        away, read = device.away, device.read
        rank, n = start()
        tensor = away(torch.full((5,), rank + 1.0)); work = dist.all_reduce(tensor, async_op=True)
        assert tensor.tolist() == [rank + 1.0] * 5 or work.is_completed()
        work.wait(); assert read(tensor) == [3.0] * 5
        tensor = away(torch.full((5,), rank + 1.0)); dist.broadcast(tensor, 1); assert read(tensor) == [2.0] * 5
        rows = [away(torch.zeros(3)) for _ in range(n)]; dist.all_gather(rows, away(torch.full((3,), rank + 0.0)))
        assert [read(row) for row in rows] == [[0.0] * 3, [1.0] * 3]
        part = away(torch.zeros(2)); dist.reduce_scatter_tensor(part, away(torch.arange(4.0))); assert read(part)[0] == 4 * rank
        turned = away(torch.zeros(n)); dist.all_to_all_single(turned, away(torch.full((n,), rank + 0.0)))
        assert read(turned) == [0, 1]
        if rank == 0: dist.send(away(torch.arange(4.0)), 1)
        else: got = away(torch.zeros(4)); dist.recv(got); assert read(got) == [0, 1, 2, 3]
        far, near = [away(torch.full((70_000,), float(i))) for i in range(9)], torch.ones(3)
        works = [dist.all_reduce(each, async_op=True) for each in far] + [dist.all_reduce(near, async_op=True)]
        for work in reversed(works): work.wait()
        assert [read(each)[7] for each in far] == [2.0 * i for i in range(9)] and near.tolist() == [2.0] * 3
        future = dist.all_reduce(away(torch.ones(2)), async_op=True).get_future(); say(future=read(future.wait()[0]))
        dist.destroy_process_group()
    """)):
        assert each["future"] == [2.0, 2.0]


@pytest.mark.build
def test_where_the_time_goes(tmp_path):
    """Spans in torch's profiler and in a trace of all ranks and the switch on one axis."""
    trace = tmp_path / "made" / "trace.json"
    trace.parent.mkdir()
    began = time.monotonic_ns() / 1000
    reports = succeed(run(tmp_path, 2, """
        rank, n = start()
        dist.all_reduce(torch.ones(10))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(5):
                works = [dist.all_reduce(torch.ones(200_000, dtype=torch.float16), async_op=True) for _ in range(2)]
                for work in works: work.wait()
        while '"pid":"switch"' not in open(os.environ["INA_TRACE"]).read(): time.sleep(0.1)  # a sample of its counters
        whole = [event.time_range.elapsed_us() for event in profile.events() if event.name == "ina:all_reduce"]
        say(spans=sorted({event.name for event in profile.events() if event.name.startswith("ina:")}), whole=len(whole))
        dist.destroy_process_group()
    """, INA_TRACE=str(trace)))
    names = [f"ina:all_reduce {step}" for step in ("decode", "encode", "submit", "wait")]
    assert all(each["spans"] == ["ina::record_param_comms", "ina:all_reduce", *names] and each["whole"] == 10 for each in reports)
    events = json.loads(trace.read_text())
    spans = [event for event in events if event["ph"] == "X" and event["name"] in names]
    assert {event["name"] for event in spans} == set(names) and all(event["dur"] >= 0 for event in spans)
    flights = [event for event in events if event.get("cat") == "flight"]
    assert len({event["pid"] for event in flights}) == 2 and sum(event["ph"] == "b" for event in flights) == 22
    starts = {event["id"]: event["ts"] for event in flights if event["ph"] == "b"}
    assert all(event["ts"] >= starts[event["id"]] for event in flights if event["ph"] == "e")
    switch = [event for event in events if event["ph"] == "C" and event["pid"] == "switch"]
    ended = time.monotonic_ns() / 1000
    times = [event["ts"] for event in (*spans, *flights, *switch)]
    assert switch and (min(began, *times), max(ended, *times)) == (began, ended)
