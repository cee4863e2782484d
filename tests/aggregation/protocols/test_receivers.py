"""Sums along routes (host/protocol/route.h) with p4/receivers.p4 and its twin for Tofino: right on any way, and only the
values that someone needs on links."""

from __future__ import annotations

import ctypes
import mmap
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from plants.planting import Plant, planted

from ina.aggregation import protocols
from ina.aggregation.wire import layout
from ina.aggregation.worker import JobMismatch, Route, Worker, WorkerConfig
from ina.aggregation.worker.route import PIECE
from ina.base import paths
from ina.base.native import ffi, lib
from ina.net.ports import PS, Faults
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.explorable import Tensor, job
from ina.worlds.virtual.explorer import Budget
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
need("cc")
VALUES, SLOTS = 32, 8
SOURCES = ["receivers.p4", "tofino/receivers.p4"]
STAR, TREE = load("star", hosts=3), load("leaf-spine", leaves=2, spines=1, hosts=2)
PAIR, LEAVES = load("star", hosts=2), load("leaf-spine", leaves=2, spines=1, hosts=1)
FAULTS = {"clean": Faults(seed=1), "very lossy": Faults(loss=0.1, duplicate=0.2, reorder=0.2, duplicate_delay=100e-6, seed=2)}
HEAD = layout.load(VALUES).size(layout.HEAD) + 24  # of a packet on a link, with Ethernet's overhead
RECEIVERS = HEAD + 8  # of one with receivers


def compiled(source: str, slots: int, folder: Path | None = None) -> Program:
    built = compile_program((folder or paths.p4_dir()) / source, defines={"VALUES": str(VALUES), "SLOTS": str(slots)})
    return Program(built.so_path)


@pytest.fixture(scope="module", params=SOURCES, ids=["v1model", "tna"])
def program(request):
    return compiled(request.param, 16)


def routes(pieces: list[int], root: int) -> dict[str, Route]:
    return {"reduce": Route.reduce(root), "reduce_scatter": Route.reduce_scatter(pieces), "broadcast": Route.broadcast(root),
            "all_gather": Route.all_gather(pieces), "gather": Route.gather(root, pieces), "scatter": Route.scatter(root, pieces)}


def expected(name: str, arrays: list[np.ndarray], pieces: list[int], root: int,
             before: list[np.ndarray] | None = None) -> list[np.ndarray]:
    """Returns what each worker has then, where it gets nothing that of ``before`` (default: its own)."""
    owner, results = np.repeat(np.arange(len(pieces)), pieces), [array.copy() for array in before or arrays]
    with np.errstate(over="ignore"):
        total = np.sum(arrays, axis=0, dtype=arrays[0].dtype)
    gathered = np.choose(owner, arrays) if owner.size else arrays[0]
    for rank, result in enumerate(results):
        mine = owner == rank
        if name == "reduce" and rank == root:
            result[:] = total
        elif name == "reduce_scatter":
            result[mine] = total[mine]
        elif name == "broadcast" and rank != root:
            result[:] = arrays[root]
        elif name == "all_gather" or (name == "gather" and rank == root):
            result[~mine] = gathered[~mine]
        elif name == "scatter" and rank != root:
            result[mine] = arrays[root][mine]
    return results


def exchanged(sizes: list[list[int]], rank: int, rest=None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the array of a worker of an all-to-all, before and after: pieces to all, then pieces from all. ``rest``: makes what
    it has afterwards where it gets nothing; None: that of before."""
    def piece(source: int, target: int) -> np.ndarray:
        return np.arange(sizes[source][target], dtype=np.int32) + 1000000 * source + 10000 * target

    own = [piece(rank, target) for target in range(len(sizes))]
    got = [piece(source, rank) for source in range(len(sizes))]
    before = np.concatenate([*own, *(np.full(each.size, -1, np.int32) for each in got)])
    after = before.copy() if rest is None else rest(before.size, np.int32)
    at = sum(each.size for each in own)
    for source, each in enumerate(got):
        if source != rank:
            after[at : at + each.size] = each
        at += each.size
    return before, after


@pytest.mark.parametrize("check", ["off", "sum"])
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_all_kinds_are_right_whatever_happens_on_the_way(program, topology, faults, check):
    """Pieces of all sizes, kinds in turn with sums for all: each leaves rows that the next one takes."""
    hosts = [host.name for host in topology.hosts]
    n, rng = len(hosts), np.random.default_rng(3)
    with Fabric(program, topology, pool=16, faults=faults, seed=5, protocol="receivers") as fabric:
        admitted = fabric.admit(hosts, SLOTS, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0, check=check)
        for turn, largest in enumerate([3, 100, 2000]):
            pieces = [int(size) * (rng.random() < 0.8) for size in rng.integers(1, largest, n)]
            root = turn % n
            for name, route in routes(pieces, root).items():
                for dtype in (np.int32, np.float32) if not route.one_source else (np.int32,):
                    unit = 8 if dtype is np.float32 else 1
                    arrays = [(rng.integers(-1000, 1000, sum(pieces)) / unit).astype(dtype) for _ in hosts]
                    right = expected(name, arrays, pieces, root)
                    fabric.all_reduce(admitted, arrays, route=route).raise_failed()
                    for rank, (array, each) in enumerate(zip(arrays, right, strict=True)):
                        np.testing.assert_array_equal(array, each, err_msg=f"{name} {dtype.__name__} {pieces} at {rank}")
            sizes = (rng.integers(0, largest, (n, n)) * (rng.random((n, n)) < 0.8)).tolist()
            moved, chunk = [exchanged(sizes, rank) for rank in range(n)], int(rng.integers(1, 3)) * VALUES
            for rank, (array, _) in enumerate(moved):
                fabric.submit_one(admitted, rank, array, route=Route.all_to_all(sizes, rank, chunk))
            fabric.run()
            assert all(each.event.error() is None for each in fabric.completions())
            assert all(np.array_equal(array, right) for array, right in moved), sizes
            fabric.all_reduce(admitted, [np.zeros(0, np.int32) for _ in hosts], route=Route.barrier()).raise_failed()
            arrays = [np.arange(500, dtype=np.int32) * (rank + 1) for rank in range(n)]
            fabric.all_reduce(admitted, arrays).raise_failed()
            assert all(np.array_equal(array, np.arange(500) * sum(range(1, n + 1))) for array in arrays)


@pytest.mark.parametrize("slots", [1, 2, SLOTS])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_tensors_that_nobody_waits_for_follow_each_other(program, faults, slots):
    """All kinds, and sums for all, in any order: of most blocks some workers alone are members, and rows go from tensor to
    tensor."""
    rng = np.random.default_rng(slots)
    with Fabric(program, STAR, pool=16, faults=faults, seed=7, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in STAR.hosts], slots, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for _ in range(3):
            results = [result for _ in range(24) for result in submit_one_of_any_kind(fabric, admitted, rng)]
            fabric.run()
            assert all(each.event.error() is None for each in fabric.completions())
            for number, (name, array, right) in enumerate(results):
                np.testing.assert_array_equal(array, right, err_msg=f"{name}, result {number}")


def submit_one_of_any_kind(fabric: Fabric, admitted, rng: np.random.Generator) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Submits a tensor at all workers; returns its name, and for each worker the array and what it must be."""
    n = len(admitted.machines)
    pieces, root = (rng.integers(0, 4 * VALUES, n) * (rng.random(n) < 0.8)).tolist(), int(rng.integers(n))
    name = str(rng.choice([*UP, "all_to_all", "sum", "gather", "scatter"]))
    if name == "all_to_all":
        sizes = (rng.integers(0, 3 * VALUES, (n, n)) * (rng.random((n, n)) < 0.8)).tolist()
        moved = [exchanged(sizes, rank) for rank in range(n)]
        for rank, (array, _) in enumerate(moved):
            fabric.submit_one(admitted, rank, array, route=Route.all_to_all(sizes, rank, VALUES))
        return [(name, *each) for each in moved]
    arrays = [rng.integers(-1000, 1000, sum(pieces), np.int32) for _ in range(n)]
    right = [np.sum(arrays, axis=0, dtype=np.int32)] * n if name == "sum" else expected(name, arrays, pieces, root)
    fabric.submit_all(admitted, arrays, route=None if name == "sum" else routes(pieces, root)[name])
    return [(name, *each) for each in zip(arrays, right, strict=True)]


def test_tensors_that_follow_each_other_do_not_wait_for_answers_between():
    """Ten scatters of a packet for each of three, on wires of 1 ms: all are over after the time of one, whichever rows they take:
    those of the job's first two windows, and those after a window of sums for all."""
    with Fabric(compiled("receivers.p4", 64), load("star", hosts=3, delay=1e-3), pool=64, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in STAR.hosts], 64, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        for before in (0, 3 * 64):
            if before:
                fabric.all_reduce(admitted, [np.ones(before * VALUES, np.int32)] * 3).raise_failed()
            arrays, began = [np.arange(3 * VALUES, dtype=np.int32) for _ in range(3)], fabric.now
            for _ in range(10):
                fabric.submit_all(admitted, arrays, route=Route.scatter(0, [VALUES] * 3))
            fabric.run()
            assert all(each.event.error() is None for each in fabric.completions())
            round_trips = (fabric.now - began) / (4e-3 * PS)
            assert round_trips < (2.1 if before else 1.1), "the first of a row of them waits, if rows may be in use"


# ---- bytes

UP = {"reduce": lambda n, root: n * (1 - root), "reduce_scatter": lambda n, root: n - 1, "broadcast": lambda n, root: n * root,
      "all_gather": lambda n, root: 1, "gather": lambda n, root: 1 - root, "scatter": lambda n, root: (n - 1) * root}
DOWN = {"reduce": lambda n, root: n * root, "reduce_scatter": lambda n, root: 1, "broadcast": lambda n, root: n * (1 - root),
        "all_gather": lambda n, root: n - 1, "gather": lambda n, root: (n - 1) * root,
        "scatter": lambda n, root: 1 - root}


def payload(fabric: Fabric, plain: int = 0) -> dict[str, int]:
    """Bytes of values by direction of a link, with ``plain`` packets on each that have no receivers."""
    return {traffic.name: traffic.bytes - RECEIVERS * traffic.packets + 8 * plain for traffic in fabric.links()}


def check_packets(fabric: Fabric, blocks: list[set[int]], workers: int, plain: int = 0) -> None:
    """Packets of every link: of blocks of which its worker is a member, and of gates, each once up and once down."""
    for worker in range(workers):
        own = sum(worker in members or number % SLOTS == SLOTS - 1 for number, members in enumerate(blocks, 1))
        for name in (f"h{worker + 1}>s1", f"s1>h{worker + 1}"):
            assert {each.packets for each in fabric.links() if each.name == name} == {1 + own + plain}, name


@pytest.mark.parametrize("name", UP)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_links_carry_exactly_the_values_of_those_who_have_some_to_those_who_need_them(program, n, name):
    """Bytes of a tensor of n pieces of 10 packets, up and down a worker's link in pieces; headers of all its packets are counted
    apart."""
    topology, pieces, root = load("star", hosts=n), [10 * VALUES] * n, n - 1
    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        arrays = [np.full(sum(pieces), rank, np.int32) for rank in range(n)]
        fabric.all_reduce(admitted, arrays, route=routes(pieces, root)[name]).raise_failed()
        carried, everybody, some = payload(fabric), set(range(n)), [{rank, root} for rank in range(n - 1) for _ in range(10)]
        check_packets(fabric, some if name in ("gather", "scatter") else [everybody] * 10 * n, n)
        for rank in range(n):
            assert carried[f"h{rank + 1}>s1"] == UP[name](n, rank == root) * 4 * 10 * VALUES, rank
            assert carried[f"s1>h{rank + 1}"] == DOWN[name](n, rank == root) * 4 * 10 * VALUES, rank


@pytest.mark.parametrize("n", [2, 3, 8])
def test_an_all_to_all_moves_its_own_values_and_a_packet_for_each(program, n):
    """Uneven pieces, of whole packets. For each packet with values on a link, one without goes the other way."""
    topology, rng = load("star", hosts=n), np.random.default_rng(n)
    sizes = (VALUES * rng.integers(0, 9, (n, n))).tolist()
    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        moved = [exchanged(sizes, rank) for rank in range(n)]
        tables = [Route.all_to_all(sizes, rank, 2 * VALUES) for rank in range(n)]
        for rank, (array, _) in enumerate(moved):
            fabric.submit_one(admitted, rank, array, route=tables[rank])
        fabric.run()
        assert all(np.array_equal(array, right) for array, right in moved)
        carried, blocks = payload(fabric), []
        for count, sources, receivers in tables[0].table(0, n, VALUES)[["count", "sources", "receivers"]].tolist():
            blocks += [{sources.bit_length() - 1, receivers.bit_length() - 1}] * (count // VALUES)
        check_packets(fabric, blocks, n)
        for rank in range(n):
            assert carried[f"h{rank + 1}>s1"] == 4 * (sum(sizes[rank]) - sizes[rank][rank])
            assert carried[f"s1>h{rank + 1}"] == 4 * sum(sizes[source][rank] for source in range(n) if source != rank)


def test_values_of_a_token_go_up_once_and_down_to_each_of_its_receivers(program):
    """Any sets for each piece, in a tree: sums of the sources go to the receivers, wherever each has its own."""
    n, rng, tokens = 4, np.random.default_rng(5), 60
    table = np.zeros(tokens, PIECE)
    table["count"] = VALUES * rng.integers(1, 3, tokens)
    table["sources"], table["receivers"] = rng.integers(0, 16, tokens), rng.integers(0, 16, tokens)
    with Fabric(program, TREE, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in TREE.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        arrays, tables, pieces, up, down = [], [], [], [0] * n, [0] * n
        for rank in range(n):
            own = table.copy()
            order = rng.permutation(tokens)
            own["at"][order] = np.cumsum(own["count"][order]) - own["count"][order]
            arrays.append(rng.integers(-99, 99, own["count"].sum()).astype(np.int32))
            tables.append(own)
            pieces.append([arrays[rank][at : at + count].copy() for count, at in own[["count", "at"]].tolist()])
        for rank in range(n):
            fabric.submit_one(admitted, rank, arrays[rank], route=Route.of(tables[rank]))
        fabric.run()
        assert all(each.event.error() is None for each in fabric.completions())
        for token, (count, sources, receivers) in enumerate(table[["count", "sources", "receivers"]].tolist()):
            others = receivers & ~sources if sources.bit_count() == 1 else receivers
            total = sum((pieces[rank][token] for rank in range(n) if sources >> rank & 1), np.zeros(count, np.int32))
            for rank in range(n):
                at = tables[rank]["at"][token]
                gets = others >> rank & 1 and sources
                np.testing.assert_array_equal(arrays[rank][at : at + count], total if gets else pieces[rank][token])
                up[rank] += 4 * count * bool(others and sources >> rank & 1 and others != 1 << rank)
                down[rank] += 4 * count * bool(gets)
        carried, switch = payload(fabric), {rank: f"s{1 + rank // 2}" for rank in range(n)}
        for rank in range(n):
            assert carried[f"h{rank + 1}>{switch[rank]}"] == up[rank] and carried[f"{switch[rank]}>h{rank + 1}"] == down[rank]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_step_of_sharded_training_moves_what_it_needs(program, n):
    """FSDP: all-gather of S bytes, twice, and reduce-scatter of float32, at once: (1 + 1/n) S up and (2 - 1/n) S down."""
    topology, pieces = load("star", hosts=n), [10 * VALUES] * n
    size = 4 * sum(pieces)
    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        gathered = [[np.full(sum(pieces), 7 * rank, np.int32) for rank in range(n)] for _ in range(2)]
        gradients = [np.full(sum(pieces), rank + 0.5, np.float32) for rank in range(n)]
        for arrays, route in [(gathered[0], Route.all_gather(pieces)), (gradients, Route.reduce_scatter(pieces)),
                              (gathered[1], Route.all_gather(pieces))]:
            fabric.submit_all(admitted, arrays, route=route)
        fabric.run()
        assert len(list(fabric.completions())) == 3 * n
        for rank in range(n):
            assert (gradients[rank][10 * VALUES * rank :][: 10 * VALUES] == n * n / 2).all()
            assert all((arrays[rank] == np.repeat(7 * np.arange(n), 10 * VALUES)).all() for arrays in gathered)
        exponents = SLOTS - 1  # packets that carry nothing else, of the first window of floats
        carried = payload(fabric, exponents)
        assert {traffic.packets for traffic in fabric.links()} == {3 * (10 * n + 1) + exponents}
        for rank in range(n):
            assert carried[f"h{rank + 1}>s1"] == size + size // n
            assert carried[f"s1>h{rank + 1}"] == 2 * size - size // n


def test_pieces_of_all_gathers_and_reduce_scatters_take_turns():
    for route in (Route.all_gather([5, 0, 9]), Route.reduce_scatter([5, 0, 9])):
        table = route.table(14, 3, 1)
        assert table[["count", "at"]].tolist() == [(4, 0), (4, 5), (1, 4), (4, 9), (1, 13)]
        owners = table["sources"] & table["receivers"]
        assert owners.tolist() == [1, 4, 1, 4, 4] and set((table["sources"] | table["receivers"]).tolist()) == {7}
    assert Route.gather(0, [5, 0, 9]).table(14, 3, 1)["count"].tolist() == [5, 0, 9]


def test_links_between_switches_carry_what_lies_below_them(program):
    pieces = [4 * VALUES, 0, VALUES, 7 * VALUES]  # workers 0 and 1 below s1, 2 and 3 below s2, whose parent is s3
    with Fabric(program, TREE, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit([host.name for host in TREE.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        for route, packets, up, down in [
            (Route.all_gather(pieces), 13, {"s1": 4, "s2": 8}, {"s1": 12, "s2": 12}),
            (Route.reduce_scatter(pieces), 13, {"s1": 12, "s2": 12}, {"s1": 4, "s2": 8}),
            (Route.gather(0, pieces), 9, {"s1": 0, "s2": 8}, {"s1": 8, "s2": 0}),
            (Route.gather(2, pieces), 5, {"s1": 4, "s2": 0}, {"s1": 0, "s2": 4}),  # none of the seven blocks below s2
        ]:
            before = {traffic.name: (traffic.packets, traffic.bytes) for traffic in fabric.links()}
            fabric.all_reduce(admitted, [np.ones(sum(pieces), np.int32) for _ in TREE.hosts], route=route).raise_failed()
            for traffic in fabric.links():
                sent, total = traffic.packets - before[traffic.name][0], traffic.bytes - before[traffic.name][1]
                if traffic.target == "s3":
                    assert (sent, total - RECEIVERS * sent) == (packets, up[traffic.source] * 4 * VALUES), traffic
                if traffic.source == "s3":
                    assert (sent, total - RECEIVERS * sent) == (packets, down[traffic.target] * 4 * VALUES), traffic


# ---- every interleaving


def walk(source: str, topology, name: str, slots: int = 1, **options):
    """Workers with one tensor along a route, then one for all: two blocks at one, one at the others. Of an all-to-all, two.
    "in a row": tensors with one member, or two, for each block, before and behind one for all."""
    hosts = len(topology.hosts)
    pieces = [VALUES + 1] + [VALUES] * (hosts - 1)
    arrays = [np.arange(sum(pieces), dtype=np.int32) + 1000 * 4**rank for rank in range(hosts)]
    total = np.sum(arrays, axis=0, dtype=np.int32)
    if name == "in a row":
        ways = [(each, root) for root in range(2) for each in ("scatter", "gather")]
        right = {way: expected(way[0], arrays, pieces, way[1], [np.zeros_like(array) for array in arrays]) for way in ways}
        work = [[Tensor(array, right[way][rank], route=routes(pieces, way[1])[way[0]]) for way in ways]
                for rank, array in enumerate(arrays)]
        for rank, each in enumerate(work):
            each.insert(3, Tensor(arrays[rank], total))
        return job(compiled(source, slots), topology, protocol="receivers", slots=slots, work=work, check="sum", **options)
    if name == "all_to_all":
        sizes = [[VALUES * (1 + (source == 0)) for target in range(hosts)] for source in range(hosts)]
        moved = [exchanged(sizes, rank, np.zeros) for rank in range(hosts)]
        ways = [Route.all_to_all(sizes, rank, VALUES) for rank in range(hosts)]
        tensors = [[Tensor(array, right, route=way)] * 2 for way, (array, right) in zip(ways, moved, strict=True)]
    else:
        right = expected(name, arrays, pieces, 1, [np.zeros_like(array) for array in arrays])
        tensors = [[Tensor(array, each, route=routes(pieces, 1)[name])] for array, each in zip(arrays, right, strict=True)]
    work = [[*each, Tensor(array, total)] for array, each in zip(arrays, tensors, strict=True)]
    return job(compiled(source, slots), topology, protocol="receivers", slots=slots, work=work, check="sum", **options)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", UP)
def test_every_interleaving_of_two_workers(name, source):
    """Any one loss, duplicate and time-out, and many of each at random."""
    explorer = walk(source, PAIR, name)
    report = explorer.explore(12, Budget(losses=1, duplicates=1, timeouts=1))
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > 100
    for seed in range(20):
        report = explorer.wander(random.Random(seed), 200)
        assert report.violation is None, "\n".join((report.violation, *report.steps))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["gather", "scatter", "all_to_all", "in a row"])
def test_every_interleaving_of_three_workers_of_whom_two_have_a_block(name, source):
    """Nobody takes a row that others need: with two slots, every other packet is one that all send."""
    explorer = walk(source, STAR, name, slots=2)
    report = explorer.explore(9, Budget(losses=1, duplicates=1, timeouts=1))
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    for seed in range(30):
        report = explorer.wander(random.Random(seed), 400)
        assert report.violation is None, "\n".join((report.violation, *report.steps))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "scatter", "all_to_all", "in a row"])
def test_random_ways_in_a_tree_and_with_switches_that_lose_their_state(name, source):
    for topology, restarts in ((LEAVES, False), (PAIR, True), (LEAVES, True), (STAR, True)):
        explorer = walk(source, topology, name, slots=1 + (topology is STAR), restarts=restarts)
        for seed in range(20):
            report = explorer.wander(random.Random(seed), 200, finish=not restarts)
            assert report.violation is None, "\n".join((report.violation, *report.steps))


ROUTE, TENSORS = "host/protocol/route.h", "host/protocol/tensors.c"
GATES = {
    "rows that are in use are taken for fresh ones": Plant(ROUTE, "|| seq < reuse)", "|| seq < 8 * reuse)", protocol="receivers"),
    "a gate of the window before is enough": Plant(
        ROUTE, "(seq - reuse) | (ts->window - 1);", "((seq - reuse) | (ts->window - 1)) - ts->window;", protocol="receivers"),
    "tensors that follow have gates that end before them": Plant(
        TENSORS, "ts->latest.from : op->first, ts->next_seq + 2ull * ts->window};",
        "ts->latest.from : op->first, op->first < ts->latest.until ? op->first : ts->next_seq + 2ull * ts->window};",
        protocol="receivers"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", GATES)
def test_seeded_defects_of_gates_are_found(name, tmp_path):
    with planted(GATES[name], tmp_path):
        explorer = walk("receivers.p4", STAR, "in a row", slots=2)
        report = explorer.explore(9, Budget(losses=1, duplicates=1, timeouts=1))
        for seed in range(100 if report.violation is None else 0):
            report = explorer.wander(random.Random(seed), 400)
            if report.violation:
                break
    assert report.violation is not None


# ---- workers alone


def worker(rank: int, **options) -> Worker:
    return Worker(WorkerConfig(rank, 2, life=1, values=VALUES, slots=2, protocol="receivers", **options))


def test_packets_without_values_are_short_and_those_for_all_as_ever():
    one, plain = worker(0), Worker(WorkerConfig(0, 2, life=1, values=VALUES, slots=2))
    words = np.arange(4 * VALUES, dtype=np.int32)
    one.submit(words)
    plain.submit(words)
    assert one.frames_to_send(0) == plain.frames_to_send(0)
    for route, lengths in ((Route.broadcast(0), [72, 72 + 4 * VALUES]), (Route.broadcast(1), [72, 72])):
        sender = worker(0)
        sender.submit(words, route=route)
        assert [len(frame) for frame in sender.frames_to_send(0)] == lengths


def before_nothing(rows, count: int):
    """Returns a copy of C's array of ``count`` elements whose end is that of memory that may be read."""
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    base = libc.mmap(None, 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 2**64 - 1, 0)
    assert libc.mprotect(base + page, page, 0) == 0
    size = count * ffi.sizeof(ffi.typeof(rows).item)
    array = ffi.cast(ffi.typeof(rows), base + page - size)
    ffi.memmove(ffi.cast("void *", array), rows, size)
    return array


def test_values_in_the_answer_to_a_packet_before_the_first_block_are_dropped_and_nothing_is_looked_up():
    """Such a packet has no place in the tensor, so none among its pieces, behind which lies other memory."""
    one = worker(0)
    route = Route.reduce_scatter([4 * VALUES] * 2)
    one.submit(np.ones(8 * VALUES, np.float32), route=route)
    tensor = one._tensors[0]
    tensor.pieces, tensor.ends = (before_nothing(rows, tensor.pieces_count) for rows in (tensor.pieces, tensor.ends))
    wire = layout.load(VALUES)
    headers = wire.unpack(one.frames_to_send(0)[1], layout.HEAD)
    ip, udp = headers["ipv4"], headers["udp"]
    ip["src_addr"], ip["dst_addr"], ip["total_len"] = ip["dst_addr"], ip["src_addr"], 50 + 4 * VALUES
    udp["src_port"], udp["dst_port"], udp["length"] = udp["dst_port"], udp["src_port"], 30 + 4 * VALUES
    headers["switchml"].update(msg_type=1, size=0)
    headers["check"]["headers"] = 0
    headers["check"]["headers"] = layout.checksum(wire.pack(**headers)[42:])
    one.receive(wire.pack(**headers) + bytes(4 * VALUES), 1)
    assert one.stats["drop_corrupt"] == 1


@pytest.mark.parametrize("other", [Route.broadcast(0), Route.reduce(1), Route.all_gather([VALUES, 2 * VALUES])])
def test_workers_that_do_not_mean_the_same_route_end_with_an_error(program, other):
    with Fabric(program, PAIR, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit(["h1", "h2"], SLOTS, VALUES, rto_min=50e-6, timeout=0.1)
        arrays = [np.ones(3 * VALUES, np.int32) for _ in range(2)]
        fabric.submit_one(admitted, 0, arrays[0], route=Route.reduce(0))
        fabric.submit_one(admitted, 1, arrays[1], route=other)
        fabric.run()
        assert all(isinstance(each.event.error(), JobMismatch) for each in fabric.completions())


def pieces_of(*rows: tuple[int, int, int, int]) -> Route:
    """Pieces of so many elements, at a place, from sources to receivers."""
    return Route.of(np.array(list(rows), PIECE))


def test_routes_that_do_not_fit_are_refused():
    words = np.zeros(10, np.int32)
    for route, message in ((Route.reduce(2), r"root: 2, expected a worker, 0\.\.1"),
                           (Route.broadcast(-2), r"root: -2, expected a worker, 0\.\.1"),
                           (Route.all_gather([5, 4]), r"pieces: \(5, 4\), expected one of each of 2 workers, 10 elements"),
                           (Route.all_gather([10]), "expected one of each of 2 workers"),
                           (Route.all_gather([2**61 - 1] * 8), "expected one of each of 2 workers"),
                           (Route.all_to_all([[1, 1, 1]] * 3, 0, 4), "sizes: of 3 workers, expected a row .* of the job's 2"),
                           (Route.all_to_all([[1, 1]] * 2, 1, 4), "of worker 1, submitted by worker 0; expected its own"),
                           (Route.all_to_all([[6, 6]] * 2, 0, 4), "a piece of worker 0 lies outside of its 10 elements"),
                           (pieces_of((0, 0, 4, 0)), r"from or to others than the workers 0\.\.1"),
                           (pieces_of((5, 6, 1, 0)), "a piece of worker 0 lies outside of its 10 elements"),
                           (pieces_of((2**60, 0, 2, 2), (2**60, 0, 2, 2)), f"pieces of {2**61} elements together, expected"),
                           (pieces_of((2**63, 0, 2, 2), (2**63 + 1, 0, 2, 2)), f"pieces of {2**64 + 1} elements together")):
        with pytest.raises(ValueError, match=message):
            worker(0).submit(words, route=route)
    for dtype in (np.float32, np.float16):
        with pytest.raises(ValueError, match=f"{np.dtype(dtype)} from some workers only, expected integers"):
            worker(0).submit(words.astype(dtype), route=Route.broadcast(0))
    with pytest.raises(ValueError, match="of a maximum, expected a sum"):
        worker(0).submit(words, route=Route.reduce(0), reduction=protocols.MAX)
    for name in ("switchml", "atp", "omnireduce"):
        with pytest.raises(ValueError, match="are from all workers and to all"):
            Worker(WorkerConfig(0, 2, life=1, protocol=name)).submit(words, route=Route.reduce(0))
    with pytest.raises(ValueError, match="with check 'keyed'"):
        worker(0, check="keyed", key=bytes(range(16))).submit(words, route=Route.reduce(0))


def test_routes_that_mean_nothing_are_refused_where_they_are_made():
    sizes = [[1, 2], [3, 4]]
    for make, error, message in (
            (lambda: Route.of([(1, 0, 1, 2)]), TypeError, "table: a list, expected a one-dimensional numpy array of dtype PIECE"),
            (lambda: Route.of(np.zeros(1)), TypeError, r"table: float64 of shape \(1,\), expected a one-dimensional"),
            (lambda: Route.of(np.zeros((1, 1), PIECE)), TypeError, r"of shape \(1, 1\), expected a one-dimensional"),
            (lambda: Route.reduce("x"), TypeError, "root: 'x', expected a whole number"),
            (lambda: Route.gather(1.5, [1, 2]), TypeError, "root: 1.5, expected a whole number"),
            (lambda: Route.scatter(0, [11, -1]), ValueError, r"pieces: \[11, -1\], expected a list of whole numbers, 0 or more"),
            (lambda: Route.all_gather([1, 2**61]), ValueError, f"at most {2**61 - 1}"),
            (lambda: Route.all_gather([1, 2**70]), TypeError, "pieces: .* expected a list of whole numbers"),
            (lambda: Route.all_gather([1.0, 2.0]), TypeError, "pieces: .* expected a list of whole numbers"),
            (lambda: Route.all_gather(5), TypeError, "pieces: 5, expected a list of whole numbers"),
            (lambda: Route.all_to_all(sizes, 0, 0), ValueError, "chunk: 0, expected 1 element or more"),
            (lambda: Route.all_to_all(sizes, 0, -1), ValueError, "chunk: -1, expected 1 element or more"),
            (lambda: Route.all_to_all(sizes, 0, 0.5), TypeError, "chunk: 0.5, expected a whole number"),
            (lambda: Route.all_to_all(sizes, 2, 1), ValueError, r"worker: 2, expected 0\.\.1, a row of sizes"),
            (lambda: Route.all_to_all(sizes, -1, 1), ValueError, r"worker: -1, expected 0\.\.1"),
            (lambda: Route.all_to_all([[1, -2], [3, 4]], 0, 1), ValueError, "sizes: .* 0 or more"),
            (lambda: Route.all_to_all([[1, 2], [3]], 0, 1), ValueError, "sizes: .* rows of equal length"),
            (lambda: Route.all_to_all([[1, 2]], 0, 1), ValueError, r"sizes: of shape \(1, 2\), expected a row and a column"),
            (lambda: Route.all_to_all([[2**60] * 2] * 2, 0, 1), ValueError, f"sizes: {2**62} elements together"),
            (lambda: Route.all_to_all([[2**58] * 2] * 2, 0, 8), ValueError, f"chunk: 8 makes {2**57} pieces of {2**60} ")):
        with pytest.raises(error, match=message):
            make()


def test_what_a_route_was_made_of_may_change_afterwards():
    table = np.array([(10, 0, 1, 2)], PIECE)
    route = Route.of(table)
    table["count"] = 3
    assert route.table(10, 2, VALUES)["count"] == [10]
    with pytest.raises(ValueError, match="read-only"):
        route.table(10, 2, VALUES)["count"] = 3


A, B, BOTH = 1, 2, 3  # sets of workers


@pytest.mark.parametrize(("rows", "message"), [
    (((4, 0, A, B), (4, 0, B, A)), "gets piece 1 where it has piece 0, which it sends"),  # they swap in place
    (((4, 0, A, B), (4, 3, B, A)), "gets piece 1 where it has piece 0"),
    (((4, 3, A, B), (4, 0, B, A)), "gets piece 1 where it has piece 0"),
    (((2, 2, A, B), (6, 0, BOTH, A)), "gets piece 1 where it has piece 0"),
    (((6, 0, BOTH, BOTH), (1, 5, A, B)), "gets piece 0 where it has piece 1"),
    (((4, 0, B, A), (4, 3, B, A)), "gets piece 1 where it gets piece 0"),
    (((4, 0, BOTH, A), (4, 0, BOTH, A)), "gets piece 1 where it gets piece 0"),
])
def test_pieces_that_would_overwrite_each_other_are_refused(rows, message):
    with pytest.raises(ValueError, match=f"worker 0 {message}.*; expected places apart"):
        worker(0).submit(np.zeros(10, np.int32), route=pieces_of(*rows))


@pytest.mark.parametrize("rows", [
    ((4, 0, A, B), (4, 4, B, A)),
    ((4, 0, A, B), (4, 2, A, B)),            # it sends something twice
    ((4, 0, BOTH, A), (4, 4, BOTH, BOTH)),   # it adds to what it has
    ((0, 2, B, A), (4, 0, B, A)),
    ((4, 0, A, A), (4, 2, B, A)),            # the first goes nowhere
    ((4, 0, A, BOTH), (4, 0, A, B), (4, 4, B, BOTH)),
    ((4, 0, B, B), (4, 0, B, A)),
])
def test_pieces_that_do_not_meet_where_one_is_received_are_taken(rows):
    worker(0).submit(np.zeros(10, np.int32), route=pieces_of(*rows))


def test_two_workers_swap_what_they_have_into_other_arrays(program):
    """And within one array where they do not lie apart, that is refused."""
    with Fabric(program, PAIR, pool=16, protocol="receivers") as fabric:
        admitted = fabric.admit(["h1", "h2"], SLOTS, VALUES)
        route = pieces_of((100, 0, A, B), (100, 0, B, A))
        arrays, results = [[np.full(100, 5 + rank + more, np.int32) for rank in range(2)] for more in (0, 10)]
        for machine, array, result in zip(admitted.machines, arrays, results, strict=True):
            fabric.submit(machine, array, result, route=route)
        fabric.run()
        assert all(each.event.error() is None for each in fabric.completions())
        assert all((arrays[rank] == 5 + rank).all() and (results[rank] == 6 - rank).all() for rank in range(2))
        room = np.zeros(150, np.int32)
        with pytest.raises(ValueError, match="gets piece 1 where it has piece 0"):
            fabric.submit(admitted.machines[0], room[:100], room[50:], route=route)


@pytest.mark.parametrize("before", [[], [np.int32]])
def test_a_route_that_suits_integers_is_looked_at_again_for_floats(before):
    """A piece that nobody gets is not sent, if it is of integers; of floats it is, for everybody's exponent."""
    route, one = pieces_of((64, 0, BOTH, BOTH), (64, 0, BOTH, 0)), worker(0)
    for dtype in before:
        one.submit(np.zeros(64, dtype), route=route)
    with pytest.raises(ValueError, match="expected places apart"):
        one.submit(np.zeros(64, np.float32), route=route)


# ---- one route of several tensors


def test_one_route_serves_tensors_of_several_types_in_flight_at_once(program):
    """Blocks of floats come from everybody and are announced; those of integers, where nobody gets them, are not sent: a
    piece ends at another block."""
    values, route = 10 * VALUES, pieces_of((10 * VALUES, 0, 7, 0), (10 * VALUES, 10 * VALUES, 7, 7))
    for order in ((np.int32, np.float32), (np.float32, np.int32), (np.int32, np.int32, np.float32, np.int32)):
        with Fabric(program, STAR, pool=16, protocol="receivers") as fabric:
            admitted = fabric.admit(["h1", "h2", "h3"], SLOTS, VALUES)
            tensors = [[np.arange(2 * values).astype(dtype) + rank for rank in range(3)] for dtype in order]
            for arrays in tensors:
                fabric.submit_all(admitted, arrays, route=route)
            fabric.run()
            assert len(list(fabric.completions())) == 3 * len(order)
            for arrays in tensors:
                for rank, array in enumerate(arrays):
                    assert (array[:values] == np.arange(values) + rank).all()
                    assert (array[values:] == 3 * np.arange(values, 2 * values) + 3).all()


def test_a_tensor_without_blocks_does_not_disturb_another_one_with_its_route():
    """Nobody else needs what worker 0 alone gets from itself: of integers, no block is sent."""
    one, route = Worker(WorkerConfig(0, 1, life=1, values=VALUES, slots=2, protocol="receivers")), Route.reduce(0)
    one.submit(np.ones(100, np.float32), route=route)
    before = one.frames_to_send(0)
    other = Worker(WorkerConfig(0, 1, life=1, values=VALUES, slots=2, protocol="receivers"))
    other.submit(np.ones(100, np.float32), route=route)
    other.submit(np.ones(100, np.int32), route=route)
    assert other.frames_to_send(0) == before


def test_jobs_of_other_packet_sizes_share_a_route():
    """Blocks of 32 values, and of 64."""
    table = np.array([(300, 0, 1, 7), (300, 300, 2, 7)], PIECE)
    route, workers = Route.of(table), []
    for values in (VALUES, 2 * VALUES):
        shared, own = (Worker(WorkerConfig(0, 3, life=1, values=values, slots=64, protocol="receivers")) for _ in range(2))
        shared.submit(np.arange(600, dtype=np.int32), route=route)
        own.submit(np.arange(600, dtype=np.int32), route=Route.of(table.copy()))
        workers.append((shared, own))
    for shared, own in workers:
        assert shared.frames_to_send(0) == own.frames_to_send(0)


@pytest.mark.parametrize("pruned", ["hdr.receivers.ranks & below != 0", "false"])
def test_a_switch_that_sends_values_to_others_makes_no_wrong_result(tmp_path, pruned):
    """Workers take values where they are receivers, and nothing else; so those of whom the switch is wrong wait until their
    deadline."""
    folder = tmp_path / "p4"
    shutil.copytree(paths.p4_dir(), folder)
    part, right = folder / "include/receivers/pruning.p4", "hdr.receivers.ranks & below == 0"
    part.write_text(part.read_text().replace(right, pruned))
    planted = compiled("receivers.p4", 16, folder)
    with Fabric(planted, STAR, pool=16, protocol="receivers") as fabric:
        for name, route in routes([VALUES, VALUES, 5], 1).items():
            admitted = fabric.admit(["h1", "h2", "h3"], 2, VALUES, rto_min=50e-6, rto_max=1e-3, timeout=0.02)
            outcome = fabric.all_reduce(admitted, [np.full(2 * VALUES + 5, 4**rank, np.int32) for rank in range(3)], route=route)
            # Without pruning, receivers get what they need, and of a piece from one to one nobody else hears.
            some_end = pruned == "false" and name in ("gather", "scatter")
            assert {each.event.code for each in outcome.completions} == {lib.INA_ERR_TIMEOUT} | ({0} if some_end else set()), name
