"""What the simulation may not find anywhere: entries, slots and jobs that nobody has. Each function raises Violation."""

from __future__ import annotations

from ina.aggregation.controller.controller import Controller
from ina.aggregation.entries import JobProgram
from ina.p4.runtime.entities import MulticastGroupEntry, TableEntry, as_int
from ina.worlds.virtual.applications import Violation
from ina.worlds.virtual.control_plane import ServerProcess, SimulatedTarget


def check_switch(target: SimulatedTarget, controller: Controller, protocol: JobProgram) -> None:
    """At a switch of which it is sure the controller's entries are all that there are."""
    name = target.name
    if not target.up or name in controller.unsure or name in controller.down:
        return
    known = {(job.number, job.incarnation) for job in controller.jobs.values() if name in job.branches}
    entries = [entry for entry in target.switch.read([TableEntry(protocol.tables[0])]) if isinstance(entry, TableEntry)]
    if protocol.reserves:
        _check_ranges(name, entries)
    extra = {_identity(protocol, entry) for entry in entries} - known
    groups = {group.group_id for group in target.switch.read([MulticastGroupEntry(0)]) if isinstance(group, MulticastGroupEntry)}
    if extra or groups - {number + 1 for number, _ in known}:
        raise Violation(f"leaked: {name} serves jobs {sorted(extra)} with groups {sorted(groups)}; its controller, which is sure "
                        f"of it, knows of {sorted(known)}")  # fmt: skip


def _identity(protocol: JobProgram, entry: TableEntry) -> tuple[int, int]:
    """Number and incarnation of the job whose entry this is."""
    identity = protocol.identity(entry)
    assert identity is not None  # no default entry is read
    return identity.number, identity.incarnation


def _check_ranges(switch: str, entries: list[TableEntry]) -> None:
    ranges = sorted((as_int(e.params["base"], 16, "base"), as_int(e.params["mask"], 14, "mask")) for e in entries)
    if any(base + mask >= after for (base, mask), (after, _) in zip(ranges, ranges[1:], strict=False)):
        raise Violation(f"slots of {switch} are held twice: (first, last - first) are {ranges}")


def check_server(process: ServerProcess, controller: Controller) -> None:
    """A parameter server that its controller calls serves no other jobs, and no other lives, than the controller's."""
    known = {(job.number, job.life) for job in controller.jobs.values()}
    served = {(number, config.life) for number, config in process.server.jobs.items()}
    if served - known:
        raise Violation(f"leaked: the parameter server at {process.server.host} serves jobs and lives {sorted(served)}; its "
                        f"controller knows of {sorted(known)}")  # fmt: skip


def check_slots(controller: Controller, pool: int) -> None:
    """Nobody has a job: all slots are free."""
    for name in controller.targets:
        if (free := controller.free_slots(name)) != pool:
            raise Violation(f"leaked slots: nobody has a job, and {name} has {free} of {pool} slots free "
                            f"({', '.join(controller.jobs)})")  # fmt: skip
