"""A figure for a paper, from results folders: `ina plot`, one plot as PDF, SVG or PNG, or its points as CSV.

A point is the median over repetitions (runs that differ in nothing but the seed), with the least and the most of them as error
bars, or their mean with its standard deviation. A distribution (CDF) has all repetitions of a line instead.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ina.base.csv_text import csv_text
from ina.base.extras import extra
from ina.lab.kind import Experiment, Row
from ina.lab.results import compare, report
from ina.lab.results.record import Result, ResultsError
from ina.lab.results.shapes import is_number
from ina.lab.results.units import axis, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg", "png", "csv")
SIZES = {"column": (3.35, 2.2), "page": (7.0, 2.6), "slide": (9.0, 5.0)}  # inches: a column and the width of a two-column page;
# the height is without the legend
FONTS = {"column": 8, "page": 8, "slide": 14}  # points
DPI = 300  # of a PNG
LETTER = 0.62  # em: the mean width of one, or a little more
HANDLE = 4.0  # em: what a legend has beside its names
UPRIGHT = 24  # letters in a line of a label that stands upright
AXES = 0.75  # the share of the figure's width that labels below the axes may take, at least
SEED = "seed"  # the key of repetitions


@dataclass(frozen=True)
class Point:
    """Repetitions of a line at one place. ``middle`` between ``low`` and ``high``, of ``count`` runs."""

    x: float | str
    middle: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, x: float | str, values: Sequence[float], errors: str) -> Point:
        """``errors``: "range", "deviation", or anything else for none."""
        if errors == "deviation":
            middle = statistics.fmean(values)
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            return cls(x, middle, middle - spread, middle + spread, len(values))
        middle = statistics.median(values)
        low, high = (min(values), max(values)) if errors == "range" else (middle, middle)
        return cls(x, middle, low, high, len(values))


@dataclass(frozen=True)
class Plot:
    """Plot to draw. ``lines``: by name, every repetition as (x, value); ``across``: the key of x, None of a distribution."""

    lines: Mapping[str, Sequence[tuple[float | str, float]]]
    across: str | None
    heading: str
    errors: str

    def points(self, line: str) -> list[Point]:
        """Returns the points of a line by x: in order where they are numbers, else as they came."""
        places: dict[float | str, list[float]] = {}
        for x, value in self.lines[line]:
            places.setdefault(x, []).append(value)
        order = sorted(places, key=float) if all(map(is_number, places)) else list(places)
        return [Point.of(x, places[x], self.errors) for x in order]

    def distribution(self, line: str) -> list[tuple[float, float]]:
        """Returns (value, share of the repetitions that are at most it) by value."""
        values = sorted(value for _, value in self.lines[line])
        return [(value, (i + 1) / len(values)) for i, value in enumerate(values)]


def choose(results: Sequence[Result], figure: str, across: str, by: Sequence[str], errors: str, distribution: bool) -> Plot:
    """Returns the plot of ``figure`` over key ``across``, with a line for each combination of the values of keys ``by``; "" and
    (): the kind's first figure, over the key with the most values, by all others in which the runs differ.

    Raises ResultsError: results of several kinds, no such figure or key, keys that leave unlike runs in one point, or a
    distribution over a key.
    """
    groups = compare.grouped(results)
    if len(groups) > 1:
        kinds = ", ".join(group.kind.kind for group in groups)
        raise ResultsError(f"results of kinds {kinds}: a plot has one; name the folders of one kind")
    if distribution and across:
        raise ResultsError(f"--x {across}: the horizontal axis of a distribution has the figure, which --y chooses")
    (group,) = groups
    row = _row(group, figure)
    for key in (*([across] if across else []), *by):
        if key not in group.results[0].config.as_dict():
            raise ResultsError(f"kind {group.kind.kind} has no key {key!r}; the runs differ in: {_listed(group.keys)}")
    place = None if distribution else across or compare.horizontal_key(group)
    apart = list(by) or [key for key in group.keys if key not in (place, SEED)]
    mixed = [key for key in group.keys if key not in (place, SEED, *apart)]
    if mixed and not distribution:
        raise ResultsError(f"the runs of a point differ in {_listed(mixed)}, too: add them to --by, or plot fewer folders")
    percent = row.pattern.endswith("%}")
    lines = {name: [(x if is_number(x) else format_value(x, place or ""), 100 * y if percent else y) for x, y in line]
             for name, line in compare.lines_of(group, place, row.key, apart).items()}
    return Plot(lines, None if distribution else place or "run", row.heading + ", %" * percent, errors)


def _row(group: compare.Group, figure: str) -> Row:
    """Returns the figure of this name, or the first one that any run has a number for."""
    there = [row for row in group.kind.rows if any(is_number(summary.get(row.key)) for _, summary in group.rows())]
    chosen = [row for row in there if row.key == figure] if figure else there[:1]
    if not chosen:
        named = f"no figure {figure!r} in these runs" if figure else "these runs have no figures"
        raise ResultsError(f"{named}; there are: {_listed([row.key for row in there])}")
    return chosen[0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def choices(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """Returns what a plot of these runs can show: ("figure" or "key", name, what it is)."""
    listed: list[tuple[str, str, str]] = []
    for group in compare.grouped(results):
        shown = report.columns(group.kind, [summary for _, summary in group.rows()])
        listed += [("figure", row.key, row.heading) for row in shown]
        listed += [("key", key, _values(group.kind, group.results, key)) for key in group.keys]
    return listed


def _values(kind: type[Experiment], results: Sequence[Result], key: str) -> str:
    return ", ".join(dict.fromkeys(format_value(getattr(result.config, key), key) for result in results))


# ---- output ------------------------------------------------------------------------------------------------------


def table(plot: Plot) -> str:
    """Returns the plot's points as CSV, one row each."""
    if plot.across is None:
        return csv_text([["line", plot.heading, "share"],
                         *([line, value, share] for line in plot.lines for value, share in plot.distribution(line))])
    return csv_text([["line", plot.across, plot.heading, "low", "high", "runs"],
                     *([line, p.x, p.middle, p.low, p.high, p.count] for line in plot.lines for p in plot.points(line))])


def write(plot: Plot, target: Path, size: str, logarithmic: Sequence[str] = (), look: str = "") -> None:
    """Writes the plot as its file's name says. ``size``: one of SIZES; ``logarithmic``: "x" and "y", of these axes; ``look``: a
    style of matplotlib by name, or a file with one, whose colours the lines have.

    Raises ResultsError: another ending, a logarithmic axis with values that are not positive, or no such style.
    """
    form = target.suffix[1:]
    if form not in FORMATS:
        raise ResultsError(f"{target}: expected a name that ends with .{', .'.join(FORMATS)}")
    if form == "csv":
        target.write_text(table(plot))
        return
    with extra("plot"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    try:  # an absolute path: what looks like a URL matplotlib would fetch
        base = matplotlib.style.library[look] if look in matplotlib.style.library else (
            matplotlib.rc_params_from_file(Path(look).expanduser().absolute(), use_default_template=False) if look else {})
    except UnicodeDecodeError:
        raise ResultsError(f"--style {look}: not a text file: expected a .mplstyle file in UTF-8") from None
    except OSError:
        names = ", ".join(name for name in matplotlib.style.available if not name.startswith("_"))
        raise ResultsError(f"--style {look}: expected a .mplstyle file of this machine (nothing is fetched), or one of "
                           f"{names}") from None
    # Letters stay letters in all formats, and equal input makes an equal file.
    with matplotlib.rc_context({**base, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "ina",
                                "font.size": FONTS[size], "legend.fontsize": FONTS[size] - 1}):
        figure, axes = pyplot.subplots(figsize=SIZES[size], layout="constrained")
        try:
            _distribution(axes, plot, bool(look)) if plot.across is None else _points(figure, axes, plot, FONTS[size], bool(look))
            for name in logarithmic:
                _logarithmic(axes, name, plot)
            axes.grid(alpha=0.25, linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
            if len(plot.lines) > 1:
                _legend(figure, axes, FONTS[size] - 1)
            figure.savefig(target, dpi=DPI, metadata={"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form))
        finally:
            pyplot.close(figure)


def _broken(text: str, letters: int) -> str:
    """Returns the text in lines of so many letters, broken after commas or between words where it can be."""
    return textwrap.fill(text.replace(", ", ",").replace(",", ", "), letters)


def _legend(figure: Figure, axes: Axes, size: int) -> None:
    """Draws the legend below the axes, an entry a line, long ones broken. The figure grows by it."""
    width, height = figure.get_size_inches()
    handles, names = axes.get_legend_handles_labels()
    names = [_broken(name, int((72 * width / size - HANDLE) / LETTER)) for name in names]
    legend = figure.legend(handles, names, loc="outside lower left", frameon=False)
    figure.set_figheight(height + legend.get_window_extent().height / figure.dpi)


def _words(figure: Figure, axes: Axes, words: Sequence[str], size: int) -> None:
    """Labels the places 0, 1, ... of the horizontal axis: upright where they do not fit side by side, and then the figure
    grows by them."""
    width, height = figure.get_size_inches()
    room = int(72 * width * AXES / (LETTER * size * len(words)))  # letters
    if max(map(len, words)) <= room:
        axes.set_xticks(range(len(words)), words)
        return
    words = [_broken(word, UPRIGHT) for word in words]
    axes.set_xticks(range(len(words)), words, rotation=90)
    figure.set_figheight(height + LETTER * size * max(len(line) for word in words for line in word.splitlines()) / 72)


def _style(index: int, own: bool) -> compare.Style:
    """Returns the style of line ``index``. ``own``: in the colours of the chosen style."""
    style = compare.line_style(index)
    return style | {"color": f"C{index}"} if own else style


def _points(figure: Figure, axes: Axes, plot: Plot, size: int, own: bool) -> None:
    """Draws lines with error bars; words on the axis have a place each."""
    assert plot.across is not None
    every = list(dict.fromkeys(point.x for line in plot.lines for point in plot.points(line)))
    words = not all(map(is_number, every))
    every = every if words else sorted(every, key=float)
    for index, line in enumerate(plot.lines):
        points = plot.points(line)
        at = [every.index(point.x) if words else float(point.x) for point in points]
        below = [point.middle - point.low for point in points]
        above = [point.high - point.middle for point in points]
        style = _style(index, own)
        style |= {"linewidth": 0.5 * style["linewidth"], "markersize": 0.5 * style["markersize"]}
        if words:
            style["linestyle"] = "none"
        axes.errorbar(at, [point.middle for point in points], [below, above] if any(below + above) else None, label=line,
                      capsize=2, elinewidth=0.8, **style)
    if words:
        _words(figure, axes, [str(x) for x in every], size)
        axes.set_xlim(-0.5, len(every) - 0.5)
    else:
        compare.scale_places(axes, [float(x) for x in every], plot.across)
    axes.set(xlabel=axis(plot.across), ylabel=plot.heading)
    drawn = [point for line in plot.lines for point in plot.points(line)]
    if all(point.low >= 0 for point in drawn):
        axes.set_ylim(0, 1.08 * max(point.high for point in drawn) or None)  # whole marks


def _distribution(axes: Axes, plot: Plot, own: bool) -> None:
    for index, line in enumerate(plot.lines):
        steps = plot.distribution(line)
        style = _style(index, own)
        axes.step([steps[0][0], *(value for value, _ in steps)], [0, *(share for _, share in steps)], where="post", label=line,
                  color=style["color"], linestyle=("-", "--", ":", "-.")[index % 4], linewidth=1.2)
    axes.set(xlabel=plot.heading, ylabel="share of runs", ylim=(0, 1.02))


def _logarithmic(axes: Axes, name: str, plot: Plot) -> None:
    figures = [value for line in plot.lines.values() for _, value in line]
    if name == "y" and plot.across is None:
        raise ResultsError("--log y: the shares of a distribution begin at 0, where a logarithmic axis has no place")
    if name == "x" and plot.across is not None:
        places = {x for line in plot.lines.values() for x, _ in line}
        if not all(map(is_number, places)) or max(map(float, places)) <= 0:
            raise ResultsError(f"--log x: {plot.across} has no positive numbers")
        compare.scale_places(axes, sorted(map(float, places)), plot.across, logarithmic=True)
        return
    if min(figures) <= 0:
        raise ResultsError(f"--log {name}: {plot.heading}: some are 0 or less, where a logarithmic axis has no place")
    if name == "x":
        axes.set_xscale("log")
        report.logarithmic(axes.xaxis)
    else:
        axes.set_ylim(auto=True)
        axes.set_yscale("log")
        report.logarithmic(axes.yaxis)
