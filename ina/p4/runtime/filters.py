"""Cells of Lpf and Wred (struct ina_filter of a compiled TNA program, prelude_tna.h) from and to the control plane's configs."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from ina.p4.runtime.p4info import EntityError, find
from ina.p4.runtime.tna_entities import FilterEntry, LpfConfig, WredConfig

CELL = struct.Struct("<Q6dQ")  # configured, rise, fall, out, low, high, average, last


class _Layout(NamedTuple):
    name: str
    id: None
    layout: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a program. `layouts`: those of its layout."""

    layouts: tuple[dict[str, Any], ...]

    def layout(self, name: str) -> dict[str, Any]:
        """A filter's layout by its full name, or by a suffix that only one has."""
        filters = [_Layout(f["name"], None, f) for f in self.layouts]
        return find("filter", filters, name).layout

    def index(self, entity: FilterEntry, tables: Any) -> int | None:
        """The index of an entry's cell; None: all of them. Raises EntityError."""
        layout = self.layout(entity.filter)
        if layout["table"] is None:
            if entity.entry is not None:
                raise EntityError(f"{layout['name']}: not a direct one: it has an index, and no entry")
            return entity.index
        if entity.entry is None:
            raise EntityError(f"{layout['name']}: a direct one: name an entry of table {layout['table']}")
        if tables.p4info.table(entity.entry.table).name != layout["table"]:
            raise EntityError(f"{layout['name']}: it belongs to table {layout['table']}, not to {entity.entry.table}")
        index: int = tables.row_id(entity.entry)
        return index

    def cell(self, entity: FilterEntry) -> bytes:
        """Bytes of a cell that has just been configured. Raises EntityError."""
        layout, config = self.layout(entity.filter), entity.config
        if config is None:
            return bytes(CELL.size)
        place = f"{layout['name']}: {config}"
        if not isinstance(config, LpfConfig if layout["type"] == "lpf" else WredConfig):
            raise EntityError(f"{place}: it is a {layout['type']}")
        if isinstance(config, LpfConfig):
            values: tuple[float, ...] = (config.rise, config.fall, 0.0, 0.0, 0.0)
            if not 0 <= config.scale_down <= 31:
                raise EntityError(f"{place}: scale_down: expected 0..31")
            packed = (2 if config.rate else 1, config.rise, config.fall, 2.0**-config.scale_down, 0.0, 0.0)
        else:
            values = (config.time_constant, config.low, config.high, config.probability)
            if config.probability > 1 or config.low > config.high:
                raise EntityError(f"{place}: expected a probability of 0 to 1, and low not above high")
            packed = (1, config.time_constant, config.time_constant, config.probability, config.low, config.high)
        if not all(math.isfinite(v) and v >= 0 for v in values):
            raise EntityError(f"{place}: times and thresholds are finite and not negative")
        return CELL.pack(*packed, 0.0, 0)

    def configs(self, name: str, raw: bytes) -> list[LpfConfig | WredConfig | None]:
        """The configurations of cells."""
        configs: list[LpfConfig | WredConfig | None] = []
        is_lpf = self.layout(name)["type"] == "lpf"
        for configured, rise, fall, out, low, high, _, _ in CELL.iter_unpack(raw):
            if not configured:
                configs.append(None)
            elif is_lpf:
                configs.append(LpfConfig(rise, fall, configured == 2, round(-math.log2(out))))
            else:
                configs.append(WredConfig(rise, low, high, out))
        return configs
