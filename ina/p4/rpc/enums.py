"""Checks for numbers that are no value of an enumeration: protobuf lets any through, and servers must name the field."""

from __future__ import annotations

import functools
from typing import Any

from ina.p4.runtime.p4info import EntityError


def check(message: Any, skip: str = "") -> None:
    """Checks every field that is set, at any depth, except the top one called `skip`. Raises EntityError with the field, the
    number and the values that exist."""
    descriptor = message.DESCRIPTOR
    if not _has_enums(descriptor):
        return
    for field, value in message.ListFields():
        if field.name == skip:
            continue
        if field.enum_type is not None:
            for number in value if is_repeated(field) else [value]:
                if number not in field.enum_type.values_by_number:
                    *names, last = (entry.name for entry in field.enum_type.values)
                    raise EntityError(f"{field.name}: {number} is no value of {field.enum_type.full_name}: expected "
                                       f"{', '.join(names)} or {last}")  # fmt: skip
        elif field.message_type is not None and _has_enums(field.message_type):
            for at, inner in enumerate(value) if is_repeated(field) else [("", value)]:
                try:
                    check(inner)
                except EntityError as error:
                    raise EntityError(f"{field.name}{f'[{at}]' if at != '' else ''}.{error}") from None


def is_repeated(field: Any) -> bool:
    """Tells whether a field of a message is a list, with any version of protobuf."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


@functools.cache
def _enums(name: str, descriptor: Any) -> bool:
    """True if a field of the type, or of a type inside it, is an enumeration."""
    seen, todo = {name}, [descriptor]
    while todo:
        for field in todo.pop().fields:
            if field.enum_type is not None:
                return True
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                todo.append(field.message_type)
    return False


def _has_enums(descriptor: Any) -> bool:
    return _enums(descriptor.full_name, descriptor)
