"""Collectives in flight, waited for in any order, number and way: a bound on memory delays some, and blocks none."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable

import pytest
from ranks import ROOT, run, succeed
from waiting import until

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.group_state import STAGED, GroupState  # noqa: E402
from ina.backend.sums import Sum  # noqa: E402
from ina.backend.work import Agreed, SwitchWork  # noqa: E402


class Job:
    """A job whose switch doubles what it gets, at once."""

    def __init__(self) -> None:
        self.failed, self.failure = False, ""
        self.sums: list[torch.Tensor] = []
        self.most = self.done = 0

    def run(self, buffer, average, mark, seconds, reduction, route):
        if self.failed:
            raise RuntimeError(self.failure)
        self.sums.append(buffer)
        self.most = max(self.most, len(self.sums) - self.done)
        return len(self.sums) - 1, 0, False

    def wait(self, ticket, number, title, seconds) -> bool:
        if self.failed:
            raise RuntimeError(self.failure)
        self.sums[ticket].numpy()[:] *= 2  # past torch, as an endpoint does
        self.done += 1
        return True

    def abort(self, reason: str) -> None:
        self.failed, self.failure = True, reason

    def fail(self, title: str, error: Exception) -> None:
        self.abort(f"{title}: {type(error).__name__}: {error}")

    def worker_stats(self) -> dict[str, int]:
        return {}


class Lost(Job):
    """A job whose sums never end, since another rank does not take part: its endpoint gives up at the third look after
    ``begun``, when all collectives have been called; the group's own thread looks all the time."""

    looks = 0

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def wait(self, ticket, number, title, seconds) -> bool:
        self.looks += seconds > 0 and self.begun.wait(seconds)
        if self.looks > 2:
            self.abort("no answer from the switch")
            raise RuntimeError(self.failure)
        return False


def start(job: Job, works: int, pieces: int) -> tuple[list[SwitchWork], list[torch.Tensor]]:
    """Starts collectives of sums with memory of their own."""
    group = GroupState(lambda: 60.0, None)
    tensors = [torch.arange(4 * pieces, dtype=torch.int32) + i for i in range(works)]

    def part(tensor: torch.Tensor, at: int) -> Sum:
        return Sum(4, torch.int32, lambda: tensor[at : at + 4].clone(), tensor[at : at + 4].copy_, staged=True)

    started = []
    for tensor in tensors:
        parts = [part(tensor, at) for at in range(0, tensor.numel(), 4)]
        started.append(SwitchWork(group, job, "allreduce", [tensor], parts, Agreed.of("allreduce", "", parts)))
        started[-1].submit(asynchronous=True)
    return started, tensors


def ended(call: Callable[[], object]) -> object:
    """Calls in another thread; returns what it returned, or the exception."""
    outcome: list[object] = []

    def body() -> None:
        try:
            outcome.append(call())
        except RuntimeError as error:
            outcome.append(error)

    threading.Thread(target=body, daemon=True).start()
    return until(lambda: outcome, "the end of a wait")[0]


def poll(work: SwitchWork) -> bool:
    return until(work.is_completed, "is_completed()")


WAYS = {"wait": lambda work: work.wait(), "poll": poll, "future": lambda work: work.get_future().wait()}


@pytest.mark.fast
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pieces", (1, 3))
def test_works_are_waited_for_in_any_order(way, pieces):
    for order in itertools.permutations(range(2 * STAGED)):
        job = Job()
        works, tensors = start(job, len(order), pieces)
        for i in order:
            ended(functools.partial(WAYS[way], works[i]))
        for i, tensor in enumerate(tensors):
            assert tensor.tolist() == [2 * (value + i) for value in range(4 * pieces)], order
        assert job.most <= STAGED


@pytest.mark.fast
def test_what_nobody_waits_for_begins():
    job = Job()
    start(job, 20, 1)  # and throws the handles away, as a rank that goes on with something else
    until(lambda: len(job.sums) == 20, "the last sum's beginning: other ranks wait for it")


@pytest.mark.fast
@pytest.mark.parametrize("first", range(5))
def test_every_wait_ends_when_other_ranks_do_not_come(first):
    works, _ = start(job := Lost(), 5, 2)
    job.begun.set()
    order = [first, *(i for i in range(5) if i != first)]
    for i in order:
        assert "no answer from the switch" in str(ended(works[i].wait))


@pytest.mark.fast
def test_an_encoder_that_fails_ends_the_job_for_all():
    job, group = Job(), GroupState(lambda: 60.0, None)

    def fails() -> torch.Tensor:
        raise MemoryError("no memory")

    parts = [Sum(4, torch.int32, fails, staged=True)]
    work = SwitchWork(group, job, "allreduce", [], parts, Agreed.of("allreduce", "", parts))
    with pytest.raises(MemoryError):
        work.submit(asynchronous=True)
    assert "MemoryError: no memory" in job.failure, "the other ranks wait for its sum"


@pytest.mark.fast
@pytest.mark.parametrize("way", WAYS)
def test_results_of_inference_mode_are_written_outside_of_it(way):
    with torch.inference_mode():
        works, tensors = start(Job(), 2 * STAGED, 3)
    for work in reversed(works):
        ended(functools.partial(WAYS[way], work))
        assert work.exception() is None
    assert [tensor.tolist() for tensor in tensors] == [[2 * (value + i) for value in range(12)] for i in range(2 * STAGED)]


@pytest.mark.fast
def test_tensors_for_training_stay_so_if_they_are_waited_for_in_inference_mode():
    works, _ = start(job := Job(), 2 * STAGED, 1)
    with torch.inference_mode():
        for work in reversed(works):
            work.wait()
    assert not any(buffer.is_inference() for buffer in job.sums)


BODY = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
import random, threading
from concurrent.futures import ThreadPoolExecutor
import folders
from waiting import until
from ina.backend import coded, sums
import torch.distributed._functional_collectives as funcol
R = dist.ReduceOp
rank, n = start(60)
gloo = dist.new_group(backend="gloo")
TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.bool)
KINDS = ("all_reduce", "all_reduce", "all_reduce", "reduce_scatter", "coalesced", "functional", "broadcast", "all_gather")
WAYS = ("wait", "seconds", "poll", "future", "thread")
OPS = (R.SUM, R.AVG, R.MAX)

def begin(seed, i):
    # one collective: (a work or a functional result, its result, Gloo's)
    draw = random.Random(f"{{seed}} {{i}}")  # the same on all ranks
    dtype, op = draw.choice(TYPES), draw.choice(OPS)
    size = n * draw.choice((1, 7, 256, 1000, 20000))
    kind = draw.choice(KINDS)
    mine = torch.Generator().manual_seed(hash((seed, i, rank)))
    own = torch.randint(0, 2, (size,), generator=mine).to(dtype)
    if dtype == torch.bool and op == R.AVG: op = R.SUM
    wide = torch.float64 if op == R.AVG else torch.int64
    total = own.to(wide, copy=True)
    if kind == "broadcast":
        dist.broadcast(total, 0, group=gloo)
    elif kind != "all_gather":
        dist.all_reduce(total, R.MAX if op == R.MAX or dtype == torch.bool else R.SUM, group=gloo)
    if op == R.AVG and kind not in ("broadcast", "all_gather"):
        total /= n
    judge = total.to(dtype)  # integers: towards zero
    if kind == "all_reduce":
        return dist.all_reduce(own, op, async_op=True), own, judge
    if kind == "coalesced":
        parts = list(own.split(size // n))
        return dist.all_reduce_coalesced(parts, op, async_op=True), own, judge
    if kind == "functional":
        name = {{R.SUM: "sum", R.AVG: "avg", R.MAX: "max"}}[op]
        result = funcol.all_reduce(own, name, dist.group.WORLD)
        return result, result, judge
    if kind == "reduce_scatter":
        out = torch.empty(size // n, dtype=dtype)
        return dist.reduce_scatter_tensor(out, own, op, async_op=True), out, judge[rank * (size // n):][:size // n]
    if kind == "broadcast":
        return dist.broadcast(own, 0, async_op=True), own, judge
    out = torch.empty(n * size, dtype=dtype)
    everyone = [torch.empty(size, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(everyone, own.long(), group=gloo)
    return dist.all_gather_into_tensor(out, own, async_op=True), out, torch.cat(everyone).to(dtype)

def equal(result, judge):
    if not judge.is_floating_point(): return torch.equal(result, judge)
    return torch.allclose(result.double(), judge.double(), rtol=1e-2 if judge.itemsize == 2 else 1e-5, atol=1e-5)

def wait(work, way, pool):
    if isinstance(work, torch.Tensor):  # functional collective
        work.sum()
    elif isinstance(work, torch._C.Future):
        until(work.done, "done()") if way == "poll" else work.wait()
    elif way == "wait": work.wait()
    elif way == "seconds": work.wait(timedelta(seconds=50))
    elif way == "poll": until(work.is_completed, "is_completed()")
    elif way == "future": work.get_future().wait()
    elif way == "thread": return pool.submit(work.wait)

def one(seed, pool):
    stages = sums.STAGE, coded.PIECE
    if seed % 3 == 0: sums.STAGE, coded.PIECE = 4096, 500  # many pieces
    own = random.Random(seed * n + rank)  # each rank waits in an order of its own
    begun = [begin(seed, i) for i in range(2 + seed % 11)]
    sums.STAGE, coded.PIECE = stages
    order = own.sample(range(len(begun)), len(begun))
    how = own.choice((*WAYS, "mixed"))
    if seed % 4 == 1:
        dist.barrier()  # before any of them is waited for
    later = [wait(begun[i][0], own.choice(WAYS) if how == "mixed" else how, pool) for i in order]
    for each in later:
        if each is not None: each.result()
    return [(seed, i) for i, (_, result, judge) in enumerate(begun) if not equal(torch.as_tensor(result), judge)]

import faulthandler; faulthandler.dump_traceback_later(400, exit=True)
with ThreadPoolExecutor(8) as pool:
    wrong = [each for seed in range(SEEDS) for each in one(seed, pool)]
say(wrong=wrong, plans=ina.backend.stats()["calls"])
dist.destroy_process_group()
"""


@pytest.mark.build
@pytest.mark.later
def test_orders_kinds_types_sizes_and_ways_of_waiting_give_what_gloo_gives(tmp_path):
    for report in succeed(run(tmp_path, 3, BODY.replace("SEEDS", "60"), timeout=600)):
        assert report["wrong"] == []
        assert report["plans"]["allreduce"]["switch"] > 50
