"""`ina deploy --status`: checks that the switch processes of a deployment are there, and run what its file says."""

from __future__ import annotations

from collections.abc import Iterator

from ina.lab.doctor.machine import BAD, GOOD, Finding
from ina.worlds.deployed import processes
from ina.worlds.deployed.deployable import DeploymentError
from ina.worlds.deployed.process_file import Processes


def examine(d: Processes, timeout: float) -> Iterator[Finding]:
    """Examines process by process; each answers within `timeout` seconds."""
    for switch in d.switches:
        try:
            running = processes.look(switch, timeout)
            if running:
                processes.check(d, switch, running)
        except DeploymentError as error:
            yield Finding(BAD, switch.name, str(error))
            continue
        if running:
            yield Finding(GOOD, switch.name, f"{switch.address}: {running}")
        else:
            advice = f"ina deploy {d.path}" if switch.machine else "its operator starts it, such as by systemctl start ina-switch"
            yield Finding(BAD, switch.name, f"nobody listens at {switch.address}", advice)
