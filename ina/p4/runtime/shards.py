"""A switch on several processors: one `Switch` for each shard, which share nothing.

    @shards[udp_dst_port=0xBEE0, count=16]  V1Switch(...) main;

A program says by this annotation that packets to these UDP destination ports share no state as long as the port differs. Each
shard then has those ports whose distance from the first leaves its number when divided by the number of shards; all other
packets are shard 0's. Tables, groups and sessions are the same in all; counters add up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import (
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    E,
    Entity,
    MeterEntry,
    RegisterEntry,
    Update,
)
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import EntityError, P4Info
from ina.p4.runtime.records import Digest, PortStats
from ina.p4.runtime.target import SwitchTarget


@dataclass(frozen=True)
class ShardKey:
    """UDP destination ports `first`..`first + count - 1` share no state with each other."""

    first: int
    count: int

    def claims(self, shard: int, shards: int) -> list[range]:
        """UDP ports of one of so many shards."""
        return [range(port, port + 1) for port in range(self.first + shard, self.first + self.count, shards)]


def shard_key(p4info: P4Info) -> ShardKey | None:
    """What the program's annotation says; None: it has none, and runs on one processor. Raises ValueError."""
    for note in p4info.message.get("pkgInfo", {}).get("structuredAnnotations", ()):
        if note["name"] == "shards":
            pairs = {p["key"]: int(p["value"].get("int64Value", -1)) for p in note.get("kvPairList", {}).get("kvPairs", ())}
            first, count = pairs.pop("udp_dst_port", -1), pairs.pop("count", -1)
            if pairs or not 0 <= first < 1 << 16 or not 1 <= count <= (1 << 16) - first:
                raise ValueError("@shards: expected @shards[udp_dst_port=FIRST, count=N], ports of 0..65535")
            return ShardKey(first, count)
    return None


class ShardedSwitch(SwitchTarget):
    """As `Switch`, with `shards` of them; ports are lists, one for each shard. `cpus`: where their threads run, in turn.

    Registers and meters belong to a shard, and cannot be reached from outside; neither can frames one by one.
    """

    pipes = 0

    def __init__(self, program: Program, shards: int, cpus: Sequence[int] = ()):
        key = shard_key(program.p4info)
        if key is None or not 1 <= shards <= key.count:
            declared = "declares no shards: it runs on one processor" if key is None else f"has up to {key.count} shards"
            raise ValueError(f"{shards} shards: {program.name} {declared} (@shards, docs/dpdk.md)")
        self.program, self.cpus = program, list(cpus)
        self.switches = [Switch(program) for _ in range(shards)]

    @property
    def p4info(self) -> P4Info:
        return self.program.p4info

    # ---- life

    def start(self, **options: Any) -> None:
        """As `Switch.start`, each on its processor."""
        for shard, switch in enumerate(self.switches):
            with pinned(self.cpus[shard % len(self.cpus)] if self.cpus else None):
                switch.start(**options)

    def stop(self, timeout: float = 5.0) -> None:
        for switch in self.switches:
            switch.stop(timeout)

    def close(self) -> None:
        for switch in self.switches:
            switch.close()

    def __enter__(self) -> ShardedSwitch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- ports

    def add_port(self, number: int, ports: Sequence[Any], link: None = None) -> None:
        """`ports`: one for each shard, all of them the same way out. A link would be one for each shard: there are none."""
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
        """Of all shards together."""
        each = [switch.port_stats(number) for switch in self.switches]
        sums = {name: sum(getattr(stats, name) for stats in each)
                for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "ecn_marks", "recirculated")}  # fmt: skip
        return PortStats(**sums, drops={reason: sum(stats.drops[reason] for stats in each) for reason in each[0].drops})

    # ---- control plane

    def write(self, updates: Iterable[Update], timeout: float = 5.0) -> None:
        """In every shard, or in none: what one refuses all do. A counter that is set is so in the first, and zero in others."""
        updates = list(updates)
        for number, update in enumerate(updates):
            if isinstance(update.entity, (RegisterEntry, MeterEntry, DirectMeterEntry)):
                raise EntityError(f"update {number}: {self._none_of(update.entity)}", "UNIMPLEMENTED", number)
        self.switches[0].write(updates, timeout)
        others = [replace(u, entity=replace(u.entity, packets=0, bytes=0))
                  if isinstance(u.entity, (CounterEntry, DirectCounterEntry)) else u for u in updates]  # fmt: skip
        for switch in self.switches[1:]:
            switch.write(others, timeout)

    def read(self, entities: Sequence[E], timeout: float = 5.0) -> list[E]:
        found: list[E] = []
        for entity in entities:
            if isinstance(entity, (RegisterEntry, MeterEntry, DirectMeterEntry)):
                raise EntityError(self._none_of(entity), "UNIMPLEMENTED")
            each = [switch.read([entity], timeout) for switch in self.switches]
            if isinstance(entity, (CounterEntry, DirectCounterEntry)):
                found += [replace(cells[0], packets=sum(c.packets for c in cells), bytes=sum(c.bytes for c in cells))
                          for cells in zip(*each, strict=True)]  # fmt: skip
            else:
                found += each[0]
        return found

    def _none_of(self, entity: Entity) -> str:
        return f"{type(entity).__name__}: each of the {len(self.switches)} shards has its own; run the program with one shard"

    def counters(self) -> dict[str, np.ndarray]:
        """As `Switch.counters`, added up."""
        each = [switch.counters() for switch in self.switches]
        return {name: reduce(np.add, (cells[name] for cells in each)) for name in each[0]}

    def digests(self, limit: int = 256) -> tuple[list[Digest], int]:
        """Of all shards, one after the other; and how many were overwritten before."""
        found: list[Digest] = []
        lost = 0
        for switch in self.switches:
            new, gone = switch.digests(limit)
            found, lost = found + new, lost + gone
        return found, lost


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Threads that are started in here run on this processor only; None: wherever this one may."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
