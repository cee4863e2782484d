"""The programs for Tofino in the worlds that the v1model ones run in: the same workers, the same figures."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from capabilities import need
from real_networks import alone
from switchml_kin import made
from switchml_targets import TnaTarget, World, close_targets, open_target

from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.client import ControlError
from ina.aggregation.controller.embedded import EmbeddedSwitch
from ina.base import paths
from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab.kinds import allreduce, sharing
from ina.lab.kinds.allreduce import AllReduce, in_processes
from ina.lab.kinds.sharing import Sharing
from ina.lab.kinds.training import Training
from ina.lab.kinds.workload import Workload
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Link as PortLink
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.tna_entities import front_panel
from ina.topology import Topology, load
from ina.topology.topology import Link, Node
from ina.worlds.testbed.mininet import Network
from ina.worlds.testbed.switch_kinds import KINDS
from ina.worlds.virtual.explorable import job as explorable

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture
TOFINO = paths.p4_dir() / "tofino"


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


@pytest.mark.gate
def test_every_protocol_has_its_twin():
    for name in set(protocols.names()) - {"requantised", "atp_routes"}:
        assert protocols.program(name, KINDS["tna"].twin).is_file()
    assert {path.stem for path in TOFINO.glob("*.p4")} <= {path.stem for path in paths.p4_dir().glob("*.p4")}


@pytest.mark.parametrize(("protocol", "values"), [("switchml", 32), ("switchml", 256), ("atp", 32), ("atp", 256), ("thc", 256),
                                                  ("omnireduce", 256), ("fpisa", 256), ("quorum", 256), ("receivers", 256)])
@pytest.mark.gate
def test_no_reason_why_a_tofino_could_not(protocol, values, capsys):
    """The twin fits twelve stages by its dependencies, four stateful ALUs in each, and conditions that they support."""
    assert main(["tofino", "check", f"-DVALUES={values}", str(TOFINO / f"{protocol}.p4")]) == 0
    assert "0 errors" in capsys.readouterr().out


# ---- virtual time


LOSSY = {"elements": 20_000, "workers": 4, "values": 64, "pool": 128, "seed": 3,
         "loss": 0.005, "duplicate": 0.01, "reorder": 0.01}
TOPOLOGIES = pytest.mark.parametrize("topology", ["star", "leaf-spine leaves=2 spines=1 hosts=3"])


def by_both(config):
    """Yields the results of v1model's program and of the twin."""
    for switch in ("embedded", "tna"):
        (result,) = allreduce.reduce(dataclasses.replace(config, switch=switch))
        del result.stats["network"]["memory"]
        yield result


@TOPOLOGIES
@pytest.mark.gate
def test_all_figures_of_a_lossy_all_reduce_are_the_same(topology):
    """Passes take no virtual time, so nothing may differ: not a packet, not a retransmission, not a picosecond."""
    there, here = by_both(AllReduce(topology=topology, **LOSSY))
    assert here == there
    assert here.stats["workers"]["retransmissions"] > 0


@TOPOLOGIES
def test_a_lossy_all_reduce_by_atp_is_alike(topology):
    """Recirculated frames queue behind those that pass at once, though both came at one time: their order may differ."""
    there, here = by_both(AllReduce(topology=topology, protocol="atp", **LOSSY))
    assert here.seconds == pytest.approx(there.seconds, rel=0.5)
    assert here.stats["workers"]["tx_packets"] == pytest.approx(there.stats["workers"]["tx_packets"], rel=0.1)
    assert here.stats["workers"]["retransmissions"] > 0


def test_without_aggregation_only_the_mark_of_long_queues_is_another():
    """A Tofino counts its queues in cells of 80 bytes, v1model in packets."""
    config = AllReduce(protocol="ps", elements=20_000, workers=4, values=64, pool=128)
    there, here = by_both(config)
    assert here.stats["workers"]["tx_packets"] == there.stats["workers"]["tx_packets"]
    assert here.seconds == pytest.approx(there.seconds, rel=0.2)


@pytest.mark.parametrize("values", [32, 256])
def test_floats_along_a_tree(values):
    """Sums are compared with NumPy's by the experiment."""
    config = AllReduce(topology="fat-tree k=4", workers=9, placement="spread", dtype="float32", elements=3000, values=values,
                       loss=0.01)
    there, here = by_both(config)
    assert here.stats["workers"]["tx_packets"] == pytest.approx(there.stats["workers"]["tx_packets"], rel=0.1)


def test_jobs_that_share_a_pool_that_is_too_small():
    config = Sharing(jobs=3, workers=3, share=0.25, window=32, elements=20_000, values=64, protocol="atp", ecn_depth=0)
    there, here = (sharing.share(dataclasses.replace(config, switch=switch))[0] for switch in ("embedded", "tna"))
    assert here.stats["workers"]["tx_packets"] == pytest.approx(there.stats["workers"]["tx_packets"], rel=0.1)


@pytest.mark.parametrize("topology, states", [("star hosts=2", 181), ("leaf-spine leaves=2 spines=1 hosts=1", 538)])
@pytest.mark.gate
def test_every_interleaving_of_a_small_job(topology, states):
    """The number of states is that of v1model's program (docs/design/protocol.md), and no sum is wrong in any."""
    built = compile_program(TOFINO / "switchml.p4", defines={"VALUES": "32", "SLOTS": "1"}, include_dirs=[paths.p4_dir()])
    kind, *parameters = topology.split()
    network = load(kind, **{key: int(value) for key, value in (p.split("=") for p in parameters)})
    report = explorable(Program(built.so_path), network).saturate()
    assert report.violation is None and report.complete
    assert report.states == states


# ---- processes


def test_a_lossy_all_reduce_of_processes():
    need("cc")
    results = in_processes(AllReduce(world="local", switch="tna", workers=3, elements=5000, values=64, loss=0.02, pool=64))
    assert results[0].stats["workers"]["retransmissions"] > 0


def test_ports_of_the_local_world_are_those_of_the_front_panel():
    """Worker 64 is in another pipe than worker 0, and in the same sum."""
    need("cc")
    switch = EmbeddedSwitch(TOFINO / "switchml.p4", {"VALUES": "32", "SLOTS": "16"})
    try:
        job = Controller(switch.targets, 16, switch.job_program).admit("job", 32, 4)
        numbers = [switch.open_port("shm", job, worker % 32, "").number for worker in range(66)]
        assert numbers == [*range(64), 128, 129] and set(numbers) < set(front_panel(2))
        assert switch.describe()["values"] == 32 and switch.describe()["slots"] == 16
    finally:
        switch.close()


def test_workers_in_two_pipes_are_summed_in_one():
    world = World(open_target("tna", 64), ports=0)
    for port in (0, 1, 130, 131):
        world.target.switch.add_port(port)
    job = world.admit(4, ports=[0, 130, 1, 131])
    vectors = [np.arange(64) * (worker + 1) for worker in range(4)]
    for worker in range(3):
        assert job.send(worker, 0, vectors[worker]) == []
    sent = job.send(3, 0, vectors[3])
    assert sorted(port for port, _ in sent) == [0, 1, 130, 131]
    for _, frame in sent:
        assert world.parse(frame)["values"]["v"] == tuple(np.arange(64) * 10)
    assert [port for port, _ in job.send(1, 0, vectors[1])] == [130]
    assert world.drops() == {}


@pytest.mark.parametrize("program", ["switchml", "fpisa"])
def test_each_part_of_a_packet_has_cells_of_its_own_in_the_largest_pool(program):
    """With 16,384 slots and 128 values a lane has 131,072 cells: more than 16 bits number."""
    world = World(made(program, TnaTarget, 128, {"SLOTS": "16384"}), ports=2)
    job = world.admit(2)
    assert job.send(0, 0, np.arange(128)) == []
    sent = job.send(1, 0, np.arange(128))
    assert [world.parse(frame)["values"]["v"] for _, frame in sent] == [tuple(2 * np.arange(128))] * 2
    world.target.close()


def test_networks_with_ports_that_no_tofino_has_are_refused():
    need("mininet")
    hosts = [Node(f"h{i}") for i in range(1, 67)]
    topology = Topology("wide", (*hosts, Node("s1")), tuple(Link(host.name, "s1") for host in hosts))
    with pytest.raises(ControlError, match="s1 has port 64: on the front panel"):
        with Network(topology, TOFINO / "switchml.p4", {"VALUES": "32", "SLOTS": "64"}, kind="tna"):
            pass


# ---- the testbed


def test_the_testbed_sums_along_a_tree_and_forwards_the_rest(alone):
    need("mininet")
    keys = {"elements": 4000, "values": 64, "pool": 64, "rate": 100e6, "delay": 0.0, "loss": 0.01}
    config = AllReduce(world="testbed", switch="tna", topology="leaf-spine leaves=2 spines=1 hosts=2", workers=4, **keys)
    (result,) = in_processes(config)
    assert result.stats["workers"]["retransmissions"] > 0


# ---- configurations


@pytest.mark.gate
def test_configurations_name_the_program():
    assert Training(switch="tna").program_path == TOFINO / "switchml.p4"
    assert Training(switch="tna").resolved().values == 256 and Training(switch="tna", values=64).resolved().values == 64
    assert Training(switch="tna", program="atp", protocol="atp").program_path == paths.p4_dir() / "atp.p4"
    assert AllReduce(switch="tna", protocol="atp").program_path == TOFINO / "atp.p4"
    assert Workload(switch="tna").program_path == TOFINO / "switchml.p4"
    with pytest.raises(ConfigError, match=r"switch = 'bmv2': expected 'embedded' or 'tna'"):
        Sharing(switch="bmv2")
    with pytest.raises(ConfigError, match=r"switch = 'process': expected 'embedded' or 'tna' outside world = 'testbed'"):
        AllReduce(switch="process")


@pytest.mark.gate
def test_a_full_buffer_keeps_nothing_from_going_round():
    """A worker's packet has been counted when it comes for its additions: it must not be lost for want of a buffer."""
    target = TnaTarget(64)
    target.buffer = 100_000
    world = World(target, ports=3)
    switch = world.target.switch
    switch.add_port(9, link=PortLink(rate=1e6))
    world.forward("02:00:00:00:00:99", 9)
    job = world.admit(2)
    other = bytes.fromhex("020000000099") + bytes(94)
    while not switch.port_stats(9).drops["no_buffer"]:
        world.send(other, 2)
    vectors = [np.arange(64), 3 * np.arange(64)]
    assert job.send(0, 0, vectors[0]) == []
    sent = job.send(1, 0, vectors[1])
    assert [port for port, _ in sent] == [0, 1]
    assert all(world.parse(frame)["values"]["v"] == tuple(4 * np.arange(64)) for _, frame in sent)
    target.close()
