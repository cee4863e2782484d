"""A run's report: one HTML file with everything inside, and the table for the terminal."""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ina.aggregation import protocols
from ina.aggregation.entries import programs
from ina.base.extras import PURPOSES, extra
from ina.lab.kind import Experiment, Measured, Row
from ina.lab.results.progress import say_where
from ina.lab.results.record import Folder
from ina.lab.results.words import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

OTHERS = ("#3a8a3a", "#8f3aa8", "#a8963a", "#3a97a8", "#a83a5b", "#555f6b")
COLOURS = {"ina": "#1668b8", "gloo": "#c65a11", **dict(zip(protocols.names(), itertools.cycle(OTHERS), strict=False))}
NAMES = {"ina": "ina (P4 switch)", "gloo": "gloo (loopback)", **{program.name: program.title for program in programs()}}
TESTBED_NAMES = {**NAMES, "gloo": "gloo (same links)"}
BLACK = "#000000"  # as matplotlib writes it
HOST_LIMITED = "host-limited: the processors were the limit, so this is no result about the network"
LINES = ("-", "--", ":", "-.", (0, (1, 3)))  # the lower line shows through the gaps


def row_name(summary: dict[str, object]) -> str:
    """Returns the name of the back end or job of a row."""
    if "backend" not in summary:
        return str(summary["job"])
    name = str(summary["backend"])  # perhaps of a protocol that is no longer installed
    return (NAMES if summary.get("link_mb") is None else TESTBED_NAMES).get(name, name)


def columns(kind: type[Experiment], summaries: Sequence[dict[str, object]]) -> list[Row]:
    """Returns those rows of a kind's table for which any of the results has a figure."""
    return [row for row in kind.rows if any(summary.get(row.key) is not None for summary in summaries)]


def cells(shown: Sequence[Row], summary: dict[str, object]) -> list[str]:
    """Returns one formatted figure for each column; an em dash where there is none."""
    return [pattern.format(summary[key]) if summary.get(key) is not None else "—" for key, _, _, pattern in shown]


def caution(summaries: Sequence[Mapping[str, object]]) -> str:
    """Returns a sentence for a table in which the processors were the limit of a row; "": of none."""
    limits = [summary.get(key) for summary in summaries for key in ("bound", "rings_bound")]
    return HOST_LIMITED if "host-limited" in limits else ""


def html_caution(summaries: Sequence[Mapping[str, object]]) -> str:
    text = caution(summaries)
    return f"<p><strong>{text}.</strong></p>" if text else ""


def table(kind: type[Experiment], runs: Sequence[Measured]) -> Table:
    """Returns the terminal's table: one column for each back end or job, so that it fits 80 characters."""
    result = Table()
    result.add_column("")
    summaries = [run.summary() for run in runs]
    shown = columns(kind, summaries)
    bodies = [cells(shown, summary) for summary in summaries]
    for summary in summaries:
        result.add_column(row_name(summary), justify="right")
    for index, (_, heading, _, _) in enumerate(shown):
        result.add_row(heading, *(column[index] for column in bodies))
    return result


def can_draw() -> bool:
    """Returns True if matplotlib is installed: figures and tables need none, plots do."""
    return find_spec("matplotlib") is not None


def say_page(console: Console, label: str, path: Path, command: str = "ina report FOLDER") -> None:
    """Prints the path of a page; where it has no plots for want of matplotlib, also which ``command`` draws them later."""
    say_where(console, label, path)
    if not can_draw():
        console.print(f"It has no plots: {PURPOSES['plot']}: pip install 'ina[plot]'; then {command} draws them",
                      highlight=False, markup=False, soft_wrap=True)


def svg(draw: Callable[[Axes], None]) -> str:
    """Returns an inline SVG of the plot of ``draw(axes)``, in the page's colours: no background, and what is black is as text.
    It is small enough to be read on a page of 400 pixels. Without matplotlib, a paragraph that says so."""
    if not can_draw():
        return f"<p>Not drawn: {PURPOSES['plot']}: pip install 'ina[plot]'.</p>"
    with extra("plot"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 3.2), facecolor="none")
    axes.set_facecolor("none")
    draw(axes)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight")  # also for a legend beside the axes
    pyplot.close(figure)
    text = stream.getvalue()
    return text[text.index("<svg") :].replace(BLACK, "currentColor").replace("<svg ", '<svg fill="currentColor" ', 1)


def legend(axes: Axes) -> None:
    """Draws the legend below the axes, where it covers nothing, and leaves them their width on a narrow page."""
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0, frameon=False)


def targets(axes: Axes, scores: Iterable[float]) -> None:
    """Draws a dotted line, named in the legend, at each score (0 to 1) that is to be reached, in percent; 0: there is none."""
    for score in sorted({*scores} - {0.0}):
        axes.axhline(100 * score, linestyle=":", linewidth=1, color="gray", label=f"target, {100 * score:g} %")


def whole_numbers(axis: Axis) -> None:
    """Sets ticks of an axis that counts."""
    with extra("plot"):
        from matplotlib.ticker import MaxNLocator

    locator = axis.get_major_locator()
    assert isinstance(locator, MaxNLocator)  # true of every linear axis
    locator.set_params(integer=True)


def logarithmic(axis: Axis) -> None:
    """Sets ticks of an axis whose scale is logarithmic: 1, 2, 5, 10, ... as numbers."""
    with extra("plot"):
        from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def smooth(values: list[float], width: int = 10) -> list[float]:
    sums = [0.0, *itertools.accumulate(values)]
    return [(sums[i + 1] - sums[max(0, i + 1 - width)]) / min(i + 1, width) for i in range(len(values))]


STYLE = """
:root{color-scheme:light dark;--text:#1d2733;--page:#fff;--rule:#d5dce4;--code:#f3f5f8}
@media(prefers-color-scheme:dark){:root{--text:#e6eaf0;--page:#14181d;--rule:#3a4450;--code:#222a33}}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:var(--text);background:var(--page)}
.wide{overflow-x:auto;font-size:.85rem}.wide td{white-space:nowrap}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .5rem;border-bottom:1px solid var(--rule);text-align:right}
td:first-child,th:first-child{text-align:left}figure{margin:1.5rem 0}figcaption{font-weight:600}
svg{max-width:100%;height:auto}.pairs{overflow-x:auto}h1,figcaption,.pairs td:last-child{overflow-wrap:anywhere}
code,pre{background:var(--code);padding:.1rem .3rem;border-radius:3px}details{margin:1rem 0}
"""


def definition_table(values: Mapping[str, object]) -> str:
    texts = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in values.items()}
    cells = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in texts.items())
    return f"<div class=pairs><table>{cells}</table></div>"


def _counters(stats: dict[str, dict]) -> str:
    return "".join(
        f"<h3>{html.escape(part)}</h3>{definition_table(values)}" for part, values in stats.items() if values
    )


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{first}</tr>{rest}</table></div>"


def html_words(kind: type[Experiment], shown: Sequence[Row]) -> str:
    """Returns what the headings of a kind's table mean, as far as they need words."""
    words = {**WORDS, **kind.meanings}
    terms = [(heading, words[key]) for key, heading, _, _ in shown if key in words]
    items = "".join(f"<dt>{html.escape(heading)}</dt><dd>{html.escape(text)}</dd>" for heading, text in terms)
    return f"<details><summary>What the headings mean</summary><dl>{items}</dl></details>" if items else ""


def html_guide(kind: type[Experiment]) -> str:
    """Returns where the guide says what a kind models, and what it does not."""
    text = kind.guidance()
    return f"<p>What is modelled, what is not, and after which papers: {html.escape(text)}.</p>" if text else ""


def html_figures(plots: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<figure><figcaption>{html.escape(c)}</figcaption>{drawn}</figure>" for c, drawn in plots)


def html_page(title: str, body: str) -> str:
    """Returns a whole page; it needs no other file."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>{body}</html>\n"
    )


def page(
    folder: Folder, runs: Sequence[Measured], comparison: Mapping[str, object], plots: Sequence[tuple[str, str]] = ()
) -> str:
    """Returns the report of one run as HTML, with further ``plots``: captions and SVGs."""
    config = folder.config
    summaries = [run.summary() for run in runs]
    shown = columns(type(config), summaries)
    head = [config.subject, *(heading for _, heading, _, _ in shown)]
    rows = [[row_name(run.summary()), *cells(shown, run.summary())] for run in runs]
    stats = "".join(
        f"<details><summary>Counters, {html.escape(row_name(r.summary()))}</summary>{_counters(r.stats)}</details>"
        for r in runs
        if r.stats
    )
    compared = f"<h2>The runs beside each other</h2>{definition_table(comparison)}" if comparison else ""
    figures = html_figures([*config.figures(runs), *plots])
    return html_page(
        config.name,
        f"<p>{config.describe(runs)}</p>{html_guide(type(config))}"
        f"{html_table(head, rows)}{html_caution(summaries)}{html_words(type(config), shown)}"
        f"{compared}{figures}{stats}"
        f"<details><summary>Configuration</summary>{definition_table(config.as_dict())}</details>"
        f"<details><summary>Machine and versions</summary>{definition_table(folder.environment)}</details>",
    )
