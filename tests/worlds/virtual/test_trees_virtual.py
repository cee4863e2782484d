"""Hierarchical aggregation in virtual time: traffic of each link of a tree, exact sums under loss, striped trees."""

from collections import Counter

import native_codec as codec
import numpy as np
import pytest
from capabilities import need
from hypothesis import given, settings
from hypothesis import strategies as st
from stripes import tensors_per_link

from ina import topology as topologies
from ina.aggregation.worker.config import ETHERNET_OVERHEAD, HEADERS
from ina.aggregation.worker.errors import JobMismatch
from ina.base import paths
from ina.net.ports import Faults
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
need("cc")
VALUES = 32


@pytest.fixture(scope="module")
def program():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(VALUES), "SLOTS": "512"})
    return Program(built.so_path)


NETWORKS = {
    "star": {"hosts": 8},
    "leaf-spine": {"leaves": 4, "spines": 2, "hosts": 2},
    "fat-tree": {"k": 4},
    "topoopt": {"servers": 8, "degree": 4},
}


def fabric(program, name, **options):
    topology = topologies.load(name, rate=10e9, delay=1e-6, queue=0, **NETWORKS[name])
    return Fabric(program, topology, **options)


def admit(net, workers, **options):
    timing = {"rto_min": 50e-6, "rto_max": 2e-3, "timeout": 10.0}
    return net.admit([f"h{i + 1}" for i in range(workers)], options.pop("slots", 16), VALUES, **timing, **options)


def reduce(net, job, count, seed=0, **options):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-(2**31), 2**31, count, np.int32) for _ in job.hosts]
    expected = np.sum(arrays, axis=0, dtype=np.int32)
    outcome = net.all_reduce(job, arrays, **options)
    outcome.raise_failed()
    for array in arrays:
        np.testing.assert_array_equal(array, expected)
    net.check()
    return outcome


def tensor_bytes(count):
    """Bytes of one worker's tensor on the wire: a packet that opens the tensor, and one a block."""
    return (1 + -(-count // VALUES)) * (HEADERS + 4 * VALUES + ETHERNET_OVERHEAD)


@pytest.mark.parametrize("stripes", [1, 2, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_each_link_of_a_tree_carries_one_tensor_up_and_one_down(program, name, stripes):
    """Links carry nothing else, to the byte, for any number of workers below a link."""
    count = 256 * 48
    with fabric(program, name, pool=512) as net:
        job = admit(net, 8, stripes=stripes)
        reduce(net, job, count)
        uses = Counter(link for admitted in job.jobs for link in admitted.tree.links)
        for traffic in net.links():
            assert traffic.bytes == uses[traffic.link] * tensor_bytes(count // stripes), traffic
        model = tensors_per_link([admitted.tree for admitted in job.jobs])
        assert max(model.values()) * 4 * count == pytest.approx(net.busiest().bytes, rel=0.7), "the model leaves headers out"
        assert sum(net.worker_stats(machine)["retransmissions"] for machine in job.machines) == 0


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_exact_when_any_link_loses_repeats_and_reorders(program, name, rate):
    faults = Faults(rate, rate, rate, rate / 10, 60e-6, 20e-6)
    with fabric(program, name, pool=64, faults=faults, seed=3) as net:
        job = admit(net, 8, slots=8)
        for count in (1, 40, 6000):
            reduce(net, job, count, seed=count)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(list(NETWORKS)),
    workers=st.integers(1, 8),
    stripes=st.sampled_from([1, 1, 2, 3]),
    slots=st.sampled_from([1, 2, 16]),
    rate=st.sampled_from([0.0, 0.03, 0.1]),
    count=st.integers(1, 3000),
    seed=st.integers(0, 2**20),
)
def test_any_tree_job_is_exact(program, name, workers, stripes, slots, rate, count, seed):
    faults = Faults(rate, rate, rate, rate / 10, 60e-6, 20e-6)
    with fabric(program, name, pool=64, faults=faults, seed=seed) as net:
        job = admit(net, workers, slots=slots, stripes=stripes)
        starts = np.random.default_rng(seed).integers(0, 10**8, workers).tolist()
        reduce(net, job, count, seed, starts=starts)


@pytest.mark.parametrize("name", ["fat-tree", "topoopt"])
def test_two_jobs_with_common_switches_keep_apart(program, name):
    with fabric(program, name, pool=64, faults=Faults(loss=0.01)) as net:
        jobs = [admit(net, 8, slots=8, name="a"), admit(net, 5, slots=16, name="b")]
        rng = np.random.default_rng(1)
        arrays = [[rng.integers(-99, 99, 5000).astype(np.int32) for _ in job.hosts] for job in jobs]
        expected = [np.sum(a, axis=0, dtype=np.int32) for a in arrays]
        for job, mine in zip(jobs, arrays, strict=True):
            net.submit_all(job, mine)
        assert net.run()
        net.check()
        for completion in net.completions():
            assert completion.event.error() is None
        for mine, right in zip(arrays, expected, strict=True):
            for array in mine:
                np.testing.assert_array_equal(array, right)


def test_four_striped_trees_halve_the_time_on_topoopt(program):
    """docs/guide/topologies.md: the busiest link carries 1 tensor, or 1/2 with four trees on 8 servers of degree 4."""
    seconds = {}
    for stripes in (1, 4):
        with fabric(program, "topoopt", pool=512) as net:
            job = admit(net, 8, slots=128, stripes=stripes)
            seconds[stripes] = reduce(net, job, VALUES * 4000).seconds
    assert seconds[1] / seconds[4] == pytest.approx(2, rel=0.1)


@pytest.mark.later
def test_a_thousand_hosts(program):
    """fat_tree(16): 1,024 hosts, 320 switches, eight jobs over trees of their own at once."""
    topology = topologies.load("fat-tree", k=16, rate=100e9, delay=1e-6)
    with Fabric(program, topology, pool=64, max_frame=256) as net:
        hosts = [host.name for host in topology.hosts]
        jobs = [net.admit(hosts[i::32], 8, VALUES, rto_min=1e-3) for i in range(8)]
        assert all(job.jobs[0].tree.depth == 3 for job in jobs), "each has workers in all pods"
        source = np.arange(VALUES * 20, dtype=np.int32) << 10  # some sums wrap
        out = np.zeros(VALUES * 20, np.int32)
        for job in jobs:
            for worker in range(32):
                net.submit_one(job, worker, source, out)  # all workers have the same sum: one array takes them all
        assert net.run()
        net.check()
        assert {completion.event.error() for completion in net.completions()} == {None}
        np.testing.assert_array_equal(out, 32 * source)
        assert net.drops() == {} and sum(net.worker_stats(m)["retransmissions"] for job in jobs for m in job.machines) == 0


def test_two_runs_of_one_seed_are_equal_to_the_bit(program):
    def run(seed):
        with fabric(program, "fat-tree", pool=64, faults=Faults(0.02, 0.02, 0.02, 0, 60e-6, 20e-6), seed=seed) as net:
            return reduce(net, admit(net, 8), 3000).seconds, net.stats()

    assert run(1) == run(1)
    assert run(1)[1]["digest"] != run(2)[1]["digest"]


def big(program, workers=128, **options):
    """A fat-tree of 128 hosts, all of them workers of one job: three levels of switches, each with at most eight children."""
    topology = topologies.load("fat-tree", k=8, rate=10e9, delay=1e-6)
    net = Fabric(program, topology, pool=64, max_frame=256, **options)
    return net, net.admit([host.name for host in topology.hosts][:workers], 16, VALUES, rto_min=100e-6, rto_max=2e-3,
                         timeout=1.0)


@pytest.mark.parametrize("rate", [0.0, 0.005])
def test_more_workers_than_a_bitmap_has_bits(program, rate):
    net, job = big(program, faults=Faults(rate, rate, rate, 0, 60e-6, 20e-6), seed=3)
    with net:
        rng = np.random.default_rng(2)
        arrays = [rng.integers(-(2**31), 2**31, 4000, np.int32) for _ in range(128)]
        expected = np.sum(arrays, axis=0, dtype=np.int32)
        net.all_reduce(job, arrays).raise_failed()
        assert all((array == expected).all() for array in arrays)
        if rate == 0:
            assert sum(net.worker_stats(machine)["retransmissions"] for machine in job.machines) == 0
            tree = job.jobs[0].tree
            up = next(t for t in net.links() if (t.target, t.source) == (tree.root, tree.children(tree.root)[0]))
            assert up.packets == -(-4000 // VALUES) + 1, "one packet for 16 workers below"


def test_floats_of_a_thousand_workers_have_head_room(program):
    """Large values of one sign: sums of 128 do not overflow; small tensors take the same way as large ones."""
    net, job = big(program)
    with net:
        rng = np.random.default_rng(4)
        for count in (1, 3, 700):
            rows = (2.0**100 * (1 - rng.random((128, count)) / 8)).astype(np.float32)
            arrays = list(rows.copy())
            net.all_reduce(job, arrays).raise_failed()
            right, bound = rows.sum(axis=0, dtype=np.float64), codec.error_bound(100, 128)
            assert np.abs(arrays[0] - right).max() <= bound + 2.0**-23 * right.max()
            assert all((array == arrays[0]).all() for array in arrays)
        assert codec.shift(1024) == 20 and codec.error_bound(0, 1024) == 1024 * 2.0**-21


def test_what_workers_of_a_large_job_hear_of_each_other(program):
    """One is missing: the switches that wait have bits for children, so nobody is named. One differs: all fail."""
    net, job = big(program)
    with net:
        for worker in range(127):
            net.submit_one(job, worker, np.ones(4000, np.int32))
        net.run()
        errors = [completion.event.error() for completion in net.completions()]
        assert len(errors) == 127 and "a switch of the job's tree still waits for 1 of its children" in str(errors[0])
    net, job = big(program)
    with net:
        net.submit_all(job, [np.ones(4000 + (worker == 77), np.int32) for worker in range(128)])
        net.run()
        errors = [completion.event.error() for completion in net.completions()]
        assert len(errors) == 128 and all(isinstance(error, JobMismatch) for error in errors)


@pytest.mark.later
@pytest.mark.parametrize("check", ["sum", "keyed"])
def test_one_job_of_a_thousand_workers(program, check):
    topology = topologies.load("fat-tree", k=16, rate=100e9, delay=1e-6)
    with Fabric(program, topology, pool=64, max_frame=256) as net:
        job = net.admit([host.name for host in topology.hosts], 16, VALUES, rto_min=1e-3, check=check)
        assert len(job.machines) == 1024 and len(job.jobs[0].tree.switches) == 145
        source, out = np.arange(VALUES * 20, dtype=np.int32), np.zeros(VALUES * 20, np.int32)
        for worker in range(1024):
            net.submit_one(job, worker, source, out)
        assert net.progress() == 0 and net.run() and net.progress() == 1
        net.check()
        assert {completion.event.error() for completion in net.completions()} == {None}
        np.testing.assert_array_equal(out, 1024 * source)
        assert net.stats()["frames"] == 21 * 2 * (1024 + 144), "each link of the tree carries each packet once up and once down"
