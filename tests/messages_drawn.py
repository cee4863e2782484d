"""Hypothesis strategy for messages of any protobuf type: every field by reflection, with nearly valid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

INTEGERS = (0, 1, 2, 3, 7, 510, 511, 0xFFFF, 2**31 - 1, -1, -(2**31))
BYTES = (b"", b"\x00", b"\x01", b"\x02", b"\x00\x02", b"\xff" * 6, b"\x02" + bytes(5), b"\x01" * 17, bytes(300))
TEXTS = ("", "x", "switchml", "I.l2", "\x00", "€" * 50)
LIMITS = {  # of protobuf's types: bits, signed
    "INT32": (32, True), "SINT32": (32, True), "SFIXED32": (32, True), "UINT32": (32, False), "FIXED32": (32, False),
    "INT64": (64, True), "SINT64": (64, True), "SFIXED64": (64, True), "UINT64": (64, False), "FIXED64": (64, False),
}


@st.composite
def messages(draw: Callable, kind: type, numbers: tuple[int, ...] = (), skip: tuple[str, ...] = (), depth: int = 9) -> Any:
    """A message of class `kind`. `numbers`: meaningful values, such as ids; `skip`: names of fields that stay empty."""
    message = kind()
    _fill(draw, message, message.DESCRIPTOR, numbers, skip, depth)
    return message


def _fill(draw: Callable, message: Any, descriptor: Any, numbers: tuple[int, ...], skip: tuple[str, ...], depth: int) -> None:
    alternatives = {one.name: draw(st.sampled_from([None, *(f.name for f in one.fields)])) for one in descriptor.oneofs}
    for field in descriptor.fields:
        one = field.containing_oneof
        if field.name in skip or (one is not None and alternatives[one.name] != field.name):
            continue
        if one is None and draw(st.integers(0, 9)) < 3:
            continue
        if field.message_type is not None:
            if depth:
                _message(draw, message, field, numbers, skip, depth - 1)
        elif _is_repeated(field):
            getattr(message, field.name).extend(draw(st.lists(_scalar(field, numbers), max_size=2)))
        else:
            setattr(message, field.name, draw(_scalar(field, numbers)))


def _message(draw: Callable, message: Any, field: Any, numbers: tuple[int, ...], skip: tuple[str, ...], depth: int) -> None:
    if not _is_repeated(field):
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(draw, inner, field.message_type, numbers, skip, depth)
        return
    if field.message_type.GetOptions().map_entry:
        return
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        _fill(draw, getattr(message, field.name).add(), field.message_type, numbers, skip, depth)


def _is_repeated(field: Any) -> bool:
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _scalar(field: Any, numbers: tuple[int, ...]) -> st.SearchStrategy:
    kind = {number: name.removeprefix("TYPE_") for name, number in vars(type(field)).items() if name.startswith("TYPE_")}.get(
        field.type, "")
    if field.enum_type is not None:
        valid = [value.number for value in field.enum_type.values]
        return st.sampled_from([*valid, *valid, max(valid) + 1, 77, -1])
    if kind in LIMITS:
        bits, signed = LIMITS[kind]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return st.sampled_from([n for n in (*INTEGERS, *numbers, *numbers, low, high) if low <= n <= high])
    if kind == "BOOL":
        return st.booleans()
    if kind in ("FLOAT", "DOUBLE"):
        return st.sampled_from([0.0, -1.5, 1e300 if kind == "DOUBLE" else 1e30, float("nan"), float("inf")])
    return st.sampled_from(BYTES) if kind == "BYTES" else st.sampled_from(TEXTS)
