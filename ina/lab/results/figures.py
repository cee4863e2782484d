"""Figures of published systems, reproduced in virtual time: `ina figures`, one page with the published values beside them.

Published values and their sources stand here; values that were only computed or remembered are marked. Experiments are those of
experiments/, so that each figure can also be run, changed and compared alone.
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ina.aggregation import protocols
from ina.aggregation.lane import INT32
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.lab import library, plan, sweep
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.workload import Workload
from ina.lab.results import compare, report
from ina.lab.results.record import Result, new_folder, reasoned
from ina.lab.results.units import axis, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = Callable[[Result, dict], float]
INCAST = (2, 4, 8, 16, 32)  # workers
TOLERATED = 0.05  # deviations above are explained


@dataclass(frozen=True)
class Figure:
    """One plot: ``value`` of the runs of ``experiment`` over key ``across``, a line for each combination of ``by``.

    ``published``: by the words of ``by``'s values, points (across, value). ``source``: of these. ``why``: explains
    deviations.
    """

    name: str
    title: str
    experiment: str
    across: str
    by: tuple[str, ...]
    heading: str
    value: Value
    published: Mapping[tuple[str, ...], Mapping[float, float]] = field(default_factory=dict)
    source: str = ""
    why: str = ""
    relative_to: float | None = None  # values are ratios to those at this point of `across`
    # (runs) -> (line, x, y) where these are no keys of a run's configuration
    made: Callable[[Sequence[Result]], list[tuple[tuple[str, ...], float, float]]] | None = None


def elements_per_second(result: Result, summary: dict) -> float:
    """Returns aggregated tensor elements per second, in millions."""
    assert isinstance(result.config, AllReduce)
    return 1e-6 * result.config.elements / (1e-3 * summary["time_ms"])


def milliseconds(result: Result, summary: dict) -> float:
    return summary["time_ms"]


def ceiling(rate: float, values: int) -> float:
    """Returns millions of elements per second that fit through a link in SwitchML's frames."""
    return 1e-6 * rate * values / (8 * (protocols.frame_bytes("switchml", values) + ETHERNET_OVERHEAD))


def goodput(result: Result, summary: dict) -> float:
    """Returns the goodput of a job, mean over the jobs, Gb/s."""
    return summary["goodput_gbps"]


def all_goodput(result: Result, summary: dict) -> float:
    """Returns the goodput of the first job, over all of its tensors, Gb/s."""
    run = result.runs[result.summary.index(summary)]
    return 8e-9 * run["bytes"] * len(run["seconds"][0]) / sum(run["seconds"][0])


# Rates of a fat-tree's links, bit/s, by TopoOpt's degree and rate: as the paper defines a fat-tree of similar cost, a server has
# one interface, d B' fast, with B' < B such that both cost the same (TopoOpt NSDI'23 §5). A server of TopoOpt pays for d
# interfaces, transceivers and ports of the patch panel, one of a full-bisection fat-tree of three levels for an interface, six
# transceivers and five switch ports; prices as in the paper's appendix (remembered): interfaces 354, 678, 815, transceivers 39,
# 99, 198, switch ports 144, 187, 374 dollars at 40, 100, 200 Gb/s, a port of the panel 100; else in proportion.
SIMILAR_COST = {(4, 40e9): 84e9, (4, 100e9): 178e9, (6, 40e9): 145e9, (6, 100e9): 283e9}


def speed_ups(results: Sequence[Result]) -> list[tuple[tuple[str, ...], float, float]]:
    """Returns TopoOpt's speed-ups over the fat-tree of similar cost, by model and rate, over the degree."""
    steps = {(r.config.topology, r.config.rate, r.config.layers): r.summary[0]["step_ms"]
             for r in results if isinstance(r.config, Workload)}
    ratios: list[tuple[tuple[str, ...], float, float]] = []
    for (topology, rate, model), step in steps.items():
        if topology.startswith("topoopt"):
            degree = int(topology.rsplit("=", 1)[1])
            tree = steps["fat-tree k=8", SIMILAR_COST[degree, rate], model]
            ratios.append(((model, f"{rate / 1e9:g}"), float(degree), tree / step))
    return ratios


def _shared(protocol: str, workers: Sequence[int], each: bool, rate: float = 100e9, values: int = 256) -> dict[float, float]:
    """Returns Gb/s of a job whose server's link carries ``each`` worker's packets, or one for all of them."""
    frame = protocols.frame_bytes(protocol, values) + ETHERNET_OVERHEAD
    return {n: 1e-9 * rate * INT32.bytes(values) / frame / (n if each else 1) for n in workers}


# With and without ECN.
INCAST_AT_BEST: dict[tuple[str, ...], dict[float, float]] = {
    (protocol, "1", depth): _shared(protocol, INCAST, protocol == "ps") for protocol in ("ps", "atp") for depth in ("0", "64")}


def _ceilings(rates: Sequence[float], values: Sequence[int], workers: Sequence[int]) -> dict:
    return {(format_value(rate, "rate"), f"{k}"): {n: ceiling(rate, k) for n in workers} for rate in rates for k in values}


FIGURES = (
    Figure(
        "switchml-rate", "SwitchML: aggregated tensor elements per second", "switchml-rate", "workers", ("rate", "values"),
        "aggregated elements, 10^6/s", elements_per_second, _ceilings((10e9, 100e9), (32, 64, 256), (4, 8, 16)),
        "the line-rate ceiling R k / 8(4k + 88), computed (SwitchML NSDI'21 reports its measured rates near it)",
        "The ceiling has no first packet and no last round trip, which are 0.3 % of 2 million elements at most. It does not "
        "depend on the number of workers, neither here nor there.",
    ),
    Figure(
        "switchml-pool", "SwitchML: tensor aggregation time by pool size", "switchml-pool", "pool", ("rate",),
        "tensor aggregation time, ms", milliseconds,
        source="published pools are 128 slots at 10 Gb/s and 512 at 100 Gb/s (remembered)",
        why="Time falls with 1/slots to where slots cover the bandwidth-delay product, and is flat from there on: with this "
        "round trip of 8 us and 344 bytes a packet, 32 slots at 10 Gb/s and 291 at 100 Gb/s. Published pools answer the round "
        "trip of their hosts and switch, which is not known here.",
    ),
    Figure(
        "switchml-loss", "SwitchML: inflation of tensor aggregation time by loss rate", "switchml-loss", "loss", ("rto",),
        "aggregation time over that without loss", milliseconds, relative_to=0.0,
        source="the setting: uniform loss on every link, time-out 1 ms, 8 workers (remembered); values are not known here",
        why="With the fixed time-out, as published, a lost packet holds its slot for 1 ms. A tensor of 4 MB takes 4.3 ms here, "
        "so that this is a quarter of it; published tensors are larger, and the same loss then costs a smaller share. What is "
        "used by default (gaps and probes, docs/design/protocol.md) finds a loss a round trip later.",
    ),
    Figure(
        "switchml-ring", "SwitchML beside a ring by workers, 100 Gb/s", "switchml-ring", "workers", ("algorithm",),
        "aggregated elements, 10^6/s", elements_per_second,
        {("in-network",): {4: 2830, 8: 2820, 16: 2810}, ("ring",): {4: 1380, 8: 1255, 16: 970}},
        "read in the published implementation's documentation (RDMA, NCCL-RDMA)",
        "SwitchML's published rates are those of RDMA frames, whose headers are 14 bytes longer (RoCEv2, ICRC): that ceiling is "
        "2842. NCCL's ring is far below what the links allow, which is what is computed here: an ideal window "
        "and hosts that cost nothing. 2(n-1)/n of the tensor must pass a link, so a ring cannot exceed 1930, 1650 and 1540.",
    ),
    Figure(
        "atp-sharing", "ATP, SwitchML and a parameter server: goodput of a job by jobs and aggregators", "sharing",
        "jobs", ("protocol", "share"), "goodput of a job, Gb/s", goodput,
        source="ATP's training throughput is up to 38 to 66 % higher than others' with many jobs (NSDI'21); rates of single "
        "jobs are not known here",
        why="`share` is that of the aggregators that all jobs' windows need together. ATP's jobs take what is free and send the "
        "rest to their servers, SwitchML's are given fewer slots each and are bound by the round trip. All jobs send all the "
        "time here, for which fixed shares are the best case; docs/guide/experiments.md has jobs in turns.",
    ),
    Figure(
        "atp-turns", "ATP, SwitchML and a parameter server: goodput of eight jobs that reduce in turns, by aggregators",
        "sharing-in-turns", "share", ("protocol",), "goodput of a job, Gb/s", goodput,
        source="that ATP's aggregators go to whoever is on (NSDI'21); values are not known here",
        why="Each job has a tensor every millisecond, one job an eighth of that after the other. What a static part leaves idle, "
        "a shared pool gives to the job that is on: a thirty-second of the aggregators is enough for ATP, SwitchML's jobs need a "
        "quarter.",
    ),
    Figure(
        "atp-incast", "ATP's incast: goodput of a job by workers, before a queue of 256 kB", "atp-incast", "workers",
        ("protocol", "share", "ecn_depth"), "goodput of the job, Gb/s", all_goodput,
        INCAST_AT_BEST,
        "computed: a server's link has R/n for each of n workers, aggregation R for all; measured rates are not known here",
        "Without aggregation n workers' windows meet before the server's link. Without ECN (`ecn_depth` 0) what overflows is "
        "sent again, into the same queue; with it the windows shrink by AIMD and the link stays full up to 8 workers. From 16 "
        "on the first windows alone, 60 kB each as in the paper, are more than the queue holds, and no window is less than a "
        "packet. Where the switch adds up there is no incast, with or without ECN: 5 % are the first round trips, in which "
        "windows grow from 60 kB. With an eighth of the aggregators there is some of both.",
    ),
    Figure(
        "topoopt", "TopoOpt beside a fat-tree of similar cost, 128 servers: how many times as fast a training step is",
        "scale/topoopt-training", "degree", ("model", "Gb/s"), "times as fast as on the fat-tree", milliseconds, made=speed_ups,
        source="up to 3.4 times over all models of the paper, with model parallelism where it is better; values of single "
        "models are not known here",
        why="Data-parallel trainings only: the paper's largest factors are those of models with embeddings, whose traffic it "
        "places on links of their own. `Gb/s` is an interface's rate B. The most that the links allow is B / B', which is 1.7 to "
        "2.3 here; what hides behind the backward pass, and what a ring of 128 servers takes for its latency, make it less. "
        "Prices decide, and they are remembered (SIMILAR_COST in ina/lab/results/figures.py). Model, buckets, packets and delays "
        "are 1/32 of a real server's.",
    ),
)


@dataclass(frozen=True)
class Point:
    """A point of a plot. ``ours``: median over repetitions; ``published``: None, if not known."""

    line: tuple[str, ...]
    across: float
    ours: float
    published: float | None

    @property
    def deviation(self) -> float | None:
        return None if self.published is None else self.ours / self.published - 1


def points(figure: Figure, results: Sequence[Result]) -> list[Point]:
    """Returns the points of a figure's runs, line by line."""
    values: dict[tuple[tuple[str, ...], float], list[float]] = {}
    for line, x, y in figure.made(results) if figure.made else ():
        values.setdefault((line, x), []).append(y)
    for result in () if figure.made else results:
        line = tuple(format_value(getattr(result.config, key), key) for key in figure.by)
        for summary in result.summary:
            values.setdefault((line, getattr(result.config, figure.across)), []).append(figure.value(result, summary))
    medians = {key: statistics.median(series) for key, series in values.items()}
    if figure.relative_to is not None:
        medians = {(line, x): y / medians[line, figure.relative_to] for (line, x), y in medians.items()}
    order = list(dict.fromkeys(line for line, _ in medians))  # as the experiment sweeps them
    ordered = sorted(medians.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    return [Point(line, x, y, figure.published.get(line, {}).get(x)) for (line, x), y in ordered]


def plot(figure: Figure, points: Sequence[Point]) -> str:
    """Draws an inline SVG: our points with lines, published ones as hollow marks of the same colour."""
    def draw(axes: Axes) -> None:
        for index, line in enumerate(dict.fromkeys(point.line for point in points)):
            on_line = [point for point in points if point.line == line]
            style = compare.line_style(index)
            name = ", ".join(f"{key} {value}" for key, value in zip(figure.by, line, strict=True))
            axes.plot([p.across for p in on_line], [p.ours for p in on_line], label=name, **style)
            published = [(p.across, p.published) for p in on_line if p.published is not None]
            if published:
                style |= {"linestyle": "none", "markersize": 13, "markerfacecolor": "none"}
                axes.plot([x for x, _ in published], [y for _, y in published], **style)
        compare.scale_places(axes, sorted({point.across for point in points}), figure.across)
        values = [value for point in points for value in (point.ours, point.published) if value is not None]
        if max(values) / min(values) > 10:
            axes.set_yscale("log")
            report.logarithmic(axes.yaxis)
        else:
            axes.set_ylim(0, 1.08 * max(values))
        axes.set(xlabel=axis(figure.across), ylabel=figure.heading)
        if any(point.published is not None for point in points):
            axes.plot([], [], "o", color="#555f6b", markersize=11, markerfacecolor="none", label="hollow: published")
        report.legend(axes)

    return report.svg(draw)


def rows(figure: Figure, points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Returns a table's head and rows."""
    published = any(point.published is not None for point in points)
    head = [*figure.by, figure.across, f"here, {figure.heading}", *(["published", "deviation"] if published else [])]
    body = []
    for point in points:
        row = [*point.line, format_value(point.across, figure.across), f"{point.ours:.4g}"]
        if published:
            row += ["—", "—"] if point.published is None else [f"{point.published:.4g}", f"{point.deviation:+.1%}"]
        body.append(row)
    return head, body


def make(root: Path, console: Console, names: Sequence[str] = (), processes: int = 1) -> Path:
    """Runs the missing experiments of the figures, and writes ``figures-<time>/index.html`` with a plot of each as SVG, where
    matplotlib is installed.

    Raises what sweep does.
    """
    folder = new_folder(root, "figures")
    with reasoned(folder):
        _make(folder, root, console, names, processes)
    return folder


def _make(folder: Path, root: Path, console: Console, names: Sequence[str], processes: int) -> None:
    parts = []
    for figure in FIGURES:
        if names and figure.name not in names:
            continue
        console.rule(figure.title)
        runs = sweep.sweep(plan.load(library.find(figure.experiment)), root, console, processes=processes, tables=False)
        compared = points(figure, compare.points(runs))
        svg = plot(figure, compared)
        if report.can_draw():
            (folder / f"{figure.name}.svg").write_text('<?xml version="1.0" encoding="utf-8"?>\n' + svg)
        head, body = rows(figure, compared)
        (folder / f"{figure.name}.md").write_text(markdown(head, body))
        off = [point for point in compared if point.deviation is not None and abs(point.deviation) > TOLERATED]
        notes = f"<p>Published: {html.escape(figure.source)}. {html.escape(figure.why)}</p>"
        note = f"<p>{len(off)} of {len(compared)} points deviate by more than {TOLERATED:.0%}.</p>" if figure.published else ""
        parts.append(f"<h2>{html.escape(figure.title)}</h2>{svg}{report.html_table(head, body)}{note}{notes}")
        console.print(f"{figure.name}: {len(compared)} points, {len(off)} deviate by more than {TOLERATED:.0%}", highlight=False)
    (folder / "index.html").write_text(report.html_page("Published figures in virtual time", "".join(parts)))
    report.say_page(console, "Figures:", folder / "index.html", "ina figures")


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
    return "\n".join(lines) + "\n"
