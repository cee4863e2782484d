"""Comparison of results: the points of a sweep, or any results folders, as a table and as one HTML page."""

from __future__ import annotations

import dataclasses
import html
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from rich import box
from rich.console import Console
from rich.table import Table

from ina.base import settings
from ina.base.settings import ConfigError
from ina.lab.kind import Curve, Experiment
from ina.lab.results import report
from ina.lab.results.record import Result, ResultsError, load, read_plan
from ina.lab.results.shapes import is_number
from ina.lab.results.units import axis, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = dict[str, list[tuple[float | str, float]]]  # by name: points (x, y); x is a key's value, or a folder's name
MODEL = "ring at best (model, no loss)"
SERIES = ("#1668b8", "#c65a11", "#3a8a3a", "#8f3aa8", "#a8963a", "#3a97a8", "#a83a5b", "#555f6b")
MARKERS = "os^DvP*X"
GREY = "#888888"  # of the model's lines, and of what is on top of bars
UNPLOTTED = ("ring_model_ms", "link_use", "packets", "sums")  # derived from other figures
MOST_LINES = 16  # of a plot: of more, only most, median and least are drawn


@dataclass(frozen=True)
class Group:
    """Results of one kind; ``keys``: configuration keys in which they differ, but those that each row names itself."""

    kind: type[Experiment]
    results: list[Result]
    keys: list[str]

    def rows(self) -> list[tuple[Result, dict]]:
        return [(result, summary) for result in self.results for summary in result.summary]

    @property
    def names(self) -> set[str]:
        """Back ends or jobs that any of the results has."""
        return {report.row_name(summary) for _, summary in self.rows()}

    def line(self, result: Result, summary: dict, by: Sequence[str], across: str | None = None) -> str:
        """Returns the name of a row's line in a plot over key ``across`` with a line for each combination of the values of keys
        ``by``, and for each back end or job, unless ``across`` has these."""
        parts = [f"{key} {format_value(getattr(result.config, key), key)}" for key in by]
        if across is not None and all(getattr(each.config, across) == report.row_name(row) for each, row in self.rows()):
            return ", ".join(parts) or self.kind.kind
        if len(self.names) > 1 or not parts:
            parts.append(report.row_name(summary))
        return ", ".join(parts)


def _refuse(error: ResultsError) -> None:
    raise error


def readable(folders: Sequence[Path], skipped: Callable[[ResultsError], None] = _refuse) -> list[Result]:
    """Returns the finished runs of all folders, each run once, also where a folder is there twice or beside its sweep's.
    ``skipped`` hears of those that cannot be read; without it they are an error. Raises ResultsError: none can."""
    results: dict[Path, Result] = {}
    for folder in folders:
        try:
            for result in points(folder, skipped):
                results.setdefault(result.path.resolve(), result)
        except ResultsError as error:
            if len(folders) == 1:
                raise
            skipped(error)
    if not results:
        raise ResultsError("none of these folders has results")
    return list(results.values())


def points(folder: Path, skipped: Callable[[ResultsError], None] = _refuse) -> list[Result]:
    """Returns the finished runs of a results folder: of a sweep, all its points; else the one run. ``skipped`` hears of points
    that cannot be read; without it they are an error.

    Raises:
        ResultsError: it is not a results folder, or no run in it is finished.
    """
    if (folder / "experiment.json").exists():
        plan, results = read_plan(folder / "experiment.json"), []
        for path in [folder / point["folder"] for point in plan["points"]]:
            try:
                results += [load(path)] if (path / "metrics.json").exists() else []
            except ResultsError as error:
                skipped(error)
    elif (folder / "metrics.json").exists():
        results = [load(folder)]
    else:
        raise ResultsError(f"{folder}: neither experiment.json (of a sweep) nor metrics.json (of a run) is there")
    results = [result for result in results if result.finished]
    if not results:
        raise ResultsError(f"{folder}: no run in it is finished")
    return results


def grouped(results: Sequence[Result]) -> list[Group]:
    """Returns a group for each kind."""
    groups = []
    for kind in dict.fromkeys(type(result.config) for result in results):
        chosen = [result for result in results if type(result.config) is kind]
        configs = [result.config.as_dict() for result in chosen]
        keys = [key for key in configs[0] if key not in ("name", "backends") and any(c[key] != configs[0][key] for c in configs)]
        groups.append(Group(kind, chosen, _without_derived(kind, chosen, keys)))
    return groups


def _without_derived(kind: type[Experiment], results: Sequence[Result], keys: Sequence[str]) -> list[str]:
    """Returns those of the keys whose values do not all follow from the others': no axis, and nothing that tells runs apart."""
    left: dict[str, object] = {}
    for key in keys:
        more = {**left, key: settings.keys(kind)[key].default}
        if all(_follows(result.config, more) for result in results):
            left = more
    return [key for key in keys if key not in left]


def _follows(config: Experiment, left: dict[str, object]) -> bool:
    """Returns True if the experiment is the same where these keys are ``left`` to the others."""
    try:
        return dataclasses.replace(config, **left).resolved().as_dict() == config.as_dict()
    except ConfigError:
        return False


def _identity(group: Group) -> tuple[list[str], list[list[str]]]:
    """Returns headings and, for each row, the values that distinguish it: its folder where no key does."""
    head = [*group.keys, group.kind.subject]
    rows = [
        [*(format_value(getattr(result.config, key), key) for key in group.keys), report.row_name(summary)]
        for result, summary in group.rows()
    ]
    if len({tuple(row) for row in rows}) < len(rows):
        head.insert(0, "run")
        rows = [[result.path.name, *row] for (result, _), row in zip(group.rows(), rows, strict=True)]
    return head, rows


@dataclass(frozen=True)
class Column:
    """Column of a table in the terminal: its heading there, the whole heading, and a cell for each row."""

    short: str
    heading: str
    cells: Sequence[str]
    justify: Literal["left", "right"]

    @property
    def width(self) -> int:
        """Characters in which no cell is cut; the heading may break between words."""
        return max(map(len, [*self.short.split(), *self.cells]))


def show(console: Console, title: str, results: Sequence[Result]) -> None:
    """Prints the tables: whole into files and pipes, as many columns as fit into a terminal."""
    for table, notes in tables(title, results, console.width if console.is_terminal else None):
        console.print(table, crop=False)
        console.print(notes, highlight=False, style="dim")


def tables(title: str, results: Sequence[Result], width: int | None = None) -> list[tuple[Table, str]]:
    """Returns tables for the terminal, one row a run, with notes below: headings in full, and columns that are the same in all
    rows.

    ``width``: of the terminal, characters; columns at the end that do not fit are only named. None: no limit.
    """
    pairs = []
    for group in grouped(results):
        columns = _columns(group)
        same = [column for column in columns if len(column.cells) > 1 and len(set(column.cells)) == 1]
        shown = [column for column in columns if column not in same]
        omitted: list[Column] = []
        while width is not None and len(shown) > 1 and _total(shown) > width:
            omitted.insert(0, shown.pop())
        table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
        for column in shown:
            table.add_column(column.short, justify=column.justify, width=column.width)
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        table.width = _total(shown)  # else rich cuts figures until it fits 80 characters
        notes = [f"{column.short}: {column.heading}" for column in shown if column.heading != column.short]
        notes += [f"in all rows {column.heading}: {column.cells[0]}" for column in same]
        notes += [text] if (text := report.caution([summary for _, summary in group.rows()])) else []
        notes += [f"only in the report: {', '.join(column.heading for column in omitted)}"] if omitted else []
        pairs.append((table, "; ".join(notes)))
    return pairs


def _columns(group: Group) -> list[Column]:
    head, identities = _identity(group)
    summaries = [summary for _, summary in group.rows()]
    names = [[*identity[:-1], summary.get("backend", identity[-1])]
             for identity, summary in zip(identities, summaries, strict=True)]
    figures = report.columns(group.kind, summaries)
    cells = zip(*(report.cells(figures, summary) for summary in summaries), strict=True)
    return [
        *(Column(key, key, cells, "left") for key, cells in zip(head, zip(*names, strict=True), strict=True)),
        *(Column(short, heading, cells, "right") for (_, heading, short, _), cells in zip(figures, cells, strict=True)),
    ]


def _total(columns: Sequence[Column]) -> int:
    """Returns the width of a table of these columns: two characters between columns, and its edges."""
    return sum(column.width + 2 for column in columns) + 1


# ---- plots -------------------------------------------------------------------------------------------------------


def horizontal_key(group: Group) -> str | None:
    """Returns the key of the horizontal axis: the one with the most values, numbers before words; repetitions (seed) last."""

    def rank(key: str) -> tuple:
        values = {getattr(result.config, key) for result in group.results}
        return key != "seed", all(isinstance(v, (int, float)) for v in values), len(values)

    return max(group.keys, key=rank) if group.keys else None


def lines_of(group: Group, across: str | None, figure: str, by: Sequence[str] = ()) -> Lines:
    """Returns points (x, y) by the name of their line, with a line for each combination of the values of keys ``by``: by default
    all but ``across``, and the seed, so that repetitions are on one line."""
    lines: Lines = {}
    by = by or [key for key in group.keys if key not in (across, "seed")]
    for result, summary in group.rows():
        y = summary.get(figure)
        if not is_number(y):
            continue
        x = getattr(result.config, across) if across else result.path.name
        lines.setdefault(group.line(result, summary, by, across), []).append((x, y))
    return lines


def _few(lines: Lines) -> Lines:
    """Returns the lines, or where there are many of them (jobs) the most, median and least at each place."""
    if len(lines) <= MOST_LINES:
        return lines
    at: dict[float | str, list[float]] = {}
    for line in lines.values():
        for x, y in line:
            at.setdefault(x, []).append(y)
    kinds: dict[str, Callable[[list[float]], float]] = {"most": max, "median": statistics.median, "least": min}
    return {f"{name} of {len(lines)}": [(x, choose(ys)) for x, ys in at.items()] for name, choose in kinds.items()}


def _model(group: Group, across: str | None) -> Lines:
    """Returns the model's line for each line of measured times; one line where all are the same."""
    lines = lines_of(group, across, "ring_model_ms")
    if len({tuple(sorted(set(line))) for line in lines.values()}) == 1:
        return {MODEL: next(iter(lines.values()))}
    return {f"{MODEL}, {name}": line for name, line in lines.items()}


class Style(TypedDict, total=False):
    """Keywords of matplotlib for a line."""

    color: str
    marker: str
    linestyle: str
    linewidth: float
    markersize: float
    markerfacecolor: str
    alpha: float


def line_style(index: int) -> Style:
    """Returns the style of line `index` of a plot: among MOST_LINES no two are alike, and lines on top of each other stay
    visible."""
    turn, place = divmod(index, len(SERIES))
    size = max(1.5, 4.5 - index)
    return {"color": SERIES[place], "marker": MARKERS[place], "linestyle": "--" if turn % 2 else "-", "linewidth": size,
            "markersize": 3 + 2 * size}


def colours(group: Group, across: str | None) -> dict[str, int]:
    """Returns the number of each line's style (line_style), which is the same in all plots of a page. Back ends have their own,
    which they also have in the report of a run."""
    by = [key for key in group.keys if key not in (across, "seed")]
    names = dict.fromkeys(group.line(result, summary, by) for result, summary in group.rows())
    own = {report.row_name(summary): report.COLOURS.get(str(summary.get("backend"))) for _, summary in group.rows()}
    if own.keys() == names.keys() and None not in own.values() and len(set(own.values())) == len(own):
        return {name: SERIES.index(str(colour)) for name, colour in own.items()}
    return {name: index for index, name in enumerate(names)}


def scale_places(axes: Axes, places: Sequence[float], across: str, logarithmic: bool = False) -> None:
    """Scales the horizontal axis of values of key ``across``: ``logarithmic``, as also where they are far apart, and then linear
    below the least positive one if there is another; with a tick at each where they are few."""
    positive = [x for x in places if x > 0]
    if logarithmic or (len(positive) > 2 and max(positive) / min(positive) >= 8):
        axes.set_xscale("symlog", linthresh=min(positive)) if min(places) <= 0 else axes.set_xscale("log")
    if len(places) <= 10:
        axes.set_xticks(places, [format_value(x, across) for x in places])
        axes.minorticks_off()


def _draw(axes: Axes, lines: Lines, across: str, heading: str, numbers: Mapping[str, int]) -> None:
    """Draws medians over repetitions, with bars from the least to the most. ``numbers``: of the lines' styles."""
    every = list(dict.fromkeys(x for line in lines.values() for x, _ in line))
    places = sorted(x for x in every if isinstance(x, (int, float)))
    if len(places) < len(every):
        return _bars(axes, lines, every, across, heading, numbers)
    for index, (name, line) in enumerate(lines.items()):
        at = {x: [y for other, y in line if other == x] for x in places if x in {x for x, _ in line}}
        middles = [statistics.median(values) for values in at.values()]
        if name.startswith(MODEL):
            axes.plot(list(at), middles, ":", color=GREY, label=name)
            continue
        spread = [_spread(values) for values in at.values()]
        axes.errorbar(list(at), middles, list(zip(*spread, strict=True)) if len(line) > len(at) else None, label=name,
                      capsize=3, elinewidth=1, **line_style(numbers.get(name, index)))
    scale_places(axes, places, across)
    axes.set(xlabel=axis(across), ylabel=heading)
    heights = [y for line in lines.values() for _, y in line]
    if min(heights) > 0 and max(heights) / min(heights) > 50:
        axes.set_yscale("log")
        report.logarithmic(axes.yaxis)
    elif min(heights) >= 0:
        axes.set_ylim(0, 1.08 * max(heights))  # whole marks
    if len(lines) > 1:
        report.legend(axes)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Returns how far the least and the most are from the median."""
    middle = statistics.median(values)
    return middle - min(values), max(values) - middle


def _bars(axes: Axes, lines: Lines, places: list[float | str], across: str, heading: str, numbers: Mapping[str, int]) -> None:
    """Draws a group of bars for each word on the axis, with its figure on top; no gap for points that were not run."""
    ticks, at = [], 0.0
    for place in places:
        here = [(name, [y for x, y in line if x == place])
                for name, line in lines.items() if any(x == place for x, _ in line)]
        for offset, (name, values) in enumerate(here):
            y, number = statistics.median(values), numbers.get(name, list(lines).index(name))
            in_legend = name in axes.get_legend_handles_labels()[1]
            bars = axes.bar(at + offset, y, 0.9, color=GREY if name.startswith(MODEL) else SERIES[number % len(SERIES)],
                            label=None if in_legend else name)
            if len(values) > 1:
                axes.errorbar([at + offset], [y], [[part] for part in _spread(values)], fmt="none", ecolor=GREY, capsize=3)
            axes.bar_label(bars, [f"{y:.3g}" if abs(y) < 999.5 else f"{y:,.0f}"], fontsize=7)
        ticks.append(at + (len(here) - 1) / 2)
        at += len(here) + 1
    axes.set_xticks(ticks, [format_value(place, across) for place in places])
    axes.set(xlabel=axis(across), ylabel=heading)
    if len(lines) > 1:
        report.legend(axes)


def _curve(group: Group, curve: Curve, across: str | None) -> tuple[str, str]:
    """Returns the caption and the SVG of a curve of each run, by step, in the colour that its line has in the other plots."""
    _, identities = _identity(group)
    runs = [run for result in group.results for run in result.runs]
    numbers, by = colours(group, across), [key for key in group.keys if key not in (across, "seed")]
    names = [group.line(result, summary, by) for result, summary in group.rows()]

    def draw(axes: Axes) -> None:
        drawn: list[float] = []
        for index, (run, identity, name) in enumerate(zip(runs, identities, names, strict=True)):
            values = report.smooth(run[curve.key])
            axes.plot(range(1, len(values) + 1), values, label=", ".join(identity), color=SERIES[numbers[name] % len(SERIES)],
                      linestyle=report.LINES[names[:index].count(name) % len(report.LINES)],
                      linewidth=max(1.0, 5 - 1.3 * index))  # the same curve under another one stays visible
            drawn += values
        axes.set(xlabel="step", ylabel=curve.label)
        report.whole_numbers(axes.xaxis)
        axes.set_ylim(bottom=0, top=1.05 * max((value for value in drawn if value > 0), default=1.0))
        if len(runs) <= 2 * len(SERIES):
            report.legend(axes)

    return curve.caption, report.svg(draw)


def _plots(group: Group) -> list[tuple[str, str]]:
    """Returns captions and SVGs; a figure with a single point has none."""
    across = horizontal_key(group)
    curve, numbers = group.kind.curve, colours(group, across)
    long = curve and max(len(run[curve.key]) for result in group.results for run in result.runs) > 1
    plots = [_curve(group, curve, across)] if curve and long else []
    for key, heading, _, pattern in group.kind.rows:
        if key in UNPLOTTED:
            continue
        lines = lines_of(group, across, key)
        places = {(name, x) for name, line in lines.items() for x, _ in line}
        if len(places) < 2 or not any(y for line in lines.values() for _, y in line):
            continue
        lines = _few(lines)
        if key == "time_ms":
            lines |= _model(group, across)
        if pattern.endswith("%}"):
            lines = {name: [(x, 100 * y) for x, y in line] for name, line in lines.items()}
            heading += ", %"
        label = across or "run"
        drawn = report.svg(partial(_draw, lines=lines, across=label, heading=heading, numbers=numbers))
        plots.append((f"{heading} by {label}", drawn))
    return plots


# ---- the page ----------------------------------------------------------------------------------------------------


def _origin(results: Sequence[Result]) -> str:
    """Returns commit, machine and hashes, or a warning where the runs differ in them."""
    kinds = {
        "commit": {r.environment["commit"] for r in results},
        "machine": {f"{r.environment['cpu']}, {r.environment['cores']} cores" for r in results},
        "switch program": {r.environment["sources"]["program"][:16] for r in results},
        "worker": {r.environment["sources"]["worker"][:16] for r in results},
    }
    other = [name for name, values in kinds.items() if len(values) > 1 and name != "switch program"]
    warning = f"<p><strong>These runs differ in {' and '.join(other)}.</strong></p>" if other else ""
    return warning + report.definition_table({name: ", ".join(sorted(values)) for name, values in kinds.items()})


def page(title: str, about: str, results: Sequence[Result]) -> str:
    """Returns one HTML page with everything inside: table, plots and where the figures come from."""
    parts = [f"<p>{html.escape(about)}</p>"] if about else []
    for group in grouped(results):
        head, identities = _identity(group)
        columns = report.columns(group.kind, [summary for _, summary in group.rows()])
        head += [heading for _, heading, _, _ in columns]
        rows = [
            [*identity, *report.cells(columns, summary)]
            for identity, (_, summary) in zip(identities, group.rows(), strict=True)
        ]
        parts += [report.html_guide(group.kind), report.html_figures(_plots(group)), report.html_table(head, rows),
                  report.html_caution([summary for _, summary in group.rows()]), report.html_words(group.kind, columns)]
        same = {k: v for k, v in group.results[0].config.as_dict().items() if k not in group.keys}
        summary = f"The same in all {group.kind.kind} runs"
        parts.append(f"<details><summary>{summary}</summary>{report.definition_table(same)}</details>")
    parts.append(f"<details open><summary>Where these figures come from</summary>{_origin(results)}</details>")
    return report.html_page(title, "".join(parts))
