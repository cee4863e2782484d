"""Keys that no entry has, told at once: a read of millions of them is answered in seconds.

Speaks of tables whose keys are exact and whose entries all pipes share, as they are when the request begins. Whatever else a read
asks for, and every key that an entry has, goes the whole way (service.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.client import CODES
from ina.p4.bfrt.device import Device
from ina.p4.bfrt.entities import own_key
from ina.p4.bfrt.messages import bfrt
from ina.p4.bfrt.program_info import MATCH_TABLES, own_name
from ina.p4.bfrt.rows import Where
from ina.p4.runtime.p4info import EntityError

NOT_FOUND = next(number for number, name in CODES.items() if name == "NOT_FOUND")


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one table: for each field of the key its id and the largest value, in the order of `identities`."""

    fields: tuple[tuple[int, int], ...]
    identities: Container[tuple[tuple[tuple[int, int], ...], int]]
    error: Any


class Absent:
    """During one request, whose target is `where`."""

    def __init__(self, device: Device, where: Where):
        self._device, self._where = device, where
        self._tables: dict[int, Keys | None] = {}

    def error(self, entry: Any) -> Any:
        """The bfrt_proto.Error of a TableEntry that is asked for; None: the read has to be made."""
        number = entry.table_id
        try:
            keys = self._tables[number]
        except KeyError:
            keys = self._tables[number] = self._keys(number)
        if keys is None or entry.is_default_entry or entry.HasField("entry_tgt") or entry.HasField("table_mod_inc_flag"):
            return None
        if entry.HasField("data") and (entry.data.action_id or entry.data.fields):
            return None
        parts = entry.key.fields  # none where a handle is given
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
        found = self._device.switch.exact_keys(own_name(table.name)) if table.kind in MATCH_TABLES else None
        if found is None:
            return None
        names, identities = found
        fields = {own_key(k.name): (k.id, (1 << k.width) - 1) for k in table.keys}
        error = bfrt.Error(canonical_code=NOT_FOUND, message=f"table {table.name}: there is no such entry", space="ina")
        return Keys(tuple(fields[name] for name in names), identities, error)
