"""Shortest routes as forwarding tables: one port for each switch and host, the same for every frame to that host.

Where several ports are equally near, the host's number chooses: its lowest digit in base (number of choices) at the edge, the
next one a level up, so that consecutive hosts spread over all core switches. The suffix tables of the fat-tree paper do the same
with host identifiers (Al-Fares SIGCOMM'08 §3.3, §3.5). Every hop is one nearer to the host: no loops. Broadcasts go along a tree.
"""

from __future__ import annotations

from ina.topology.topology import Hop, Topology, TopologyError, check_size

MOST_ENTRIES = 1 << 24  # a gigabyte and a half
Tables = dict[str, dict[str, Hop]]  # switch -> host -> way out


def tables(topology: Topology) -> Tables:
    """Returns the forwarding table of every switch: the hop towards every host."""
    entries = len(topology.hosts) * len(topology.switches)
    check_size(topology.name, "hosts times switches", entries, 1, MOST_ENTRIES, "each switch has a route to each host")
    levels = topology.levels()
    result: Tables = {switch.name: {} for switch in topology.switches}
    into: dict[str, list[str]] = {node.name: [] for node in topology.nodes}
    for node, hops in topology.hops.items():
        for hop in () if topology.is_host(node) else hops:  # hosts do not forward
            into[hop.node].append(node)
    nearness: dict[str, dict[str, int]] = {}
    for host in topology.hosts:
        edge = topology.switch_of(host.name)
        if edge not in nearness:
            nearness[edge] = _distances_to(edge, into)
        distance = nearness[edge]
        for switch, table in result.items():
            if switch == edge:
                table[host.name] = next(hop for hop in topology.hops[switch] if hop.node == host.name)
                continue
            best = [hop for hop in topology.hops[switch] if distance.get(hop.node, 1 << 30) == distance[switch] - 1]
            digit = host.number // len(best) ** (levels[switch] - 1)
            table[host.name] = best[digit % len(best)]
    return result


def flood_ports(topology: Topology) -> dict[str, list[int]]:
    """Returns for every switch the ports that lead to a host, or to a switch along a spanning tree of duplex links, so that
    broadcasts stay among the switches that these links join."""
    ports: dict[str, set[int]] = {switch.name: set() for switch in topology.switches}
    reached: set[str] = set()
    for root in ports:
        queue = [] if root in reached else [root]
        reached.add(root)
        for switch in queue:
            for hop in topology.hops[switch]:
                if hop.node not in ports:
                    ports[switch].add(hop.port)
                elif hop.node not in reached and not topology.links[hop.link].simplex:
                    reached.add(hop.node)
                    queue.append(hop.node)
                    ports[switch].add(hop.port)
                    ports[hop.node].add(next(end.port for end in topology.ends[hop.link] if end.node == hop.node))
    return {switch: sorted(numbers) for switch, numbers in ports.items()}


def _distances_to(switch: str, into: dict[str, list[str]]) -> dict[str, int]:
    """Returns the links on the shortest path from every switch to ``switch``."""
    distances, queue = {switch: 0}, [switch]
    for node in queue:
        for before in into[node]:
            if before not in distances:
                distances[before] = distances[node] + 1
                queue.append(before)
    return distances


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
