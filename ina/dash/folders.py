"""Results folders below some roots, as the view "Runs" shows them: what ran, what runs, and what it came to.

A run or a sweep has a name, `<number of its root>/<its path in there>`, which is all that a page can ask for. Nothing is read
that lies outside the root, wherever links lead.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ina.base import plain_files, settings
from ina.base.error_text import line
from ina.base.settings import ConfigError
from ina.lab.kind import Finding, from_dict, kinds
from ina.lab.results import compare, journal, record, report, tabular, units, why
from ina.lab.results.record import ERROR, Result, ResultsError
from ina.lab.results.words import WORDS
from ina.lab.sweep import UNFINISHED

PLAN, CONFIG, METRICS, PAGE = "experiment.json", "config.json", "metrics.json", "report.html"
FILES = (PLAN, CONFIG, "environment.json", METRICS, PAGE, ERROR, journal.FILE, UNFINISHED)
DEEP = 3  # folders in folders of a root in which results are looked for
MOST = 2000  # results folders of an answer, newest first
ROWS = 5000  # rows of an answer
POINTS = 600  # points of a curve of an answer
LONG = 2000  # characters of an error
KEPT = 1000  # files of one kind in memory

RUNNING, FINISHED, FAILED, ENDED = "running", "finished", "failed", "ended without a result"
Answer = dict[str, Any]


class Unknown(ValueError):
    """A name of no results folder below the roots."""


@functools.lru_cache(KEPT)
def _loaded(path: Path, _versions: tuple[tuple[int, int], ...]) -> Result:
    result = record.load(path)
    try:
        _rows(result)
        tabular.rows([result])
    except Exception as error:  # figures of another shape, and whatever a user's own kind raises
        raise ResultsError(f"{path / METRICS}: its summary has no figures of kind {result.config.kind} "
                           f"({type(error).__name__}: {error})") from None
    return result


@functools.lru_cache(100 * KEPT)
def _is_finished(path: Path, _version: tuple[int, int]) -> bool:
    return record.finished(path)


def _finished(path: Path) -> bool:
    """Returns True if a run's folder holds all results, which is read once."""
    return (path / METRICS).is_file() and _is_finished(path, _version(path / METRICS))


@functools.lru_cache(KEPT)
def _json(path: Path, _version: tuple[int, int]) -> dict[str, Any]:
    return record.read_json(path)


def _version(path: Path) -> tuple[int, int]:
    """Returns what changes with a file that is written anew. Raises ResultsError."""
    try:
        found = path.stat()
    except OSError as error:
        raise ResultsError(line(error)) from None
    return found.st_mtime_ns, found.st_ino


def _read(path: Path) -> dict[str, Any]:
    return _json(path, _version(path))


class Folders:
    """The results folders below ``roots``, which need not be there yet."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.absolute() for root in roots]

    # ---- names and files

    def path(self, name: str) -> Path:
        """Returns the folder of a name. Raises Unknown: there is none of this name, or a link leads out of its root."""
        if not _is_text(name):
            raise Unknown(f"{name[:200]!r}: a folder whose name is not UTF-8 has no address: rename it")
        number, _, rest = name.partition("/")
        if number not in map(str, range(len(self._roots))):
            raise Unknown(f"{name[:200]!r}: expected the name of a results folder, as in the list")
        root = self._roots[int(number)]
        path = root / rest
        if not (self._is_inside(root, path) and path.is_dir() and self._is_results(path)):
            raise Unknown(f"{name[:200]!r}: no results folder of this name is in {root}")
        for file in FILES:
            self._check(root, path / file)
        return path

    @staticmethod
    def _is_inside(root: Path, path: Path) -> bool:
        try:
            path.stat()
        except (OSError, ValueError):  # nothing is there, links run in a circle, or it is no name of a file
            return False
        return path.resolve().is_relative_to(root.resolve())

    def _check(self, root: Path, file: Path) -> None:
        """Raises Unknown if a file is there and is none of this root's."""
        if file.is_symlink() or file.exists():
            if not self._is_inside(root, file):
                raise Unknown(f"{file}: leads out of {root}: nothing there is shown")
            if file.exists() and not file.is_file():
                raise Unknown(f"{file}: expected a file")

    def _readable(self, points: Iterable[Path]) -> Iterator[Path]:
        """Yields the points of a sweep that are results folders, and whose files are all regular ones in this root."""
        for point in points:
            with suppress(Unknown):
                yield self.path(self._named(point))

    @staticmethod
    def _is_results(path: Path) -> bool:
        return any((path / name).is_file() for name in (PLAN, CONFIG, METRICS, journal.FILE))

    def _named(self, path: Path) -> str:
        """Returns the name of a folder in a root; of roots in each other, in the innermost one."""
        number = max((number for number, root in enumerate(self._roots) if path.is_relative_to(root)),
                     key=lambda number: (len(self._roots[number].parts), -number))
        return f"{number}/{path.relative_to(self._roots[number]).as_posix()}"

    def _title(self, name: str) -> str:
        """Returns a name for people: its path in the root, behind the root's own name where there are several roots, and behind
        the root's whole path where two have the same name."""
        number, _, rest = name.partition("/")
        root = self._roots[int(number)]
        if len(set(self._roots)) == 1 and rest != ".":
            return rest
        alike = {each for each in self._roots if each.name == root.name}
        return "/".join([root.name or str(root) if len(alike) == 1 else str(root), *([rest] if rest != "." else [])])

    def _found(self) -> Iterator[str]:
        """Yields the name of each results folder once."""
        seen = set()
        for root in self._roots:
            for path in _results_in(root, self._is_results, DEEP):
                if (name := self._named(path)) not in seen:
                    seen.add(name)
                    yield name

    # ---- the list

    def listed(self) -> Answer:
        """Returns ``roots``, ``runs`` (newest first), ``skipped`` folders with the reason, and how many are ``left_out``."""
        runs, skipped = [], []
        for name in self._found():
            try:
                runs.append(self._entry(name, self.path(name)))
            except (Unknown, ResultsError) as error:
                skipped.append({"run": name, "reason": str(error)[:LONG]})
        runs.sort(key=lambda run: run["began"], reverse=True)
        return {"roots": list(map(str, self._roots)), "runs": runs[:MOST], "skipped": skipped[:MOST],
                "left_out": max(0, len(runs) - MOST) + max(0, len(skipped) - MOST)}

    def _entry(self, name: str, path: Path) -> Answer:
        """Returns a run or a sweep for the list. Raises ResultsError."""
        if (path / PLAN).exists():
            plan = _read(path / PLAN)
            points = _points(path, plan)
            configs = [point["config"] for point in plan["points"]]
            progress = journal.read(path)
            done = sum(_finished(point) for point in self._readable(points)) if progress is None else _done(progress)
            entry: Answer = {"name": str(plan.get("name")), "kind": str(plan.get("kind")), "points": [done, len(points)]}
            began = _version(path / PLAN)[0]
        else:
            config = _read(path / CONFIG)
            configs = [config]
            entry = {"name": str(config.get("name")), "kind": str(config.get("kind")), "points": None}
            began = _version(path / CONFIG)[0]
            if _finished(path):
                entry["rows"] = _rows(_result(path))
        return entry | {"run": name, "title": self._title(name), "state": state(path), "began": 1e-9 * began,
                        "error": _error(path), "protocols": _values(configs, "protocol"),
                        "backends": _values(configs, "backends")}

    # ---- one run

    def detail(self, name: str) -> Answer:
        """Returns everything about a run or a sweep but its progress. Raises Unknown, ResultsError."""
        path = self.path(name)
        entry, skipped = self._entry(name, path), list[str]()
        points = []
        if (path / PLAN).exists():
            points = [{"run": f"{name}/{point.name}", "name": point.name, "state": state(point)}
                      for point in self._readable(_points(path, _read(path / PLAN)))]
        results = list(self._results([name], skipped))
        keys = _keys(results[0].config.as_dict() if results else _config(path)) if not points else []
        found = [{"run": self._named(result.path), **finding.__dict__} for result in results for finding in _why(result)]
        return entry | {
            "sweep": points, "keys": keys, "rows": _rows(results[0]) if results and not points else [], "why": found,
            "caution": report.caution([summary for result in results for summary in result.summary]),
            "comparison": results[0].comparison if results and not points else {},
            "environment": results[0].environment if results else {}, "report": (path / PAGE).is_file(), "skipped": skipped}

    def report(self, name: str) -> bytes:
        """Returns the HTML report of a run or a sweep. Raises Unknown."""
        page = self.path(name) / PAGE
        try:
            with plain_files.opened(page) as stream:
                return stream.read()
        except OSError as error:
            raise Unknown(line(error)) from None

    def live(self, name: str) -> Answer:
        """Returns the ``state`` of a run or a sweep, how long it has run (s), and for each back end or job what is done of how
        much, words, and the ``curves`` by figure, (done, value). Raises Unknown, ResultsError."""
        path = self.path(name)
        progress = journal.read(path)
        jobs = []
        for last in progress.last() if progress else []:
            lines = [each for each in progress.lines if each["of"] == last["of"]] if progress else []
            figures = dict.fromkeys(key for each in lines for key in each if key not in ("at", "of", "done", "total", "words"))
            curves = {figure: _thinned([(each["done"], each.get(figure)) for each in lines if figure in each])
                      for figure in figures}
            jobs.append({**{key: last.get(key) for key in ("of", "at", "done", "total", "words")}, "curves": curves})
        age = time.time() - progress.head["began"] if progress else None
        return {"state": state(path), "age": age, "jobs": jobs, "error": _error(path)}

    # ---- comparison

    def table(self, names: Iterable[str], where: Sequence[tuple[str, str]] = ()) -> Answer:
        """Returns the flat table of runs and sweeps (ina.lab.results.tabular): ``columns``, ``rows`` of which each cell of
        ``where`` has its text, ``values`` by which they can be chosen, and what was ``skipped``.

        Raises Unknown: of a name; ResultsError: a key is in no row.
        """
        skipped: list[str] = []
        results = list(self._results(names, skipped))
        named = {str(result.path): self._named(result.path) for result in results}
        rows = [{"run": named[str(row["path"])], **{key: value for key, value in row.items() if key != "path"}}
                for row in tabular.rows(results)]
        columns = list(rows[0]) if rows else []
        for key, _ in where:
            if rows and key not in columns:
                raise ResultsError(f"where {key[:100]!r}: expected one of {', '.join(columns)}")
        values = {key: sorted({_text(row[key]) for row in rows}) for key in columns if key != "run"}
        chosen = [row for row in rows if all(_text(row[key]) == text for key, text in where)]
        return {"columns": [_column(key) for key in columns], "rows": chosen[:ROWS], "left_out": max(0, len(chosen) - ROWS),
                "values": {key: each for key, each in values.items() if 1 < len(each) <= 50}, "skipped": skipped,
                "colours": report.COLOURS, "series": compare.SERIES}

    def _results(self, names: Iterable[str], skipped: list[str]) -> Iterator[Result]:
        """Yields the finished runs of runs and sweeps; ``skipped`` gets what cannot be read. Raises Unknown."""
        for name in dict.fromkeys(names):
            path = self.path(name)
            try:
                places = _points(path, _read(path / PLAN)) if (path / PLAN).exists() else [path]
            except ResultsError as error:
                skipped.append(str(error)[:LONG])
                continue
            for place in places:
                try:
                    if _finished(self.path(self._named(place)) if place != path else path):
                        yield _result(place)
                except (Unknown, ResultsError) as error:
                    if place == path or self._is_results(place):
                        skipped.append(str(error)[:LONG])


def _is_text(name: str) -> bool:
    """Returns False for a name of bytes that are no UTF-8, as os.fsdecode writes them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _results_in(folder: Path, is_results: Callable[[Path], bool], deep: int) -> Iterator[Path]:
    """Yields results folders, and looks for no others in them. Links are followed nowhere."""
    if is_results(folder):
        yield folder
    elif deep >= 0:
        try:
            with os.scandir(folder) as entries:
                inner = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False) and each.name[0] != ".")
        except OSError:  # not there yet, or somebody else's
            return
        for name in inner:
            yield from _results_in(folder / name, is_results, deep - 1)


def _points(path: Path, plan: dict[str, Any]) -> list[Path]:
    """Returns the folders of a sweep's points, which are in its own. Raises ResultsError."""
    try:
        names = [str(point["folder"]) for point in plan["points"] if isinstance(point["config"], dict)]
    except (KeyError, TypeError):
        raise ResultsError(f"{path / PLAN}: expected 'points', each with its 'folder' and 'config'") from None
    if any("/" in name or name in ("", ".", "..") for name in names):
        raise ResultsError(f"{path / PLAN}: expected folders of points that are names")
    return [path / name for name in names]


def state(path: Path) -> str:
    """Returns the state of a run or a sweep: running, finished, failed or ended without a result. Raises ResultsError."""
    progress = journal.read(path)
    if progress is not None and progress.running:
        return RUNNING
    if (path / ERROR).exists():
        return FAILED
    whole = not (path / UNFINISHED).exists() and progress is None if (path / PLAN).exists() else _finished(path)
    return FINISHED if whole else ENDED


def _done(progress: journal.Progress) -> int:
    return int(progress.lines[-1]["done"]) if progress.lines else 0


def _error(path: Path) -> str:
    try:
        with plain_files.opened(path / ERROR) as stream:
            return stream.read(4 * LONG).decode(errors="replace")[:LONG].strip()
    except OSError:
        return ""


def _result(path: Path) -> Result:
    """Returns a run's results, which are read again when they have been written again. Raises ResultsError."""
    return _loaded(path, tuple(_version(path / name) for name in (CONFIG, "environment.json", METRICS)))


def _why(result: Result) -> list[Finding]:
    """Returns the bottlenecks of a run; unknown with the reason where another version, or a user's own kind, left no figures."""
    try:
        return why.explain(result)
    except Exception as error:  # whatever a kind raises
        return [Finding("all", "unknown", f"the figures that would show it are missing ({type(error).__name__}: {error})")]


def _values(configs: Sequence[dict[str, Any]], key: str) -> list[str]:
    """Returns the values of a key, each once; those of a list, too."""
    found = [config.get(key) for config in configs]
    return sorted({str(each) for value in found if value is not None for each in (value if isinstance(value, list) else [value])})


def _config(path: Path) -> dict[str, object]:
    try:
        return from_dict(_read(path / CONFIG)).as_dict()
    except ConfigError as error:
        raise ResultsError(f"{path}/{error}") from None


def _keys(config: dict[str, object]) -> list[Answer]:
    """Returns the keys of a configuration: each name with its value in words, and its help."""
    known = settings.keys(kinds()[str(config["kind"])])
    return [{"name": name, "value": units.format_value(value, name), "help": known[name].help} for name, value in config.items()]


def _rows(result: Result) -> list[Answer]:
    """Returns a run's table: a row for each back end or job, with the figures of its kind, in words."""
    shown = report.columns(type(result.config), result.summary)
    return [{"name": report.row_name(summary), "figures": [
        {"key": row.key, "heading": row.heading, "short": row.short, "text": text, "words": WORDS.get(row.key, "")}
        for row, text in zip(shown, report.cells(shown, summary), strict=True)]} for summary in result.summary]


@functools.cache
def _column(name: str) -> Answer:
    """Returns a column of the flat table: of a key, its unit and help; of a figure, its heading in each kind, and words."""
    for kind in kinds().values():
        if key := settings.keys(kind).get(name):
            return {"name": name, "figure": False, "unit": key.unit or "", "words": key.help, "headings": {}}
    figure = name.removeprefix("figure_")
    headings = {kind: row.heading + (", share" if row.pattern.endswith("%}") else "")
                for kind, own in kinds().items() for row in own.rows if row.key == figure}
    return {"name": name, "figure": name != "run", "unit": "", "words": WORDS.get(figure, ""), "headings": headings}


def _text(value: tabular.Cell) -> str:
    """Returns a cell as a filter names it."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _thinned(points: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Returns at most POINTS points: means of neighbours, at the last one's place."""
    size = math.ceil(len(points) / POINTS)
    thinned: list[tuple[float, float | None]] = []
    for begin in range(0, len(points), size or 1):
        part = points[begin : begin + size]
        numbers = [y for _, y in part if y is not None]
        thinned.append((part[-1][0], sum(numbers) / len(numbers) if len(numbers) == len(part) else None))
    return thinned
