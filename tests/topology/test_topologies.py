"""Networks as data: names imply addresses, and invalid topologies are refused with a reason."""

import json
import os
import subprocess
import sys

import child
import pytest

from ina import topology as topologies
from ina.aggregation.controller.forwarding import BROADCAST, FLOOD_GROUP, forwarding
from ina.net import state
from ina.topology import Link, Node, Topology, TopologyError, routes
from ina.topology.points import host_list, points
from ina.topology.tree import aggregation_tree


@pytest.mark.fast
def test_the_star_is_what_its_names_say():
    star = topologies.load("star", hosts=3, rate=1e9, mtu=9000, loss=0.01)
    assert [h.ip for h in star.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert star.hosts[2].mac == "00:00:00:00:00:03"
    assert [(a.name, b.name) for a, b in star.ends] == [(f"h{i}-eth0", f"s1-eth{i}") for i in (1, 2, 3)]
    assert [(h.name, link.rate, end.port) for h, link, end in star.host_links("s1")] == [
        ("h1", 1e9, 1), ("h2", 1e9, 2), ("h3", 1e9, 3),
    ]


@pytest.mark.fast
def test_switches_have_addresses_of_their_own():
    assert (Node("s3").ip, Node("s3").mac) == ("10.255.0.3", "02:ff:00:00:00:03")
    assert (Node("s300").ip, Node("s300").mac) == ("10.255.1.44", "02:ff:00:00:01:2c")
    tree = topologies.load("fat-tree", k=4)
    assert len({node.ip for node in tree.nodes}) == len({node.mac for node in tree.nodes}) == 36


@pytest.mark.fast
def test_nodes_and_ports_of_real_machines():
    """Any names, the NICs' own addresses, the switches' port numbers: routes and trees are those of the same network."""
    nodes = [Node("rack2", like="s2"), Node("rack10", like="s10"), Node("spine", like="s1"),
             Node("gpu1", "h1", own_ip="192.168.7.1", own_mac="0c:42:a1:00:00:01"), Node("gpu2", "h2")]
    links = Link("rack10", "spine"), Link("spine", "rack2"), Link("gpu1", "rack2"), Link("gpu2", "rack10")
    real = Topology("real", tuple(nodes), links, numbers=((152, 12), (8, 152), (0, 128), (0, 136)))
    assert [(node.is_host, node.number, node.ip, node.mac) for node in (real.by_name["spine"], real.by_name["gpu1"])] == [
        (False, 1, "10.255.0.1", "02:ff:00:00:00:01"), (True, 1, "192.168.7.1", "0c:42:a1:00:00:01"),
    ]
    assert [host.name for host in real.hosts] == ["gpu1", "gpu2"] and real.switch_of("gpu2") == "rack10"
    ways = routes.tables(real)
    assert {switch: {host: hop.port for host, hop in way.items()} for switch, way in ways.items()} == {
        "rack2": {"gpu1": 128, "gpu2": 152}, "rack10": {"gpu1": 152, "gpu2": 136}, "spine": {"gpu1": 8, "gpu2": 12},
    }
    assert routes.flood_ports(real) == {"rack2": [128, 152], "rack10": [136, 152], "spine": [8, 12]}
    tree = aggregation_tree(real, ["gpu2", "gpu1"])
    assert (tree.root, tree.switches, tree.workers) == ("spine", ("spine", "rack2", "rack10"), ("gpu1", "gpu2"))
    assert tree.children("spine") == ("rack2", "rack10")
    with pytest.raises(TopologyError, match="node 'x3': expected h1, h2"):
        Node("gpu3", like="x3")


@pytest.mark.fast
def test_ports_are_numbered_in_the_order_of_the_links():
    nodes = tuple(map(Node, ("s1", "s2", "h1", "h2")))
    two = Topology("two", nodes, (Link("h2", "s2"), Link("s1", "s2", rate=1e9), Link("s1", "h1")))
    assert [(a.name, b.name) for a, b in two.ends] == [("h2-eth0", "s2-eth1"), ("s1-eth1", "s2-eth2"), ("s1-eth2", "h1-eth0")]
    assert [end.port for _, _, end in two.host_links("s1")] == [2]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Node("host1"), "node 'host1': expected h1, h2"),
        (lambda: Node("h0"), "expected h1, h2"),
        (lambda: Node("h10000"), "to 9999"),
        (lambda: Link("h1", "s1", rate=-1), "link h1-s1: rate is -1"),
        (lambda: Link("h1", "s1", rate=float("nan")), "rate is nan"),
        (lambda: Link("h1", "s1", delay=11), "delay is 11, expected seconds"),
        (lambda: Link("h1", "s1", loss=1.5), "loss is 1.5, expected a probability"),
        (lambda: Link("h1", "s1", queue=-1), "queue is -1"),
        (lambda: Link("s1", "s1"), "a link connects two nodes"),
        (lambda: Topology("t", (Node("h1"), Node("s1")), ()), "host h1 has 0 links"),
        (lambda: Topology("t", (Node("h1"), Node("h1"), Node("s1")), (Link("h1", "s1"),)), "node h1 is there twice"),
        (lambda: Topology("t", (Node("h1"), Node("s1")), (Link("h1", "s2"),)), "there is no node 's2'"),
        (lambda: Topology("t", (Node("h1"), Node("s1")), (Link("h1", "s1"),) * 2), "host h1 has 2 links"),
        (lambda: Topology("t", (Node("h1"), Node("s1")), (Link("h1", "s1"),), 100), "mtu is 100, expected 576"),
        (lambda: Topology("t", (Node("h1"),), ()), "at least one host and one switch"),
        (
            lambda: Topology("t", tuple(map(Node, ("h1", "h2", "s1"))), (Link("h1", "h2"), Link("h2", "s1"))),
            "link h1-h2: a host's link leads to a switch",
        ),
        (lambda: Topology("t", tuple(map(Node, ("h1", "s1", "s2"))), (Link("h1", "s1"),)), "no way from h1 to s2"),
        (lambda: topologies.load("torus"), "no topology 'torus'; there are: fat-tree, leaf-spine, star, topoopt"),
        (lambda: topologies.load("star", speed=1), "no parameter 'speed'; it has: hosts, rate"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(TopologyError, match=message):
        make()


@pytest.mark.fast
def test_forwarding_entries():
    group, flood, *hosts = [update.entity for update in forwarding({"00:00:00:00:00:01": 1, "00:00:00:00:00:02": 2}, [1, 2])]
    assert group.group_id == FLOOD_GROUP and [r.port for r in group.replicas] == [1, 2]
    assert flood.match == {"hdr.ethernet.dst_addr": BROADCAST} and flood.action == "flood"
    assert [(h.match["hdr.ethernet.dst_addr"][-2:], h.params["port"]) for h in hosts] == [("01", 1), ("02", 2)]


# ---- the record of what is up ------------------------------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("INA_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(state, "LOCK", f"\0ina-network-{tmp_path}"[:100])
    return tmp_path / "run"


def sleeper() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])


@pytest.mark.fast
def test_only_one_network_at_a_time(run_dir):
    first = state.State("star")
    with pytest.raises(state.Busy, match=rf"up already \(process {os.getpid()}\).*ina net down"):
        state.State("other")
    first.close()
    first.close()
    assert not (run_dir / "network.json").exists()
    state.State("other").close()


@pytest.mark.build
def test_a_later_start_cleans_up_what_a_dead_one_left(run_dir, tmp_path):
    mine, other = sleeper(), sleeper()
    file = tmp_path / "left"
    file.touch()
    run_dir.mkdir()
    record = {
        "name": "star",
        "owner": [1, 1],
        # the second number has been given to another process since: its start time differs
        "processes": [[mine.pid, state.start_time(mine.pid)], [other.pid, state.start_time(other.pid) - 1]],
        "interfaces": ["s9999-eth1"],
        "files": [str(file)],
    }
    (run_dir / "network.json").write_text(json.dumps(record))
    try:
        again = state.State("star")
        assert again.cleaned == [f"process {mine.pid}: SIGTERM", f"file {file}"]
        assert child.status(mine) == -15 and other.poll() is None and not file.exists()
        again.close()
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


@pytest.mark.build
def test_what_ignores_sigterm_is_killed(run_dir):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(3600)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    here = state.State("star")
    here.add(processes=[stubborn.pid])
    here.close()
    assert child.status(stubborn) == -9
    stubborn.stdout.close()


@pytest.mark.build
def test_start_times_tell_processes_apart():
    assert state.start_time(os.getpid()) > 0
    victim = sleeper()
    victim.kill()
    victim.wait()
    assert state.start_time(victim.pid) == 0


@pytest.mark.fast
def test_places_to_look_at_have_names():
    net = topologies.load("leaf-spine", leaves=2, spines=1, hosts=1)
    assert points(net, ["s1-eth2"]) == ["s1-eth2"] and points(net, ["h2"]) == ["h2-eth0"]
    assert points(net, ["s3-s1"]) == points(net, ["s1-s3"]) == ["s1-eth2", "s3-eth1"]
    assert points(net, ["h1-s1", "s1"]) == ["h1-eth0", "s1-eth1", "s1-eth2"], "each once"
    assert points(net, ["all"]) == ["s1-eth1", "s2-eth1", "s1-eth2", "s3-eth1", "s2-eth2", "s3-eth2"]
    with pytest.raises(TopologyError, match="leaf-spine: there is no port, link, host or switch 's1-eth4'; the nearest is"):
        points(net, ["h1", "s1-eth4"])


@pytest.mark.fast
def test_links_have_names():
    assert topologies.load("leaf-spine", leaves=2, spines=1, hosts=1).link_names() == ["h1", "h2", "s1-s3", "s2-s3"]
    two = Topology("two", tuple(map(Node, ("h1", "s1", "s2"))), (Link("s1", "h1"), *(Link("s1", "s2"),) * 2))
    assert two.link_names() == ["h1", "s1-s2", "s1-s2:2"]


@pytest.mark.fast
def test_a_topology_in_one_line():
    net = topologies.specified("fat-tree k=2 rate=1e9", rate=5e6, mtu=9000, hosts=7)
    assert len(net.hosts) == 2 and net.mtu == 9000 and net.links[0].rate == 1e9
    with pytest.raises(TopologyError, match="'fat-tree' has no parameter 'size'"):
        topologies.specified("fat-tree size=3")
    with pytest.raises(TopologyError, match="k is 'four', expected int"):
        topologies.specified("fat-tree k=four")


@pytest.mark.fast
def test_lists_of_hosts():
    assert host_list("h1, h5,h9-h11,h2-3") == ["h1", "h5", "h9", "h10", "h11", "h2", "h3"] and host_list("") == []
