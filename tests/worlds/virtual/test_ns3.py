"""Our links and queues beside ns-3's: the same UDP datagrams over the same topology arrive at the same picosecond, and the same
ones are dropped.

ns-3's point-to-point devices put 2 bytes of PPP in front of a datagram, ours 14 of Ethernet and 24 of its overhead; a datagram is
given the size with which it lasts as long on the wire. Forwarding takes no time in either.
"""

import random
from pathlib import Path

import child
import pytest
from capabilities import need
from traffic import Datagram, Sender

from ina import topology as topologies
from ina.base import paths
from ina.topology import Link, Node, Topology, routes
from ina.worlds.virtual.fabric import Fabric

pytestmark = [pytest.mark.hardware, pytest.mark.later]
need("ns3", "cc")
SOURCE = Path(__file__).parent.parent.parent / "ns3" / "udp.cc"
LIBRARIES = [f"-lns3-{name}" for name in ("point-to-point", "internet", "network", "core")]


@pytest.fixture(scope="module")
def ns3(tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("ns3") / "udp"
    child.run(["c++", "-std=c++17", "-O1", "-w", "-o", program, SOURCE, *LIBRARIES], child.TRAINING, check=True)
    return program


@pytest.fixture(scope="module")
def program():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    return Program(compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"}).so_path)


def in_ns3(ns3: Path, topology: Topology, datagrams: list[Datagram]) -> tuple[dict, dict, dict]:
    """Runs ns-3: arrival time of each datagram; places of drops; packets and bytes sent by link and end."""
    number = {node.name: i for i, node in enumerate(topology.nodes)}
    lines = [f"nodes {len(number)}"]
    for i, link in enumerate(topology.links):
        queues = [0 if end.node[0] == "h" else link.queue for end in topology.ends[i]]
        ends = [number[end.node] for end in topology.ends[i]]
        lines.append("link {} {} {} {} {} {}".format(*ends, round(link.rate), round(link.delay * 1e12), *queues))
    for switch, table in routes.tables(topology).items():
        lines += [f"route {number[switch]} {number[host]} {hop.link}" for host, hop in table.items()]
    for i in range(len(topology.links)):
        for here in (end.node for end in topology.ends[i] if end.node[0] == "h"):
            lines += [f"route {number[here]} {number[host.name]} {i}" for host in topology.hosts if host.name != here]
    lines += [f"send {d.time} {number[d.source]} {number[d.target]} {d.wire} {d.number}" for d in datagrams]
    output = child.run([ns3], input="\n".join(lines) + "\n", check=True).stdout
    words = [line.split() for line in output.splitlines()]
    names = [node.name for node in topology.nodes]
    arrivals = {int(w[1]): int(w[2]) for w in words if w[0] == "got"}
    dropped = {int(w[1]): names[int(w[3])] for w in words if w[0] == "drop"}
    sent = {(int(w[1]), names[int(w[2])]): (int(w[3]), int(w[4])) for w in words if w[0] == "end"}
    return arrivals, dropped, sent


def in_ours(program, topology: Topology, datagrams: list[Datagram]) -> tuple[dict, dict, dict]:
    """Runs the emulator: the same figures, but the number of drops at each switch."""
    with Fabric(program, topology) as fabric:
        senders = [Sender(fabric, host.name, [d for d in datagrams if d.source == host.name]) for host in topology.hosts]
        assert fabric.run()
        fabric.check()
        arrivals = {number: time for sender in senders for number, time in sender.arrivals.items()}
        dropped: dict[str, int] = {}
        for traffic in fabric.links():
            dropped[traffic.source] = dropped.get(traffic.source, 0) + traffic.dropped
        sent = {(t.link, t.source): (t.packets, t.bytes) for t in fabric.links() if t.packets}
    return arrivals, {name: count for name, count in dropped.items() if count}, sent


def bursts(topology: Topology, seed: int, targets: int) -> list[Datagram]:
    """Each host sends bursts of datagrams of all sizes to the first ``targets`` hosts, at moments that share no divisor."""
    rng, datagrams = random.Random(seed), []
    names = [host.name for host in topology.hosts]
    for source in names:
        for _ in range(12):
            begin, target = rng.randrange(200_000_000), rng.choice([name for name in names[:targets] if name != source])
            for i in range(rng.randrange(1, 25)):
                datagrams.append(Datagram(begin + i * rng.randrange(1, 300_000), source, target, rng.randrange(84, 1500), 0))
    datagrams.sort(key=lambda d: d.time)
    return [Datagram(d.time, d.source, d.target, d.wire, number) for number, d in enumerate(datagrams, start=1)]


def dumbbell() -> Topology:
    """Three fast hosts on each side of a slow link with another delay."""
    edges = [Link(f"h{i}", f"s{1 + i // 4}", 40e9, (1 + i) * 1e-7, 20_000) for i in range(1, 7)]
    nodes = [Node(f"h{i}") for i in range(1, 7)] + [Node("s1"), Node("s2")]
    return Topology("dumbbell", tuple(nodes), (*edges, Link("s1", "s2", 10e9, 3e-6, 9_000)))


CASES = {
    "star": lambda: topologies.load("star", hosts=5, rate=10e9, delay=1e-6, queue=12_000),
    "dumbbell": dumbbell,
    "leaf-spine": lambda: topologies.load("leaf-spine", leaves=3, spines=2, hosts=2, rate=25e9, delay=7e-7, queue=8_000),
    "fat-tree": lambda: topologies.load("fat-tree", k=4, rate=100e9, delay=1e-6, queue=5_000),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_the_same_packets_arrive_at_the_same_picosecond_and_the_same_are_dropped(ns3, program, name, seed):
    topology = CASES[name]()
    datagrams = bursts(topology, seed, targets=2)
    theirs, ours = in_ns3(ns3, topology, datagrams), in_ours(program, topology, datagrams)
    numbers = {datagram.number for datagram in datagrams}
    assert theirs[0] == ours[0], "arrivals, each to the picosecond"
    assert set(theirs[1]) == numbers - set(ours[0]), "drops"
    counts = {node: list(theirs[1].values()).count(node) for node in set(theirs[1].values())}
    assert counts == ours[1], "at the same switches"
    assert theirs[2] == ours[2], "packets and bytes of every transmitter"
    assert len(theirs[1]) > 20 and len(theirs[0]) > 200, "a case without losses, or with nothing else, shows little"


@pytest.mark.gate
def test_links_without_queues_of_their_own_lose_nothing(ns3, program):
    topology = topologies.load("star", hosts=4, rate=10e9, delay=1e-6)
    datagrams = bursts(topology, 7, targets=4)
    theirs, ours = in_ns3(ns3, topology, datagrams), in_ours(program, topology, datagrams)
    assert theirs == ours and len(theirs[0]) == len(datagrams) and not theirs[1]
