"""Rendezvous: rank 0 of a group starts or names the switch process, and all ranks check that they can reach it.

The first rank of a new group names the switch, once it knows where all are: one that this process uses already and that speaks
the group's protocol, or a new one that it starts: on a socket of this machine or, where ranks are on several, on a TCP port.
The group's store has neither authentication nor encryption, and anybody who reaches it may read and write: no secret goes into it
but the token and the pass of the group's job, which are good for nothing else.
Its abstract socket listens before the process runs, so ranks wait here only for the other ranks of the group (as in Gloo's own
rendezvous), and for a first answer only where one is needed.
"""

from __future__ import annotations

import json
import os
import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ina.aggregation import port_kinds, protocols
from ina.aggregation.control_socket.channel import elsewhere, shown
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess
from ina.backend import machine_switches, switch_names, switch_trees
from ina.backend.places import Place, address_elsewhere, host_of, own_address, reaches
from ina.backend.settings import Options, Settings
from ina.backend.switch_names import Identity
from ina.base import tokens
from ina.base.native import lib
from ina.base.notices import notice

if TYPE_CHECKING:
    import torch.distributed as dist

ANSWER = 5.0  # seconds in which a switch process on another machine answers a new group, or counts as gone
# Switches known to this process, by socket name:
_processes: dict[str, SwitchProcess] = {}  # started by this process
_users: dict[str, int] = {}  # number of groups of this process that use it
_pids: dict[str, int] = {}  # their process ids
_started: dict[str, float] = {}  # when they started, as they say (Identity); 0: not known
_protocols: dict[str, str] = {}  # their protocols
_passes: dict[str, str] = {}  # passes of jobs there that others' rank 0 made; good for shrunk groups, too
_machines: dict[str, list[object]] = {}  # kernel and network name space of those on TCP that ranks have started
_roots: dict[str, str] = {}  # of this machine's below rank 0's (machine_switches.py): that; a group there counts at both
_below: dict[str, str] = {}  # the other way round; "": there can be none below that
_told: set[str] = set()  # those of which rank 0 of this process's first group there has said what they are


@dataclass(frozen=True)
class Agreement:
    """The group's switch process (socket name, process id), a word that no other group's job has in its name, and the token that
    shows to the switch process that a process is of the group. ``access``: the pass of the group's job at a socket that other
    machines reach, else "". ``runs``: the ranks may run the job's switch: all want it, are one user's and see the same files.
    ``paths``: of all ranks in a tree of switch processes (switch_trees.py), where ``switch`` is this rank's; none: there is one.
    ``started``: when that switch process started, as it says (Identity); 0: not known. ``above``: the pass of the group's job at
    the switch process above this rank's, where that needs one.
    """

    switch: str
    pid: int
    nonce: str
    token: str = field(repr=False)
    access: str = field(repr=False)
    runs: bool
    paths: tuple[str, ...] = ()
    started: float = 0.0
    above: str = field(default="", repr=False)


def agree(store: dist.Store, rank: int, size: int, timeout: timedelta, settings: Settings) -> Agreement:
    """Returns the switch of a new group; the same on all ranks.

    Call on all ranks of a group, with a store of its own. Raises RuntimeError on every rank if rank 0 cannot name a switch that
    all reach, and when a rank does not come within ``timeout``.
    """
    place = Place.here()
    own = {"place": [place.host, place.kernel, place.network], "address": address_elsewhere(host_of(store)),
           "protocol": settings.protocol, "switch": settings.switch,
           "runs": [settings.run_by == "ranks", os.geteuid(), os.stat("/proc/self/ns/mnt").st_ino],
           **switch_trees.report(settings.switch, _passes.get(settings.switch, "")), **machine_switches.report(settings, _below)}
    store.set(f"rank/{rank}", json.dumps(own))
    keys = [f"rank/{i}" for i in range(size)]
    try:
        store.wait(keys, timeout)
    except RuntimeError:  # DistStoreError
        missing = [i for i in range(size) if not store.check([keys[i]])]
        raise RuntimeError(f"ina: ranks {missing} of {size} did not join the group within "
                           f"{timeout.total_seconds():g} s") from None
    ranks = [json.loads(text) for text in store.multi_get(keys)]
    paths = switch_trees.paths(ranks)
    if rank == 0:
        try:
            places = [Place(*each["place"]) for each in ranks]
            others = [each["address"] for each, there in zip(ranks, places, strict=True) if not there.is_with(place)]
            name = acquire(settings, [] if paths else places, host_of(store), others)
        except Exception as error:
            store.set("switch", json.dumps({"error": str(error)}))
            raise
        if name in _processes and elsewhere(name):
            _machines[name] = [place.kernel, place.network]
        chosen: dict[str, Any] = {"switch": name, "pid": _pids[name], "started": _started[name], "protocol": _protocols[name],
                                  "machine": _machines.get(name), "nonce": uuid.uuid4().hex[:8], **_access(name)}
        store.set("switch", json.dumps(chosen))
    else:
        try:
            store.wait(["switch"], timeout)
        except RuntimeError:
            raise RuntimeError(f"ina: rank 0 of {size} named no switch within {timeout.total_seconds():g} s") from None
        chosen = json.loads(store.get("switch"))
        if "error" in chosen:
            raise RuntimeError(chosen["error"])
        if paths and settings.switch:  # rank 0's name may be another process's here, its pass no good
            name, chosen["access"] = _use(settings.switch), ""
        else:
            name = chosen["switch"]
            _users[name] = _users.get(name, 0) + 1
            _pids[name], _started[name], _protocols[name] = chosen["pid"], chosen["started"], chosen["protocol"]
            if chosen["access"]:
                _passes[name] = chosen["access"]
            if chosen["machine"]:
                _machines[name] = chosen["machine"]
    with ExitStack() as undo:
        undo.callback(release, name)
        if not paths:
            switch_names.check(store, rank, [report["switch"] for report in ranks], name,
                               Identity(chosen["pid"], chosen["started"]), chosen["access"], timeout)
        for other, report in enumerate(ranks):
            if report["protocol"] not in ("", chosen["protocol"]):
                raise RuntimeError(f"ina: rank 0 has the protocol {chosen['protocol']!r}, but rank {other} asks for "
                                   f"{report['protocol']!r}; INA_PROTOCOL (or pg_options) must be the same on all ranks")
        above = ""
        root = machine_switches.Root(name, chosen["access"], chosen["protocol"], None if paths else chosen["machine"])
        if led := machine_switches.leaders(ranks, root):
            tree = machine_switches.agree(store, rank, ranks, led, root, settings, timeout)
            paths, switch = tree.paths, _place_in(tree, root, rank, settings)
            if switch != name:
                undo.pop_all()
                undo.callback(release, switch)
                name, above, chosen["access"] = switch, root.access, ""
        undo.pop_all()
    runs = not paths and ranks[0]["runs"][0] and all(report["runs"] == ranks[0]["runs"] for report in ranks)
    return Agreement(name, _pids[name], chosen["nonce"], chosen["token"], chosen["access"], runs, paths, _started[name], above)


def _place_in(tree: machine_switches.Tree, root: machine_switches.Root, rank: int, settings: Settings) -> str:
    """Notes which switch process this rank has in a new group's tree, beside the ``root``; returns its name. Where there is no
    tree, rank 0 says why: once, as it is not tried again."""
    if not tree.paths:
        _below[root.name] = ""
        if tree.failure and not rank and not settings.quiet:
            notice(f"the ranks of each machine are not summed there first, but all at {shown(root.name)}, as no switch process "
                   f"could be started {tree.failure}")
    if not tree.switch:
        return root.name
    name = tree.switch
    if tree.process:
        _processes[name] = tree.process
    _pids[name], _started[name], _protocols[name] = tree.identity.pid, tree.identity.started, root.protocol
    _users[name] = _users.get(name, 0) + 1
    _roots[name], _below[root.name] = root.name, name
    return name


def _use(name: str) -> str:
    """Notes that a new group uses a switch process that runs already, this rank's in a tree; returns its name. Raises
    RuntimeError: it does not answer."""
    if name not in _processes:  # it may have been replaced since an earlier group
        _learn(name)
    _users[name] = _users.get(name, 0) + 1
    return name


def _access(name: str) -> dict[str, str]:
    """Returns the token of a new job and, where other machines reach the switch ``name``, the job's pass: so they need no token
    of the socket. Whoever reaches the store reads both: they are of this group only. A process without the socket's token makes
    the new one from that of the job whose pass it has."""
    if not elsewhere(name):
        return {"token": secrets.token_hex(16), "access": ""}
    if access := _passes.get(name):
        return {"token": tokens.further(tokens.said_in(access)), "access": access}
    token = secrets.token_hex(16)
    return {"token": token, "access": tokens.pass_for(_own_access(name), token)}


def _own_access(name: str) -> str:
    """Returns the token of a socket that other machines reach. Raises TokenError."""
    return _processes[name].access if name in _processes else tokens.find()


def acquire(settings: Settings, places: Sequence[Place] = (), host: str = "", others: Sequence[str] = ()) -> str:
    """Returns the socket name of a switch that the ranks at ``places`` reach: a running one (INA_SWITCH), one that this process
    uses, or a new one. One ``release`` per call. ``host``: that of the store; ``others``: addresses of ranks elsewhere.
    Raises RuntimeError, ValueError, OSError."""
    protocol = settings.protocol or protocols.DEFAULT
    apart = next((each for each in range(len(places)) if not places[each].is_with(places[0])), 0)
    if settings.switch:
        name = settings.switch
        # One elsewhere may have been replaced since an earlier group, which may be there still, learned what it is.
        if name not in _pids or elsewhere(name) and name not in _processes:
            _learn(name)
        if settings.protocol not in ("", _protocols[name]):
            raise RuntimeError(f"ina: INA_SWITCH={name} speaks {_protocols[name]}, but INA_PROTOCOL={settings.protocol}")
        if apart and not reaches(name, places):
            kind = "machines" if places[apart].kernel != places[0].kernel else "network name spaces"
            raise RuntimeError(f"ina: INA_SWITCH={name} is reached from one of them only, but ranks 0 and {apart} are on "
                               f"different {kind} ({places[0].host} and {places[apart].host}); start all ranks on one, leave "
                               "INA_SWITCH out, or name a switch that all reach (INA_SWITCH=HOST:PORT, docs/guide/servers.md)")
    else:
        # Ranks of one machine are nearer to each other than to any switch elsewhere.
        known = [each for each in _users
                 if _protocols[each] == protocol and elsewhere(each) <= bool(apart) and each not in _roots]
        reached = (each for each in known if reaches(each, places) and _answers(each))
        name = next(reached, "") or _start(settings, protocol, bool(apart), host, others)
    _users[name] = _users.get(name, 0) + 1
    return name


def _answers(name: str) -> bool:
    """Returns False if the switch process has gone with the machine of another group's rank 0."""
    if not elsewhere(name):
        return True
    try:
        with closing(Client(name, ANSWER, access=_passes.get(name, "") or _own_access(name))) as client:
            client.ping()
    except ControlError as error:
        if error.code == "token":  # that of a process that was there before, whose pass is good for nothing any more
            _passes.pop(name, None)
        return False
    return True


def _start(settings: Settings, protocol: str, apart: bool, host: str, others: Sequence[str]) -> str:
    """Starts a switch process of the group's own. ``apart``: for ranks on several machines, which reach ``host``, or are at
    addresses of ``others``. Raises RuntimeError."""
    if apart and not port_kinds.setting_kind(settings.port or port_kinds.ACROSS).places:
        raise RuntimeError(f"ina: INA_PORT={settings.port} reaches one machine, but the ranks are on several: leave it out, or "
                           f"set INA_PORT={port_kinds.ACROSS}")
    defines = {"VALUES": str(settings.values_at(apart)), "SLOTS": str(settings.pool)}
    process = SwitchProcess(settings.program, defines, f"tcp:{own_address(settings, host, others)}:0" if apart else None,
                            job_slots=settings.slots, notices=not settings.quiet)
    _processes[process.name], _pids[process.name], _protocols[process.name] = process, process.pid, protocol
    _started[process.name] = 0.0
    return process.name


@contextmanager
def prepared(rank: int, size: int, options: object) -> Iterator[None]:
    """Starts the switch process that a new group is going to ``acquire``, if it needs a new one: it gets ready while this process
    imports the rest of the back end. ``options``: the group's; what is wrong with them is said when it is made."""
    likely_apart = os.environ.get("LOCAL_WORLD_SIZE", "") not in ("", os.environ.get("WORLD_SIZE"))  # torchrun's
    with ExitStack() as stack:
        if not rank and not likely_apart and 1 < size <= lib.INA_BITMAP_WORKERS and isinstance(options, Options | None):
            with suppress(RuntimeError, ValueError, OSError):  # said on all ranks when the group is made
                stack.callback(release, acquire(Settings.read(options)))
        yield


@contextmanager
def kept(name: str) -> Iterator[None]:
    """Keeps a switch process that this process has started while one group after another uses it."""
    if name not in _processes:
        yield
        return
    for each in _with_root(name):
        _users[each] += 1
    try:
        yield
    finally:
        release(name)


def _learn(name: str) -> None:
    """Gets process id and protocol of a switch process that this process did not start."""
    access = _passes.get(name, "")
    try:
        try:
            about = _about(name, access)
        except ControlError as error:
            if not access or error.code != "token":
                raise
            del _passes[name]  # of a process that was there before, with another token
            about = _about(name)
    except ControlError as error:
        raise RuntimeError(f"ina: INA_SWITCH={name}: {error}") from None
    _pids[name], _protocols[name], _started[name] = about["pid"], about["protocol"], Identity.of(about).started


def _about(name: str, access: str = "") -> dict[str, Any]:
    with closing(Client(name, access=access)) as client:
        return client.ping()


def release(name: str, wait: float = 2.0) -> None:
    """Releases a switch when a group of this process has ended. After the last one the switch process ends."""
    for each in _with_root(name):
        _users[each] -= 1
        if _users[each]:
            continue
        del _users[each], _pids[each], _protocols[each], _started[each]
        _told.discard(each)
        _machines.pop(each, None)
        _below.pop(each, None)
        if (root := _roots.pop(each, "")) and _below.get(root) == each:
            del _below[root]
        if process := _processes.pop(each, None):
            process.close(wait)


def _with_root(name: str) -> list[str]:
    """Returns a switch process of this one, and the one above it that a group there uses, too."""
    return [name, _roots[name]] if name in _roots else [name]


def tell(agreed: Agreement, rank: int, size: int, settings: Settings) -> None:
    """Prints which switch a new group of ``size`` ranks got: on rank 0 of the first group that a process has there."""
    name = agreed.switch
    if name in _told:
        return
    _told.add(name)
    if rank or settings.quiet:
        return
    tree = switch_trees.shown(agreed.paths) if settings.switch else machine_switches.shown(agreed.paths)
    frames = f"frames by {settings.port_at(name)}{tree}"
    if name in _processes:
        sizes = f"{settings.values_at(elsewhere(name) or name in _roots)} int32 a packet, {settings.slots} slots a job"
        at = f" at {name}" if elsewhere(name) else ""
        notice(f"{size} ranks sum through a switch of their own{at}, process {agreed.pid}, which ends with them: "
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
