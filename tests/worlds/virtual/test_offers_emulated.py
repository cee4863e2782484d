"""Offers in an emulated network (p4/quorum.p4): who contributes to a sum is decided by the switch before it."""

from functools import partial

import numpy as np
import pytest
from capabilities import need

from ina.aggregation.worker.errors import JobTimeout
from ina.aggregation.worker.offer import Offer
from ina.base import paths
from ina.net.ports import PS
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
need("cc")
WORKERS = 3


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(paths.p4_dir() / "quorum.p4", defines={"VALUES": "32", "SLOTS": "16"}).so_path)


@pytest.fixture(params=["star", "leaf-spine"])
def fabric(request, program):
    shape = {"hosts": WORKERS} if request.param == "star" else {"leaves": 2, "spines": 1, "hosts": 2}
    with Fabric(program, load(request.param, **shape), pool=16, protocol="quorum", seed=1) as made:
        yield made


@pytest.fixture
def job(fabric):
    return fabric.admit([host.name for host in fabric.topology.hosts][:WORKERS], 4, 32, rto_min=1e-3, timeout=1.0)


def _give(fabric, ticket, row, in_time):
    in_time.append(fabric.amend(ticket, row))


def test_a_worker_that_is_late_is_in_the_sum_only_if_others_wait_for_it(fabric, job):
    rows = [np.full(100, rank + 1, np.float32) for rank in range(WORKERS)]
    for least, contributors, mean in ((2, (0, 1), 1.5), (3, (0, 1, 2), 2)):
        outs = [np.empty(100, np.float32) for _ in rows]
        tickets = [fabric.submit(machine, None if rank == 2 else rows[rank], outs[rank], average=True, offer=Offer(least))
                   for rank, machine in enumerate(job.machines)]
        in_time: list[bool] = []
        fabric.plan(fabric.now + PS // 100, partial(_give, fabric, tickets[2], rows[2], in_time))
        assert fabric.run()
        done = fabric.completions()
        assert in_time == [least == 3], "a sum that is complete is over, its completion read or not"
        assert sorted(each.ticket for each in done) == tickets and all(each.event.code == 0 for each in done)
        assert {each.event.contributors for each in done} == {contributors}
        assert all(np.allclose(out, mean) for out in outs)


def test_an_offer_is_changed_only_as_it_may_be(fabric, job):
    out, source = np.empty(40, np.int32), np.arange(40, dtype=np.int32)
    first = fabric.submit(job.machines[0], None, out, offer=Offer(3))
    fabric.amend(first, least=2)
    fabric.amend(first, source)
    for change in ({"source": source}, {"never": True}, {"least": 0}, {"least": 4}):
        with pytest.raises(ValueError, match=r"not to be changed so|expected"):
            fabric.run(fabric.now + PS // 1000)
            fabric.amend(first, **change)
    others = [fabric.submit(machine, source, np.empty(40, np.int32), offer=Offer(3)) for machine in job.machines[1:]]
    fabric.run()
    assert sorted(each.ticket for each in fabric.completions()) == [first, *others]
    assert np.array_equal(out, 3 * source)


def test_an_offer_of_a_stopped_machine_is_said_to_be_one(fabric, job):
    first = fabric.submit(job.machines[0], None, np.empty(40, np.int32), offer=Offer(3))
    fabric.run(fabric.now + PS // 1000)
    fabric.stop_machine(job.machines[0])
    with pytest.raises(ValueError, match=rf"tensor {first}: machine {job.machines[0]} has been stopped"):
        fabric.amend(first, np.zeros(40, np.int32))


def test_an_offer_of_a_job_that_fails_is_over(fabric, job):
    """The others never come: the first tensor fails, and with it one that is submitted later."""
    first = fabric.submit(job.machines[0], np.zeros(40, np.int32), offer=Offer(3))
    later = fabric.submit(job.machines[0], None, np.empty(40, np.int32), offer=Offer(3), at=5 * PS)
    fabric.run(4 * PS)
    assert [(each.ticket, type(each.event.error())) for each in fabric.completions()] == [(first, JobTimeout)]
    assert not fabric.amend(later, np.zeros(40, np.int32))
    fabric.run()
    assert [each.ticket for each in fabric.completions()] == [later]


def test_more_sums_than_a_worker_has_room_for_wait_their_turn(fabric, job):
    """63 tensors in flight leave room for an offer, but not for the tensor behind it."""
    sources = [np.full(8, rank, np.int32) for rank in range(WORKERS)]
    outs = [[np.empty(8, np.int32) for _ in range(70)] for _ in sources]
    for rank, machine in enumerate(job.machines):
        for number, out in enumerate(outs[rank]):
            fabric.submit(machine, sources[rank], out, offer=None if number == 0 else Offer(WORKERS))
    fabric.run()
    done = fabric.completions()
    assert len(done) == 70 * WORKERS and all(each.event.code == 0 for each in done)
    assert all((out == 3).all() for each in outs for out in each)
