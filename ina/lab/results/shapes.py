"""Shapes of what is read back from a run's folder, as far as every table and plot relies on them.

A file may be cut off, edited, or of another program. Each function yields what is wrong with a document, whose file the reader
names. It looks at nothing below a part that is wrong unless it is asked for more: readers stop at the first text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from ina.lab.kind import Experiment, Row

NAMES = {dict: "an object", list: "a list", bool: "true or false", str: "a text", int: "a whole number"}
MOST = 1e300  # of a figure: plots have room above and below
SHOWN = 40  # characters of a wrong value


def of_environment(document: dict) -> Iterator[str]:
    """Yields what is wrong with environment.json: reports name commit, machine and sources."""
    yield from _keys("", document, {"commit": str, "cpu": str, "sources": dict})
    yield from _keys("sources.", document["sources"], {"program": str, "worker": str})
    if "cores" not in document:
        yield "has no key 'cores'"


def of_metrics(document: dict, kind: type[Experiment]) -> Iterator[str]:
    """Yields what is wrong with metrics.json of an experiment of this kind."""
    yield from _keys("", document, {"summary": list, "comparison": dict, "runs": list, "finished": bool})
    summary, runs = document["summary"], document["runs"]
    if len(summary) != len(runs):
        yield f"runs: {len(runs)}, expected as many as in summary: {len(summary)}"
    for index, each in enumerate(summary):
        yield from _summary(f"summary[{index}]", each, kind)
    for index, each in enumerate(runs):
        yield from _run(f"runs[{index}]", each, kind)


def of_plan(document: dict) -> Iterator[str]:
    """Yields what is wrong with experiment.json, the plan of a sweep."""
    yield from _keys("", document, {"points": list})
    for index, point in enumerate(document["points"]):
        place = f"points[{index}]"
        if not isinstance(point, dict):
            yield f"{place}: {shown(point)}, expected an object"
        yield from _keys(f"{place}.", point, {"folder": str, "config": dict, "sources": dict})
        yield from _keys(f"{place}.sources.", point["sources"], {"program": str, "worker": str})


def _summary(place: str, summary: Any, kind: type[Experiment]) -> Iterator[str]:
    if not isinstance(summary, dict):
        yield f"{place}: {shown(summary)}, expected an object"
    yield from _keys(f"{place}.", summary, {"backend" if "backend" in summary else "job": str})
    for row in kind.rows:
        value = summary.get(row.key)
        if not (value is None or (is_figure(value) or isinstance(value, str)) and takes(row, value)):
            yield f"{place}.{row.key}: {shown(value)}, expected a number{' or a text' if takes(row, '') else ''}"


def _run(place: str, run: Any, kind: type[Experiment]) -> Iterator[str]:
    if not isinstance(run, dict):
        yield f"{place}: {shown(run)}, expected an object"
    if kind.curve is not None:
        key = kind.curve.key
        yield from _keys(f"{place}.", run, {key: list})
        for index, value in enumerate(run[key]):
            if value is not None and not is_figure(value):
                yield f"{place}.{key}[{index}]: {shown(value)}, expected a number"


def _keys(place: str, document: Mapping[str, object], expected: Mapping[str, type]) -> Iterator[str]:
    for key, kind in expected.items():
        if key not in document:
            yield f"has no key {place + key!r}"
        elif not isinstance(document[key], kind):
            yield f"{place}{key}: {shown(document[key])}, expected {NAMES[kind]}"


def is_number(value: object) -> TypeGuard[float]:
    """Returns True for what has a place on an axis."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_figure(value: object) -> bool:
    """Returns True for what a table has: a number that plots have room for, or a truth value."""
    return isinstance(value, (int, float)) and -MOST <= value <= MOST


def takes(row: Row, value: object) -> bool:
    """Returns True if a row's format takes the value: a few take words, such as a bottleneck's name."""
    try:
        row.pattern.format(value)
    except ValueError:
        return False
    return True


def shown(value: object) -> str:
    """Returns a value for a message, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
