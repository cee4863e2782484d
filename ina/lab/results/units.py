"""Values of keys in tables and plots: with their units, and short."""

from __future__ import annotations

import functools

from ina.base.settings import ConfigError, keys
from ina.lab import kind

SI = ("b/s", "s", "B")  # units with prefixes; others stand at the axis
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


@functools.cache
def unit_of(name: str) -> str | None:
    """Returns the unit of the key of this name, which is the same in every kind; None: it has none."""
    for kind_name in kind.names():
        try:
            key = keys(kind.named(kind_name, kind.GROUP)).get(name)
        except ConfigError:
            continue  # a user's own kind that cannot be loaded: these are not its results
        if key and key.unit:
            return key.unit
    return None


def format_value(value: object, key: str = "") -> str:
    """Formats a value: ``100 Gb/s`` for a rate, ``100 us`` for a time; other numbers and words as they are."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    unit = unit_of(key)
    if unit in SI and isinstance(value, (int, float)) and value:
        size, prefix = next((p for p in PREFIXES if abs(value) >= p[0]), PREFIXES[-1])
        return f"{value / size:g} {prefix}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def axis(key: str) -> str:
    """Returns the label of an axis: the key, and the unit unless each value has it."""
    unit = unit_of(key)
    return key if unit is None or unit in SI else f"{key}, {unit}"
