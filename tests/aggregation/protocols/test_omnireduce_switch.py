"""p4/omnireduce.p4 and its workers: blocks that are zero everywhere are not sent, and sums are the same to the bit."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from capabilities import need
from switchml_kin import FAULTS, MANY, STAR, TREE, check_interleavings, check_plain_sums, check_switches_agree
from switchml_targets import Bmv2Target, InterpreterTarget, TnaTarget

from ina.aggregation import protocols
from ina.aggregation.entries.omnireduce import PROGRAM
from ina.aggregation.wire import layout
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base import paths
from ina.base.native import lib
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.explorable import Tensor, job
from ina.worlds.virtual.explorer import Budget
from ina.worlds.virtual.fabric import Fabric

need("cc")
VALUES = 32
OTHERS = [pytest.param(InterpreterTarget, 250, VALUES, marks=pytest.mark.build, id="interpreter"),
          pytest.param(TnaTarget, MANY, 64, marks=pytest.mark.build, id="tna"),
          pytest.param(Bmv2Target, 3000, VALUES, marks=pytest.mark.hardware, id="bmv2"),
          pytest.param(Bmv2Target, MANY, VALUES, marks=[pytest.mark.hardware, pytest.mark.judge], id="bmv2, many")]
SLOTS = 8
MOST = 255  # steps that a packet can say


def sparse(workers: int, count: int, density: float, seed: int = 0) -> list[np.ndarray]:
    """Words of which each worker has values in about ``density`` of the blocks, others at each."""
    rng = np.random.default_rng(seed)
    blocks = -(-count // VALUES)
    arrays = []
    for _ in range(workers):
        values = rng.integers(-(2**31), 2**31, count).astype(np.int32)
        arrays.append(np.where(np.repeat(rng.random(blocks) < density, VALUES)[:count], values, 0).astype(np.int32))
    return arrays


def union(arrays: list[np.ndarray]) -> np.ndarray:
    """Returns the numbers of the blocks in which any worker has values."""
    any_of = np.any(arrays, axis=0)
    padded = np.resize(any_of, -(-any_of.size // VALUES) * VALUES)
    padded[any_of.size :] = False
    return np.flatnonzero(padded.reshape(-1, VALUES).any(axis=1))


def phases(blocks: int, present: np.ndarray, slots: int = SLOTS) -> int:
    """Returns how many packets a worker sends of so many blocks: what the definition says, stream by stream.

    The packet in front of block 0 opens the tensor. A stream's first and last blocks are sent, those of the union, and of a gap
    of more than MOST steps one every MOST steps.
    """
    total = 1
    for stream in range(min(slots, blocks)):
        at = stream
        wanted = sorted(int(block) for block in present if block % slots == stream % slots)
        while at < blocks:
            total += 1
            last = at + (blocks - 1 - at) // slots * slots
            later = [block for block in wanted if block > at]
            step = ((later[0] if later else last) - at) // slots
            at += max(1, min(step, MOST)) * slots
    return total


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(paths.p4_dir() / "omnireduce.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


def worker(rank: int, workers: int, **options) -> Worker:
    return Worker(WorkerConfig(rank, workers, life=1, values=VALUES, protocol="omnireduce", **options))


@pytest.mark.build
def test_a_packet_of_zeros_has_no_values_and_says_how_far_the_next_block_is():
    sender = worker(0, 2, slots=2)
    words = np.zeros(20 * VALUES, np.int32)
    words[[0, 13 * VALUES]] = 7  # blocks 0 and 13: packet 0 opens, so block 0 is in slot 1, and 1, 3, ... in slot 0
    sender.submit(words, reduction=protocols.OWN)
    _, block = sender.frames_to_send(0)
    wire = layout.load(VALUES)
    head = wire.size(layout.HEAD)
    assert len(block) == head + 4 * VALUES and block[42] >> 4 == 1
    assert int.from_bytes(block[50:51], "big", signed=True) == MOST - 9 - 127  # none: nine steps to the stream's last
    words[:] = 0
    words[14 * VALUES] = 1
    other = worker(1, 2, slots=2)
    other.submit(words, reduction=protocols.OWN)
    zeros = other.frames_to_send(0)[1]
    assert len(zeros) == head and zeros[42] >> 4 == 6
    assert int.from_bytes(zeros[50:51], "big", signed=True) == MOST - 7 - 127


@pytest.mark.build
def test_floats_are_refused():
    with pytest.raises(OSError):
        worker(0, 2).submit(np.zeros(VALUES, np.float32), reduction=protocols.OWN)


def check_sums(fabric: Fabric, admitted, count: int, density: float, seed: int) -> None:
    """Sums of zeros and values by the program's own reduction, then of integers, are those of NumPy."""
    workers = len(admitted.machines)
    arrays = sparse(workers, count, density, seed)
    expected = PROGRAM.reduced(np.array(arrays))
    fabric.all_reduce(admitted, arrays, reduction=protocols.OWN).raise_failed()
    assert all(np.array_equal(array, expected) for array in arrays), (count, density)
    check_plain_sums(fabric, admitted)


@pytest.mark.build
@pytest.mark.parametrize("check", ["off", "sum", "keyed"])
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_sums_are_numpys(program, topology, faults, check):
    """Sparse and dense tensors in turn, of all kinds: each leaves the slots' sets as it likes."""
    hosts = [host.name for host in topology.hosts]
    with Fabric(program, topology, pool=16, faults=faults, seed=3, protocol="omnireduce") as fabric:
        admitted = fabric.admit(hosts, SLOTS, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0, check=check)
        cases = [(5000, 0.05), (90_000, 0.001), (1, 1), (VALUES + 1, 0), (3000, 1), (100_000, 0), (100, 0.5)]
        for seed, (count, density) in enumerate(cases):
            check_sums(fabric, admitted, count, density, seed)
            floats = [np.full(777, 0.5 + rank, np.float32) for rank in range(len(hosts))]
            fabric.all_reduce(admitted, floats).raise_failed()
            assert all(np.allclose(array, len(hosts) * len(hosts) / 2) for array in floats)


@pytest.mark.build
@pytest.mark.parametrize("density", [0, 0.0002, 0.01, 0.3, 1])
def test_only_blocks_of_the_union_are_sent_and_only_by_those_who_have_them(program, density):
    with Fabric(program, STAR, pool=16, protocol="omnireduce") as fabric:
        admitted = fabric.admit([host.name for host in STAR.hosts], SLOTS, VALUES, rto_min=1e-3)
        arrays = sparse(3, 100_000, density, seed=5)
        present = union(arrays)
        own = [union([array]) for array in arrays]
        fabric.all_reduce(admitted, arrays, reduction=protocols.OWN).raise_failed()
        head = layout.load(VALUES).size(layout.HEAD)
        for machine, blocks in zip(admitted.machines, own, strict=True):
            stats = fabric.worker_stats(machine)
            assert stats["rx_bytes"] == head * stats["rx_packets"] + 4 * VALUES * (1 + len(present))
            assert stats["tx_packets"] == stats["rx_packets"] == phases(100_000 // VALUES, present)
            assert stats["tx_bytes"] == head * stats["tx_packets"] + 4 * VALUES * (1 + len(blocks))
            assert stats["retransmissions"] == 0


@pytest.fixture(scope="module")
def smallest(tmp_path_factory):
    """A switch that answers with the smallest field, not the largest: it leads past blocks that some worker has values in."""
    folder = tmp_path_factory.mktemp("planted") / "p4"
    shutil.copytree(paths.p4_dir(), folder)
    part = folder / "include/switchml/aggregation.p4"
    line = "if (meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0)"
    assert part.read_text().count(line) == 1
    part.write_text(part.read_text().replace(line, line.replace("e0 >", "e0 <")))
    return Program(compile_program(folder / "omnireduce.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


@pytest.mark.build
@pytest.mark.parametrize("check", ["off", "sum", "keyed"])
@pytest.mark.parametrize("owners", [(0, 1, 2), (1,), (1, 2)])
def test_a_result_that_passes_over_values_makes_no_wrong_sum(smallest, check, owners):
    """Neither for the worker that has them, which sees it, nor for the others, which cannot: their jobs end without the sum."""
    with Fabric(smallest, STAR, pool=16, protocol="omnireduce") as fabric:
        admitted = fabric.admit([host.name for host in STAR.hosts], SLOTS, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=0.1,
                                check=check)
        arrays = [array if rank in owners else np.zeros_like(array) for rank, array in enumerate(sparse(3, 20_000, 0.1))]
        outcome = fabric.all_reduce(admitted, arrays, reduction=protocols.OWN)
        assert {completion.event.code for completion in outcome.completions} <= {lib.INA_ERR_CORRUPT, lib.INA_ERR_TIMEOUT}
        assert len(outcome.completions) == 3


def by_turns(workers: int) -> list[np.ndarray]:
    """Blocks with a value of one, of none, of the other, of both."""
    arrays = [np.zeros(5 * VALUES, np.int32) for _ in range(workers)]
    for block in range(5):
        for rank, array in enumerate(arrays):
            if (block * 3 + 1) >> rank & 1:
                array[block * VALUES] = 4**rank + block
    return arrays


@pytest.mark.build
@pytest.mark.parametrize("tree", [pytest.param(False, marks=pytest.mark.later, id="star"), pytest.param(True, id="tree")])
def test_interleavings_of_two_workers(tree):
    check_interleavings(PROGRAM, tree, by_turns, tensors=2)


# ---- the same packets into every switch


@pytest.mark.parametrize(("other", "packets", "values"), OTHERS)
def test_switches_agree_on_all_packets(other, packets, values):
    check_switches_agree("omnireduce", other, packets, lambda seed: sparse(3, 12 * values, 0.4, seed), values)


# ---- the twin for Tofino


@pytest.fixture(scope="module")
def twin():
    built = compile_program(protocols.program("omnireduce", "tofino"), defines={"VALUES": "64", "SLOTS": "16"})
    return Program(built.so_path)


@pytest.mark.build
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
def test_sums_of_the_twin(twin, topology):
    """Packets of 64 values, which go round twice and more, by workers that lose, repeat and reorder them."""
    hosts = [host.name for host in topology.hosts]
    with Fabric(twin, topology, pool=16, faults=FAULTS["lossy"], seed=3, protocol="omnireduce") as fabric:
        admitted = fabric.admit(hosts, SLOTS, 64, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for seed, (count, density) in enumerate([(5000, 0.05), (40_000, 0.001), (65, 0), (3000, 1), (20_000, 0)]):
            check_sums(fabric, admitted, count, density, seed)


@pytest.mark.build
@pytest.mark.parametrize("tree", [False, True], ids=["star", "tree"])
def test_interleavings_with_the_twin(twin, tree):
    """A block of none, and one of one worker."""
    arrays = [np.zeros(2 * 64, np.int32) for _ in range(2)]
    arrays[1][64] = 4
    expected = PROGRAM.reduced(np.array(arrays))
    work = [[Tensor(array, expected, reduction=protocols.OWN)] for array in arrays]
    topology = load("leaf-spine", leaves=2, spines=1, hosts=1) if tree else load("star", hosts=2)
    explorer = job(twin, topology, values=64, protocol="omnireduce", work=work)
    report = explorer.explore(14, Budget(losses=1, duplicates=1, timeouts=1)) if tree else explorer.saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > 5000 if tree else report.complete and report.states > 100
