"""Parts that architectures share when they lower a pipeline."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.lower.value_trees import Header, Record, Sequence, Stack, Union, Value


def name_fields(fields: dict[str, ir.Var | ir.Elem], name: str, place: Value) -> None:
    """Adds the scalars of a place to `fields`, by their P4 path."""
    match place:
        case Header() | Record() | Union():
            if isinstance(place, Header):
                fields[f"{name}.$valid$"] = place.flag
            for key, part in place.fields.items():
                name_fields(fields, f"{name}.{key}", part)
        case Stack() | Sequence():
            for i, part in enumerate(place.items):
                name_fields(fields, f"{name}[{i}]", part)
        case ir.Var() | ir.Elem():
            fields[name] = place
