"""CSV as every reader takes it (RFC 4180), with lines that end as those of any other text here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

CRLF = "\r\n"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Returns rows as lines of CSV; an empty cell is None. What ends a line for any reader is quoted."""
    return "".join(map(_line, rows))


def _line(cells: Iterable[object]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=CRLF).writerow(cells)  # quotes what its own end of a line has: here both letters
    return stream.getvalue().removesuffix(CRLF) + "\n"
