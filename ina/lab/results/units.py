"""Values of keys in tables and plots: with their units, and short."""

from __future__ import annotations

# Units of the keys whose help names one; those of SI get prefixes, the others stand at the axis.
UNITS = {
    "rate": "b/s",
    **dict.fromkeys(("delay", "latency", "host_packet", "host_byte", "rto_min", "rto_max", "timeout", "sample", "period"), "s"),
    **dict.fromkeys(("queue", "buffer", "nic", "ecn", "mtu"), "B"),
    **dict.fromkeys(("pool", "slots"), "slots"),
    **dict.fromkeys(("window", "flow", "ecn_depth"), "packets"),
    **dict.fromkeys(("values", "elements"), "int32"),
    **dict.fromkeys(("bucket_mb", "first_bucket_mb"), "MiB"),
    **dict.fromkeys(("loss", "duplicate", "reorder", "corrupt"), "probability"),
}
SI = ("b/s", "s", "B")
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def format_value(value: object, key: str = "") -> str:
    """Formats a value: ``100 Gb/s`` for a rate, ``100 us`` for a time; other numbers and words as they are."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    unit = UNITS.get(key)
    if unit in SI and isinstance(value, (int, float)) and value:
        size, prefix = next((p for p in PREFIXES if abs(value) >= p[0]), PREFIXES[-1])
        return f"{value / size:g} {prefix}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def axis(key: str) -> str:
    """Returns the label of an axis: the key, and the unit unless each value has it."""
    unit = UNITS.get(key)
    return key if unit is None or unit in SI else f"{key}, {unit}"
