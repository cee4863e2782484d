"""P4Info as files: JSON, protobuf's text format, protobuf's wire format.

`MESSAGES` has the fields of p4.config.v1.P4Info and what it contains, names and numbers from P4Runtime 1.4's
p4info.proto and p4types.proto: "name=number:type", `*` for repeated, `{}` for a map from strings. Source locations,
documentation of platforms and the content of vendor externs, which `p4info.build` never writes, are omitted.
Encodings: protobuf.dev, "Encoding", "Text Format Language Specification", "ProtoJSON Format".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_NOTES = "annotations={}:string* structured_annotations={}:StructuredAnnotation*"
_MEMBER = "name=1:string "

MESSAGES = {
    "P4Info": "pkg_info=1:PkgInfo tables=2:Table* actions=3:Action* action_profiles=4:ActionProfile*"
    " counters=5:Counter* direct_counters=6:DirectCounter* meters=7:Meter* direct_meters=8:DirectMeter*"
    " controller_packet_metadata=9:ControllerPacketMetadata* value_sets=10:ValueSet* registers=11:Register*"
    " digests=12:Digest* externs=100:Extern* type_info=200:P4TypeInfo",
    "Extern": "extern_type_id=1:int extern_type_name=2:string instances=3:ExternInstance*",
    "ExternInstance": "preamble=1:Preamble",
    "PkgInfo": "name=1:string version=2:string doc=3:Documentation arch=5:string organization=6:string"
    " contact=7:string url=8:string platform_properties=10:PlatformProperties " + _NOTES.format(4, 9),
    "PlatformProperties": "multicast_group_table_size=1:int multicast_group_table_total_replicas=2:int"
    " multicast_group_table_max_replicas_per_entry=3:int",
    "Documentation": "brief=1:string description=2:string",
    "Preamble": "id=1:int name=2:string alias=3:string doc=5:Documentation " + _NOTES.format(4, 6),
    "Table": "preamble=1:Preamble match_fields=2:MatchField* action_refs=3:ActionRef* const_default_action_id=4:int"
    " initial_default_action=5:TableActionCall implementation_id=6:int direct_resource_ids=7:int* size=8:int"
    " idle_timeout_behavior=9:IdleTimeoutBehavior is_const_table=10:bool has_initial_entries=11:bool",
    "MatchField": "id=1:int name=2:string bitwidth=4:int match_type=5:MatchType other_match_type=7:string"
    " doc=6:Documentation type_name=8:P4NamedType " + _NOTES.format(3, 9),
    "ActionRef": "id=1:int scope=3:Scope " + _NOTES.format(2, 4),
    "TableActionCall": "action_id=1:int arguments=4:Argument*",
    "Argument": "param_id=2:int value=3:bytes",
    "Action": "preamble=1:Preamble params=2:Param*",
    "Param": "id=1:int name=2:string bitwidth=4:int doc=5:Documentation type_name=6:P4NamedType "
    + _NOTES.format(3, 7),
    "ActionProfile": "preamble=1:Preamble table_ids=2:int* with_selector=3:bool size=4:int max_group_size=5:int"
    " sum_of_weights=6:Empty sum_of_members=7:SumOfMembers",
    "SumOfMembers": "max_member_weight=1:int",
    "CounterSpec": "unit=1:Unit",
    "Counter": "preamble=1:Preamble spec=2:CounterSpec size=3:int index_type_name=4:P4NamedType",
    "DirectCounter": "preamble=1:Preamble spec=2:CounterSpec direct_table_id=3:int",
    "MeterSpec": "unit=1:Unit type=2:MeterType",
    "Meter": "preamble=1:Preamble spec=2:MeterSpec size=3:int index_type_name=4:P4NamedType",
    "DirectMeter": "preamble=1:Preamble spec=2:MeterSpec direct_table_id=3:int",
    "ControllerPacketMetadata": "preamble=1:Preamble metadata=2:PacketMetadata*",
    "PacketMetadata": "id=1:int name=2:string bitwidth=4:int type_name=5:P4NamedType " + _NOTES.format(3, 6),
    "ValueSet": "preamble=1:Preamble match=2:MatchField* size=3:int",
    "Register": "preamble=1:Preamble type_spec=2:P4DataTypeSpec size=3:int index_type_name=4:P4NamedType",
    "Digest": "preamble=1:Preamble type_spec=2:P4DataTypeSpec",
    "P4TypeInfo": "structs=1:StructSpec{} headers=2:HeaderSpec{} header_unions=3:UnionSpec{} enums=4:EnumSpec{}"
    " error=5:ErrorSpec serializable_enums=6:SerializableEnumSpec{} new_types=7:NewTypeSpec{}",
    "P4DataTypeSpec": "bitstring=1:Bitstring bool=2:Empty tuple=3:Tuple struct=4:P4NamedType header=5:P4NamedType"
    " header_union=6:P4NamedType header_stack=7:HeaderStack header_union_stack=8:UnionStack enum=9:P4NamedType"
    " error=10:Empty serializable_enum=11:P4NamedType new_type=12:P4NamedType",
    "P4NamedType": "name=1:string",
    "Bitstring": "bit=1:BitType int=2:BitType varbit=3:VarbitType " + _NOTES.format(4, 6),
    "BitType": "bitwidth=1:int",
    "VarbitType": "max_bitwidth=1:int",
    "Tuple": "members=1:P4DataTypeSpec*",
    "StructSpec": "members=1:StructMember* " + _NOTES.format(2, 4),
    "StructMember": _MEMBER + "type_spec=2:P4DataTypeSpec",
    "HeaderSpec": "members=1:HeaderMember* " + _NOTES.format(2, 4),
    "HeaderMember": _MEMBER + "type_spec=2:Bitstring",
    "UnionSpec": "members=1:UnionMember* " + _NOTES.format(2, 4),
    "UnionMember": _MEMBER + "header=2:P4NamedType",
    "HeaderStack": "header=1:P4NamedType size=2:int",
    "UnionStack": "header_union=1:P4NamedType size=2:int",
    "EnumSpec": "members=1:EnumMember* " + _NOTES.format(2, 3),
    "EnumMember": _MEMBER + _NOTES.format(2, 3),
    "SerializableEnumSpec": "underlying_type=1:BitType members=2:SerializableMember* " + _NOTES.format(3, 4),
    "SerializableMember": _MEMBER + "value=2:bytes " + _NOTES.format(3, 4),
    "ErrorSpec": "members=1:string*",
    "NewTypeSpec": "original_type=1:P4DataTypeSpec translated_type=2:Translation " + _NOTES.format(3, 4),
    "Translation": "uri=1:string sdn_bitwidth=2:int sdn_string=3:Empty",
    "StructuredAnnotation": "name=1:string expression_list=2:ExpressionList kv_pair_list=3:KeyValuePairList",
    "ExpressionList": "expressions=1:Expression*",
    "KeyValuePairList": "kv_pairs=1:KeyValuePair*",
    "KeyValuePair": "key=1:string value=2:Expression",
    "Expression": "string_value=1:string int64_value=2:int bool_value=3:bool",
    "Empty": "",
}
ENUMS = {
    "MatchType": {"UNSPECIFIED": 0, "EXACT": 2, "LPM": 3, "TERNARY": 4, "RANGE": 5, "OPTIONAL": 6},
    "Scope": {"TABLE_AND_DEFAULT": 0, "TABLE_ONLY": 1, "DEFAULT_ONLY": 2, "GROUP_ACTION": 3},
    "Unit": {"UNSPECIFIED": 0, "BYTES": 1, "PACKETS": 2, "BOTH": 3},
    "MeterType": {"TWO_RATE_THREE_COLOR": 0, "SINGLE_RATE_THREE_COLOR": 1, "SINGLE_RATE_TWO_COLOR": 2},
    "IdleTimeoutBehavior": {"NO_TIMEOUT": 0, "NOTIFY_CONTROL": 1},
}
_ESCAPES = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of a message. `kind`: "", "*" (repeated) or "{}" (map)."""

    name: str
    number: int
    type: str
    kind: str

    @property
    def json_name(self) -> str:
        first, *others = self.name.split("_")
        return first + "".join(word.title() for word in others)


def _fields(text: str) -> list[FieldSpec]:
    """Parses the fields of a message, in the order of their numbers, in which protobuf writes them."""
    matches = re.findall(r"(\w+)=(\d+):(\w+)(\*|\{\}|)", text)
    return sorted((FieldSpec(n, int(i), t, k) for n, i, t, k in matches), key=lambda f: f.number)


FIELDS = {name: _fields(text) for name, text in MESSAGES.items()}


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


def _present(message: Json, type_name: str, packed: bool = False) -> Iterator[tuple[FieldSpec, Any]]:
    """Yields the fields of a message with their values: repeated ones one by one (`packed`: but numbers all at once), maps as
    pairs. Raises KeyError for fields that the message does not have."""
    fields = {f.json_name: f for f in FIELDS[type_name]}
    unknown = set(message) - set(fields)
    if unknown:
        raise KeyError(f"{type_name} has no field {', '.join(sorted(unknown))}")
    for f in FIELDS[type_name]:
        if f.json_name not in message:
            continue
        value = message[f.json_name]
        if f.kind == "*" and not (packed and f.type == "int"):
            yield from ((f, item) for item in value)
        elif f.kind == "{}":
            yield from ((f, item) for item in sorted(value.items()))
        else:
            yield f, value


def text(info: Json) -> str:
    """Returns protobuf's text format, with the comments that name the message's type."""
    head = ["# proto-file: p4/config/v1/p4info.proto", "# proto-message: p4.config.v1.P4Info", ""]
    return "\n".join([*head, *_text_lines(info, "P4Info", "")]) + "\n"


def _text_lines(message: Json, type_name: str, indent: str) -> Iterator[str]:
    for f, value in _present(message, type_name):
        if f.kind == "{}":
            key, item = value
            yield f"{indent}{f.name} {{"
            yield f"{indent}  key: {_quoted(key.encode())}"
            yield from _text_block("value", item, f.type, indent + "  ")
            yield f"{indent}}}"
        elif f.type in FIELDS:
            yield from _text_block(f.name, value, f.type, indent)
        elif f.type == "string":
            yield f"{indent}{f.name}: {_quoted(value.encode())}"
        elif f.type == "bytes":
            yield f"{indent}{f.name}: {_quoted(base64.b64decode(value))}"
        else:
            yield f"{indent}{f.name}: {str(value).lower() if f.type == 'bool' else value}"


def _text_block(name: str, message: Json, type_name: str, indent: str) -> Iterator[str]:
    yield f"{indent}{name} {{"
    yield from _text_lines(message, type_name, indent + "  ")
    yield f"{indent}}}"


def _quoted(data: bytes) -> str:
    """Returns bytes in quotes; all but printable ASCII as three octal digits."""
    return '"' + "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in data) + '"'


def binary(info: Json) -> bytes:
    """Returns protobuf's wire format, fields in the order of their numbers, map entries by key."""
    return _message(info, "P4Info")


def _message(message: Json, type_name: str) -> bytes:
    out = bytearray()
    for f, value in _present(message, type_name, packed=True):
        if f.kind == "{}":
            key, item = value
            entry = _field(1, 2, _sized(key.encode())) + _field(2, 2, _sized(_message(item, f.type)))
            out += _field(f.number, 2, _sized(entry))
        elif f.type in FIELDS:
            out += _field(f.number, 2, _sized(_message(value, f.type)))
        elif f.type in ("string", "bytes"):
            out += _field(f.number, 2, _sized(value.encode() if f.type == "string" else base64.b64decode(value)))
        elif f.kind == "*":
            out += _field(f.number, 2, _sized(b"".join(_varint(int(v)) for v in value)))
        else:
            out += _field(f.number, 0, _varint(ENUMS[f.type][value] if f.type in ENUMS else int(value)))
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
