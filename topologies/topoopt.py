"""TopoOpt's degree-d direct connection (Wang et al.: TopoOpt, NSDI'23, §4): servers joined by a patch panel, no core switches.

Server i is host h<i> behind forwarding element s<i>, with ``degree`` interfaces to other servers' elements; packets travel
through other servers. The all-reduce part is rings "+p": server i sends to i + p (mod n), for steps p that are coprime to
n (TotientPerms); the model-parallel part is maximum-weight matchings of the traffic.

An interface is a transmitter and a receiver, which the patch panel may connect to different servers. Values of ``rings``:

    directed      as in the paper: a ring "+p" is n simplex circuits and costs each server one interface. A ring and its
                  reverse are two rings: n = 8 has four, +1 +3 +5 +7.
    undirected    a ring and its reverse together, so every link is a full-duplex cable (as a veth pair is): costs each
                  server two interfaces, one to each neighbour. n = 8 has two, +-1 and +-3.

Two circuits between the same servers in opposite directions are one full-duplex link in either case, so that directed +1
and +7 of eight servers are the undirected ring +-1. Trees need duplex links, so undirected is the default.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ina.topology.routes import Tables, tables
from ina.topology.topology import Link, Node, Topology, TopologyError, check_size, check_sizes

MODES = ("directed", "undirected")
MOST_SERVERS = 1024


# ---- rings and the way around them


def totients(n: int) -> list[int]:
    """Returns the steps p from 1 to n-1 that are coprime to n: "+p" is a Hamiltonian cycle for these only (TotientPerms)."""
    return [p for p in range(1, n) if math.gcd(p, n) == 1]


def select_steps(n: int, count: int, rings: str = "directed") -> tuple[int, ...]:
    """Returns ``count`` ring steps close to the geometric sequence 1, x, x^2, ... with x = n^(1/count), ascending; all, if there
    are no more (SelectPermutations). Undirected rings go both ways: steps up to n/2, and the sequence ends there."""
    candidates = [p for p in totients(n) if rings == "directed" or 2 * p <= n]
    count = min(count, len(candidates))
    ratio = (n if rings == "directed" else n / 2) ** (1 / count) if count else 1.0
    steps: list[int] = []
    for i in range(count):
        rest = [p for p in candidates if p not in steps]
        steps.append(min(rest, key=lambda p: (abs(p - ratio**i), p)))  # noqa: B023
    return tuple(sorted(steps))


def coin_change(n: int, coins: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Returns, for each distance 0..n-1, the fewest coins whose sum is that distance modulo n, in the order of use
    (CoinChangeMod).

    The rest of a route is the route of the remaining distance, so a forwarding element needs only that distance; and since no
    part of a shortest route sums to 0 (mod n), no server is passed twice. Raises TopologyError: coins do not reach all.
    """
    return _coin_change(n, tuple(sorted(set(coins))))


@lru_cache(maxsize=64)
def _coin_change(n: int, coins: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    sums: dict[int, tuple[int, ...]] = {0: ()}
    queue = [0]
    for distance in queue:
        for coin in coins:
            farther = (distance + coin) % n
            if farther not in sums:
                sums[farther] = (coin, *sums[distance])
                queue.append(farther)
    if len(queue) < n:
        raise TopologyError(f"steps {list(coins)} do not lead everywhere in a ring of {n}")
    return tuple(sums[distance] for distance in range(n))


# ---- traffic


@dataclass(frozen=True)
class Traffic:
    """A job's traffic in one iteration, in bytes; servers are numbered from 1.

    ``all_reduce``: groups of servers, each with its bytes. ``model_parallel``: bytes from one server to another.
    """

    all_reduce: tuple[tuple[tuple[int, ...], int], ...]
    model_parallel: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def from_matrix(matrix: Sequence[Sequence[int]], all_reduce: int) -> Traffic:
        """Returns traffic with one all-reduce group of all servers, and ``matrix[i][j]`` bytes from server i+1 to server j+1."""
        n = len(matrix)
        if any(len(row) != n for row in matrix):
            raise TopologyError(f"traffic matrix: expected {n} rows of {n} numbers")
        pairs = {(i + 1, j + 1): matrix[i][j] for i in range(n) for j in range(n) if matrix[i][j]}
        return Traffic(((tuple(range(1, n + 1)), all_reduce),), pairs)

    def check(self, servers: int) -> None:
        """Raises TopologyError: a server out of range, a negative number, a group of less than two or with repetitions."""
        for group, size in self.all_reduce:
            if len(group) < 2 or len(set(group)) != len(group) or not all(1 <= s <= servers for s in group):
                raise TopologyError(f"traffic: all-reduce group {group}: expected two or more different servers of 1..{servers}")
            _whole(size, f"all-reduce group {group}")
        for pair, size in self.model_parallel.items():
            if pair[0] == pair[1] or not all(1 <= s <= servers for s in pair):
                raise TopologyError(f"traffic: from {pair[0]} to {pair[1]}: expected two different servers of 1..{servers}")
            _whole(size, f"from {pair[0]} to {pair[1]}")


def _whole(size: object, place: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TopologyError(f"traffic: {place}: {size!r} is not a whole number of bytes")


def read_traffic(path: str | Path, servers: int) -> Traffic:
    """Reads a TOML file: ``all_reduce = 1000000`` (bytes, all servers) or a list of ``{servers = [1, 2], bytes = 1000}``, and
    ``matrix``, a list of rows of bytes from server to server. Raises TopologyError with the file and the key."""
    from ina.topology.file import parse

    raw = parse(Path(path)).content
    if unknown := set(raw) - {"all_reduce", "matrix"}:
        raise TopologyError(f"{path}: unknown key {sorted(unknown)[0]!r}; expected all_reduce, matrix")
    groups, matrix = raw.get("all_reduce", 0), raw.get("matrix", [[0] * servers] * servers)
    if not isinstance(matrix, list) or len(matrix) != servers or not all(isinstance(row, list) for row in matrix):
        raise TopologyError(f"{path}: matrix: expected {servers} rows of {servers} numbers")
    try:
        pairs = Traffic.from_matrix(matrix, 0).model_parallel
        if isinstance(groups, int):
            traffic = Traffic(((tuple(range(1, servers + 1)), groups),), pairs)
        else:
            if not isinstance(groups, list):
                raise TypeError("no list")
            traffic = Traffic(tuple((tuple(group["servers"]), group["bytes"]) for group in groups), pairs)
        traffic.check(servers)
    except (KeyError, TypeError) as error:
        raise TopologyError(f"{path}: all_reduce: expected bytes or a list of {{servers = [...], bytes = ...}}") from error
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None
    return traffic


# ---- the fabric


@dataclass(frozen=True)
class Group:
    """An all-reduce group: ``members`` in ring order, and the steps of its rings."""

    members: tuple[int, ...]
    steps: tuple[int, ...]
    rings: str

    @property
    def coins(self) -> tuple[int, ...]:
        """Usable steps: undirected rings go both ways."""
        back = {len(self.members) - step for step in self.steps} if self.rings == "undirected" else set()
        return tuple(sorted({*self.steps, *back}))

    @property
    def cycles(self) -> list[list[int]]:
        """The rings, each as the members in the order of sending, from the first; a reverse ring is one of its own."""
        n = len(self.members)
        return [[self.members[i * coin % n] for i in range(n)] for coin in self.coins]

    def route(self, source: int, destination: int) -> list[int]:
        """Returns the servers on the coin-change route from one member to another, both included (CoinChangeMod)."""
        path = [source]
        while path[-1] != destination:
            path.append(self.next(path[-1], destination))
        return path

    def next(self, source: int, destination: int) -> int:
        """Returns the server after ``source`` on its route to another one."""
        n, at = len(self.members), self.members.index(source)
        return self.members[(at + coin_change(n, self.coins)[(self.members.index(destination) - at) % n][0]) % n]


@dataclass(frozen=True)
class Fabric:
    """Connections of the patch panel: rings for all-reduce groups, matchings (pairs of servers) for the rest."""

    servers: int
    degree: int
    groups: tuple[Group, ...]
    matchings: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def circuits(self) -> Counter[tuple[int, int]]:
        """Number of simplex circuits by pair, from server to server."""
        circuits: Counter[tuple[int, int]] = Counter()
        for group in self.groups:
            for cycle in group.cycles:
                circuits.update(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        for matching in self.matchings:
            circuits.update(circuit for a, b in matching for circuit in ((a, b), (b, a)))
        return circuits

    def interfaces(self, server: int) -> int:
        """Returns how many interfaces of ``server`` are in use: the larger of its transmitters and its receivers."""
        sends = sum(count for (a, _), count in self.circuits.items() if a == server)
        receives = sum(count for (_, b), count in self.circuits.items() if b == server)
        return max(sends, receives)

    def links(self) -> Iterator[tuple[int, int, bool]]:
        """Yields server, server, simplex: circuits in opposite directions between two servers are one full-duplex link."""
        circuits = self.circuits
        for a, b in sorted(circuits, key=lambda pair: (min(pair), max(pair), pair)):
            forward, back = circuits[a, b], circuits[b, a]
            if a < b or not back:
                yield from [(a, b, False)] * min(forward, back)
            if forward > back:
                yield from [(a, b, True)] * (forward - back)

    def tables(self, topology: Topology) -> Tables:
        """Returns the forwarding tables of ``as_topology(self)``. With a group of all servers (the largest such): coin change
        over its rings, as the paper routes between servers without a direct link; else shortest routes."""
        group = next((group for group in self.groups if len(group.members) == self.servers), None)
        result = tables(topology)
        if group is None:
            return result
        for source in range(1, self.servers + 1):
            to = {hop.node: hop for hop in reversed(topology.hops[f"s{source}"])}
            for destination in range(1, self.servers + 1):
                if source != destination:
                    result[f"s{source}"][f"h{destination}"] = to[f"s{group.next(source, destination)}"]
        return result


def split_degree(degree: int, traffic: Traffic, rings: str = "directed") -> tuple[int, int]:
    """Returns the interfaces for all-reduce rings and for matchings: in proportion to their bytes, at least one ring, so that all
    are connected (TopologyFinder, step 1). Undirected rings take two each: rounded up if that fits."""
    reduce, parallel = sum(size for _, size in traffic.all_reduce), sum(traffic.model_parallel.values())
    share = degree if not parallel else max(1, -(-degree * reduce // (reduce + parallel)))
    if rings == "undirected" and share % 2:
        share = share + 1 if share < degree else max(1, share - 1)
    return share, degree - share


def _check_sizes(servers: int, degree: int) -> None:
    check_size("topoopt", "servers", servers, 2, MOST_SERVERS, "there is a route from each to each")
    check_size("topoopt", "degree", degree, 0, MOST_SERVERS, "one interface for each other server")
    check_sizes("topoopt", servers, servers, servers * (1 + degree))


def find_topology(servers: int, degree: int, traffic: Traffic, rings: str = "undirected") -> Fabric:
    """Finds the topology and the routes for a job's traffic (TopologyFinder): splits the degree, gives each all-reduce group
    rings by its bytes, then adds maximum-weight matchings of the rest, each of which halves the demand that it serves.

    Degrees are counted per server, so groups without a common server do not compete; a group of all servers has at least one
    ring; interfaces for which there is no ring left (phi(n) is small) go to matchings. Not done here: the alternation with a
    search for the job's parallelisation strategy, whose output is ``traffic``. Raises TopologyError.
    """
    if rings not in MODES:
        raise TopologyError(f"topoopt: rings is {rings!r}, expected {' or '.join(MODES)}")
    _check_sizes(servers, degree)
    least = 2 if rings == "undirected" and servers > 2 else 1
    if degree < least:
        raise TopologyError(f"topoopt: degree is {degree}, expected at least {least} with {rings} rings")
    traffic.check(servers)
    share, _ = split_degree(degree, traffic, rings)
    budget = {server: share for server in range(1, servers + 1)}
    groups = []
    ordered = sorted(traffic.all_reduce, key=lambda item: (-item[1], item[0]))
    of_all = next((i for i, (members, _) in enumerate(ordered) if len(members) == servers), -1)
    for i, (members, size) in enumerate(ordered):
        reserve = least if i < of_all else 0  # for the ring that connects all
        rivals = sum(other for group, other in traffic.all_reduce if set(group) & set(members))
        cost = 2 if rings == "undirected" and len(members) > 2 else 1
        part = -(-share * size // rivals) if rivals else share
        steps = select_steps(len(members), min(max(part, cost), min(budget[m] for m in members) - reserve) // cost, rings)
        if steps:
            groups.append(Group(tuple(members), steps, rings))
            for member in members:
                budget[member] -= cost * len(steps)
    free = {server: degree - share + budget[server] for server in budget}
    return Fabric(servers, degree, tuple(groups), _match(traffic.model_parallel, free))


def _match(demand: dict[tuple[int, int], int], free: dict[int, int]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns matchings of most demand between servers that have interfaces ``free`` (Edmonds' blossom algorithm)."""
    import networkx

    rounds = max(free.values())
    weight: Counter[tuple[int, int]] = Counter()
    for (a, b), size in demand.items():
        weight[min(a, b), max(a, b)] += size << rounds  # halved once a round: stays whole, so the matching is exact
    matchings = []
    for _ in range(rounds):
        graph: networkx.Graph[int] = networkx.Graph()
        graph.add_weighted_edges_from((a, b, w) for (a, b), w in sorted(weight.items()) if w and free[a] and free[b])
        pairs = tuple(sorted((min(pair), max(pair)) for pair in networkx.max_weight_matching(graph)))
        if not pairs:
            break
        matchings.append(pairs)
        for a, b in pairs:
            weight[a, b] //= 2
            free[a] -= 1
            free[b] -= 1
    return tuple(matchings)


def topology(
    servers: int = 8, degree: int = 4, rings: str = "undirected", traffic: Traffic | str | None = None,
    rate: float = 100e6, local: float = 0.0, delay: float = 0.0, queue: int = 512 * 1024, loss: float = 0.0, mtu: int = 1500,
) -> Topology:
    """``rate`` of each link between servers and ``local`` between a host and its own element (0: no limit), bit/s.

    ``traffic``: the traffic to optimise for (also the path of a file, see read_traffic); all-reduce of all by default.
    """
    return as_topology(fabric(servers, degree, rings, traffic), rate, local, delay, queue, loss, mtu)


def fabric(
    servers: int = 8, degree: int = 4, rings: str = "undirected", traffic: Traffic | str | None = None, **_links: object
) -> Fabric:
    """Returns the connections of ``topology`` with the same parameters, with rings and routes."""
    _check_sizes(servers, degree)
    if isinstance(traffic, str):
        traffic = read_traffic(traffic, servers) if traffic else None
    return find_topology(servers, degree, traffic or Traffic(((tuple(range(1, servers + 1)), 1),)), rings)


def as_topology(
    fabric: Fabric, rate: float = 100e6, local: float = 0.0, delay: float = 0.0, queue: int = 512 * 1024, loss: float = 0.0,
    mtu: int = 1500,
) -> Topology:
    """Port 1 of s<i> leads to h<i>, the others to other servers. Raises TopologyError: not all servers are connected."""
    servers = range(1, fabric.servers + 1)
    links = [Link(f"h{i}", f"s{i}", local) for i in servers]
    links += [Link(f"s{a}", f"s{b}", rate, delay, queue, loss, simplex) for a, b, simplex in fabric.links()]
    nodes = tuple(Node(f"{kind}{i}") for kind in "hs" for i in servers)
    try:
        return Topology("topoopt", nodes, tuple(links), mtu)
    except TopologyError as error:
        raise TopologyError(f"{error} (an all-reduce group of all servers would connect them)") from None
