"""Fields of counters, meters and registers in BFRuntime's rows, from and to the switch's values.

Rates of a meter of bytes are kbit/s there, and its bursts kbit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ina.p4.bfrt.info import Table
from ina.p4.bfrt.program_info import own_name
from ina.p4.runtime.entities import MeterConfig
from ina.p4.runtime.p4info import EntityError

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
