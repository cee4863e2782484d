"""Frames without their values: the same packets at the same picoseconds, under loss, delay, marks and collisions."""

import numpy as np
import pytest
from capabilities import need
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ina import topology as topologies
from ina.aggregation import protocols
from ina.aggregation.entries.atp import ATP
from ina.base import paths
from ina.lab.kinds import allreduce, sharing, workload
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.sharing import Sharing
from ina.lab.kinds.workload import Workload
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.network import Wire
from ina.worlds.virtual.parameter_servers import Servers
from ina.worlds.virtual.shared_switch import Shared

pytestmark = pytest.mark.build
need("cc")
# What follows from values: sums that overflowed or are not finite, and the bytes that were compared or stored.
OF_VALUES = {"digest", "memory", "overflows", "nonfinite_blocks", "flushed"}


def program(name, pool, values=32):
    return compile_program(paths.p4_dir() / f"{name}.p4", defines={"VALUES": str(values), "SLOTS": str(pool)}).so_path


def tensors(rng, dtype, workers, count):
    if dtype == "int32":
        return [rng.integers(-(2**31), 2**31, count, np.int32) for _ in range(workers)]
    # Blocks of very different sizes, so that exponents matter; and one that integers cannot carry.
    rows = np.ldexp(rng.standard_normal((workers, count)), rng.integers(-40, 40, count)).astype(np.float32)
    rows[0, count // 2] = np.inf
    return list(rows)


def outcome(network, machines):
    """All figures of a run that do not depend on values."""
    network.run()
    done = [(c.ticket, c.machine, c.time, str(c.event.error())) for c in network.completions()]
    network.check()
    stats = {key: value for key, value in network.stats().items() if key not in OF_VALUES}
    workers = [{k: v for k, v in network.worker_stats(m).items() if k not in OF_VALUES} for m in machines]
    return done, stats, workers, network.links(), network.drops()


def in_fabric(protocol, topology, options, payload, *, workers, slots, count, dtype, faults, ecn, seed):
    pool = 64 if protocol == "switchml" else 16
    load = topologies.load(topology, **options, rate=10e9, delay=1e-6)
    with Fabric(program(protocol, pool), load, pool=pool, protocol=protocol, faults=faults, ecn=ecn, seed=seed, max_frame=400,
                payload=payload) as fabric:
        hosts = [host.name for host in load.hosts]
        if protocol == "atp":
            servers = Servers(fabric)
            servers.add(hosts.pop())
        jobs = [fabric.admit(hosts[i::2][:workers], slots, 32, rto_min=100e-6, rto_max=5e-3) for i in range(2)]
        rng = np.random.default_rng(seed)
        for job in jobs:
            if protocol == "atp":
                servers.serve(job, 32)
            fabric.submit_all(job, tensors(rng, dtype, workers, count))
        result = outcome(fabric, [machine for job in jobs for machine in job.machines])
        return result, [servers.stats(job.jobs[0].number) for job in jobs] if protocol == "atp" else []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    protocol=st.sampled_from(["switchml", "atp"]),
    topology=st.sampled_from([("star", {"hosts": 9}), ("leaf-spine", {"leaves": 2, "spines": 1, "hosts": 5}),
                              ("fat-tree", {"k": 4})]),
    workers=st.integers(2, 4), slots=st.sampled_from([4, 16]), count=st.integers(1, 4000),
    dtype=st.sampled_from(["int32", "float32"]), rate=st.sampled_from([0.0, 0.01]), ecn=st.sampled_from([0, 3000]),
    seed=st.integers(0, 2**16),
)
def test_everything_happens_at_the_same_time(protocol, topology, workers, slots, count, dtype, rate, ecn, seed):
    arguments = {"workers": workers, "slots": slots, "count": count, "dtype": dtype, "ecn": ecn, "seed": seed,
                 "faults": Faults(rate, rate, rate, rate / 10, 20e-6, 20e-6)}
    assert in_fabric(protocol, *topology, True, **arguments) == in_fabric(protocol, *topology, False, **arguments)


@pytest.mark.parametrize("ecn_depth", [0, 8])
def test_collisions_in_aggregators_and_marks_come_alike(ecn_depth):
    """Three ATP jobs, a quarter of the aggregators that they want: the parameter servers do the rest."""
    runs = []
    for payload in (True, False):
        wire = Wire(rate=10e9, delay=1e-6, queue=30_000)
        with Shared(program("atp", 16), ATP(ecn_depth=ecn_depth, lifetime=0.05), hosts=12, wire=wire, pool=16,
                    payload=payload) as network:
            jobs = [network.admit(f"job {i}", 3, 16, 32, rto_min=100e-6, rto_max=5e-3) for i in range(3)]
            rng = np.random.default_rng(7)
            for job in jobs:
                for machine, array in zip(job.machines, tensors(rng, "int32", 3, 20_000), strict=True):
                    network.submit(machine, array)
            machines = [m for job in jobs for m in job.machines]
            runs.append((outcome(network, machines), [network.server_stats(job) for job in jobs]))
    assert runs[0] == runs[1]
    marked, collided = (sum(worker[key] for worker in runs[0][0][2]) for key in ("marked", "collided"))
    assert collided > 0 and (marked > 0) == (ecn_depth > 0)


def test_values_do_not_travel():
    """Zeros come in their place, but the first ones of a packet; frames need less memory."""
    memory, values = {}, 256
    for payload in (True, False):
        with Fabric(program("switchml", 64, values), topologies.load("star", hosts=2, rate=10e9), pool=64,
                    max_frame=1100, payload=payload) as fabric:
            job = fabric.admit(["h1", "h2"], 64, values)
            arrays = [np.ones(values * 100, np.int32) for _ in range(2)]
            fabric.all_reduce(job, arrays).raise_failed()
            sums = np.unique(arrays[0].reshape(100, values)[:, 20:])
            assert list(sums) == ([2] if payload else [0])
            memory[payload] = fabric.stats()["memory"] / fabric.stats()["most_frames"]
    assert memory[False] < 250 < memory[True]


@pytest.mark.parametrize("measure,config", [
    (allreduce.reduce, AllReduce(workers=4, elements=9000, values=32, loss=0.01, rto_min=50e-6, payload=False)),
    (allreduce.reduce, AllReduce(workers=4, elements=9000, values=32, tensors="common", dtype="float32", payload=False)),
    (sharing.share, Sharing(protocol="atp", jobs=2, workers=2, window=16, elements=9000, values=32, payload=False)),
    (workload.train, Workload(workers=2, steps=1, bucket_mb=0.2, values=256, payload=False)),
])
def test_experiments_say_that_sums_are_not_checked(measure, config):
    from dataclasses import replace

    without, with_values = measure(config), measure(replace(config, payload=True))
    for less, more in zip(without, with_values, strict=True):
        assert less.summary()["sums"] == "not checked" and more.summary()["sums"] is None
        assert {**less.summary(), "sums": None} == more.summary()
        assert less.stats["network"]["timing"] == more.stats["network"]["timing"]


def test_a_tensor_that_all_have_is_checked_in_one_place():
    config = AllReduce(workers=8, elements=9000, values=32, tensors="common", topology="fat-tree k=4")
    assert allreduce.reduce(config)[0].summary()["sums"] is None
    right, allowed = allreduce.expected([np.array([3, 2**31 - 1], np.int32)], 8, protocols.DEFAULT, protocols.SUM)
    assert right.tolist() == [24, -8] and allowed == 0


def test_reports_of_many_jobs_without_sums_can_be_drawn(tmp_path):
    """Values that are not numbers are not plotted, and of twenty lines three are."""
    need("matplotlib")
    from rich.console import Console

    from ina.lab import plan, sweep

    (tmp_path / "many.toml").write_text("""kind = "allreduce"
name = "many"
topology = "star hosts=40"
workers = 2
jobs = 20
elements = 500
values = 32
payload = false
""")
    folder = sweep.sweep(plan.load(tmp_path / "many.toml"), tmp_path, Console(quiet=True))
    page = (folder / "report.html").read_text()
    assert "median of 20" in page and "not checked" in page
