"""Real ranks of the torch back end: processes that run a script, their output, and a check that nothing of them is left."""

from __future__ import annotations

import functools
import json
import os
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import tiers
from fork_server import ForkServer
from waiting import until

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = """
import json, os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import ina.backend
ina.backend.register()
from ina.backend import roll_call
torch.set_num_threads(1)
roll_call.TELLING = 100.0  # seconds: until then, what a rank says does not depend on how late another one is
def say(**facts): print(json.dumps(facts), flush=True)
def start(seconds=120, backend="ina"):
    dist.init_process_group(backend, init_method=os.environ["INIT"], rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]), timeout=timedelta(seconds=seconds))
    if backend == "ina":
        global rendezvous
        from ina.backend import rendezvous
        say(switch=list(rendezvous._pids.items()))
    return dist.get_rank(), dist.get_world_size()
def meet():  # through Gloo, so that it ends well when the switch ends right after
    n = dist.get_world_size(); dist.all_to_all_single(torch.zeros(n), torch.zeros(n))
"""
# For scripts whose default group changes: each rank's values are multiples of its number, so sums say who is in them.
EXACT_SUMS = """
def sums(count=3):
    ours = dist.get_rank()
    for k in range(count):
        mine = torch.arange(50_000) * (ours + 1) + k
        dist.all_reduce(mine)
        everybody = range(1, dist.get_world_size() + 1)
        assert torch.equal(mine, torch.arange(50_000) * sum(everybody) + k * len(everybody)), k
"""


@dataclass
class Rank:
    code: int
    report: dict
    errors: str


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def processes_with(variable: str) -> list[int]:
    """Pids of the processes with this variable in their environment, indirect children included."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
        except OSError:  # it ended, or belongs to another user
            continue
    return pids


def shared_memory() -> set[str]:
    """Names of shared memory segments, without semaphores, which other processes of the machine may create at any time."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if not name.startswith("sem.")}


def mapped(name: str) -> bool:
    """True if some process has a shared memory segment mapped, so that it is none that a process has left behind."""
    for path in Path("/proc").glob("[0-9]*/maps"):
        try:
            if f"/dev/shm/{name}\n".encode() in path.read_bytes():
                return True
        except OSError:  # it ended, or belongs to another user
            continue
    return False


@functools.cache
def _fork_server() -> ForkServer:
    return ForkServer()


def run(tmp_path: Path, ranks: int, body: str, timeout: float = 300, **env: str) -> list[Rank]:
    """Runs ``body`` in ``ranks`` processes; asserts that no switch process, socket or shared memory of theirs is left.

    TookTooLong: they have not ended in ``timeout`` seconds.
    """
    tiers.several_processes("runs ranks")
    before = shared_memory()
    files = set(tmp_path.iterdir())
    rendezvous = tmp_path / f"store{time.monotonic_ns()}"
    script = PRELUDE + textwrap.dedent(body)
    common = dict(os.environ, WORLD_SIZE=str(ranks), INIT=f"file://{rendezvous}", PYTHONPATH=str(ROOT),
                  OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0", **{"INA_CODEC": "block"} | env)
    processes = [_fork_server().start(script, dict(common, RANK=str(rank)), tmp_path) for rank in range(ranks)]
    results = []
    try:
        deadline = time.monotonic() + timeout
        for process in processes:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            values: dict = {}
            for line in out.splitlines():
                values.update(json.loads(line))
            assert process.returncode is not None
            results.append(Rank(process.returncode, values, err))
    finally:
        for process in processes:
            process.close()
    until(lambda: not processes_with(f"INIT={common['INIT']}"), "the end of all processes that the ranks started")
    for name, pid in {tuple(switch) for rank in results for switch in rank.report.get("switch", [])}:
        until(lambda pid=pid: not alive(pid), f"the end of switch process {pid}")
        until(lambda name=name: name.encode() not in Path("/proc/net/unix").read_bytes(), f"the end of socket {name}")
    until(lambda: all(map(mapped, shared_memory() - before)), "the end of the ranks' shared memory, which no process has mapped")
    assert set(tmp_path.iterdir()) - files <= {rendezvous}
    return results


def succeed(results: list[Rank]) -> list[dict]:
    for number, rank in enumerate(results):
        assert rank.code == 0, f"rank {number} ended with {rank.code}:\n{rank.errors}"
    return [rank.report for rank in results]
