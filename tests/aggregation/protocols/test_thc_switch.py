"""p4/thc.p4: indices up, sums of what they stand for down, recovered as SwitchML's sums are."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from capabilities import need
from switchml_kin import FAULTS, MANY, STAR, TREE, check_interleavings, check_maxima, check_plain_sums, check_switches_agree
from switchml_targets import Bmv2Target, InterpreterTarget, TnaTarget

from ina.aggregation import protocols
from ina.aggregation.entries.thc import LEVELS, PROGRAM
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


def words(workers: int, count: int, seed: int = 0) -> list[np.ndarray]:
    """Indices in the lower 4 bits of each byte."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 16, 4 * count, np.uint8).view(np.int32) for _ in range(workers)]


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(paths.p4_dir() / "thc.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


def worker(rank: int, workers: int, **options) -> Worker:
    return Worker(WorkerConfig(rank, workers, life=1, values=VALUES, protocol="thc", **options))


@pytest.mark.build
def test_a_packet_up_is_an_eighth_of_float32_and_a_result_a_quarter():
    sender = worker(0, 2, slots=2)
    sender.submit(words(1, VALUES)[0], reduction=protocols.OWN)
    opening, block = sender.frames_to_send(0)
    head = layout.load(VALUES).size(layout.HEAD)
    coordinates = 4 * VALUES
    assert len(block) - head == coordinates * 4 / 8
    assert len(opening) - head == coordinates * 4 / 4  # as long as results are


@pytest.mark.build
def test_indices_are_the_lower_four_bits_of_each_byte():
    clean, dirty = words(1, VALUES)[0], words(1, VALUES)[0]
    dirty = (dirty.view(np.uint8) | 0xA0).view(np.int32)
    frames = []
    for source in (clean, dirty):
        sender = worker(0, 2, slots=2)
        sender.submit(source, reduction=protocols.OWN)
        frames.append(sender.frames_to_send(0)[1])
    assert frames[0] == frames[1]
    assert np.array_equal(PROGRAM.reduced([clean]), PROGRAM.reduced([dirty]))
    payload = frames[0][-2 * VALUES :]
    indices = [each for byte in payload for each in (byte >> 4, byte & 15)]
    assert indices == clean.astype(">i4").view(np.uint8).tolist()


@pytest.mark.build
@pytest.mark.parametrize("check", ["keyed", "float32"])
def test_what_has_no_indices_is_refused(check):
    sender = worker(0, 2, check="keyed", key=bytes(range(16))) if check == "keyed" else worker(0, 2)
    source = np.zeros(VALUES, np.int32 if check == "keyed" else np.float32)
    with pytest.raises(OSError):
        sender.submit(source, reduction=protocols.OWN)


@pytest.mark.build
def test_sums_that_a_byte_has_no_room_for_are_refused():
    """Not the same workers' plain sums and maxima."""
    indices = words(1, VALUES)[0]
    worker(7, 8).submit(indices, reduction=protocols.OWN)
    assert 255 // int(LEVELS.max()) == 8
    with pytest.raises(OSError):
        worker(8, 9).submit(indices, reduction=protocols.OWN)
    for reduction in (protocols.SUM, protocols.MAX):
        worker(8, 9).submit(indices, reduction=reduction)


@pytest.mark.build
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_sums_are_numpys_look_ups(program, topology, faults):
    hosts = [host.name for host in topology.hosts]
    with Fabric(program, topology, pool=16, faults=faults, seed=3, protocol="thc") as fabric:
        admitted = fabric.admit(hosts, 8, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for seed in range(3):
            arrays = words(len(hosts), 5000 + seed, seed)
            expected = sum(LEVELS[array.view(np.uint8)].astype(int) for array in arrays)
            fabric.all_reduce(admitted, arrays, reduction=protocols.OWN).raise_failed()
            for array in arrays:
                assert np.array_equal(array.view(np.uint8), expected)
            check_maxima(fabric, admitted)
            check_plain_sums(fabric, admitted)


@pytest.mark.build
def test_a_sum_of_other_levels_is_not_taken(program, tmp_path):
    """Check words are those of the levels: a switch with another table gives no wrong sum."""
    folder = tmp_path / "p4"
    shutil.copytree(paths.p4_dir(), folder)
    levels = folder / "include/thc/levels.p4"
    assert "0x1e1b19" in levels.read_text()
    levels.write_text(levels.read_text().replace("0x1e1b19", "0x1e1c19"))
    other = Program(compile_program(folder / "thc.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)
    with Fabric(other, STAR, pool=16, protocol="thc") as fabric:
        admitted = fabric.admit([host.name for host in STAR.hosts], 8, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=1.0)
        outcome = fabric.all_reduce(admitted, words(3, 1000), reduction=protocols.OWN)
        assert {completion.event.code for completion in outcome.completions} == {lib.INA_ERR_CORRUPT}


@pytest.mark.build
@pytest.mark.parametrize("tree", [False, True], ids=["star", "tree"])
def test_interleavings_of_two_workers(tree):
    check_interleavings(PROGRAM, tree, lambda workers: words(workers, 2 * VALUES))


# ---- the same packets into every switch


@pytest.mark.parametrize(("other", "packets", "values"), OTHERS)
def test_switches_agree_on_all_packets(other, packets, values):
    check_switches_agree("thc", other, packets, lambda seed: words(3, 6 * values, seed), values)


# ---- the twin for Tofino


@pytest.fixture(scope="module")
def twin():
    return Program(compile_program(protocols.program("thc", "tofino"), defines={"VALUES": "64", "SLOTS": "16"}).so_path)


@pytest.mark.build
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
def test_sums_of_the_twin(twin, topology):
    """Packets of 64 values, which go round twice and more, by workers that lose, repeat and reorder them."""
    hosts = [host.name for host in topology.hosts]
    with Fabric(twin, topology, pool=16, faults=FAULTS["lossy"], seed=3, protocol="thc") as fabric:
        admitted = fabric.admit(hosts, 8, 64, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for seed in range(3):
            arrays = words(len(hosts), 5000 + seed, seed)
            expected = sum(LEVELS[array.view(np.uint8)].astype(int) for array in arrays)
            fabric.all_reduce(admitted, arrays, reduction=protocols.OWN).raise_failed()
            assert all(np.array_equal(array.view(np.uint8), expected) for array in arrays)
            check_plain_sums(fabric, admitted)


@pytest.mark.build
@pytest.mark.parametrize("tree", [False, True], ids=["star", "tree"])
def test_interleavings_with_the_twin(twin, tree):
    arrays = words(2, 2 * 64)
    expected = PROGRAM.reduced(np.array(arrays))
    work = [[Tensor(array, expected, reduction=protocols.OWN)] for array in arrays]
    topology = load("leaf-spine", leaves=2, spines=1, hosts=1) if tree else load("star", hosts=2)
    explorer = job(twin, topology, values=64, protocol="thc", work=work)
    report = explorer.explore(14, Budget(losses=1, duplicates=1, timeouts=1)) if tree else explorer.saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > 5000 if tree else report.complete and report.states > 100
