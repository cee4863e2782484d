"""Tensors of 16-bit floats: a worker reads and writes them as they are. The judge is the same tensor as float32, rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from capabilities import need

from ina.aggregation.lane import BFLOAT16
from ina.aggregation.worker import Route, Worker, WorkerConfig
from ina.base import paths
from ina.codecs import halves
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.parameter_servers import Servers

need("cc")
pytestmark = pytest.mark.build
VALUES = 64
DTYPES = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
STAR, TREE = load("star", hosts=3), load("leaf-spine", leaves=2, spines=1, hosts=2)
SIZES = (1, 5, 6, 63, 64, 65, 3000)  # in the open packet, in one block, in several
FAULTS = {"clean": Faults(seed=1), "lossy": Faults(loss=0.02, duplicate=0.02, reorder=0.05, seed=2)}


@pytest.fixture(scope="module", params=["switchml", "atp", "ps", "receivers"])
def program(request):
    built = compile_program(paths.p4_dir() / f"{request.param}.p4", defines={"VALUES": str(VALUES), "SLOTS": "32"})
    return request.param, Program(built.so_path)


def narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return halves.narrowed(values, halves.BFLOAT16 if dtype == BFLOAT16 else dtype).view(dtype)


def widened(values: np.ndarray) -> np.ndarray:
    return halves.widened(values.view(halves.BFLOAT16) if values.dtype == BFLOAT16 else values)


def bits(values: np.ndarray) -> list[int]:
    """The bits of each value; of NaN always the same."""
    return np.where(np.isnan(widened(values)), 0x7FFF, values.view(np.uint16)).tolist()


def drawn(rng: np.random.Generator, size: int, special: bool) -> np.ndarray:
    """Values of all magnitudes of both types, subnormal ones of float16 among them; special: some are not finite, or overflow."""
    values = (rng.standard_normal(size) * np.exp(rng.uniform(-16, 8, size))).astype(np.float32)
    if special:
        values[rng.integers(0, size)] = rng.choice(np.float32([np.inf, -np.inf, np.nan, 65504, 3e38, 2.0**126]))
    return values


@contextmanager
def world_of(program: tuple[str, Program], topology, faults: Faults, check: str = "sum") -> Iterator[tuple[Fabric, FabricJob]]:
    """A job of all hosts, or of all but the last, which is the parameter server where the protocol needs one."""
    (name, compiled), hosts = program, [host.name for host in topology.hosts]
    with Fabric(compiled, topology, pool=32, faults=faults, seed=3, protocol=name) as world:
        if served := name in ("atp", "ps"):
            servers = Servers(world)
            servers.add(hosts.pop())
        job = world.admit(hosts, 8, VALUES, rto_min=200e-6, rto_max=5e-3, timeout=60.0, check=check)
        if served:
            servers.serve(job, VALUES)
        yield world, job


@pytest.mark.parametrize("average", [False, True], ids=["sum", "average"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
def test_sums_are_those_of_float32_rounded_to_the_type(program, topology, faults, dtype, average):
    rng = np.random.default_rng(5)
    with world_of(program, topology, faults) as (world, job):
        hosts = job.hosts
        for size in SIZES:
            for special in (False, True):
                own = [narrowed(drawn(rng, size, special), dtype) for _ in hosts]
                wide = [widened(each) for each in own]
                before = [each.copy() for each in own]
                outs = [np.zeros_like(each) for each in own]
                world.all_reduce(job, wide, average=average).raise_failed()
                for rank, (each, out) in enumerate(zip(own, outs, strict=True)):
                    world.submit_one(job, rank, each, out, average=average)
                world.run()
                assert all(each.event.error() is None for each in world.completions())
                for each, was in zip(own, before, strict=True):
                    assert np.array_equal(each.view(np.uint16), was.view(np.uint16))
                world.all_reduce(job, own, average=average).raise_failed()  # in place
                for each, out, exact in zip(own, outs, wide, strict=True):
                    assert bits(each) == bits(own[0]) and bits(out) == bits(outs[0])
                    if not (special and program[0] in ("atp", "ps")):  # a server adds up floats in the order in which they come
                        assert bits(each) == bits(out) == bits(narrowed(exact, dtype)), (size, special)
                    assert np.allclose(widened(each), widened(narrowed(exact, dtype)), rtol=2.0**-7, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
def test_sums_along_routes_are_those_of_float32(topology, dtype):
    """Also where a receiver adds its own values to those of the others."""
    built = compile_program(paths.p4_dir() / "receivers.p4", defines={"VALUES": str(VALUES), "SLOTS": "32"})
    rng = np.random.default_rng(6)
    with world_of(("receivers", Program(built.so_path)), topology, FAULTS["lossy"]) as (world, job):
        pieces = [int(each) for each in rng.integers(1, 900, len(job.hosts))]
        for route in (Route.reduce(1), Route.reduce_scatter(pieces)):
            own = [narrowed(drawn(rng, sum(pieces), False), dtype) for _ in job.hosts]
            wide = [widened(each) for each in own]
            world.all_reduce(job, wide, route=route).raise_failed()
            world.all_reduce(job, own, route=route).raise_failed()
            for each, exact in zip(own, wide, strict=True):
                assert bits(each) == bits(narrowed(exact, dtype))


def flushed(values: list[np.ndarray]) -> int:
    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(VALUES), "SLOTS": "32"})
    with world_of(("switchml", Program(built.so_path)), STAR, FAULTS["clean"]) as (world, job):
        world.all_reduce(job, values).raise_failed()
        return sum(world.worker_stats(machine)["flushed"] for machine in job.machines)


@pytest.mark.parametrize("check", ["off", "sum", "keyed"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_check_words_are_of_the_tensor_as_it_is(program, faults, dtype, check):
    """Keyed ones say which values have the exponent that all workers agreed on, so the tensor is read for them once more."""
    with world_of(program, STAR, faults, check) as (world, job):
        for size in SIZES:
            own = [narrowed(drawn(np.random.default_rng(size + rank), size, False), dtype) for rank, _ in enumerate(job.hosts)]
            wide = [widened(each) for each in own]
            world.all_reduce(job, wide).raise_failed()
            world.all_reduce(job, own).raise_failed()
            for each, exact in zip(own, wide, strict=True):
                assert bits(each) == bits(narrowed(exact, dtype)), size


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_flushed_values_are_counted(dtype):
    own = [narrowed(np.float32([60000] + [1e-7] * 40 + [1.0] * 500), dtype) for _ in range(3)]
    expected = flushed([widened(each) for each in own])
    assert flushed(own) == expected and expected >= (3 if dtype == BFLOAT16 else 0)


def test_types_are_part_of_what_workers_agree_on():
    """Workers with bfloat16, float16 and float32 of as many values have other first packets."""
    frames = []
    for dtype in (np.dtype(np.float32), *DTYPES.values()):
        worker = Worker(WorkerConfig(0, 2, life=1, values=VALUES))
        worker.submit(np.zeros(500, dtype))
        frames.append(worker.frames_to_send(0)[0])
    assert len(set(frames)) == 3


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.int32), *DTYPES.values()])
def test_a_tensor_at_an_odd_address_is_refused(dtype):
    """A record's dtype, such as that of bfloat16, is aligned anywhere for NumPy."""
    worker = Worker(WorkerConfig(0, 2, life=1, values=VALUES))
    odd = np.frombuffer(bytearray(1 + 500 * dtype.itemsize), dtype, offset=1)
    with pytest.raises(ValueError, match=f"expected multiples of {dtype.itemsize}"):
        worker.submit(odd)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_maximum_of_halves_is_refused(dtype):
    worker = Worker(WorkerConfig(0, 2, life=1, values=VALUES))
    with pytest.raises(ValueError, match="maximum: only of int32"):
        worker.submit(np.zeros(500, dtype), reduction=1)
