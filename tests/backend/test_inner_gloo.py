"""Groups of Gloo that share event loops: as many as they are, each sums what its ranks give."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import child
import pytest
from capabilities import need
from waiting import LONG

need("torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from ina.backend import inner_gloo  # noqa: E402
from ina.backend.inner_gloo import LOOPS  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(inner_gloo, "_loops", {})
    yield


def loops() -> int:
    return sum(path.read_text() == "gloo_tcp_loop\n" for path in Path("/proc/self/task").glob("*/comm"))


def groups(count: int, ranks: int = 2) -> list[list[dist.ProcessGroupGloo]]:
    """Groups whose ranks are threads of this process, by rank."""
    stores = [dist.HashStore() for _ in range(count)]

    def of(rank: int) -> list[dist.ProcessGroupGloo]:
        return [inner_gloo.inner_gloo(store, rank, ranks, timedelta(seconds=LONG)) for store in stores]

    return on_ranks(of, ranks)


def on_ranks(do: Callable, ranks: int = 2) -> list:
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(do, range(ranks)))


def sums(made: list[list[dist.ProcessGroupGloo]]) -> list[list[list[float]]]:
    """The sums of a tensor in each group, all begun before any is waited for: rank r gives r + 10 g in group g."""

    def of(rank: int) -> list[list[float]]:
        tensors = [torch.full((1000,), float(rank + 10 * number)) for number in range(len(made[rank]))]
        works = [group.allreduce([tensor]) for group, tensor in zip(made[rank], tensors, strict=True)]
        for work in works:
            work.wait()
        return [tensor.unique().tolist() for tensor in tensors]

    return on_ranks(of)


@pytest.mark.fast
def test_many_groups_share_a_few_loops():
    before = loops()
    made = groups(7)
    assert loops() - before <= LOOPS  # both ranks are here
    assert sums(made) == 2 * [[[1.0 + 20 * number] for number in range(7)]]
    del made[0][:3], made[1][:3]  # the loops stay
    assert sums(made) == 2 * [[[1.0 + 20 * number] for number in range(4)]]


@pytest.mark.fast
def test_interfaces_have_their_own(monkeypatch):
    assert sums(groups(1)) == 2 * [[[1.0]]]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert sums(groups(2)) == 2 * [[[1.0], [21.0]]]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,nowhere")
    with pytest.raises(RuntimeError, match="nowhere"):
        groups(1)
    with pytest.raises(RuntimeError, match="nowhere"):
        groups(1)
    assert {interfaces: len(made) for (_, interfaces, _), made in inner_gloo._loops.items()} == {"": 2, "lo": 4, "lo,nowhere": 0}


FORKS = """
import os, threading
from test_inner_gloo import LONG, LOOPS, groups, sums
made = groups(LOOPS)
child = os.fork()
if not child:
    watch = threading.Timer(LONG, os._exit, (2,))  # a loop of its parent's would never answer
    watch.daemon = True
    watch.start()
    os._exit(sums(groups(1)) != 2 * [[[1.0]]])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sums(made)[0][0])
"""


@pytest.mark.build
def test_a_forked_process_makes_its_own():
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}"}
    done = child.run([sys.executable, "-c", FORKS], 3 * LONG, env=environment, cwd=here.parent.parent)
    assert done.stdout == "0 [1.0]\n", done.stderr
