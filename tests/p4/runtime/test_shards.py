"""A switch on several processors: the program's annotation, and shards that are one switch to the control plane."""

import random

import numpy as np
import pytest
from capabilities import need

from ina.aggregation.controller.admission import Controller
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base.paths import p4_dir
from ina.p4.compiler.build import compile_program
from ina.p4.p4runtime.device import Device
from ina.p4.runtime import (
    CounterEntry,
    EntityError,
    MeterEntry,
    P4Info,
    Program,
    RegisterEntry,
    Switch,
    TableEntry,
    insert,
    modify,
)
from ina.p4.runtime.shards import ShardedSwitch, ShardKey, shard_key

pytestmark = pytest.mark.build
need("cc", "p4runtime")


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(p4_dir() / "switchml.p4", defines={"VALUES": "64"}, include_dirs=[p4_dir()]).so_path)


def test_the_annotation_is_the_protocols_range_of_ports(program):
    key = shard_key(program.p4info)
    text = (p4_dir() / "include/switchml/headers.p4").read_text()
    assert f"SWITCHML_PORT  = 0x{key.first:X};" in text and f"SWITCHML_MASK  = 0x{0xFFFF & ~(key.count - 1):X};" in text
    assert sorted(port for shard in range(4) for ports in key.claims(shard, 4) for port in ports) == [*range(0xBEE0, 0xBEF0)]
    assert [ports.start for ports in key.claims(3, 8)] == [0xBEE3, 0xBEEB]


@pytest.mark.parametrize("pairs", [{"udp_dst_port": 70000, "count": 1}, {"udp_dst_port": 5}, {"udp_dst_port": 65535, "count": 2},
                                   {"udp_dst_port": 5, "count": 2, "width": 1}])
def test_wrong_annotations_are_named(pairs):
    listed = [{"key": key, "value": {"int64Value": str(value)}} for key, value in pairs.items()]
    info = P4Info({"pkgInfo": {"structuredAnnotations": [{"name": "shards", "kvPairList": {"kvPairs": listed}}]}})
    with pytest.raises(ValueError, match="expected @shards"):
        shard_key(info)


def test_programs_that_declare_nothing_have_one_shard():
    other = Program(compile_program(p4_dir() / "atp.p4", defines={"VALUES": "64"}, include_dirs=[p4_dir()]).so_path)
    assert shard_key(other.p4info) is None
    with pytest.raises(ValueError, match="declares no shards"):
        ShardedSwitch(other, 2)


def test_a_pipeline_that_is_reconciled_keeps_the_state_of_all_shards(program):
    name = program.layout["counters"][0]["name"]
    with Device(1, None, make=lambda program: ShardedSwitch(program, 4)) as device:
        device.load(program)
        before = device.switch
        for shard, switch in enumerate(before.switches):
            switch.write(modify(CounterEntry(name, 0, 1 << shard, 0)))
        state = before.snapshot()
        device.set_pipeline("RECONCILE_AND_COMMIT", device.verify(device.config()))
        assert device.switch is not before and device.switch.snapshot() == state
        assert device.switch.read([CounterEntry(name, 0)]) == [CounterEntry(name, 0, 15, 0)]


def test_one_control_plane_over_all_shards(program):
    """Each slot's frames go to its shard: answers as from a single switch, and counters that add up."""
    workers, slots = 2, 8
    rng = np.random.default_rng(1)
    data = [rng.integers(-1000, 1000, 64 * slots, dtype=np.int32) for _ in range(workers)]
    key = ShardKey(0xBEE0, 16)

    def run(switch, shards, enter):
        controller = Controller(switch, 512, chance=random.Random(1))
        job = controller.admit("job", workers, slots)
        for i in range(workers):
            controller.attach(job, i, i)
        machines = [Worker(WorkerConfig(worker=i, workers=workers, life=job.life, slots=slots, values=64,
                                       options={"shards": shards}))
                    for i in range(workers)]
        outs = [np.zeros_like(d) for d in data]
        for machine, source, out in zip(machines, data, outs, strict=True):
            machine.submit(source, out)
        udp_ports = set()
        for now in range(1, 10):
            for i, machine in enumerate(machines):
                for frame in machine.frames_to_send(now):
                    port = int.from_bytes(frame[36:38])
                    udp_ports.add(port)
                    for to, answer in enter(port, frame, i):
                        machines[to].receive(answer, now)
        assert all(np.array_equal(out, sum(data)) for out in outs)
        assert udp_ports == {0xBEE0 + i for i in range(shards)}

    sharded = ShardedSwitch(program, 4)
    with sharded, Switch(program) as alone:
        for i in range(workers):
            alone.add_port(i)
            for switch in sharded.switches:
                switch.add_port(i)
        owner = {ports.start: sharded.switches[shard] for shard in range(4) for ports in key.claims(shard, 4)}
        run(alone, 1, lambda port, frame, i: alone.step(frame, i))
        run(sharded, 4, lambda port, frame, i: owner[port].step(frame, i))
        assert all(switch.port_stats(0).rx_packets for switch in sharded.switches)
        assert sharded.port_stats(0) == alone.port_stats(0)
        assert {n: c.tolist() for n, c in sharded.counters().items()} == {n: c.tolist() for n, c in alone.counters().items()}
        assert sharded.read([TableEntry("job")]) == alone.read([TableEntry("job")])

        sharded.write(modify(CounterEntry("SwitchIngress.drops", 1, packets=7, bytes=0)))
        assert sharded.read([CounterEntry("SwitchIngress.drops", 1)])[0].packets == 7
        for entity in (RegisterEntry("SwitchIngress.phase.tsis", 0), MeterEntry("any")):
            with pytest.raises(EntityError, match="each of the 4 shards") as error:
                sharded.write(modify(entity))
            assert error.value.code == "UNIMPLEMENTED"
            with pytest.raises(EntityError, match="each of the 4 shards"):
                sharded.read([entity])
        twice = TableEntry("l2", {"hdr.ethernet.dst_addr": "00:00:00:00:00:07"}, "forward", {"port": 1})
        with pytest.raises(EntityError):
            sharded.write(insert(twice, twice))
        assert not [row for row in sharded.read([TableEntry("l2")]) if not row.is_const]  # in none
        with pytest.raises(ValueError, match="takes a port for each"):
            sharded.add_port(9, object())


@pytest.mark.parametrize("shards", [0, 3, 32])
def test_a_wrong_number_of_shards_is_refused(shards, program):
    with pytest.raises(ValueError):
        WorkerConfig(worker=0, workers=1, life=1, options={"shards": shards})


def test_results_of_another_shard_are_not_taken():
    """A result must come from the UDP port that its slot's packet went to."""
    machine = Worker(WorkerConfig(worker=0, workers=1, life=1, slots=4, values=64, options={"shards": 2}))
    machine.submit(np.arange(64 * 4, dtype=np.int32))
    frames = machine.frames_to_send(1)
    answers = [frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36] + frame[38:]
               for frame in frames]
    wrong = bytearray(answers[0])
    wrong[35] ^= 1
    machine.receive(bytes(wrong), 2)
    assert machine.stats["drop_foreign"] == 1
    machine.receive(answers[0], 2)
    assert machine.stats["results"] == 1
