"""All-reduces between hosts, the baselines, as schedules of transfers: source, target, part, and what must be complete before.

Each states its cost: S bytes of tensor (with all headers, at rate R: S/R seconds), n ranks, a: one-way latency between two
of them. Counted for one NIC and direction, on a network without other bottlenecks:

    ring                 2(n-1) (S/n/R + a), in slices 2(n-1)/n S/R + a
    halving_doubling     2(n-1)/n S/R + 2 log2(n) a
    parameter_server     k of the ranks serve: 2a + (n-1)/k S/R for k = 1, 2a + 2(n-1)/n S/R for k = n
    byteps               n of the ranks have values, g and c of S are added up by each of these and each other: the larger of
                         S + (n-2) g and n c, /R, + a slice of c from all of the n + 2a
    tree                 about 2 log2(n) (S/m/R + a) + 3 S/R in m slices: an inner rank receives 2 S and passes on S, twice

`collective.c` runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from ina.base.native import CData, ffi, lib

SEND, ADD, COPY = lib.INA_SEND, lib.INA_ADD, lib.INA_COPY
HEADERS = 58  # bytes in front of a packet's values (collective.h)
IDEAL, DCTCP = lib.INA_IDEAL_WINDOW, lib.INA_DCTCP


@dataclass(frozen=True)
class Transfer:
    """``kind``: SEND, or what a receive does with its values: ADD or COPY. Parts ``first`` to ``last`` - 1 to or from rank
    ``peer``.

    A send waits until all receives that count for ``gate`` are complete; a receive counts for gates ``gate`` to ``last_gate``.
    """

    kind: int
    peer: int
    gate: int
    last_gate: int
    first: int
    last: int


@dataclass
class Schedule:
    """Transfers of each rank for a tensor of ``parts`` equal parts; the n-th send to a rank is its n-th receive from there.
    ``ordered``: a rank sends the earliest transfer that may go; else its peers take turns."""

    name: str
    ranks: int
    parts: int
    gates: int = 1
    ordered: bool = False
    transfers: list[list[Transfer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.transfers = [[] for _ in range(self.ranks)]

    def move(self, source: int, target: int, parts: tuple[int, int], kind: int, after: int, counts: tuple[int, int]) -> None:
        """Adds a transfer: ``source`` sends parts once its gate ``after`` is open; at ``target`` the receive counts for gates
        ``counts``."""
        self.transfers[source].append(Transfer(SEND, target, after, after, *parts))
        self.transfers[target].append(Transfer(kind, source, *counts, *parts))
        self.gates = max(self.gates, after + 1, counts[1] + 1)

    def native(self, rank: int) -> CData:
        """Returns ``struct ina_transfer[]`` of one rank."""
        return ffi.new("struct ina_transfer[]", [t.__dict__ for t in self.transfers[rank]])


def ring(orders: Sequence[Sequence[int]], slices: int = 1) -> Schedule:
    """Reduce-scatter, then all-gather, round each of ``orders`` (permutations of the ranks) with an equal share of the tensor.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009. Several orders use several links of a rank at
    once, as TopoOpt does with its rings: S/k in the place of S on k rings that share no link. In ``slices``, a rank
    passes each on before all of the step has arrived: 2(n-1)/n S/R + a as long as a step lasts longer than a.
    """
    n, rings = len(orders[0]), len(orders)
    schedule = Schedule("ring", n, n * rings * slices)
    steps = 2 * (n - 1)
    for step, k, part in itertools.product(range(steps), range(rings), range(slices)):
        gate = (k * steps + step) * slices + part + 1  # opened by this step's slice
        adding = step < n - 1
        for i, rank in enumerate(orders[k]):
            chunk = (i - step) % n if adding else (i + n - step) % n
            at = (k * n + chunk) * slices + part
            after = gate - slices if step else 0
            schedule.move(rank, orders[k][(i + 1) % n], (at, at + 1), ADD if adding else COPY, after, (gate, gate))
    return schedule


def halving_doubling(n: int) -> Schedule:
    """Recursive halving of the tensor, each half added up by one of two partners, then recursive doubling back.

    Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH, IJHPCA 2005. ValueError: n is no
    power of two.
    """
    if n < 2 or n & (n - 1):
        raise ValueError(f"halving-doubling: {n} ranks, expected a power of two from 2 on")
    schedule = Schedule("halving-doubling", n, n)
    levels = n.bit_length() - 1
    last = 2 * levels  # a receive of step t counts for all later steps
    low, high = [0] * n, [n] * n
    for step in range(levels):
        half = n >> (step + 1)
        for rank in range(n):
            middle = low[rank] + half
            span = (middle, high[rank]) if not rank & half else (low[rank], middle)
            schedule.move(rank, rank ^ half, span, ADD, step, (step + 1, last))
        for rank in range(n):
            middle = low[rank] + half
            low[rank], high[rank] = (middle, high[rank]) if rank & half else (low[rank], middle)
    for step in range(levels):
        half = 1 << step
        for rank in range(n):
            schedule.move(rank, rank ^ half, (low[rank], high[rank]), COPY, levels + step, (levels + step + 1, last))
        for rank in range(n):
            low[rank], high[rank] = min(low[rank], low[rank] ^ half), max(high[rank], (low[rank] ^ half) + half)
    return schedule


def tree(n: int, slices: int = 32) -> Schedule:
    """Up a binary tree of ranks (rank i's parent is (i-1)/2), sums on the way, and down again; slices follow each other."""
    schedule = Schedule("tree", n, slices)
    for part in range(slices):
        up, down = 1 + 2 * part, 2 + 2 * part
        for rank in range(n - 1, 0, -1):
            leaf = 2 * rank + 1 >= n
            schedule.move(rank, (rank - 1) // 2, (part, part + 1), ADD, 0 if leaf else up, (up, up))
        for rank in range(1, n):
            parent = (rank - 1) // 2
            schedule.move(parent, rank, (part, part + 1), COPY, down if parent else up, (down, down))
    return schedule


def parameter_server(n: int, servers: int = 1, slices: int = 32) -> Schedule:
    """The first ``servers`` of the ranks each add up an equal share of the tensor and send it to all others, slice by slice."""
    if not 1 <= servers <= n:
        raise ValueError(f"parameter server: {servers} servers, expected 1 to {n}, the number of ranks")
    schedule = Schedule("parameter-server", n, servers * slices)
    moves = [(s * slices + part, s, (s + turn) % n) for part in range(slices) for turn in range(1, n) for s in range(servers)]
    for at, server, rank in moves:
        schedule.move(rank, server, (at, at + 1), ADD, 0, (1 + 2 * at, 1 + 2 * at))
    for at, server, rank in moves:  # after all sends of the same two ranks that need no sum: nothing waits behind a sum
        schedule.move(server, rank, (at, at + 1), COPY, 1 + 2 * at, (2 + 2 * at, 2 + 2 * at))
    return schedule


def byteps(workers: int, loads: Sequence[int], slices: int = 128) -> Schedule:
    """Parameter servers at all ranks: rank i adds up ``loads[i]`` of the tensor's parts and sends the sum to the ``workers``,
    which are the first ranks. The others have no values of their own: their tensors are zeros.

    Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters, OSDI 2020.
    A worker's slices for the other ranks go out at the same pace as what it exchanges with workers, values first, then sums: so
    all links are busy from the first slice to the last.
    """
    schedule = Schedule("byteps", len(loads), sum(loads), ordered=True)
    begins = [0, *itertools.accumulate(loads)]
    moves = []
    for part, turn, server in itertools.product(range(slices), range(workers), range(len(loads))):
        first, last = (begins[server] + loads[server] * end // slices for end in (part, part + 1))
        worker = (server + turn) % workers
        if worker == server or first == last:
            continue
        before, after = (part, part + slices) if server < workers else (2 * part, 2 * part)  # in halves of slices
        moves.append((before, worker, server, (first, last), ADD, 0, 1 + part))
        moves.append((after, server, worker, (first, last), COPY, 1 + part, 1 + slices))
    for _, source, target, parts, kind, gate, opens in sorted(moves, key=lambda move: move[0]):
        schedule.move(source, target, parts, kind, gate, (opens, opens))
    return schedule


# ---- other collectives: the tensor is n times as large as each rank's input or, for *reduce-scatter*, output


def all_gather(n: int) -> Schedule:
    """Round a ring: each rank passes on the part that it received last. (n-1) (S/n/R + a) for a tensor of S in all."""
    return _once_round("all-gather", n, COPY, 0)


def reduce_scatter(n: int) -> Schedule:
    """Round a ring, sums on the way; rank i has the sum of part i in the end. (n-1) (S/n/R + a)."""
    return _once_round("reduce-scatter", n, ADD, 1)


def _once_round(name: str, n: int, kind: int, behind: int) -> Schedule:
    """A ring, once round: each rank begins with the part so many places ``behind`` its own, and passes on what it received."""
    schedule = Schedule(name, n, n)
    for step in range(n - 1):
        for rank in range(n):
            part = (rank - behind - step) % n
            schedule.move(rank, (rank + 1) % n, (part, part + 1), kind, step, (step + 1, step + 1))
    return schedule


def all_to_all(n: int) -> Schedule:
    """Each rank sends each other one its part, all at once. Part i n + j goes from i to j: the tensor is n times as large as a
    rank's input, of which (n-1)/n leave and as much arrive: a + (n-1)/n S/R."""
    schedule = Schedule("all-to-all", n, n * n)
    for turn in range(1, n):
        for rank in range(n):
            part = rank * n + (rank + turn) % n
            schedule.move(rank, (rank + turn) % n, (part, part + 1), COPY, 0, (1, 1))
    return schedule


def broadcast(n: int, slices: int = 32) -> Schedule:
    """Down a binary tree from rank 0, slice by slice."""
    schedule = Schedule("broadcast", n, slices)
    for part in range(slices):
        for rank in range(1, n):
            parent = (rank - 1) // 2
            schedule.move(parent, rank, (part, part + 1), COPY, 1 + part if parent else 0, (1 + part, 1 + part))
    return schedule


def reduce(n: int, slices: int = 32) -> Schedule:
    """Up a binary tree to rank 0, sums on the way, slice by slice."""
    schedule = Schedule("reduce", n, slices)
    for part in range(slices):
        for rank in range(n - 1, 0, -1):
            leaf = 2 * rank + 1 >= n
            schedule.move(rank, (rank - 1) // 2, (part, part + 1), ADD, 0 if leaf else 1 + part, (1 + part, 1 + part))
    return schedule


def gather(n: int) -> Schedule:
    """Each rank sends its part to rank 0."""
    schedule = Schedule("gather", n, n)
    for rank in range(1, n):
        schedule.move(rank, 0, (rank, rank + 1), COPY, 0, (1, 1))
    return schedule


def scatter(n: int) -> Schedule:
    """Rank 0 sends each rank its part."""
    schedule = Schedule("scatter", n, n)
    for rank in range(1, n):
        schedule.move(0, rank, (rank, rank + 1), COPY, 0, (1, 1))
    return schedule


def message() -> Schedule:
    """Rank 0 sends all of the tensor to rank 1."""
    schedule = Schedule("message", 2, 1)
    schedule.move(0, 1, (0, 1), COPY, 0, (1, 1))
    return schedule
