"""Experiments from Python: load one by name or from a TOML file, change its keys, run it, read results.

    experiment = ina.experiment.load("loss-sweep", workers=4, loss=[0.0, 0.01])
    for result in ina.experiment.run(experiment):
        print(result.keys["loss"], result.figures)

Keys are those of docs/guide/experiments.md; `ina experiment show` prints them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ina.base.settings import ConfigError
from ina.lab import library, plan
from ina.lab.results.record import ResultsError

__all__ = ["ConfigError", "Experiment", "ExperimentFailed", "Result", "ResultsError", "load", "names", "results", "run", "table"]


class ExperimentFailed(RuntimeError):
    """Points of an experiment failed, each with its reason in the message; the results of the others are in their folder."""


@dataclass(frozen=True)
class Experiment:
    """A checked experiment. `kind`: training, allreduce, ...; `about`: one line; `points`: the keys of each run, with their
    values, in the order of the sweep (one run without a sweep)."""

    name: str
    kind: str
    about: str
    points: tuple[dict[str, object], ...]
    _plan: plan.Plan = field(repr=False)


@dataclass(frozen=True)
class Result:
    """One finished run. `path`: its folder; `keys`: every key of its configuration; `figures`: for each back end or job a row of
    the report's table, by name (times in the unit that the name ends in)."""

    path: Path
    keys: dict[str, object]
    figures: tuple[dict[str, object], ...]


def names() -> list[str]:
    """Returns the names of the experiments that come with the package; those that begin with `scale/` take minutes."""
    return [library.named(path) for path in (*library.available(), *library.large())]


def load(name: str | os.PathLike[str] | None = None, **keys: object) -> Experiment:
    """Reads an experiment by its name, or from a TOML file; None: a training with the keys' defaults.

    `keys` come before the file's; a list sweeps the key, in place of the file's sweep of it. Nothing is run. Raises ConfigError:
    there is no such experiment or key, or a value does not fit, at any point; the message names the place and what was expected.
    """
    overrides = {key: _text(key, value) for key, value in keys.items() if not isinstance(value, list)}
    sweeps = {key: _list(key, value) for key, value in keys.items() if isinstance(value, list)}
    loaded = plan.load(None if name is None else library.find(os.fspath(name)), overrides, sweeps)
    points = tuple(point.config.as_dict() for point in loaded.points)
    return Experiment(loaded.base.name, loaded.base.kind, loaded.about, points, loaded)


def _list(key: str, values: list[object]) -> str:
    """Returns a list as the command line has it. Raises ConfigError."""
    try:
        return json.dumps([os.fspath(value) if isinstance(value, os.PathLike) else value for value in values], ensure_ascii=False)
    except TypeError:
        raise ConfigError(f"{key} = {values!r}: expected a list of texts, numbers and booleans") from None


def _text(key: str, value: object) -> str:
    """Returns a value as the command line has it. Raises ConfigError."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, (str, int, float, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    raise ConfigError(f"{key} = {value!r}: expected a text, a number, a tuple of texts, or a list to sweep")


def run(experiment: Experiment, folder: str | os.PathLike[str] = "results", *, processes: int = 1, new: bool = False,
        quiet: bool = False) -> list[Result]:
    """Runs all points and writes a report; returns the results, in the order of the points.

    They go to a new folder in `folder`. Points of an interrupted run of the same experiment are not run again, unless `new`.
    `processes`: points in virtual time that run at once (more than one starts processes, so that a script needs its
    `if __name__ == "__main__"`). `quiet`: nothing is printed.

    Raises ConfigError (a package is missing, or the network has too few hosts), ExperimentFailed (points failed), OSError.
    """
    experiment._plan.base.check_packages()
    from rich.console import Console

    from ina.lab import sweep

    try:
        path = sweep.sweep(experiment._plan, Path(folder), Console(quiet=quiet), new=new, processes=processes)
    except sweep.SweepFailed as error:
        raise ExperimentFailed(str(error)) from error
    return results(path)


def results(*folders: str | os.PathLike[str]) -> list[Result]:
    """Reads the finished runs in results folders, of single runs or of all points of a sweep.

    Raises ResultsError: a folder has no finished run, or results of another version.
    """
    from ina.lab.results import compare

    return [_result(result.path, result.config.as_dict(), result.summary) for f in folders for result in compare.points(Path(f))]


def table(*folders: str | os.PathLike[str]) -> list[dict[str, str | int | float | bool | None]]:
    """Returns the finished runs in results folders as one flat table, a row for each back end or job: `pandas.DataFrame(rows)`.

    Columns are `path`, the keys of the configuration in their units (`ina experiment show` has them; a list is a text with
    commas), and the figures: times, rates and sizes in the unit that the name ends in, shares from 0 to 1, and counts. A figure
    that shares its name with a key of any kind is `figure_<name>`: of a training, `loss` is that of packets, and `figure_loss`
    the model's. A run that is there several times counts once.
    Where a kind has no such key or figure, the value is None. `results.csv` of a sweep is the same.

    Raises ResultsError: a folder has no finished run, or results of another version.
    """
    from ina.lab.results import compare, tabular

    return tabular.rows(compare.readable(list(map(Path, folders))))


def _result(path: Path, keys: dict[str, object], figures: Sequence[dict[str, object]]) -> Result:
    return Result(path, keys, tuple(figures))
