"""Checks for leaks in the simulation: entries, slots and jobs without an owner. Each function raises Violation."""

from __future__ import annotations

from ina.aggregation.controller.admission import Controller
from ina.aggregation.entries import JobProgram
from ina.p4.runtime.entities import MulticastGroupEntry, TableEntry, as_int
from ina.worlds.virtual.applications import Violation
from ina.worlds.virtual.control_plane import ServerProcess, SimulatedTarget


def check_switch(target: SimulatedTarget, controller: Controller, protocol: JobProgram) -> None:
    """Checks that a switch of whose state the controller is sure has no entries but the controller's."""
    name = target.name
    if not target.up or name in controller.unsure or name in controller.down:
        return
    admitted = {(job.number, job.incarnation) for job in controller.jobs.values() if name in job.branches}
    entries = [entry for entry in target.switch.read([TableEntry(protocol.tables[0])]) if isinstance(entry, TableEntry)]
    if protocol.reserves:
        _check_ranges(name, entries)
    extra = {_identity(protocol, entry) for entry in entries} - admitted
    groups = {group.group_id for group in target.switch.read([MulticastGroupEntry(0)]) if isinstance(group, MulticastGroupEntry)}
    if extra or groups - {number + 1 for number, _ in admitted}:
        raise Violation(f"leaked: {name} serves jobs {sorted(extra)} with groups {sorted(groups)}; its controller, which is sure "
                        f"of it, knows of {sorted(admitted)}")


def _identity(protocol: JobProgram, entry: TableEntry) -> tuple[int, int]:
    """Returns number and incarnation of the entry's job."""
    identity = protocol.identity(entry)
    assert identity is not None  # no default entry is read
    return identity.number, identity.incarnation


def _check_ranges(switch: str, entries: list[TableEntry]) -> None:
    stated = (e.params for e in entries if {"base", "mask"} <= set(e.params))  # a user's own protocol has others
    ranges = sorted((as_int(params["base"], 16, "base"), as_int(params["mask"], 14, "mask")) for params in stated)
    if any(base + mask >= after for (base, mask), (after, _) in zip(ranges, ranges[1:], strict=False)):
        raise Violation(f"slots of {switch} are held twice: (first, last - first) are {ranges}")


def check_server(process: ServerProcess, controller: Controller) -> None:
    """Checks that a parameter server which its controller calls serves only the controller's jobs and lives."""
    admitted = {(job.number, job.life) for job in controller.jobs.values()}
    served = {(number, config.life) for number, config in process.server.jobs.items()}
    if served - admitted:
        raise Violation(f"leaked: the parameter server at {process.server.host} serves jobs and lives {sorted(served)}; its "
                        f"controller knows of {sorted(admitted)}")


def check_slots(controller: Controller, pool: int) -> None:
    """Checks that all slots are free when there is no job."""
    for name in controller.targets:
        if (free := controller.free_slots(name)) != pool:
            raise Violation(f"leaked slots: nobody has a job, and {name} has {free} of {pool} slots free "
                            f"({', '.join(controller.jobs)})")
