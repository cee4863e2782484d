"""A P4 switch in this process: compile a P4_16 program, write its tables, send packets through it.

    switch = ina.p4.Switch(ina.p4.compile("examples/learn/learn.p4"))
    switch.insert(ina.p4.TableEntry("addresses", {"hdr.ethernet.dst": "00:00:00:00:00:02"}, "forward", {"port": 2}))
    for port, frame in switch.process(1, frame):
        ...

Entities have P4Runtime's names and meanings. Importing this module is cheap: a name's module is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ina.base.cc import BuildError as BuildError
    from ina.p4.compiler.build import CompiledProgram as CompiledProgram
    from ina.p4.compiler.errors import CompileError as CompileError
    from ina.p4.compiler.externs.user import UserFunction as UserFunction
    from ina.p4.compiler.externs.user import UserObject as UserObject
    from ina.p4.runtime.entities import CloneSessionEntry as CloneSessionEntry
    from ina.p4.runtime.entities import CounterEntry as CounterEntry
    from ina.p4.runtime.entities import DirectCounterEntry as DirectCounterEntry
    from ina.p4.runtime.entities import DirectMeterEntry as DirectMeterEntry
    from ina.p4.runtime.entities import Entity as Entity
    from ina.p4.runtime.entities import MeterConfig as MeterConfig
    from ina.p4.runtime.entities import MeterEntry as MeterEntry
    from ina.p4.runtime.entities import MulticastGroupEntry as MulticastGroupEntry
    from ina.p4.runtime.entities import ProfileGroup as ProfileGroup
    from ina.p4.runtime.entities import ProfileMember as ProfileMember
    from ina.p4.runtime.entities import RegisterEntry as RegisterEntry
    from ina.p4.runtime.entities import Replica as Replica
    from ina.p4.runtime.entities import TableEntry as TableEntry
    from ina.p4.runtime.entities import ValueSetEntry as ValueSetEntry
    from ina.p4.runtime.p4info import EntityError as EntityError
    from ina.p4.runtime.records import Digest as Digest
    from ina.p4.switch import Switch as Switch
    from ina.p4.switch import compile as compile

_HOMES = {
    "ina.base.cc": ("BuildError",),
    "ina.p4.compiler.build": ("CompiledProgram",),
    "ina.p4.compiler.errors": ("CompileError",),
    "ina.p4.compiler.externs.user": ("UserFunction", "UserObject"),
    "ina.p4.runtime.entities": (
        "CloneSessionEntry", "CounterEntry", "DirectCounterEntry", "DirectMeterEntry", "Entity", "MeterConfig", "MeterEntry",
        "MulticastGroupEntry", "ProfileGroup", "ProfileMember", "RegisterEntry", "Replica", "TableEntry", "ValueSetEntry",
    ),
    "ina.p4.runtime.p4info": ("EntityError",),
    "ina.p4.runtime.records": ("Digest",),
    "ina.p4.switch": ("Switch", "compile"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BuildError", "CloneSessionEntry", "CompileError", "CompiledProgram", "CounterEntry", "Digest", "DirectCounterEntry",
    "DirectMeterEntry", "Entity", "EntityError", "MeterConfig", "MeterEntry", "MulticastGroupEntry", "ProfileGroup",
    "ProfileMember", "RegisterEntry", "Replica", "Switch", "TableEntry", "UserFunction", "UserObject", "ValueSetEntry", "compile",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'ina.p4' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
