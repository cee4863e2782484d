"""A P4 switch in this process: compile a P4_16 program, write its tables, send packets through it.

    switch = ina.p4.Switch(ina.p4.compile("examples/learn/learn.p4"))
    switch.insert(ina.p4.TableEntry("addresses", {"hdr.ethernet.dst": "00:00:00:00:00:02"}, "forward", {"port": 2}))
    for port, frame in switch.process(1, frame):
        ...

Entities have P4Runtime's names and meanings; those that only a Tofino has are rows of BFRuntime's tables. Importing this module
is cheap: a name's module is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ina.base.cc import BuildError
    from ina.p4.compiler.compiled import CompiledProgram
    from ina.p4.compiler.errors import CompileError
    from ina.p4.compiler.externs.user import UserFunction, UserObject
    from ina.p4.runtime.entities import (
        CloneSessionEntry,
        CounterEntry,
        DirectCounterEntry,
        DirectMeterEntry,
        Entity,
        MeterConfig,
        MeterEntry,
        MulticastGroupEntry,
        ProfileGroup,
        ProfileMember,
        RegisterEntry,
        Replica,
        TableEntry,
        ValueSetEntry,
    )
    from ina.p4.runtime.entity_error import EntityError
    from ina.p4.runtime.records import Digest
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
    from ina.p4.switch import Switch, compile

_HOMES = {
    "ina.base.cc": ("BuildError",),
    "ina.p4.compiler.compiled": ("CompiledProgram",),
    "ina.p4.compiler.errors": ("CompileError",),
    "ina.p4.compiler.externs.user": ("UserFunction", "UserObject"),
    "ina.p4.runtime.entities": (
        "CloneSessionEntry", "CounterEntry", "DirectCounterEntry", "DirectMeterEntry", "Entity", "MeterConfig", "MeterEntry",
        "MulticastGroupEntry", "ProfileGroup", "ProfileMember", "RegisterEntry", "Replica", "TableEntry", "ValueSetEntry",
    ),
    "ina.p4.runtime.p4info": ("EntityError",),
    "ina.p4.runtime.records": ("Digest",),
    "ina.p4.runtime.tna_entities": (
        "EntryScope", "FilterEntry", "KeyMask", "LpfConfig", "MirrorSession", "MulticastEcmp", "MulticastLag",
        "MulticastNode", "MulticastPort", "MulticastPrune", "MulticastTree", "PortMetadata", "ReplicationConfig",
        "WredConfig",
    ),
    "ina.p4.switch": ("Switch", "compile"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BuildError", "CloneSessionEntry", "CompileError", "CompiledProgram", "CounterEntry", "Digest", "DirectCounterEntry",
    "DirectMeterEntry", "Entity", "EntityError", "EntryScope", "FilterEntry", "KeyMask", "LpfConfig", "MeterConfig",
    "MeterEntry", "MirrorSession", "MulticastEcmp", "MulticastGroupEntry", "MulticastLag", "MulticastNode", "MulticastPort",
    "MulticastPrune", "MulticastTree", "PortMetadata", "ProfileGroup", "ProfileMember", "RegisterEntry", "Replica",
    "ReplicationConfig", "Switch", "TableEntry", "UserFunction", "UserObject", "ValueSetEntry", "WredConfig", "compile",
]


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'ina.p4' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
