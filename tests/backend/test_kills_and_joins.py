"""Ranks are killed at any moment, and others come, again and again: no sum is ever wrong, and the group goes on."""

from __future__ import annotations

import os
import random
import signal

import pytest
import ranks
from ranks import ROOT
from waiting import until

pytestmark = pytest.mark.build
pytest.importorskip("torch", reason="the back end needs torch")

SIZE, PATIENCE = 4, 180.0  # ranks; seconds without progress that only a hang takes
RANK = ranks.PRELUDE + """
from ina.backend import grow, regroup
regroup.MAKING, grow.ACCEPT = 4.0, 2.0
store, name = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), is_master=False), os.environ["NAME"]
if int(name) < int(os.environ["WORLD_SIZE"]):
    dist.init_process_group("ina", store=store, rank=int(name), world_size=int(os.environ["WORLD_SIZE"]),
                            timeout=timedelta(seconds=60))
else:
    ina.backend.join_group(None, store, seconds=600)
sums = shrinks = grows = 0
just_came = int(name) >= int(os.environ["WORLD_SIZE"])
over, base = torch.zeros(1), torch.arange(3_000, dtype=torch.int32)
store.set(f"member/{name}", "")
while not over.item():
    try:
        before = dist.group.WORLD
        grows += not just_came and ina.backend.grow_group() is not before
        just_came = False
        size, rank = dist.get_world_size(), dist.get_rank()
        over.fill_(store.check(["over"]))
        dist.all_reduce(over)
        for k in range(4):
            mine = base * (rank + 1) + sums
            dist.all_reduce(mine)
            ours = torch.zeros(size, dtype=torch.int64)
            dist.all_gather_into_tensor(ours, torch.tensor([sums]))
            if not torch.equal(mine, base * (size * (size + 1) // 2) + int(ours.sum())):
                store.set("wrong", f"{name} of {size}: {mine[:4].tolist()}, counts {ours.tolist()}")
                raise SystemExit(5)
            sums += 1
        store.add("sums", 4)
        store.add(f"sums of {size}", 4)
    except RuntimeError as error:
        ina.backend.shrink_group(seconds=4)
        just_came = False
        shrinks += 1
say(sums=sums, shrinks=shrinks, grows=grows)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kills", [pytest.param(12, marks=pytest.mark.later), pytest.param(1000, marks=[
    pytest.mark.judge, pytest.mark.timeout(7200)])])
def test_kills_and_joins(tmp_path, kills):
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    chance, alive, results = random.Random(kills), {}, []

    def start() -> None:
        name = len(alive) + len(results)
        environment = dict(os.environ, PORT=str(store.port), NAME=str(name), WORLD_SIZE=str(SIZE), RANK=str(name),
                           PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        alive[name] = ranks._fork_server().start(RANK, environment, tmp_path)

    def end(name: int) -> None:
        process = alive.pop(name)
        out, err = process.communicate(PATIENCE)
        results.append((name, process.returncode, out, err))
        process.close()

    def members() -> list[int]:
        for name in [name for name, process in alive.items() if not ranks.alive(process.pid)]:
            end(name)  # the others went on without it
            start()
        return [name for name in alive if store.check([f"member/{name}"])]

    def progress(more: int = 0) -> None:
        before = store.add("sums", 0) + more
        until(lambda: members() and store.add("sums", 0) > before or store.check(["wrong"]), "sums", PATIENCE)
        assert not store.check(["wrong"]), store.get("wrong")

    try:
        for _ in range(SIZE):
            start()
        for _ in range(kills):
            progress(int(chance.expovariate(0.01)))
            there = members()
            name = chance.choice(there if len(there) > 2 else [name for name in alive if name not in there] or there[:1])
            if len(there) > 2 or name not in there:
                os.kill(alive[name].pid, signal.SIGKILL)
                end(name)
                start()
        before = {}

        def all_sum() -> bool:
            """Tells whether those who are alive are one group: a member may be one that the others have left out just now."""
            there, done = tuple(members()), store.add(f"sums of {SIZE}", 0)
            return len(there) == SIZE and done > before.setdefault(there, done) + 4 * SIZE  # others may just have counted

        until(lambda: all_sum() or store.check(["wrong"]), "all to be one group", PATIENCE)
        store.set("over", "")
        for name in [*alive]:
            end(name)
    finally:
        for process in alive.values():
            process.close()
    killed = [each for each in results if each[1] == -signal.SIGKILL]
    ended = [each for each in results if each[1] == 0]
    left_out = [each for each in results if each[1] not in (0, -signal.SIGKILL)]
    assert not store.check(["wrong"]) and len(ended) == SIZE, [each[3][-2000:] for each in left_out]
    print(f"{len(killed)} killed, {len(left_out)} left out, {store.add('sums', 0)} sums of all ranks")
    assert all("have gone on without" in err for *_, err in left_out), [each[3][-2000:] for each in left_out]
