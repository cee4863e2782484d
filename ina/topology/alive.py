"""Directions of links that carry nothing: of links that are down, and of all links of switches that are down."""

from __future__ import annotations

from collections.abc import Collection

from ina.topology.link_events import link_parts
from ina.topology.topology import Hop, Topology, TopologyError

Direction = tuple[int, int]  # number of a link, and 0 from its end a, 1 from its end b


def dead_directions(topology: Topology, down: Collection[str]) -> frozenset[Direction]:
    """Returns the directions that carry nothing. ``down``: names of switches, of links, and of directions of links (s1>s9).

    Raises TopologyError: there is no such switch or link.
    """
    if not down:
        return frozenset()
    parts, dead = link_parts(topology), set()
    for name in down:
        if name in topology.by_name and not topology.is_host(name):
            dead |= {(number, side) for number, link in enumerate(topology.links) if name in (link.a, link.b) for side in (0, 1)}
        elif name in parts:
            dead |= {(parts[name].link, side) for side in parts[name].directions}
        else:
            raise TopologyError(f"{topology.name}: {name!r} is down: there is no such switch or link")
    return frozenset(dead)


def direction_of(topology: Topology, node: str, hop: Hop) -> Direction:
    """Returns the direction that a hop out of ``node`` takes."""
    return hop.link, int(topology.links[hop.link].a != node)
