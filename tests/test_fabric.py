"""Fabrics in virtual time: any topology's links, counted and balanced."""

import numpy as np
import pytest
from capabilities import need

import topologies
from ina import paths
from ina.emulator.fabric import Fabric, Star, Unbalanced
from ina.emulator.network import Wire
from ina.transport.config import ETHERNET_OVERHEAD
from ina.transport.ports import Faults

need("cc")


@pytest.fixture(scope="module")
def program():
    from ina.compiler.build import compile_program
    from ina.switch.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"})
    return Program(built.so_path)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("star", {"hosts": 5}),
        ("leaf-spine", {}),
        ("fat-tree", {"k": 4}),
        ("topoopt", {"servers": 8, "degree": 4}),
        ("topoopt", {"servers": 8, "degree": 3, "rings": "directed"}),
    ],
)
def test_every_direction_of_every_link_is_there_and_idle(program, name, options):
    topology = topologies.load(name, **options)
    with Fabric(program, topology) as fabric:
        assert fabric.run()
        fabric.check()
        simplex = sum(link.simplex for link in topology.links)
        assert len({traffic.name + str(traffic.link) for traffic in fabric.links()}) == 2 * len(topology.links) - simplex
        assert sum(traffic.bytes for traffic in fabric.links()) == 0


def test_a_star_carries_the_tensor_once_up_and_once_down(program):
    wire = Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=4, up=wire, down=wire, pool=64) as star:
        job = star.admit(4, 64, 32, rto_min=1e-3)
        star.all_reduce(job, [np.ones(3200, np.int32) for _ in range(4)]).raise_failed()
        star.check()
        sent = [star.worker_stats(machine) for machine in job.machines]
        for traffic in star.links():
            assert traffic.packets == 101, "a packet that opens the tensor, and one a block"
            assert traffic.bytes == sent[0]["tx_bytes"] + ETHERNET_OVERHEAD * sent[0]["tx_packets"]
            assert 0.5 < traffic.utilisation < 1


@pytest.mark.parametrize("seed", range(3))
def test_packets_and_bytes_are_conserved_under_faults(program, seed):
    faults = Faults(0.02, 0.02, 0.02, 0.002, 50e-6, 10e-6, seed)
    wire = Wire(rate=10e9, delay=1e-6, faults=faults)
    with Star(program, hosts=5, up=wire, down=wire, pool=64, seed=seed) as star:
        job = star.admit(5, 8, 32, rto_min=20e-6, rto_max=1e-3)
        star.all_reduce(job, [np.ones(9000, np.int32) for _ in range(5)]).raise_failed()
        star.check()
        assert sum(traffic.lost for traffic in star.links()) == star.stats()["lost"] + star.stats()["corrupted"] > 0


def test_what_is_still_on_its_way_is_noticed(program):
    wire = Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=2, up=wire, down=wire, pool=64) as star:
        job = star.admit(2, 8, 32)
        for machine in job.machines:
            star.submit(machine, np.ones(9000, np.int32))
        star.run(max_events=100)
        with pytest.raises(Unbalanced, match="frames are left"):
            star.check()


def test_a_host_of_one_core_sends_and_receives_as_fast_as_that_works(program):
    """Each packet of a window takes the core twice, once out and once in; four cores are four times as fast."""
    wire, seconds = Wire(rate=100e9, delay=1e-6), {}
    for cores in (1, 4):
        with Star(program, hosts=2, up=wire, down=wire, pool=64) as star:
            for host in range(2):
                star.set_cpu(host, packet=1e-6, byte=1e-9, cores=cores)
            job = star.admit(2, 64, 32, rto_min=1e-2)
            outcome = star.all_reduce(job, [np.ones(32 * 2000, np.int32) for _ in range(2)])
            outcome.raise_failed()
            star.check()
            seconds[cores] = outcome.seconds
            assert star.cpu_busy(0) / 1e12 == pytest.approx(2 * 2001 * (1e-6 + 180e-9))
    assert seconds[1] == pytest.approx(2 * 2001 * 1.18e-6, rel=0.02)
    assert seconds[1] / seconds[4] == pytest.approx(4, rel=0.05)


def test_a_processor_that_takes_no_time_changes_nothing(program):
    digests = []
    for packet in (None, 0.0):
        with Star(program, hosts=3, pool=64) as star:
            if packet is not None:
                star.set_cpu(0, packet=packet)
            job = star.admit(3, 8, 32)
            star.all_reduce(job, [np.ones(5000, np.int32) for _ in range(3)]).raise_failed()
            digests.append(star.stats()["digest"])
    assert digests[0] == digests[1]


def test_queues_are_as_long_as_little_says(program):
    """Packets that wait on average are the rate of arrivals times a packet's wait: measured apart from each other."""
    up, down = Wire(rate=40e9, delay=1e-6), Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=4, up=up, down=down, pool=64) as star:
        job = star.admit(4, 64, 32, rto_min=1e-2)
        star.all_reduce(job, [np.ones(32 * 2000, np.int32) for _ in range(4)]).raise_failed()
        star.check()
        busy = [traffic for traffic in star.links() if traffic.source == "s1"]
        for traffic in busy:
            arrivals = traffic.packets / (star.now / 1e12)
            assert traffic.mean_queue == pytest.approx(arrivals * traffic.mean_wait)
            assert 10 < traffic.mean_queue < 64, "the window waits before the slow link"
