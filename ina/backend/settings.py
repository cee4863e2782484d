"""Settings from a group's options, the environment and a configuration file. Errors on unknown keys and values name the place.

    Options of the group  >  environment (INA_...)  >  configuration file  >  default

The file is TOML, with the keys of ``Settings`` (``protocol = "atp"``); INA_CONFIG names it, or else it is ``ina.toml`` in
``$XDG_CONFIG_HOME`` or ``~/.config``, if it is there.
"""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from ina.aggregation import protocols
from ina.base import documents, paths
from ina.net import dpdk
from ina.net.faults import parse_faults
from ina.net.ports import Faults

VALUES = (32, 64, 128, 256, 1024, 2048)

KEYS = ("protocol", "program", "values", "slots", "port", "dpdk", "fault", "switch", "capture", "trace")
# Variables that other parts of the project, and its tests, read.
OTHERS = ("CONFIG", "CACHE", "RUN_DIR", "RUNNER", "REQUIRE", "TOKEN", "TOKEN_FILE", "SWITCH_USER", "HOST")


@dataclass(frozen=True)
class Options:
    """Options of one process group: ``init_process_group("ina", pg_options=Options(protocol="atp"))``. None: as the environment
    (INA_PROTOCOL, ...) or the configuration file says, or the default.

    ``protocol``: a name, or the path of a program of one's own (switchml); ``values``: integers in a packet: 32, 64, 128, 256,
    1024 or 2048 (2048); ``slots``: of the job, a power of two up to 8192 (64); ``port``: shm, udp or dpdk:DEVICE (shm). A value
    that does not fit is a ValueError where the group is made.
    """

    protocol: str | None = None
    values: int | None = None
    slots: int | None = None
    port: str | None = None


class Sources:
    """The given keys, with their values and, for error messages, the places where they are set."""

    def __init__(self, options: Options | None):
        """Reads all sources. Raises ValueError for an unknown key, and for a file that is missing or not TOML."""
        self._values: dict[str, tuple[str, str]] = {}  # key -> text, and where it is set
        self._file()
        for name, text in os.environ.items():
            if name.startswith("INA_"):
                key = name.removeprefix("INA_").lower()
                if key in KEYS and text:
                    self._values[key] = text, f"{name}={text}"
                close = difflib.get_close_matches(key, KEYS, 1, 0.75)
                if key not in KEYS and name.removeprefix("INA_") not in OTHERS and close:
                    raise ValueError(f"{name}: there is no such variable; did you mean INA_{close[0].upper()}?")
        for field in fields(options or Options()):
            value = getattr(options, field.name, None)
            if value is not None:
                self._values[field.name] = str(value), f"Options({field.name}={value!r})"

    def _file(self) -> None:
        configured = os.environ.get("INA_CONFIG", "")
        path = Path(configured or paths.config_home() / "ina.toml")
        if not configured and not path.is_file():
            return
        try:
            content = documents.toml(path)
        except OSError as error:
            raise ValueError(f"configuration file {path}, which INA_CONFIG names: {error.strerror}" if configured else
                             f"configuration file {path}: {error.strerror}") from error  # fmt: skip
        except documents.Unreadable as error:
            raise ValueError(f"configuration file {error}") from error
        for key, value in content.items():
            if key not in KEYS:
                close = difflib.get_close_matches(key, KEYS, 1, 0)
                raise ValueError(f"{path}: unknown key {key!r}; did you mean {close[0]!r}? Keys are {', '.join(KEYS)}")
            self._values[key] = str(value), f"{path}: {key} = {value!r}"

    def text(self, key: str, default: str = "") -> str:
        return self._values[key][0] if key in self._values else default

    def error(self, key: str, expected: str) -> ValueError:
        return ValueError(f"{self._values[key][1]}: {expected}")

    def integer(self, key: str, default: int) -> int:
        try:
            return int(self.text(key, str(default)))
        except ValueError:
            raise self.error(key, "expected an integer") from None


@dataclass(frozen=True)
class Settings:
    """
    Each variable is also a key of the configuration file, without INA_ and in small letters.

    ==============  ======================================================================================
    INA_PROTOCOL    the protocol (default: switchml)
    INA_PROGRAM     the P4 program (default: the protocol's own)
    INA_VALUES      integers per packet: 32, 64, 128, 256, 1024 or 2048
    INA_SLOTS       slots of each job (its window), a power of two
    INA_PORT        shm (shared memory), udp (loopback), or dpdk:DEVICE, dpdk@PORT:DEVICE: a device of DPDK's that
                    leads to that port of an ina-dpdk-switch (default: the rank; {rank} stands for it, too)
    INA_DPDK        EAL's command line (default: huge pages if enough are free, one lcore, no other device)
    INA_FAULT       such as loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=1
    INA_SWITCH      socket of a switch process that runs already (a path, or an abstract name); the first
                    four are then its own business (a protocol that is named must be its). Rank 0's word counts.
    INA_CAPTURE     folder for a pcap file of every worker's packets, as the worker sees them
    INA_TRACE       file for what the ranks spend their time on, to be opened with ui.perfetto.dev
    ==============  ======================================================================================
    """

    protocol: str  # "": not set
    program: Path
    values: int = 2048
    slots: int = 64
    pool: int = 4096
    port: str = "shm"
    dpdk: tuple[str, ...] = ()
    faults: Faults | None = None
    switch: str = ""
    capture: str = ""
    trace: str = ""

    @property
    def on_dpdk(self) -> bool:
        return self.port.startswith("dpdk")

    @classmethod
    def read(cls, options: Options | None = None) -> Settings:
        """Reads ``options``, the environment and the configuration file. Raises ValueError, which names the key and its place."""
        sources = Sources(options)
        protocol, program = sources.text("protocol"), sources.text("program")
        if protocols.is_own(protocol):
            protocol = str(Path(protocol).resolve())
        elif protocol and protocol not in protocols.names():
            raise sources.error("protocol", f"expected {protocols.expected()}")
        values = sources.integer("values", cls.values)
        if values not in VALUES:
            raise sources.error("values", f"expected one of {', '.join(map(str, VALUES))}")
        slots = sources.integer("slots", cls.slots)
        if slots < 1 or slots & (slots - 1) or slots > 8192:
            raise sources.error("slots", "expected a power of two from 1 to 8192")
        port = sources.text("port", cls.port)
        if port.startswith("dpdk"):
            try:
                dpdk.plug(port, 0)
            except ValueError as error:
                raise sources.error("port", str(error)) from None
            if not sources.text("switch"):
                raise sources.error("port", "this needs a switch on DPDK: start ina-dpdk-switch with --control SOCKET, and set "
                                            "INA_SWITCH to that socket")
        elif port not in ("shm", "udp"):
            raise sources.error("port", "expected shm, udp or dpdk:DEVICE")
        try:
            eal = tuple(shlex.split(sources.text("dpdk")))
        except ValueError as error:
            raise sources.error("dpdk", f"no command line: {error}") from None
        faults = None
        if fault := sources.text("fault"):
            try:
                faults = parse_faults(fault)
            except ValueError as error:
                raise sources.error("fault", str(error)) from None
        path = Path(program) if program else protocols.program(protocol or protocols.DEFAULT)
        return cls(protocol, path, values, slots, max(cls.pool, slots), port, eal, faults, sources.text("switch"),
                   sources.text("capture"), sources.text("trace"))

