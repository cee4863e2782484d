"""Runs a compiled program: tables, registers, multicast, counters, queues; one interface for all targets."""

from ina.p4.runtime.embedded import Link, Switch
from ina.p4.runtime.entities import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    TableEntry,
    Update,
    ValueSetEntry,
    delete,
    insert,
    modify,
)
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import EntityError, P4Info
from ina.p4.runtime.records import Digest, PortStats, TraceRecord
from ina.p4.runtime.target import SwitchTarget
from ina.p4.runtime.tna_entities import (
    FilterEntry,
    LpfConfig,
    MirrorSession,
    MulticastEcmp,
    MulticastLag,
    MulticastNode,
    MulticastPort,
    MulticastPrune,
    MulticastTree,
    PortMetadata,
    ReplicationConfig,
    WredConfig,
)

__all__ = [
    "CloneSessionEntry", "CounterEntry", "Digest", "DirectCounterEntry", "DirectMeterEntry", "EntityError", "FilterEntry",
    "Link", "LpfConfig", "MeterConfig", "MeterEntry", "MirrorSession", "MulticastEcmp", "MulticastGroupEntry", "MulticastLag",
    "MulticastNode", "MulticastPort", "MulticastPrune", "MulticastTree", "P4Info", "PortMetadata", "PortStats",
    "ProfileGroup", "ProfileMember", "Program", "RegisterEntry", "Replica", "ReplicationConfig", "Switch", "SwitchTarget",
    "TableEntry", "TraceRecord", "Update", "ValueSetEntry", "WredConfig", "delete", "insert", "modify",
]  # fmt: skip
