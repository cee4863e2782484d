"""Shared parts of all measurements: medians, machine and commit, JSON and a plot."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cffi import FFI
from rich.console import Console
from rich.table import Table

from ina.base import paths
from ina.lab.results import record

console = Console()


@contextmanager
def computing(count: int) -> Iterator[None]:
    """Runs so many processes beside the body that do nothing but compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


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


class Figure(float):
    """The median of several runs, with the least, the most, the quartiles, and their number. Products and quotients keep them:
    their bounds and quartiles are those of the worst and of the best pair."""

    least: float
    most: float
    runs: int
    quartiles: tuple[float, float]

    @classmethod
    def of(cls, samples: Iterable[float]) -> Figure:
        """Returns the median of the samples of one quantity."""
        values = list(samples)
        lower, _, upper = statistics.quantiles(values, method="inclusive") if len(values) > 1 else 3 * values
        return cls._made(statistics.median(values), values, len(values), (lower, upper))

    @classmethod
    def _made(cls, median: float, values: Sequence[float], runs: int, quartiles: Sequence[float]) -> Figure:
        figure = cls(median)
        figure.least, figure.most, figure.runs = min(values), max(values), runs
        figure.quartiles = min(quartiles), max(quartiles)
        return figure

    def spread(self) -> tuple[float, float, int, float, float]:
        """Returns the least, the most, the number of runs, and the quartiles, as bench.json has them."""
        return (self.least, self.most, self.runs, *self.quartiles)

    def _with(self, other: float, operation: Callable[[float, float], float]) -> Figure:
        bounds = (other.least, other.most) if isinstance(other, Figure) else (other,)
        quartiles = other.quartiles if isinstance(other, Figure) else (other,)
        runs = min(self.runs, other.runs) if isinstance(other, Figure) else self.runs
        return self._made(operation(float(self), float(other)),
                          [operation(own, bound) for own in (self.least, self.most) for bound in bounds], runs,
                          [operation(own, quartile) for own in self.quartiles for quartile in quartiles])

    def __mul__(self, other: float) -> Figure:
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other: float) -> Figure:
        return self._with(other, lambda a, b: a / b if b else math.inf)

    def __rtruediv__(self, other: float) -> Figure:
        return self._with(other, lambda a, b: b / a if a else math.inf)

    __rmul__ = __mul__


def median_seconds(action: Callable[[], object], runs: int = 7, at_least: float = 0.05) -> Figure:
    """Returns the seconds that one call takes, as `runs` show it; each run repeats the call for `at_least` seconds."""
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
    return Figure.of(times)


Cell = str | int | float


@dataclass
class Measurement:
    """Rows of one benchmark: `columns` are headings with units, of which the first `keys` identify the measurement; `limit`
    is the reference of the ratio. `spread`: for each row and column the least, the most, the number of runs and the quartiles;
    None: the cell is no median."""

    name: str
    columns: list[str]
    limit: str
    expected: str
    rows: list[list[Cell]] = field(default_factory=list)
    keys: int = 1
    spread: list[list[tuple[float, float, int, float, float] | None]] = field(default_factory=list)

    def add(self, *row: Cell) -> None:
        self.rows.append([float(cell) if isinstance(cell, Figure) else cell for cell in row])
        self.spread.append([cell.spread() if isinstance(cell, Figure) else None for cell in row])

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
