"""Use of this machine's processors."""

from __future__ import annotations

from pathlib import Path


def ticks() -> tuple[int, int]:
    """Returns busy and all ticks of all processors (proc(5): user nice system idle iowait irq softirq steal)."""
    each = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return sum(each) - each[3] - each[4], sum(each)
