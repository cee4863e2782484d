"""Child processes of tests. A test waits for them with patience; one that does not end is killed, and TookTooLong names it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from waiting import LONG, TookTooLong

TRAINING = 600.0  # seconds for a command that trains, or compiles several programs


def run(command: Sequence[object], seconds: float = LONG, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; by default both its streams are kept as text."""
    words = [str(word) for word in command]
    if not options.keys() & {"stdout", "stderr"}:
        options["capture_output"] = True
    try:
        return subprocess.run(words, timeout=seconds, **{"text": True, **options})
    except subprocess.TimeoutExpired as error:
        raise TookTooLong(f"{words} did not end within {seconds:g} s: {error.stdout!r}, {error.stderr!r}") from None


def output(process: subprocess.Popen[str], seconds: float = LONG) -> tuple[str, str]:
    """Standard output and error of a process that ends by itself."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # children of its own may keep the streams open
            process.communicate(timeout=5)
        raise TookTooLong(f"{process.args} did not end within {seconds:g} s") from None


def status(process: subprocess.Popen[Any], seconds: float = LONG) -> int:
    """Exit status of a process that ends by itself."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TookTooLong(f"{process.args} did not end within {seconds:g} s") from None
