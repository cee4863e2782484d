"""Kinds of a worker's port: each is one class in one file, ``ina/aggregation/port_kinds/<name>.py``, which ends with ``KIND``,
its only instance.

    INA_PORT=dpdk@3:DEVICE      setting: a kind's name; a device, where workers bring one, and perhaps its place at the switch
    dpdk@3, udp@10.0.0.2:4000   request to the switch process: the kind's name, and perhaps a place
    {"kind": "dpdk", ...}       offer of the switch process, with descriptors

Everyone else asks for a kind by its name; frames are moved by its C (``host/net/port.h``, ``host/dpdk/``).
"""

from __future__ import annotations

import functools
import pkgutil
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from ina.net.ports import Address, Port

DEFAULT = "shm"
KEY = 16  # bytes of a key of tags
ACROSS = "udp"  # the default where the switch process is asked over TCP, so that other machines reach it
RTO_MIN_NETWORK = 10e-3  # retransmissions use the link, too, and the kernel's timers and queues are in every round trip


@dataclass(frozen=True)
class Tags:
    """Keys of the tags of frames (host/net/tag.h) to the switch and to the worker, 16 bytes each."""

    to_switch: bytes = field(repr=False)
    to_worker: bytes = field(repr=False)

    @classmethod
    def of(cls, derive: Callable[[str], bytes], salt: str) -> Tags:
        """Returns the keys of a port, the same at both ends of the control connection, whose keys ``derive`` makes; new ones for
        each ``salt``."""
        return cls(*(derive(f"frames to the {end} {salt}")[:KEY] for end in ("switch", "worker")))


@dataclass(frozen=True)
class End:
    """One end of a port: addresses of the worker and of the switch as frames have them; it holds ``frames`` of up to
    ``max_frame`` bytes each way, without the ``tags`` that they may have on the wire."""

    worker: Address
    switch: Address
    max_frame: int
    frames: int
    tags: Tags | None = None


class Control(NamedTuple):
    """IP addresses of the ends of a worker's control connection; "": it is no connection of TCP. ``tags``: keys that both ends
    made of it for the port; None: its frames have no tags."""

    switch: str = ""
    worker: str = ""
    tags: Tags | None = None


LOCAL = Control()  # between processes of one machine


class Opened(NamedTuple):
    """The switch's end, and offer and descriptors for the worker (the caller closes them)."""

    port: Port
    offer: dict[str, Any]
    fds: list[int]


class PortKind:
    """Base of all kinds.

    ``help``: of the setting, in a line. ``own_device``: workers bring a device, which leads to a port that the switch has
    already; else the switch process makes both ends. ``places``: a request may say at which place the worker is. ``tags``: frames
    from and to such a place can have tags. ``needs``: what else must be there where INA_SWITCH is not set; "": nothing.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    own_device: ClassVar[bool] = False
    places: ClassVar[bool] = False
    tags: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    rto_min: ClassVar[float]  # least RTO in seconds at the switch process of the job itself
    rto_min_network: ClassVar[float] = RTO_MIN_NETWORK  # at one that runs already, perhaps elsewhere
    check_words: ClassVar[str] = ""  # of protocols.CHECKS, at the switch process of the job itself; "": the protocol's default
    spin: ClassVar[float] = 0.0  # seconds after a frame for which the port is looked at without pause
    yields: ClassVar[float] = 0.0  # seconds for which a rank that waits gives its processor away before it sleeps

    @property
    def form(self) -> str:
        """The setting's shortest form, for messages."""
        return f"{self.name}:DEVICE" if self.own_device else self.name

    def check(self, setting: str) -> None:
        """Checks the part of a setting after the kind's name. Raises ValueError."""

    def bring(self, control: socket.socket) -> tuple[str, list[int]]:
        """Returns a worker's request over its connection to the switch process, and descriptors of its own that the offer will
        need, after the switch's; the caller closes them. Raises ValueError, OSError."""
        return self.name, []

    def open_switch(self, end: End, place: str = "", control: Control = LOCAL) -> Opened:
        """Opens the switch's end of a new port, to a worker at ``place``, who asked over ``control``. Raises ValueError: this
        switch process cannot, or the worker is not there; OSError."""
        raise NotImplementedError

    def open_offered(self, offer: Mapping[str, Any], fds: Sequence[int], end: End) -> Port:
        """Opens the worker's end by the switch's offer; the descriptors, the switch's and then the worker's own, stay the
        caller's. Raises ValueError, OSError."""
        raise NotImplementedError

    # ---- with a device of the worker's own

    def request(self, setting: str, number: int) -> str:
        """Returns the request of process ``number`` of the job, with the place at the switch that its device leads to."""
        raise NotImplementedError

    def open_own(self, setting: str, number: int, udp_port: int, max_frame: int, arguments: Sequence[str],
                 timeout: float) -> Port:
        """Opens a port on the device of process ``number`` for frames of up to ``max_frame`` bytes to ``udp_port``.

        ``arguments``: of the device's driver; ``timeout``: seconds for its link to come up. Raises ValueError, OSError.
        """
        raise NotImplementedError


@functools.cache
def kinds() -> Mapping[str, PortKind]:
    """Returns the kinds by name: those that a switch process makes first."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found: list[PortKind] = sorted((module.KIND for module in modules), key=lambda kind: (kind.own_device, kind.name))
    return {kind.name: kind for kind in found}


def made_kinds() -> tuple[str, ...]:
    """Returns names of the kinds of which any switch process makes both ends."""
    return tuple(kind.name for kind in kinds().values() if not kind.own_device)


def default(elsewhere: bool) -> str:
    """Returns the name of the kind where nobody asks for one. ``elsewhere``: other machines reach the switch process."""
    return ACROSS if elsewhere else DEFAULT


def setting_kind(setting: str) -> PortKind:
    """Returns the kind of a setting, whose further parts ``check`` checks. Raises ValueError."""
    kind = kinds().get(re.split("[@:]", setting, maxsplit=1)[0])
    if kind is None or (setting != kind.name and not kind.own_device):
        raise ValueError(f"expected {_either(kind.form for kind in kinds().values())}")
    return kind


def setting_help() -> str:
    """Returns the help of the setting: that of each kind, and the default."""
    *helps, last = (kind.help for kind in kinds().values())
    return f"{', '.join([*helps, f'or {last}'])} (default: {DEFAULT}, over TCP {ACROSS})"


def requested_kind(request: str) -> tuple[PortKind, str]:
    """Returns the kind of a request and the place at the switch that it names; "": none. Raises ValueError."""
    name, at, place = request.partition("@")
    kind = kinds().get(name)
    if kind is None or (at and not kind.places):
        raise ValueError(f"unknown kind of port {request!r}; expected {_either(map(repr, made_kinds()))}")
    return kind, place


def offered_kind(offer: Mapping[str, Any]) -> PortKind:
    """Returns the kind of an offer. Raises ValueError."""
    kind = kinds().get(offer["kind"])
    if kind is None:
        raise ValueError(f"the switch process offers a port of unknown kind {offer['kind']!r}; expected "
                         f"{_either(map(repr, kinds()))}")
    return kind


def _either(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
