"""Every interleaving of small ATP jobs whose sums have routes, over the real compiled program, workers and parameter servers."""

import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from atp_network import JobSpec, Network
from capabilities import need
from plants.planting import Plant, planted

from ina.aggregation.worker import Route
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.worlds.virtual.explorable import ServerMachine, SwitchMachine, Tensor, WorkerMachine
from ina.worlds.virtual.explorer import Budget, Explorer, Report

pytestmark = pytest.mark.build
need("cc")
VALUES = 32
WAYS = ["reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all"]


class LosingSwitch(SwitchMachine):
    """A switch that may lose what its registers hold at any time; a timer stands for that."""

    timers = (0,)

    def __init__(self, name, switch):
        super().__init__(name, switch)
        self._new = self.save()[1]

    def expire(self, timer):
        self.restore(self._new)
        return []


def describe(frame: bytes) -> str:
    kinds = ("", "data", "floats", "result", "floats result", "pending", "maxima", "refused", "offer", "answer", "to",
             "to result")
    kind, short = frame[42] >> 4, " short" if frame[42] >> 4 > 9 and len(frame) == 78 else ""
    sets = f" for {frame[73]:b} of {frame[77]:b}" if kind > 9 else ""
    return f"{kinds[kind]}{short} {int.from_bytes(frame[49:54], 'big')} of {int.from_bytes(frame[54:58], 'big'):b}{sets}"


def work_of(name: str, workers: int, job: int) -> list[list[Tensor]]:
    """Returns each worker's tensors: one along a route, with two blocks at worker 0 and one at others, then one for all. "in a
    row": those that are scattered and gathered by turns, then one for all, then one that is gathered."""
    pieces = [VALUES + 1] + [VALUES] * (workers - 1)
    arrays = [np.arange(sum(pieces), dtype=np.int32) + 1000 * 4**rank + job for rank in range(workers)]
    total = np.sum(arrays, axis=0, dtype=np.int32)
    root, owner = 1, np.repeat(np.arange(workers), pieces)
    ways = {"reduce": Route.reduce(root), "reduce_scatter": Route.reduce_scatter(pieces), "broadcast": Route.broadcast(root),
            "all_gather": Route.all_gather(pieces), "gather": Route.gather(root, pieces), "scatter": Route.scatter(root, pieces)}
    work: list[list[Tensor]] = []
    for rank, own in enumerate(arrays):
        mine, zeros = owner == rank, np.zeros_like(own)
        if name == "in a row":
            scattered = Tensor(own, zeros if rank == root else np.where(mine, arrays[root], 0), route=ways["scatter"])
            gathered = Tensor(own, np.where(mine, 0, np.choose(owner, arrays)) if rank == root else zeros, route=ways["gather"])
            work.append([scattered, gathered, scattered, gathered, Tensor(own, total), gathered])
            continue
        if name == "all_to_all":
            sizes = [[VALUES * (1 + (source == 0)) for _ in range(workers)] for source in range(workers)]
            sent = sum(sizes[rank])
            source = np.arange(sent + sum(each[rank] for each in sizes), dtype=np.int32) + 10000 * (rank + 1)
            right, at = np.zeros_like(source), sent
            for other in range(workers):
                begin, count = sum(sizes[other][:rank]), sizes[other][rank]
                if other != rank:
                    right[at : at + count] = np.arange(begin, begin + count) + 10000 * (other + 1)
                at += count
            first = Tensor(source, right, route=Route.all_to_all(sizes, rank, VALUES))
        else:
            gathered = np.where(mine, 0, np.choose(owner, arrays))
            right = {"reduce": total if rank == root else zeros, "reduce_scatter": np.where(mine, total, 0),
                     "broadcast": zeros if rank == root else arrays[root], "all_gather": gathered,
                     "gather": gathered if rank == root else zeros,
                     "scatter": zeros if rank == root else np.where(mine, arrays[root], 0)}[name]
            first = Tensor(own, right.astype(np.int32), route=ways[name])
        work.append([first, Tensor(own, total)])
    return work


def walk(name: str, workers: int = 2, *, jobs: int = 1, leaves: int = 0, slots: int = 1, pool: int = 1, loses: bool = False,
         compiled: Program | None = None) -> Explorer:
    """Jobs alike at a switch, or at ``leaves`` below one. ``loses``: switches may lose their state."""
    options = {"rto_min": 1.0, "rto_max": 1.0, "timeout": 1e5, "check": "off", "first_packet": 1}
    network = Network([JobSpec(workers, slots, options=options)] * jobs, pool=pool, leaves=leaves, compiled=compiled, routes=True)
    machines = []
    for number, job in enumerate(network.jobs):
        machines.append(ServerMachine(f"server {number}", job.server))
        for rank, (worker, tensors) in enumerate(zip(job.workers, work_of(name, workers, number), strict=True)):
            machines.append(WorkerMachine(f"worker {number}.{rank}", worker, tensors))
    kind = LosingSwitch if loses else SwitchMachine
    machines += [kind(f"s{number}", switch) for number, switch in enumerate(network.switches)]
    wires = []
    for (switch, port), node in network.wires.items():
        if node[0] != "switch":
            far = f"server {node[1]}" if node[0] == "server" else f"worker {node[1]}.{node[2]}"
            wires.append(((f"s{switch}", port), (far, 0)))
        elif switch == 0:
            wires.append((("s0", port), (f"s{node[1]}", node[2])))
    return Explorer(machines, wires, describe)


def right(report: Report) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))


@pytest.mark.parametrize("name", WAYS)
def test_every_interleaving_of_two_workers(name):
    """Any one loss, duplicate and time-out, and many of each at random."""
    explorer = walk(name)
    report = explorer.explore(12, Budget(losses=1, duplicates=1, timeouts=1), max_states=5_000)
    right(report)
    assert report.states > 100
    for seed in range(10):
        right(explorer.wander(random.Random(seed), 200))


@pytest.mark.parametrize("name", ["gather", "scatter", "all_to_all", "in a row"])
def test_every_interleaving_of_three_workers_of_whom_two_have_a_block(name):
    """Nobody takes a row that others need: with two slots, every other packet is one that all send."""
    explorer = walk(name, 3, slots=2, pool=2)
    right(explorer.explore(9, Budget(losses=1, duplicates=1, timeouts=1), max_states=5_000))
    for seed in range(15):
        right(explorer.wander(random.Random(seed), 400))


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "gather", "all_to_all"])
@pytest.mark.parametrize("options", [{"jobs": 2}, {"workers": 3, "leaves": 2},
                                     {"workers": 3, "loses": True, "slots": 2, "pool": 2},
                                     {"workers": 4, "leaves": 2, "jobs": 2, "slots": 2, "pool": 2}],
                         ids=["two jobs", "tree", "loses", "two jobs in a tree"])
def test_random_ways_of_jobs_that_collide_in_trees_and_with_switches_that_lose_their_state(name, options):
    explorer = walk(name, **options)
    for seed in range(10):
        right(explorer.wander(random.Random(seed), 300))


SERVER, WORKER, SWITCH = "host/protocol/ps.c", "host/protocol/atp.c", "p4/include/atp_routes"
GATES = "    return (ina_route_is_gate(ts, handle, seq) && st->flying)"
DEFECTS = {  # what is changed, the walk, and what is seen of it
    "a sum is complete without some members": (
        Plant(SERVER, "row->bitmap == row->members\n", "(row->bitmap & row->receivers) || row->bitmap == row->members\n"),
        "reduce", {"workers": 3}, "sum|wrong"),
    "all workers are waited for": (
        Plant(SERVER, "row->bitmap == row->members\n", "row->bitmap == st->full\n"), "gather",
        {"workers": 3, "slots": 2, "pool": 2}, "does not finish"),
    "the first values are added to those of the phase before": (
        Plant(SERVER, "const int first = !row->brought,", "const int first = 0,"), "reduce", {"slots": 1}, "sum|wrong"),
    "values come behind a packet without, and are not stored": (
        Plant(SERVER, "const int first = !row->brought,", "const int first = !row->bitmap,"), "broadcast", {}, "sum|wrong"),
    "receivers get no values when they ask again": (
        Plant(SERVER, "row->brought && (workers & all)", "row->brought && (workers == st->full)"), "reduce", {},
        "does not finish"),
    "a worker does not wait for gates": (
        Plant(WORKER, GATES, f"    return 0 && {GATES.strip()[7:]}", protocol="atp_routes"), "gather",
        {"workers": 3, "slots": 2, "pool": 2}, "does not finish|sum|wrong"),
    "zeros are not put where there is nothing": (
        Plant(f"{SWITCH}/zeros.p4", "            brings = 0;", "            brings = 0;\n            hdr.values.v_00 = 1;"),
        "reduce_scatter", {}, "sum|wrong"),
    "a sum with values goes up without": (
        Plant(f"{SWITCH}/zeros.p4", "any = any | brings;", "any = brings;"), "broadcast", {}, "sum|wrong|does not finish"),
    "what others have brought does not count": (
        Plant(f"{SWITCH}/zeros.p4", "if (meta.load == 1 && any == 0)", "if (meta.load == 1 && brings == 0)"), "broadcast", {},
        "sum|wrong|does not finish"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_are_found(name):
    defect, way, options, violation = DEFECTS[name]
    with tempfile.TemporaryDirectory() as folder, planted(defect, Path(folder)) as p4:
        pool = options.get("pool", 1)
        built = compile_program(p4 / "atp_routes.p4", defines={"VALUES": str(VALUES), "SLOTS": str(pool)}, cflags=["-O1"])
        explorer = walk(way, **options, compiled=Program(built.so_path))
        report = explorer.explore(30, Budget(losses=1, duplicates=0, timeouts=1), 30_000)
        for seed in range(40 if report.violation is None else 0):
            report = explorer.wander(random.Random(seed), 400)
            if report.violation:
                break
    assert report.violation is not None and re.search(violation or ".", report.violation), report
