"""The tree over switches along which one job aggregates: partial sums go up to the root, results down from it.

A switch adds up what its children send and sends one packet up (as SwitchML NSDI'21 sketches under "Scaling beyond a rack";
ATP NSDI'21 has two levels). One tensor goes up and one down each link of the tree, whatever the number of workers below it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from topologies.model import Topology, TopologyError


@dataclass(frozen=True)
class Tree:
    """``parent``: of every worker and of every switch but the root. ``links``: numbers in the topology's ``links``, of the
    link from each of these nodes to its parent, in the same order."""

    root: str
    parent: dict[str, str]
    links: tuple[int, ...]

    @property
    def switches(self) -> tuple[str, ...]:
        """The root, then the others by name's number."""
        others = {node for node in self.parent if node[0] == "s"}
        return (self.root, *sorted(others, key=_number))

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(sorted((node for node in self.parent if node[0] == "h"), key=_number))

    def children(self, switch: str) -> tuple[str, ...]:
        """What ``switch`` adds up: switches before hosts, each by number."""
        return tuple(sorted((n for n, p in self.parent.items() if p == switch), key=lambda n: (n[0] == "h", _number(n))))

    def path(self, node: str) -> list[str]:
        """From ``node`` up to the root, both included."""
        way = [node]
        while way[-1] != self.root:
            way.append(self.parent[way[-1]])
        return way

    @property
    def depth(self) -> int:
        """Links from the root to the farthest worker."""
        return max(len(self.path(worker)) - 1 for worker in self.workers)


def _number(name: str) -> int:
    return int(name[1:])


def aggregation_tree(topology: Topology, workers: Sequence[str], without: Collection[str] = ()) -> Tree:
    """The least deep tree that reaches all ``workers``; among these the one with fewest links, then the lowest root.

    Every switch of it lies on a shortest way from the root to a worker. In a fat-tree the root is the workers' edge switch, an
    aggregation switch of their pod or a core switch, whichever is enough. ``without``: switches to stay away from (failed,
    or out of slots). Only links that carry both directions are used. That the links are fewest is sure where ways down
    from a root are unique (star, leaf-spine, fat-tree) and a greedy choice elsewhere.

    Raises TopologyError: a worker is not a host of the topology or named twice, or no switch reaches all of them.
    """
    hosts = {host.name for host in topology.hosts}
    if not workers:
        raise TopologyError(f"{topology.name}: a job has at least one worker")
    for worker in workers:
        if worker not in hosts:
            raise TopologyError(f"{topology.name}: there is no host {worker!r}; hosts are {_span(topology)}")
        if list(workers).count(worker) > 1:
            raise TopologyError(f"{topology.name}: worker {worker} is named twice")
    graph = _duplex(topology, set(without))
    edges = sorted({topology.switch_of(worker) for worker in workers}, key=_number)
    distance = {edge: _distances(graph, edge) for edge in edges}  # both ways alike: the links are duplex
    farthest = {
        switch: max(distance[edge][switch] for edge in edges)
        for switch in sorted(graph, key=_number)
        if all(switch in distance[edge] for edge in edges)
    }
    if not farthest:
        hint = "; rings=undirected makes its links duplex" if any(link.simplex for link in topology.links) else ""
        raise TopologyError(f"{topology.name}: no switch reaches all of {', '.join(workers)} over duplex links{hint}")
    best: dict[str, str] | None = None
    root = ""
    for candidate in (switch for switch, far in farthest.items() if far == min(farthest.values())):
        parent = _grow(graph, candidate, edges, _distances(graph, candidate))
        if best is None or len(parent) < len(best):
            best, root = parent, candidate
        if len(best) == len(edges) - (root in edges):
            break  # no switch that is not a worker's: it cannot be less
    assert best is not None
    best |= {worker: topology.switch_of(worker) for worker in workers}
    links = tuple(graph[node][up] if node[0] == "s" else topology.hops[node][0].link for node, up in best.items())
    return Tree(root, best, links)


def _duplex(topology: Topology, without: set[str]) -> dict[str, dict[str, int]]:
    """Switch -> neighbouring switch -> the first link that carries both directions."""
    graph: dict[str, dict[str, int]] = {s.name: {} for s in topology.switches if s.name not in without}
    for number, link in enumerate(topology.links):
        if not link.simplex and link.a in graph and link.b in graph:
            graph[link.a].setdefault(link.b, number)
            graph[link.b].setdefault(link.a, number)
    return graph


def _distances(graph: dict[str, dict[str, int]], start: str) -> dict[str, int]:
    if start not in graph:
        return {}
    found, waiting = {start: 0}, [start]
    for node in waiting:
        for neighbour in graph[node]:
            if neighbour not in found:
                found[neighbour] = found[node] + 1
                waiting.append(neighbour)
    return found


def _grow(graph: dict[str, dict[str, int]], root: str, edges: list[str], far: dict[str, int]) -> dict[str, str]:
    """Parents from the farthest level up to ``root``: at each level, the switch that most others can use is taken first."""
    parent: dict[str, str] = {}
    waiting: dict[int, set[str]] = {}
    for edge in edges:
        waiting.setdefault(far[edge], set()).add(edge)
    for level in range(max(waiting), 0, -1):
        orphans = waiting.get(level, set())
        above = waiting.setdefault(level - 1, set())
        can = {up: {n for n in orphans if up in graph[n]} for n in orphans for up in graph[n] if far[up] == level - 1}
        while orphans:
            up = min(can, key=lambda c: (c not in above, -len(can[c] & orphans), _number(c)))
            taken = can.pop(up) & orphans
            if taken:
                above.add(up)
                orphans = orphans - taken
                parent |= {node: up for node in sorted(taken, key=_number)}
    return parent


def _span(topology: Topology) -> str:
    names = sorted((host.name for host in topology.hosts), key=_number)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
