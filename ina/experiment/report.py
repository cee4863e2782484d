"""A run's report: one HTML file with everything inside, and the table for the terminal."""

from __future__ import annotations

import html
import io
from itertools import accumulate

from rich.table import Table

from ina.experiment.record import Folder, Run

COLOURS = {"ina": "#1668b8", "gloo": "#c65a11"}
NAMES = {"ina": "ina (P4 switch)", "gloo": "gloo (loopback)"}

# key of Run.summary(), heading, format
COLUMNS = [
    ("accuracy", "test accuracy", "{:.2%}"),
    ("step_ms", "time per step, ms", "{:.1f}"),
    ("allreduce_ms", "in all-reduce, ms/step", "{:.2f}"),
    ("goodput_gbps", "goodput, Gb/s", "{:.2f}"),
    ("training_s", "training, s", "{:.1f}"),
    ("packets", "packets sent (rank 0)", "{:,}"),
    ("retransmissions", "retransmissions (rank 0)", "{:,}"),
]


def rows(runs: list[Run]) -> list[list[str]]:
    """The table's rows: back end, then one formatted figure a column; an em dash where there is none."""
    out = []
    for run in runs:
        summary = run.summary()
        cells = [pattern.format(summary[key]) if summary[key] is not None else "—" for key, _, pattern in COLUMNS]
        out.append([NAMES[run.backend], *cells])
    return out


def table(title: str, runs: list[Run]) -> Table:
    """For the terminal: one column a back end, so that it fits 80 characters."""
    result = Table(title=title, title_justify="left")
    result.add_column("")
    columns = rows(runs)
    for name, *_ in columns:
        result.add_column(name, justify="right")
    for index, (_, heading, _) in enumerate(COLUMNS, start=1):
        result.add_row(heading, *(row[index] for row in columns))
    return result


def _svg(draw) -> str:
    """An inline SVG of what ``draw(axes)`` plots."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    draw(axes)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _smooth(values: list[float], width: int = 10) -> list[float]:
    sums = [0.0, *accumulate(values)]
    return [(sums[i + 1] - sums[max(0, i + 1 - width)]) / min(i + 1, width) for i in range(len(values))]


def _plots(runs: list[Run]) -> list[tuple[str, str]]:
    def losses(axes) -> None:
        for run in runs:
            axes.plot(
                range(1, len(run.losses) + 1), _smooth(run.losses), color=COLOURS[run.backend], label=NAMES[run.backend]
            )
        axes.set(xlabel="step", ylabel="training loss of rank 0 (mean of 10)", ylim=(0, None))
        axes.legend()

    def distribution(series: str, label: str):
        def draw(axes) -> None:
            for run in runs:
                values = sorted(1e3 * v for v in getattr(run, series))
                share = [(i + 1) / len(values) for i in range(len(values))]
                axes.plot(values, share, color=COLOURS[run.backend], label=NAMES[run.backend])
            axes.set(xlabel=f"{label}, ms", ylabel="share of steps", xscale="log", ylim=(0, 1))
            axes.legend(loc="lower right")

        return draw

    return [
        ("Training loss: two lines that lie on each other mean that the switch adds as Gloo does", _svg(losses)),
        ("Time per step", _svg(distribution("step_seconds", "time per step"))),
        (
            "Time in which an all-reduce was under way, per step",
            _svg(distribution("allreduce_seconds", "in all-reduce")),
        ),
    ]


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1d2733}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #d5dce4;text-align:right}
td:first-child,th:first-child{text-align:left}figure{margin:1.5rem 0}figcaption{font-weight:600}
svg{max-width:100%;height:auto}code,pre{background:#f3f5f8;padding:.1rem .3rem;border-radius:3px}details{margin:1rem 0}
"""


def _definition_table(values: dict[str, object]) -> str:
    cells = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>" for k, v in values.items())
    return f"<table>{cells}</table>"


def _counters(stats: dict[str, dict]) -> str:
    return "".join(
        f"<h3>{html.escape(part)}</h3>{_definition_table(values)}" for part, values in stats.items() if values
    )


def page(folder: Folder, runs: list[Run], comparison: dict[str, object]) -> str:
    """The whole report as HTML; nothing outside the file is needed to read it."""
    config = folder.config
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in ["back end", *(c[1] for c in COLUMNS)])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(runs))
    figures = "".join(f"<figure><figcaption>{html.escape(c)}</figcaption>{svg}</figure>" for c, svg in _plots(runs))
    stats = "".join(
        f"<details><summary>Counters of rank 0, {NAMES[r.backend]}</summary>{_counters(r.stats)}</details>"
        for r in runs
        if r.stats
    )
    compared = f"<h2>The two runs beside each other</h2>{_definition_table(comparison)}" if comparison else ""
    first = runs[0]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(config.name)}</title>"
        f"<style>{STYLE}</style>"
        f"<h1>{html.escape(config.name)}</h1>"
        f"<p>{config.workers} workers, {first.parameters:,} parameters, {html.escape(first.dataset)}, "
        f"{len(first.losses)} steps of {config.batch} images a worker, world <code>{config.world}</code>, "
        f"faults <code>{html.escape(config.faults or 'none')}</code>, seed {config.seed}.</p>"
        f"<table><tr>{head}</tr>{body}</table>{compared}{figures}{stats}"
        f"<details><summary>Configuration</summary>{_definition_table(config.as_dict())}</details>"
        f"<details><summary>Machine and versions</summary>{_definition_table(folder.environment)}</details></html>\n"
    )
