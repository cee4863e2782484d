"""Codecs of counters, meters and registers (P4Runtime §9.2, §9.4, §9.6): cells that always exist."""

from __future__ import annotations

from collections.abc import Iterator

from ina.p4.p4runtime.cell_data import answered_config, counts_of, refuse_counts, requested_config, with_config
from ina.p4.p4runtime.codecs import Codec, codec
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.pipes import merge
from ina.p4.p4runtime.program import ProgramMessages, by_id
from ina.p4.p4runtime.values import from_data, to_data
from ina.p4.runtime import CounterEntry, EntityError, MeterEntry, RegisterEntry, SwitchTarget
from ina.p4.runtime.entities import as_int
from ina.p4.runtime.p4info import ArrayInfo


@codec(CounterEntry, "counter_entry")
class Counters(Codec[CounterEntry, p4.CounterEntry]):
    always_there = needs_data = True

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        direct = {c.preamble.name for c in program.message.direct_counters}
        self._counters = [c for c in program.info.counters.values() if c.name not in direct]

    def entity(self, type_: str, request: p4.CounterEntry) -> CounterEntry:
        counter = by_id("counter", self._counters, request.counter_id)
        return CounterEntry(counter.name, self.program.index(request, counter), *counts_of(request.data))

    def answers(self, pattern: p4.CounterEntry, switch: SwitchTarget) -> Iterator[p4.CounterEntry]:
        names, one = self.program.used("counters"), pattern.counter_id
        for info in [by_id("counter", self._counters, one)] if one else [c for c in self._counters if c.name in names]:
            index = self.program.index(pattern, info) if one else None
            for cell in merge(switch.read([CounterEntry(info.name, index)])):
                data = p4.CounterData(packet_count=cell.packets, byte_count=cell.bytes)
                yield p4.CounterEntry(counter_id=info.id, index=p4.Index(index=cell.index), data=data)

    def request(self, entity: CounterEntry) -> p4.CounterEntry:
        message = p4.CounterEntry(counter_id=self.program.info.counter(entity.counter).id)
        message.data.packet_count, message.data.byte_count = entity.packets, entity.bytes
        if entity.index is not None:
            message.index.index = entity.index
        return message

    def answered(self, answer: p4.CounterEntry) -> CounterEntry:
        name = self.program.info.counter(answer.counter_id).name
        return CounterEntry(name, answer.index.index, answer.data.packet_count, answer.data.byte_count)


@codec(MeterEntry, "meter_entry")
class Meters(Codec[MeterEntry, p4.MeterEntry]):
    always_there = True

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        direct = {m.preamble.name for m in program.message.direct_meters}
        self._meters = [m for m in program.info.meters.values() if m.name not in direct]

    def entity(self, type_: str, request: p4.MeterEntry) -> MeterEntry:
        meter = by_id("meter", self._meters, request.meter_id)
        refuse_counts(request)
        return MeterEntry(meter.name, self.program.index(request, meter), requested_config(request, f"meter {meter.name}"))

    def answers(self, pattern: p4.MeterEntry, switch: SwitchTarget) -> Iterator[p4.MeterEntry]:
        names, one = self.program.used("meters"), pattern.meter_id
        for meter in [by_id("meter", self._meters, one)] if one else [m for m in self._meters if m.name in names]:
            index = self.program.index(pattern, meter) if one else None
            for cell in merge(switch.read([MeterEntry(meter.name, index)])):
                yield with_config(p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=cell.index)), cell.config)

    def request(self, entity: MeterEntry) -> p4.MeterEntry:
        message = with_config(p4.MeterEntry(meter_id=self.program.info.meter(entity.meter).id), entity.config)
        if entity.index is not None:
            message.index.index = entity.index
        return message

    def answered(self, answer: p4.MeterEntry) -> MeterEntry:
        return MeterEntry(self.program.info.meter(answer.meter_id).name, answer.index.index, answered_config(answer))


@codec(RegisterEntry, "register_entry")
class Registers(Codec[RegisterEntry, p4.RegisterEntry]):
    always_there = needs_data = True

    def __init__(self, program: ProgramMessages):
        super().__init__(program)
        self._specs = {r.preamble.name: r.type_spec for r in program.message.registers}
        self._widths: dict[str, int] = {r["name"]: r["width"] for r in program.layout.get("registers", ())}

    def _register(self, number: int) -> ArrayInfo:
        return by_id("register", self.program.info.registers.values(), number)

    def _width(self, register: ArrayInfo) -> int:
        width = self._widths.get(register.name)
        if width is None:
            raise EntityError(f"register {register.name}: the program declares it and never uses it", "NOT_FOUND")
        return width

    def entity(self, type_: str, request: p4.RegisterEntry) -> RegisterEntry:
        register = self._register(request.register_id)
        value = from_data(request.data, self._specs[register.name], self._width(register), f"register {register.name}")
        return RegisterEntry(register.name, self.program.index(request, register), value)

    def answers(self, pattern: p4.RegisterEntry, switch: SwitchTarget) -> Iterator[p4.RegisterEntry]:
        names, one = self.program.used("registers"), pattern.register_id
        registers = [r for r in self.program.info.registers.values() if r.name in names]
        for info in [self._register(one)] if one else registers:
            index = self.program.index(pattern, info) if one else None
            for cell in merge(switch.read([RegisterEntry(info.name, index)])):
                yield self._answer(info, cell)

    def _answer(self, register: ArrayInfo, cell: RegisterEntry) -> p4.RegisterEntry:
        data = to_data(cell.value, self._specs[register.name], self._width(register), f"register {register.name}")
        return p4.RegisterEntry(register_id=register.id, index=p4.Index(index=cell.index or 0), data=data)

    def request(self, entity: RegisterEntry) -> p4.RegisterEntry:
        info = self.program.info.register(entity.register)
        place = f"register {info.name}"
        data = to_data(as_int(entity.value, info.width, place), self._specs[info.name], info.width, place)
        message = p4.RegisterEntry(register_id=info.id, data=data)
        if entity.index is not None:
            message.index.index = entity.index
        return message

    def answered(self, answer: p4.RegisterEntry) -> RegisterEntry:
        info = self._register(answer.register_id)
        value = from_data(answer.data, self._specs[info.name], info.width, f"register {info.name}")
        return RegisterEntry(info.name, answer.index.index, value)
