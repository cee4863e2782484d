"""Who starts the switch process, how ranks find it, and that they are where they can reach it.

The first rank of a new group names the switch: one that this process knows already and that speaks the group's protocol,
or a new one that it starts.
Its abstract socket listens before the process runs, so nobody waits here for anything but the other ranks of the
group (as Gloo's own rendezvous does), and a first answer is awaited only where one is needed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ina.aggregation import protocols
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess
from ina.aggregation.socket.channel import elsewhere
from ina.backend.settings import Settings
from ina.base import tokens

if TYPE_CHECKING:
    import torch.distributed as dist

# Switches known to this process, by socket name:
_processes: dict[str, SwitchProcess] = {}  # those that it started
_users: dict[str, int] = {}  # groups of this process that use it
_pids: dict[str, int] = {}  # their process ids
_protocols: dict[str, str] = {}  # what they speak


@dataclass(frozen=True)
class Place:
    """Where a rank is: abstract sockets reach as far as one network name space of one running kernel."""

    host: str
    kernel: str
    network: int

    @classmethod
    def here(cls) -> Place:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return cls(socket.gethostname(), file.read().strip(), os.stat("/proc/self/ns/net").st_ino)


@dataclass(frozen=True)
class Agreement:
    """The group's switch process (socket name, process id), a word that no other group's job has in its name, and what proves
    to the switch process that a process is of the group. ``access``: the token of a socket that other machines reach, else ""."""

    switch: str
    pid: int
    nonce: str
    token: str
    access: str


def agree(store: dist.Store, rank: int, size: int, timeout: timedelta, settings: Settings) -> Agreement:
    """The switch of a new group; the same on all ranks.

    Call on all ranks of a group, with a store of its own. Raises RuntimeError on every rank if they are not all on one
    machine, and when a rank does not come within ``timeout``.
    """
    place = Place.here()
    mine: dict = {"place": [place.host, place.kernel, place.network], "protocol": settings.protocol}
    if rank == 0:
        mine["switch"] = acquire(settings)
        mine["pid"], mine["protocol"] = _pids[mine["switch"]], _protocols[mine["switch"]]
        mine["nonce"], mine["token"] = uuid.uuid4().hex[:8], secrets.token_hex(16)
        mine["access"] = tokens.find() if elsewhere(mine["switch"]) else ""  # so other machines need none
    try:
        store.set(f"rank/{rank}", json.dumps(mine))
        keys = [f"rank/{i}" for i in range(size)]
        try:
            store.wait(keys, timeout)
        except RuntimeError as error:  # DistStoreError
            missing = [i for i in range(size) if not store.check([keys[i]])]
            raise RuntimeError(f"ina: ranks {missing} of {size} did not join the group within "
                               f"{timeout.total_seconds():g} s") from error
        ranks = [json.loads(text) for text in store.multi_get(keys)]
        places = [Place(*r["place"]) for r in ranks]
        name = ranks[0]["switch"]
        anywhere = "/" in name  # a path is the same in every network name space of a machine
        for other, there in enumerate(places if not elsewhere(name) else ()):
            if there.kernel != places[0].kernel or (there.network != places[0].network and not anywhere):
                what = "machines" if there.kernel != places[0].kernel else "network name spaces"
                raise RuntimeError(f"ina: the local world needs all ranks on one machine, but ranks 0 and {other} are "
                                   f"on different {what} ({places[0].host} and {there.host}); start all ranks on one, "
                                   "or use the back end 'gloo'")
        for other, said in enumerate(ranks):
            if said["protocol"] not in ("", ranks[0]["protocol"]):
                raise RuntimeError(f"ina: rank 0 has the protocol {ranks[0]['protocol']!r}, but rank {other} asks for "
                                   f"{said['protocol']!r}; INA_PROTOCOL (or pg_options) must be the same on all ranks")
    except BaseException:
        if rank == 0:
            release(mine["switch"])
        raise
    name = ranks[0]["switch"]
    if rank != 0:
        _users[name] = _users.get(name, 0) + 1
        _pids[name], _protocols[name] = ranks[0]["pid"], ranks[0]["protocol"]
    return Agreement(name, _pids[name], ranks[0]["nonce"], ranks[0]["token"], ranks[0]["access"])


def acquire(settings: Settings) -> str:
    """Socket name of a switch that runs (INA_SWITCH), that this process knows, or of a new one. One ``release`` per call."""
    wanted = settings.protocol or protocols.DEFAULT
    known = [name for name in _users if _protocols[name] == wanted]
    if settings.switch:
        name = settings.switch
        if name not in _pids:
            _ask(name)
        if settings.protocol not in ("", _protocols[name]):
            raise RuntimeError(f"ina: INA_SWITCH={name} speaks {_protocols[name]}, but INA_PROTOCOL={settings.protocol}")
    elif known:
        name = known[0]
    else:
        defines = {"VALUES": str(settings.values), "SLOTS": str(settings.pool)}
        process = SwitchProcess(settings.program, defines, job_slots=settings.slots)
        name = process.name
        _processes[name], _pids[name], _protocols[name] = process, process.pid, wanted
    _users[name] = _users.get(name, 0) + 1
    return name


def _ask(name: str) -> None:
    """Learns of a switch process that this process did not start."""
    try:
        client = Client(name)
        try:
            about = client.ping()
        finally:
            client.close()
    except ControlError as error:
        raise RuntimeError(f"ina: INA_SWITCH={name}: {error}") from error
    _pids[name], _protocols[name] = about["pid"], about["protocol"]


def release(name: str, wait: float = 2.0) -> None:
    """A group of this process has ended. After the last one the switch process is let go."""
    _users[name] -= 1
    if not _users[name]:
        del _users[name], _pids[name], _protocols[name]
        if process := _processes.pop(name, None):
            process.close(wait)


_number: int | None = None


def number(rank: int) -> int:
    """Of this process among those of the job that runs it: RANK, as torchrun sets it, or its ``rank`` in its first group."""
    global _number
    if _number is None:
        _number = int(os.environ.get("RANK", rank))
    return _number


def log_tail(name: str) -> str:
    """The end of the log of that switch process if this process started it, else ""."""
    return _processes[name].log_tail() if name in _processes else ""
