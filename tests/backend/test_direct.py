"""Collectives that end in their call: the same sums as by the long way, whichever way each rank comes; long ones go on."""

from __future__ import annotations

import pytest
from ranks import run, succeed

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import direct  # noqa: E402
from ina.backend.coded import CodecError  # noqa: E402
from ina.backend.counters import COUNTERS  # noqa: E402
from ina.backend.group_state import STAGED, GroupState  # noqa: E402
from ina.backend.sums import Sum  # noqa: E402
from ina.backend.work import Agreed, Ended, SwitchWork  # noqa: E402


class Job:
    """A job whose switch doubles what it gets: at once, but for the rounds ``late``, by number, which end when waited for."""

    def __init__(self, late: tuple[int, ...] = ()) -> None:
        self.late, self.failed, self.failure = late, False, ""
        self.sums: list[torch.Tensor] = []
        self.open: set[int] = set()
        self.most = 0

    def run(self, buffer, average, mark, seconds, reduction, route):
        if self.failed:
            raise RuntimeError(self.failure)
        number = len(self.sums)
        self.sums.append(buffer)
        if number not in self.late and seconds:
            buffer.numpy()[:] *= 2
            return number, number, True
        self.open.add(number)
        self.most = max(self.most, len(self.open))
        return number, number, False

    def wait(self, ticket, number, title, seconds) -> bool:
        self.sums[ticket].numpy()[:] *= 2
        self.open.remove(ticket)
        return True

    def fail(self, title: str, error: Exception) -> None:
        self.failed, self.failure = True, f"{title}: {error}"

    def worker_stats(self) -> dict[str, int]:
        return {}


class Rounds(Sum):
    """A sum of ``count`` rounds, each of which doubles what the one before has left."""

    def __init__(self, tensor: torch.Tensor, count: int):
        super().__init__(tensor.numel(), torch.int32, tensor.clone, staged=True)
        self._tensor, self._left, self._count = tensor, count, count

    @property
    def begun(self) -> bool:
        return self._left < self._count

    @property
    def last(self) -> bool:
        return self._left == 0

    def begin(self) -> torch.Tensor:
        self._left -= 1
        self.buffer = self._tensor.clone()
        return self.buffer

    def end(self) -> bool:
        self._tensor.copy_(self.buffer)
        return self._left == 0


@pytest.fixture
def group():
    state = GroupState(lambda: 60.0, None)
    yield state
    state.close()
    assert COUNTERS._in_flight == 0, "collectives that have ended, or failed, are not in flight"


def go(group: GroupState, job: Job, part: Sum, tensor: torch.Tensor, asynchronous: bool = False):
    return direct.run(group, job, "allreduce", [tensor], part, Agreed.of("allreduce", "", [part]), asynchronous)


def staged(tensor: torch.Tensor) -> Sum:
    return Sum(tensor.numel(), tensor.dtype, tensor.clone, tensor.copy_, staged=True)


@pytest.mark.fast
def test_what_has_ended_says_so_in_every_way(group):
    tensor = torch.arange(4, dtype=torch.int32)
    work = go(group, Job(), Sum.of(tensor), tensor)
    assert isinstance(work, Ended) and tensor.tolist() == [0, 2, 4, 6]
    assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None and work.finished()
    assert work.result() == [tensor] and work.get_future().value() == [tensor]
    heard: list[object] = []
    work.listen(heard.append)
    assert heard == [None] and go(group, Job(), Sum.of(tensor), tensor).get_future().done()


@pytest.mark.fast
@pytest.mark.parametrize("count", (1, 2, 5))
@pytest.mark.parametrize("late", (None, 0, 1, 4))
def test_a_round_that_takes_long_goes_on_as_a_work(group, count, late):
    tensor = torch.arange(4, dtype=torch.int32)
    work = go(group, Job(() if late is None else (late,)), Rounds(tensor, count), tensor)
    assert isinstance(work, SwitchWork) == (late is not None and late < count)
    assert work.wait() and tensor.tolist() == [value << count for value in range(4)]


@pytest.mark.fast
def test_memory_of_a_sum_that_takes_long_counts(group):
    """At most STAGED sums have memory of their own, also when the first of them has begun in its call, and once it has ended."""
    job, tensors = Job(late=(0,)), [torch.ones(4, dtype=torch.int32) for _ in range(8)]
    works = [go(group, job, staged(tensors[0]), tensors[0])]
    for tensor in tensors[1:4]:
        works.append(SwitchWork(group, job, "allreduce", [tensor], [part := staged(tensor)], Agreed.of("", "", [part])))
        works[-1].submit(asynchronous=True)
    for work in works:
        work.wait()
    for tensor in tensors[4:]:
        works.append(SwitchWork(group, job, "allreduce", [tensor], [part := staged(tensor)], Agreed.of("", "", [part])))
        works[-1].submit(asynchronous=True)
    for work in works:
        work.wait()
    assert job.most == STAGED and all(tensor.tolist() == [2] * 4 for tensor in tensors)


@pytest.mark.fast
@pytest.mark.parametrize("error", (MemoryError("none left"), CodecError("ina: a codec")))
def test_failures_end_the_job_if_others_wait_or_differ(group, error):
    def fails(*_: object) -> torch.Tensor:
        raise error

    tensor = torch.ones(4, dtype=torch.int32)
    with pytest.raises(type(error)):
        go(group, job := Job(), Sum(4, torch.int32, fails), tensor)
    assert str(error) in job.failure, "the other ranks wait for its sum"
    with pytest.raises(type(error)):
        go(group, job := Job(), Sum(4, torch.int32, tensor.clone, fails), tensor)
    assert job.failed == isinstance(error, CodecError), "the others have their sum"


@pytest.mark.fast
def test_what_waits_for_memory_comes_first(group):
    """A sum that may not begin yet is not overtaken."""
    job = Job(late=tuple(range(8)))
    for _ in range(STAGED + 1):
        part = staged(torch.ones(4, dtype=torch.int32))
        SwitchWork(group, job, "allreduce", [], [part], Agreed.of("", "", [part])).submit(asynchronous=True)
    assert group.sums_wait and not direct.possible(group)
    assert direct.possible(GroupState(lambda: 60.0, None))


@pytest.mark.fast
@pytest.mark.parametrize("count", (1, 3))
def test_what_is_asynchronous_only_begins(group, count):
    tensor = torch.arange(4, dtype=torch.int32)
    job = Job(late=(0,))
    work = go(group, job, Rounds(tensor, count), tensor, asynchronous=True)
    assert isinstance(work, SwitchWork) and job.open == {0} and tensor.tolist() == [0, 1, 2, 3]
    assert work.wait() and tensor.tolist() == [value << count for value in range(4)]


BODY = """
import itertools
from ina.backend import direct
rank, n = start()
taken = []
def counted(*args, run=direct.run):
    work, asynchronous = run(*args), args[-1]
    taken.append("asynchronous" if asynchronous else type(work).__name__)
    return work
direct.run = counted
class Own(torch.Tensor):
    pass
def strided(x): return torch.stack([x, x], -1).reshape(*x.shape, 2)[..., 0]
def unaligned(x):
    room = torch.zeros(x.numel() * x.itemsize + 1, dtype=torch.uint8)
    copy = torch.frombuffer(room.numpy(), dtype=x.dtype, offset=1, count=x.numel()) if x.numel() else x
    copy.copy_(x)
    return copy
WAYS = (lambda x: (x, False), lambda x: (x, True), lambda x: (strided(x), False), lambda x: (x.as_subclass(Own), False),
        lambda x: (unaligned(x), False), lambda x: (torch.nn.Parameter(x) if x.is_floating_point() else x, False))
wrong, turn = [], 0
for dtype, size, op in itertools.product(
        (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.float64, torch.uint8, torch.complex64),
        (0, 1, 3, 2048, 2049, 70_000), (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX)):
    if op == dist.ReduceOp.MAX and dtype == torch.complex64: continue
    for _ in range(2):  # the second time it is known how such a sum goes
        turn += 1
        mine = (torch.arange(size) % 23 + rank).to(dtype)
        all_ranks = torch.stack([(torch.arange(size) % 23 + r) for r in range(n)]).to(torch.float64)
        right = {dist.ReduceOp.SUM: all_ranks.sum(0), dist.ReduceOp.AVG: all_ranks.sum(0) / n}.get(op, all_ranks.amax(0))
        tensor, asynchronous = WAYS[(turn + rank * (1 + turn // 6)) % 6](mine)
        work = dist.all_reduce(tensor, op, async_op=asynchronous)
        if work is not None: work.wait()
        got, exact = tensor.detach().to(torch.complex128).real, not (dtype.is_floating_point or dtype.is_complex)
        right = right.trunc() if exact else right
        close = 0 if exact or op == dist.ReduceOp.MAX else 1e-2 if dtype.itemsize == 2 else 1e-5
        if not torch.allclose(got, right, rtol=close, atol=close):
            wrong.append([turn, str(dtype), size, str(op), got[:4].tolist(), right[:4].tolist()])
for kind in range(40):  # other collectives, and which rank comes late
    if rank == kind % n and kind > 36: time.sleep(0.25)
    out = torch.zeros(n * 5); dist.all_gather_into_tensor(out, torch.full((5,), float(rank)))
    if out.tolist() != [float(r) for r in range(n) for _ in range(5)]: wrong.append(["all_gather", kind])
    part = torch.zeros(5); dist.reduce_scatter_tensor(part, torch.arange(5.0 * n))
    if part.tolist() != [float(n * (5 * rank + i)) for i in range(5)]: wrong.append(["reduce_scatter", kind])
    word = torch.tensor([kind + rank, 7]); dist.broadcast(word, kind % n)
    if word.tolist() != [kind + kind % n, 7]: wrong.append(["broadcast", kind])
    dist.barrier()
say(wrong=wrong, ended=taken.count("Ended"), long=taken.count("SwitchWork"), begun=taken.count("asynchronous"))
dist.destroy_process_group()
"""


@pytest.mark.build
@pytest.mark.later
def test_ranks_may_come_by_different_ways(tmp_path):
    for report in succeed(run(tmp_path, 3, BODY, timeout=300)):
        assert report["wrong"] == [] and report["ended"] > 200 and report["begun"] > 10
        assert report["long"] > 0, "the others of a rank that is late"


CODED = """
rank, n = start()
from ina.backend import direct
taken = []
def counted(*args, run=direct.run):
    taken.append(1)
    return run(*args)
direct.run = counted
for turn in range(6):
    tensor = torch.full((100_000 if turn % 2 else 3,), 1.5 + rank)
    if rank == turn % n: tensor = torch.stack([tensor, tensor], -1)[:, 0]
    dist.all_reduce(tensor)
    assert torch.allclose(tensor, torch.full_like(tensor, sum(1.5 + r for r in range(n))), rtol=3e-2), turn
say(direct=len(taken), codecs=ina.backend.stats()["codecs"])
dist.destroy_process_group()
"""


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("codec", ("qsgd-8", "lanes-16", "auto", "two-limb"))
def test_codecs_have_their_rounds_and_seeds(tmp_path, codec):
    """Steps of a codec's seeds are counted on all ranks, whichever way each comes."""
    for report in succeed(run(tmp_path, 2, CODED, timeout=300, INA_CODEC=codec)):
        assert report["direct"] > 0
        assert codec == "auto" or report["codecs"][codec]["sums"] == 3
