"""Codecs of counters, meters and registers (P4Runtime §9.2, §9.4, §9.6): cells that always exist.

P4Runtime has no pipes: entities of all pipes of a TNA switch are merged into one. Counters add up. A meter's configuration and a
register's cell are those that all pipes have; reading fails where pipes differ, as there is no one answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

from ina.p4.p4runtime.codecs import Codec, codec
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.program import ProgramMessages, by_id, from_data, to_data
from ina.p4.runtime import (
    ArrayInfo,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    EntityError,
    MeterConfig,
    MeterEntry,
    RegisterEntry,
    SwitchTarget,
    as_int,
)

Metered = TypeVar("Metered", p4.MeterEntry, p4.DirectMeterEntry)


def counts_of(data: p4.CounterData) -> tuple[int, int]:
    """Packets and bytes. Raises EntityError."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise EntityError("counter data: a count is negative")
    return data.packet_count, data.byte_count


def refuse_counts(message: Metered) -> None:
    """Raises EntityError: a request sets a meter's counts."""
    if message.HasField("counter_data"):
        raise EntityError("this switch's meters do not count packets by colour", "UNIMPLEMENTED")


def requested_config(message: Metered, place: str) -> MeterConfig | None:
    """The configuration that a request sets; None: none, and the meter is green. Raises EntityError."""
    if not message.HasField("config"):
        return None
    c = message.config
    if c.eburst:
        raise EntityError(f"{place}: eburst is for meters of one rate, and v1model's have two", "UNIMPLEMENTED")
    if min(c.cir, c.cburst, c.pir, c.pburst) < 0:
        raise EntityError(f"{place}: rates and bursts must not be negative")
    return answered_config(message)


def answered_config(message: Metered) -> MeterConfig | None:
    c = message.config
    return MeterConfig(c.cir, c.cburst, c.pir, c.pburst) if message.HasField("config") else None


def message_of(config: MeterConfig) -> p4.MeterConfig:
    return p4.MeterConfig(
        cir=round(config.committed_rate), cburst=config.committed_burst, pir=round(config.peak_rate),
        pburst=config.peak_burst,
    )


def with_config(message: Metered, config: MeterConfig | None) -> Metered:
    """The message with a configuration; None: without, which means green."""
    if config is not None:
        message.config.CopyFrom(message_of(config))
    return message


Counts = CounterEntry | DirectCounterEntry
Cell = TypeVar("Cell", CounterEntry, DirectCounterEntry, MeterEntry, DirectMeterEntry, RegisterEntry)


def merge(entities: Iterable[Cell]) -> list[Cell]:
    """Counter, meter and register entities, one for each cell. Raises EntityError (FAILED_PRECONDITION)."""
    cells: dict[int | None, Cell] = {}
    for e in entities:
        if e.pipe is None:
            cells[len(cells)] = e
            continue
        cell = getattr(e, "index", None)
        if cell not in cells:
            cells[cell] = replace(e, pipe=None)
        elif isinstance(e, Counts):
            total = cells[cell]
            cells[cell] = replace(total, packets=total.packets + e.packets, bytes=total.bytes + e.bytes)
        elif replace(e, pipe=None) != cells[cell]:
            raise EntityError(
                f"{_name(e)}: its pipes differ (pipe {e.pipe}: {_value(e)}, another: {_value(cells[cell])}), and P4Runtime "
                "has no pipes: read it over BFRuntime", "FAILED_PRECONDITION"
            )
    return list(cells.values())


def _name(e: MeterEntry | DirectMeterEntry | RegisterEntry) -> str:
    if isinstance(e, DirectMeterEntry):
        return f"meter of {e.entry.table}"
    name = e.register if isinstance(e, RegisterEntry) else e.meter
    return f"{name}[{e.index}]" if e.index is not None else str(name)


def _value(e: object) -> object:
    return e.value if isinstance(e, RegisterEntry) else getattr(e, "config", None)


A = TypeVar("A", CounterEntry, MeterEntry, RegisterEntry)
X = TypeVar("X", p4.CounterEntry, p4.MeterEntry, p4.RegisterEntry)


class Cells(Codec[A, X], Generic[A, X]):
    """Codecs of arrays of cells. `kind`: the name of one in P4Info, and of the entities' field with the array's name; `cell`: the
    entities' class."""

    kind: ClassVar[str]
    cell: type[A]
    always_there = True

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        direct = {c.preamble.name for c in getattr(program.message, f"direct_{self.kind}s", ())}
        arrays: Iterable[ArrayInfo] = getattr(program.info, f"{self.kind}s").values()
        self._arrays = [array for array in arrays if array.name not in direct]

    def _array(self, number: int) -> ArrayInfo:
        return by_id(self.kind, self._arrays, number)

    @abstractmethod
    def message(self, array: ArrayInfo, entity: A) -> X:
        """The message of a cell, without its index."""

    def answers(self, pattern: X, switch: SwitchTarget) -> Iterator[X]:
        names, one = self.program.used(f"{self.kind}s"), getattr(pattern, f"{self.kind}_id")
        for array in [self._array(one)] if one else [a for a in self._arrays if a.name in names]:
            index = self.program.index(pattern, array) if one else None
            for cell in merge(switch.read([self.cell(array.name, index)])):
                message = self.message(array, cell)
                message.index.index = cell.index or 0
                yield message

    def request(self, entity: A) -> X:
        message = self.message(getattr(self.program.info, self.kind)(getattr(entity, self.kind)), entity)
        if entity.index is not None:
            message.index.index = entity.index
        return message


@codec(CounterEntry, "counter_entry")
class Counters(Cells[CounterEntry, p4.CounterEntry]):
    kind, needs_data, cell = "counter", True, CounterEntry

    def entity(self, type_: str, request: p4.CounterEntry) -> CounterEntry:
        counter = self._array(request.counter_id)
        return CounterEntry(counter.name, self.program.index(request, counter), *counts_of(request.data))

    def message(self, array: ArrayInfo, entity: CounterEntry) -> p4.CounterEntry:
        data = p4.CounterData(packet_count=entity.packets, byte_count=entity.bytes)
        return p4.CounterEntry(counter_id=array.id, data=data)

    def answered(self, answer: p4.CounterEntry) -> CounterEntry:
        name = self.program.info.counter(answer.counter_id).name
        return CounterEntry(name, answer.index.index, answer.data.packet_count, answer.data.byte_count)


@codec(MeterEntry, "meter_entry")
class Meters(Cells[MeterEntry, p4.MeterEntry]):
    kind, cell = "meter", MeterEntry

    def entity(self, type_: str, request: p4.MeterEntry) -> MeterEntry:
        meter = self._array(request.meter_id)
        refuse_counts(request)
        return MeterEntry(meter.name, self.program.index(request, meter), requested_config(request, f"meter {meter.name}"))

    def message(self, array: ArrayInfo, entity: MeterEntry) -> p4.MeterEntry:
        return with_config(p4.MeterEntry(meter_id=array.id), entity.config)

    def answered(self, answer: p4.MeterEntry) -> MeterEntry:
        return MeterEntry(self.program.info.meter(answer.meter_id).name, answer.index.index, answered_config(answer))


@codec(RegisterEntry, "register_entry")
class Registers(Cells[RegisterEntry, p4.RegisterEntry]):
    kind, needs_data, cell = "register", True, RegisterEntry

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._specs = {r.preamble.name: r.type_spec for r in program.message.registers}
        self._widths: dict[str, int] = {r["name"]: r["width"] for r in program.layout.get("registers", ())}

    def _width(self, register: ArrayInfo) -> int:
        if register.name not in self._widths:
            raise EntityError(f"register {register.name}: the program declares it and never uses it", "NOT_FOUND")
        return self._widths[register.name]

    def entity(self, type_: str, request: p4.RegisterEntry) -> RegisterEntry:
        register = self._array(request.register_id)
        return RegisterEntry(register.name, self.program.index(request, register), self._value(register, request.data))

    def _value(self, register: ArrayInfo, data: p4.P4Data) -> int:
        return from_data(data, self._specs[register.name], self._width(register), f"register {register.name}")

    def message(self, array: ArrayInfo, entity: RegisterEntry) -> p4.RegisterEntry:
        place, width = f"register {array.name}", self._width(array)
        data = to_data(as_int(entity.value, width, place), self._specs[array.name], width, place)
        return p4.RegisterEntry(register_id=array.id, data=data)

    def answered(self, answer: p4.RegisterEntry) -> RegisterEntry:
        register = self._array(answer.register_id)
        return RegisterEntry(register.name, answer.index.index, self._value(register, answer.data))
