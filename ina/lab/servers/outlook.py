"""Arithmetic of in-network aggregation by switch processes on servers, against a ring: bytes of network cards, and round trips.

All of it is our own, of one tensor of S bytes, in bytes for each byte of the tensor. ``ranks``: those of each server that
trains. A ring goes through the ranks of one server after those of the other, so each server's card sends 2 (N - 1)/N S, N ranks
in all. To a switch process each rank sends S and from it each gets S, over the server's card, unless it is on the same server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BITS = 32  # of a value as a ring sends it


def ring_bytes(ranks: int) -> float:
    """Returns the bytes that each card sends in a ring."""
    return 2 * (ranks - 1) / ranks


def switch_bytes(ranks: Sequence[int], own: int = 0, switches: int = 1) -> float:
    """Returns the bytes that a switch process's card receives, and sends. ``own``: ranks of ``ranks`` on the same server;
    ``switches``: so many such servers, without ranks, have an equal part of the sums each."""
    return (sum(ranks) - own) / switches


def needed(ranks: Sequence[int], own: int = 0, switches: int = 1, bits: int = BITS) -> float:
    """Returns how many times as fast as the others' a switch process's card has to be, so that large sums take no longer than in
    a ring; with one rank a server, n servers and m switch processes apart from them, n^2/(2 m (n - 1)). Infinite: none is
    enough, as the cards of servers with several ranks carry more than the ring's. ``bits``: of a value, to the switch and back.
    """
    ring, share = ring_bytes(sum(ranks)), bits / BITS
    if max(ranks) * share > ring:
        return float("inf")
    return switch_bytes(ranks, own, switches) * share / ring


def most_bits(ranks: Sequence[int], ratio: float, own: int = 0, switches: int = 1) -> int:
    """Returns the most bits of a value with which large sums take no longer than in a ring, 0 to BITS, where the switch process's
    card is ``ratio`` times as fast as the others'."""
    return max((bits for bits in range(1, BITS + 1) if needed(ranks, own, switches, bits) <= ratio), default=0)


def ring_trips(ranks: Sequence[int]) -> float:
    """Returns the round trips between servers that a small sum takes in a ring: 2 (N - 1) steps of half a round trip each, but
    those within a server, which take no time here. n - 1 with one rank on each of n servers."""
    return (sum(ranks) - 1) * len(ranks) / sum(ranks) if len(ranks) > 1 else 0.0


def even_size(ranks: Sequence[int], rate: float, switch_rate: float, trip: float, own: int = 0, switches: int = 1) -> float:
    """Returns the bytes of the tensor up to which a sum through the switch takes no longer than in a ring: 0 at two ranks if
    large ones take longer; infinite if all of them are as quick. ``rate``, ``switch_rate``: bit/s of cards; ``trip``: s."""
    ring = ring_bytes(sum(ranks)) * 8 / rate  # s a byte
    switch = max(max(ranks) * 8 / rate, switch_bytes(ranks, own, switches) * 8 / switch_rate)
    saved = (ring_trips(ranks) - 1) * trip
    return max(0.0, saved / (switch - ring)) if switch > ring else float("inf")


def slots_for(buffer: int, frame: int) -> int:
    """Returns the most slots, a power of two, whose frames fit into a buffer of so many bytes; 0: not one does."""
    fit = buffer // frame
    return 1 << (fit.bit_length() - 1) if fit else 0


def fitting(mtu: int, packets: dict[int, int]) -> int:
    """Returns the most values of a packet that the MTU carries; 0: none of them. ``packets``: bytes of IP packets by values."""
    return max((values for values, size in packets.items() if size <= mtu), default=0)


@dataclass(frozen=True)
class Placement:
    """One way to place the switch process: ``server`` runs it, whose ``own`` ranks are some of the ``ranks`` by server."""

    server: str
    ranks: tuple[int, ...]
    own: int

    @property
    def within(self) -> Placement:
        """The same after sums within each server: one rank each."""
        return Placement(self.server, (1,) * len(self.ranks), 1 if self.own else 0)
