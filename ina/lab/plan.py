"""Plans from TOML files: one experiment, or the points of a sweep, all checked before anything runs.

    about = "one line that says what it shows"
    kind = "allreduce"            # and keys of its class in ina/lab/kinds/
    workers = 8

    [sweep]                       # every combination, the last key fastest
    jobs = [1, 2]
    loss = [0.0, 0.01]

Several tables [[sweep]] are swept one after the other, for points that are no full product.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.error_text import line
from ina.base.settings import ConfigError, Key, Problems, convert, keys, nearest, shown
from ina.lab import kind as kinds
from ina.lab.kind import Experiment

DEFAULT = "training"  # the kind of a file that names none
COMMAND_LINE, SWEEP = "command line", "--sweep"  # places of keys

MOST_POINTS = 1000
OTHERS = ("about", "sweep", "tofino", "process")  # of the file; the last two: ina/worlds/deployed
FIXED = ("kind", "name")  # the same at every point


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the values of the swept keys, and the whole configuration."""

    values: dict[str, object]
    config: Experiment

    def __str__(self) -> str:
        return " ".join(f"{name}={_plain(value)}" for name, value in self.values.items())

    def folder(self, index: int) -> str:
        """Returns a file name that names the point's values."""
        text = re.sub(r"[^\w.=,+-]+", "_", str(self).replace(" ", ","))[:80]
        return f"{index:03}-{text}" if text else f"{index:03}"


@dataclass(frozen=True)
class Plan:
    """A plan: ``base`` is the first point's experiment; ``sweeps`` has the swept keys with their values, of each table; ``given``
    the values of the file and the command line for keys that are not swept."""

    about: str
    base: Experiment
    sweeps: list[dict[str, list[object]]]
    points: list[Point]
    given: dict[str, object] = field(compare=False)  # another file can leave out what others decide, and be the same plan

    def value(self, key: Key) -> tuple[object, bool]:
        """Returns a key's value for a file of this plan, and whether all points have it.

        Where other keys decide the value, and differently from point to point, it is the given one, or the default: with the
        first point's, the others would be other experiments."""
        first = getattr(self.base, key.name)
        if all(getattr(point.config, key.name) == first for point in self.points):
            return first, True
        return self.given.get(key.name, key.default), False

    @property
    def axes(self) -> dict[str, list[object]]:
        """The swept keys with all their values."""
        return {name: list(dict.fromkeys(v for axes in self.sweeps for v in axes.get(name, [])))
                for axes in self.sweeps for name in axes}

    @property
    def single(self) -> Experiment:
        """The one experiment of a file without a sweep. Raises ConfigError when there is a sweep."""
        if self.axes:
            raise ConfigError(f"[sweep] of {', '.join(self.axes)}: run it with: ina experiment run")
        return self.base


def _plain(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def load(path: Path | None, overrides: Mapping[str, str] | None = None, sweeps: Mapping[str, str] | None = None) -> Plan:
    """Returns the plan of a TOML file (``None``: training with its defaults).

    ``overrides`` are ``key=value`` from the command line, and one value in place of a sweep of the key; ``sweeps``
    are TOML lists by key, in place of the file's.

    Raises:
        ConfigError: the file cannot be read or parsed, or keys or values are wrong, at any point: all of them, with their lines.
    """
    return _Reader(_document(path), dict(overrides or {}), dict(sweeps or {})).plan()


def _document(path: Path | None) -> documents.Document:
    try:
        return documents.document(path)
    except OSError as error:
        raise ConfigError(line(error)) from None
    except documents.Unreadable as error:
        raise ConfigError(str(error)) from None


class _Reader:
    """Reader of one plan, which collects the problems of its keys."""

    def __init__(self, document: documents.Document, overrides: dict[str, str], sweeps: dict[str, str]) -> None:
        self._document, self._overrides, self._sweeps = document, overrides, sweeps
        self._problems = Problems()
        name = overrides.get("kind", document.content.get("kind", DEFAULT))
        self._kind = kinds.named(name, COMMAND_LINE if "kind" in overrides else document.at("kind"))

    def plan(self) -> Plan:
        table = self._document.content
        about = table.get("about", "")
        if not isinstance(about, str):
            self._problems.add(self._document.at("about"), f"about = {about!r}: expected a line of text")
        values = self._problems.values(self._kind, table, self._document.at, OTHERS, self._hint)
        tables = self._tables(table.get("sweep", {}))
        for name, text in self._overrides.items():
            with self._problems.at(lambda key: COMMAND_LINE):
                values[name] = convert(self._key(name), text, parse=True)
            for axes in tables:
                axes.pop(name, None)
        self._problems.check()
        points = self._points(values, tables)
        return Plan(about, points[0].config, [axes for axes in tables if axes], points, values)

    def _key(self, name: str) -> Key:
        known = keys(self._kind)
        if name not in known:
            raise ConfigError(f"unknown key {name!r}{self._hint(name, list(known))}")
        return known[name]

    def _hint(self, name: str, known: list[str]) -> str:
        """Returns the end of an unknown key's error: the kinds that have the key, else a similar one of this kind."""
        others = kinds.names_with(name)
        return f"; kind {self._kind.kind!r} has none of this name, but {', '.join(others)}" if others else nearest(name, known)

    def _tables(self, given: object) -> list[dict[str, list[object]]]:
        """Returns the swept keys of each table, with those of the command line."""
        tables = given if isinstance(given, list) else [given]
        if not tables or not all(isinstance(axes, dict) for axes in tables):
            self._problems.add(self._document.at("sweep"), f"sweep = {given!r}: expected a table, [sweep], or several, [[sweep]]")
            tables = []
        swept = []
        for number, axes in enumerate(tables):
            path = ("sweep", number) if isinstance(given, list) else ("sweep",)
            swept.append({name: self._axis(name, items, f"{self._document.at(*path, name)}: [sweep]")
                          for name, items in axes.items()})
        for name, text in self._sweeps.items():
            with self._problems.at(str):
                items = self._axis(name, _toml_list(name, text), SWEEP)
                swept = [{**axes, name: items} for axes in swept]
        return swept

    def _axis(self, name: str, items: object, where: str) -> list[object]:
        """Returns a swept key's values, those that can be."""
        values: list[object] = []
        with self._problems.at(lambda key: ""):
            if not isinstance(items, list) or not items:
                raise ConfigError(f"{where} {name} = {items!r}: expected a list of values")
            if name in FIXED:
                raise ConfigError(f"{where} {name}: cannot be swept")
        for item in items if isinstance(items, list) else ():
            with self._problems.at(lambda key: where):
                values.append(convert(self._key(name), item))
        if len(set(values)) != len(values):
            self._problems.add("", f"{where} {name} = {items!r}: expected each value once")
        return values

    def _points(self, values: dict[str, Any], tables: list[dict[str, list[object]]]) -> list[Point]:
        """Returns each combination once, in the order of the tables."""
        combinations: dict[frozenset[tuple[str, object]], tuple[int, dict[str, object]]] = {}
        for number, axes in enumerate(tables):
            for combination in itertools.product(*axes.values()):
                swept = dict(zip(axes, combination, strict=True))
                combinations.setdefault(frozenset({**values, **swept}.items()), (number, swept))
                if len(combinations) > MOST_POINTS:  # before any is resolved, which takes a while
                    raise ConfigError(f"{self._document.at('sweep')}: [sweep] has more than {MOST_POINTS} points")
        points: dict[Experiment, Point] = {}
        for number, swept in combinations.values():
            with self._problems.at(partial(self._place, axes=swept, number=number)):
                point = Point(swept, self._kind(**{**values, **swept}).resolved())
                points.setdefault(point.config, point)
        self._problems.check()
        self._check_uses(values, tables, list(points.values()))
        self._problems.check()
        return list(points.values())

    def _check_uses(self, values: dict[str, Any], tables: list[dict[str, list[object]]], points: Sequence[Point]) -> None:
        """Adds a problem for each key of the file and the command line that no point has a use for, unless its values are those
        that it has if it is not given, as in a file that `show` has printed. Beside keys of the command line the file's may have
        lost their use, as `bound` beside `--set method=synchronous`, and are left alone."""
        asked = {*self._overrides, *self._sweeps}
        for name in sorted(asked) or dict.fromkeys([*values, *itertools.chain(*tables)]):
            concerned = [point.config for point in points if name in values or name in point.values]
            uses = [config.unused().get(name) for config in concerned]
            if not all(uses):  # what follows takes a while
                continue
            other = [getattr(config, name) for config in concerned if not _follows(config, self._key(name))]
            if other:
                number = next((number for number, axes in enumerate(tables) if name in axes), 0)
                place = self._place(name, tables[number] if tables else {}, number)
                self._problems.add(place, f"{name} = {shown(other[0])}: nothing uses it here; expected no such key, or "
                                   f"{' or '.join(dict.fromkeys(filter(None, uses)))}", name)

    def _place(self, key: str, axes: Mapping[str, object], number: int) -> str:
        """Returns the place of a key's value at a point."""
        if key in self._overrides or (self._document.path is None and not key):  # the defaults fit together
            return COMMAND_LINE
        if key in self._sweeps:
            return SWEEP
        if key not in axes:
            return self._document.at(key)
        several = isinstance(self._document.content["sweep"], list)
        return self._document.at("sweep", *((number,) if several else ()), key)


def _follows(config: Experiment, key: Key) -> bool:
    """Tells whether a key's value is its default, or the one that the others decide if it is left to them."""
    value = getattr(config, key.name)
    if value == key.default:
        return True
    try:
        return getattr(dataclasses.replace(config, **{key.name: key.default}).resolved(), key.name) == value
    except ConfigError:  # with its default other keys do not fit: it matters
        return False


def _toml_list(name: str, text: str) -> object:
    try:
        return documents.toml_text(f"axis = {text}")["axis"]
    except documents.Unreadable:
        raise ConfigError(f"--sweep {name}={text}: expected a TOML list such as {name}=[1, 2]") from None


def show(kind: type[Experiment], plan: Plan | None = None) -> str:
    """Returns every key of a kind with its default, or a plan's values, as a TOML file that can be run; above them, where
    the guide describes the kind."""
    lines = [f"# {text}"] if (text := kind.guidance()) else []
    lines += [f"about = {_toml(plan.about)}"] if plan else []
    for key in keys(kind).values():
        swept = plan is not None and key.name in plan.axes
        always = plan is not None and swept and all(key.name in axes for axes in plan.sweeps)  # else it has a value, too
        value, everywhere = plan.value(key) if plan else (key.default, True)
        text = f"{'# ' if always else ''}{key.name} = {_toml(value)}"
        more = "" if everywhere else " (each point has its own value, which other keys decide)"
        lines.append(f"{text:<32} # {'swept: see below' if swept else key.help + more}")
    sweeps = plan.sweeps if plan else []
    for axes in sweeps:
        head = "[sweep]" if len(sweeps) == 1 else "[[sweep]]"
        lines += ["", head, *(f"{name} = {_toml(values)}" for name, values in axes.items())]
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)


def markdown(kind: type[Experiment]) -> str:
    """Returns the table of a kind's keys for docs/reference/keys.md."""
    rows = [f"| `{key.name}` | `{_toml(key.default)}` | {key.help} |" for key in keys(kind).values()]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])
