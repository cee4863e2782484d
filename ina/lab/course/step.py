"""Steps of the course: each is a folder of `steps/`, found by its name.

    steps/NAME/step.toml      number, title, minutes, about, task (text for students), and [[walk]]s (walks.py, virtual.py)
    steps/NAME/skeleton.p4    what students begin with
    steps/NAME/*.stf          packet tests, in the order of their names (cases.py)
    steps/NAME/solution.p4    a program that passes; a checkout has it, an installed package does not
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.settings import nearest

COURSE = Path(__file__).resolve().parent
INCLUDED = "course.p4"  # in COURSE: what the programs of most steps include
MARK = re.compile(r"^\W*exercise:\s*([\w-]*)", re.MULTILINE)  # the line by which a program says which step it belongs to
LONGEST = 1 << 20  # characters of a student's program


class StepError(ValueError):
    """An unknown step, or a program that cannot be matched to one; the message says what there is and what to do."""


@dataclass(frozen=True)
class Walk:
    """A small network whose every interleaving a check walks.

    `wires`: a worker or a switch's port at each end ("w0", "s1:2"). `switches`: by name, the STF commands that configure it.
    `blocks`: how many each worker reduces, one after the other. `faults`: True for any number of lost, repeated and late frames,
    False for none of them, but frames on different wires still overtake each other. `run`: the title of a run of the same network
    in virtual time (virtual.py); "": there is none.
    """

    title: str
    hint: str
    wires: Sequence[tuple[str, str]]
    switches: dict[str, str]
    blocks: int
    faults: bool
    versions: int = 2
    run: str = ""


@dataclass(frozen=True)
class Step:
    """A step of the course. `minutes`: what it takes a class, by plan; `tests`: STF files."""

    name: str
    number: int
    title: str
    minutes: int
    about: str
    task: str
    tests: Sequence[Path]
    walks: Sequence[Walk]
    skeleton: Path
    solution: Path


FIELDS: dict[str, type] = {"number": int, "title": str, "minutes": int, "about": str, "task": str}
WALK_FIELDS: dict[str, type] = {"title": str, "hint": str, "wires": list, "switches": dict, "blocks": int, "faults": bool}


def steps(folder: Path = COURSE / "steps") -> list[Step]:
    """Returns all steps, in the order of the course. Raises StepError: a step's files are not as they must be."""
    return sorted((_load(path.parent) for path in folder.glob("*/step.toml")), key=lambda step: (step.number, step.name))


def named(name: str, folder: Path = COURSE / "steps") -> Step:
    """Returns a step by its name. Raises StepError that lists the steps."""
    known = steps(folder)
    for step in known:
        if step.name == name:
            return step
    names = [step.name for step in known]
    raise StepError(f"no step {name!r}{nearest(name, names)}; the course has {', '.join(names)}")


def step_of(path: Path, text: str) -> Step:
    """Returns the step that a program belongs to, by its line `exercise: NAME`. Raises StepError."""
    if match := MARK.search(text):
        try:
            return named(match[1])
        except StepError as error:
            raise StepError(f"{path}: {error}") from None
    raise StepError(f"{path}: no line 'exercise: NAME' as in the skeleton: put it back, or name the step with --step NAME")


def source(path: Path) -> str:
    """Returns a student's program. Raises StepError (no file, too long, no text), OSError."""
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for its writer
        raise StepError(f"{path}: a folder, a device, a pipe or a socket: expected a file with a program; save it as one")
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise StepError(f"{path}: longer than {LONGEST:,} bytes: expected a program of some hundred lines")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StepError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8 text") from None


def _load(folder: Path) -> Step:
    document = documents.document(folder / "step.toml")
    content = dict(document.content)
    walks = content.pop("walk", [])
    _check(document, (), content, FIELDS)
    for number, walk in enumerate(walks):
        _check(document, ("walk", number), walk, WALK_FIELDS, {"versions": int, "run": str})
    tests = sorted(folder.glob("*.stf"))
    skeleton = folder / "skeleton.p4"
    if not tests or not skeleton.is_file():
        raise StepError(f"{folder}: expected skeleton.p4 and packet tests (*.stf)")
    return Step(folder.name, **content, tests=tests, skeleton=skeleton, solution=folder / "solution.p4",
                walks=[Walk(**{**walk, "wires": [tuple(wire) for wire in walk["wires"]]}) for walk in walks])


def _check(document: documents.Document, at: tuple[str | int, ...], table: dict[str, Any], fields: dict[str, type],
           more: dict[str, type] | None = None) -> None:
    """Raises StepError for a key that is missing, unknown, or of another type."""
    for key in fields.keys() - table.keys():
        raise StepError(f"{document.at(*at)}: no key {key!r}: expected {', '.join(fields)}")
    known = fields | (more or {})
    for key, value in table.items():
        if key not in known:
            raise StepError(f"{document.at(*at, key)}: unknown key {key!r}: expected {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] is bool):
            raise StepError(f"{document.at(*at, key)}: {key}: expected {known[key].__name__}, got {value!r}")
