"""Runs a compiled program: tables, registers, multicast, counters, queues; one interface for all targets."""

from ina.base.closing import Closing
from ina.p4.runtime.embedded import Link, Switch
from ina.p4.runtime.entities import (
    CloneSessionEntry,
    CounterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    E,
    Entity,
    Match,
    MeterConfig,
    MeterEntry,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    SwitchTarget,
    TableEntry,
    Update,
    Value,
    ValueSetEntry,
    as_int,
    as_match,
    as_params,
    delete,
    insert,
    modify,
)
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.loaded_program import Layout, Program
from ina.p4.runtime.p4info import ActionInfo, ArrayInfo, MatchField, N, P4Info, ProfileInfo, TableInfo, find
from ina.p4.runtime.records import Digest, PortStats
from ina.p4.runtime.tna_entities import (
    EntryScope,
    FilterEntry,
    KeyMask,
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
    "ActionInfo", "ArrayInfo", "Closing", "CloneSessionEntry", "CounterEntry", "Digest", "DirectCounterEntry",
    "DirectMeterEntry", "E", "Entity", "EntityError", "EntryScope", "FilterEntry", "KeyMask", "Layout", "Link", "LpfConfig",
    "Match", "MatchField", "MeterConfig", "MeterEntry", "MirrorSession", "MulticastEcmp", "MulticastGroupEntry",
    "MulticastLag", "MulticastNode", "MulticastPort", "MulticastPrune", "MulticastTree", "N", "P4Info", "PortMetadata",
    "PortStats", "ProfileGroup", "ProfileInfo", "ProfileMember", "Program", "RegisterEntry", "Replica", "ReplicationConfig",
    "Switch", "SwitchTarget", "TableEntry", "TableInfo", "Update", "Value", "ValueSetEntry", "WredConfig",
    "as_int", "as_match", "as_params", "delete", "find", "insert", "modify",
]
