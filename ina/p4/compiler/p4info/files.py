"""P4Info as files: JSON, protobuf's text format, protobuf's wire format.

Encodings: protobuf.dev, "Encoding", "Text Format Language Specification", "ProtoJSON Format".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ina.p4.compiler.p4info.description import P4INFO, P4TYPES
from ina.p4.compiler.p4info.descriptions import Field

Json = dict[str, Any]

_ESCAPES = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}
NUMBERS = ("int32", "int64", "uint32", "uint64")
PACKAGE = ".p4.config.v1."
# The fields of messages in the order of their numbers, in which protobuf writes them; the values of enumerations
FIELDS = {PACKAGE + name: sorted(fields, key=lambda f: f.number)
          for file in (P4TYPES, P4INFO) for name, fields in file.fields().items()}
ENUMS = {PACKAGE + name: values for file in (P4TYPES, P4INFO) for name, values in file.values().items()}


def json_name(field: Field) -> str:
    first, *others = field.name.split("_")
    return first + "".join(word.title() for word in others)


def write(info: Json, path: Path) -> None:
    """Writes P4Info in the format that the file's suffix selects: .json, .txtpb or .bin.

    Raises ValueError for other names, OSError.
    """
    check_name(path)
    path.write_bytes(WRITERS[path.suffix](info))


def check_name(path: Path) -> None:
    """Raises ValueError when no format has this suffix."""
    if path.suffix not in WRITERS:
        raise ValueError(f"{path}: P4Info is written to files that end in {', '.join(WRITERS)}")


def _present(message: Json, type_name: str, packed: bool = False) -> Iterator[tuple[Field, Any]]:
    """Yields the fields of a message with their values: repeated ones one by one (`packed`: but numbers all at once), maps as
    pairs. Raises KeyError for fields that the message does not have."""
    fields = {json_name(f): f for f in FIELDS[type_name]}
    unknown = set(message) - set(fields)
    if unknown:
        raise KeyError(f"{type_name.rpartition('.')[2]} has no field {', '.join(sorted(unknown))}")
    for name, f in fields.items():
        if name not in message:
            continue
        value = message[name]
        if f.key:
            yield from ((f, item) for item in sorted(value.items()))
        elif f.repeated and not (packed and f.kind in NUMBERS):
            yield from ((f, item) for item in value)
        else:
            yield f, value


def text(info: Json) -> str:
    """Returns protobuf's text format, with the comments that name the message's type."""
    head = ["# proto-file: p4/config/v1/p4info.proto", "# proto-message: p4.config.v1.P4Info", ""]
    return "\n".join([*head, *_text_lines(info, f"{PACKAGE}P4Info", "")]) + "\n"


def _text_lines(message: Json, type_name: str, indent: str) -> Iterator[str]:
    for f, value in _present(message, type_name):
        if f.key:
            key, item = value
            yield f"{indent}{f.name} {{"
            yield f"{indent}  key: {_quoted(key.encode())}"
            yield from _text_block("value", item, f.kind, indent + "  ")
            yield f"{indent}}}"
        elif f.kind in FIELDS:
            yield from _text_block(f.name, value, f.kind, indent)
        elif f.kind == "string":
            yield f"{indent}{f.name}: {_quoted(value.encode())}"
        elif f.kind == "bytes":
            yield f"{indent}{f.name}: {_quoted(base64.b64decode(value))}"
        else:
            yield f"{indent}{f.name}: {str(value).lower() if f.kind == 'bool' else value}"


def _text_block(name: str, message: Json, type_name: str, indent: str) -> Iterator[str]:
    yield f"{indent}{name} {{"
    yield from _text_lines(message, type_name, indent + "  ")
    yield f"{indent}}}"


def _quoted(data: bytes) -> str:
    """Returns bytes in quotes; all but printable ASCII as three octal digits."""
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data) + '"'


def binary(info: Json) -> bytes:
    """Returns protobuf's wire format, fields in the order of their numbers, map entries by key."""
    return _message(info, f"{PACKAGE}P4Info")


def _message(message: Json, type_name: str) -> bytes:
    out = bytearray()
    for f, value in _present(message, type_name, packed=True):
        if f.key:
            key, item = value
            entry = _field(1, 2, _sized(key.encode())) + _field(2, 2, _sized(_message(item, f.kind)))
            out += _field(f.number, 2, _sized(entry))
        elif f.kind in FIELDS:
            out += _field(f.number, 2, _sized(_message(value, f.kind)))
        elif f.kind in ("string", "bytes"):
            out += _field(f.number, 2, _sized(value.encode() if f.kind == "string" else base64.b64decode(value)))
        elif f.repeated:
            out += _field(f.number, 2, _sized(b"".join(_varint(int(v)) for v in value)))
        else:
            out += _field(f.number, 0, _varint(ENUMS[f.kind][value] if f.kind in ENUMS else int(value)))
    return bytes(out)


def _field(number: int, wire_type: int, payload: bytes) -> bytes:
    return _varint(number << 3 | wire_type) + payload


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Encodes seven bits a byte, low ones first; negative numbers as 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


WRITERS = {
    ".json": lambda info: (json.dumps(info, indent=1) + "\n").encode(),
    ".txtpb": lambda info: text(info).encode(),
    ".bin": binary,
}
