"""Numbers in P4Runtime: byte strings (specification §8.4) and P4Data (§8.5)."""

from __future__ import annotations

from collections.abc import Iterator

from ina.p4.p4runtime.messages import config, p4
from ina.p4.runtime import EntityError


def encode(value: int) -> bytes:
    """The shortest big-endian string of a number: the canonical one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, place: str) -> int:
    """The number in a byte string, which may have leading zeros (§8.4). Raises EntityError (OUT_OF_RANGE)."""
    if not data:
        raise EntityError(f"{place}: empty byte string: 0 is one zero byte", "OUT_OF_RANGE")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise EntityError(f"{place}: {value:#x} does not fit {width} bits", "OUT_OF_RANGE")
    return value


def encode_signed(value: int, width: int) -> bytes:
    """`value` as the unsigned number of `width` bits that the data plane holds, in two's complement."""
    signed = value - (1 << width) if value >> (width - 1) else value
    bits = (signed if signed >= 0 else ~signed).bit_length() + 1
    return signed.to_bytes((bits + 7) // 8, "big", signed=True)


def decode_signed(data: bytes, width: int, place: str) -> int:
    if not data:
        raise EntityError(f"{place}: empty byte string: 0 is one zero byte", "OUT_OF_RANGE")
    value = int.from_bytes(data, "big", signed=True)
    if not -(1 << (width - 1)) <= value < 1 << (width - 1):
        raise EntityError(f"{place}: {value} does not fit {width} signed bits", "OUT_OF_RANGE")
    return value & ((1 << width) - 1)


def to_data(value: int, spec: config.P4DataTypeSpec, width: int, place: str) -> p4.P4Data:
    """P4Data of one number. Raises EntityError: the type is none of one number."""
    kind = spec.WhichOneof("type_spec")
    if kind not in ("bitstring", "bool", "serializable_enum", "new_type"):
        raise EntityError(f"{place}: data of type {kind} are not served", "UNIMPLEMENTED")
    return _data(spec, iter([(value, width)]), config.P4TypeInfo())


def from_data(data: p4.P4Data, spec: config.P4DataTypeSpec, width: int, place: str) -> int:
    """The number in a P4Data of type bitstring or bool. Raises EntityError."""
    kind, data_kind = spec.WhichOneof("type_spec"), data.WhichOneof("data")
    if kind == "bool" and data_kind == "bool":
        return int(data.bool)
    if kind == "bitstring" and data_kind == "bitstring":
        signed = spec.bitstring.WhichOneof("type_spec") == "int"
        return (decode_signed if signed else decode)(data.bitstring, width, place)
    if kind not in ("bool", "bitstring"):
        raise EntityError(f"{place}: data of type {kind} are not served: bit<W>, int<W> and bool are", "UNIMPLEMENTED")
    raise EntityError(f"{place}: data of kind {data_kind or 'none'}: expected {kind}")


def structure(spec: config.P4DataTypeSpec, leaves: Iterator[tuple[int, int]], types: config.P4TypeInfo) -> p4.P4Data:
    """P4Data of a digest: its leaf values in order, each as (value, width in bits). `types`: P4TypeInfo."""
    return _data(spec, leaves, types)


def _data(spec: config.P4DataTypeSpec, leaves: Iterator[tuple[int, int]], types: config.P4TypeInfo) -> p4.P4Data:
    data = p4.P4Data()
    kind = spec.WhichOneof("type_spec")
    if kind in ("struct", "tuple"):
        members = (
            [m.type_spec for m in types.structs[spec.struct.name].members] if kind == "struct" else spec.tuple.members
        )
        getattr(data, kind).SetInParent()
        getattr(data, kind).members.extend(_data(m, leaves, types) for m in members)
        return data
    if kind == "new_type":
        original = types.new_types[spec.new_type.name]
        if original.WhichOneof("representation") == "original_type":
            return _data(original.original_type, leaves, types)
    value, width = next(leaves)
    if kind == "bool":
        data.bool = bool(value)
    elif kind == "serializable_enum":
        data.enum_value = encode(value)
    elif kind == "enum":
        data.enum = types.enums[spec.enum.name].members[value].name
    elif kind == "error":
        data.error = types.error.members[value]
    elif kind == "bitstring" and spec.bitstring.WhichOneof("type_spec") == "int":
        data.bitstring = encode_signed(value, width)
    else:
        data.bitstring = encode(value)
    return data
