"""Jobs over trees of switches in virtual time: every sum is NumPy's, with frames lost, doubled or late on any link."""

from __future__ import annotations

import numpy as np
import pytest
from capabilities import need
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ina.aggregation.wire import layout
from ina.base import paths
from ina.net.ports import Faults
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric, FabricJob

pytestmark = pytest.mark.build
need("cc")

VALUES, DELAY = 32, 2e-6


@pytest.fixture(scope="module")
def program():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"})
    return Program(built.so_path)


TWO_LEVELS = load("leaf-spine", leaves=3, spines=1, hosts=2, rate=10e9, delay=DELAY)
THREE_LEVELS = load("fat-tree", k=4, rate=10e9, delay=DELAY)
PLACES = {  # one and two workers at a leaf; with the core as root, and within a pod
    "two levels": (TWO_LEVELS, ("h1", "h2", "h3", "h5", "h6")),
    "three levels": (THREE_LEVELS, ("h1", "h2", "h3", "h5", "h9", "h10")),
    "one pod": (THREE_LEVELS, ("h1", "h3", "h4")),
}


def tensors(workers: int, elements: int, dtype: type, seed: int) -> list[np.ndarray]:
    """float32: integers and eighths that every sum has exactly."""
    rng = np.random.default_rng(seed)
    if dtype is np.int32:
        return list(rng.integers(-(2**31), 2**31, (workers, elements), dtype=np.int64).astype(np.int32))
    return list((rng.integers(-(2**15), 2**15, (workers, elements)) / 8).astype(np.float32))


def check_sums(fabric: Fabric, job: FabricJob, elements: int, dtype: type, seed: int) -> None:
    arrays = tensors(len(job.hosts), elements, dtype, seed)
    expected = np.sum(arrays, axis=0, dtype=dtype)
    outcome = fabric.all_reduce(job, arrays)
    outcome.raise_failed()
    assert len(outcome.completions) == len(arrays)
    for host, array in zip(job.hosts, arrays, strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=host)


FAULTS = st.builds(
    Faults,
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    duplicate=st.sampled_from([0.0, 0.02, 0.2]),
    reorder=st.sampled_from([0.0, 0.05, 0.3]),
    duplicate_delay=st.sampled_from([0.0, 5e-6, 100e-6]),
    reorder_delay=st.sampled_from([0.0, 5e-6, 100e-6]),
    seed=st.integers(0, 2**16),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(sorted(PLACES)),
    faults=FAULTS,
    slots=st.sampled_from([1, 2, 8]),
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=3),
    dtype=st.sampled_from([np.int32, np.float32]),
)
def test_sums_are_numpys_whatever_happens_on_the_way(program, place, faults, slots, sizes, dtype):
    topology, hosts = PLACES[place]
    with Fabric(program, topology, pool=16, faults=faults, seed=faults.seed) as fabric:
        job = fabric.admit(hosts, slots, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=60.0)
        for number, elements in enumerate(sizes):
            check_sums(fabric, job, elements, dtype, faults.seed + number)


@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_one_tensor_up_and_one_down_each_link_of_the_tree(program, place, dtype):
    """Frames of the tree's links are those of one worker on one switch: nothing is sent twice, nothing goes elsewhere."""
    topology, hosts = PLACES[place]
    elements, slots = 10 * VALUES, 4
    with Fabric(program, topology, pool=16) as fabric:
        job = fabric.admit(hosts, slots, VALUES, rto_min=1.0, rto_max=1.0, timeout=60.0)
        check_sums(fabric, job, elements, dtype, 1)
        fabric.check()
        head = layout.load(VALUES).offset("values") + 24  # with Ethernet's overhead
        whole = head + 4 * VALUES
        if dtype is np.int32:
            packets, size = 11, 11 * whole  # the open packet and the blocks
        else:
            packets, size = 14, 11 * whole + 3 * head  # the other first slots' exponents travel alone
        for traffic in fabric.links():
            used = traffic.link in job.jobs[0].tree.links
            assert (traffic.packets, traffic.bytes) == ((packets, size) if used else (0, 0)), traffic


def test_overflow_at_a_leaf_is_told_everywhere(program):
    topology, hosts = PLACES["two levels"]
    with Fabric(program, topology, pool=16) as fabric:
        job = fabric.admit(hosts, 4, VALUES, rto_min=1.0, rto_max=1.0, timeout=60.0)
        arrays = [np.full(100, 2**30 if worker < 2 else 0, np.int32) for worker in range(len(hosts))]
        outcome = fabric.all_reduce(job, arrays)
        assert all(completion.event.overflow for completion in outcome.completions)
        assert all((array == -(2**31)).all() for array in arrays)


def test_not_finite_anywhere_is_not_finite_everywhere(program):
    topology, hosts = PLACES["three levels"]
    with Fabric(program, topology, pool=16) as fabric:
        job = fabric.admit(hosts, 4, VALUES, rto_min=1.0, rto_max=1.0, timeout=60.0)
        arrays = tensors(len(hosts), 3 * VALUES, np.float32, 1)
        arrays[3][VALUES + 5] = np.inf
        expected = np.sum(arrays, axis=0)
        fabric.all_reduce(job, arrays).raise_failed()
        for array in arrays:
            assert np.isnan(array[VALUES : 2 * VALUES]).all()
            np.testing.assert_array_equal(array[:VALUES], expected[:VALUES])
            np.testing.assert_array_equal(array[2 * VALUES :], expected[2 * VALUES :])


def test_who_is_missing_is_known_at_other_leaves(program):
    """A worker that never comes: those at its leaf name it, the others all workers of its leaf."""
    topology, hosts = PLACES["two levels"]  # two workers at s1, one at s2, two at s3
    with Fabric(program, topology, pool=16) as fabric:
        job = fabric.admit(hosts, 4, VALUES, rto_min=50e-6, rto_max=1e-3, timeout=0.05)
        for worker in (0, 1, 2, 3):
            fabric.submit(job.machines[worker], np.ones(10, np.int32))
        fabric.run()
        missing = {job.machines.index(c.machine): c.event.missing for c in fabric.completions()}
        assert missing == {0: (3, 4), 1: (3, 4), 2: (3, 4), 3: (4,)}
