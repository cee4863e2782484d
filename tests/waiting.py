"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LONG = 60.0  # seconds: no test is about how busy the machine is


def until(condition: Callable[[], Any], what: str, seconds: float = LONG) -> Any:
    """What `condition` says when that is true at last."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
    return found
