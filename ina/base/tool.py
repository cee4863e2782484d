"""Compilers of others, which end with the call that runs them, as do the processes and temporary files that they have made."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

_caller_cleans = False


def caller_cleans() -> None:
    """Leaves what this process starts in its own process group and folder: whoever started it kills the one, and removes the
    other (ina/p4/compiler/sandbox.py)."""
    global _caller_cleans
    _caller_cleans = True


def run(words: Sequence[str], seconds: float, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `subprocess.run` does, but in a process group and with a folder for temporary files of its
    own: after an exception, Ctrl-C and SIGTERM among them, nothing of either is left. Raises OSError, TimeoutExpired.
    """
    if _caller_cleans:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace",
                              timeout=seconds, check=False)
    with tempfile.TemporaryDirectory(prefix="ina-tool-") as folder:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
                                   errors="replace", env={**os.environ, "TMPDIR": folder}, process_group=0)
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            if process.returncode is None:  # else its number may be another's
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()  # until the last of the group has ended
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)
