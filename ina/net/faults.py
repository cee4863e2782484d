"""Fault settings from a command line, a file or the environment: ``loss=0.01,dup=0.02,seed=1``."""

from __future__ import annotations

from typing import Any

from ina.net.ports import Faults

FAULT_KEYS = {"loss": "loss", "dup": "duplicate", "reorder": "reorder", "corrupt": "corrupt", "seed": "seed",
              "dup_delay": "duplicate_delay", "reorder_delay": "reorder_delay"}


def parse_faults(text: str) -> Faults:
    """Parses ``loss=0.01,seed=1``; delays default to a few round trips. Raises ValueError naming the key."""
    values: dict[str, Any] = {"duplicate_delay": 2e-3, "reorder_delay": 1e-3}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if key not in FAULT_KEYS or not equals:
            raise ValueError(f"{item!r}: expected key=value with one of the keys {', '.join(FAULT_KEYS)}")
        try:
            values[FAULT_KEYS[key]] = int(value) if key == "seed" else float(value)
        except ValueError:
            raise ValueError(f"{item!r}: {value!r} is not a number") from None
    return Faults(**values)
