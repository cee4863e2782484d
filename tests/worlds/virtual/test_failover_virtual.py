"""A switch of a job's tree fails in virtual time: the same machines, the same program, and sums that are right."""

from __future__ import annotations

import numpy as np
import pytest
from test_failover import move

from ina import topology as topologies
from ina.aggregation.controller.admission import AdmissionError
from ina.aggregation.worker.failover import Movable
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.entities import delete
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
HOSTS = ("h1", "h2", "h5", "h9")
VALUES, SLOTS = 256, 64
US = 10**6  # ps


class Dead:
    """A switch that does not answer, and does nothing."""

    def write(self, updates):
        raise TimeoutError("no answer")

    def read(self, entities):
        raise TimeoutError("no answer")


class VirtualMachine:
    """A worker in the fabric, with the interface for Movable; results are taken from it on request, as from an endpoint."""

    def __init__(self, fabric, machine):
        self.fabric, self.machine, self.results = fabric, machine, {}

    def submit(self, source, out, *, average, tag, reduction):
        result = np.zeros_like(out)
        ticket = self.fabric.submit(self.machine, source, result, average=average, tag=tag)
        self.results[ticket] = (result, out)
        return ticket

    def wait(self, ticket, timeout):
        self.fabric.finished |= {c.ticket for c in self.fabric.completions() if c.event.error() is None}
        if ticket not in self.fabric.finished:
            raise TimeoutError("not yet")
        result, out = self.results[ticket]
        out[:] = result

    def abort(self):
        """Does nothing: no thread drives the machine any more; its frames are an older job's."""

    def close(self):
        """It stays where it is."""


@pytest.fixture(scope="module")
def program():
    return compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(VALUES), "SLOTS": "256"})


def kill(fabric, switch):
    """Removes the switch's entries, so that it serves nobody, and nobody reaches it."""
    real = fabric.controller.targets[switch]
    fabric.controller.targets[switch] = Dead()
    fabric.controller.down[switch] = "no answer"
    job = fabric.controller.jobs["job"]
    real.write(delete(*fabric.controller.program.job(job.place(job.branches[switch]))))


def machines_of(fabric, job):
    return [VirtualMachine(fabric, machine) for machine in job.stripes[0]]


@pytest.mark.parametrize("microseconds", [5, 250, 450, 520, 700, 1100])
@pytest.mark.parametrize("victim", ["root", "inner"])
def test_a_switch_of_the_tree_fails_at_any_time(program, microseconds, victim):
    """Four workers over three pods of a fat-tree at 10 Gb/s; three tensors; the root or an aggregation switch dies."""
    topology = topologies.load("fat-tree", k=4, rate=10e9, delay=1e-6, loss=1e-3)
    rng = np.random.default_rng(1)
    arrays = [[rng.integers(-1000, 1000, 150_000).astype(np.int32) for _ in HOSTS] for _ in range(3)]
    expected = [np.sum(each, axis=0, dtype=np.int32) for each in arrays]
    with Fabric(program, topology, pool=256) as fabric:
        fabric.finished = set()
        job = fabric.admit(HOSTS, SLOTS, VALUES, name="job", rto_min=100e-6, timeout=0.02)
        workers = [Movable(machine, SLOTS, VALUES) for machine in machines_of(fabric, job)]
        for each in arrays:
            for worker, array in zip(workers, each, strict=True):
                worker.submit(array, array)
        fabric.run(microseconds * US)
        tree = job.jobs[0].tree
        dead = tree.root if victim == "root" else next(s for s in tree.switches if tree.parent.get(s) == tree.root)
        kill(fabric, dead)
        fabric.run((microseconds + 50) * US)  # what is under way arrives, or is lost
        moved = fabric.controller.move("job")
        assert dead not in moved.tree.switches and moved.incarnation != job.jobs[0].incarnation
        new = [VirtualMachine(fabric, fabric.join(moved, i, host, VALUES, {"rto_min": 100e-6, "timeout": 1.0}))
               for i, host in enumerate(HOSTS)]
        _, again = move(workers, new)
        assert again == 9 if microseconds < 100 else 0 < again <= 9, "nine parts in all"
        fabric.run()
        for number, each in enumerate(arrays):
            for worker, array in zip(workers, each, strict=True):
                worker.wait(number, 0)
                assert (array == expected[number]).all()


def test_without_another_way_the_job_is_over(program):
    topology = topologies.load("leaf-spine", leaves=2, spines=1, hosts=2, rate=10e9)
    with Fabric(program, topology, pool=256) as fabric:
        fabric.admit(("h1", "h3"), SLOTS, VALUES, name="job")
        kill(fabric, "s3")
        with pytest.raises(AdmissionError, match="no tree reaches h1, h3: s3: no answer"):
            fabric.controller.move("job")
        assert fabric.controller.jobs == {} and fabric.controller.free_slots("s1") == 256
