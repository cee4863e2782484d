"""Waiting for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LONG = 120.0  # seconds, generous: tests do not depend on how busy the machine is


class TookTooLong(AssertionError):
    """A helper's patience ended before the event that it waited for: make test looks a second time (second_look.py)."""


def until(condition: Callable[[], Any], event: str, seconds: float = LONG) -> Any:
    """Waits until `condition()` is true; returns its value."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TookTooLong(f"waited {seconds:g} s for {event}")
        time.sleep(0.02)
    return result
