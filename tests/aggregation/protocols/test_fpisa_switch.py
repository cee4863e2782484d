"""p4/fpisa.p4: floats added in the switch, in all its variants, compared with the definition over NumPy."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from capabilities import need
from switchml_kin import MANY, check_interleavings, check_switches_agree
from switchml_targets import Bmv2Target, CompiledTarget, InterpreterTarget, TnaTarget, World

from ina.aggregation import protocols
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.embedded import EmbeddedSwitch
from ina.aggregation.entries.fpisa import PROGRAM
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base import paths
from ina.codecs.fpisa import Fpisa, sums
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric

need("cc")
VALUES, WORKERS = 32, 4
FLOATS = 7  # SWITCHML_FLOATS
SOURCE = paths.p4_dir() / "fpisa.p4"
VARIANTS = {"fpisa": (), "fpisa-a": (("FPISA_A", "1"),), "fixed order": (("FIXED_ORDER", "4"),)}
STAR, TREE = load("star", hosts=3), load("leaf-spine", leaves=2, spines=1, hosts=2)
FAULTS = {"clean": Faults(seed=1), "lossy": Faults(loss=0.1, duplicate=0.1, reorder=0.1, duplicate_delay=100e-6, seed=2)}
CORNERS = np.array([0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x3F800000, 0x4B7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001],
                   np.uint32)


def rows(rng: np.random.Generator, workers: int = WORKERS, count: int = VALUES) -> np.ndarray:
    """Float32 of all kinds: any bits; exponents around each other; corners; those that cancel."""
    shape = workers, count
    signs = rng.integers(0, 2, shape, np.uint32) << 31
    match rng.integers(0, 4):
        case 0:
            bits = rng.integers(0, 2**32, shape, np.uint32)
        case 1:
            exponents = np.clip(rng.integers(0, 256, count) + rng.integers(-12, 13, shape), 0, 254).astype(np.uint32)
            bits = signs | exponents << 23 | rng.integers(0, 1 << 23, shape, np.uint32)
        case 2:
            bits = signs | rng.choice(CORNERS, shape)
        case _:
            values = rng.standard_normal(shape).astype(np.float32)
            values[1] = np.where(rng.random(count) < 0.5, -values[0], values[1])
            return values
    return bits.view(np.float32)


# ---- the same packets into every switch


def target(kind: type, variant: tuple) -> type:
    return type("Fpisa", (kind,), {"source": SOURCE, "variant": variant})


SWITCHES = [pytest.param(CompiledTarget, 200, id="compiled", marks=pytest.mark.build),
            pytest.param(InterpreterTarget, 4, id="interpreter", marks=pytest.mark.build),
            pytest.param(Bmv2Target, 60, id="bmv2", marks=pytest.mark.hardware)]


def sent(job, worker: int, tsi: int, values: np.ndarray) -> list[bytes]:
    """Sends a packet of floats; returns the frames that it causes."""
    fields = job.fields(worker, tsi, values=values.view(np.uint32).tolist())
    fields["switchml"]["msg_type"] = FLOATS
    return [frame for _, frame in job.world.send(job.world.bytes(fields), job.ports[worker])]


def payload(frame: bytes) -> np.ndarray:
    return np.frombuffer(frame[-4 * VALUES :], ">u4").astype(np.uint32)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "packets"), SWITCHES)
def test_sums_are_those_of_the_definition(kind, packets, variant):
    """Four workers in any order, with a repetition: every bit."""
    rng = np.random.default_rng(1)
    switch = target(kind, VARIANTS[variant])(VALUES)
    try:
        job = World(switch, 6).admit(WORKERS, 4)
        for tsi in range(packets):
            each, order = rows(rng), rng.permutation(WORKERS)
            for worker in order[:-1]:
                sent(job, worker, tsi, each[worker])
            frames = sent(job, order[-1], tsi, each[order[-1]])
            assert len(frames) == WORKERS and len({frame[-4 * VALUES :] for frame in frames}) == 1
            arrived = each if variant == "fixed order" else each[order]
            expected = sums(list(arrived), variant != "fpisa-a").view(np.uint32)
            assert payload(frames[0]).tolist() == expected.tolist(), (tsi, arrived)
            again = sent(job, order[0], tsi, each[order[0]])
            assert [frame[-4 * VALUES :] for frame in again] == [frames[0][-4 * VALUES :]]
    finally:
        if hasattr(switch, "close"):
            switch.close()


@pytest.mark.build
@pytest.mark.parametrize("variant", ["fpisa", "fixed order"])
def test_every_order_of_three_workers(variant):
    """The result is that of the order of arrival; in a fixed order, one."""
    switch = target(CompiledTarget, VARIANTS[variant])(VALUES)
    job = World(switch, 4).admit(3, 4)
    each = np.tile(np.array([[16777216.0], [1.5], [1.0]], np.float32), (1, VALUES))
    results = []
    for tsi, order in enumerate(itertools.permutations(range(3))):
        frames = [sent(job, worker, tsi, each[worker]) for worker in order][-1]
        results.append(payload(frames[0])[0])
        assert results[-1] == sums(list(each[list(order)]))[0].view(np.uint32) or variant == "fixed order"
    assert (len(set(results)) == 1) == (variant == "fixed order")
    switch.close()


@pytest.mark.build
def test_a_fixed_order_has_places_for_so_many():
    switch = target(CompiledTarget, VARIANTS["fixed order"])(VALUES)
    world = World(switch, 6)
    job = world.admit(5, 4)
    for worker in range(5):
        sent(job, worker, 0, np.zeros(VALUES, np.float32))
    assert world.drops() == {"WRONG_SOURCE": 1}  # of a controller that knows nothing of places
    switch.close()


@pytest.mark.build
def test_a_job_with_more_workers_than_places_is_refused():
    defines = {"VALUES": "32", "SLOTS": "16", "FIXED_ORDER": "4"}
    served = EmbeddedSwitch(SOURCE, defines)
    with Fabric(compile_program(SOURCE, defines=defines), load("star", hosts=5), pool=16, protocol="fpisa") as fabric:
        for controller in (Controller(served.targets, 16, served.job_program), fabric.controller):
            hosts = [host.name for host in fabric.topology.hosts]
            with pytest.raises(AdmissionError, match="5 workers; a switch job takes 1 to 4, as the program of"):
                controller.admit("job", 5, 4)
            controller.admit("job", 4, 4, tree=controller.topology and controller.place("job", hosts[:4], 4)[0])
    served.close()


@pytest.mark.build
def test_an_overflow_of_fpisa_a_is_marked():
    """Three times what fills the head-room: the sum stays at its end."""
    switch = target(CompiledTarget, VARIANTS["fpisa-a"])(VALUES)
    job = World(switch, 6).admit(4, 4)
    for value, expected, mark in ((100.0, 256 - 2.0**-16, 8), (10.0, 31.0, 0)):
        for worker in range(4):
            frames = sent(job, worker, 0 if mark else 1, np.full(VALUES, value if worker else 1.0, np.float32))
        assert payload(frames[0])[0] == struct.unpack(">I", struct.pack(">f", expected))[0]
        assert frames[0][42] == FLOATS << 4 | mark
    switch.close()


# ---- with workers


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(SOURCE, defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


def floats(workers: int, count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20, count)).astype(np.float32) for _ in range(workers)]


@pytest.mark.build
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_all_workers_get_the_same_bits_within_the_bound(program, topology, faults):
    hosts = [host.name for host in topology.hosts]
    with Fabric(program, topology, pool=16, faults=faults, seed=3, protocol="fpisa") as fabric:
        admitted = fabric.admit(hosts, 8, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for seed in range(2):
            own = floats(len(hosts), 3000 + seed, seed)
            own[0][7], own[1][8], own[0][9] = np.inf, np.nan, 1e-42
            arrays = [each.view(np.int32).copy() for each in own]
            fabric.all_reduce(admitted, arrays, reduction=protocols.OWN).raise_failed()
            assert all(np.array_equal(array, arrays[0]) for array in arrays)
            result = arrays[0].view(np.float32).astype(float)
            assert result[7] == np.inf and np.isnan(result[8])
            own[0][7] = own[1][8] = result[7] = result[8] = 0
            own = [np.where(np.isin(np.arange(each.size), (7, 8)), np.float32(0), each) for each in own]
            exact = np.sum(np.array(own, float), axis=0)
            assert (np.abs(result - exact) <= Fpisa().bound(own)).all()
            rest = [np.arange(500, dtype=np.int32) * (rank + 1) for rank in range(len(hosts))]
            fabric.all_reduce(admitted, rest).raise_failed()
            assert all(np.array_equal(array, np.arange(500) * sum(range(1, len(hosts) + 1))) for array in rest)
            fabric.all_reduce(admitted, rest, reduction=protocols.MAX).raise_failed()


@pytest.mark.build
def test_a_block_takes_one_round_trip():
    """Nothing is agreed before: all packets of a tensor leave at once, where a float32 sum's blocks wait for their exponents."""
    sender = Worker(WorkerConfig(0, 2, life=1, values=VALUES, protocol="fpisa", slots=8))
    sender.submit(np.ones(4 * VALUES, np.float32).view(np.int32), reduction=protocols.OWN)
    assert [frame[42] >> 4 for frame in sender.frames_to_send(0)] == [1, FLOATS, FLOATS, FLOATS, FLOATS]
    sender = Worker(WorkerConfig(0, 2, life=1, values=VALUES, protocol="fpisa", slots=8))
    sender.submit(np.ones(4 * VALUES, np.float32))
    assert len(sender.frames_to_send(0)) == 4


@pytest.mark.build
def test_what_cannot_be_checked_is_refused():
    sender = Worker(WorkerConfig(0, 2, life=1, values=VALUES, protocol="fpisa", check="keyed", key=bytes(range(16))))
    with pytest.raises(OSError, match="submit refused"):
        sender.submit(np.zeros(VALUES, np.int32), reduction=protocols.OWN)


def powers(workers: int) -> list[np.ndarray]:
    """Floats whose sums say who was added how often."""
    return [np.full(2 * VALUES, 4.0**rank, np.float32).view(np.int32) for rank in range(workers)]


@pytest.mark.build
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tree", [False, True], ids=["star", "tree"])
def test_interleavings_of_two_workers(tree, variant):
    check_interleavings(PROGRAM, tree, powers, **dict(VARIANTS[variant]))


# ---- the same packets into every switch


@pytest.mark.parametrize(("other", "packets"), [
    pytest.param(TnaTarget, MANY, marks=pytest.mark.build, id="tna"),
    pytest.param(Bmv2Target, 1000, marks=pytest.mark.hardware, id="bmv2"),
    pytest.param(Bmv2Target, MANY, marks=[pytest.mark.hardware, pytest.mark.judge], id="bmv2, many"),
])
def test_switches_agree_on_all_packets_of_fpisa_a(other, packets):
    """A Tofino's twin is FPISA-A, whose packets go round with eight floats at a time."""
    def work(seed: int) -> list[np.ndarray]:
        return [each.view(np.int32).copy() for each in rows(np.random.default_rng(seed), 3, 6 * VALUES)]

    check_switches_agree("fpisa", other, packets, work, **dict(VARIANTS["fpisa-a"]))
