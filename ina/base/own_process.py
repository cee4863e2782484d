"""Use of the machine by this process."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

_started = time.time()  # as early as this module is imported


def used() -> dict[str, float]:
    """Returns when the process started (seconds since 1970), its processor time in seconds, its resident memory in bytes, and its
    open descriptors with their limit. Reads ``/proc/self`` (proc(5)): memory and descriptors are left out where no descriptor is
    free for that."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"start_time_seconds": _started, "cpu_seconds_total": usage.ru_utime + usage.ru_stime,
               "descriptors_limit": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])}
    with suppress(OSError):
        figures["resident_memory_bytes"] = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        figures["open_descriptors"] = len(os.listdir("/proc/self/fd")) - 1
    return figures
