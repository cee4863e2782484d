"""The torch back end in real ranks: each test runs processes, looks at what they printed, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from capabilities import need

pytest.importorskip("torch", reason="the back end needs torch")

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = """
import json, os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
def say(**facts): print(json.dumps(facts), flush=True)
def start(seconds=30, backend="ina"):
    dist.init_process_group(backend, init_method=os.environ["INIT"], rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]), timeout=timedelta(seconds=seconds))
    if backend == "ina":
        global world
        from ina.backend import world
        say(switch=list(world._pids.items()))
    return dist.get_rank(), dist.get_world_size()
def meet():  # through Gloo, so that it ends well when the switch ends right after
    n = dist.get_world_size(); dist.all_to_all_single(torch.zeros(n), torch.zeros(n))
"""


@dataclass
class Rank:
    code: int
    said: dict
    errors: str


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_with(variable: str) -> list[int]:
    """Processes in whose environment this is, children of children too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is somebody else's
            continue
    return found


def shared_memory() -> set[str]:
    """What has a name there; not multiprocessing's semaphores, which any other process of the machine may come and go with."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if not name.startswith("sem.mp-")}


def run(tmp_path: Path, ranks: int, body: str, timeout: float = 60, **env: str) -> list[Rank]:
    """Run ``body`` in ``ranks`` processes; then no switch process, socket or shared memory of theirs may be left."""
    before = shared_memory()
    files = set(tmp_path.iterdir())
    rendezvous = tmp_path / f"store{time.monotonic_ns()}"
    script = PRELUDE + textwrap.dedent(body)
    common = dict(os.environ, WORLD_SIZE=str(ranks), INIT=f"file://{rendezvous}", PYTHONPATH=str(ROOT),
                  OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0", **env)
    processes = [subprocess.Popen([sys.executable, "-c", script], env=dict(common, RANK=str(rank)), cwd=tmp_path,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    results = []
    try:
        deadline = time.monotonic() + timeout
        for process in processes:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            said: dict = {}
            for line in out.splitlines():
                said.update(json.loads(line))
            results.append(Rank(process.returncode, said, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    wait_until(lambda: not processes_with(f"INIT={common['INIT']}"), "the end of all processes that the ranks started")
    for name, pid in {tuple(switch) for rank in results for switch in rank.said.get("switch", [])}:
        wait_until(lambda pid=pid: not alive(pid), f"the end of switch process {pid}")
        with open("/proc/net/unix") as file:
            assert name not in file.read()
    assert shared_memory() <= before
    assert set(tmp_path.iterdir()) - files <= {rendezvous}
    return results


def wait_until(condition, what: str, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def succeed(results: list[Rank]) -> list[dict]:
    for number, rank in enumerate(results):
        assert rank.code == 0, f"rank {number} ended with {rank.code}:\n{rank.errors}"
    return [rank.said for rank in results]


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
assert special[1].isnan() or special[1].isinf()
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
doubles = torch.ones(3, dtype=torch.float64); dist.all_reduce(doubles); assert (doubles == n).all()
say(stats=ina.backend.stats())
dist.destroy_process_group()
"""


@pytest.fixture(params=["switchml", "atp"])
def protocol(request, monkeypatch):
    monkeypatch.setenv("INA_PROTOCOL", request.param)
    return request.param


FAULTS = {"INA_FAULT": "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=3", "INA_VALUES": "256"}


@pytest.mark.parametrize("env", [
    {}, {"INA_VALUES": "256"}, {"INA_PORT": "udp", "INA_VALUES": "256"}, FAULTS, {**FAULTS, "INA_PROTOCOL": "atp"},
    {"INA_PROTOCOL": "atp", "INA_PORT": "udp", "INA_VALUES": "256"}, {"INA_PROTOCOL": "ps", "INA_VALUES": "256"},
    {**FAULTS, "INA_PROTOCOL": str(ROOT / "examples" / "lockstep" / "lockstep.p4")},
], ids=["default", "1024 B", "udp", "faults", "atp, faults", "atp, udp", "ps", "own protocol, faults"])
def test_allreduce(tmp_path, env):
    for said in succeed(run(tmp_path, 3, ALLREDUCE, **env)):
        stats = said["stats"]
        assert stats["reasons"] == {"allreduce: SUM of float64": 1}
        assert stats["switch"]["calls"] > 170 and stats["switch"]["seconds"] > 0
        assert stats["worker"]["results"] > 400
        assert "INA_FAULT" not in env or stats["worker"]["retransmissions"] > 0


def test_options_of_a_group_count_more_than_the_environment(tmp_path):
    said = succeed(run(tmp_path, 2, """
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
    for each in said:
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
whole = torch.ones(4, 4, dtype=torch.float64); view = whole.t()[::2]; dist.all_reduce(view)
assert (view == n).all() and (whole[:, 1::2] == 1).all()
try: dist.all_reduce(torch.ones(2), op=R.BAND)
except RuntimeError as error: say(refused=str(error))
dist.group.WORLD.monitored_barrier(timedelta(seconds=20))
assert dist.get_backend() == "ina"
say(stats=ina.backend.stats())
dist.destroy_process_group()
"""


def test_every_collective(tmp_path):
    for each in succeed(run(tmp_path, 3, COLLECTIVES)):
        through = each["through_switch"]
        assert not through["reasons"] and not any(ways["gloo"] for ways in through["calls"].values())
        assert set(through["calls"]) >= {"allreduce", "broadcast", "reduce", "allgather", "_allgather_base", "barrier",
                                         "allgather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base"}
        reasons = each["stats"]["reasons"]
        for reason, count in {"allreduce: SUM of float64": 1, "allreduce: MAX of float64": 1, "allreduce: operation BAND": 1,
                              "gather: not a sum": 1, "scatter: not a sum": 1, "alltoall: not a sum": 1}.items():
            assert reasons[reason] == count
        assert "BAND" in each["refused"]


def test_distributed_data_parallel_trains_as_over_gloo(tmp_path):
    said = succeed(run(tmp_path, 2, """
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
    for each in said:
        assert each["error"] < 1e-5
        assert each["loss"] < 0.7
        assert each["stats"]["switch"]["sums"] > 20 * 2 and not each["stats"]["reasons"]


def test_tensors_elsewhere_are_staged(tmp_path):
    """Without a device: some tensors in main memory count as elsewhere, and must come back changed in place."""
    for each in succeed(run(tmp_path, 2, """
        import ina.backend.staging as staging
        far = []
        staging.elsewhere = lambda tensor: any(tensor is each for each in far)
        def away(tensor): far.append(tensor); return tensor
        rank, n = start()
        tensor = away(torch.full((5,), rank + 1.0)); work = dist.all_reduce(tensor, async_op=True)
        assert tensor.tolist() == [rank + 1.0] * 5  # not touched before the end
        work.wait(); assert tensor.tolist() == [3.0] * 5
        tensor = away(torch.full((5,), rank + 1.0)); dist.broadcast(tensor, 1); assert tensor.tolist() == [2.0] * 5
        rows = [away(torch.zeros(3)) for _ in range(n)]; dist.all_gather(rows, away(torch.full((3,), rank + 0.0)))
        assert [row.tolist() for row in rows] == [[0.0] * 3, [1.0] * 3]
        part = away(torch.zeros(2)); dist.reduce_scatter_tensor(part, away(torch.arange(4.0))); assert part[0] == 4 * rank
        turned = away(torch.zeros(n)); dist.all_to_all_single(turned, away(torch.full((n,), rank + 0.0)))
        assert turned.tolist() == [0, 1]
        if rank == 0: dist.send(away(torch.arange(4.0)), 1)
        else: got = away(torch.zeros(4)); dist.recv(got, 0); assert got.tolist() == [0, 1, 2, 3]
        say(future=dist.all_reduce(away(torch.ones(2)), async_op=True).get_future().wait()[0].tolist())
        dist.destroy_process_group()
    """)):
        assert each["future"] == [2.0, 2.0]


def test_cuda_tensors(tmp_path):
    need("cuda")
    for each in succeed(run(tmp_path, 2, """
        rank, n = start()
        from torch.nn.parallel import DistributedDataParallel
        tensor = torch.full((100_000,), rank + 1.0, device="cuda"); tensor *= 2; dist.all_reduce(tensor)
        assert (tensor == 6).all() and tensor.is_cuda
        tensor = torch.full((5,), rank, device="cuda"); dist.broadcast(tensor, 1); assert (tensor == 1).all()
        flat = torch.zeros(2, device="cuda"); dist.all_gather_into_tensor(flat, torch.full((1,), rank + 0.0, device="cuda"))
        assert flat.tolist() == [0, 1]
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(10, 10).cuda())
        loss = model(torch.full((4, 10), rank + 1.0, device="cuda")).sum(); loss.backward()
        assert torch.allclose(model.module.weight.grad, torch.full((10, 10), 6.0, device="cuda"))
        say(stats=ina.backend.stats())
        dist.destroy_process_group()
    """)):
        assert each["stats"]["calls"]["allreduce"]["switch"] >= 2


def test_where_the_time_goes(tmp_path):
    """Spans in torch's profiler and in a trace of all ranks and the switch on one axis."""
    trace = tmp_path / "made" / "trace.json"
    trace.parent.mkdir()
    said = succeed(run(tmp_path, 2, """
        rank, n = start()
        dist.all_reduce(torch.ones(10))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(5):
                works = [dist.all_reduce(torch.ones(200_000, dtype=torch.float16), async_op=True) for _ in range(2)]
                for work in works: work.wait()
                time.sleep(0.05)
        say(spans=sorted({event.name for event in profile.events() if event.name.startswith("ina:")}))
        dist.destroy_process_group()
    """, INA_TRACE=str(trace)))
    names = [f"ina:allreduce {step}" for step in ("decode", "encode", "submit", "wait")]
    assert all(each["spans"] == names for each in said)
    events = json.loads(trace.read_text().rstrip().rstrip(",") + "]")
    spans = [event for event in events if event["ph"] == "X" and event["name"] in names]
    assert {event["name"] for event in spans} == set(names) and all(event["dur"] >= 0 for event in spans)
    flights = [event for event in events if event.get("cat") == "flight"]
    assert len({event["pid"] for event in flights}) == 2 and sum(event["ph"] == "b" for event in flights) == 22
    begun = {event["id"]: event["ts"] for event in flights if event["ph"] == "b"}
    assert all(event["ts"] >= begun[event["id"]] for event in flights if event["ph"] == "e")
    switch = [event for event in events if event["ph"] == "C" and event["pid"] == "switch"]
    assert switch and min(begun.values()) - 1e6 < switch[0]["ts"] < max(event["ts"] for event in flights) + 1e6


# ---- failures: a clear error on every rank, soon


def failures(results: list[Rank], ranks: list[int], text: str, seconds: float) -> None:
    for rank in ranks:
        assert results[rank].code == 0, results[rank].errors
        said = results[rank].said
        assert text in said["error"], said
        assert said["seconds"] < seconds, said


WAIT_FOR_FAILURE = """
began = time.monotonic()
try:
    for _ in range(100_000):
        dist.all_reduce(torch.ones(10_000))
        {step}
except RuntimeError as error:
    say(error=str(error), seconds=time.monotonic() - began)
try: dist.all_reduce(torch.ones(1))
except RuntimeError as error: say(again=str(error))
"""


@pytest.mark.parametrize("when", ["during", "before"])
def test_killed_worker(tmp_path, when, protocol):
    """Rank 1 is killed: in the middle of all-reduces, or before its first one."""
    results = run(tmp_path, 3, f"""
        rank, n = start(60)
        if {when == "during"}: dist.all_reduce(torch.ones(10))
        meet()
        if rank == 1:
            if {when == "during"}:
                work = [dist.all_reduce(torch.ones(10_000), async_op=True) for _ in range(20)]
            say(pid=os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE.format(step=""), " " * 8).strip()}
    """)
    assert results[1].code == -signal.SIGKILL
    failures(results, [0, 2], f"(process {results[1].said['pid']}) is lost", 6)
    failures(results, [0, 2], "worker 1 of job", 6)
    assert results[0].said["again"] == results[0].said["error"]


def test_killed_starter(tmp_path, protocol):
    """Rank 0, which started the switch process, is killed: the others are told, the switch ends with them."""
    results = run(tmp_path, 3, f"""
        rank, n = start(60)
        dist.all_reduce(torch.ones(10))
        meet()
        if rank == 0: os.kill(os.getpid(), signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE.format(step=""), " " * 8).strip()}
    """)
    failures(results, [1, 2], "worker 0 of job", 6)


def test_killed_switch(tmp_path, protocol):
    results = run(tmp_path, 2, f"""
        rank, n = start(60)
        dist.all_reduce(torch.ones(10))
        meet()
        pid = next(iter(world._pids.values()))
        if rank == 0: os.kill(pid, signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE.format(step=""), " " * 8).strip()}
        say(pid=pid)
        dist.destroy_process_group()
    """)
    failures(results, [0, 1], f"the switch process {results[0].said['pid']} ended", 5)


def test_killed_parameter_server(tmp_path):
    """Its jobs fail, with the reason; a new group has a new server."""
    results = run(tmp_path, 2, f"""
        from ina.control.client import Client
        rank, n = start(60)
        dist.all_reduce(torch.ones(10))
        dist.barrier()
        client = Client(next(iter(world._pids)))
        pid = client.ping()["server"]
        client.close()
        if rank == 0: os.kill(pid, signal.SIGKILL)
        say(pid=pid)
        {textwrap.indent(WAIT_FOR_FAILURE.format(step=""), " " * 8).strip()}
        group = dist.new_group([0, 1])
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [2] * 10
        dist.destroy_process_group()
    """, INA_PROTOCOL="atp")
    failures(results, [0, 1], f"the parameter server (process {results[0].said['pid']}) is lost", 5)


def test_groups_of_two_protocols(tmp_path):
    """Each has a switch of its own; ranks that name different ones are told so."""
    results = run(tmp_path, 2, """
        rank, n = start()
        other = dist.new_group([0, 1], pg_options=ina.backend.Options(protocol="atp"))
        for group in (None, other):
            tensor = torch.ones(1000)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [2] * 1000
        say(protocols=sorted(world._protocols.values()))
        try: dist.new_group([0, 1], pg_options=ina.backend.Options(protocol="atp" if rank else "switchml"))
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """)
    for said in succeed(results):
        assert said["protocols"] == ["atp", "switchml"]
        assert "rank 0 has the protocol 'switchml', but rank 1 asks for 'atp'" in said["error"]


@pytest.mark.parametrize(("ours", "theirs"), [
    ("torch.ones(1000)", "torch.ones(1001)"), ("torch.ones(10)", "torch.ones(10, dtype=torch.int32)"),
    ("torch.ones(5)", "torch.empty(0)"), ("torch.ones(100_000)", "torch.ones(10)"),
    ("torch.ones(1, dtype=torch.int32)", "torch.empty(0, dtype=torch.int32)"),
    ("torch.ones(3, dtype=torch.int32)", "torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG"),
    ("torch.ones(3)", "torch.ones(3), op=dist.ReduceOp.AVG"),
])
def test_ranks_that_disagree(tmp_path, ours, theirs):
    disagree(tmp_path, ours, theirs)


def test_ranks_that_disagree_before_a_parameter_server(tmp_path):
    disagree(tmp_path, "torch.ones(100_000)", "torch.ones(10)", INA_PROTOCOL="atp")


def disagree(tmp_path, ours, theirs, **env):
    results = run(tmp_path, 2, f"""
        rank, n = start(20)
        began = time.monotonic()
        try: dist.all_reduce({ours}) if rank == 0 else dist.all_reduce({theirs})
        except RuntimeError as error: say(error=str(error), seconds=time.monotonic() - began)
        dist.destroy_process_group()
    """, **env)
    failures(results, [0, 1], "the ranks do not agree on this collective", 5)


def test_time_out_names_who_is_missing(tmp_path, protocol):
    results = run(tmp_path, 3, """
        rank, n = start(3)
        dist.all_reduce(torch.ones(10))
        began = time.monotonic()
        if rank != 1:
            try: dist.all_reduce(torch.ones(10))
            except RuntimeError as error: say(error=str(error), seconds=time.monotonic() - began)
        else: time.sleep(5)
    """)
    failures(results, [0, 2], "the switch still waits for worker 1", 5)
    failures(results, [0, 2], "Timed out after 3 s", 5)


def test_rank_that_left(tmp_path, protocol):
    """A rank that destroys its group lets the others finish, but not wait for ever."""
    results = run(tmp_path, 2, """
        rank, n = start(60)
        import ina.backend.job
        ina.backend.job.LEFT_GRACE = 0.5
        dist.all_reduce(torch.ones(10))
        if rank == 1: dist.destroy_process_group(); sys.exit()
        began = time.monotonic()
        try: dist.all_reduce(torch.ones(10))
        except RuntimeError as error: say(error=str(error), seconds=time.monotonic() - began)
    """)
    failures(results, [0], "rank 1 has left group", 5)


def test_ranks_on_different_machines(tmp_path):
    results = run(tmp_path, 2, """
        from ina.backend import world
        here = world.Place.here()
        if os.environ["RANK"] == "1": world.Place.here = lambda: world.Place("elsewhere", "other kernel", here.network)
        began = time.monotonic()
        try: start()
        except RuntimeError as error: say(error=str(error), seconds=time.monotonic() - began)
    """)
    failures(results, [0, 1], "ranks 0 and 1 are on different machines", 5)
    assert "elsewhere" in results[0].said["error"]


def test_switch_that_cannot_start(tmp_path):
    program = tmp_path / "broken.p4"
    program.write_text("control C() { apply { x = ; } }\n")
    results = run(tmp_path, 2, """
        rank, n = start()
        began = time.monotonic()
        try: dist.all_reduce(torch.ones(3))
        except RuntimeError as error: say(error=str(error), seconds=time.monotonic() - began)
        dist.destroy_process_group()
    """, INA_PROGRAM=str(program))
    failures(results, [0, 1], "broken.p4", 20)


def test_refused_job_goes_to_gloo_on_all_ranks(tmp_path):
    said = succeed(run(tmp_path, 2, """
        import dataclasses
        from ina.backend.settings import Settings
        small = dataclasses.replace(Settings.read(), pool=64)
        Settings.read = classmethod(lambda cls, options: small)
        rank, n = start()
        first = torch.ones(3); dist.all_reduce(first)
        group = dist.new_group([0, 1])
        second = torch.ones(3); dist.all_reduce(second, group=group)
        assert first.tolist() == second.tolist() == [2, 2, 2]
        say(stats=ina.backend.stats())
        dist.destroy_process_group()
    """, INA_SLOTS="64"))
    for each in said:
        assert each["stats"]["reasons"] == {"allreduce: refused by the switch": 1}
        assert each["stats"]["switch"]["calls"] == 1


@pytest.mark.parametrize("how", ["exception", "interrupt", "no destroy", "exit"])
def test_ends_of_a_job(tmp_path, how, protocol):
    """However the ranks end, ``run`` finds no process, socket or memory afterwards."""
    results = run(tmp_path, 2, f"""
        rank, n = start()
        work = [dist.all_reduce(torch.ones(10_000), async_op=True) for _ in range(10)]
        if {how == "exception"}: raise ValueError("on purpose")
        for each in work: each.wait()
        if {how == "interrupt"}: os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
        if {how == "exit"}: os._exit(3)
    """)
    expected = {"exception": 1, "interrupt": -signal.SIGINT, "no destroy": 0, "exit": 3}[how]
    assert [rank.code for rank in results] == [expected] * 2, results


def test_torchrun_and_a_second_world(tmp_path):
    """``init_process_group("ina")`` and nothing else; destroyed and made again over the same store."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent("""
        import torch, torch.distributed as dist
        import ina.backend; ina.backend.register()
        for life in range(2):
            dist.init_process_group("ina")
            tensor = torch.ones(10_000)
            dist.all_reduce(tensor)
            assert (tensor == 2).all()
            dist.destroy_process_group()
        assert ina.backend.stats()["switch"]["calls"] == 2
        print("good")
    """))
    result = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)],
                            env=dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"), capture_output=True,
                            text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("good") == 2


# ---- without ranks


def test_settings_name_what_is_wrong(monkeypatch):
    from ina.backend.settings import Settings, parse_faults

    wrong = [
        ("INA_VALUES", "100", "INA_VALUES=100: expected one of 32"),
        ("INA_SLOTS", "many", "INA_SLOTS=many: expected an integer"),
        ("INA_SLOTS", "48", "expected a power of two"),
        ("INA_PORT", "serial", "INA_PORT=serial: expected shm, udp or dpdk:DEVICE"),
        ("INA_PROTOCOL", "switchlm", "INA_PROTOCOL=switchlm: expected one of .*switchml"),
        ("INA_FAULT", "loss=2", "INA_FAULT=loss=2: .*loss"),
        ("INA_FAULT", "lost=0.1", "'lost=0.1': expected key=value with one of the keys loss, dup"),
        ("INA_VALEUS", "64", "INA_VALEUS: there is no such variable; did you mean INA_VALUES?"),
    ]
    for name, value, text in wrong:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(ValueError, match=text):
                Settings.read()
    faults = parse_faults("loss=0.1,dup=0.2,seed=7")
    assert (faults.loss, faults.duplicate, faults.seed) == (0.1, 0.2, 7)


def test_options_count_more_than_the_environment_and_that_more_than_a_file(monkeypatch, tmp_path):
    from ina.backend.settings import Options, Settings

    file = tmp_path / "ina.toml"
    file.write_text('values = 64\nslots = 8\nport = "udp"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert (Settings.read().values, Settings.read().slots, Settings.read().port) == (64, 8, "udp")
    monkeypatch.setenv("INA_VALUES", "128")
    monkeypatch.setenv("INA_SLOTS", "16")
    settings = Settings.read(Options(slots=32))
    assert (settings.values, settings.slots, settings.port) == (128, 32, "udp")
    with pytest.raises(ValueError, match=r"Options\(slots=33\): expected a power of two"):
        Settings.read(Options(slots=33))


@pytest.mark.parametrize(("content", "text"), [
    ("valeus = 64", "ina.toml: unknown key .valeus.; did you mean .values.\\?"),
    ("values = 65", "ina.toml: values = 65: expected"),
    ("values 64", "configuration file .*ina.toml: "),
])
def test_configuration_file_that_is_wrong(monkeypatch, tmp_path, content, text):
    from ina.backend.settings import Settings

    (tmp_path / "ina.toml").write_text(content)
    monkeypatch.setenv("INA_CONFIG", str(tmp_path / "ina.toml"))
    with pytest.raises(ValueError, match=text):
        Settings.read()
    monkeypatch.setenv("INA_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(ValueError, match="other.toml"):
        Settings.read()


def test_autoload_is_cheap_and_never_raises():
    code = """
import sys, torch
import ina.backend.autoload as autoload
autoload.register(); autoload.register()
assert torch.distributed.Backend.INA == "ina" and torch.distributed.Backend.backend_list.count("ina") == 1
heavy = {"ina._native", "ina.backend.process_group", "ina.compiler", "numpy.testing"} & set(sys.modules)
assert not heavy, heavy
torch.distributed.Backend.backend_list.remove("ina")
torch.distributed.Backend.register_backend = None
autoload.register()
"""
    result = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)),
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "cannot register" in result.stderr
