"""Results as one flat table, a row for each back end or job of each run.

It is `results.csv` of a sweep, `ina report --output FILE.csv`, and `ina.experiment.table`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ina.base import settings
from ina.base.csv_text import csv_text
from ina.lab.kind import kinds
from ina.lab.results.record import Result

Cell = str | int | float | bool | None


def rows(results: Sequence[Result]) -> list[dict[str, Cell]]:
    """Returns a row for each back end or job: `path`, all keys, and all figures by their names in `metrics.json`. All rows have
    the same columns, None where a kind has no such key or figure.

    A figure that shares its name with a key of any kind is `figure_<name>`, so that a column means one thing; a list is a text
    with commas.
    """
    found, named = [], {name for kind in kinds().values() for name in settings.keys(kind)} | {"path"}
    for result in results:
        keys = result.config.as_dict()
        for summary in result.summary:
            figures = {f"figure_{name}" if name in named else name: value for name, value in summary.items()}
            found.append({"path": str(result.path), **keys, **figures})
    columns = list(dict.fromkeys(name for row in found for name in row))
    return [{name: _cell(row.get(name)) for name in columns} for row in found]


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, (str, int, float)):  # a bool is an int
        return value
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def text(results: Sequence[Result]) -> str:
    """Returns the table as CSV; an empty cell is None."""
    table = rows(results)
    return csv_text([table[0] if table else [], *(row.values() for row in table)])
