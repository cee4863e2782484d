"""A kind of experiment: one class in one file, ``ina/lab/kinds/<kind>.py``, which ends with ``KIND = <the class>``.

    keys     the fields of the class, a frozen dataclass: each with default, help, range and unit (`settings.key`)
    run      does what the keys say, in a results folder
    rows     figures of its table, in the terminal and in the report
    why      names the bottleneck of a result

A user's own kind is such a class of any package, named by an entry point of the group ``ina.experiment_kinds``.
"""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

from rich.console import Console

from ina.aggregation import protocols
from ina.aggregation.entries import BITMAP, program_named
from ina.aggregation.lane import DEFAULT
from ina.base import paths, settings
from ina.base.bounds import SECONDS
from ina.base.plurals import counted
from ina.base.settings import ConfigError, Problem
from ina.worlds.testbed import switch_kinds

GROUP = "ina.experiment_kinds"  # of entry points
FOLDER = "ina.lab.kinds"
GUIDE = "docs/guide/experiments.md"
NEEDED = ("kind", "name", "world", "workers", "protocol", "program", "switch", "values", "seed", "timeout")  # keys of every kind

Check = tuple[bool, str, str]  # whether it holds, the key, and what was expected of it


class Row(NamedTuple):
    """A figure of the table: its key in a result's summary, its heading, the heading where there is little room, and a format."""

    key: str
    heading: str
    short: str
    pattern: str


class Curve(NamedTuple):
    """A list in each result that is drawn by step: its key, and a caption and an axis for it."""

    key: str
    caption: str
    label: str


class Measured(Protocol):
    """Results of one back end or job."""

    stats: dict[str, dict]

    def summary(self) -> dict[str, object]:
        """Returns figures of the table."""


@dataclass
class Outcome:
    """Results so far. ``comparison``: of the results with each other; ``plots``: further captions and SVGs."""

    results: Sequence[Measured]
    comparison: Mapping[str, float] = field(default_factory=dict)
    plots: Sequence[tuple[str, str]] = ()
    finished: bool = True


@dataclass(frozen=True)
class Finding:
    """A bottleneck. ``bound``: one of the words of ina/lab/results/why.py; ``shown``: the figures."""

    job: str
    bound: str
    shown: str


class Experiment:
    """Base of all kinds: shared keys and their checks, and what a kind has to have.

    A value of 0 or "" may mean that other keys decide: ``resolved`` has what they decide."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]
    rows: ClassVar[tuple[Row, ...]]
    subject: ClassVar[str] = "job"  # what a line of the table is about
    curve: ClassVar[Curve | None] = None
    meanings: ClassVar[Mapping[str, str]] = {}  # of its figures, by their keys, before those of ina/lab/results/words.py
    guide: ClassVar[str] = ""  # its section of docs/guide/experiments.md: papers, and what is not modelled; "": it has none
    packages: ClassVar[Mapping[str, str]] = {}  # extras of `ina` by the packages that it needs
    kind: str
    name: str
    world: str
    workers: int
    protocol: str
    program: str
    switch: str
    values: int
    seed: int
    rate: float
    delay: float
    queue: int
    buffer: int
    timeout: float

    # ---- what each kind has

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        """Runs the experiment, which may write files into ``folder``; yields what has been measured so far, last everything.

        Raises one of ina.lab.run.FAILURES.
        """
        raise NotImplementedError

    def why(self, run: dict, summary: dict) -> Finding:
        """Returns the bottleneck of a result that was read back."""
        raise NotImplementedError

    def describe(self, results: Sequence[Measured]) -> str:
        """Returns a paragraph of HTML for the report."""
        raise NotImplementedError

    def title(self, results: Sequence[Measured]) -> str:
        """Returns a line above the table in the terminal."""
        return counted(self.workers, "worker")

    def figures(self, results: Sequence[Measured]) -> list[tuple[str, str]]:
        """Returns captions and SVGs of the results."""
        return []

    @classmethod
    def check_networks(cls, experiments: Sequence[Experiment]) -> None:
        """Checks experiments of this kind against their networks: too much work for every one that is read. Raises
        ConfigError."""

    @classmethod
    def check_packages(cls) -> None:
        """Checks the packages that experiments of this kind need. Raises ConfigError if one is missing."""
        missing = {name: extra for name, extra in cls.packages.items() if find_spec(name) is None}
        if missing:
            raise ConfigError(f"{cls.kind} needs {' and '.join(missing)}: pip install 'ina[{','.join(missing.values())}]'")

    def prepare(self) -> None:
        """Compiles what several processes will ask for at once."""

    @classmethod
    def guidance(cls) -> str:
        """Returns where the guide describes the kind: its papers, and what is not modelled; "" for a kind without a section."""
        return f'{GUIDE}, "{cls.guide}"' if cls.guide else ""

    # ---- checks

    def __post_init__(self) -> None:
        problems = [*settings.wrong(self)]
        if "protocol" not in {problem.key for problem in problems}:
            problems += self._wrong_protocol()
        if problems:
            raise ConfigError.of(problems)
        if self.resolved() is not self:
            return  # that one has been checked
        if problems := [Problem(key, f"{key} = {getattr(self, key)!r}: expected {expected}")
                        for ok, key, expected in self.checks() if not ok]:
            raise ConfigError.of(list(dict.fromkeys(problems)))

    def derived(self) -> dict[str, object]:
        """Returns values of the keys that are left to others, by those."""
        return {}

    def resolved(self) -> Self:
        """Returns the experiment with all keys decided; itself, if they are."""
        derived = {key: value for key, value in self.derived().items() if getattr(self, key) != value}
        return dataclasses.replace(self, **derived) if derived else self

    def checks(self) -> Iterator[Check]:
        """Yields conditions on several keys, or more than a range. All keys are decided, and the protocol is there."""
        yield self.values in DEFAULT.values, "values", ", ".join(map(str, DEFAULT.values))
        yield 0 < self.timeout < SECONDS, "timeout", "more than 0 and less than a million seconds"
        yield self.name != "" and "/" not in self.name, "name", "a name without '/'"
        try:
            self.check_reductions()
        except ValueError as error:
            raise ConfigError(f"protocol = {self.protocol!r}: {error}") from None
        yield 1 <= self.workers <= self.most_workers, "workers", f"1 to {self.most_workers}"
        names = ", ".join(sorted(path.stem for path in paths.p4_dir().glob("*.p4")))
        yield self.program_path.is_file(), "program", f"one of {names}, or the path of a .p4 file"

    def _wrong_protocol(self) -> Iterator[Problem]:
        """Checks that the protocol exists; a user's own must compile, and have all parts of a protocol."""
        where = f"protocol = {self.protocol!r}"
        try:
            protocols.check_name(self.protocol)
            program_named(self.protocol)
        except ValueError as error:
            yield Problem("protocol", f"{where}: {error}")

    def check_reductions(self) -> None:
        """Checks that the protocol has the experiment's reduction: sums, for trainings and traces. Raises ValueError."""
        protocols.check_reduction(self.protocol, protocols.SUM)

    @property
    def most_workers(self) -> int:
        """Largest number of workers of a job: the bits of a switch's bitmap."""
        return BITMAP

    @property
    def program_path(self) -> Path:
        """The P4 file that ``program`` means."""
        if not self.program:
            return protocols.program(self.protocol, switch_kinds.KINDS[self.switch].twin)
        return Path(self.program) if self.program.endswith(".p4") else paths.p4_dir() / f"{self.program}.p4"

    def unused(self) -> Mapping[str, str]:
        """Returns the keys that change nothing beside the values of the others, with those values that have a use for each, for
        messages: ``{"bound": "method = ssp or dssp"}``."""
        return {}

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self.resolved())


# ---- all kinds


def names() -> list[str]:
    """Returns the names of all kinds."""
    own = [module.name for module in pkgutil.iter_modules(import_module(FOLDER).__path__)]
    return sorted({*own, *(point.name for point in _entry_points())})


def named(name: object, where: str) -> type[Experiment]:
    """Returns a kind. Raises ConfigError, with ``where``: there is none of this name, or a user's own is none."""
    if name not in names():
        raise ConfigError(f"{where}: kind = {name!r}: expected {' or '.join(map(repr, names()))}")
    for point in _entry_points():
        if point.name == name:
            return _load(point, where)
    return import_module(f"{FOLDER}.{name}").KIND


def _load(point: metadata.EntryPoint, where: str) -> type[Experiment]:
    """Returns a user's own kind. Raises ConfigError: it cannot be imported, or lacks what a kind has."""
    place = f"{where}: kind = {point.name!r}: {point.value}"
    try:
        kind = point.load()
    except Exception as error:  # whatever the user's module raises
        raise ConfigError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Experiment) and getattr(kind, "kind", "") == point.name):
        raise ConfigError(f"{place} is not an ina.lab.kind.Experiment of this kind")
    if missing := [name for name in NEEDED if name not in settings.keys(kind)]:
        raise ConfigError(f"{place} lacks the keys {', '.join(missing)}, which every kind has")
    return kind


@functools.cache
def _entry_points() -> Iterable[metadata.EntryPoint]:
    return metadata.entry_points(group=GROUP)  # takes milliseconds


def kinds() -> dict[str, type[Experiment]]:
    """Returns all kinds by name; ``settings.keys(kind)`` are the keys of one, with type, default, range, unit and help."""
    return {name: named(name, GROUP) for name in names()}


def names_with(key: str) -> list[str]:
    """Returns the names of the kinds that have a key, without users' own kinds that cannot be loaded."""
    having = []
    for name in names():
        with suppress(ConfigError):
            if key in settings.keys(named(name, GROUP)):
                having.append(name)
    return having


def from_dict(values: dict[str, object]) -> Experiment:
    """Returns the experiment of ``as_dict``, also after a round trip through JSON. Raises ConfigError."""
    kind, problems = named(values.get("kind"), "config.json"), settings.Problems()
    typed = problems.values(kind, values, lambda key: "config.json")
    problems.check()
    return kind(**typed).resolved()
