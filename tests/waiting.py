"""Waiting for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LONG = 60.0  # seconds, generous: tests do not depend on how busy the machine is


def until(condition: Callable[[], Any], event: str, seconds: float = LONG) -> Any:
    """Waits until `condition()` is true; returns its value."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {event}"
        time.sleep(0.02)
    return result
