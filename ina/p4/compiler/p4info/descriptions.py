"""Protobuf files described in a short form of our own, which needs no compiler for them. One message or enumeration a line:

    Message[.Nested]  field=number:type ...
    Enumeration       NAME NAME NAME=number ...         (numbers go on from 0, or from the last that is there)

`*` after a type: repeated; `map<key,type>`: a map. `name/field=...`: a member of the oneof `name`. A type that is no scalar is a
message or enumeration of the same file, looked up from the innermost message outwards; one that begins with a dot is a message of
another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SCALARS = ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")


@dataclass(frozen=True, slots=True)
class Field:
    """`kind`: a scalar, or with a dot in front the full name of a message or enumeration. `group`: the oneof that it is in;
    `key`: the type of a map's keys."""

    name: str
    number: int
    kind: str
    repeated: bool = False
    group: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """The .proto file `name`. `messages` and `enums`: lines as above."""

    name: str
    package: str
    imports: tuple[str, ...]
    messages: str
    enums: str = ""

    def fields(self) -> dict[str, list[Field]]:
        """The fields of each message, by its name in the package."""
        lines = [line.split() for line in self.messages.strip().splitlines()]
        names = {name for name, *_ in lines} | self.values().keys()
        return {name: [self._field(name, field, names) for field in fields] for name, *fields in lines}

    def values(self) -> dict[str, dict[str, int]]:
        """The values of each enumeration, by its name in the package."""
        return {name: dict(_numbered(values)) for name, *values in map(str.split, self.enums.strip().splitlines())}

    def _field(self, scope: str, text: str, names: set[str]) -> Field:
        name, _, rest = text.partition("=")
        group, slash, label = name.partition("/")
        number, _, kind = rest.partition(":")
        key = ""
        if kind.startswith("map<"):
            key, _, kind = kind.removeprefix("map<").removesuffix(">").partition(",")
        repeated, kind = kind.endswith("*") or bool(key), kind.rstrip("*")
        if kind not in SCALARS and kind[0] != ".":
            while scope and f"{scope}.{kind}" not in names:
                scope = scope.rpartition(".")[0]
            kind = f".{self.package}.{scope}.{kind}" if scope else f".{self.package}.{kind}"
        return Field(label if slash else name, int(number), kind, repeated, group if slash else "", key)


STATUS = File("google/rpc/status.proto", "google.rpc", ("google/protobuf/any.proto",),
              "Status code=1:int32 message=2:string details=3:.google.protobuf.Any*")
"""The file that both interfaces import."""


def _numbered(values: list[str]) -> Iterator[tuple[str, int]]:
    following = 0
    for value in values:
        name, _, number = value.partition("=")
        following = int(number) if number else following
        yield name, following
        following += 1
