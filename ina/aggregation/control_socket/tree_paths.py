"""Paths of workers in a tree of switch processes: for each worker of a job the ids of the switch processes above it, from the one
that it is attached to up to the root, as a text with slashes:

    ["4f..a1/c0..07", "4f..a1/c0..07", "9b..3e/c0..07"]     two workers at one switch process, one at another; one root

All workers of a job, and the switch processes on their behalf, send the same list, so each process knows from it, without asking
anybody, who is below it, through which child, and whether the job ends with it or goes on to its parent.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_LEVELS = 4  # of switch processes above each other
ID = re.compile(r"[0-9a-f]{12}")
LONGEST = MOST_LEVELS * 13 - 1  # characters of a path


@dataclass(frozen=True)
class Share:
    """The part of a job that is below one switch process.

    ``seats``: its children, by their lowest worker: the number of a worker that is attached here, or the id of a switch process
    below; ``below``: the workers below each of those, by id; ``workers``: all that are below; ``whole``: these are all workers of
    the job, so its sums are complete here.
    """

    seats: tuple[int | str, ...]
    below: Mapping[str, tuple[int, ...]]
    workers: tuple[int, ...]
    whole: bool


def new_id() -> str:
    """Returns the id of a switch process: each start has another."""
    return secrets.token_hex(6)


def split(path: str, owner: str) -> list[str]:
    """Returns the ids of a path, which ``owner`` has. Raises ValueError: it is none, or goes through a process twice."""
    ids = path.split("/")
    if not all(ID.fullmatch(each) for each in ids):
        raise ValueError(f"the path of {owner} is {path!r}; expected ids of 12 hexadecimal digits with slashes")
    if len(ids) > MOST_LEVELS:
        raise ValueError(f"the path of {owner} has {len(ids)} switch processes above each other; expected at most {MOST_LEVELS}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"the path of {owner}, {path}, goes through a switch process twice")
    return ids


def share(paths: Sequence[str], workers: int, own: Sequence[str]) -> Share:
    """Returns the share of a job of ``workers`` at a switch process. ``own``: its own path, the process itself first. Raises
    ValueError: the paths are not those of such a job, or of another tree than this one."""
    if len(paths) != workers:
        raise ValueError(f"{len(paths)} paths of {workers} workers; expected one for each")
    seats: dict[int | str, list[int]] = {}
    for worker, path in enumerate(paths):
        ids = split(path, f"worker {worker}")
        if ids[-1] != own[-1]:
            raise ValueError(f"the switches of worker {worker} end at {ids[-1]}, those here at {own[-1]}: the switch processes "
                             "of a job are one tree; the one above may have been started anew, or is gone")
        if own[0] not in ids:
            continue
        level = ids.index(own[0])
        if ids[level:] != [*own]:
            raise ValueError(f"the switches of worker {worker} are {path}, but those above {own[0]} are {'/'.join(own[1:])}: the "
                             "tree has changed meanwhile")
        seats.setdefault(worker if level == 0 else ids[level - 1], []).append(worker)
    if not seats:
        raise ValueError(f"no worker's path goes through this switch process, {own[0]}")
    below = {seat: tuple(numbers) for seat, numbers in seats.items() if isinstance(seat, str)}
    everybody = tuple(sorted(worker for numbers in seats.values() for worker in numbers))
    return Share(tuple(seats), below, everybody, len(everybody) == workers)
