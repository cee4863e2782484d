"""Page and plots of docs/results/benchmarks.md: the newest run of each measurement in bench/results/*.json."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
Cell = float | int | str


@dataclass(frozen=True)
class Section:
    """One measurement: `name` is how its name begins, `plotted` are columns that are drawn beside each other."""

    name: str
    heading: str
    about: str
    plotted: Sequence[str] = ()
    unit: str = ""


@dataclass
class Measured:
    """Newest run of a measurement, and what its last column was in each run."""

    columns: list[str]
    rows: list[list[Cell]]
    limit: str
    expected: str
    environment: dict[str, Cell]
    keys: int
    spread: list[list[list[float] | None]]  # least, most, number of runs, quartiles of each cell; [] in old files
    ratios: dict[tuple[Cell, ...], list[float]] = field(default_factory=dict)


def newest() -> dict[str, Measured]:
    """Measurements by their names."""
    runs = [json.loads(path.read_text()) for path in (ROOT / "bench/results").glob("*.json")]
    measured: dict[str, Measured] = {}
    for run in sorted(runs, key=lambda run: run["environment"]["time"]):
        for entry in run["measurements"]:
            name, rows = re.sub(r", \d+ slots", "", entry["name"]), entry["rows"]
            keys = entry.get("keys") or next(n for n in range(1, 4) if len({tuple(row[:n]) for row in rows}) == len(rows))
            ratios = measured[name].ratios if name in measured else {}
            for row in rows:
                if isinstance(row[-1], int | float):
                    ratios.setdefault(tuple(row[:keys]), []).append(row[-1])
            measured[name] = Measured(entry["columns"], rows, entry["limit"], entry["expected"], run["environment"], keys,
                                      entry.get("spread") or [[] for _ in rows], ratios)
    return measured


def sections(measured: dict[str, Measured]) -> Iterator[tuple[Section, Measured]]:
    """Every section with the newest measurement whose name is the section's up to a colon or comma; then measurements that have
    no section. Raises ValueError for a section without a measurement."""
    known: set[str] = set()
    listed = tomllib.loads((ROOT / "docs/site/measurements.toml").read_text())["section"]
    for section in (Section(**entry) for entry in listed):
        names = [name for name in measured if re.match(re.escape(section.name) + r"($|[:,]| over)", name)]
        if not names:
            raise ValueError(f"docs/site/measurements.toml: bench/results/ has no measurement {section.name!r}")
        known.update(names)
        yield section, measured[max(names, key=lambda name: str(measured[name].environment["time"]))]
    for name in sorted(measured.keys() - known):
        yield Section(name, name.split(":")[0].capitalize(), f"{name.partition(':')[2].strip().capitalize()}."), measured[name]


def text(value: Cell) -> str:
    """A figure with three digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


ROOM = 5  # columns of a table whose cells have room for their spread


def cell(value: Cell, spread: list[float] | None) -> str:
    """A figure, with the quartiles of its runs where they are known, else the least and the most."""
    if spread is None:
        return text(value)
    low, high = spread[3:5] or spread[:2]
    return f"{text(value)} ({text(low)} – {text(high)}, {spread[2]:.0f} runs)"


def cells(row: Sequence[Cell], spread: Sequence[list[float] | None]) -> list[str]:
    """A row of the table; where there are many columns only the last one has its spread."""
    shown = [each if len(row) <= ROOM or column == len(row) - 1 else None for column, each in enumerate(spread)]
    return [cell(*each) for each in zip(row, shown or [None] * len(row), strict=True)]


def benchmarks() -> dict[str, str]:
    """Page and plots, by their paths below docs/results/."""
    measured, made = newest(), {}
    parts = [
        "# Benchmarks\n\n<!-- Written by docs/site/results.py: `make bench` measures, `make docs` writes. -->\n",
        "Each figure stands beside a peer or a physical limit of the same run, and is the median of several repetitions, with\n"
        "their quartiles (in older runs the least and the most) where they were recorded. The newest run is shown. *In all\n"
        "runs* is the range of the last figure over all recorded runs, of earlier commits too. `make bench` measures again;\n"
        "`python -m bench NAME` makes one measurement.\n",
    ]
    for section, entry in sections(measured):
        environment = entry.environment
        several = any(len(values) > 1 for values in entry.ratios.values())
        head = [*entry.columns, *(["in all runs"] if several else [])]
        rows = []
        for row, own in zip(entry.rows, entry.spread, strict=True):
            values = entry.ratios.get(tuple(row[: entry.keys]), [])
            spread = f"{text(min(values))} – {text(max(values))}" if len(values) > 1 else "–"
            rows.append([*cells(row, own), *([spread] if several else [])])
        parts.append(f"## {section.heading}\n\n{section.about}\n")
        parts.append(f"Last figure: {entry.limit}. Expected beforehand: {entry.expected}.\n")
        lines = [head, ["---"] * len(head), *rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
        if section.plotted:
            name = re.sub(r"\W+", "-", section.name.lower()).strip("-")
            made[f"plots/{name}.svg"] = bars(section, entry)
            parts.append(f"![{section.heading}: {', '.join(section.plotted)}](plots/{name}.svg)\n")
        kernel = str(environment["kernel"]).split("-")[0]
        versions = f"Linux {kernel}, Python {environment['python']}, torch {environment['torch']}"
        parts.append(
            f"<small>{str(environment['time'])[:10]}, commit `{environment['commit']}`, {environment['cpu']}, "
            f"{environment['cores']} cores, {versions}</small>\n"
        )
    return {"benchmarks.md": "\n".join(parts), **made}


COLOURS = ("#3f51b5", "#ef6c00", "#00897b")


def bars(section: Section, entry: Measured) -> str:
    """Horizontal bars, as SVG: a group for each row, a bar for each plotted column; as long as the value's logarithm where values
    differ by more than a hundredfold."""
    columns = [entry.columns.index(name) for name in section.plotted]
    values = [[float(row[column]) for column in columns] for row in entry.rows]
    low, high = min(map(min, values)), max(map(max, values))
    logarithmic = high / low > 100
    left, width, bar, gap = 170, 420, 12, 10
    group = bar * len(columns) + gap
    height = group * len(values) + 40

    def length(value: float) -> float:
        return width * (math.log10(value / low * 2) / math.log10(high / low * 2) if logarithmic else value / high)

    box = f"0 0 {left + width + 110} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, name in enumerate(section.plotted):
        x = left + 150 * i
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{x + 15}" y="17">{escape(name)}</text>')
    for j, row in enumerate(values):
        top = 30 + j * group
        label = ", ".join(text(cell) for cell in entry.rows[j][: entry.keys])
        parts.append(f'<text x="{left - 8}" y="{top + bar * len(columns) / 2 + 4:.0f}" text-anchor="end">{escape(label)}</text>')
        for i, value in enumerate(row):
            y = top + i * bar
            parts.append(f'<rect x="{left}" y="{y}" width="{length(value):.1f}" height="{bar - 2}" fill="{COLOURS[i]}"/>'
                         f'<text x="{left + length(value) + 5:.1f}" y="{y + 9}">{text(value)}</text>')
    scale = ", lengths logarithmic" if logarithmic else ""
    caption = f"{', '.join(entry.columns[: entry.keys])}; {section.unit}{scale}"
    parts.append(f'<text x="{left}" y="{height - 3}" fill="#666">{escape(caption)}</text></svg>')
    return "\n".join(parts) + "\n"
