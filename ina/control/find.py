"""Which switch processes run on this machine: by their sockets, as the kernel and the run directory list them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from topologies.state import run_dir

STARTED = re.compile(r"@(ina-\d+-[0-9a-f]{12})")  # as client.SwitchProcess names them
LISTENS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix


def listening(table: str = "/proc/net/unix") -> set[str]:
    """Names of all Unix sockets that someone listens at, abstract ones of this network namespace with an @."""
    rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and int(row[3], 16) & LISTENS}


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
