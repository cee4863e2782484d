"""A compiled program made to run: tables, registers, multicast, counters, queues; one interface for all targets."""

from ina.switch.embedded import Link, Switch
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
from ina.switch.observation import Digest, PortStats, TraceRecord
from ina.switch.p4info import EntityError, P4Info
from ina.switch.program import Program
from ina.switch.target import SwitchTarget

__all__ = [
    "CloneSessionEntry", "CounterEntry", "Digest", "DirectCounterEntry", "EntityError", "Link", "MulticastGroupEntry",
    "P4Info", "PortStats", "Program", "RegisterEntry", "Replica", "Switch", "SwitchTarget", "TableEntry", "TraceRecord",
    "Update", "delete", "insert", "modify",
]  # fmt: skip
