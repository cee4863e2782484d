"""Ranges of keys that several kinds of experiments have: the limits of a machine, or of the packet format."""

from __future__ import annotations

import os

from ina.base.bounds import SECONDS, Range
from ina.base.settings import ConfigError
from ina.topology.topology import MOST_QUEUE, MOST_RATE

WORKERS = Range(0, 1024, "each is a process, or a host of virtual time")
JOBS = Range(1, 64, "each has hosts or slots of its own")
PACKET = Range(0, 2048, "what a frame has room for", "int32")
SLOTS = Range(0, 16384, "slot numbers have 14 bits", "slots")
BYTES = Range(0, 1 << 40, "bytes", "B")
RATE = Range(0, 1e15, "bit/s: a byte takes a whole number of femtoseconds at least", "b/s")
LINK_RATE = Range(0, MOST_RATE, "bit/s of a topology's link; 0: no limit", "b/s")
LINK_QUEUE = Range(0, MOST_QUEUE, "bytes of a topology's link; 0: no limit", "B")
DELAY = Range(0, 10, "seconds", "s")
TIME = Range(0, SECONDS, "seconds", "s")
MIB = Range(0, 1e6, "MiB", "MiB")
FACTOR = Range(0, 1e6)
STEPS = Range(0, 10**9)
PROBABILITY = Range(0, 1, "a probability", "probability")
SEED = Range(0, 2**63 - 1, "63 bits")
ELEMENTS = Range(1, 10**15, "4 bytes each, which memory has to hold", "int32")


def power_of_two(number: int) -> bool:
    """Returns True for 0, too: a key that is left to others."""
    return number & (number - 1) == 0


def must_fit(what: str, needed: int, hint: str = "") -> None:
    """Checks that ``needed`` bytes fit into memory, before the kernel ends this process, or another. ``what`` takes them. Raises
    ConfigError, with a ``hint`` at its end."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise ConfigError(f"{what} are {needed / 2**30:,.0f} GiB; this machine has {available / 2**30:,.0f} GiB{hint}")
