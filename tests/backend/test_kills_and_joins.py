"""Ranks are killed at any moment, and others come, again and again: no sum is ever wrong, and the group goes on."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest
import ranks
import rounds
from fork_server import Forked
from ranks import ROOT
from waiting import until

pytestmark = pytest.mark.build
pytest.importorskip("torch", reason="the back end needs torch")

SIZE, PATIENCE = 4, 180.0  # ranks; seconds without progress that only a hang takes
START = ranks.PRELUDE + """
from ina.backend import grow, regroup
regroup.MAKING, grow.ACCEPT = 4.0, 2.0
store, name = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), is_master=False), os.environ["NAME"]
if int(name) < int(os.environ["WORLD_SIZE"]):
    dist.init_process_group("ina", store=store, rank=int(name), world_size=int(os.environ["WORLD_SIZE"]),
                            timeout=timedelta(seconds=float(os.environ["WAITS"])))
else:
    ina.backend.join_group(None, store, seconds=600)
sums = shrinks = grows = 0
just_came = int(name) >= int(os.environ["WORLD_SIZE"])
over = torch.zeros(1)
store.set(f"member/{name}", "")
"""
GO_ON = """
while not over.item():
    try:
        before = dist.group.WORLD
        grows += not just_came and ina.backend.grow_group() is not before
        just_came = False
        size, rank = dist.get_world_size(), dist.get_rank()
        over.fill_(store.check(["over"]))
        dist.all_reduce(over)
        turn()
        store.add("sums", 4)
        store.add(f"sums of {size}", 4)
    except RuntimeError as error:
        failed(error)
        ina.backend.shrink_group(seconds=4)
        just_came = False
        shrinks += 1
say(sums=sums, shrinks=shrinks, grows=grows)
dist.destroy_process_group()
"""
SUMS = START + """
base = torch.arange(3_000, dtype=torch.int32)
def failed(error):
    pass
def turn():
    global sums
    for k in range(4):
        mine = base * (rank + 1) + sums
        dist.all_reduce(mine)
        ours = torch.zeros(size, dtype=torch.int64)
        dist.all_gather_into_tensor(ours, torch.tensor([sums]))
        if not torch.equal(mine, base * (size * (size + 1) // 2) + int(ours.sum())):
            store.set("wrong", f"{name} of {size}: {mine[:4].tolist()}, counts {ours.tolist()}")
            raise SystemExit(5)
        sums += 1
""" + GO_ON


class Crowd:
    """SIZE ranks with a script; for each that has ended a new one comes. ``waits``: seconds of their groups' time-out."""

    def __init__(self, folder: Path, script: str, waits: float, **environment: str):
        import torch.distributed as dist

        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.alive: dict[int, Forked] = {}
        self.results: list[tuple[int, int, str, str]] = []  # name, status, output, errors
        self._folder, self._script = folder, script
        self._environment = dict(os.environ, PORT=str(self.store.port), WORLD_SIZE=str(SIZE), PYTHONPATH=str(ROOT),
                                 OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0", WAITS=str(waits), **environment)
        for _ in range(SIZE):
            self._start()

    def _start(self) -> None:
        name = len(self.alive) + len(self.results)
        environment = dict(self._environment, NAME=str(name), RANK=str(name))
        self.alive[name] = ranks._fork_server().start(self._script, environment, self._folder)

    def _end(self, name: int) -> None:
        process = self.alive.pop(name)
        out, err = process.communicate(PATIENCE)
        self.results.append((name, process.returncode, out, err))
        process.close()

    def members(self) -> list[int]:
        for name in [name for name, process in self.alive.items() if not ranks.alive(process.pid)]:
            self._end(name)  # the others went on without it
            self._start()
        return [name for name in self.alive if self.store.check([f"member/{name}"])]

    def count(self, key: str) -> int:
        return self.store.add(key, 0)

    def wait(self, condition, event: str) -> None:
        until(lambda: condition() or self.store.check(["wrong"]), event, PATIENCE)
        assert not self.store.check(["wrong"]), self.store.get("wrong")

    def progress(self, more: int = 0, key: str = "sums") -> None:
        before = self.count(key) + more
        self.wait(lambda: self.members() and self.count(key) > before, key)

    def be_several(self) -> None:
        """Waits until two ranks or more are a group again: a kill of the only one that is left would end it for ever."""

        def done() -> int:
            return sum(self.count(f"sums of {size}") for size in range(2, SIZE + 1))

        before = done() + 4 * SIZE  # others may just have counted
        self.wait(lambda: self.members() and done() > before, "a group of two or more")

    def kill(self, chance: random.Random) -> None:
        """Kills one; of two members none, but a process that is about to join, if there is one."""
        there = self.members()
        name = chance.choice(there if len(there) > 2 else [name for name in self.alive if name not in there] or there[:1])
        if len(there) > 2 or name not in there:
            os.kill(self.alive[name].pid, signal.SIGKILL)
            self._end(name)
            self._start()

    def finish(self) -> list[dict]:
        """Waits until all are one group, and ends it. Returns what those say that were in it."""
        before: dict[tuple[int, ...], int] = {}

        def all_sum() -> bool:
            """Tells whether those who are alive are one group: a member may be one that the others have left out just now."""
            there, done = tuple(self.members()), self.count(f"sums of {SIZE}")
            return len(there) == SIZE and done > before.setdefault(there, done) + 4 * SIZE  # others may just have counted

        self.wait(all_sum, "all to be one group")
        self.store.set("over", "")
        for name in [*self.alive]:
            self._end(name)
        killed = [each for each in self.results if each[1] == -signal.SIGKILL]
        ended = [each for each in self.results if each[1] == 0]
        left_out = [each for each in self.results if each[1] not in (0, -signal.SIGKILL)]
        assert not self.store.check(["wrong"]) and len(ended) == SIZE, [each[3][-2000:] for each in left_out]
        print(f"{len(killed)} killed, {len(left_out)} left out, {self.count('sums')} sums of all ranks")
        assert all("have gone on without" in err for *_, err in left_out), [each[3][-2000:] for each in left_out]
        return [json.loads(out.splitlines()[-1]) for _, _, out, _ in ended]

    def close(self) -> None:
        for process in self.alive.values():
            process.close()


@pytest.mark.parametrize("kills", [pytest.param(12, marks=pytest.mark.later), pytest.param(1000, marks=[
    pytest.mark.judge, pytest.mark.timeout(7200)])])
def test_kills_and_joins(tmp_path, kills):
    chance, crowd = random.Random(kills), Crowd(tmp_path, SUMS, waits=60)
    try:
        for number in range(kills):
            if number:
                crowd.be_several()
            crowd.progress(int(chance.expovariate(0.01)))
            crowd.kill(chance)
        crowd.finish()
    finally:
        crowd.close()


ROUNDS = START + f"sys.path.append({str(ROOT / 'tests')!r})\n" + """
import random
import rounds
from ina.backend.ready import Quorum
chance, session, rank = random.Random(int(name)), 0, 0
file = os.open(name + ".rounds", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(kind, **facts):
    os.write(file, (json.dumps(dict(facts, kind=kind, name=name, session=session, rank=rank)) + "\\n").encode())
def failed(error):
    note("failed", error=str(error))
def take(step, tensor, work):
    global sums
    work.wait()
    total = tensor * len(work.contributors)
    values = total.round()
    if not (values == values[0]).all() or (total - values).abs().max() > 0.01:
        store.set("wrong", f"{name} of {size}: round {step} of session {session}: {total}")
        raise SystemExit(5)
    note("has", round=step, contributors=work.contributors, values=[*map(int, values[0].tolist())])
    store.add("rounds", 1)
    store.add("partial", len(work.contributors) < size)
    store.add("late", int(values[0, :step].any()))
    sums += 1
def turn():
    global session
    number = torch.tensor([store.add("sessions", 1) if rank == 0 else 0])
    dist.broadcast(number, 0)
    if size == 1:
        return
    session = int(number)
    rule = rounds.rule(session, size)
    replicas = rule.get("replicas", [])
    quorum, late = Quorum(torch.zeros(400, rounds.ROUNDS), **rule), session % (2 if replicas else size)
    digit = next((place for place, group in enumerate(replicas) if rank in group), rank)
    note("session", size=size, rule=rule, run_by=ina.backend.stats()["run_by"])
    under_way = []
    for step in range(rounds.ROUNDS):
        if rank == late and step in (2, 5) and rule["complete"] != "dynamic":
            until = time.monotonic() + 1
            while not quorum.decided and time.monotonic() < until:
                time.sleep(0.002)
        elif chance.random() < 0.2:
            time.sleep(0.01 * chance.random())
        passes = rank != late and not replicas and (step == rounds.ROUNDS - 1 or step not in (2, 5) and chance.random() < 0.1)
        tensor = torch.zeros(400, rounds.ROUNDS)
        tensor[:, step] = 8.0**digit
        note("gives", round=step, digit=None if passes else digit)
        under_way.append((step, tensor, quorum.begin(None if passes else tensor, tensor)))
        while len(under_way) > (session % 2 and step < rounds.ROUNDS - 1):
            take(*under_way.pop(0))
    quorum.close()
""" + GO_ON


@pytest.mark.parametrize("run_by", ["ranks", "process", "atp"])
@pytest.mark.parametrize("kills", [
    pytest.param(10, marks=pytest.mark.later), pytest.param(300, marks=[pytest.mark.judge, pytest.mark.timeout(7200)])])
def test_kills_and_joins_in_rounds_that_need_not_wait_for_all(tmp_path, kills, run_by):
    check_rounds(tmp_path, kills, run_by)


@pytest.mark.gate
def test_a_kill_and_a_join_in_rounds_that_need_not_wait_for_all(tmp_path):
    check_rounds(tmp_path, 1, "ranks")


def check_rounds(folder: Path, kills: int, run_by: str) -> None:
    """Kills, and judges the rounds of all who were there. ``run_by``: a switch that the ranks run themselves decides them, one in
    a process of its own, or ATP's server. The groups' time-out is longer than the test's patience, so a dead rank that keeps
    others waiting until then fails the test."""
    chance = random.Random(kills)
    settings = {"INA_PROTOCOL": "atp"} if run_by == "atp" else {"INA_RUN_BY": run_by}
    crowd = Crowd(folder, ROUNDS, waits=3 * PATIENCE, **settings)
    try:
        for number in range(kills):
            if number:
                crowd.be_several()
            crowd.progress(int(chance.expovariate(0.02)), "rounds")  # in the middle of a session, mostly
            crowd.kill(chance)
        crowd.wait(lambda: crowd.members() and crowd.count("partial") and crowd.count("late"), "rounds without all ranks")
        crowd.finish()
    finally:
        crowd.close()
    assert sum(code == -signal.SIGKILL for _, code, _, _ in crowd.results) > kills // 2
    records = [json.loads(line) for path in folder.glob("*.rounds") for line in path.read_text().splitlines()]
    tally = rounds.judge(records)
    print(dict(tally))
    assert tally["partial"] and tally["late"] and {0, 1} <= {each["round"] for each in records if each["kind"] == "has"}
    for record in records:
        if record["kind"] == "session":
            others = record["run_by"]["process" if run_by == "ranks" else "ranks"]["jobs"]
            assert others == 0 < sum(by["jobs"] for by in record["run_by"].values()), record
