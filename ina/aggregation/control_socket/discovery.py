"""Discovery of switch processes on this machine, from the kernel's list of sockets and the run directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ina.net.state import run_dir

STARTED = re.compile(r"@(ina-\d+-[0-9a-f]{12})")  # names of client.SwitchProcess
ROW = re.compile(r"\w+: \w+ \w+ (?P<flags>[0-9A-F]{8}) \w+ \w+ +\d+ (?P<name>.+)", re.ASCII)
LISTENS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix


def listening(table: str = "/proc/net/unix") -> set[str]:
    """Returns the names of all listening Unix sockets, abstract ones of this network namespace with an @."""
    text = os.fsdecode(Path(table).read_bytes())  # any user may name sockets, with any bytes
    rows = (ROW.fullmatch(line) for line in text.split("\n"))
    return {row["name"] for row in rows if row and int(row["flags"], 16) & LISTENS}


def running() -> list[str]:
    """Returns socket names of the switch processes that the back end, experiments or networks of this machine have started.

    Processes with a user's own name are not found: ``--switch``, or INA_SWITCH, names them.
    """
    sockets = listening()
    names = [match[1] for name in sorted(sockets) if (match := STARTED.fullmatch(name))]
    network = str(run_dir() / "switch.sock")
    if network in sockets or os.path.realpath(network) in sockets:
        names.append(network)
    return names
