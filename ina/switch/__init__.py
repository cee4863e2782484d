"""A compiled program made to run: tables, registers, multicast, counters, queues; one interface for all targets."""

from ina.switch.embedded import Link, PortStats, Program, Switch
from ina.switch.entities import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    MulticastGroupEntry,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
    delete,
    insert,
    modify,
)
from ina.switch.p4info import EntityError, P4Info
from ina.switch.target import SwitchTarget

__all__ = [
    "CloneSessionEntry", "CounterEntry", "DirectCounterEntry", "EntityError", "Link", "MulticastGroupEntry", "P4Info",
    "PortStats", "Program", "RegisterEntry", "Replica", "Switch", "SwitchTarget", "TableEntry", "Update", "delete",
    "insert", "modify",
]  # fmt: skip
