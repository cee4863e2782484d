"""The torch back end when something fails: each rank gets an error that names the cause, not a time-out's; and how jobs end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import child
import pytest
from ranks import ROOT, Rank, run, succeed
from waiting import until

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")


@pytest.fixture(params=["switchml", "atp"])
def protocol(request, monkeypatch):
    monkeypatch.setenv("INA_PROTOCOL", request.param)
    return request.param


def failures(results: list[Rank], ranks: list[int], text: str) -> None:
    """These ranks have raised an error with ``text``."""
    for rank in ranks:
        assert results[rank].code == 0, results[rank].errors
        assert text in results[rank].report["error"], results[rank].report


WAIT_FOR_FAILURE = """
try:
    for _ in range(100_000):
        dist.all_reduce(torch.ones(10_000))
except RuntimeError as error:
    say(error=str(error))
try: dist.all_reduce(torch.ones(1))
except RuntimeError as error: say(again=str(error))
"""


def test_a_killed_worker_is_an_error_in_ddp(tmp_path):
    """DistributedDataParallel waits for sums in C++, for a future; a hook of its own for another one."""
    results = run(tmp_path, 3, """
rank, n = start()
from torch.nn.parallel import DistributedDataParallel
from ina.backend.hooks import Choice, per_bucket
errors = []
for hook in (False, True):
    model = DistributedDataParallel(torch.nn.Linear(40, 30))
    if hook:
        model.register_comm_hook(lambda bucket: Choice(codec="lanes-16"), per_bucket)
    try:
        for step in range(100_000):
            if rank == 2 - hook and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(4, 40)).sum().backward()
    except RuntimeError as error:
        errors.append(str(error))
    rank = ina.backend.shrink_group() and dist.get_rank()
say(errors=errors, size=dist.get_world_size())
dist.destroy_process_group()
""")
    assert [rank.code for rank in results] == [0, -signal.SIGKILL, -signal.SIGKILL] and results[0].report["size"] == 1
    assert all("is lost: its connection closed" in error for error in results[0].report["errors"])
    assert len(results[0].report["errors"]) == 2


@pytest.mark.parametrize(("moment", "protocol"), [
    pytest.param("during", "switchml", marks=pytest.mark.gate), ("before", "switchml"), ("during", "atp"), ("before", "atp"),
], indirect=["protocol"])
def test_killed_worker(tmp_path, moment, protocol):
    """Rank 1 is killed: in the middle of all-reduces, or before its first one."""
    results = run(tmp_path, 3, f"""
        rank, n = start()
        if {moment == "during"}: dist.all_reduce(torch.ones(10))
        meet()
        if rank == 1:
            if {moment == "during"}:
                work = [dist.all_reduce(torch.ones(10_000), async_op=True) for _ in range(20)]
            say(pid=os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE, " " * 8).strip()}
    """)
    assert results[1].code == -signal.SIGKILL
    failures(results, [0, 2], f"(process {results[1].report['pid']}) is lost")
    failures(results, [0, 2], "worker 1 of job")
    assert results[0].report["again"] == results[0].report["error"]


def test_killed_starter(tmp_path, protocol):
    """Rank 0, which started the switch process, is killed: the others get an error, the switch ends with them."""
    results = run(tmp_path, 3, f"""
        rank, n = start()
        dist.all_reduce(torch.ones(10))
        meet()
        if rank == 0: os.kill(os.getpid(), signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE, " " * 8).strip()}
    """)
    failures(results, [1, 2], "worker 0 of job")


@pytest.mark.parametrize("protocol", [pytest.param("switchml", marks=pytest.mark.gate), "atp"], indirect=True)
def test_killed_switch(tmp_path, protocol):
    results = run(tmp_path, 2, f"""
        rank, n = start()
        dist.all_reduce(torch.ones(10))
        meet()
        pid = next(iter(rendezvous._pids.values()))
        if rank == 0: os.kill(pid, signal.SIGKILL)
        {textwrap.indent(WAIT_FOR_FAILURE, " " * 8).strip()}
        say(pid=pid)
        dist.destroy_process_group()
    """)
    failures(results, [0, 1], f"the switch process {results[0].report['pid']} ended")


def test_killed_parameter_server(tmp_path):
    """Its jobs fail, with the reason; a new group has a new server."""
    results = run(tmp_path, 2, f"""
        from ina.aggregation.controller.client import Client
        rank, n = start()
        dist.all_reduce(torch.ones(10))
        dist.barrier()
        client = Client(next(iter(rendezvous._pids)))
        pid = client.ping()["server"]
        client.close()
        if rank == 0: os.kill(pid, signal.SIGKILL)
        say(pid=pid)
        {textwrap.indent(WAIT_FOR_FAILURE, " " * 8).strip()}
        group = dist.new_group([0, 1])
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [2] * 10
        dist.destroy_process_group()
    """, INA_PROTOCOL="atp")
    failures(results, [0, 1], f"the parameter server (process {results[0].report['pid']}) is lost")


def test_groups_of_two_protocols(tmp_path):
    """Each has a switch of its own; ranks that name different protocols get an error."""
    results = run(tmp_path, 2, """
        rank, n = start()
        other = dist.new_group([0, 1], pg_options=ina.backend.Options(protocol="atp"))
        for group in (None, other):
            tensor = torch.ones(1000)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [2] * 1000
        say(protocols=sorted(rendezvous._protocols.values()))
        try: dist.new_group([0, 1], pg_options=ina.backend.Options(protocol="atp" if rank else "switchml"))
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """)
    for report in succeed(results):
        assert report["protocols"] == ["atp", "switchml"]
        assert "rank 0 has the protocol 'switchml', but rank 1 asks for 'atp'" in report["error"]


@pytest.mark.parametrize(("ours", "theirs"), [
    ("torch.ones(1000)", "torch.ones(1001)"), ("torch.ones(10)", "torch.ones(10, dtype=torch.int32)"),
    ("torch.ones(5)", "torch.empty(0)"), ("torch.ones(100_000)", "torch.ones(10)"),
    ("torch.ones(1, dtype=torch.int32)", "torch.empty(0, dtype=torch.int32)"),
    ("torch.ones(3, dtype=torch.int32)", "torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG"),
    ("torch.ones(3)", "torch.ones(3), op=dist.ReduceOp.AVG"),
])
def test_ranks_that_disagree(tmp_path, ours, theirs):
    disagree(tmp_path, ours, theirs)


SUMMED = [
    "all_reduce(bytes(1000 + rank))", "all_reduce(bytes(1001 - rank).to(torch.int8), op=dist.ReduceOp.AVG)",
    "all_reduce(bytes(2 + rank).to(torch.int16))", "all_reduce(bytes(1000 + 8 * rank).to(torch.bool))",
    "broadcast(bytes(1001 + rank), 0)", "broadcast(bytes(7 + rank).to(torch.float16), 0)",
    "all_gather_into_tensor(bytes(2 * (5 + rank)), bytes(5 + rank))", "all_gather([bytes(5 + rank)] * 2, bytes(5 + rank))",
    # Each rank's list fits its own tensor, and both lists are eight elements long.
    "all_gather([torch.zeros(size) for size in (3, 5)[:: 1 - 2 * rank]], torch.ones(3))",
    "reduce_scatter(torch.zeros(3), [torch.ones(size) for size in (3, 5)[:: 1 - 2 * rank]])",
]
MOVED = [  # by a program that sums from and to some ranks only
    "all_to_all_single(bytes(2 * (5 + rank)), bytes(2 * (5 + rank)))",
    "all_to_all_single(torch.ones(4 + 2 * rank), torch.ones(4 + 2 * rank))",
    "gather(bytes(5 + rank), [bytes(5) for _ in range(2)] if rank == 0 else None, 0)",
    "scatter(bytes(5 + rank), [bytes(5) for _ in range(2)] if rank == 0 else None, 0)",
]


@pytest.mark.parametrize(("protocol", "call"), [
    *(("switchml", call) for call in SUMMED), ("atp", SUMMED[0]), *(("receivers", call) for call in (*SUMMED[-4:], *MOVED)),
])
def test_ranks_whose_tensors_fill_as_many_words_or_as_much_together_disagree(tmp_path, protocol, call):
    results = run(tmp_path, 2, f"""
        rank, n = start()
        def bytes(count): return torch.ones(count, dtype=torch.uint8)
        try: dist.{call}
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """, INA_PROTOCOL=protocol)
    failures(results, [0, 1], "the ranks do not agree on this collective")


def test_pieces_of_an_exchange_are_compared_by_elements(tmp_path):
    """Five bytes and six take two words. All ranks hear of it, and the group goes on."""
    results = run(tmp_path, 2, """
        rank, n = start()
        def pieces(*sizes): return [torch.ones(size, dtype=torch.uint8) for size in sizes]
        try: dist.all_to_all(pieces(5, 6), pieces(5, 5 + rank))
        except ValueError as error: say(error=str(error))
        tensor = torch.ones(3); dist.all_reduce(tensor)
        say(after=tensor.tolist())
        dist.destroy_process_group()
    """, INA_PROTOCOL="receivers")
    for each in succeed(results):
        assert each["error"] == "ina: alltoall: rank 0 expects 6 elements of rank 1, which sends 5" and each["after"] == [2.0] * 3



def test_ranks_that_disagree_before_a_parameter_server(tmp_path):
    disagree(tmp_path, "torch.ones(100_000)", "torch.ones(10)", INA_PROTOCOL="atp")


def disagree(tmp_path, ours, theirs, **env):
    results = run(tmp_path, 2, f"""
        rank, n = start()
        try: dist.all_reduce({ours}) if rank == 0 else dist.all_reduce({theirs})
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """, **env)
    failures(results, [0, 1], "the ranks do not agree on this collective")
    failures(results, [0, 1], "rank 0 is in allreduce")
    failures(results, [0, 1], "rank 1 is in allreduce")


def test_a_call_after_one_that_failed_in_the_background_says_what_the_ranks_were_in(tmp_path):
    results = run(tmp_path, 2, """
        rank, n = start()
        first = dist.all_reduce(torch.ones(5 + rank), async_op=True)
        deadline = time.monotonic() + 60
        while not first.is_completed() and time.monotonic() < deadline: pass
        try: dist.all_reduce(torch.ones(3))
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """)
    for rank in (0, 1):
        failures(results, [0, 1], f"rank {rank} is in allreduce SUM of float32, {5 + rank} words (through the switch)")


@pytest.mark.parametrize(("ours", "theirs", "words"), [
    ("dist.all_reduce(torch.ones(3))", "dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT)",
     ["rank 0 is in allreduce SUM of float32, 3 words (through the switch)",
      "rank 1 is in allreduce (operation PRODUCT) (through Gloo)"]),
    ("dist.all_to_all_single(torch.ones(2), torch.ones(2))", "dist.barrier()",
     ["have others) (through Gloo); rank 1 is in barrier", "rank 0 is in all"]),
])
def test_ranks_that_wait_in_different_ways_find_out_soon(tmp_path, ours, theirs, words):
    """One rank waits through the switch, one through Gloo: neither can learn of the other by itself."""
    results = run(tmp_path, 2, f"""
        rank, n = start()
        dist.all_reduce(torch.ones(3)); meet()
        try: {ours} if rank == 0 else {theirs}
        except RuntimeError as error: say(error=str(error))
        try: dist.all_reduce(torch.ones(3))
        except RuntimeError as error: say(again=str(error))
    """)
    for text in (*words, "the ranks do not agree on the group's collective #2"):
        failures(results, [0, 1], text)
    assert all(text in rank.report["again"] for rank in results for text in words)


def test_a_rank_that_is_only_late_is_waited_for(tmp_path):
    """It is later than the roll call takes, and the others wait through the switch or Gloo."""
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        from ina.backend import roll_call
        roll_call.PATIENCE = 0.1
        ways = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT)
        for op in ways:
            if rank == 0: time.sleep(1)
            tensor = torch.full((3,), 2.0); dist.all_reduce(tensor, op=op); assert (tensor == 4).all()
        works = [dist.all_reduce(torch.ones(3), op=op, async_op=True) for op in ways]
        if rank == 0: time.sleep(1)
        for work in works if rank else works[::-1]: work.wait()
        say(well=True)
        dist.destroy_process_group()
    """)):
        assert report["well"]


HANDLER = """
import threading
rank, n = start()
dist.all_reduce(torch.ones(3)); meet()
store = dist.distributed_c10d._get_default_store()
def waits():  # the main thread, within a collective
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != "look": frame = frame.f_back
    return frame is not None
def interrupt():
    while not waits(): time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)
def handler(*_):
    say(handling=waits())
    {handler}
signal.signal(signal.SIGUSR1, handler)
if rank == 0:
    threading.Thread(target=interrupt, daemon=True).start()
    try: {collective}
    except RuntimeError as error: say(error=str(error))
    store.set("handled", "")
else:
    store.wait(["handled"], timedelta(seconds=120))
"""


@pytest.mark.parametrize("collective", ["dist.all_reduce(torch.ones(1000))",
                                        "dist.all_reduce(torch.ones(9, dtype=torch.float64))",
                                        "dist.all_reduce(torch.ones(9), op=dist.ReduceOp.PRODUCT)"])
def test_a_collective_in_a_signal_handler_within_another_fails_at_once(tmp_path, collective):
    results = run(tmp_path, 2, HANDLER.format(handler="dist.broadcast(torch.ones(1), 0)", collective=collective))
    assert results[0].report["handling"]
    failures(results, [0], "broadcast was begun by a signal handler while this thread is in allreduce")


def test_a_group_can_be_destroyed_by_a_signal_handler_within_a_collective(tmp_path):
    handler, collective = "dist.destroy_process_group()", "dist.all_reduce(torch.ones(9))"
    results = run(tmp_path, 2, HANDLER.format(handler=handler, collective=collective))
    assert results[0].report["handling"]
    failures(results, [0], "was destroyed with")


def test_a_signal_handler_between_collectives_may_have_its_own(tmp_path):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        signal.signal(signal.SIGUSR1, lambda *_: dist.broadcast(tensor, 0))
        tensor = torch.full((3,), rank + 1.0); os.kill(os.getpid(), signal.SIGUSR1)
        say(tensor=tensor.tolist())
        dist.destroy_process_group()
    """)):
        assert report["tensor"] == [1.0] * 3


def test_time_out_names_who_is_missing(tmp_path, protocol):
    """It may name the other rank, too, if that is later than the time-out."""
    results = run(tmp_path, 3, """
        rank, n = start()
        store = dist.distributed_c10d._get_default_store()
        group = dist.new_group()
        group.set_timeout(timedelta(seconds=4))
        if rank != 1:
            try: dist.all_reduce(torch.ones(10), group=group)
            except RuntimeError as error: say(error=str(error))
            store.set(f"failed/{rank}", "")
        store.wait(["failed/0", "failed/2"], timedelta(seconds=120))
    """)
    failures(results, [0, 2], "Timed out after 4 s")
    for rank in (0, 2):
        assert re.search(r"the switch still waits for worker (0, )?1(, 2)?: late, stuck or dead", results[rank].report["error"])


def test_rank_that_left(tmp_path, protocol):
    """A rank that destroys its group lets the others finish, but not wait for ever."""
    results = run(tmp_path, 2, """
        rank, n = start()
        import ina.backend.job
        ina.backend.job.LEFT_GRACE = 0.5
        dist.all_reduce(torch.ones(10)); meet()
        if rank == 1: dist.destroy_process_group(); sys.exit()
        try: dist.all_reduce(torch.ones(10))
        except RuntimeError as error: say(error=str(error))
    """)
    failures(results, [0], "rank 1 has left group")


def test_switch_that_cannot_start(tmp_path):
    program = tmp_path / "broken.p4"
    program.write_text("control C() { apply { x = ; } }\n")
    results = run(tmp_path, 2, """
        rank, n = start()
        try: dist.all_reduce(torch.ones(3))
        except RuntimeError as error: say(error=str(error))
        dist.destroy_process_group()
    """, INA_PROGRAM=str(program))
    failures(results, [0, 1], "broken.p4")


def test_refused_job_goes_to_gloo_on_all_ranks(tmp_path):
    reports = succeed(run(tmp_path, 2, """
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
    for each in reports:
        assert each["stats"]["reasons"] == {"allreduce: refused by the switch": 1}
        assert each["stats"]["switch"]["calls"] == 1


@pytest.mark.parametrize("ending", ["exception", "interrupt", "no destroy", "exit"])
def test_ends_of_a_job(tmp_path, ending, protocol):
    """The ranks end in any way; ``run`` finds no process, socket or memory afterwards."""
    results = run(tmp_path, 2, f"""
        rank, n = start()
        work = [dist.all_reduce(torch.ones(10_000), async_op=True) for _ in range(10)]
        if {ending == "exception"}: raise ValueError("on purpose")
        for each in work: each.wait()
        if {ending == "interrupt"}: os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
        if {ending == "exit"}: os._exit(3)
    """)
    expected = {"exception": 1, "interrupt": -signal.SIGINT, "no destroy": 0, "exit": 3}[ending]
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
    result = child.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)],
                       child.TRAINING, env=dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("good") == 2


@pytest.mark.parametrize("wrapped", [False, True], ids=["ranks", "ranks in a shell"])
def test_killed_torchrun(tmp_path, wrapped):
    """Neither ranks nor the switch process of a job outlive its launcher, which could end nothing itself."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent("""
        import os, sys, time
        import torch, torch.distributed as dist
        import ina.backend; ina.backend.register()
        from ina.backend import rendezvous
        dist.init_process_group("ina")
        rank = dist.get_rank()
        dist.all_reduce(torch.ones(1000))
        with open(f"{sys.argv[1]}/{rank}.partial", "w") as file:
            file.write(f"{os.getpid()} {next(iter(rendezvous._pids.values()))}")
        os.rename(file.name, f"{sys.argv[1]}/{rank}")
        while True:
            dist.all_reduce(torch.ones(1000))
            time.sleep(0.01)
    """))
    (tmp_path / "said").mkdir()
    rank = ["--no-python", "sh", "-c", f"{sys.executable} {script} {tmp_path}/said; true"] if wrapped else [
        str(script), f"{tmp_path}/said"]
    torchrun = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *rank],
                                env=dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    pids: set[int] = set()
    try:
        until(lambda: {"0", "1"} <= {path.name for path in (tmp_path / "said").iterdir()}, "two ranks to be at work")
        pids = {int(word) for path in (tmp_path / "said").iterdir() for word in path.read_text().split()}
        assert len(pids) == 3 and all(_runs(pid) for pid in pids)
        torchrun.kill()
        torchrun.wait()
        until(lambda: not any(map(_runs, pids)), "ranks and switch process to end")
    finally:
        torchrun.kill()
        torchrun.wait()
        for pid in filter(_runs, pids):
            os.kill(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
