"""Star: hosts h1, h2, ... around switch s1, each at a link of its own; host h<i> is at port i."""

from __future__ import annotations

from ina.topology.topology import Link, Node, Topology, check_sizes


def topology(
    hosts: int = 4, rate: float = 100e6, delay: float = 0.0, queue: int = 512 * 1024, loss: float = 0.0, mtu: int = 1500
) -> Topology:
    """``rate`` in bit/s, ``delay`` in seconds, ``queue`` in bytes, of each link and direction."""
    check_sizes("star", hosts, 1, hosts)
    names = [f"h{i}" for i in range(1, hosts + 1)]
    links = tuple(Link(name, "s1", rate, delay, queue, loss) for name in names)
    return Topology("star", (*map(Node, names), Node("s1")), links, mtu)
