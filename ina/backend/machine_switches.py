"""Switch processes of the machines of a group whose ranks name no switch: on each machine with two ranks or more, but that of
rank 0's switch process, the first of them starts one below that, which sums them and passes one packet for all of them up.

All ranks know from the first exchange of a new group (rendezvous.py) who starts one, or has one from an earlier group; those then
say what runs there, or why nothing does. All read what all of them say, so all get the same tree, or none and the same reason:
then all ranks send to rank 0's switch process. The access to that is the pass of the group's job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.aggregation import protocols
from ina.aggregation.control_socket.channel import shown as name_shown
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess
from ina.backend.settings import Settings
from ina.backend.switch_names import Identity
from ina.base.error_text import reason

if TYPE_CHECKING:
    import torch.distributed as dist

START = 120.0  # seconds, at most, in which rank 0's switch process, then this machine's, are ready: they may compile first
ANSWER = 5.0  # seconds in which a switch process of an earlier group answers


@dataclass(frozen=True)
class Root:
    """Rank 0's switch process, which is above those of machines. ``access``: the pass of the group's job there. ``protocol``: the
    one it speaks. ``machine``: kernel and network name space in which it runs; None: it is none that a rank has started."""

    name: str
    access: str = field(repr=False)
    protocol: str
    machine: Sequence[object] | None


@dataclass(frozen=True)
class Tree:
    """A group's tree: the ``paths`` of all ranks (switch_trees.py); none: all are at the root, because of ``failure``, where that
    is not the protocol's nature. ``switch``: this rank's, of its machine; "": the root. ``identity``: of that. ``process``: it,
    where this rank has started it for this group."""

    paths: tuple[str, ...] = ()
    switch: str = ""
    identity: Identity = Identity(0)
    process: SwitchProcess | None = None
    failure: str = ""


def report(settings: Settings, below: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a rank says in the first exchange. ``below``: the switch process of its machine that it uses below each root,
    by the root's name; "": there can be none.

    A rank that asks for tags on all frames (INA_TAGS=on) wants none: frames in shared memory have no tags.
    """
    return {"trees": settings.tree and settings.tags != "on", "below_roots": dict(below)}


def leaders(reports: Sequence[Mapping[str, Any]], root: Root) -> dict[int, tuple[int, ...]]:
    """Returns the ranks of each machine that gets a switch process, by the one that says which; {}: there is no tree.

    ``reports``: of all ranks, with ``place`` (host, kernel, network), ``switch`` and ``runs``, whose second value is the user, as
    rendezvous.py has them.
    """
    if root.machine is None or not all(each.get("trees") and not each["switch"] for each in reports):
        return {}
    known = [each["below_roots"].get(root.name) for each in reports]
    if "" in known:
        return {}
    machines: dict[tuple[object, ...], list[int]] = {}
    for rank, each in enumerate(reports):
        if each["place"][1:] != [*root.machine]:
            machines.setdefault((*each["place"][1:], each["runs"][1]), []).append(rank)
    return {next((rank for rank in ranks if known[rank]), ranks[0]): tuple(ranks)
            for ranks in machines.values() if len(ranks) > 1}


def agree(store: dist.Store, rank: int, reports: Sequence[Mapping[str, Any]], led: Mapping[int, Sequence[int]], root: Root,
          settings: Settings, timeout: timedelta) -> Tree:
    """Returns the tree of a new group. To be called by all ranks with the same ``reports``, ``led`` (``leaders``) and ``root``,
    and a store of its own. Raises RuntimeError on every rank: one of those who lead does not say within ``timeout`` what runs
    there."""
    process: SwitchProcess | None = None
    try:
        if rank in led:
            seconds = min(START, timeout.total_seconds())
            try:
                answer, process = _switch_here(reports[rank]["below_roots"].get(root.name, ""), root, settings, seconds)
            except (RuntimeError, ValueError, OSError) as error:
                answer = {"failure": reason(error)}
            store.set(f"machine/{rank}", json.dumps(answer))
        keys = [f"machine/{each}" for each in led]
        try:
            store.wait(keys, timeout)
        except RuntimeError:  # DistStoreError
            silent = [each for each in led if not store.check([f"machine/{each}"])]
            raise RuntimeError(f"ina: ranks {silent} did not say within {timeout.total_seconds():g} s which switch process sums "
                               "the ranks of their machines (INA_TREE=false: none does)") from None
        answers = {each: json.loads(text) for each, text in zip(led, store.multi_get(keys), strict=True)}
        tree = _tree(rank, reports, led, answers, process)
        process = tree.process
        return tree
    except BaseException:
        if process:
            process.close()
        raise


def _tree(rank: int, reports: Sequence[Mapping[str, Any]], led: Mapping[int, Sequence[int]],
          answers: Mapping[int, Mapping[str, Any]], process: SwitchProcess | None) -> Tree:
    """Returns the tree that the ``answers`` of those who lead make; ends ``process`` where there is none."""
    failures = [f"on rank {each}'s machine ({reports[each]['place'][0]}): {answer['failure']}" for each, answer in answers.items()
                if answer.get("failure")]
    if failures or any("tree" not in answer for answer in answers.values()):
        if process:
            process.close()
        return Tree(failure="; ".join(failures))
    trees = [next(iter(answers.values()))["tree"][-1:] for _ in reports]  # the root alone
    own: Mapping[str, Any] | None = None
    for each, answer in answers.items():
        for member in led[each]:
            trees[member] = answer["tree"]
        own = answer if rank in led[each] else own
    paths = tuple("/".join(each) for each in trees)
    return Tree(paths, own["switch"], Identity(own["pid"], own["started"]), process) if own else Tree(paths)


def _switch_here(known: str, root: Root, settings: Settings, seconds: float) -> tuple[dict[str, Any], SwitchProcess | None]:
    """Returns what this rank says of its machine's switch process, and that, where it has been started now: it is ``known`` from
    an earlier group, or a new one. Without ``tree``: the protocol has none. Raises ControlError, ValueError, OSError."""
    deadline = time.monotonic() + seconds
    with closing(Client(root.name, seconds, access=root.access)) as client:
        above = client.ping()
    if above.get("no_trees", "no tree"):
        return {}, None
    if known and (about := _as_known(known, above["tree"])):
        return about, None
    program = settings.program if (settings.protocol or protocols.DEFAULT) == root.protocol else protocols.program(root.protocol)
    if program.name != Path(above["program"]).name:
        raise ValueError(f"the program here is {program}, that of {name_shown(root.name)} {above['program']}: set INA_PROGRAM "
                         "on all ranks, or on none")
    process = SwitchProcess(program, {"VALUES": str(above["values"]), "SLOTS": str(settings.pool)}, job_slots=settings.slots,
                            notices=not settings.quiet, parent=root.name, parent_access=root.access)
    try:
        return _said(process.name, process.wait_ready(max(1.0, deadline - time.monotonic())), above["tree"]), process
    except BaseException:
        process.close()
        raise


def _as_known(name: str, above: Sequence[str]) -> dict[str, Any] | None:
    """Returns what is said of a switch process from an earlier group; None: it has ended, or lost the one above."""
    try:
        with closing(Client(name, ANSWER)) as client:
            about = client.ping()
        return None if about.get("above_failure") else _said(name, about, above)
    except (ControlError, ValueError):
        return None


def _said(name: str, about: Mapping[str, Any], above: Sequence[str]) -> dict[str, Any]:
    """Returns what is said of a switch process by its reply to ``ping``. Raises ValueError: others than these are ``above``."""
    if about["tree"][1:] != [*above]:
        raise ValueError(f"the switch processes above {name_shown(name)} are {'/'.join(about['tree'][1:])}, expected "
                         f"{'/'.join(above)}")
    identity = Identity.of(about)
    return {"switch": name, "tree": about["tree"], "pid": identity.pid, "started": identity.started}


def shown(paths: Sequence[str]) -> str:
    """Returns what the line about a group's switch adds for a tree that its ranks have started."""
    below = [path for path in paths if "/" in path]
    if not below:
        return ""
    count = len(set(below))
    return (f"; {count} switch process{'es' * (count > 1)} below it sum{'s' * (count == 1)} the {len(below)} ranks of "
            f"{'their machines' if count > 1 else 'its machine'} first (INA_TREE)")
