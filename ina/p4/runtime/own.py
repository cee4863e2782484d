"""Copies of entities that share nothing that can change: a switch keeps no object of a caller, and gives none of its own away."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from ina.p4.runtime.entities import E, Entity


def own(entity: E) -> E:
    """A copy with mappings of its own, and tuples instead of lists; an entity without either is returned as it is."""
    names: tuple[str, ...] = entity.__slots__
    values = {name: getattr(entity, name) for name in names}
    changed = {name: new for name, value in values.items() if (new := _own_value(value)) is not value}
    if not changed:
        return entity
    twin = copy.copy(entity)
    for name, value in changed.items():
        object.__setattr__(twin, name, value)
    return twin


def _own_value(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _own_value(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = tuple(_own_value(item) for item in value)
        is_same = isinstance(value, tuple) and all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else items
    if isinstance(value, bytearray):
        return bytes(value)
    return own(value) if isinstance(value, Entity) else value
