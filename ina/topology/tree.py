"""The tree over switches along which one job aggregates: partial sums go up to the root, results down from it.

A switch adds up its children's packets and sends one packet up (as SwitchML NSDI'21 sketches under "Scaling beyond a rack";
ATP NSDI'21 has two levels). One tensor goes up and one down each link of the tree, whatever the number of workers below it.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ina.topology.alive import dead_directions
from ina.topology.topology import Topology, TopologyError, hop_counts


@dataclass(frozen=True)
class Tree:
    """``parent``: by name, of every worker and of every switch but the root. ``links``: numbers in the topology's ``links``, of
    the link from each of these nodes to its parent, in the same order."""

    root: str
    parent: dict[str, str]
    links: tuple[int, ...]

    @property
    def switches(self) -> tuple[str, ...]:
        """The root, then the others by the numbers in their names."""
        others = set(self.parent.values()) - {self.root}
        return (self.root, *sorted(others, key=_number))

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(sorted(self.parent.keys() - set(self.parent.values()), key=_number))

    def children(self, switch: str) -> tuple[str, ...]:
        """Returns the children of ``switch``: switches before hosts, each by number."""
        inner = set(self.parent.values())
        return tuple(sorted((n for n, p in self.parent.items() if p == switch), key=lambda n: (n not in inner, _number(n))))

    def path(self, node: str) -> list[str]:
        """Returns the nodes from ``node`` up to the root, both included."""
        nodes = [node]
        while nodes[-1] != self.root:
            nodes.append(self.parent[nodes[-1]])
        return nodes

    @property
    def depth(self) -> int:
        """Links from the root to the farthest worker."""
        return max(len(self.path(worker)) - 1 for worker in self.workers)


@functools.cache
def _number(name: str) -> tuple[str | int, ...]:
    """Returns a sort key that orders names by the numbers in them: h2, h10; leaf2-1, leaf10-1."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name)))


def aggregation_tree(
    topology: Topology, workers: Sequence[str], without: Collection[str] = (), load: Mapping[int, float] | None = None,
    roots: Collection[str] | Mapping[str, int | None] = (),
) -> Tree:
    """Returns a tree that reaches all ``workers``: the one whose slowest link is fastest; among these the least deep one, then
    the one with fewest links, then least load, then the lowest root.

    The slowest link counts first because the whole tensor crosses each link of a tree, whatever its other links. Links that are
    faster than the slowest of the workers' own are as good as that one. Among the links that are fast enough, every switch of the
    tree lies on a shortest path from the root to a worker. In a fat-tree the root is the workers' edge switch, an aggregation
    switch of their pod or a core switch, whichever is enough.

    ``without``: names of switches (failed, or out of slots) and of links to avoid. ``load``: of links, by number, from other jobs
    or trees, in any unit: the most loaded link of the tree counts, then their sum. ``roots``: one of these is to be the root;
    none: any switch; a mapping has the link to each root's
    parameter server, whose rate counts like a worker's; None: it has none in the topology. Only links that
    carry both directions are used. The number of links is minimal where paths down from a root are unique (star, leaf-spine,
    fat-tree); elsewhere the choice is greedy.

    Raises TopologyError: a worker is not a host of the topology or named twice, or no switch reaches all of them.
    """
    hosts = {host.name for host in topology.hosts}
    if not workers:
        raise TopologyError(f"{topology.name}: a job has at least one worker")
    seen = set()
    for worker in workers:
        if worker not in hosts:
            raise TopologyError(f"{topology.name}: there is no host {worker!r}; hosts are {_span(topology)}")
        if worker in seen:
            raise TopologyError(f"{topology.name}: worker {worker} is named twice")
        seen.add(worker)
    load, closed = load or {}, set(without)
    dead = {link for link, _ in dead_directions(topology, without)}
    edges = sorted({topology.switch_of(worker) for worker in workers}, key=_number)
    slowest = _slowest(topology, workers, edges, dead, roots)
    fast = {link for link in range(len(topology.links)) if link not in dead and _rate(topology, link) >= slowest}
    uplinks = _uplinks(roots)
    lost = [worker for worker in workers if topology.hops[worker][0].link in dead]
    wanted = {root for root in roots if uplinks.get(root) in fast or root not in uplinks}
    tree = None if lost or (roots and not wanted) else _shallowest(topology, edges, fast, closed, load, wanted)
    if tree is None:
        hint = "; rings=undirected makes its links duplex" if any(link.simplex for link in topology.links) else ""
        candidates = f"none of the switches {', '.join(sorted(roots))}" if roots else "no switch"
        raise TopologyError(f"{topology.name}: {candidates} reaches all of {', '.join(workers)} over duplex links{hint}")
    most = max((load.get(link, 0) for link in tree[2]), default=0)
    shared = {link for link in range(len(topology.links)) if link not in dead and load.get(link, 0) <= most} if load else fast
    if not shared <= fast:  # a slow link that is idle is as good as a fast one that others use
        tree = _shallowest(topology, edges, fast | shared, closed, load, wanted)
        assert tree is not None
    root, parent, links = tree
    seats = {worker: topology.switch_of(worker) for worker in sorted(workers, key=_number)}
    return Tree(root, parent | seats, (*links, *(topology.hops[worker][0].link for worker in seats)))


def _rate(topology: Topology, link: int) -> float:
    return topology.links[link].rate or math.inf


def _uplinks(roots: Collection[str] | Mapping[str, int | None]) -> dict[str, int]:
    """Returns the links to parameter servers, by root."""
    return {root: link for root, link in roots.items() if link is not None} if isinstance(roots, Mapping) else {}


def _slowest(
    topology: Topology, workers: Sequence[str], edges: list[str], dead: Collection[int],
    roots: Collection[str] | Mapping[str, int | None],
) -> float:
    """Returns the rate of the slowest link of the best tree, bit/s: links that are at least so fast connect the edges with each
    other, and with one of ``roots``. 0: no links do."""
    most = min(_rate(topology, topology.hops[worker][0].link) for worker in workers)
    between = [link for link, ends in enumerate(topology.links) if link not in dead and not ends.simplex
               and not topology.is_host(ends.a) and not topology.is_host(ends.b)]
    uplinks = _uplinks(roots)
    free = set(roots) - uplinks.keys()
    rates = sorted({most, *(min(most, _rate(topology, link)) for link in (*between, *uplinks.values()))}, reverse=True)

    def enough(rate: float) -> bool:
        graph: dict[str, list[str]] = {switch.name: [] for switch in topology.switches}
        for link in between:
            if _rate(topology, link) >= rate:
                a, b = topology.links[link].a, topology.links[link].b
                graph[a].append(b)
                graph[b].append(a)
        reached = hop_counts([edges[0]], graph.__getitem__)
        candidates = free | {root for root, link in uplinks.items() if link not in dead and _rate(topology, link) >= rate}
        return all(edge in reached for edge in edges) and (not roots or any(root in reached for root in candidates))

    first = bisect.bisect_left(rates, True, key=enough)  # what fast links connect, slower ones do, too
    return rates[first] if first < len(rates) else 0.0


def _shallowest(
    topology: Topology, edges: list[str], usable: Collection[int], closed: Collection[str], load: Mapping[int, float],
    roots: Collection[str],
) -> tuple[str, dict[str, str], list[int]] | None:
    """Returns the root, the parents of the other switches, and the links to these, of the best tree over ``usable`` links. None:
    there is none."""
    graph = _duplex(topology, usable, closed, load)
    # from each edge as to it: the links are duplex
    distance = {edge: hop_counts({edge} & graph.keys(), graph.__getitem__) for edge in edges}
    farthest = {
        switch: max(distance[edge][switch] for edge in edges)
        for switch in sorted(graph, key=_number)
        if all(switch in distance[edge] for edge in edges) and (not roots or switch in roots)
    }
    if not farthest:
        return None
    nearest = min(farthest.values())
    best: tuple[tuple[object, ...], dict[str, str], str] | None = None
    for candidate in (switch for switch, far in farthest.items() if far == nearest):
        parent = _grow(graph, candidate, edges, hop_counts([candidate], graph.__getitem__), load)
        loads = [load.get(graph[node][up], 0) for node, up in parent.items()]
        cost = (len(parent), max(loads, default=0), sum(loads), _number(candidate))
        if best is None or cost < best[0]:
            best = cost, parent, candidate
        if cost[:3] == (len(edges) - (candidate in edges), 0, 0) and candidate in edges:
            break  # only the workers' own switches, no load: optimal
    assert best is not None
    _, parent, root = best
    return root, parent, [graph[node][up] for node, up in parent.items()]


def _duplex(
    topology: Topology, usable: Collection[int], closed: Collection[str], load: Mapping[int, float]
) -> dict[str, dict[str, int]]:
    """Returns switch -> neighbouring switch -> the usable link between them that carries both directions; of several the least
    loaded."""
    graph: dict[str, dict[str, int]] = {s.name: {} for s in topology.switches if s.name not in closed}
    for number, link in enumerate(topology.links):
        if number in usable and not link.simplex and link.a in graph and link.b in graph:
            other = graph[link.a].get(link.b)
            if other is None or load.get(number, 0) < load.get(other, 0):
                graph[link.a][link.b] = graph[link.b][link.a] = number
    return graph


def _grow(
    graph: dict[str, dict[str, int]], root: str, edges: list[str], far: dict[str, int], load: Mapping[int, float]
) -> dict[str, str]:
    """Returns parents, from the farthest level up to ``root``. At each level, switches are added until all nodes below have a
    parent: first those that are in the tree anyway, then those that most nodes can use; each node takes the least loaded link."""

    def cost(node: str, up: str) -> float:
        return load.get(graph[node][up], 0)

    parent: dict[str, str] = {}
    levels: dict[int, set[str]] = {}
    for edge in edges:
        levels.setdefault(far[edge], set()).add(edge)
    for level in range(max(levels), 0, -1):
        nodes = sorted(levels.get(level, set()), key=_number)
        above = levels.setdefault(level - 1, set())
        ups = {node: [up for up in graph[node] if far[up] == level - 1] for node in nodes}
        orphans = [node for node in nodes if not above.intersection(ups[node])]
        while orphans:
            usable: dict[str, list[str]] = {}
            for node in orphans:
                for up in ups[node]:
                    usable.setdefault(up, []).append(node)
            above.add(min(usable, key=lambda up: (-len(usable[up]), max(cost(n, up) for n in usable[up]), _number(up))))  # noqa: B023
            orphans = [node for node in orphans if not above.intersection(ups[node])]
        for node in nodes:
            parent[node] = min(above.intersection(ups[node]), key=lambda up: (cost(node, up), _number(up)))  # noqa: B023
    return parent


def _span(topology: Topology) -> str:
    names = sorted((host.name for host in topology.hosts), key=_number)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
