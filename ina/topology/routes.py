"""Routes of least cost as forwarding tables: one port for each switch and host, the same for every frame to that host.

A path's cost is the time that its links take for a bit, together: the sum of 1/rate, as OSPF has it (RFC 2328 appendix C.3); and
then the number of its links. Between links of one rate the shortest path is taken; a link of 10 Gb/s is worth a way around it of
up to nine links of 100 Gb/s. Where several ports cost the same, the host's number chooses: its lowest digit in base (number of
choices) at the edge, the next one a level up, so that consecutive hosts spread over all core switches. The suffix tables of the
fat-tree paper do the same with host identifiers (Al-Fares SIGCOMM'08 §3.3, §3.5). Every hop is nearer to the host by the cost of
its link: no loops. Broadcasts go along a tree.

Links and switches that are ``down`` (ina/topology/alive.py) carry nothing; a host that cannot be reached has no entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from ina.topology.alive import Direction, dead_directions, direction_of
from ina.topology.topology import Hop, Topology, TopologyError, check_size

MOST_ENTRIES = 1 << 24  # a gigabyte and a half
HOP_BITS = 17  # of a cost: a path has fewer hops
Tables = dict[str, dict[str, Hop]]  # switch -> host -> way out


def tables(topology: Topology, down: Collection[str] = ()) -> Tables:
    """Returns the forwarding table of every switch: the hop towards every host that it reaches.

    ``down``: names of switches and links. Raises TopologyError: there is no such switch or link.
    """
    entries = len(topology.hosts) * len(topology.switches)
    check_size(topology.name, "hosts times switches", entries, 1, MOST_ENTRIES, "each switch has a route to each host")
    dead, levels = dead_directions(topology, down), topology.levels()
    arrivals = _arrivals(topology, dead, _costs(topology))
    result: Tables = {switch.name: {} for switch in topology.switches}
    choices: dict[str, dict[str, list[Hop]]] = {}
    for host in topology.hosts:
        edge = topology.switch_of(host.name)
        last = next(hop for hop in topology.hops[edge] if hop.node == host.name)
        if direction_of(topology, edge, last) in dead:
            continue
        if edge not in choices:
            choices[edge] = _choices(arrivals, edge)
        result[edge][host.name] = last
        for switch, best in choices[edge].items():
            digit = host.number // len(best) ** (levels[switch] - 1)
            result[switch][host.name] = best[digit % len(best)]
    return result


def _costs(topology: Topology) -> list[int]:
    """Returns the cost of each link: femtoseconds that a bit takes, to the nearest, and one hop."""
    return [(round(1e15 / link.rate) if link.rate else 0) << HOP_BITS | 1 for link in topology.links]


def _arrivals(topology: Topology, dead: Collection[Direction], costs: list[int]) -> dict[str, list[tuple[str, Hop, int]]]:
    """Returns for each switch the hops from other switches to it: the switch, the hop, and its cost."""
    arrivals: dict[str, list[tuple[str, Hop, int]]] = {switch.name: [] for switch in topology.switches}
    for source in arrivals:
        for hop in topology.hops[source]:
            if hop.node in arrivals and direction_of(topology, source, hop) not in dead:
                arrivals[hop.node].append((source, hop, costs[hop.link]))
    return arrivals


def _choices(arrivals: dict[str, list[tuple[str, Hop, int]]], edge: str) -> dict[str, list[Hop]]:
    """Returns for each other switch that reaches ``edge`` the hops from it that cost least, in the order of the links."""
    distance, queue = {edge: 0}, [(0, edge)]
    choices: dict[str, list[Hop]] = {}
    while queue:
        far, node = heapq.heappop(queue)
        if far > distance[node]:
            continue
        for source, hop, cost in arrivals[node]:
            least = distance.get(source, far + cost + 1)
            if far + cost < least:
                distance[source], choices[source] = far + cost, [hop]
                heapq.heappush(queue, (far + cost, source))
            elif far + cost == least:
                choices[source].append(hop)
    for hops in choices.values():
        hops.sort(key=lambda hop: hop.link)
    return choices


def flood_ports(topology: Topology, down: Collection[str] = ()) -> dict[str, list[int]]:
    """Returns for every switch the ports that lead to a host, or to a switch along a spanning tree of duplex links, so that
    broadcasts stay among the switches that these links join. The tree has paths of least cost from its root.

    ``down``: as in ``tables``; a link that carries nothing in one direction is left out."""
    dead, costs = {link for link, _ in dead_directions(topology, down)}, _costs(topology)
    ports: dict[str, set[int]] = {switch.name: set() for switch in topology.switches}
    reached: set[str] = set()
    for root in ports:
        if root in reached:
            continue
        distance, above = {root: 0}, dict[str, tuple[str, Hop]]()
        queue = [(0, 0, root)]
        while queue:
            far, _, switch = heapq.heappop(queue)
            if switch in reached:
                continue
            reached.add(switch)
            if switch in above:
                parent, hop = above[switch]
                ports[parent].add(hop.port)
                ports[switch].add(next(end.port for end in topology.ends[hop.link] if end.node == switch))
            for hop in topology.hops[switch]:
                through = far + costs[hop.link]
                if hop.link in dead or topology.links[hop.link].simplex:
                    continue
                if topology.is_host(hop.node):
                    ports[switch].add(hop.port)
                elif through < distance.get(hop.node, through + 1):
                    distance[hop.node], above[hop.node] = through, (switch, hop)
                    heapq.heappush(queue, (through, len(distance), hop.node))
    return {switch: sorted(numbers) for switch, numbers in ports.items()}


def route(topology: Topology, way: Tables, source: str, destination: str) -> list[str]:
    """Returns the nodes on the path from host ``source`` to host ``destination``, both included.

    Raises TopologyError: the tables have no entry, or a loop.
    """
    path, node = [source], topology.switch_of(source)
    while node != destination:
        if node in path or destination not in way.get(node, {}):
            raise TopologyError(f"{topology.name}: no route from {source} to {destination}: stuck at {node}")
        path.append(node)
        node = way[node][destination].node
    return [*path, destination]
