"""torchft, unmodified, over the switch: its groups, and replicas of a training that are killed and come back."""

from __future__ import annotations

import os
import re
import sys

import child
import pytest
from capabilities import need
from ranks import ROOT, run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

GROUP = """
sys.path.append(os.environ["INA_TORCH_USERS"])
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions, AllToAllOptions
from torch.distributed.distributed_c10d import BarrierOptions, BroadcastOptions, ReduceOp, ReduceScatterOptions
from torchft import process_group
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.environ["INIT"].removeprefix("file://"), n)
served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
if rank == 0:
    store.set("port", str(served.port))
group = ina.backend.torchft_group()
def configure(number, rank, size):
    address = f"127.0.0.1:{int(store.get('port'))}/{number}"
    if hasattr(group, "configure"):
        group.configure(address, f"replica_{rank}", rank, size)
    else:
        process_group.reconfigure_with_store(group, address, rank, size)
def sum_of(values):
    options = AllreduceOptions()
    options.reduceOp = ReduceOp.SUM
    group.allreduce([values], options).wait()
    return values
"""


def test_each_collective(tmp_path):
    """Those that torchft's own tests call, which its groups of Gloo have not all."""
    need("torch-users")
    succeed(run(tmp_path, 2, GROUP + """
configure(1, rank, n)
one = torch.full((4,), float(rank + 1))
every = [[torch.zeros(4) for _ in range(n)]]
group.allgather(every, [one], AllgatherOptions()).wait()
assert [each.tolist() for each in every[0]] == [[1.0] * 4, [2.0] * 4]
both = torch.zeros(8)
group.allgather_into_tensor_coalesced([both], [one], AllgatherOptions()).wait()
assert both.tolist() == [1.0] * 4 + [2.0] * 4
assert sum_of(one.clone()).tolist() == [3.0] * 4
coalesced = one.clone()
group.allreduce_coalesced([coalesced], AllreduceCoalescedOptions()).wait()
assert coalesced.tolist() == [3.0] * 4
exchanged = torch.zeros(4)
group.alltoall_base(exchanged, one, [], [], AllToAllOptions()).wait()
assert exchanged.tolist() == [1.0, 1.0, 2.0, 2.0]
group.barrier(BarrierOptions()).wait()
from_0 = one.clone()
group.broadcast([from_0], BroadcastOptions()).wait()
group.broadcast_one(from_0, 0).wait()
assert from_0.tolist() == [1.0] * 4
half = torch.zeros(2)
group.reduce_scatter([half], [[*one.chunk(2)]], ReduceScatterOptions()).wait()
assert half.tolist() == [3.0] * 2
half = torch.zeros(2)
group.reduce_scatter_tensor_coalesced([half], [one], ReduceScatterOptions()).wait()
assert half.tolist() == [3.0] * 2
if rank == 0:
    group.send([one], 1, 7).wait()
else:
    group.recv([one], 0, 7).wait()
assert one.tolist() == [1.0] * 4
assert group.size() == n and group.getBackendName() == "torchft-ina" and group.errored() is None
group.shutdown()
store.set(f"end{rank}", "")
store.wait(["end0", "end1"])
"""))


def test_a_group_that_could_not_be_made(tmp_path):
    """A replica does not come to a quorum: an error, which `errored` has until the next quorum."""
    need("torch-users")
    succeed(run(tmp_path, 2, GROUP + """
group.set_timeout(timedelta(seconds=3))
if rank == 0:
    try:
        configure(1, 0, 2)
        raise SystemExit("without the other one")
    except RuntimeError:
        assert isinstance(group.errored(), RuntimeError)
group.set_timeout(timedelta(seconds=60))
configure(2, rank, 2)
assert group.errored() is None
assert sum_of(torch.ones(100))[0].item() == 2
group.shutdown()
store.set(f"end{rank}", "")
store.wait(["end0", "end1"])
"""))


def test_what_cannot_be_is_refused_before_any_quorum(tmp_path):
    need("torch-users")
    (report,) = succeed(run(tmp_path, 1, """
sys.path.append(os.environ["INA_TORCH_USERS"])
errors = []
for arguments in ({"seconds": float("nan")}, {"seconds": -1}, {"options": {"protocol": "atp"}}, {"options": "atp"},
                  {"options": ina.backend.Options(values=7)}):
    try:
        ina.backend.torchft_group(**arguments)
    except (TypeError, ValueError) as error:
        errors.append(f"{type(error).__name__}: {error}")
say(errors=errors)
"""))
    starts = ["ValueError: ina: seconds = nan, expected", "ValueError: ina: seconds = -1, expected",
              "TypeError: ina: options is a dict, expected ina.backend.Options", "TypeError: ina: options is a str, expected",
              "ConfigError: Options(values=7): expected one of"]
    assert len(report["errors"]) == 5 and all(map(str.startswith, report["errors"], starts)), report


def test_groups_follow_each_other_in_the_same_processes(tmp_path):
    """Rank 2 leaves and comes back, a sum fails in between, and another rank becomes the first one."""
    need("torch-users")
    reports = succeed(run(tmp_path, 3, GROUP + """
configure(1, rank, 3)
sums = [sum_of(torch.full((10_000,), 2.0**rank))[0].item()]
if rank == 2:
    group.abort()  # as torchft does on an error of its own
    assert group.errored() is not None
else:
    try:
        sum_of(torch.ones(10_000))
        raise SystemExit("without rank 2")
    except RuntimeError as error:
        assert "rank 2" in str(error) or "worker 2" in str(error), error
    assert "2" in str(group.errored())
    configure(2, 1 - rank, 2)
    assert group.errored() is None
    sums.append(sum_of(torch.full((10_000,), 2.0**rank))[0].item())
    group.set_timeout(timedelta(seconds=30))
store.set(f"between{rank}", "")
store.wait(["between0", "between1", "between2"])
configure(3, [1, 2, 0][rank], 3)
sums.append(sum_of(torch.full((10_000,), 2.0**rank))[0].item())
assert group.errored() is None
group.shutdown()
say(sums=sums)
store.set(f"end{rank}", "")
store.wait(["end0", "end1", "end2"])
"""))
    assert [report["sums"] for report in reports] == [[7.0, 3.0, 7.0], [7.0, 3.0, 7.0], [7.0, 7.0]]


@pytest.mark.parametrize("kill", [0, 1])
def test_a_replica_is_killed_and_comes_back(kill):
    need("torch-users")
    paths = os.pathsep.join((str(ROOT), os.environ["INA_TORCH_USERS"]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "",
                   "INA_CODEC": "block"}
    done = child.run([sys.executable, "examples/parallel/replicas.py", "--replicas", "3", "--kill", str(kill)], 300, cwd=ROOT,
                     env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    ends = re.findall(r"^replica (\d) ends as one of 3, with the parameters (\w+) and .* by (\S+)$", done.stdout, re.M)
    assert sorted(number for number, _, _ in ends) == ["0", "1", "2"], done.stdout
    assert len({digest for _, digest, _ in ends}) == 1 and all(float(worst) < 1e-4 for *_, worst in ends)
