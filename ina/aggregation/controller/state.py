"""State of a controller that survives its end, in a file: its jobs and their tokens.

Switches hold numbers, but neither names nor tokens nor trees, and a restarted switch holds nothing; hence a file. It has the
intended state, and the switches are read and repaired to match (reconcile.py). It is replaced as a whole (a new file, synced,
renamed over the old one), so at every moment there is a complete one. A file that is lost, or older than the switches' entries,
costs the jobs that are not in it, and makes no sum wrong (failures.py).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ina.aggregation import completion, protocols
from ina.aggregation.controller.job_records import Branch, Job
from ina.aggregation.entries import Child, Parent
from ina.base import documents
from ina.net.ports import Address
from ina.topology.tree import Tree

VERSION = 2
AWAY = "move it away to begin without jobs"
KEYS = {"controller": dict, "tokens": dict, "principals": dict, "left": dict}  # of the file


class StateError(ValueError):
    """The file is not a controller's state, or another version's."""


class StateFile:
    """The state's file, readable by its owner only: it has the tokens."""

    def __init__(self, path: Path):
        self.path = path

    def load(self) -> dict[str, Any] | None:
        """Returns the last saved state; None: there is no file, and one can be made. Raises StateError, OSError."""
        try:
            state = documents.json_of(self.path)
        except FileNotFoundError:
            if not os.access(self.path.parent, os.W_OK):
                raise StateError(f"{self.path}: a file cannot be made in {self.path.parent}; expected a folder that can be "
                                 "written") from None
            return None
        except documents.Unreadable as error:
            raise StateError(f"{error}: not a controller's state; {AWAY}") from error
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise self.error(f"expected a controller's state of version {VERSION}")
        for key, kind in KEYS.items():
            if not isinstance(state.get(key), kind):
                kind_name = type(state[key]).__name__ if key in state else "missing"
                raise self.error(f"key {key!r} of a controller's state is {kind_name}, expected an object")
        return state

    def error(self, problem: object) -> StateError:
        """Returns the error for a problem of the file, with advice."""
        return StateError(f"{self.path}: {problem}; {AWAY}")

    def save(self, state: dict[str, Any]) -> None:
        """Saves a state. Raises OSError; then the old state is still there."""
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
    """Describes an exception from reading a state file."""
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)


def job_to_json(job: Job) -> dict[str, Any]:
    data = {**asdict(replace(job, branches={})), "branches": [asdict(branch) for branch in job.branches.values()]}
    del data["rule"]
    return {**data, **completion.stated(job.rule)}


def job_from_json(data: dict[str, Any]) -> Job:
    """Parses a job. Raises KeyError, TypeError, ValueError or AttributeError for invalid data."""
    data = dict(data)
    branches = [_branch(branch) for branch in data.pop("branches")]
    tree = data.pop("tree")
    addresses = tuple(Address(**address) for address in data.pop("addresses", ()))  # older versions save none
    job = Job(**{**data, "hosts": tuple(data["hosts"])}, branches={branch.switch: branch for branch in branches},
              tree=Tree(tree["root"], tree["parent"], tuple(tree["links"])) if tree else None, addresses=addresses)
    _check(job)
    return job


def _check(job: Job) -> None:
    """Raises ValueError: a field has a value that no job has."""
    def expect(name: str, value: object, fits: bool) -> None:
        if not fits:
            raise ValueError(f"{name} of job {job.name!r} is {value!r}")

    def is_number(value: object, most: int) -> bool:
        return type(value) is int and 0 <= value < most

    expect("name", job.name, isinstance(job.name, str))
    for name in ("number", "incarnation", "life", "workers", "slots"):
        expect(name, getattr(job, name), is_number(getattr(job, name), 1 << 32))
    expect("strict", job.strict, isinstance(job.strict, bool))
    expect("check", job.check, job.check in protocols.CHECKS)
    expect("rule", job.rule, isinstance(job.rule, str))
    completion.named(job.rule)  # ValueError: there is none
    expect("secret", "...", isinstance(job.secret, str) and len(bytes.fromhex(job.secret)) == (32 if job.check == "keyed" else 0))
    expect("addresses", job.addresses, len(job.addresses) in (0, job.workers))
    expect("branches", [], bool(job.branches))
    for branch in job.branches.values():
        for name in ("switch", "slot_base"):
            value = getattr(branch, name)
            expect(name, value, isinstance(value, str) if name == "switch" else is_number(value, 1 << 32))
        children = [worker for child in branch.children for worker in child.workers]
        for worker in (*branch.workers, *children, *(seat for seat in branch.seats if not isinstance(seat, str))):
            expect("worker", worker, is_number(worker, job.workers))
        expect("seats", branch.seats, len(set(branch.seats)) == len(branch.seats))
        expect("attached", [*branch.attached], all(is_number(seat, len(branch.seats)) for seat in branch.attached))


def _branch(data: dict[str, Any]) -> Branch:
    parent, attached = data["parent"], data["attached"]
    return Branch(
        data["switch"], data["slot_base"], tuple(data["seats"]), tuple(data["workers"]),
        Parent(parent["port"], Address(**parent["address"]), Address(**parent["own"])) if parent else None,
        {int(seat): Child(child["index"], child["port"], Address(**child["address"]), tuple(child["workers"]))
         for seat, child in attached.items()},
        {name: tuple(workers) for name, workers in data.get("below", {}).items()},
    )
