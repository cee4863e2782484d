"""Fabrics in virtual time: any topology's links, counted and balanced."""

import sys
from dataclasses import replace

import child
import numpy as np
import pytest
from capabilities import need

from ina import cli
from ina import topology as topologies
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.base import paths
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric, Star, Unbalanced
from ina.worlds.virtual.network import Wire

pytestmark = pytest.mark.build
need("cc")


@pytest.fixture(scope="module")
def program():
    from ina.p4.runtime.embedded import Program

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


UNUSED = """
import sys
import numpy as np
from ina import topology as topologies
from ina.worlds.virtual.fabric import Fabric
from ina.p4.runtime.loaded_program import Program

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

program, topology = Program(sys.argv[1]), topologies.load("fat-tree", k=8)
np.ones(30_000_000 // 8).sum()  # freed: calloc clears from now on what is up to that size
before = resident()
with Fabric(program, topology, max_frame=1200) as fabric:
    fabric.run()
    print((resident() - before) / (len(topology.switches) + len(topology.hosts)))
"""


def test_what_a_network_does_not_use_takes_no_memory():
    """A switch has two megabytes of slots, and 28 of places for frames that wait; a host 256 kB of these. Untouched they are a
    few pages each; and so they are where something large was freed before."""
    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "256", "SLOTS": "1024"})
    done = child.run([sys.executable, "-c", UNUSED, built.so_path], cwd=paths.root())
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100_000, f"{float(done.stdout):,.0f} bytes for each switch and host"


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
            assert star.cpu_busy(0) / 1e12 == pytest.approx(2 * 2001 * (1e-6 + 192e-9))
    assert seconds[1] == pytest.approx(2 * 2001 * 1.192e-6, rel=0.02)
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


LAWS = {
    "link_packets": "h1-eth0 to s1-eth1: 100 packets should have arrived, 101 did",
    "arrived_bytes": r"h1-eth0 to s1-eth1: \d+ bytes should have arrived, \d+ did",
    "link_waited_ps": r"h1-eth0 to s1-eth1: packets waited for \d+ ps, the queue's length over time says \d+ ps",
    "link_busy_ps": r"h1-eth0 to s1-eth1: sent for \d+ ps in \d+ ps",
}


@pytest.mark.parametrize("key", LAWS)
def test_a_law_that_is_broken_is_an_error_that_names_the_link(program, monkeypatch, key):
    wire = Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=2, up=wire, down=wire, pool=64) as star:
        job = star.admit(2, 64, 32, rto_min=1e-3)
        star.all_reduce(job, [np.ones(3200, np.int32) for _ in range(2)]).raise_failed()
        star.check()
        true = star.wire_stats
        off = {"link_packets": -1, "link_busy_ps": star.now}.get(key, 1)
        monkeypatch.setattr(star, "wire_stats", lambda end: {**true(end), key: true(end)[key] + off})
        with pytest.raises(Unbalanced, match=LAWS[key]):
            star.check()


def test_a_switch_that_counts_otherwise_than_its_link_is_noticed(program, monkeypatch):
    wire = Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=2, up=wire, down=wire, pool=64) as star:
        job = star.admit(2, 64, 32, rto_min=1e-3)
        star.all_reduce(job, [np.ones(3200, np.int32) for _ in range(2)]).raise_failed()
        true = star.switch.port_stats
        monkeypatch.setattr(star.switch, "port_stats", lambda port: replace(true(port), rx_packets=7))
        with pytest.raises(Unbalanced, match="h1-eth0 to s1-eth1: 101 packets on the wire, port 1 of s1 counts 7"):
            star.check()


@pytest.mark.parametrize("reason", ["tail", "no_buffer", "back_pressure", "no_memory"])
def test_a_drop_that_nothing_allows_is_an_error_that_names_the_link(program, monkeypatch, reason):
    wire = Wire(rate=10e9, delay=1e-6)
    with Star(program, hosts=2, up=wire, down=wire, pool=64) as star:
        job = star.admit(2, 64, 32, rto_min=1e-3)
        star.all_reduce(job, [np.ones(3200, np.int32) for _ in range(2)]).raise_failed()
        true = star.switch.port_stats
        monkeypatch.setattr(star.switch, "port_stats", lambda port: replace(true(port), drops={**true(port).drops, reason: 3}))
        with pytest.raises(Unbalanced, match=rf"s1-eth1 to h1-eth0: 3 packets were dropped \({reason}\), though nothing limits"):
            star.check()


@pytest.mark.parametrize(
    ("queue", "buffer", "reason"), [(20_000, 0, "tail"), (0, 20_000, "no_buffer"), (20_000, 10_000, "no_buffer")]
)
def test_what_full_queues_and_full_switches_drop_is_counted_apart(program, queue, buffer, reason):
    """An incast of seven to one, whose windows are more than there is room for."""
    topology = replace(topologies.load("star", hosts=8, rate=10e9, delay=1e-6, queue=queue), buffer=buffer)
    with Fabric(program, topology) as fabric:
        job = fabric.collective([host.name for host in topology.hosts], collectives.gather(8), 32, window=64, rto=1e-4, bare=True)
        for rank in range(8):
            fabric.submit_one(job, rank, np.zeros(8 * 3200, np.int32))
        assert fabric.run()
        fabric.check()
        assert len(fabric.completions()) == 8 and list(fabric.drops()) == [reason]
        longest = {traffic.target: traffic.max_queue for traffic in fabric.links() if traffic.source == "s1"}
        limit = min(n for n in (queue, buffer) if n)
        assert limit - 300 < longest["h1"] <= limit
        assert sum(fabric.collective_stats(m)["retransmissions"] for m in job.machines) >= fabric.drops()[reason]


def test_an_experiment_ends_with_that_error(monkeypatch, tmp_path, capsys):
    """Every run in virtual time checks; the sweep names point and link, and the command fails."""
    need("matplotlib")
    true = Fabric.wire_stats
    monkeypatch.setattr(Fabric, "wire_stats", lambda fabric, end: {**true(fabric, end), "link_busy_ps": 2 * fabric.now})
    for kind in ("allreduce", "workload", "sharing"):
        small = ["--set", "kind=" + kind, "--set", "workers=2"]
        small += ["--set", "steps=1"] if kind == "workload" else ["--set", "elements=1000"]
        (tmp_path / "x.toml").write_text("")
        command = ["experiment", "run", str(tmp_path / "x.toml"), *small, "--results", str(tmp_path / kind), "--processes", "1"]
        assert cli.main(command) == 1 and "h1-eth0 to s1-eth1: sent for" in capsys.readouterr().err
