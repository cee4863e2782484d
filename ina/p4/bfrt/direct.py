"""Direct registers and filters: cells of a table's entries, which BFRuntime shows as fields of the entries' rows."""

from __future__ import annotations

from dataclasses import dataclass

from ina.p4.bfrt.filters import FIELDS, config_of, data_of
from ina.p4.bfrt.info import Table
from ina.p4.bfrt.part import Owner
from ina.p4.bfrt.program_info import own_name
from ina.p4.bfrt.rows import Fields, Row
from ina.p4.runtime.entities import RegisterEntry, TableEntry, Update
from ina.p4.runtime.tna_entities import FilterEntry


def register_of(field: str, table: Table | None = None) -> str:
    """The switch's register that is a field of a cell: "reg.f1" is all of "reg", "reg.first" a word of a pair."""
    if field == "value" and table is not None:
        return own_name(table.name)
    return field.removesuffix(".f1")


@dataclass
class DirectCells:
    """The direct cells of the device's switch."""

    device: Owner

    def _objects(self, kind: str, table: Table) -> list[Fields]:
        return [o for o in self.device.switch.program.layout.get(kind, ()) if o.get("table") == own_name(table.name)]

    def write(self, table: Table, row: Row, entity: TableEntry) -> list[Update]:
        """Updates of the cells for which an entry's row has values; other fields of a filter stay as they are."""
        updates = []
        registers = {r["name"] for r in self._objects("registers", table)}
        for name, value in row.data.items():
            if register_of(name) in registers:
                for pipe, one in enumerate(value) if isinstance(value, tuple) else [(None, value)]:
                    updates.append(Update("MODIFY", RegisterEntry(register_of(name), None, int(one), pipe, entity)))
        for cells in self._objects("filters", table):
            kind = cells["type"].capitalize()
            values = {name: row.data[name] for name, _ in FIELDS[kind] if name in row.data}
            if not values:
                continue
            exists = self.device.switch.has_entry(entity)
            now = self.device.switch.read([FilterEntry(cells["name"], entry=entity)])[0].config if exists else None
            config = config_of(kind, data_of(kind, now) | values)
            updates.append(Update("MODIFY", FilterEntry(cells["name"], None, config, entry=entity)))
        return updates

    def read(self, table: Table, entity: TableEntry, pipe: int | None) -> Fields:
        """The cells' values by field; a register has one for each pipe with the entry."""
        data: Fields = {}
        names = {register_of(f.name): f for f in table.data}
        for register in self._objects("registers", table):
            field = names[register["name"]]
            cells = self.device.switch.read([RegisterEntry(register["name"], pipe=pipe, entry=entity)])
            values = tuple(bool(c.value) if field.type == "bool" else c.value for c in cells)
            data[field.name] = values if len(values) > 1 else values[0]
        for layout in self._objects("filters", table):
            first, *_ = self.device.switch.read([FilterEntry(layout["name"], pipe=pipe, entry=entity)])
            data |= data_of(layout["type"].capitalize(), first.config)
        return data
