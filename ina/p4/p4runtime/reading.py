"""Read requests: each entity is a pattern, zero or unset fields are wildcards (P4Runtime §9, §13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.objects import KINDS, by_id
from ina.p4.p4runtime.pipes import merge
from ina.p4.p4runtime.translate import Translator, unserved
from ina.p4.runtime import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    EntityError,
    MulticastGroupEntry,
    RegisterEntry,
    Switch,
    TableEntry,
)


class Reader:
    """Reads `switch` by P4Runtime's patterns; `digests`: DigestEntry.Config by id."""

    def __init__(self, switch: Switch, translator: Translator, digests: dict[int, Any]):
        self.switch = switch
        self.translator = translator
        self.digests = digests

    def read(self, pattern: Any) -> list[Any]:
        """The p4.v1.Entity messages that match the pattern. Raises EntityError."""
        kind = pattern.WhichOneof("entity")
        if kind == "packet_replication_engine_entry":
            return list(self._replication(pattern.packet_replication_engine_entry))
        readers = {
            "table_entry": self._table_entries,
            "counter_entry": self._counters,
            "direct_counter_entry": self._direct_counters,
            "register_entry": self._registers,
            "digest_entry": self._digests,
        }
        if kind in KINDS:
            messages = self.translator.objects.read(kind, getattr(pattern, kind), self.switch)
            return [p4.Entity(**{kind: message}) for message in messages]
        if kind == "extern_entry" and not pattern.extern_entry.ListFields():
            return []
        if kind not in readers:
            raise unserved(kind)
        return [p4.Entity(**{kind: message}) for message in readers[kind](getattr(pattern, kind))]

    def _table_entries(self, e: Any) -> Iterator[Any]:
        if e.table_id:
            rows = self.translator.rows(e, self.switch)
        else:
            rows = self.switch.read([TableEntry("")])
        for row in rows:
            message = self.translator.entry_message(row)
            if e.HasField("counter_data") and message.table_id in self.translator.counted and self._has_direct(row):
                message.counter_data.CopyFrom(self._count(row))
            objects = self.translator.objects
            if e.HasField("meter_config") and objects.is_metered(message.table_id) and self._has_direct(row):
                config = objects.direct_config(row, self.switch)
                if config is not None:
                    message.meter_config.CopyFrom(config)
            yield message

    @staticmethod
    def _has_direct(row: TableEntry) -> bool:
        return not row.is_default and not row.is_const

    def _count(self, row: TableEntry) -> Any:
        entry = TableEntry(row.table, row.match, priority=row.priority)
        (counter,) = merge(self.switch.read([DirectCounterEntry(entry)]))
        return p4.CounterData(packet_count=counter.packets, byte_count=counter.bytes)

    def _direct_counters(self, e: Any) -> Iterator[Any]:
        entry = e.table_entry
        counted = self.translator.counted
        if entry.table_id and self.translator.table(entry.table_id).id not in counted:
            raise EntityError(f"table {self.translator.table(entry.table_id).name} has no direct counter")
        patterns = [entry] if entry.table_id else [p4.TableEntry(table_id=number) for number in sorted(counted)]
        for pattern in patterns:
            rows = self.translator.rows(pattern, self.switch)
            if pattern.match and not rows:
                raise EntityError("direct counter: no entry with this match and priority", "NOT_FOUND")
            for row in filter(self._has_direct, rows):
                key = self.translator.entry_message(row)
                key.ClearField("action")
                yield p4.DirectCounterEntry(table_entry=key, data=self._count(row))

    def _counters(self, e: Any) -> Iterator[Any]:
        translator = self.translator
        names = {c["name"] for c in self.switch.program.layout["counters"]}
        counters = [c for c in translator.counters if c.name in names]
        if e.counter_id:
            counters = [by_id("counter", translator.counters, e.counter_id)]
        for info in counters:
            index = translator.index(e, info) if e.counter_id else None
            for cell in merge(self.switch.read([CounterEntry(info.name, index)])):
                message = p4.CounterEntry(counter_id=info.id)
                message.index.index = cell.index
                message.data.packet_count, message.data.byte_count = cell.packets, cell.bytes
                yield message

    def _registers(self, e: Any) -> Iterator[Any]:
        translator = self.translator
        names = {r["name"] for r in self.switch.program.layout["registers"]}
        registers = [r for r in translator.info.registers.values() if r.name in names]
        if e.register_id:
            registers = [translator.register(e.register_id)]
        for info in registers:
            index = translator.index(e, info) if e.register_id else None
            for cell in merge(self.switch.read([RegisterEntry(info.name, index)])):
                yield translator.register_message(cell)

    def _replication(self, e: Any) -> Iterator[Any]:
        kind = e.WhichOneof("type")
        if kind is None:
            raise EntityError("packet_replication_engine_entry is empty: set a multicast group or a clone session")
        if kind == "multicast_group_entry":
            pattern: MulticastGroupEntry | CloneSessionEntry = MulticastGroupEntry(e.multicast_group_entry.multicast_group_id)
        else:
            pattern = CloneSessionEntry(e.clone_session_entry.session_id)
        for entry in self.switch.read([pattern]):
            yield self.translator.replication_message(entry)

    def _digests(self, e: Any) -> Iterator[Any]:
        for number, config in self.digests.items():
            if e.digest_id in (0, number):
                yield p4.DigestEntry(digest_id=number, config=config)
