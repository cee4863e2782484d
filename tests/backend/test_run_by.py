"""Switches that ranks run, and that the switch process runs: the same bits; two jobs of one process, one of each."""

import pytest
import ranks

pytestmark = [pytest.mark.build, pytest.mark.later]

BOTH = """
rank, size = start()  # the ranks run its switch
os.environ["INA_RUN_BY"] = "process" if rank == 1 else "ranks"  # one of them is enough
groups = [dist.group.WORLD, dist.new_group(backend="ina")]
def results(group):
    torch.manual_seed(rank)
    kinds = (torch.float32, 1), (torch.float32, 40_001), (torch.int32, 5000), (torch.bfloat16, 777), (torch.int64, 100)
    for dtype, count in kinds:
        data = (torch.randn(count) * 100).to(dtype)
        total, piece, everything = data.clone(), torch.empty_like(data), torch.empty(size * count, dtype=dtype)
        dist.all_reduce(total, group=group); yield total
        dist.all_gather_into_tensor(everything, data, group=group); yield everything
        dist.reduce_scatter_tensor(piece, everything, group=group); yield piece
        dist.broadcast(data, 1, group=group); yield data
        parts = [total.clone() for _ in range(5)]
        works = [dist.all_reduce(part, async_op=True, group=group) for part in parts]
        [work.wait() for work in works]; yield torch.stack(parts)
ours, theirs = ([*results(group)] for group in groups)
assert len(ours) == 25
say(same=all(a.dtype == b.dtype and a.view(torch.uint8).equal(b.view(torch.uint8)) for a, b in zip(ours, theirs)))
stats = ina.backend.stats()
say(run_by=stats["run_by"], again=stats["worker"]["retransmissions"], switches=len(rendezvous._pids))
ina.backend.reset_stats()
say(reset=ina.backend.stats()["run_by"])
meet()
dist.destroy_process_group()
say(after=ina.backend.stats()["run_by"]["ranks"]["jobs"])
"""


@pytest.mark.parametrize("fault", [pytest.param("", marks=pytest.mark.gate), "loss=0.02,dup=0.02,reorder=0.02,seed=3"])
def test_ranks_and_switch_process_give_the_same_bits(tmp_path, fault):
    reports = ranks.succeed(ranks.run(tmp_path, 3, BOTH, **({"INA_FAULT": fault} if fault else {})))
    for report in reports:
        assert report["same"] and report["switches"] == 1
        assert report["run_by"]["ranks"]["jobs"] == report["run_by"]["process"]["jobs"] == 1
        assert report["reset"] == {"ranks": {"jobs": 1, "turns": 0, "packets": 0}, "process": {"jobs": 1}}
        assert report["after"] == 1
        assert bool(report["again"]) or not fault
    packets = [report["run_by"]["ranks"]["packets"] for report in reports]
    assert sum(packets) > 500


SHAKEN = """
import atexit, gc, random, signal, threading
rank, n = start()
pids = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
dist.all_gather(pids, torch.tensor([os.getpid()]))
over = threading.Event()
def shake(chance=random.Random(7)):
    while not over.is_set():
        pid = int(chance.choice(pids[1:]))
        os.kill(pid, signal.SIGSTOP)
        over.wait(0.02 * chance.random())
        os.kill(pid, signal.SIGCONT)
        over.wait(0.005)
def be_child(work):
    told, endpoint = 0, dist.group.WORLD._job._endpoint
    try:
        for call in (lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(3), async_op=True), work.wait):
            try: call()
            except RuntimeError as error: told += "was forked from the one that has the job" in str(error)
        ina.backend.stats()
        atexit._run_exitfuncs()
        endpoint._endpoint = None  # as at the end of an interpreter
        gc.collect()
        told += 10
    finally:
        os._exit(told)
shaker = threading.Thread(target=shake)
if rank == 0: shaker.start()
wrong, children = 0, []
for turn in range(600):
    tensor = torch.full(((1, 3000, 40_000)[turn % 3],), float(rank + turn % 5))
    work = dist.all_reduce(tensor, async_op=turn % 2 == 0)
    if turn % 40 == 10 + 2 * rank:
        if not (child := os.fork()): be_child(work)
        children.append(child)
    if work: work.wait()
    wrong += not tensor.eq(float(sum(range(n)) + n * (turn % 5))).all()
over.set()
if rank == 0: shaker.join()
say(wrong=wrong, codes=[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
say(ranks=ina.backend.stats()["run_by"]["ranks"]["jobs"])
dist.destroy_process_group()
"""


def test_ranks_that_are_stopped_and_that_fork_spoil_no_sum(tmp_path):
    """A rank may stand still while it runs the switch. Its children have a copy of its state, and the rings: they are told, also
    of what was on its way, and end without ending anything of the rank's."""
    for report in ranks.succeed(ranks.run(tmp_path, 3, SHAKEN, timeout=300)):
        assert report["wrong"] == 0 and report["ranks"] == 1
        assert report["codes"] == [13] * 15


STANDS_STILL = """
import signal, threading
rank, n = start()
pids = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
dist.all_gather(pids, torch.tensor([os.getpid()]))
over, tensor, flag = threading.Event(), torch.zeros(1 << 20), torch.zeros(1)
def stop():
    seat, pause = dist.group.WORLD._job._seat, threading.Event()
    while not over.is_set():
        os.kill(int(pids[1]), signal.SIGSTOP)
        pause.wait(0.7)  # it has been asked again meanwhile
        if seat.kept_by() == 1:
            pause.wait(2.0)
            over.set()
        os.kill(int(pids[1]), signal.SIGCONT)
        pause.wait(0.01)
stopper = threading.Thread(target=stop)
if rank == 0: stopper.start()
while not flag.item():
    dist.all_reduce(tensor)
    flag.fill_(over.is_set())
    dist.all_reduce(flag)
if rank == 0: stopper.join()
dist.destroy_process_group()
"""


def test_a_rank_that_stands_still_while_it_runs_the_switch_is_named(tmp_path):
    results = ranks.run(tmp_path, 2, STANDS_STILL, timeout=300)
    ranks.succeed(results)
    assert "rank 1 stands still while it runs the job's switch" in results[0].errors
