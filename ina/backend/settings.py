"""Settings from a group's options, the environment and a configuration file. Errors on unknown keys and values name the place.

    Options of the group  >  environment (INA_...)  >  configuration file  >  default

The file is TOML, with the keys of ``Keys`` (``protocol = "atp"``); INA_CONFIG names it, or else it is ``ina.toml`` in
``$XDG_CONFIG_HOME`` or ``~/.config``, if it is there.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ina import codecs
from ina.aggregation import port_kinds, protocols
from ina.aggregation.control_socket.channel import elsewhere, fault
from ina.aggregation.lane import DEFAULT
from ina.base import documents, paths
from ina.base.bounds import Range
from ina.base.settings import Sources, key, nearest, shown
from ina.codecs import planner
from ina.net.faults import parse_faults
from ina.net.ports import Faults

RUN_BY = ("ranks", "process")
ACROSS_VALUES = 256  # integers in a packet between machines: of the sizes the most that fit an MTU of 1,500
# Variables that other parts of the project, and its tests, read.
OTHERS = ("CONFIG", "CACHE", "RUN_DIR", "RUNNER", "REQUIRE", "TOKEN", "TOKEN_FILE", "SWITCH_USER", "HOST", "SILENCE")


T = TypeVar("T")


def _near_names(kind: type[T]) -> type[T]:
    """Has a dataclass raise a TypeError that says what is near, where it is given a name that it lacks."""
    generated: Any = kind.__init__

    @functools.wraps(generated)
    def init(self: T, *args: object, **values: object) -> None:
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        for name, value in values.items():
            if name not in names:
                raise TypeError(f"{kind.__name__}({name}={shown(value)}): there is no such option{nearest(name, names)}")
        generated(self, *args, **values)

    kind.__init__ = init  # type: ignore[method-assign, assignment]
    return kind


@_near_names
@dataclass(frozen=True)
class Options:
    """Options of one process group: ``init_process_group("ina", pg_options=Options(protocol="atp"))``. None: as the environment
    (INA_PROTOCOL, ...) or the configuration file says, or the default.

    ``protocol``: a name, or the path of a program of one's own (switchml); ``values``: integers in a packet: 32, 64, 128, 256,
    1024 or 2048 (2048); ``slots``: of the job, a power of two up to 8192 (64); ``port``: shm, udp or dpdk:DEVICE (shm);
    ``check``: how check words protect sums from rank to rank: off, sum or keyed (sum; off in shared memory); the ranks'
    must agree; ``codec``: how floats travel, a name of ina.codecs, or auto (block). A value that does not fit is a ValueError
    where the group is made, a name that does not exist a TypeError here.
    """

    protocol: str | None = None
    values: int | None = None
    slots: int | None = None
    port: str | None = None
    check: str | None = None
    codec: str | None = None


@dataclass(frozen=True)
class Keys:
    """Keys of the configuration file; each is also a variable, with INA_ in front and in capitals."""

    protocol: str = key("", "the protocol (default: switchml)")
    program: str = key("", "the P4 program (default: the protocol's own)")
    values: int = key(2048, "integers per packet: 32, 64, 128, 256, 1024 or 2048 (default: 2048; between machines "
                            f"{ACROSS_VALUES})", unit="int32")
    slots: int = key(64, "slots of each job (its window), a power of two up to 8192 (default: 64)", unit="slots")
    port: str = key("", port_kinds.setting_help())
    check: str = key("", "how check words protect sums from rank to rank, the same for all ranks: off, sum (errors), or keyed "
                         "(forgery, too) (default: sum, where the protocol has check words and "
                         "frames leave shared memory)")
    tags: str = key("", "whether frames to and from a switch process on another machine have tags, by which forged, changed and "
                        "repeated ones are dropped: on or off (default: as the switch process says: on, unless it has --no-tags)")
    codec: str = key(codecs.DEFAULT, "how floats travel: any codec that does not remember (docs/guide/codecs.md), such as exact, "
                     "lanes-16 or mx-e2m1, or auto, which chooses for each tensor by measured times (auto:lanes-16: from lossy "
                     "ones, too) (default: block, and Gloo where it is faster and gives the same bits)")
    rate: float = key(0.0, "of each rank's link, for codec = 'auto' (default: measured)", Range(0, 1e15), unit="bit/s")
    dpdk: str = key("", "EAL's command line (default: huge pages if enough are free, one lcore, no other device)")
    fault: str = key("", "such as loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=1")
    switch: str = key("", "socket of a switch process that runs already: a path, an abstract name, or HOST:PORT, of IPv6 "
                      "[ADDRESS]:PORT. Its protocol, program, values and slots are used; INA_PROTOCOL, where it is set, must "
                      "name the same protocol. Rank 0's holds for all ranks, which name the same process, or none (default: rank "
                      "0 starts a switch process)")
    listen: str = key("", "network interface, or IPv4 address, at which ranks on other machines reach rank 0, where it starts "
                      "their switch process (default: that which leads to MASTER_ADDR)")
    tree: bool = key(True, "whether, where ranks on several machines name no switch, each machine with two ranks or more, other "
                           "than rank 0's, gets a switch process that sums these first; all ranks must want it (default: true)")
    run_by: str = key("ranks", "who runs a job's switch where frames stay in shared memory: ranks, whichever waits, if all and "
                      "the switch process are one user's; or process, the switch process (default: ranks)")
    capture: str = key("", "folder for a pcap file of every worker's packets, as the worker sees them")
    flight: str = key("", "path, without the rank at its end, of files for each rank's last collectives, written when one fails; "
                      "torchfrtrace compares them (/tmp/flight/rank: /tmp/flight/rank0, ...)")
    quiet: bool = key(False, "no lines for people on standard error: which switch a group got, and that a program compiles "
                             "(default: false)")
    trace: str = key("", "file for what the ranks spend their time on, to be opened with ui.perfetto.dev")


def sources(options: Options | None = None) -> Sources[Keys]:
    """Returns the keys that are set, and where. Raises ValueError for a file that is missing or not TOML, and for options in a
    dictionary, which would all be passed over."""
    if isinstance(options, Mapping):
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ValueError(f"pg_options={options!r}: expected ina.backend.Options({written})")
    found = Sources(Keys)
    found.add_file(_file())
    found.add_environment("INA_", OTHERS)
    for field in fields(options or Options()):
        if (value := getattr(options, field.name, None)) is not None:
            found.add(field.name, value, f"Options({field.name}={value!r})")
    return found


def _file() -> documents.Document:
    configured = os.environ.get("INA_CONFIG", "")
    path = Path(configured or paths.config_home() / "ina.toml")
    try:
        return documents.document(path if configured or path.is_file() else None)
    except OSError as error:
        raise ValueError(f"configuration file {path}, which INA_CONFIG names: {error.strerror}" if configured else
                         f"configuration file {path}: {error.strerror}") from None
    except documents.Unreadable as error:
        raise ValueError(f"configuration file {error}") from None


@dataclass(frozen=True)
class Settings:
    """Settings of a group, checked; what ``Keys`` say, ready for use."""

    protocol: str  # "": not set
    program: Path
    values: int = 2048
    slots: int = 64
    pool: int = protocols.POOL
    port: str = ""  # "": the default of the way to the switch process
    codec: str = codecs.DEFAULT
    codec_is_set: bool = False
    rate: float = 0.0
    dpdk: tuple[str, ...] = ()
    faults: Faults | None = None
    switch: str = ""
    capture: str = ""
    trace: str = ""
    flight: str = ""
    check: str = ""  # "": the job's, or its protocol's default
    run_by: str = "ranks"
    quiet: bool = False
    values_are_set: bool = True
    listen: str = ""
    tags: str = ""  # "": as the switch process says
    tree: bool = True

    def values_at(self, apart: bool) -> int:
        """Returns the integers in a packet. ``apart``: for ranks on several machines."""
        return self.values if self.values_are_set or not apart else ACROSS_VALUES

    def port_at(self, switch: str) -> str:
        """Returns the setting of the port for a group at the switch process of that name."""
        return self.port or port_kinds.default(elsewhere(switch))

    @classmethod
    def read(cls, options: Options | None = None) -> Settings:
        """Reads ``options``, the environment and the configuration file. Raises ValueError, which names all wrong keys and
        their places."""
        found = sources(options)
        keys = found.read()
        protocol = keys.protocol
        if protocol:
            with found.errors("protocol"):
                protocols.check_name(protocol)
                protocol = str(protocols.own_path(protocol)) if protocols.is_own(protocol) else protocol
        if keys.values not in DEFAULT.values:
            found.wrong("values", f"expected one of {', '.join(map(str, DEFAULT.values))}")
        if keys.slots < 1 or keys.slots & (keys.slots - 1) or keys.slots > 8192:
            found.wrong("slots", "expected a power of two from 1 to 8192")
        if keys.check not in ("", *protocols.CHECKS):
            found.wrong("check", f"expected {', '.join(protocols.CHECKS)}")
        elif keys.check and (not protocol or protocol in protocols.names()):
            with found.errors("check"):
                protocols.check_check(protocol or protocols.DEFAULT, keys.check)
        if wrong := fault(keys.switch):
            found.wrong("switch", wrong)
        if keys.tags not in ("", "on", "off"):
            found.wrong("tags", "expected on or off")
        if keys.run_by not in RUN_BY:
            found.wrong("run_by", f"expected {' or '.join(RUN_BY)}")
        with found.errors("port"):
            kind = port_kinds.setting_kind(keys.port or port_kinds.DEFAULT)
            with found.errors("port"):
                kind.check(keys.port or port_kinds.DEFAULT)
            if kind.needs and not keys.switch:
                found.wrong("port", kind.needs)
        with found.errors("codec"):
            for name in planner.allowed(keys.codec) or (keys.codec,):
                if codecs.named(name).remembers:
                    found.wrong("codec", f"{name} remembers each tensor: choose it for a bucket, with ina.backend.hooks.Choice")
        eal: tuple[str, ...] = ()
        faults = None
        with found.errors("dpdk", "no command line: "):
            eal = tuple(shlex.split(keys.dpdk))
        if keys.fault:
            with found.errors("fault"):
                faults = parse_faults(keys.fault)
        found.problems.check()
        path = Path(keys.program) if keys.program else protocols.program(protocol or protocols.DEFAULT)
        return cls(protocol, path, keys.values, keys.slots, max(cls.pool, keys.slots), keys.port, keys.codec,
                   found.is_set("codec"), keys.rate, eal, faults, keys.switch, keys.capture, keys.trace, keys.flight,
                   keys.check, keys.run_by, keys.quiet, found.is_set("values"), keys.listen, keys.tags, keys.tree)
