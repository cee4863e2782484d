"""Concurrent jobs: a malicious one, one that joins, one that dies."""

import random
from dataclasses import replace

import numpy as np
import pytest
from atp_network import US, Faults, JobSpec, Network
from capabilities import need
from forger import sealed

from ina.aggregation.worker import Worker

pytestmark = pytest.mark.build
need("cc")
CHECK = 58  # where ATP's check header begins


def rows_of(workers: int, count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (workers, count)).astype(np.int32)


class Mean:
    """Frames of worker 0 of job 1: claims of aggregators that it never releases, garbage, and frames with others' addresses."""

    def __init__(self, network: Network, seed: int):
        self.network, self.random, self.sequence = network, random.Random(seed), 0
        worker: Worker = network.jobs[1].workers[0]
        worker.submit(np.zeros(1, np.int32))
        (self.own,) = worker.frames_to_send(0)
        victim = Worker(replace(network.jobs[0].workers[1].config))
        victim.submit(np.full(1000, 77, np.int32))
        self.victims = victim.frames_to_send(0)

    def frame(self) -> bytes:
        kind = self.random.random()
        if kind < 0.6:  # a number of its own, in any aggregator
            self.sequence += 1
            frame = bytearray(self.own)
            frame[44:46] = self.random.randbytes(2)
            frame[49:54] = self.sequence.to_bytes(5, "big")
            frame[62:] = self.random.randbytes(len(frame) - 62)
            frame[:] = sealed(frame, CHECK)
        else:
            frame = bytearray(self.random.choice(self.victims))
            if kind < 0.7:  # its own address, the victim's job and life
                frame[:42] = self.own[:42]
            elif kind < 0.8:  # and its own job, with somebody else's bit or result
                frame[:42], frame[46:49] = self.own[:42], self.own[46:49]
                frame[42] = self.random.choice([0x10, 0x18, 0x20, 0x30, 0x40, 0x50])
                frame[54:58] = self.random.randbytes(4)
                frame[:] = sealed(frame, CHECK)
            elif kind < 0.9:  # the victim's frames as they are, from the wrong port
                pass
            elif kind < 0.95:
                frame = bytearray(self.own[:42] + self.random.randbytes(self.random.choice([10, 18, 144])))
            else:
                frame = bytearray(self.random.randbytes(self.random.choice([20, 60, 186, 200])))
        return bytes(frame)

    def flood(self, frames: int) -> None:
        for _ in range(frames):
            self.network.inject(1, 0, self.frame())


def finish(network: Network, job: int, meanwhile) -> int:
    """Runs until every worker of the job has its sum; returns how long that took, ps."""
    start = network.now
    while not all(network.events[job]):
        assert network.now - start < 10**12, "the job does not finish"
        meanwhile()
        network.run(until=network.now + 10 * US)
        network.now += 10 * US
    return network.now - start


@pytest.mark.parametrize("leaves", [0, 2])
@pytest.mark.parametrize("pool", [8, 64])
@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.02, duplicate=0.02, reorder=0.02)])
def test_a_mean_neighbour_changes_no_sum_and_stops_nobody(leaves, pool, faults):
    network = Network([JobSpec(3, 16), JobSpec(2, 16)], pool=pool, leaves=leaves, faults=faults, seed=5, lifetime=0.002)
    mean = Mean(network, 3)
    network.silent = {(1, 0), (1, 1)}
    rows = rows_of(3, 10_000)
    expected = rows.sum(axis=0, dtype=np.int32)
    network.submit(0, rows)
    finish(network, 0, lambda: mean.flood(20))
    assert [e.code for worker in network.events[0] for e in worker] == [0] * 3
    assert (rows == expected).all()
    fates = network.fates(1)
    assert fates["claimed"] + fates["taken"] > pool / 2
    assert network.jobs[0].server.stats["drop_foreign"] == network.jobs[0].server.stats["drop_malformed"] == 0
    drops = network.drops(1 if leaves else 0)
    assert {"malformed", "wrong source", "wrong workers"} <= set(drops)


def test_with_all_aggregators_taken_a_job_is_as_fast_as_with_a_plain_server():
    times = {}
    for plain in (True, False):
        network = Network([JobSpec(3, 16, plain), JobSpec(2, 16)], pool=16, seed=5, lifetime=1.0)
        mean = Mean(network, 3)
        network.silent = {(1, 0), (1, 1)}
        mean.flood(500)
        network.run(until=100 * US)
        assert network.held() == 16
        rows = rows_of(3, 10_000)
        network.submit(0, rows)
        times[plain] = finish(network, 0, lambda: None)
        assert (rows == rows[0]).all()
    assert times[False] <= times[True], times


def test_what_a_dead_job_holds_is_taken_over():
    network = Network([JobSpec(2, 16), JobSpec(2, 16)], pool=16, lifetime=0.001)
    network.silent = {(1, 1)}
    network.submit(1, rows_of(2, 512))
    network.run(until=20 * US)  # one round trip: it holds its window, and dies
    network.silent = {(1, 0), (1, 1)}
    assert network.held() > 8
    network.now = 10**10
    before = network.fates(0)
    for _ in range(3):
        network.submit(0, rows_of(2, 5000))
        network.run()
    after = network.fates(0)
    assert after["taken"] > 8
    collided = [after["collided"] - before["collided"], sum(after.values())]
    assert collided[0] < 0.1 * collided[1], "the pool is free again"


def test_jobs_that_join_and_leave_do_not_disturb_others():
    """A long job beside short ones that begin one after the other."""
    network = Network([JobSpec(3, 16), *[JobSpec(2, 16)] * 4], pool=32, faults=Faults(loss=0.01), seed=2)
    long = rows_of(3, 30_000)
    expected = long.sum(axis=0, dtype=np.int32)
    network.submit(0, long)
    for job in range(1, 5):
        short = rows_of(2, 2000, job)
        sums = short.sum(axis=0, dtype=np.int32)
        network.submit(job, short)
        network.run(until=network.now + 1000 * US)
        assert (short == sums).all(), "done within a millisecond"
    network.run()
    assert (long == expected).all()
    assert [e.code for job in network.events for worker in job for e in worker] == [0] * (3 + 4 * 2)


def test_a_new_life_of_a_job_number_shares_nothing_with_the_old():
    """Lives: the new job takes nothing that the old one left in the pool and in the network."""
    old = Network([JobSpec(2, 4)], pool=4)
    old.submit(0, rows_of(2, 128), only=[0])
    old.run(until=10 * US)
    assert old.held() > 0
    number, config = 0, old.jobs[0].workers[1].config
    stranger = Worker(replace(config, life=config.life + 1))
    stranger.submit(np.full(128, 9, np.int32))
    for frame in stranger.frames_to_send(0):
        old.inject(number, 1, frame)
    old.run(until=20 * US)
    assert old.drops() == {"old life": 4}
