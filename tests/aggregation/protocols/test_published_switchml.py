"""The published SwitchML program for Tofino, unmodified, with its controller's entries: INA_SWITCHML_P4 names its switchml.p4."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from switchml_targets import Job, World

from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.embedded import EmbeddedSwitch
from ina.aggregation.entries import recognise
from ina.aggregation.entries.published import PROGRAM
from ina.aggregation.wire import layout
from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce, in_processes
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import TableEntry, modify

pytestmark = pytest.mark.hardware
VALUES = pytest.mark.parametrize("values", [64, 256])


def program() -> Path:
    need("cc", "switchml-p4")
    return Path(os.environ["INA_SWITCHML_P4"])


class Published:
    """Switch target for World and for the controller."""

    def __init__(self, values: int):
        self.values = values
        self.switch = Switch(compile_program(program()), pipes=PROGRAM.pipes)
        for number in PROGRAM.loopback:
            self.switch.add_port(number, loopback=True)
        self.switch.write(PROGRAM.setup())
        for number in range(4):
            self.switch.add_port(number)
        self.write, self.read, self.send = self.switch.write, self.switch.read, self.switch.step

    def counter(self, name: str) -> int:
        return int(self.switch.counter(f"Ingress.next_step_selector.{name}_counter")[:, 0].sum())


@pytest.fixture
def world(request) -> World:
    instance = object.__new__(World)
    instance.values = request.param
    instance.target, instance.wire = Published(instance.values), layout.load(instance.values)
    instance.controller = Controller(instance.target, PROGRAM.max_slots, protocol=PROGRAM)
    yield instance
    instance.target.switch.close()


WORLDS = pytest.mark.parametrize("world", [64, 256], indirect=True)


def results(job: Job, sent) -> dict[int, np.ndarray]:
    """Sums that workers get, by port."""
    sums = {}
    for port, frame in sent:
        headers = job.world.parse(frame)
        assert headers["udp"]["dst_port"] == 4000 and headers["switchml"]["job"] == 0
        sums[port] = np.array(headers["values"]["v"], np.uint32).view(np.int32)
    return sums


@WORLDS
def test_256_and_1024_bytes_are_summed_bit_for_bit(world):
    """Both sets of a slot, twice; every worker's packets come twice, and it gets a lost result again."""
    job, rng = world.admit(3, slots=2), np.random.default_rng(7)
    for tsi in range(10):
        vectors = rng.integers(-(2**31), 2**31, (3, world.values), dtype=np.int32)
        right = vectors.sum(axis=0, dtype=np.int32)
        for worker in (0, 0, 1, 0):
            assert job.send(worker, tsi, vectors[worker]) == []
        sums = results(job, job.send(2, tsi, vectors[2], e0=5))
        assert sorted(sums) == [0, 1, 2]
        for port in sums:
            assert np.array_equal(sums[port], right)
        again = results(job, job.send(1, tsi, vectors[1]))
        assert list(again) == [1] and np.array_equal(again[1], right)
    assert world.target.counter("broadcast") == world.target.counter("retransmit") == 10


@WORLDS
def test_a_job_after_another_finds_nothing_of_it(world):
    """The program cannot tell jobs apart: rows of the last one would be taken for this one's."""
    first = world.admit(2, slots=1, name="first")
    values = np.arange(world.values, dtype=np.int32)
    assert first.send(0, 0, values) == []
    with pytest.raises(AdmissionError, match="all 1 job numbers are in use"):
        world.admit(2, slots=1, name="second")
    world.controller.release("first")
    second = world.admit(2, slots=1, name="second")
    assert second.send(0, 0, values) == []
    sums = results(second, second.send(1, 0, 2 * values))
    assert all(np.array_equal(each, 3 * values) for each in sums.values()) and len(sums) == 2


@pytest.mark.parametrize("world", [256], indirect=True)
def test_what_the_published_entry_for_the_third_harvest_does(world):
    """Port 448 is in pipe 3, so a quarter of pipe 2's values is taken from there."""
    entries = [e for e in world.target.read([TableEntry("next_step")]) if e.action.endswith("HARVEST3")]
    (third,) = entries
    published = TableEntry(third.table, third.match, third.action, {"recirc_port": 448}, third.priority)
    world.target.write(modify(published))
    world.target.switch.add_port(448, loopback=True)
    job = world.admit(2, slots=1)
    values = np.arange(256, dtype=np.int32)
    assert job.send(0, 0, values) == []
    sums = results(job, job.send(1, 0, values))[0]
    wrong = np.flatnonzero(sums != 2 * values)
    assert wrong.tolist() == list(range(128, 160))
    assert np.array_equal(sums[128:160], 2 * values[192:224])


@VALUES
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_workers_of_the_local_world_reduce_through_it(values, loss):
    """Each compares its result with NumPy's."""
    config = AllReduce(world="local", program=str(program()), values=values, workers=3, elements=20_000, loss=loss, pool=64)
    (result,) = in_processes(config)
    assert result.stats["workers"]["tx_packets"] >= 3 * 20_000 // values
    assert bool(result.stats["workers"]["retransmissions"]) or not loss


def test_what_it_cannot_do_is_refused():
    published, sizes = recognise(Switch(compile_program(program()), pipes=4).p4info)
    assert published is PROGRAM and sizes.slots == 8192
    with pytest.raises(ValueError, match="VALUES=128: SwitchML as published takes 64 or 256 values in a packet"):
        EmbeddedSwitch(program(), {"VALUES": "128"})
    with pytest.raises(ValueError, match="it runs in the local world"):
        allreduce.reduce(AllReduce(program=str(program()), values=64, workers=2))
