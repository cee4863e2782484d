"""Sizes of types in bits (P4_16 v1.2.5 §9: minSizeInBits, maxSizeInBits)."""

from __future__ import annotations

from ina.p4.compiler import types
from ina.p4.compiler.types import Type, underlying


def size_in_bits(t: Type, *, largest: bool) -> int | None:
    """Returns the least or largest number of bits that a `t` has on the wire; None for types that never are on a wire.

    A varbit has 0 bits to its maximum, a header union as many as its smallest to its largest header.
    """
    t = underlying(t)
    if isinstance(t, types.BitType):
        return t.width
    if isinstance(t, types.BoolType):
        return 1
    if isinstance(t, types.VarbitType):
        return t.max_width if largest else 0
    if isinstance(t, types.StackType):
        element = size_in_bits(t.element, largest=largest)
        return None if element is None else element * t.size
    if isinstance(t, types.TupleType):
        parts = [size_in_bits(p, largest=largest) for p in t.elements]
    elif isinstance(t, types.RecordType):
        parts = [size_in_bits(f.type, largest=largest) for f in t.fields.values()]
    else:
        return None
    sizes = [p for p in parts if p is not None]
    if len(sizes) != len(parts):
        return None
    if isinstance(t, types.UnionType):
        return max(sizes, default=0) if largest else min(sizes, default=0)
    return sum(sizes) + (sum(t.padding().values()) if isinstance(t, types.HeaderType) else 0)
