"""k-ary fat-tree (Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture, SIGCOMM'08 §2.2).

k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches, all with k ports; k^3/4 hosts, and as much
bandwidth between any two halves of them as they have. Core j*k/2+i has a link to aggregation switch j of every pod.

    edge          s1 to s<k^2/2>, pod by pod      ports 1 to k/2: hosts in order; k/2+1 to k: the pod's aggregation
    aggregation   s<k^2/2+1> to s<k^2>            ports 1 to k/2: the pod's edge;  k/2+1 to k: core
    core          s<k^2+1> to s<5k^2/4>           port p+1: pod p

Addresses follow from the names as everywhere here, not from the pod as in §3.2 of the paper.
"""

from __future__ import annotations

from ina.topology.topology import Link, Node, Topology, TopologyError


def topology(
    k: int = 4, rate: float = 100e6, delay: float = 0.0, queue: int = 512 * 1024, loss: float = 0.0, mtu: int = 1500
) -> Topology:
    """``k``: ports of each switch, even. ``rate`` in bit/s, ``delay`` in seconds, ``queue`` in bytes, of each link."""
    if k < 2 or k % 2 or k > 34:
        raise TopologyError(f"fat-tree: k is {k}, expected an even number from 2 to 34")
    half = k // 2
    edges, hosts = k * half, k * half * half
    pairs = [(f"h{h + 1}", f"s{h // half + 1}") for h in range(hosts)]
    for edge in range(edges):
        pod = edge // half
        pairs += [(f"s{edge + 1}", f"s{edges + pod * half + j + 1}") for j in range(half)]
    for aggregation in range(edges):
        j = aggregation % half
        pairs += [(f"s{edges + aggregation + 1}", f"s{2 * edges + j * half + i + 1}") for i in range(half)]
    names = [f"h{i + 1}" for i in range(hosts)] + [f"s{i + 1}" for i in range(2 * edges + half * half)]
    links = tuple(Link(a, b, rate, delay, queue, loss) for a, b in pairs)
    return Topology("fat-tree", tuple(map(Node, names)), links, mtu)
