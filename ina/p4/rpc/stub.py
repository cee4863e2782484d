"""Writes ``messages.pyi`` into folders that have a ``description.py``: the types of protobuf's messages.

    python -m ina.p4.rpc.stub ina/p4/p4runtime ina/p4/bfrt

A description has `FILES`, and `NAMES`: of their packages, as `messages.py` calls them. Values of enumerations
are ``int``. Needs nothing but the descriptions: no protobuf.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ina.p4.compiler.p4info.descriptions import SCALARS, STATUS, Field, File

OTHERS = {".google.protobuf.Any": "any_pb2.Any", ".google.rpc.Status": "Status"}
TYPES = {"bool": "Bool", "bytes": "Bytes", "double": "Float", "float": "Float", "string": "Str"}  # all others are Int
HEAD = '''"""Types of messages. Written by ina/p4/rpc/stub.py from their descriptions: do not edit."""

from builtins import bool as Bool, bytes as Bytes, float as Float, int as Int, str as Str
from collections.abc import Iterable, Mapping
from typing import ClassVar

from google.protobuf import any_pb2
from google.protobuf.internal.containers import (
    MessageMap as Messages,
    RepeatedCompositeFieldContainer as Repeated,
    RepeatedScalarFieldContainer as Scalars,
)
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
'''


class Stub:
    """The types of the messages of `files`, and of google.rpc.Status. `names`: of packages, as classes that have the messages."""

    def __init__(self, files: Sequence[File], names: Mapping[str, str]):
        self._names = names
        self._enums = {f".{file.package}.{name}" for file in files for name in file.values()}
        self._fields: dict[str, dict[str, list[Field]]] = {package: {} for package in names}
        self._values: dict[str, dict[str, dict[str, int]]] = {package: {} for package in names}
        for file in files:
            self._fields[file.package] |= file.fields()
            self._values[file.package] |= file.values()

    def __str__(self) -> str:
        lines = [HEAD, *self._message("Status", STATUS.fields(), {})]
        for package, fields in self._fields.items():
            lines += ["", f"class {self._names[package]}:", *_indented(_enums("", self._values[package]))]
            for name in fields:
                if "." not in name:
                    lines += _indented(self._message(name, fields, self._values[package]))
        return "\n".join(lines) + "\n"

    def _message(self, name: str, fields: dict[str, list[Field]], values: dict[str, dict[str, int]]) -> list[str]:
        lines = _enums(name, values)
        for inner in fields:
            if inner.rpartition(".")[0] == name:
                lines += self._message(inner, fields, values)
        arguments = []
        for field in fields[name]:
            lines += self._attribute(field)
            arguments.append(f"{field.name}: {' | '.join(self._accepted(field))} | None = None")
        lines.append(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}) -> None: ...")
        return [f"class {name.rpartition('.')[2]}(Message):", *_indented(lines)]

    def _type(self, kind: str) -> str:
        if kind in SCALARS or kind in self._enums:
            return TYPES.get(kind, "Int")
        for package, name in self._names.items():
            if kind.startswith(f".{package}."):
                return f"{name}{kind.removeprefix(f'.{package}')}"
        return OTHERS[kind]

    def _attribute(self, field: Field) -> list[str]:
        kind, plain = self._type(field.kind), field.kind in SCALARS or field.kind in self._enums
        if field.key:
            kind = f"Messages[{self._type(field.key)}, {kind}]"
        elif field.repeated:
            kind = f"Scalars[{kind}]" if plain else f"Repeated[{kind}]"
        elif plain:
            return [f"{field.name}: {kind}"]
        return ["@property", f"def {field.name}(self) -> {kind}: ..."]

    def _accepted(self, field: Field) -> Iterator[str]:
        """The types that a message's class takes for a field."""
        kind = self._type(field.kind)
        if field.key:
            yield f"Mapping[{self._type(field.key)}, {kind}]"
        elif field.repeated:
            yield f"Iterable[{kind}]"
        else:
            yield kind
            if field.kind in self._enums:
                yield "Str"


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _enums(scope: str, values: dict[str, dict[str, int]]) -> list[str]:
    lines = []
    for name, numbers in values.items():
        if name.rpartition(".")[0] == scope:
            lines.append(f"{name.rpartition('.')[2]}: ClassVar[EnumTypeWrapper]")
            lines += [f"{value}: ClassVar[Int]" for value in numbers]
    return lines


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        description = runpy.run_path(str(folder / "description.py"))
        (folder / "messages.pyi").write_text(str(Stub(description["FILES"], description["NAMES"])))


if __name__ == "__main__":
    main()
