"""Idle time-outs of BFRuntime's tables: which entries are hit, and which have not been for their time to live.

The data plane makes a byte of an entry 1 when it is hit (layout: `hits` of a table). In poll mode a client looks at the
`$ENTRY_HIT_STATE` of entries, which the operation UpdateHitState brings up to date: hit since the last time, or idle. In notify
mode they are swept every `ttl_query_interval`: an entry that was hit has its whole `$ENTRY_TTL` again, another loses the
interval; one that has nothing left is told of once, and (to those who want that) when it is hit again. A time to live of 0 never
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ina.p4.bfrt import entities
from ina.p4.bfrt.info import Table
from ina.p4.bfrt.messages import bfrt
from ina.p4.bfrt.program_info import own_name
from ina.p4.bfrt.rows import Row
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.p4info import EntityError

TTL, STATE = "$ENTRY_TTL", "$ENTRY_HIT_STATE"
ACTIVE, IDLE = "ENTRY_ACTIVE", "ENTRY_IDLE"
Place = tuple[int | None, int]  # an entry's pipe and number


@dataclass(slots=True)
class Entry:
    """`ttl` and `left` in ms; `hit`: as the last look found it."""

    ttl: int = 0
    left: int = 0
    hit: bool = False
    told: bool = False  # that it is idle


@dataclass(slots=True)
class Watched:
    """A table with idle time-outs. `due`: of the next sweep, s."""

    said: Any  # bfrt.IdleTable
    due: float | None = None
    entries: dict[Place, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """`active`: the entry of the row is hit again; otherwise it has become idle. `pipe` None: it is in all."""

    row: Row
    active: bool
    pipe: int | None


class Idle:
    """Of the tables of a Device; `now` in s."""

    def __init__(self, device: Any):
        self.device = device
        self._hits = {t["name"] for t in device.switch.program.layout.get("tables", ()) if t.get("hits") is not None}
        self._tables: dict[str, Watched] = {}

    def has(self, table: Table) -> bool:
        return own_name(table.name) in self._hits

    def configure(self, table: Table, said: Any) -> None:
        """A bfrt.IdleTable. Switched off, entries keep what they have left."""
        notify = said.idle_table_mode == bfrt.IdleTable.IDLE_TABLE_NOTIFY_MODE
        if notify and said.enable and not said.ttl_query_interval:
            raise EntityError(f"table {table.name}: ttl_query_interval: expected at least 1 ms")
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        watched.said.CopyFrom(said)
        if not notify:
            watched.said.ttl_query_interval = watched.said.max_ttl = watched.said.min_ttl = 0  # they are notify mode's
        watched.due = self.device.clock() + said.ttl_query_interval / 1000 if notify and said.enable else None
        if watched.due is not None:
            self.device.switch.entry_hits(own_name(table.name))  # what was before does not count

    def configured(self, table: Table) -> Any:
        return self._tables[table.name].said if table.name in self._tables else bfrt.IdleTable()

    # ---- entries

    def _place(self, entry: TableEntry) -> Place:
        return self.device.switch.entry_number(entry)

    def written(self, table: Table, entity: TableEntry, row: Row, new: bool) -> None:
        """After an entry was written: a new one, or a change of one, whose time begins again."""
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        place = self._place(entity)
        if new:
            watched.entries[place] = Entry()
            self.device.switch.set_hit(entity, False)
        entry = watched.entries.setdefault(place, Entry())
        if TTL in row.data:
            entry.ttl, entry.told = row.data[TTL] or 0, False
        entry.left = entry.ttl
        if row.data.get(STATE):
            entry.hit = row.data[STATE] == ACTIVE
            self.device.switch.set_hit(entity, entry.hit)

    def update(self, table: Table) -> None:
        """The operation UpdateHitState."""
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        hits = self.device.switch.entry_hits(own_name(table.name))
        for entity in self.device.switch.read([TableEntry(own_name(table.name))]):
            place = self._place(entity)
            watched.entries.setdefault(place, Entry()).hit = place in hits

    def data(self, table: Table, entity: TableEntry, fresh: bool) -> dict[str, Any]:
        """What a row of an entry says of it. `fresh`: look at the data plane, which forgets what was seen."""
        watched = self._tables.get(table.name)
        if watched is None:
            return {TTL: 0, STATE: IDLE}
        entry = watched.entries.setdefault(self._place(entity), Entry())
        if watched.said.idle_table_mode == bfrt.IdleTable.IDLE_TABLE_NOTIFY_MODE:
            return {TTL: max(0, entry.left), STATE: IDLE if entry.told else ACTIVE}
        if fresh:
            entry.hit = self.device.switch.take_hit(entity)
        return {TTL: 0, STATE: ACTIVE if entry.hit else IDLE}

    # ---- ageing

    def sweep(self, now: float) -> Iterator[Notice]:
        """What there is to tell by `now`."""
        for name, watched in list(self._tables.items()):
            while watched.due is not None and now >= watched.due:
                watched.due += watched.said.ttl_query_interval / 1000
                yield from self._swept(self.device.info.table(name), watched)

    def _swept(self, table: Table, watched: Watched) -> Iterator[Notice]:
        hits = self.device.switch.entry_hits(own_name(table.name))
        for entity in self.device.switch.read([TableEntry(own_name(table.name))]):
            place = self._place(entity)
            entry = watched.entries.get(place)
            if entry is None or not entry.ttl:
                continue
            if place in hits:
                entry.left = entry.ttl
                if entry.told:
                    entry.told = False
                    yield self._notice(table, entity, True)
            elif not entry.told:
                entry.left -= watched.said.ttl_query_interval
                if entry.left <= 0:
                    entry.left, entry.told = 0, True
                    yield self._notice(table, entity, False)

    def _notice(self, table: Table, entity: TableEntry, active: bool) -> Notice:
        return Notice(entities.to_row(entity, self.device.info), active, entity.pipe)
