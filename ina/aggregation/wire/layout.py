"""Positions of all header fields, derived from p4/include/switchml/headers.p4 by the compiler's own front end.

    wire = load(values=256)
    wire["switchml"].unpack(frame, 42)                     -> {"msg_type": 1, "overflow": 0, "size": 3, ...}
    wire.pack(ethernet={...}, ipv4={...}, ...)             -> bytes, headers in the order of the program's `headers_t`

Bits are counted from the first bit on the wire, as in P4 and the RFCs. Fields that are numbered in order (v_00, v_01, ...) are
one array field. Fields that do not fill whole bytes are grouped into *units* that do, which C can address.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.base.paths import p4_dir
from ina.base.plurals import counted
from ina.p4.compiler import ast, frontend, types

if TYPE_CHECKING:
    from ina.aggregation.lane import Lane  # of the compiled part

HEAD = ("ethernet", "ipv4", "udp", "switchml", "exponents", "check")
PUBLISHED = HEAD[:-1]  # of published SwitchML clients: without a check header
DATA = (*HEAD, "values")
PENDING = (*HEAD, "pending")
ATP_HEAD = ("ethernet", "ipv4", "udp", "atp", "check")
ATP_DATA = (*ATP_HEAD, "values")


def checksum(data: bytes) -> int:
    """Returns the checksum of RFC 1071 over an even number of bytes: 0 for headers that contain the right one."""
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class LayoutError(ValueError):
    """Bytes or values that do not fit a header, or a P4 program whose headers have no fixed layout."""


@dataclass(frozen=True, slots=True)
class Field:
    """`offset` and `width` in bits; an array field has `count` elements of `width` bits each, side by side."""

    name: str
    offset: int
    width: int
    signed: bool = False
    count: int = 1

    @property
    def end(self) -> int:
        return self.offset + self.width * self.count


@dataclass(frozen=True, slots=True)
class Unit:
    """Neighbouring fields that together fill whole bytes. `offset`, `size` in bytes; `name` joins the fields' names."""

    name: str
    offset: int
    size: int
    fields: tuple[Field, ...]

    def shift(self, field: Field) -> int:
        """Returns the distance of `field` from the unit's lowest bit."""
        return 8 * (self.offset + self.size) - field.end

    def mask(self, field: Field) -> int:
        """Returns the bits of `field` in the unit, as one big endian number."""
        return ((1 << field.width) - 1) << self.shift(field)


@dataclass(frozen=True)
class Header:
    """One header. `size` in bytes."""

    name: str
    fields: tuple[Field, ...]
    size: int

    def __getitem__(self, field: str) -> Field:
        for f in self.fields:
            if f.name == field:
                return f
        raise KeyError(f"header {self.name} has no field {field!r}; it has: {', '.join(f.name for f in self.fields)}")

    @functools.cached_property
    def units(self) -> tuple[Unit, ...]:
        """The fields in groups of whole bytes, as small as possible."""
        units, group = [], []
        for field in self.fields:
            group.append(field)
            if field.end % 8 == 0:
                start = group[0].offset // 8
                units.append(Unit("_".join(f.name for f in group), start, field.end // 8 - start, tuple(group)))
                group = []
        return tuple(units)

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Returns the bytes of the header; fields left out are 0, an array field takes a sequence of `count` integers.

        Raises LayoutError for unknown fields and for values that do not fit.
        """
        unknown = set(values) - {f.name for f in self.fields}
        if unknown:
            raise LayoutError(f"header {self.name} has no field {min(unknown)!r}; it has: "
                              f"{', '.join(f.name for f in self.fields)}")
        number = 0
        for field in self.fields:
            value = values.get(field.name, 0 if field.count == 1 else (0,) * field.count)
            items = (value,) if field.count == 1 else value
            if len(items) != field.count:
                raise LayoutError(f"{self.name}.{field.name}: {counted(len(items), 'value')}, {field.count} expected")
            for item in items:
                number = number << field.width | self._bits(field, item)
        return number.to_bytes(self.size, "big")

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> dict[str, Any]:
        """Returns the fields of the header at byte `offset`. Raises LayoutError when `data` ends before it does."""
        if len(data) < offset + self.size:
            raise LayoutError(f"header {self.name} at byte {offset}: {self.size} bytes expected, "
                              f"{max(0, len(data) - offset)} are there")
        number = int.from_bytes(data[offset : offset + self.size], "big")
        out: dict[str, Any] = {}
        for field in self.fields:
            items = [self._value(field, number >> (8 * self.size - field.offset - (i + 1) * field.width))
                     for i in range(field.count)]
            out[field.name] = items[0] if field.count == 1 else tuple(items)
        return out

    def _bits(self, field: Field, value: Any) -> int:
        low = -(1 << (field.width - 1)) if field.signed else 0
        high = low + (1 << field.width) - 1
        if not low <= int(value) <= high:
            raise LayoutError(f"{self.name}.{field.name} = {value}: expected {low}..{high}")
        return int(value) & ((1 << field.width) - 1)

    @staticmethod
    def _value(field: Field, bits: int) -> int:
        bits &= (1 << field.width) - 1
        return bits - (1 << field.width) if field.signed and bits >> (field.width - 1) else bits


@dataclass(frozen=True)
class Layout:
    """The headers of a program in the order of `headers_t`, and its integer constants by their names in the source."""

    headers: Mapping[str, Header]
    constants: Mapping[str, int]

    def __getitem__(self, header: str) -> Header:
        if header not in self.headers:
            raise KeyError(f"there is no header {header!r}; there are: {', '.join(self.headers)}")
        return self.headers[header]

    def size(self, names: Sequence[str]) -> int:
        """Returns the bytes of a frame that has the headers `names` and nothing more."""
        return sum(self[name].size for name in names)

    def offset(self, name: str, frame: Sequence[str] = DATA) -> int:
        """Returns the byte at which header `name` starts in a frame of the headers `frame`."""
        return self.size(frame[: list(frame).index(name)])

    def pack(self, **headers: Mapping[str, Any]) -> bytes:
        """Returns a frame of the headers given, each a mapping of field values, in the program's order."""
        unknown = set(headers) - set(self.headers)
        if unknown:
            raise LayoutError(f"there is no header {min(unknown)!r}; there are: {', '.join(self.headers)}")
        return b"".join(header.pack(headers[name]) for name, header in self.headers.items() if name in headers)

    def unpack(self, data: bytes | memoryview, frame: Sequence[str] = DATA) -> dict[str, dict[str, Any]]:
        """Returns fields by header of a frame that starts with the headers `frame`. Raises LayoutError when it is too short."""
        return {name: self[name].unpack(data, self.offset(name, frame)) for name in frame}


@functools.cache
def load(values: int = 256, path: Path | None = None, struct: str = "headers_t", lane: Lane | None = None) -> Layout:
    """Loads the layout of `struct` in the P4 file `path` (default: p4/include/switchml/headers.p4) with `values` integers of
    `lane` in a packet (None: of the width that p4/include/size.p4 gives).

    Raises CompileError for P4 that does not compile, LayoutError for headers without a fixed layout in whole bytes.
    """
    path = path or p4_dir() / "include/switchml/headers.p4"
    program = frontend.load(path, defines={"VALUES": str(values), **({"LANE_BITS": str(lane.bits)} if lane else {})})
    record = program.types.get(struct)
    if not isinstance(record, types.StructType):
        raise LayoutError(f"{path}: there is no struct {struct}")
    headers = {}
    for member in record.fields.values():
        if not isinstance(member.type, types.HeaderType):
            raise LayoutError(f"{path}: {struct}.{member.name} is {member.type}, not a header")
        headers[member.name] = header(member.name, member.type)
    constants = {
        d.name: d.value.const
        for d in program.declarations
        if isinstance(d, ast.ConstDecl) and type(d.value.const) is int and not d.name.startswith("__")
    }
    return Layout(headers, constants)


def load_atp(values: int = 256) -> Layout:
    """Loads the layout of ATP's frames, from p4/include/atp/headers.p4."""
    return load(values, p4_dir() / "include/atp/headers.p4")


def size_codes() -> dict[int, int]:
    """Returns the integers in the payload by the header's size code, from p4/include/size.p4."""
    text = (p4_dir() / "include/size.p4").read_text()
    return {int(code): int(values) for values, code in re.findall(r"VALUES == (\d+)\nconst bit<3> SIZE_CODE = (\d);", text)}


def header(name: str, type_: types.HeaderType) -> Header:
    """Returns the places of a header's fields. Raises LayoutError: they have none that is fixed, or are no whole bytes."""
    fields, offset = [], 0
    for f in type_.fields.values():
        kind = types.underlying(f.type)
        if not isinstance(kind, types.BitType):
            raise LayoutError(f"{type_.name}.{f.name} is {f.type}: only bit<n> and int<n> have a fixed place")
        fields.append(Field(f.name, offset, kind.width, kind.signed))
        offset += kind.width
    if offset % 8:
        raise LayoutError(f"{type_.name} has {offset} bits: expected whole bytes")
    return Header(name, _array(fields) or tuple(fields), offset // 8)


def _array(fields: list[Field]) -> tuple[Field] | None:
    """Returns the array of fields with one type and the names prefix + 0, 1, 2, ... (hexadecimal, of one length), or None."""
    match = re.fullmatch(r"(.*?)_(0+)", fields[0].name) if fields else None
    if match is None or len(fields) < 2:
        return None
    prefix, digits = match[1], len(match[2])
    first = fields[0]
    for i, field in enumerate(fields):
        if (field.name, field.width, field.signed) != (f"{prefix}_{i:0{digits}x}", first.width, first.signed):
            return None
    return (Field(prefix, 0, first.width, first.signed, len(fields)),)
