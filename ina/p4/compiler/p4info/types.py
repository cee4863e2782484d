"""P4TypeInfo and P4DataTypeSpec of P4Info (p4types.proto), in protobuf's JSON mapping."""

from __future__ import annotations

import base64
import copy
import re
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.check.context import Context
from ina.p4.compiler.check.expressions import EXPRESSIONS
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.instances import walk
from ina.p4.compiler.types import (
    BitType,
    BoolType,
    EnumType,
    ErrorType,
    HeaderType,
    NewType,
    SerEnumType,
    StackType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarbitType,
    fixed_width,
    underlying,
)

Json = dict[str, Any]
LITERALS = ast.IntLiteral | ast.BoolLiteral | ast.StringLiteral | ast.Unary | ast.Binary
"""Nodes of an expression in an annotation for the control plane"""


def put(message: Json, **fields: Any) -> Json:
    """Sets fields that differ from proto3's defaults; JSON omits the others."""
    message.update({k: v for k, v in fields.items() if v not in (None, "", 0, False) and v != [] and v != {}})
    return message


def bytes_json(value: int, width: int) -> str:
    """Returns `value` in the bytes that its width takes (as p4c writes it; P4Runtime §8.4), in base64 for JSON."""
    value &= (1 << width) - 1
    return base64.b64encode(value.to_bytes(max(1, (width + 7) // 8), "big")).decode()


def annotation_text(annotation: ast.Annotation) -> str:
    """Returns the annotation as P4 text; blanks only between words and after commas. Pairs are evaluated."""
    if annotation.pairs:
        return f"@{annotation.name}({', '.join(f'{k}={_literal(e)}' for k, e in annotation.pairs.items())})"
    body = ""
    for token in annotation.tokens:
        if body.endswith(",") or (body and _is_word(body[-1]) and _is_word(token[0])):
            body += " "
        body += token
    return f"@{annotation.name}({body})" if body else f"@{annotation.name}"


def _literal(e: ast.Expr) -> str:
    value = constant_of(e)
    if isinstance(value, str):
        escaped = value.replace("\\", r"\\").replace('"', r"\"")
        return f'"{escaped}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_word(character: str) -> bool:
    return character.isalnum() or character in '_"'


def structured_annotation(annotation: ast.Annotation) -> Json:
    """Returns a structured annotation: expressions or key-value pairs (P4Runtime §6.1.4)."""
    message: Json = {"name": annotation.name}
    if annotation.exprs:
        message["expressionList"] = {"expressions": [constant_json(e) for e in annotation.exprs]}
    elif annotation.pairs:
        pairs = [{"key": k, "value": constant_json(e)} for k, e in annotation.pairs.items()]
        message["kvPairList"] = {"kvPairs": pairs}
    return message


def constant_json(e: ast.Expr) -> Json:
    value = constant_of(e)
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise CompileError(e.span, "an annotation for the control plane takes integers of up to 64 bits, with a sign")
        return {"int64Value": str(value)}
    return {"stringValue": str(value)}


def constant_of(e: ast.Expr) -> Any:
    """Returns the value of an annotation's expression, checked or just parsed. Raises CompileError if names occur in it."""
    if not all(isinstance(node, LITERALS) for node in walk(e)):
        raise CompileError(e.span, "an annotation for the control plane takes literals", ["write the value out"])
    try:
        return Context(EXPRESSIONS, {}).expression(copy.deepcopy(e)).const
    except CompileError as error:
        raise CompileError(error.span, f"annotation for the control plane: {error.message}") from None


def annotate(message: Json, annotations: list[ast.Annotation], skip: tuple[str, ...] = ()) -> Json:
    """Adds annotations except `@name` and `@id`; `@brief` and `@description` become `doc` (P4Runtime §6.1.2, §6.2)."""
    structured = [structured_annotation(a) for a in annotations if a.structured]
    hidden = ("name", "id", "brief", "description", *skip)
    plain = [annotation_text(a) for a in annotations if not a.structured and a.name not in hidden]
    doc: Json = {}
    for a in annotations:
        if a.name in ("brief", "description"):
            put(doc, **{a.name: a.string})
    return put(message, annotations=plain, structuredAnnotations=structured, doc=doc)


def explicit_id(annotations: list[ast.Annotation]) -> int | None:
    for a in annotations:
        if a.name == "id" and a.exprs:
            return int(constant_of(a.exprs[0]))
    return None


class TypeInfo:
    """Collects the named types that P4Info mentions; `message` is the P4TypeInfo."""

    def __init__(self, errors: list[str]) -> None:
        self.message: Json = {}
        self._errors = errors

    def named(self, t: Type) -> Json | None:
        """Returns `type_name` of a match field, parameter or metadata field, for user-defined types only."""
        self.spec(t)
        return {"name": t.name} if isinstance(t, NewType | EnumType) else None

    def spec(self, t: Type) -> Json:
        """Returns the P4DataTypeSpec of `t`, and adds the types that it names to the P4TypeInfo."""
        match t:
            case BitType():
                return {"bitstring": {"int" if t.signed else "bit": {"bitwidth": t.width}}}
            case VarbitType():
                return {"bitstring": {"varbit": {"maxBitwidth": t.max_width}}}
            case BoolType():
                return {"bool": {}}
            case TupleType():
                return {"tuple": put({}, members=[self.spec(e) for e in t.elements])}
            case StructType():
                return self._define("structs", "struct", t, self._struct)
            case HeaderType():
                return self._define("headers", "header", t, self._header)
            case UnionType():
                return self._define("headerUnions", "headerUnion", t, self._union)
            case StackType():
                kind = "headerUnionStack" if isinstance(t.element, UnionType) else "headerStack"
                field = "headerUnion" if isinstance(t.element, UnionType) else "header"
                self.spec(t.element)
                return {kind: {field: {"name": str(t.element)}, "size": t.size}}
            case EnumType():
                return self._define("enums", "enum", t, lambda e: {"members": [{"name": m} for m in e.members]})
            case SerEnumType():
                return self._define("serializableEnums", "serializableEnum", t, self._ser_enum)
            case NewType():
                return self._define("newTypes", "newType", t, self._new_type)
            case ErrorType():
                self.message["error"] = {"members": list(self._errors)}
                return {"error": {}}
        raise ValueError(f"type {t} cannot be shown to a control plane")

    def _define(self, section: str, kind: str, t: Any, build: Any) -> Json:
        types = self.message.setdefault(section, {})
        if t.name not in types:
            types[t.name] = {}
            types[t.name] = build(t)
        return {kind: {"name": t.name}}

    def _struct(self, t: StructType) -> Json:
        return {"members": [{"name": f.name, "typeSpec": self.spec(f.type)} for f in t.fields.values()]}

    def _header(self, t: HeaderType) -> Json:
        return {"members": [{"name": f.name, "typeSpec": self._bits(f.type)} for f in t.fields.values()]}

    def _bits(self, t: Type) -> Json:
        t = underlying(t)
        bits: Json = self.spec(BitType(1) if isinstance(t, BoolType) else t).get("bitstring", {})
        return bits

    def _union(self, t: UnionType) -> Json:
        return {"members": [{"name": f.name, "header": self.spec(f.type)["header"]} for f in t.fields.values()]}

    def _ser_enum(self, t: SerEnumType) -> Json:
        width = t.underlying.width
        members = [{"name": name, "value": bytes_json(value, width)} for name, value in t.members.items()]
        return {"underlyingType": {"bitwidth": width}, "members": members}

    def _new_type(self, t: NewType) -> Json:
        """Describes a `type`; `@p4runtime_translation(uri, width or string)` makes it a translated type (P4Runtime §8.4.6)."""
        annotations = t.decl.annotations if t.decl is not None else []
        message = annotate({}, annotations, ("p4runtime_translation",))
        translation = next((a for a in annotations if a.name == "p4runtime_translation"), None)
        if translation is None:
            message["originalType"] = self.spec(underlying(t))
            return message
        width = translated_width(t)
        translated = put({}, uri=str(constant_of(translation.exprs[0])), sdnBitwidth=width)
        if not width:
            translated["sdnString"] = {}
        message["translatedType"] = translated
        return message


def translated_width(t: NewType) -> int | None:
    """Returns the control plane's width of a type with `@p4runtime_translation`: 0 for strings, None without translation."""
    note = t.decl.annotation("p4runtime_translation") if t.decl is not None else None
    if note is None:
        return None
    form = re.fullmatch(r"bit<(\d+)>|(\d+)|string", "".join(note.tokens).rpartition(",")[2])
    if form is None:
        raise CompileError(note.span, "@p4runtime_translation takes a URI and then bit<W>, a width or string")
    return int(form[1] or form[2] or 0)


def bitwidth(t: Type) -> int:
    """Returns the width of a field's bytes, after its translation; 0 for types without one (enums, strings)."""
    if isinstance(t, NewType):
        width = translated_width(t)
        return (fixed_width(t) or 0) if width is None else width
    return fixed_width(t) or 0
