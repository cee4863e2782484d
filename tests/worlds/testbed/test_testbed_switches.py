"""Networks of many switches: all in one process or each in its own, with memory or real interfaces between them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from real_networks import DEFINES, PROGRAM, alone, environment, left_behind, over, run_workers
from waiting import until

from ina.aggregation import protocols
from ina.aggregation.controller.client import ControlError
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.topology import Link, Node, Topology, TopologyError, load
from ina.topology.tree import aggregation_tree
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture


def ping(network: Network, source: str, destination: str) -> None:
    address = next(host.ip for host in network.topology.hosts if host.name == destination)
    command = network.command(source, ["ping", "-c", "1", "-W", "60", address])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def children(process: int) -> dict[str, int]:
    """Processes by name."""
    pids = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in pids}


@pytest.mark.parametrize("made", [{}, {"cables": "veth"}, {"kind": "process"}], ids=["memory", "veth", "process"])
def test_switches_forward_to_each_other_and_aggregate_for_their_hosts(made):
    """A triangle of switches: broadcasts end, frames find every host, and the link between two switches keeps its rate."""
    nodes = tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3")))
    trunks = tuple(Link(a, b, rate=10e6) for a, b in (("s1", "s2"), ("s2", "s3"), ("s3", "s1")))
    topology = Topology("triangle", nodes, (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), *trunks))
    with Network(topology, PROGRAM, DEFINES, **made) as network:
        ping = network.command("h1", ["ping", "-c", "3", "-i", "0.1", "-W", "60", "-s", "1000", "10.0.0.3"])
        output = subprocess.run(ping, capture_output=True, text=True).stdout
        assert "3 received" in output
        assert float(output.split("min/avg/max/mdev = ")[1].split("/")[0]) > 1.7, "1066 B at 10 Mb/s last 853 us, there and back"
        broadcast = network.command("h2", ["ping", "-b", "-c", "1", "-W", "1", "10.0.255.255"])
        subprocess.run(broadcast, capture_output=True)
        until(lambda: network.counters()["links"]["h3"]["down_packets"] == 4, "three questions and one broadcast")
        links = network.counters()["links"]
        assert links["s1-s2"]["up_packets"] == links["s1-s2"]["down_packets"] + 1 == 4, "the broadcast, too"
        assert links["s1-s2"]["down_bytes"] == 3 * (1042 + ETHERNET_OVERHEAD) and links["s2-s3"]["down_packets"] == 0
        run_workers(network, 20_000, ["h1", "h2"])


def test_a_fat_tree_of_twenty_processes_and_cables():
    """Every host reaches one in another pod; what crosses the core is counted on every link of the way."""
    with Network(load("fat-tree", k=4), PROGRAM, DEFINES, kind="process") as network:
        own = children(network._process.pid)
        assert set(own) == {f"ina-s{i}" for i in range(1, 21)}
        for i in range(1, 17):
            ping(network, f"h{i}", f"h{(i + 4) % 16 + 1}")
        links = network.counters()["links"]
    ups = [links[f"s{i}-s{j}"]["up_packets"] for i in range(9, 17) for j in range(17, 21) if f"s{i}-s{j}" in links]
    assert len(ups) == 16 and sum(ups) == 32, "a question and an answer each"
    assert sum(links[f"h{i}"]["up_bytes"] for i in range(1, 17)) == 32 * (98 + ETHERNET_OVERHEAD)
    assert left_behind(network) == [] and all(map(over, own.values()))


@pytest.mark.parametrize("made", [{}, {"cables": "veth"}, {"kind": "process"}], ids=["memory", "veth", "process"])
def test_a_job_is_summed_along_a_tree_and_each_of_its_links_carries_the_tensor_once_each_way(made):
    """Eight workers in two pods of a fat-tree: edge, aggregation and core switches add up what comes from below. With no
    repetitions (a fixed time-out of a minute), every link of the tree carries as many frames and bytes as one worker sends."""
    topology = load("fat-tree", k=4, rate=200e6)
    hosts = [f"h{i}" for i in range(1, 9)]
    with Network(topology, PROGRAM, DEFINES, **made) as network:
        done = run_workers(network, 50_000, hosts, RTO="60")
        links = network.counters()["links"]
    tree = aggregation_tree(topology, hosts)
    assert tree.depth == 3 and len(tree.switches) == 7
    on_tree = {topology.link_names()[number] for number in tree.links}
    (packets,) = {worker["tx_packets"] for worker in done}
    size = protocols.frame_bytes("switchml", 256) + ETHERNET_OVERHEAD
    assert packets >= 50_000 // 256 and not any(worker["retransmissions"] for worker in done)
    for name, link in links.items():
        for way in ("up", "down"):
            assert link[f"{way}_packets"] == (packets if name in on_tree else 0), (name, way)
            assert link[f"{way}_bytes"] == (packets * size if name in on_tree else 0), (name, way)


def test_a_job_on_a_tree_survives_losses_on_every_link():
    with Network(load("leaf-spine", leaves=2, spines=1, hosts=2, rate=0, loss=0.03), PROGRAM, DEFINES, seed=7) as network:
        done = run_workers(network, 50_000)
        links = network.counters()["links"]
    assert all(link["lost"] > 0 for link in links.values()) and any(worker["retransmissions"] for worker in done)


def test_a_model_is_trained_through_a_tree_over_real_cables(tmp_path):
    need("torch", "matplotlib", "sklearn")
    command = [sys.executable, "-m", "ina.cli", "run", "--world", "testbed", "--workers", "4", "--steps", "3", "--results",
               str(tmp_path), "--set", "topology=leaf-spine leaves=2 spines=1 hosts=2", "--set", "cables=veth", "--set",
               "rate=1e9", "--set", "mtu=9000", "--backends", "ina"]
    done = child.run(command, child.TRAINING, env=environment())
    assert done.returncode == 0, done.stderr
    assert "leaf-spine of 4 hosts and 3 switches is up" in done.stdout
    (folder,) = tmp_path.iterdir()
    (ours,) = json.loads((folder / "metrics.json").read_text())["runs"]
    links, gradients = ours["network"]["links"], sum(ours["allreduce_bytes"])
    assert set(links) == {"h1", "h2", "h3", "h4", "s1-s3", "s2-s3"}
    beside = ours["stats"]["switch"]["bytes"] - gradients  # counted since DDP has broadcast the parameters
    assert 0 <= beside < 4096, "barriers, and what DDP compares of the ranks' models"
    assert all(min(link["up_bytes"], link["down_bytes"]) >= gradients for link in links.values())


@pytest.mark.parametrize(("rings", "made"), [("undirected", {"kind": "process"}), ("directed", {"cables": "veth"})])
def test_servers_connected_directly_forward_for_each_other(rings, made):
    """TopoOpt: each server's own forwarding element passes on others' frames, along circuits of one direction, too."""
    with Network(load("topoopt", servers=8, degree=3, rings=rings), PROGRAM, DEFINES, **made) as network:
        for i in range(2, 9):
            ping(network, "h1", f"h{i}")
        links = network.counters()["links"]
    assert links["h1"]["up_packets"] == links["h1"]["down_packets"] == 7
    trunks = {name: link for name, link in links.items() if "-" in name}
    assert sum(link["up_packets"] + link["down_packets"] for link in trunks.values()) > 14, "some went through others"
    for name, link in zip(network.topology.link_names(), network.topology.links, strict=True):
        assert not link.simplex or trunks[name]["down_packets"] == 0


def test_a_switch_whose_process_ends_is_named_and_the_others_end_with_theirs():
    with Network(load("leaf-spine", leaves=2, spines=1, hosts=1), PROGRAM, DEFINES, kind="process") as network:
        own = children(network._process.pid)
        os.kill(own["ina-s3"], signal.SIGKILL)
        with pytest.raises(ControlError, match=rf"switch s3 \(process {own['ina-s3']}\)"):
            network.counters()
        os.kill(network._process.pid, signal.SIGKILL)
        assert all(map(over, own.values()))
    assert left_behind(network) == []


def test_what_a_network_cannot_be_made_of_is_refused():
    with pytest.raises(TopologyError, match="switches of kind 'ovs': expected one of embedded, process"):
        Network(load("star"), PROGRAM, DEFINES, kind="ovs")
    with pytest.raises(TopologyError, match="cables of 'memory' between switches of kind 'process': expected veth"):
        Network(load("star"), PROGRAM, DEFINES, kind="process", cables="memory")
