"""Numbers in STF files, and the registers whose cells they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A message of P4Info."""


class StfError(Exception):
    """An error for a file that is malformed or names something that the program lacks; the message starts with the file, if its
    name is known, and the line."""


def number(text: str) -> int:
    """Parses a decimal, 0x, 0o or 0b number."""
    try:
        value = int(text, 0) if text.lower().removeprefix("-").startswith(("0x", "0o", "0b")) else int(text)
        str(value)  # Python prints no more than 4300 digits
    except ValueError:
        raise StfError(f"'{text:.100}' is no number" + f" of up to 4300 digits: it has {len(text)}" * (len(text) > 100)) from None
    return value


def cell(text: str) -> int:
    """Parses the index of a cell; Python would count a negative one from the end."""
    index = number(text)
    if index < 0:
        raise StfError(f"'{text}' is no index of a cell")
    return index


@dataclass(frozen=True)
class Word:
    """A number in a register's cell."""

    width: int
    signed: bool = False

    def fits(self, value: int) -> bool:
        """Returns True for the numbers that it may be, and for their bits."""
        return -(1 << self.width - 1 if self.signed else 0) <= value < 1 << self.width

    def bits(self, value: int) -> int:
        """Returns the bits of a number. Raises StfError."""
        if not self.fits(value):
            raise StfError(f"{value} does not fit {'int' if self.signed else 'bit'}<{self.width}>")
        return value & (1 << self.width) - 1

    def value(self, bits: int) -> int:
        """Returns the number that has these bits; a number that it may be stands for its own."""
        bits &= (1 << self.width) - 1
        return bits - (1 << self.width) if self.signed and bits >> self.width - 1 else bits


@dataclass(frozen=True)
class Register:
    """A register of the program. `words`: those of a cell; empty: they are no numbers. `several`: it has cells of structs."""

    name: str
    size: int
    words: list[Word]
    several: bool

    def cell(self, text: str) -> int:
        """Parses the index of a cell. Raises StfError."""
        index = cell(text)
        if index >= self.size:
            raise StfError(f"register {self.name} has the cells 0 to {self.size - 1}, not {index}")
        return index

    def number(self) -> Word:
        """Returns the word of cells that are one number. Raises StfError."""
        if self.several or not self.words:
            halves = "; check_register reads their halves, lo and hi" if len(self.words) == 2 else ""
            raise StfError(f"the cells of register {self.name} are no numbers{halves}")
        return self.words[0]

    def half(self, name: str | None) -> int:
        """Returns the number of the word that `lo` or `hi`, or nothing, names. Raises StfError."""
        if len(self.words) not in (1, 2):
            raise StfError(f"the cells of register {self.name} are neither numbers nor pairs of numbers")
        if len(self.words) == 2 and name is None:
            raise StfError(f"the cells of register {self.name} are pairs: name lo or hi")
        if len(self.words) == 1 and name == "hi":
            raise StfError(f"the cells of register {self.name} are no pairs: they have no hi")
        return int(name == "hi")


def words_of(spec: Json, types: Json) -> list[Word]:
    """Returns the numbers that a value of a type of P4Info has; none if not all of its parts are numbers. `types`: the types that
    P4Info names."""
    (kind, inner), *_ = spec.items()
    match kind:
        case "bitstring":
            return [Word(int(inner[name]["bitwidth"]), name == "int") for name in inner if name != "varbit"]
        case "bool":
            return [Word(1)]
        case "serializableEnum":
            return [Word(int(types["serializableEnums"][inner["name"]]["underlyingType"]["bitwidth"]))]
        case "newType":
            original = types["newTypes"][inner["name"]].get("originalType")
            return words_of(original, types) if original else []
        case "struct" | "tuple":
            words = [words_of(member, types) for member in _members(kind, inner, types)]
            return [word for (word,) in words] if all(len(word) == 1 for word in words) else []
    return []


def leaves_of(spec: Json, types: Json) -> list[Word]:
    """Returns the numbers of a value as `words_of` does, those in structs in it, too."""
    (kind, inner), *_ = spec.items()
    if kind not in ("struct", "tuple"):
        return words_of(spec, types)
    parts = [leaves_of(member, types) for member in _members(kind, inner, types)]
    return [word for part in parts for word in part] if all(parts) else []


def _members(kind: str, inner: Json, types: Json) -> list[Json]:
    """Returns the types of the members of a struct or tuple."""
    members = inner["members"] if kind == "tuple" else types["structs"][inner["name"]]["members"]
    return [member.get("typeSpec", member) for member in members]
