"""packet_in and packet_out of core.p4 (P4_16 v1.2.5 §13.8, §16)."""

from __future__ import annotations

from ina.p4.compiler.reference.signals import ParserError
from ina.p4.compiler.reference.values import (
    Aggregate,
    Handle,
    Record,
    Stack,
    TupleValue,
    Value,
    Varbit,
    default_value,
    leaves,
    to_bits,
    unpack_leaf,
)
from ina.p4.compiler.types import Type, VarbitType, fixed_width, strip_new


class PacketIn(Handle):
    """The received bytes and a cursor, in bits."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bits = int.from_bytes(data, "big")
        self.length_bits = 8 * len(data)
        self.cursor = 0

    def need(self, width: int) -> None:
        """Raises PacketTooShort if fewer than `width` bits remain; the cursor stays (§13.8.1)."""
        if self.cursor + width > self.length_bits:
            raise ParserError("PacketTooShort")

    def peek(self, width: int, offset: int = 0) -> int:
        shift = self.length_bits - self.cursor - offset - width
        return self.bits >> shift & ((1 << width) - 1)

    def extract(self, header: Record) -> None:
        """Extracts a header of fixed size (§13.8.1)."""
        width = fixed_width(header.type)
        if width is None:
            raise TypeError(f"header {header.type} has no fixed size")
        self.need(width)
        self._fill(header, 0)
        self.cursor += width

    def extract_varbit(self, header: Record, varbit_bits: int) -> None:
        """Extracts a header with one varbit field (§13.8.2).

        The order of the checks where several fail is BMv2's: ParserInvalidArgument, PacketTooShort, HeaderTooShort.
        """
        fixed = sum(fixed_width(f.type) or 0 for f in header.type.fields.values()) + sum(header.type.padding().values())
        limit = max(t.max_width for t in (strip_new(f.type) for f in header.type.fields.values()) if isinstance(t, VarbitType))
        if varbit_bits % 8:
            raise ParserError("ParserInvalidArgument")
        self.need(fixed + varbit_bits)
        if varbit_bits > limit:
            raise ParserError("HeaderTooShort")
        self._fill(header, varbit_bits)
        self.cursor += fixed + varbit_bits

    def _fill(self, header: Record, varbit_bits: int) -> None:
        offset, padding = 0, header.type.padding()
        for name, f in header.type.fields.items():
            if isinstance(strip_new(f.type), VarbitType):
                header.fields[name] = Varbit(varbit_bits, self.peek(varbit_bits, offset))
                offset += varbit_bits
            else:
                header.fields[name], offset = self._read(f.type, offset)
            offset += padding.get(name, 0)
        header.mark_valid()

    def _read(self, t: Type, offset: int) -> tuple[Value, int]:
        """Returns a value of fixed-size type `t` from the bits `offset` after the cursor, and the offset behind it."""
        value = default_value(t)
        if not isinstance(value, Aggregate):
            width = fixed_width(t)
            if width is None:
                raise TypeError(f"type {t} cannot be read from a packet")
            return unpack_leaf(self.peek(width, offset), t), offset + width
        if isinstance(value, Record):
            padding = value.type.padding() if value.is_header else {}
            for name, f in value.type.fields.items():
                value.fields[name], offset = self._read(f.type, offset)
                offset += padding.get(name, 0)
            value.valid = value.is_header
        elif isinstance(value, Stack | TupleValue):
            types = value.type.elements if isinstance(value, TupleValue) else [value.type.element] * len(value.items)
            for i, element in enumerate(types):
                value.items[i], offset = self._read(element, offset)
        return value, offset

    def lookahead(self, t: Type) -> Value:
        """Reads without moving the cursor (§13.8.3)."""
        self.need(fixed_width(t) or 0)
        return self._read(t, 0)[0]

    def advance(self, width: int) -> None:
        """Moves the cursor (§13.8.4). Like BMv2 it accepts only whole bytes, otherwise raises ParserInvalidArgument."""
        if width % 8:
            raise ParserError("ParserInvalidArgument")
        self.need(width)
        self.cursor += width

    def payload(self) -> bytes:
        """Returns the bytes that have not been extracted, from the byte of the cursor on."""
        return self.data[self.cursor // 8 :]


class PacketOut(Handle):
    """The emitted bits."""

    def __init__(self) -> None:
        self.width = self.bits = 0

    def emit(self, value: Value, t: Type) -> None:
        """Emits valid headers in order; structs, stacks and unions part by part (§16.1)."""
        match value:
            case Record() if value.is_header:
                if value.valid:
                    padding = value.type.padding()
                    for name, f in value.type.fields.items():
                        for leaf, leaf_type in leaves(value.fields[name], f.type):
                            width, bits = to_bits(leaf, leaf_type)
                            self.width, self.bits = self.width + width, self.bits << width | bits
                        self.width, self.bits = self.width + padding.get(name, 0), self.bits << padding.get(name, 0)
            case Record():
                for name, f in value.type.fields.items():
                    self.emit(value.fields[name], f.type)
            case Stack():
                for item in value.items:
                    self.emit(item, value.type.element)
            case TupleValue():
                for item, element in zip(value.items, value.type.elements, strict=True):
                    self.emit(item, element)
            case _:
                raise TypeError(f"emit takes headers, not {t}")

    def data(self) -> bytes:
        """Returns the emitted bytes; a last partial byte is filled with zeros."""
        pad = -self.width % 8
        return (self.bits << pad).to_bytes((self.width + pad) // 8, "big")
