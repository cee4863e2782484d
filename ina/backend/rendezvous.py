"""Rendezvous: rank 0 of a group starts or names the switch process, and all ranks check that they can reach it.

The first rank of a new group names the switch: one that this process uses already and that speaks the group's protocol,
or a new one that it starts.
The group's store has neither authentication nor encryption, and anybody who reaches it may read and write: no secret goes into it
but the token and the pass of the group's job, which are good for nothing else.
Its abstract socket listens before the process runs, so ranks wait here only for the other ranks of the group (as in Gloo's own
rendezvous), and for a first answer only where one is needed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ina.aggregation import protocols
from ina.aggregation.control_socket.channel import elsewhere
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess
from ina.backend.settings import Options, Settings
from ina.base import tokens
from ina.base.native import lib
from ina.base.notices import notice

if TYPE_CHECKING:
    import torch.distributed as dist

# Switches known to this process, by socket name:
_processes: dict[str, SwitchProcess] = {}  # started by this process
_users: dict[str, int] = {}  # number of groups of this process that use it
_pids: dict[str, int] = {}  # their process ids
_protocols: dict[str, str] = {}  # their protocols
_told: set[str] = set()  # those of which rank 0 of this process's first group there has said what they are


@dataclass(frozen=True)
class Place:
    """Place of a rank: abstract sockets reach as far as one network name space of one running kernel."""

    host: str
    kernel: str
    network: int

    @classmethod
    def here(cls) -> Place:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return cls(socket.gethostname(), file.read().strip(), os.stat("/proc/self/ns/net").st_ino)


@dataclass(frozen=True)
class Agreement:
    """The group's switch process (socket name, process id), a word that no other group's job has in its name, and the token that
    shows to the switch process that a process is of the group. ``access``: the pass of the group's job at a socket that other
    machines reach, else "". ``runs``: the ranks may run the job's switch: all want it, are one user's and see the same files."""

    switch: str
    pid: int
    nonce: str
    token: str
    access: str
    runs: bool


def agree(store: dist.Store, rank: int, size: int, timeout: timedelta, settings: Settings) -> Agreement:
    """Returns the switch of a new group; the same on all ranks.

    Call on all ranks of a group, with a store of its own. Raises RuntimeError on every rank if they are not all on one
    machine, and when a rank does not come within ``timeout``.
    """
    place = Place.here()
    own: dict = {"place": [place.host, place.kernel, place.network], "protocol": settings.protocol,
                 "runs": [settings.run_by == "ranks", os.geteuid(), os.stat("/proc/self/ns/mnt").st_ino]}
    if rank == 0:
        own["switch"] = acquire(settings)
        own["pid"], own["protocol"] = _pids[own["switch"]], _protocols[own["switch"]]
        own["nonce"], own["token"] = uuid.uuid4().hex[:8], secrets.token_hex(16)
        # So other machines need no token of the socket. Whoever reaches the store reads what is here: it is of this job only.
        own["access"] = tokens.pass_for(tokens.find(), own["token"]) if elsewhere(own["switch"]) else ""
    try:
        store.set(f"rank/{rank}", json.dumps(own))
        keys = [f"rank/{i}" for i in range(size)]
        try:
            store.wait(keys, timeout)
        except RuntimeError:  # DistStoreError
            missing = [i for i in range(size) if not store.check([keys[i]])]
            raise RuntimeError(f"ina: ranks {missing} of {size} did not join the group within "
                               f"{timeout.total_seconds():g} s") from None
        ranks = [json.loads(text) for text in store.multi_get(keys)]
        places = [Place(*r["place"]) for r in ranks]
        name = ranks[0]["switch"]
        anywhere = "/" in name  # a path is the same in every network name space of a machine
        for other, location in enumerate(places if not elsewhere(name) else ()):
            if location.kernel != places[0].kernel or (location.network != places[0].network and not anywhere):
                kind = "machines" if location.kernel != places[0].kernel else "network name spaces"
                raise RuntimeError(f"ina: the local world needs all ranks on one machine, but ranks 0 and {other} are "
                                   f"on different {kind} ({places[0].host} and {location.host}); start all ranks on one, "
                                   "name a switch process that all reach (INA_SWITCH=tcp:HOST:PORT, docs/guide/servers.md), "
                                   "or use the back end 'gloo'")
        for other, report in enumerate(ranks):
            if report["protocol"] not in ("", ranks[0]["protocol"]):
                raise RuntimeError(f"ina: rank 0 has the protocol {ranks[0]['protocol']!r}, but rank {other} asks for "
                                   f"{report['protocol']!r}; INA_PROTOCOL (or pg_options) must be the same on all ranks")
    except BaseException:
        if rank == 0:
            release(own["switch"])
        raise
    name = ranks[0]["switch"]
    if rank != 0:
        _users[name] = _users.get(name, 0) + 1
        _pids[name], _protocols[name] = ranks[0]["pid"], ranks[0]["protocol"]
    return Agreement(name, _pids[name], ranks[0]["nonce"], ranks[0]["token"], ranks[0]["access"],
                     ranks[0]["runs"][0] and all(report["runs"] == ranks[0]["runs"] for report in ranks))


def acquire(settings: Settings) -> str:
    """Returns the socket name of a switch: a running one (INA_SWITCH), one that this process uses, or a new one. One ``release``
    per call."""
    protocol = settings.protocol or protocols.DEFAULT
    candidates = [name for name in _users if _protocols[name] == protocol]
    if settings.switch:
        name = settings.switch
        if name not in _pids:
            _learn(name)
        if settings.protocol not in ("", _protocols[name]):
            raise RuntimeError(f"ina: INA_SWITCH={name} speaks {_protocols[name]}, but INA_PROTOCOL={settings.protocol}")
    elif candidates:
        name = candidates[0]
    else:
        defines = {"VALUES": str(settings.values), "SLOTS": str(settings.pool)}
        process = SwitchProcess(settings.program, defines, job_slots=settings.slots, notices=not settings.quiet)
        name = process.name
        _processes[name], _pids[name], _protocols[name] = process, process.pid, protocol
    _users[name] = _users.get(name, 0) + 1
    return name


@contextmanager
def prepared(rank: int, size: int, options: object) -> Iterator[None]:
    """Starts the switch process that a new group is going to ``acquire``, if it needs a new one: it gets ready while this process
    imports the rest of the back end. ``options``: the group's; what is wrong with them is said when it is made."""
    if rank or not 1 < size <= lib.INA_BITMAP_WORKERS or not isinstance(options, Options | None):
        yield
        return
    name = acquire(Settings.read(options))
    try:
        yield
    finally:
        release(name)


@contextmanager
def kept(name: str) -> Iterator[None]:
    """Keeps a switch process that this process has started while one group after another uses it."""
    if name not in _processes:
        yield
        return
    _users[name] += 1
    try:
        yield
    finally:
        release(name)


def _learn(name: str) -> None:
    """Gets process id and protocol of a switch process that this process did not start."""
    try:
        client = Client(name)
        try:
            about = client.ping()
        finally:
            client.close()
    except ControlError as error:
        raise RuntimeError(f"ina: INA_SWITCH={name}: {error}") from None
    _pids[name], _protocols[name] = about["pid"], about["protocol"]


def release(name: str, wait: float = 2.0) -> None:
    """Releases a switch when a group of this process has ended. After the last one the switch process ends."""
    _users[name] -= 1
    if not _users[name]:
        del _users[name], _pids[name], _protocols[name]
        _told.discard(name)
        if process := _processes.pop(name, None):
            process.close(wait)


def tell(agreed: Agreement, rank: int, size: int, settings: Settings) -> None:
    """Prints which switch a new group of ``size`` ranks got: on rank 0 of the first group that a process has there."""
    name = agreed.switch
    if name in _told:
        return
    _told.add(name)
    if rank or settings.quiet:
        return
    frames = f"frames by {settings.port_at(name)}"
    if name in _processes:
        sizes = f"{settings.values} int32 a packet, {settings.slots} slots a job"
        notice(f"{size} ranks sum through a switch of their own, process {agreed.pid}, which ends with them: "
               f"{settings.program.name} ({_protocols[name]}), {sizes}, {frames}")
    else:
        where = "that is deployed" if elsewhere(name) else "that runs already"
        notice(f"{size} ranks sum through a switch {where} at {name}, process {agreed.pid} (INA_SWITCH): {_protocols[name]}, "
               f"{frames}")


_number: int | None = None


def number(rank: int) -> int:
    """Returns this process's number in its launcher's job: RANK, as torchrun sets it, or its ``rank`` in its first group."""
    global _number
    if _number is None:
        _number = int(os.environ.get("RANK", rank))
    return _number


def log_tail(name: str) -> str:
    """Returns the end of the log of that switch process if this process started it, else ""."""
    return _processes[name].log_tail() if name in _processes else ""
