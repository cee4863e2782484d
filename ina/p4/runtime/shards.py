"""A switch on several processors: one `Switch` for each shard, which share nothing.

    @shards[udp_dst_port=0xBEE0, count=16]  V1Switch(...) main;

With this annotation a program declares that packets to different ports of these UDP destination ports share no state. Shard n
gets the ports whose distance from the first is n modulo the number of shards; all other packets are shard 0's. Tables, groups and
sessions are the same in all; counters add up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ina.base.closing import Closing
from ina.p4.runtime.embedded import Link, Switch
from ina.p4.runtime.entities import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    E,
    Entity,
    MeterEntry,
    RegisterEntry,
    SwitchTarget,
    Update,
)
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import P4Info
from ina.p4.runtime.records import Digest, PortStats


@dataclass(frozen=True)
class ShardKey:
    """UDP destination ports `first`..`first + count - 1` share no state with each other."""

    first: int
    count: int

    def claims(self, shard: int, shards: int) -> list[range]:
        """UDP ports of one of `shards` shards."""
        return [range(port, port + 1) for port in range(self.first + shard, self.first + self.count, shards)]


def shard_key(p4info: P4Info) -> ShardKey | None:
    """The ports in the program's annotation; None: it has none, and runs on one processor. Raises ValueError."""
    pairs = p4info.annotation("shards")
    if pairs is None:
        return None
    first, count = pairs.pop("udp_dst_port", None), pairs.pop("count", None)
    if pairs or not isinstance(first, int) or not isinstance(count, int) or not 0 <= first < 1 << 16 \
            or not 1 <= count <= (1 << 16) - first:
        raise ValueError("@shards: expected @shards[udp_dst_port=FIRST, count=N], ports of 0..65535")
    return ShardKey(first, count)


class ShardedSwitch(SwitchTarget, Closing):
    """A `Switch` for each of `shards` shards; ports are lists, one for each shard. `cpus`: processors of their threads, in turn.

    Registers and meters belong to a shard, and cannot be reached from outside; neither can frames one by one.
    """

    pipes = 0

    def __init__(self, program: Program, shards: int, cpus: Sequence[int] = ()):
        key = shard_key(program.p4info)
        if key is None or not 1 <= shards <= key.count:
            limit = "declares no shards: it runs on one processor" if key is None else f"has up to {key.count} shards"
            raise ValueError(f"{shards} shards: {program.name} {limit} (@shards, docs/guide/dpdk.md)")
        self.program, self.p4info, self.cpus = program, program.p4info, list(cpus)
        self.switches = [Switch(program) for _ in range(shards)]

    # ---- life

    def start(self, **options: Any) -> None:
        """Starts each shard (`Switch.start`) on its processor."""
        for shard, switch in enumerate(self.switches):
            with pinned(self.cpus[shard % len(self.cpus)] if self.cpus else None):
                switch.start(**options)

    def stop(self, timeout: float = 60.0) -> None:
        for switch in self.switches:
            switch.stop(timeout)

    def close(self) -> None:
        for switch in self.switches:
            switch.close()

    # ---- ports

    def add_port(self, number: int, ports: Any, link: Link | None = None) -> None:
        """Adds a port. `ports`: one for each shard, all to the same peer. No links: each shard would have its own."""
        if not isinstance(ports, Sequence) or len(ports) != len(self.switches) or link is not None:
            raise ValueError(f"port {number}: a switch of {len(self.switches)} shards takes a port for each, without links; "
                             "shared memory leads to a switch with one")
        for switch, port in zip(self.switches, ports, strict=True):
            switch.add_port(number, port)

    def remove_port(self, number: int) -> list[Any]:
        return [switch.remove_port(number) for switch in self.switches]

    @property
    def ports(self) -> list[int]:
        return self.switches[0].ports

    def port_stats(self, number: int) -> PortStats:
        """Sums over all shards."""
        each = [switch.port_stats(number) for switch in self.switches]
        sums = {name: sum(getattr(stats, name) for stats in each)
                for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "ecn_marks", "recirculated")}
        return PortStats(**sums, drops={reason: sum(stats.drops[reason] for stats in each) for reason in each[0].drops})

    # ---- control plane

    def write(self, updates: Iterable[Update], timeout: float = 60.0) -> None:
        """Makes updates in every shard, or in none: all refuse the same. Sets a counter in the first, and to zero in others."""
        updates = list(updates)
        for number, update in enumerate(updates):
            if isinstance(update.entity, (RegisterEntry, MeterEntry, DirectMeterEntry)):
                raise EntityError(f"update {number}: {self._none_of(update.entity)}", "UNIMPLEMENTED", number)
        self.switches[0].write(updates, timeout)
        others = [replace(u, entity=replace(u.entity, packets=0, bytes=0))
                  if isinstance(u.entity, (CounterEntry, DirectCounterEntry)) else u for u in updates]
        for switch in self.switches[1:]:
            switch.write(others, timeout)

    def read(self, entities: Sequence[E], timeout: float = 60.0) -> list[E]:
        answers: list[E] = []
        for entity in entities:
            if isinstance(entity, (RegisterEntry, MeterEntry, DirectMeterEntry)):
                raise EntityError(self._none_of(entity), "UNIMPLEMENTED")
            each = [switch.read([entity], timeout) for switch in self.switches]
            if isinstance(entity, (CounterEntry, DirectCounterEntry)):
                answers += [replace(cells[0], packets=sum(c.packets for c in cells), bytes=sum(c.bytes for c in cells))
                          for cells in zip(*each, strict=True)]
            else:
                answers += each[0]
        return answers

    def _none_of(self, entity: Entity) -> str:
        return f"{type(entity).__name__}: each of the {len(self.switches)} shards has its own; run the program with one shard"

    def counters(self) -> dict[str, np.ndarray]:
        """The sums of `Switch.counters`."""
        each = [switch.counters() for switch in self.switches]
        return {name: reduce(np.add, (cells[name] for cells in each)) for name in each[0]}

    def snapshot(self) -> bytes:
        """The state of all shards, one after the other."""
        return b"".join(switch.snapshot() for switch in self.switches)

    def restore(self, state: bytes) -> None:
        """The reverse of snapshot."""
        size = len(state) // len(self.switches)
        for shard, switch in enumerate(self.switches):
            switch.restore(state[shard * size : (shard + 1) * size])

    def digests(self, limit: int = 256) -> tuple[list[Digest], int]:
        """Digests of all shards, one after the other, and how many were overwritten before they were read."""
        each = [switch.digests(limit) for switch in self.switches]
        return [digest for digests, _ in each for digest in digests], sum(lost for _, lost in each)


LocalSwitch = Switch | ShardedSwitch  # a switch of this process


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Context in which new threads run on this processor only; None: on those of this thread."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
