"""Which switch processes run on this machine: by their sockets, as the kernel and the run directory list them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ina.net.state import run_dir

STARTED = re.compile(r"@(ina-\d+-[0-9a-f]{12})")  # as client.SwitchProcess names them
ROW = re.compile(r"\w+: \w+ \w+ (?P<flags>[0-9A-F]{8}) \w+ \w+ +\d+ (?P<name>.+)", re.ASCII)
LISTENS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix


def listening(table: str = "/proc/net/unix") -> set[str]:
    """Names of all Unix sockets that someone listens at, abstract ones of this network namespace with an @."""
    text = os.fsdecode(Path(table).read_bytes())  # anybody names sockets, of any bytes
    rows = (ROW.fullmatch(line) for line in text.split("\n"))
    return {row["name"] for row in rows if row and int(row["flags"], 16) & LISTENS}


def running() -> list[str]:
    """Socket names of the switch processes that the back end, experiments or networks of this machine have started.

    Those that were given a name of their own are not known: ``--switch``, or INA_SWITCH, says it.
    """
    found = listening()
    names = [match[1] for name in sorted(found) if (match := STARTED.fullmatch(name))]
    network = str(run_dir() / "switch.sock")
    if network in found or os.path.realpath(network) in found:
        names.append(network)
    return names
