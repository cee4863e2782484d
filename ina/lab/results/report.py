"""A run's report: one HTML file with everything inside, and the table for the terminal."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.table import Table

from ina.aggregation import protocols
from ina.aggregation.entries import programs
from ina.base.extras import extra
from ina.lab.experiment_keys import AllReduce, Config, Sharing, Trace, Virtual, Workload
from ina.lab.results.record import Folder, Measured, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

OTHERS = ("#3a8a3a", "#8f3aa8", "#a8963a", "#3a97a8", "#a83a5b", "#555f6b")
COLOURS = {"ina": "#1668b8", "gloo": "#c65a11", **dict(zip(protocols.names(), OTHERS, strict=False))}
NAMES = {"ina": "ina (P4 switch)", "gloo": "gloo (loopback)", **{program.name: program.title for program in programs()}}
TESTBED_NAMES = {**NAMES, "gloo": "gloo (same links)"}
LINES = ("-", "--", ":", "-.", (0, (1, 3)))  # the lower line shows through the gaps

# kind -> (key of summary(), heading, heading where there is little room, format)
COLUMNS = {
    "training": [
        ("accuracy", "test accuracy", "accuracy", "{:.2%}"),
        ("step_ms", "median step, ms", "ms/step", "{:.1f}"),
        ("allreduce_ms", "in all-reduce, median, ms", "reduce ms", "{:.2f}"),
        ("goodput_gbps", "goodput, mean, Gb/s", "Gb/s", "{:.3g}"),
        ("training_s", "training, s", "train s", "{:.1f}"),
        ("packets", "packets sent (rank 0)", "packets", "{:,}"),
        ("retransmissions", "retransmissions (rank 0)", "again", "{:,}"),
        ("link_mb", "on the busiest link, MB", "link MB", "{:.1f}"),
        ("link_use", "its use during all-reduce", "link use", "{:.1%}"),
        ("bound", "bound by", "bound", "{}"),
    ],
    "allreduce": [
        ("time_ms", "all-reduce, ms", "ms", "{:.4f}"),
        ("goodput_gbps", "goodput, Gb/s", "Gb/s", "{:.2f}"),
        ("link_mb", "on the busiest link, MB", "link MB", "{:.3f}"),
        ("link_use", "use of the busiest link", "use", "{:.1%}"),
        ("ring_model_ms", "ring at best (model), ms", "ring ms", "{:.4f}"),
        ("packets", "packets sent (all workers)", "packets", "{:,}"),
        ("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        ("sums", "sums (payload = false)", "sums", "{}"),
    ],
    "workload": [
        ("step_ms", "time per step, virtual ms", "ms/step", "{:.4f}"),
        ("compute_ms", "compute of the slowest worker, ms", "compute", "{:.4f}"),
        ("reduce_ms", "an all-reduce under way, ms/step", "reduce", "{:.4f}"),
        ("exposed_ms", "all-reduce not behind compute, ms/step", "exposed", "{:.4f}"),
        ("efficiency", "compute's share of the step", "eff", "{:.1%}"),
        ("link_mb", "on the busiest link, MB/step", "link MB", "{:.3f}"),
        ("link_use", "use of the busiest link", "use", "{:.1%}"),
        ("packets", "packets sent (all workers)", "packets", "{:,}"),
        ("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        ("sums", "sums (payload = false)", "sums", "{}"),
    ],
    "trace": [
        ("time_ms", "the whole trace, virtual ms", "ms", "{:.4f}"),
        ("compute_ms", "compute of the slowest rank, ms", "comp", "{:.4f}"),
        ("exposed_ms", "time without compute there, ms", "rest", "{:.4f}"),
        ("efficiency", "compute's share", "eff", "{:.1%}"),
        ("rank_mb", "put into communication by a rank, MB", "rank", "{:.3f}"),
        ("link_mb", "on the busiest link, MB", "link", "{:.3f}"),
        ("link_use", "use of the busiest link", "use", "{:.1%}"),
        ("packets", "packets sent (all ranks)", "pkts", "{:,}"),
        ("retransmissions", "retransmissions (all ranks)", "again", "{:,}"),
        ("sums", "sums (payload = false)", "sums", "{}"),
    ],
    "sharing": [
        ("goodput_gbps", "goodput of a job, mean, Gb/s", "Gb/s", "{:.2f}"),
        ("least_gbps", "goodput of the job that gets least, Gb/s", "least", "{:.2f}"),
        ("fairness", "fairness between jobs (Jain)", "fair", "{:.3f}"),
        ("straggler_gbps", "goodput of the job with the slow worker, Gb/s", "slow", "{:.2f}"),
        ("aggregated", "packets added up in the switch", "in switch", "{:.1%}"),
        ("server_load", "packets to the server, of a worker's", "at server", "{:.1%}"),
        ("link_use", "use of the busiest link", "use", "{:.1%}"),
        ("queue_kb", "longest queue of the switch, kB", "queue", "{:.1f}"),
        ("dropped", "packets that a full queue refused", "dropped", "{:,}"),
        ("retransmissions", "retransmissions (all workers)", "again", "{:,}"),
        ("sums", "sums (payload = false)", "sums", "{}"),
    ],
}


def row_name(summary: dict[str, object]) -> str:
    """Returns the name of the back end or job of a row."""
    if "backend" not in summary:
        return str(summary["job"])
    return (NAMES if summary.get("link_mb") is None else TESTBED_NAMES)[str(summary["backend"])]


def columns(kind: str, summaries: Sequence[dict[str, object]]) -> list[tuple[str, str, str, str]]:
    """Returns those columns of ``COLUMNS`` for which any of the rows has a figure."""
    return [column for column in COLUMNS[kind] if any(summary.get(column[0]) is not None for summary in summaries)]


def cells(shown: Sequence[tuple[str, str, str, str]], summary: dict[str, object]) -> list[str]:
    """Returns one formatted figure for each column; an em dash where there is none."""
    return [pattern.format(summary[key]) if summary.get(key) is not None else "—" for key, _, _, pattern in shown]


def table(kind: str, runs: Sequence[Measured]) -> Table:
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


def svg(draw: Callable[[Axes], None]) -> str:
    """Returns an inline SVG of the plot of ``draw(axes)``."""
    with extra("report"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.4))
    draw(axes)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None}, bbox_inches="tight")  # also for a legend beside the axes
    pyplot.close(figure)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def legend(axes: Axes) -> None:
    """Draws the legend beside the axes, where it covers nothing."""
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def whole_numbers(axis: Axis) -> None:
    """Sets ticks of an axis that counts."""
    with extra("report"):
        from matplotlib.ticker import MaxNLocator

    locator = axis.get_major_locator()
    assert isinstance(locator, MaxNLocator)  # true of every linear axis
    locator.set_params(integer=True)


def logarithmic(axis: Axis) -> None:
    """Sets ticks of an axis whose scale is logarithmic: 1, 2, 5, 10, ... as numbers."""
    with extra("report"):
        from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def smooth(values: list[float], width: int = 10) -> list[float]:
    sums = [0.0, *accumulate(values)]
    return [(sums[i + 1] - sums[max(0, i + 1 - width)]) / min(i + 1, width) for i in range(len(values))]


def _plots(runs: list[Run]) -> list[tuple[str, str]]:
    def losses(axes: Axes) -> None:
        for run, line in zip(runs, LINES, strict=False):
            steps = range(1, len(run.losses) + 1)
            axes.plot(steps, smooth(run.losses), line, color=COLOURS[run.backend], label=row_name(run.summary()))
        axes.set(xlabel="step", ylabel="training loss of rank 0\n(mean of 10 steps)", ylim=(0, None))
        whole_numbers(axes.xaxis)
        legend(axes)

    def distribution(series: str, label: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for run in runs:
                values = sorted(1e3 * v for v in getattr(run, series))
                share = [(i + 1) / len(values) for i in range(len(values))]
                axes.plot(values, share, color=COLOURS[run.backend], label=row_name(run.summary()))
            axes.set(xlabel=f"{label}, ms", ylabel="share of steps", ylim=(0, 1))
            every = [value for run in runs for value in getattr(run, series)]
            if max(every) > 10 * min(every) > 0:
                axes.set_xscale("log")
                logarithmic(axes.xaxis)
            legend(axes)

        return draw

    return [
        ("Training loss: lines that lie on each other mean that the switch adds as Gloo does", svg(losses)),
        ("Time per step", svg(distribution("step_seconds", "time per step"))),
        (
            "Time in which an all-reduce was under way, per step",
            svg(distribution("allreduce_seconds", "in all-reduce")),
        ),
    ]


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1d2733}
.wide{overflow-x:auto;font-size:.85rem}.wide td{white-space:nowrap}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .5rem;border-bottom:1px solid #d5dce4;text-align:right}
td:first-child,th:first-child{text-align:left}figure{margin:1.5rem 0}figcaption{font-weight:600}
svg{max-width:100%;height:auto}code,pre{background:#f3f5f8;padding:.1rem .3rem;border-radius:3px}details{margin:1rem 0}
"""


def definition_table(values: Mapping[str, object]) -> str:
    texts = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in values.items()}
    cells = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in texts.items())
    return f"<table>{cells}</table>"


def _counters(stats: dict[str, dict]) -> str:
    return "".join(
        f"<h3>{html.escape(part)}</h3>{definition_table(values)}" for part, values in stats.items() if values
    )


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{first}</tr>{rest}</table></div>"


def html_figures(plots: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<figure><figcaption>{html.escape(c)}</figcaption>{drawn}</figure>" for c, drawn in plots)


def html_page(title: str, body: str) -> str:
    """Returns a whole page; it needs no other file."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>{body}</html>\n"
    )


def _description(folder: Folder, runs: Sequence[Measured]) -> str:
    config, first = folder.config, runs[0]
    if isinstance(first, Run):
        assert isinstance(config, Config)
        return (
            f"{config.workers} workers, {first.parameters:,} parameters, {html.escape(first.dataset)}, "
            f"{len(first.losses)} steps of {config.batch} images a worker, world <code>{config.world}</code>, "
            f"faults <code>{html.escape(config.faults or 'none')}</code>, seed {config.seed}."
        )
    if isinstance(config, Sharing):
        return (
            f"{config.jobs} jobs of {config.workers} workers and windows of {config.window} packets at one switch, which has "
            f"{config.pool} slots; {config.protocol}, {config.tensors} x {config.elements:,} elements, wires of "
            f"{config.rate / 1e9:g} Gb/s and {config.delay * 1e6:g} us, slow worker {config.straggler:g} x, seed {config.seed}."
        )
    assert isinstance(config, Virtual)
    work = ""
    if isinstance(config, Workload):
        work = f"{config.steps} steps of {html.escape(config.layers)}"
    elif isinstance(config, Trace):
        work = html.escape(config.trace)
    elif isinstance(config, AllReduce):
        work = f"{config.elements:,} elements of {config.dtype}"
    return (
        f"{html.escape(config.topology)}, {html.escape(config.algorithm)} ({config.stripes}); "
        f"{config.workers} workers in each of {config.jobs} jobs, {work}, wires of "
        f"{config.rate / 1e9:g} Gb/s and {config.delay * 1e6:g} us, loss {config.loss:g}, world <code>{config.world}</code>, "
        f"seed {config.seed}."
    )


def page(
    folder: Folder, runs: Sequence[Measured], comparison: Mapping[str, object], plots: Sequence[tuple[str, str]] = ()
) -> str:
    """Returns the report of one run as HTML, with further ``plots``: captions and SVGs."""
    kind = folder.config.kind
    shown = columns(kind, [run.summary() for run in runs])
    head = ["back end" if kind == "training" else "job", *(heading for _, heading, _, _ in shown)]
    rows = [[row_name(run.summary()), *cells(shown, run.summary())] for run in runs]
    stats = "".join(
        f"<details><summary>Counters, {html.escape(row_name(r.summary()))}</summary>{_counters(r.stats)}</details>"
        for r in runs
        if r.stats
    )
    compared = f"<h2>The runs beside each other</h2>{definition_table(comparison)}" if comparison else ""
    figures = html_figures(_plots([run for run in runs if isinstance(run, Run)])) if kind == "training" else ""
    figures += html_figures(plots)
    return html_page(
        folder.config.name,
        f"<p>{_description(folder, runs)}</p>{html_table(head, rows)}{compared}{figures}{stats}"
        f"<details><summary>Configuration</summary>{definition_table(folder.config.as_dict())}</details>"
        f"<details><summary>Machine and versions</summary>{definition_table(folder.environment)}</details>",
    )
