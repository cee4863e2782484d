"""What an all-reduce costs where the links are the bottleneck: the time in which one worker's link sends its share.

    ring        2 (n-1)/n * S bytes per worker (Patarasuk and Yuan, 2009, §3), as TCP segments
    in-network  S bytes per worker, as the protocol's packets

Both with all headers and Ethernet's own 24 bytes per frame; without latency, exponents ahead of a tensor, or losses.
"""

from __future__ import annotations

from ina.transport import protocols
from ina.transport.config import ETHERNET_OVERHEAD

ETHERNET = 14
TCP_HEADERS = 20 + 20 + 12  # IPv4, TCP, its timestamp option


def ring_seconds(workers: int, size: float, rate: float, mtu: int) -> float:
    """``size`` in bytes, ``rate`` in bit/s, ``mtu`` in bytes."""
    overhead = (mtu + ETHERNET + ETHERNET_OVERHEAD) / (mtu - TCP_HEADERS)
    return 8 * 2 * (workers - 1) / workers * size * overhead / rate


def in_network_seconds(size: float, rate: float, values: int, protocol: str = protocols.DEFAULT) -> float:
    """``values``: integers per packet."""
    overhead = (protocols.frame_bytes(protocol, values) + ETHERNET_OVERHEAD) / (4 * values)
    return 8 * size * overhead / rate


def speed_up(workers: int, values: int, mtu: int, protocol: str = protocols.DEFAULT) -> float:
    """How much sooner an in-network all-reduce ends than a ring: 2(n-1)/n, and the difference of the headers."""
    return ring_seconds(workers, 1, 1, mtu) / in_network_seconds(1, 1, values, protocol)
