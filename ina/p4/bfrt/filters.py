"""Tables of Lpf and Wred of an embedded switch: BFRuntime's fields to the configuration of a cell, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.info import Table
from ina.p4.bfrt.part import Owner
from ina.p4.bfrt.program_info import own_name
from ina.p4.bfrt.rows import Fields, Row, Where
from ina.p4.runtime.entities import Update
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.tna_entities import FilterEntry, LpfConfig, WredConfig

INDEX = {"Lpf": "$LPF_INDEX", "Wred": "$WRED_INDEX"}
TYPE, GAIN, DECAY, SCALE = (
    f"$LPF_SPEC_{name}" for name in ("TYPE", "GAIN_TIME_CONSTANT_NS", "DECAY_TIME_CONSTANT_NS", "OUT_SCALE_DOWN_FACTOR")
)
CONSTANT, LOW, HIGH, PROBABILITY = (
    f"$WRED_SPEC_{name}" for name in ("TIME_CONSTANT_NS", "MIN_THRESH_CELLS", "MAX_THRESH_CELLS", "MAX_PROBABILITY")
)
# name and type of each kind's fields
FIELDS = {
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
        name, index = own_name(table.name), row.key.get(INDEX[table.kind])
        if type_ == "DELETE":
            config = None
        elif index is None:
            raise EntityError(f"table {table.name}: which cell? {INDEX[table.kind]} is missing")
        else:
            (now, *_) = self.device.switch.read([FilterEntry(name, index, pipe=where.pipe)])
            config = config_of(table.kind, data_of(table.kind, now.config) | dict(row.data))
        self.device.switch.write([Update("MODIFY", FilterEntry(name, index, config, where.pipe))])

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        key = INDEX[table.kind]
        entries = self.device.switch.read([FilterEntry(own_name(table.name), row.key.get(key), pipe=where.pipe)])
        first = entries[0].pipe  # pipes that were configured one by one may differ: shows the first
        return [Row(table.name, {key: e.index}, data_of(table.kind, e.config)) for e in entries if e.pipe == first]
