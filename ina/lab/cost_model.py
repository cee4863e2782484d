"""Cost of an all-reduce where the links are the bottleneck: the time in which one worker's link sends its share.

    ring        2 (n-1)/n * S bytes per worker (Patarasuk and Yuan, 2009, §3), as TCP segments
    in-network  S bytes per worker, as the protocol's packets; n times as many at a parameter server without a switch's help

Both with all headers and Ethernet's own 24 bytes per frame; without latency, exponents ahead of a tensor, or losses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.aggregation.lane import INT32
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.topology import routes
from ina.topology.topology import Topology
from ina.topology.tree import aggregation_tree

ETHERNET = 14
BMV2_FRAME, BMV2_VALUE, BMV2_FORWARD = 10e-6, 1e-6, 60e-6  # s: python -m bench bmv2, and a training of Gloo's
TCP_HEADERS = 20 + 20 + 12  # IPv4, TCP, its timestamp option


def ring_seconds(workers: int, size: float, rate: float, mtu: int) -> float:
    """Returns the time of a ring all-reduce. ``size`` in bytes, ``rate`` in bit/s, ``mtu`` in bytes."""
    overhead = (mtu + ETHERNET + ETHERNET_OVERHEAD) / (mtu - TCP_HEADERS)
    return 8 * 2 * (workers - 1) / workers * size * overhead / rate


def in_network_seconds(
    size: float, rate: float, values: int, protocol: str = protocols.DEFAULT, workers: int = 1
) -> float:
    """Returns the time in the network. ``values``: integers per packet. ``workers``: only matter with a parameter server."""
    overhead = (protocols.frame_bytes(protocol, values) + ETHERNET_OVERHEAD) / INT32.bytes(values)
    copies = 1 if program_named(protocol).multicasts else workers
    return 8 * copies * size * overhead / rate


def speed_up(workers: int, values: int, mtu: int, protocol: str = protocols.DEFAULT) -> float:
    """Returns the speed-up of an in-network all-reduce over a ring: 2(n-1)/n, and the difference of the headers."""
    return ring_seconds(workers, 1, 1, mtu) / in_network_seconds(1, 1, values, protocol, workers)


def bmv2_seconds(
    backend: str, topology: Topology, hosts: Sequence[str], parameters: int, values: int, mtu: int, cores: int
) -> float:
    """Estimates how long one all-reduce of float32 among ``hosts`` keeps BMv2s busy (an optimised build, on the machine of
    docs/results/benchmarks.md), which are slower than their links: a time for each packet and value in it, at every switch on its
    path; Gloo's ring is forwarded segment by segment. Switches run in parallel, on ``cores``."""
    if backend != "gloo":
        tree = aggregation_tree(topology, hosts)
        visits = Counter({switch: len(tree.children(switch)) + (switch != tree.root) for switch in tree.switches})
        packets: float = math.ceil(parameters / values)
        cost = BMV2_FRAME + BMV2_VALUE * values
    else:
        tables = routes.tables(topology)
        ring = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
        visits = Counter(switch for a, b in ring for switch in routes.route(topology, tables, a, b)[1:-1])
        packets = 2 * (len(hosts) - 1) / len(hosts) * math.ceil(parameters * np.float32(0).itemsize / (mtu - TCP_HEADERS))
        cost = BMV2_FORWARD
    return max(max(visits.values()), sum(visits.values()) / cores) * packets * cost
