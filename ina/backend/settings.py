"""What the environment, or a group's options, may say about the local world. Unknown values are errors that name the variable."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from ina.transport import protocols
from ina.transport.ports import Faults

VALUES = (32, 64, 128, 256, 1024, 2048)
FAULT_KEYS = {"loss": "loss", "dup": "duplicate", "reorder": "reorder", "corrupt": "corrupt", "seed": "seed",
              "dup_delay": "duplicate_delay", "reorder_delay": "reorder_delay"}


@dataclass(frozen=True)
class Options:
    """What one process group wants: ``init_process_group("ina", pg_options=Options(protocol="atp"))``.

    Each counts more than the variable of its name (INA_PROTOCOL, ...); None: as the environment has it.
    """

    protocol: str | None = None
    values: int | None = None
    slots: int | None = None
    port: str | None = None

    def environment(self) -> dict[str, str]:
        """What the environment says to this group."""
        own = {f"INA_{field.name.upper()}": getattr(self, field.name) for field in fields(self)}
        return {**os.environ, **{name: str(value) for name, value in own.items() if value is not None}}


@dataclass(frozen=True)
class Settings:
    """
    ==============  ======================================================================================
    INA_PROTOCOL    the protocol (default: switchml)
    INA_PROGRAM     the P4 program (default: the protocol's own)
    INA_VALUES      integers per packet: 32, 64, 128, 256, 1024 or 2048
    INA_SLOTS       slots of each job (its window), a power of two
    INA_PORT        shm (shared memory) or udp (loopback)
    INA_FAULT       such as loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=1
    INA_SWITCH      socket of a switch process that runs already (a path, or an abstract name); the first
                    four are then its own business (a protocol that is named must be its). Rank 0's word counts.
    INA_CAPTURE     folder for a pcap file of every worker's packets, as the worker sees them
    ==============  ======================================================================================
    """

    protocol: str  # "": not said
    program: Path
    values: int = 2048
    slots: int = 64
    pool: int = 4096
    port: str = "shm"
    faults: Faults | None = None
    switch: str = ""
    capture: str = ""

    @classmethod
    def from_environment(cls, options: Options | None = None) -> Settings:
        """``options`` count more. Raises ValueError naming the variable."""
        said = (options or Options()).environment()
        protocol, program = said.get("INA_PROTOCOL", ""), said.get("INA_PROGRAM", "")
        if protocol and protocol not in protocols.names():
            raise ValueError(f"INA_PROTOCOL={protocol}: expected one of {', '.join(protocols.names())}")
        values = _integer(said, "INA_VALUES", cls.values)
        if values not in VALUES:
            raise ValueError(f"INA_VALUES={values}: expected one of {', '.join(map(str, VALUES))}")
        slots = _integer(said, "INA_SLOTS", cls.slots)
        if slots < 1 or slots & (slots - 1) or slots > 8192:
            raise ValueError(f"INA_SLOTS={slots}: expected a power of two from 1 to 8192")
        port = said.get("INA_PORT", cls.port)
        if port not in ("shm", "udp"):
            raise ValueError(f"INA_PORT={port}: expected shm or udp")
        fault = said.get("INA_FAULT")
        path = Path(program) if program else protocols.program(protocol or protocols.DEFAULT)
        return cls(protocol, path, values, slots, max(cls.pool, slots), port, parse_faults(fault) if fault else None,
                   said.get("INA_SWITCH", ""), said.get("INA_CAPTURE", ""))


def parse_faults(text: str) -> Faults:
    """``loss=0.01,seed=1`` to Faults; delays default to a few round trips. Raises ValueError naming the key."""
    found: dict[str, float | int] = {"duplicate_delay": 2e-3, "reorder_delay": 1e-3}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if key not in FAULT_KEYS or not equals:
            raise ValueError(f"INA_FAULT: {item!r}: expected key=value with one of the keys {', '.join(FAULT_KEYS)}")
        try:
            found[FAULT_KEYS[key]] = int(value) if key == "seed" else float(value)
        except ValueError:
            raise ValueError(f"INA_FAULT: {item!r}: {value!r} is not a number") from None
    try:
        return Faults(**found)
    except ValueError as error:
        raise ValueError(f"INA_FAULT={text}: {error}") from None


def _integer(said: dict[str, str], name: str, default: int) -> int:
    text = said.get(name)
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name}={text}: expected an integer") from None
