"""Idle time-outs of BFRuntime's tables: the entries that packets hit, and those not hit for their time to live.

The data plane sets a byte of an entry to 1 when it is hit (layout: `hits` of a table). In poll mode a client reads the
`$ENTRY_HIT_STATE` of entries, which the operation UpdateHitState brings up to date: hit since the last time, or idle. In notify
mode they are swept every `ttl_query_interval`: an entry that was hit gets its whole `$ENTRY_TTL` again, any other loses the
interval; clients get one notice of an entry with no time left, and (if they ask for it) one when it is hit again. A time to live
of 0 never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ina.p4.bfrt import entities
from ina.p4.bfrt.info import Table
from ina.p4.bfrt.messages import bfrt
from ina.p4.bfrt.part import Owner
from ina.p4.bfrt.program_info import own_name
from ina.p4.bfrt.rows import Fields, Row
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.p4info import EntityError

TTL, STATE = "$ENTRY_TTL", "$ENTRY_HIT_STATE"
ACTIVE, IDLE = "ENTRY_ACTIVE", "ENTRY_IDLE"
Place = tuple[int | None, int]  # an entry's pipe and number


@dataclass(slots=True)
class Entry:
    """`ttl` and `remaining` in ms; `hit`: as last read; `notified`: clients have the notice that it is idle."""

    ttl: int = 0
    remaining: int = 0
    hit: bool = False
    notified: bool = False


@dataclass(slots=True)
class Watched:
    """A table with idle time-outs. `due`: time of the next sweep, s."""

    config: bfrt.IdleTable
    due: float | None = None
    entries: dict[Place, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """`active`: the row's entry is hit again; otherwise it has become idle. `pipe` None: it is in all."""

    row: Row
    active: bool
    pipe: int | None


class Idle:
    """Idle time-outs of a Device's tables; `now` in s."""

    def __init__(self, device: Owner):
        self.device = device
        self._hits = {t["name"] for t in device.switch.program.layout.get("tables", ()) if t.get("hits") is not None}
        self._tables: dict[str, Watched] = {}

    def covers(self, table: Table) -> bool:
        return own_name(table.name) in self._hits

    def configure(self, table: Table, config: bfrt.IdleTable) -> None:
        """Sets a bfrt.IdleTable. Entries keep their remaining time when it is disabled."""
        notify = config.idle_table_mode == bfrt.IdleTable.IDLE_TABLE_NOTIFY_MODE
        if notify and config.enable and not config.ttl_query_interval:
            raise EntityError(f"table {table.name}: ttl_query_interval: expected at least 1 ms")
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        watched.config.CopyFrom(config)
        if not notify:
            watched.config.ttl_query_interval = watched.config.max_ttl = watched.config.min_ttl = 0  # only for notify mode
        watched.due = self.device.clock() + config.ttl_query_interval / 1000 if notify and config.enable else None
        if watched.due is not None:
            self.device.switch.entry_hits(own_name(table.name))  # forgets earlier hits

    def configured(self, table: Table) -> bfrt.IdleTable:
        return self._tables[table.name].config if table.name in self._tables else bfrt.IdleTable()

    # ---- entries

    def _place(self, entry: TableEntry) -> Place:
        return self.device.switch.entry_number(entry)

    def restart(self, table: Table, entity: TableEntry, row: Row, new: bool) -> None:
        """Begins an entry's time again after a write of it. `new`: it was inserted."""
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        place = self._place(entity)
        if new:
            watched.entries[place] = Entry()
            self.device.switch.set_hit(entity, False)
        entry = watched.entries.setdefault(place, Entry())
        if TTL in row.data:
            entry.ttl, entry.notified = row.data[TTL] or 0, False
        entry.remaining = entry.ttl
        if row.data.get(STATE):
            entry.hit = row.data[STATE] == ACTIVE
            self.device.switch.set_hit(entity, entry.hit)

    def update(self, table: Table) -> None:
        """Performs the operation UpdateHitState."""
        watched = self._tables.setdefault(table.name, Watched(bfrt.IdleTable()))
        hits = self.device.switch.entry_hits(own_name(table.name))
        for entity in self.device.switch.read([TableEntry(own_name(table.name))]):
            place = self._place(entity)
            watched.entries.setdefault(place, Entry()).hit = place in hits

    def data(self, table: Table, entity: TableEntry, fresh: bool) -> Fields:
        """The idle fields of an entry's row. `fresh`: read and clear the data plane's hit byte."""
        watched = self._tables.get(table.name)
        if watched is None:
            return {TTL: 0, STATE: IDLE}
        entry = watched.entries.setdefault(self._place(entity), Entry())
        if watched.config.idle_table_mode == bfrt.IdleTable.IDLE_TABLE_NOTIFY_MODE:
            return {TTL: max(0, entry.remaining), STATE: IDLE if entry.notified else ACTIVE}
        if fresh:
            entry.hit = self.device.switch.take_hit(entity)
        return {TTL: 0, STATE: ACTIVE if entry.hit else IDLE}

    # ---- ageing

    def sweep(self, now: float) -> Iterator[Notice]:
        """The notices due by `now`."""
        for name, watched in list(self._tables.items()):
            while watched.due is not None and now >= watched.due:
                watched.due += watched.config.ttl_query_interval / 1000
                yield from self._sweep_table(self.device.info.table(name), watched)

    def _sweep_table(self, table: Table, watched: Watched) -> Iterator[Notice]:
        hits = self.device.switch.entry_hits(own_name(table.name))
        for entity in self.device.switch.read([TableEntry(own_name(table.name))]):
            place = self._place(entity)
            entry = watched.entries.get(place)
            if entry is None or not entry.ttl:
                continue
            if place in hits:
                entry.remaining = entry.ttl
                if entry.notified:
                    entry.notified = False
                    yield self._notice(table, entity, True)
            elif not entry.notified:
                entry.remaining -= watched.config.ttl_query_interval
                if entry.remaining <= 0:
                    entry.remaining, entry.notified = 0, True
                    yield self._notice(table, entity, False)

    def _notice(self, table: Table, entity: TableEntry, active: bool) -> Notice:
        return Notice(entities.to_row(entity, self.device.info), active, entity.pipe)
