"""What a controller must know again after its end, however it came: its jobs and their tokens, in a file.

Why a file, and not what the switches hold: switches know numbers, and neither names nor tokens nor trees, and a switch that
has been started anew knows nothing. The file says what should be; the switches are read and made so (repair.py). It is replaced
as a whole (a new file, synced, renamed over the old one), so at every moment there is one that is complete. A file that is
lost, or older than what the switches hold, costs the jobs that it does not know, and makes no sum wrong (recovery.py).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from ina.aggregation.controller.jobs import Branch, Job
from ina.aggregation.entries import Child, Parent
from ina.base import documents
from ina.net.ports import Address
from ina.topology.tree import Tree

VERSION = 2
AWAY = "move it away to begin without jobs"
KEYS = {"controller": dict, "tokens": dict, "principals": dict, "left": dict}  # of a state


class StateError(ValueError):
    """The file is not one of ours, or another version's."""


class StateFile:
    """Readable by its owner only: it has the tokens."""

    def __init__(self, path: Path):
        self.path = path

    def load(self) -> dict | None:
        """What was saved last; None: nothing, and it can be saved there. Raises StateError, OSError."""
        try:
            state = documents.json_of(self.path)
        except FileNotFoundError:
            if not os.access(self.path.parent, os.W_OK):
                raise StateError(f"{self.path}: a file cannot be made in {self.path.parent}; expected a folder that can be "
                                 "written") from None  # fmt: skip
            return None
        except documents.Unreadable as error:
            raise StateError(f"{error}: not a controller's state; {AWAY}") from error
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise self.error(f"expected a controller's state of version {VERSION}")
        for key, kind in KEYS.items():
            if not isinstance(state.get(key), kind):
                found = type(state[key]).__name__ if key in state else "missing"
                raise self.error(f"key {key!r} of a controller's state is {found}, expected an object")
        return state

    def error(self, what: object) -> StateError:
        """Make the error that says what is wrong with the file, and what to do."""
        return StateError(f"{self.path}: {what}; {AWAY}")

    def save(self, state: dict) -> None:
        """Raises OSError; then the old state is still there."""
        new = self.path.with_name(f"{self.path.name}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"version": VERSION, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def described(error: Exception) -> str:
    """Describe an exception from reading a state file."""
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)


def job_to_json(job: Job) -> dict:
    return {**asdict(replace(job, branches={})), "branches": [asdict(branch) for branch in job.branches.values()]}


def job_from_json(said: dict) -> Job:
    """Raises KeyError, TypeError, ValueError or AttributeError for what is none."""
    said = dict(said)
    branches = [_branch(branch) for branch in said.pop("branches")]
    tree = said.pop("tree")
    job = Job(**{**said, "hosts": tuple(said["hosts"])}, branches={branch.switch: branch for branch in branches},
              tree=Tree(tree["root"], tree["parent"], tuple(tree["links"])) if tree else None)
    _check(job)
    return job


def _check(job: Job) -> None:
    """Raises ValueError: a field has a value that no job has."""
    def expect(what: str, value: object, fits: bool) -> None:
        if not fits:
            raise ValueError(f"{what} of job {job.name!r} is {value!r}")

    def is_number(value: object, most: int) -> bool:
        return type(value) is int and 0 <= value < most

    expect("name", job.name, isinstance(job.name, str))
    for what in ("number", "incarnation", "life", "workers", "slots"):
        expect(what, getattr(job, what), is_number(getattr(job, what), 1 << 32))
    expect("strict", job.strict, isinstance(job.strict, bool))
    expect("branches", [], bool(job.branches))
    for branch in job.branches.values():
        for what in ("switch", "slot_base"):
            value = getattr(branch, what)
            expect(what, value, isinstance(value, str) if what == "switch" else is_number(value, 1 << 32))
        children = [worker for child in branch.children for worker in child.workers]
        for worker in (*branch.workers, *children, *(seat for seat in branch.seats if not isinstance(seat, str))):
            expect("worker", worker, is_number(worker, job.workers))
        expect("seats", branch.seats, len(set(branch.seats)) == len(branch.seats))
        expect("attached", [*branch.attached], all(is_number(seat, len(branch.seats)) for seat in branch.attached))


def _branch(said: dict) -> Branch:
    parent, attached = said["parent"], said["attached"]
    return Branch(
        said["switch"], said["slot_base"], tuple(said["seats"]), tuple(said["workers"]),
        Parent(parent["port"], Address(**parent["address"]), Address(**parent["own"])) if parent else None,
        {int(seat): Child(child["index"], child["port"], Address(**child["address"]), tuple(child["workers"]))
         for seat, child in attached.items()},
    )  # fmt: skip
