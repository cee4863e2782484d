"""Shared parts of all measurements: medians, machine and commit, JSON and a plot."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cffi import FFI
from rich.console import Console
from rich.table import Table

from ina.base import paths
from ina.lab.results import record

console = Console()


def declared(struct: str, source: Path) -> str:
    """Returns the declaration of a structure in a C file, for cffi."""
    match = re.search(rf"struct {struct} \{{.*?\n\}};", source.read_text(), re.S)
    assert match is not None
    return match[0]


def shared_object(source: Path, folder: Path, declarations: str) -> tuple[FFI, Any]:
    """Compiles a C file of bench/ in ``folder``. Returns its declarations, and the library with the functions among them."""
    target = folder / f"bench_{source.stem}.so"
    includes = [f"-I{path}" for path in paths.native_dirs()]
    options = ["-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, *includes, str(source), "-o", str(target)], check=True)
    bench = FFI()
    bench.cdef(declarations)
    return bench, bench.dlopen(str(target))


def median_seconds(action: Callable[[], object], runs: int = 7, at_least: float = 0.05) -> float:
    """Returns the median over `runs` of the seconds that one call takes; each run repeats it for `at_least` seconds."""
    action()
    repeat = 1
    while True:
        start = time.perf_counter()
        for _ in range(repeat):
            action()
        seconds = time.perf_counter() - start
        if seconds >= at_least:
            break
        repeat = max(2 * repeat, int(repeat * at_least / max(seconds, 1e-9)))
    times = [seconds / repeat]
    for _ in range(runs - 1):
        start = time.perf_counter()
        for _ in range(repeat):
            action()
        times.append((time.perf_counter() - start) / repeat)
    return statistics.median(times)


Cell = str | int | float


@dataclass
class Measurement:
    """Rows of one benchmark: `columns` are headings with units, of which the first `keys` identify the measurement; `limit`
    is the reference of the ratio."""

    name: str
    columns: list[str]
    limit: str
    expected: str
    rows: list[list[Cell]] = field(default_factory=list)
    keys: int = 1

    def add(self, *row: Cell) -> None:
        self.rows.append(list(row))

    def show(self) -> None:
        table = Table(title=f"{self.name} (ratio: {self.limit})", title_justify="left")
        rows = [[_text(cell) for cell in row] for row in self.rows]
        for column, *cells in zip(self.columns, *rows, strict=True):  # headings wrap between words, and nothing is cut
            table.add_column(column, justify="right" if table.columns else "left",
                             min_width=max(map(len, [*column.split(), *cells])))
        for row in rows:
            table.add_row(*row)
        console.print(table, crop=False)
        console.print(f"  expected: {self.expected}", highlight=False)


def save(measurements: list[Measurement], root: Path) -> Path:
    """Writes `root/bench-<time>/`: bench.json and one plot for each measurement; prints the path."""
    folder = root / f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True)
    blob = {"environment": record.environment(), "measurements": [m.__dict__ for m in measurements]}
    (folder / "bench.json").write_text(json.dumps(blob, indent=1) + "\n")
    for measurement in measurements:
        plot(measurement, folder / f"{measurement.name.split(':')[0].replace(' ', '-')}.svg")
    console.print(f"Results: {folder}", highlight=False)
    return folder


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e6 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def plot(measurement: Measurement, path: Path) -> None:
    """Draws bars of the ratio column (the last), with a label for each row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = [", ".join(_text(cell) for cell in row[: measurement.keys]) for row in measurement.rows]
    ratios = [float(row[-1]) for row in measurement.rows]
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.32 * len(labels)), layout="constrained")
    bars = axes.barh(range(len(labels)), ratios, color="#1668b8")
    axes.bar_label(bars, [f"{ratio:.3g}" for ratio in ratios], padding=3, fontsize="small")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.axvline(1, color="#c65a11", linewidth=1)
    axes.set_title(textwrap.fill(measurement.name, 80), fontsize="medium", loc="left")
    axes.set(xlabel=textwrap.fill(measurement.limit, 80), ylabel=", ".join(measurement.columns[: measurement.keys]))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
