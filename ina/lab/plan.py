"""Plans from TOML files: one experiment, or the points of a sweep, all checked before anything runs.

    about = "one line that says what it shows"
    kind = "allreduce"            # the keys of its dataclass in experiment_keys.py
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ina.base import documents, paths
from ina.base.settings import ConfigError, nearest
from ina.lab.experiment_keys import KINDS, Keys, convert

MOST_POINTS = 1000
FIXED = ("kind", "name")  # the same at every point


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the values of the swept keys, and the whole configuration."""

    values: dict[str, object]
    config: Keys

    def __str__(self) -> str:
        return " ".join(f"{name}={_plain(value)}" for name, value in self.values.items())

    def folder(self, index: int) -> str:
        """Returns a file name that names the point's values."""
        text = re.sub(r"[^\w.=,+-]+", "_", str(self).replace(" ", ","))[:80]
        return f"{index:03}-{text}" if text else f"{index:03}"


@dataclass(frozen=True)
class Plan:
    """A plan: ``base`` holds every key that is not swept; ``sweeps`` the swept ones with their values, of each table."""

    about: str
    base: Keys
    sweeps: list[dict[str, list[object]]]
    points: list[Point]

    @property
    def axes(self) -> dict[str, list[object]]:
        """The swept keys with all their values."""
        return {name: list(dict.fromkeys(v for axes in self.sweeps for v in axes.get(name, [])))
                for axes in self.sweeps for name in axes}  # fmt: skip

    @property
    def single(self) -> Keys:
        """The one experiment of a file without a sweep. Raises ConfigError when there is a sweep."""
        if self.axes:
            raise ConfigError(f"[sweep] of {', '.join(self.axes)}: run it with: ina experiment run")
        return self.base


def _plain(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def find(name: str) -> Path:
    """Returns the file of a named experiment, or the file itself when ``name`` is a path that ends with ``.toml``."""
    if name.endswith(".toml"):
        return Path(name)
    names = [named(path) for path in (*available(), *large())]
    if name not in names:
        raise ConfigError(f"no experiment {name!r} in {paths.root() / 'experiments'}{nearest(name, names)}")
    return paths.root() / "experiments" / f"{name}.toml"


def available() -> list[Path]:
    return sorted((paths.root() / "experiments").glob("*.toml"))


def large() -> list[Path]:
    """Returns experiments that take minutes; they run only by name."""
    return sorted((paths.root() / "experiments").glob("scale/*.toml"))


def named(path: Path) -> str:
    """Returns the name of an experiment that comes with the package: ``loss-sweep``, ``scale/fat-tree``."""
    return str(path.relative_to(paths.root() / "experiments").with_suffix(""))


def load(path: Path | None, overrides: Mapping[str, str] | None = None, sweeps: Mapping[str, str] | None = None) -> Plan:
    """Returns the plan of a TOML file (``None``: training with its defaults).

    ``overrides`` are ``key=value`` from the command line, and one value in place of a sweep of the key; ``sweeps``
    are TOML lists by key, in place of the file's.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or value is wrong, at any point.
    """
    table = _read(path) if path is not None else {}
    where = str(path or "defaults")
    about, sweep_tables = table.pop("about", ""), table.pop("sweep", {})
    table.pop("tofino", None)  # where it is deployed: ina/worlds/deployed/deployment_file.py
    if not isinstance(about, str):
        raise ConfigError(f"{where}: about = {about!r}: expected a line of text")
    if isinstance(sweep_tables, dict):
        sweep_tables = [sweep_tables]
    if not isinstance(sweep_tables, list) or not all(isinstance(axes, dict) for axes in sweep_tables):
        raise ConfigError(f"{where}: sweep = {sweep_tables!r}: expected a table, [sweep], or several, [[sweep]]")
    overrides = dict(overrides or {})
    kind_name = overrides.get("kind", table.get("kind", "training"))
    if not isinstance(kind_name, str) or kind_name not in KINDS:
        raise ConfigError(f"{where}: kind = {kind_name!r}: expected {' or '.join(map(repr, KINDS))}")
    kind = KINDS[kind_name]
    known_keys = {"about", "sweep", *(field.name for field in dataclasses.fields(kind))}
    for name in table:
        if name not in known_keys:
            raise ConfigError(f"{where}: unknown key {name!r}{nearest(name, sorted(known_keys))}")
    values = {name: convert(kind, name, value, where) for name, value in table.items()}
    tables = [{name: _axis(kind, name, items, f"{where}: [sweep]") for name, items in axes.items()} for axes in sweep_tables]
    for name, text in (sweeps or {}).items():
        items = _axis(kind, name, _toml_list(name, text), "--sweep")
        tables = [{**axes, name: items} for axes in tables]
    for name, value in overrides.items():
        values[name] = convert(kind, name, value, "command line", parse=True)
        for axes in tables:
            axes.pop(name, None)
    places = {**dict.fromkeys(sweeps or {}, "--sweep"), **dict.fromkeys(overrides, "command line")}
    points = _points(kind, values, tables, where, places)
    return Plan(about, points[0].config, [axes for axes in tables if axes], points)


def _read(path: Path) -> dict:
    try:
        return documents.toml(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except documents.Unreadable as error:
        raise ConfigError(str(error)) from None


def _toml_list(name: str, text: str) -> object:
    try:
        return documents.toml_text(f"axis = {text}")["axis"]
    except documents.Unreadable:
        raise ConfigError(f"--sweep {name}={text}: expected a TOML list such as {name}=[1, 2]") from None


def _axis(kind: type[Keys], name: str, items: object, where: str) -> list[object]:
    if not isinstance(items, list) or not items:
        raise ConfigError(f"{where} {name} = {items!r}: expected a list of values")
    if name in FIXED:
        raise ConfigError(f"{where} {name}: cannot be swept")
    values = [convert(kind, name, item, where) for item in items]
    if len(set(values)) != len(values):
        raise ConfigError(f"{where} {name} = {items!r}: expected each value once")
    return values


def _points(kind: type[Keys], values: dict, tables: list[dict[str, list[object]]], where: str, places: dict) -> list[Point]:
    """Each combination once, in the order of the tables. ``places``: of keys that are not in the file."""
    points: dict[Keys, Point] = {}
    for axes in tables:
        for combination in itertools.product(*axes.values()):
            swept = dict(zip(axes, combination, strict=True))
            try:
                point = Point(swept, kind(**{**values, **swept}))
            except ConfigError as error:
                key = str(error).partition(" = ")[0]
                raise ConfigError(f"{places.get(key, where)}: {error}") from None
            points.setdefault(point.config, point)
            if len(points) > MOST_POINTS:
                raise ConfigError(f"{where}: [sweep] has more than {MOST_POINTS} points")
    return list(points.values())


def show(kind: type[Keys], plan: Plan | None = None) -> str:
    """Returns every key of a kind with its default, or a plan's values, as a TOML file that can be run."""
    lines = [f"about = {_toml(plan.about)}"] if plan else []
    for field in dataclasses.fields(kind):
        swept = plan is not None and field.name in plan.axes
        value = getattr(plan.base, field.name) if plan else field.default
        text = f"{'# ' if swept else ''}{field.name} = {_toml(value)}"
        lines.append(f"{text:<32} # {'swept: see below' if swept else field.metadata['help']}")
    sweeps = plan.sweeps if plan else []
    for axes in sweeps:
        head = "[sweep]" if len(sweeps) == 1 else "[[sweep]]"
        lines += ["", head, *(f"{name} = {_toml(values)}" for name, values in axes.items())]
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)


def markdown(kind: type[Keys]) -> str:
    """Returns the table of a kind's keys for docs/reference/keys.md."""
    rows = [
        f"| `{field.name}` | `{_toml(field.default)}` | {field.metadata['help']} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])
