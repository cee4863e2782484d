"""Leaf-spine: every leaf switch has a link to every spine switch (a folded Clos network of two stages).

    leaves   s1, s2, ...   their hosts in order: with 4 each, h1 to h4 are at s1, h5 to h8 at s2; ports 1, 2, ...
    spines   after the leaves; leaf s<i> is at port i
"""

from __future__ import annotations

from ina.topology.topology import Link, Node, Topology, TopologyError, check_sizes


def topology(
    leaves: int = 4, spines: int = 2, hosts: int = 4, rate: float = 100e6, uplink: float = 0.0, delay: float = 0.0,
    queue: int = 512 * 1024, loss: float = 0.0, mtu: int = 1500,
) -> Topology:
    """``hosts`` at each leaf; ``rate`` of their links and ``uplink`` of those to spines (0: the same), bit/s."""
    for key, value in (("leaves", leaves), ("spines", spines), ("hosts", hosts)):
        if value < 1:
            raise TopologyError(f"leaf-spine: {key} is {value}, expected at least 1")
    check_sizes("leaf-spine", leaves * hosts, leaves + spines, leaves * (hosts + spines))
    links = []
    for leaf in range(leaves):
        links += [Link(f"h{leaf * hosts + i}", f"s{leaf + 1}", rate, delay, queue, loss) for i in range(1, hosts + 1)]
    for leaf in range(leaves):
        for spine in range(spines):
            links.append(Link(f"s{leaf + 1}", f"s{leaves + spine + 1}", uplink or rate, delay, queue, loss))
    names = [f"h{i}" for i in range(1, leaves * hosts + 1)] + [f"s{i}" for i in range(1, leaves + spines + 1)]
    return Topology("leaf-spine", tuple(map(Node, names)), tuple(links), mtu)
