"""Cells in BFRuntime: fields of counters, meters and registers from and to the switch's values; tables of filters (Lpf, Wred);
direct registers and filters, which are fields of the rows of a table's entries.

Rates of a meter of bytes are kbit/s there, and its bursts kbit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.info import Table, own_name
from ina.p4.bfrt.rows import Fields, Owner, Row, Where
from ina.p4.runtime import EntityError, FilterEntry, LpfConfig, MeterConfig, RegisterEntry, TableEntry, Update, WredConfig

INDEX = {"Counter": "$COUNTER_INDEX", "Meter": "$METER_INDEX", "Register": "$REGISTER_INDEX"}
PACKETS, BYTES = "$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_BYTES"
UNLIMITED = (1 << 64) - 1  # of a meter's rates in packets: everything is green
MOST = {"KBPS": 5195848221, "KBITS": 4380866642}  # and in bits: the largest that the published driver reports for Tofino


def index_key(table: Table, index: int | None) -> dict[str, int]:
    if index is None:
        return {}
    if table.size and not 0 <= index < table.size:
        raise EntityError(f"{own_name(table.name)}[{index}]: expected an index of 0..{table.size - 1}", "OUT_OF_RANGE")
    return {INDEX[table.kind]: index}


# ---- counters


def counts(table: Table, packets: int, octets: int) -> dict[str, int]:
    names = {f.name for f in table.data}
    return {n: v for n, v in ((BYTES, octets), (PACKETS, packets)) if n in names}


def total(value: int | tuple[int | None, ...] | None) -> int:
    return sum(v or 0 for v in value) if isinstance(value, tuple) else value or 0


# ---- meters


def meter_fields(table: Table) -> tuple[list[str], float]:
    """Names of committed rate, peak rate, committed and peak burst, and the bytes in one unit of theirs (0: packets)."""
    if any(f.name == "$METER_SPEC_CIR_KBPS" for f in table.data):
        return [f"$METER_SPEC_{n}" for n in ("CIR_KBPS", "PIR_KBPS", "CBS_KBITS", "PBS_KBITS")], 125.0
    if any(f.name == "$METER_SPEC_CIR_PPS" for f in table.data):
        return [f"$METER_SPEC_{n}" for n in ("CIR_PPS", "PIR_PPS", "CBS_PKTS", "PBS_PKTS")], 0.0
    raise EntityError(f"table {table.name} has no meter")


def rates(table: Table, config: MeterConfig | None) -> dict[str, int]:
    names, unit = meter_fields(table)
    if config is None:
        return unconfigured(names)
    values = (config.committed_rate, config.peak_rate, config.committed_burst, config.peak_burst)
    return {n: round(v / (unit or 1)) for n, v in zip(names, values, strict=True)}


def unconfigured(names: Iterable[str]) -> dict[str, int]:
    return {n: MOST.get(n.rpartition("_")[2], UNLIMITED) for n in names}


def meter_config(table: Table, data: Mapping[str, Any]) -> MeterConfig | None:
    names, unit = meter_fields(table)
    values = [data[n] for n in names if data.get(n) is not None]
    if len(values) < len(names) or values == list(unconfigured(names).values()):
        return None
    committed, peak, burst, peak_burst = (v * (unit or 1) for v in values)
    return MeterConfig(committed, round(burst), peak, round(peak_burst))


# ---- registers


def register_data(table: Table, value: int | tuple[int, ...] | list[int]) -> dict[str, int]:
    """Data of a register's row. `value`: one for each field, or a number whose upper bits are the first of two fields."""
    if isinstance(value, (tuple, list)):
        return {f.name: v for f, v in zip(table.data, value, strict=True)}
    data, width = {}, sum(f.width for f in table.data)
    if value < 0 or value >> width:
        raise EntityError(f"{own_name(table.name)}: {value} does not fit {width} bits")
    for field in reversed(table.data):
        data[field.name] = value & ((1 << field.width) - 1)
        value >>= field.width
    return {f.name: data[f.name] for f in table.data}


def register_value(table: Table, data: Mapping[str, Any], pipe: int | None = None) -> int:
    """The register's value in one pipe; None: in the first."""
    value = 0
    for field in table.data:
        part = data.get(field.name, 0)
        value = value << field.width | int(part[pipe or 0] if isinstance(part, tuple) else part or 0)
    return value


FILTER_INDEX = {"Lpf": "$LPF_INDEX", "Wred": "$WRED_INDEX"}
TYPE, GAIN, DECAY, SCALE = (
    f"$LPF_SPEC_{name}" for name in ("TYPE", "GAIN_TIME_CONSTANT_NS", "DECAY_TIME_CONSTANT_NS", "OUT_SCALE_DOWN_FACTOR")
)
CONSTANT, LOW, HIGH, PROBABILITY = (
    f"$WRED_SPEC_{name}" for name in ("TIME_CONSTANT_NS", "MIN_THRESH_CELLS", "MAX_THRESH_CELLS", "MAX_PROBABILITY")
)
# name and type of each kind's fields
FILTER_FIELDS = {
    "Lpf": ((TYPE, "RATE|SAMPLE"), (GAIN, "float"), (DECAY, "float"), (SCALE, "uint32")),
    "Wred": ((CONSTANT, "float"), (LOW, "uint32"), (HIGH, "uint32"), (PROBABILITY, "float")),
}
NEVER = 0xFF000000  # thresholds of a Wred that nobody configured, as the published driver shows them


def config_of(kind: str, data: Mapping[str, Any]) -> LpfConfig | WredConfig:
    if kind == "Lpf":
        return LpfConfig(data.get(GAIN, 0.0), data.get(DECAY, 0.0), data.get(TYPE) == "RATE", data.get(SCALE, 0))
    return WredConfig(data.get(CONSTANT, 0.0), data.get(LOW, NEVER), data.get(HIGH, NEVER), data.get(PROBABILITY, 0.0))


def data_of(kind: str, config: Any) -> Fields:
    """Fields of a cell's configuration; None: of a cell that nobody has configured."""
    if kind == "Lpf":
        c = config or LpfConfig(0.0, 0.0)
        return {TYPE: "RATE" if c.rate else "SAMPLE", GAIN: c.rise, DECAY: c.fall, SCALE: c.scale_down}
    c = config or WredConfig(0.0, NEVER, NEVER, 0.0)
    return {CONSTANT: c.time_constant, LOW: int(c.low), HIGH: int(c.high), PROBABILITY: c.probability}


@dataclass
class FilterTables:
    """The filters of the device's switch; all their cells always exist."""

    device: Owner
    kinds = ("Lpf", "Wred")

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None:
        name, index = own_name(table.name), row.key.get(FILTER_INDEX[table.kind])
        if type_ == "DELETE":
            config = None
        elif index is None:
            raise EntityError(f"table {table.name}: which cell? {FILTER_INDEX[table.kind]} is missing")
        else:
            (now, *_) = self.device.switch.read([FilterEntry(name, index, pipe=where.pipe)])
            config = config_of(table.kind, data_of(table.kind, now.config) | dict(row.data))
        self.device.switch.write([Update("MODIFY", FilterEntry(name, index, config, where.pipe))])

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        key = FILTER_INDEX[table.kind]
        entries = self.device.switch.read([FilterEntry(own_name(table.name), row.key.get(key), pipe=where.pipe)])
        first = entries[0].pipe  # pipes that were configured one by one may differ: shows the first
        return [Row(table.name, {key: e.index}, data_of(table.kind, e.config)) for e in entries if e.pipe == first]


def register_of(field: str, table: Table | None = None) -> str:
    """The switch's register that is a field of a cell: "reg.f1" is all of "reg", "reg.first" a word of a pair."""
    return own_name(table.name) if field == "value" and table is not None else field.removesuffix(".f1")


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
            values = {name: row.data[name] for name, _ in FILTER_FIELDS[kind] if name in row.data}
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
