"""Frames of the course's packet format (course.p4), for people: their fields, and which of them differ from what was expected."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A field of the format: its name in P4 without `hdr.`, and its width in bits."""

    name: str
    bits: int


TYPE = 0x88B5  # of Ethernet, for frames of the course
KINDS = {1: "contribution", 2: "result", 3: "question"}
FORMAT = (
    Field("ethernet.dst", 48), Field("ethernet.src", 48), Field("ethernet.type", 16),
    Field("sum.kind", 8), Field("sum.count", 8), Field("sum.hops", 8), Field("sum.job", 8), Field("sum.worker", 8),
    Field("sum.slot", 7), Field("sum.version", 1), Field("sum.block", 16),
    Field("values.v0", 32), Field("values.v1", 32), Field("values.v2", 32), Field("values.v3", 32),
)  # fmt: skip
ETHERNET = 14  # bytes
SIZE = sum(field.bits for field in FORMAT) // 8  # bytes of a frame without what follows the values


def fields(frame: bytes) -> dict[str, int]:
    """Returns the fields that a frame has whole: of frames that are not the course's, those of Ethernet."""
    values: dict[str, int] = {}
    number, size, at = int.from_bytes(frame, "big"), 8 * len(frame), 0
    for field in FORMAT:
        at += field.bits
        if at > size or (at > 8 * ETHERNET and values["ethernet.type"] != TYPE):
            break
        values[field.name] = number >> (size - at) & (1 << field.bits) - 1
    return values


def words(frame: bytes) -> str:
    """Describes a frame in a line."""
    values = fields(frame)
    if "ethernet.type" not in values:
        return f"{len(frame)} bytes, too short for Ethernet"
    if values["ethernet.type"] != TYPE:
        return f"{len(frame)} bytes of another protocol (type {values['ethernet.type']:#06x})"
    if "values.v3" not in values:
        return f"{len(frame)} bytes, cut off: expected {SIZE} or more"
    kind = KINDS.get(values["sum.kind"], f"kind {values['sum.kind']}")
    lanes = " ".join(str(values[f"values.v{i}"]) for i in range(4))
    return (f"{kind} of block {values['sum.block']} (job {values['sum.job']}, worker {values['sum.worker']}, slot "
            f"{values['sum.slot']}, version {values['sum.version']}), values {lanes}")


def differences(pattern: str, frame: bytes) -> list[str]:
    """Returns the differences of a frame from an STF pattern (hexadecimal digits, `*` for any, `$` for the end), a line for each
    field; those behind the values, or of other protocols, as bytes."""
    digits, exact = pattern.removesuffix("$"), pattern.endswith("$")
    expected = bytes.fromhex(digits.replace("*", "0") + "0" * (len(digits) % 2))
    care = bytes.fromhex("".join("0" if digit == "*" else "f" for digit in digits) + "0" * (len(digits) % 2))
    lines = []
    if len(frame) < len(expected) or (exact and len(frame) != len(expected)):
        lines.append(f"length: expected {len(expected)} bytes, got {len(frame)}")
    got, wanted, masks = fields(frame), fields(expected), _masks(care)
    common = [field for field in FORMAT if field.name in wanted and field.name in got]
    for name, _ in common:
        if (got[name] ^ wanted[name]) & masks[name]:
            lines.append(f"{name}: expected {_number(name, wanted[name])}, got {_number(name, got[name])}")
    for at in range(sum(field.bits for field in common) // 8, min(len(frame), len(expected))):
        if (frame[at] ^ expected[at]) & care[at]:
            lines.append(f"byte {at}: expected {expected[at]:02x}, got {frame[at]:02x}")
    return lines


def _masks(care: bytes) -> dict[str, int]:
    """Returns for each field that a pattern has whole the bits that it demands."""
    number, size, at, masks = int.from_bytes(care, "big"), 8 * len(care), 0, {}
    for field in FORMAT:
        at += field.bits
        if at <= size:
            masks[field.name] = number >> (size - at) & (1 << field.bits) - 1
    return masks


def _number(name: str, value: int) -> str:
    """Returns a field's value as people write it: addresses and types in hexadecimal digits."""
    if name.startswith("ethernet."):
        return f"{value:#0{6 if name.endswith('type') else 14}x}"
    return f"{value} ({KINDS[value]})" if name == "sum.kind" and value in KINDS else str(value)
