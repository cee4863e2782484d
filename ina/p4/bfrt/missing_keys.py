"""Fast answers for keys that no entry has: a read of millions of them takes seconds.

Covers tables whose keys are exact and whose entries all pipes share, in their state when the request begins. Everything else in a
read, and every key that an entry has, takes the general path (service.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from ina.p4.bfrt.device import Device
from ina.p4.bfrt.entities import own_key
from ina.p4.bfrt.info import MATCH_TABLES, own_name
from ina.p4.bfrt.messages import bfrt
from ina.p4.bfrt.rows import Where
from ina.p4.rpc.errors import CODES
from ina.p4.runtime.entity_error import EntityError


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one table. `fields`: id and largest value of each key field, in the order of `identities`."""

    fields: tuple[tuple[int, int], ...]
    identities: Container[tuple[tuple[tuple[int, int], ...], int]]
    error: bfrt.Error


class Absent:
    """The missing keys of one request, whose target is `where`."""

    def __init__(self, device: Device, where: Where):
        self._device, self._where = device, where
        self._tables: dict[int, Keys | None] = {}

    def error(self, entry: bfrt.TableEntry) -> bfrt.Error | None:
        """The bfrt_proto.Error for a requested TableEntry; None: it has to be read."""
        number = entry.table_id
        try:
            keys = self._tables[number]
        except KeyError:
            keys = self._tables[number] = self._keys(number)
        if keys is None or entry.is_default_entry or entry.HasField("entry_tgt") or entry.HasField("table_mod_inc_flag"):
            return None
        if entry.HasField("data") and (entry.data.action_id or entry.data.fields):
            return None
        parts = entry.key.fields  # empty where the entry has a handle
        if len(parts) != len(keys.fields):
            return None
        identity = []
        for part, (field, largest) in zip(parts, keys.fields, strict=True):
            if part.field_id != field or not part.HasField("exact"):
                return None
            value = int.from_bytes(part.exact.value, "big")
            if value > largest:
                return None
            identity.append((value, largest))
        return None if (tuple(identity), 0) in keys.identities else keys.error

    def _keys(self, number: int) -> Keys | None:
        if self._where.pipe is not None:
            return None
        try:
            table = self._device.info.table(number)
        except EntityError:
            return None
        keys = self._device.switch.exact_keys(own_name(table.name)) if table.kind in MATCH_TABLES else None
        if keys is None:
            return None
        names, identities = keys
        fields = {own_key(k.name): (k.id, (1 << k.width) - 1) for k in table.keys}
        error = bfrt.Error(canonical_code=CODES["NOT_FOUND"], message=f"table {table.name}: there is no such entry", space="ina")
        return Keys(tuple(fields[name] for name in names), identities, error)
