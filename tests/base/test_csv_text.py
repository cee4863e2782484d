"""CSV: whatever cells have, readers get the same rows back."""

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.base.csv_text import csv_text

pytestmark = pytest.mark.fast
CELLS = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\r\n,\"\t "), max_size=8)
QUOTED = re.compile(r'"((?:[^"]|"")*)"|([^",\r\n]*)')


def parsed(text: str) -> list[list[str]]:
    """Reads CSV as RFC 4180 has it, but any of CR, LF and CR LF outside quotes ends a line."""
    rows, at = [[]], 0
    while at < len(text):
        match = QUOTED.match(text, at)
        rows[-1].append(match[1].replace('""', '"') if match[1] is not None else match[2])
        at, end = match.end(), re.compile(r"\r\n|\r|\n|,|$").match(text, match.end())
        assert end, f"{text[at]!r} behind a cell"
        at = end.end()
        if end[0] != ",":
            rows.append([])
        elif at == len(text):
            rows[-1].append("")
    return rows[:-1]


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=4)))
@settings(max_examples=200, deadline=None)
def test_rows_are_read_as_they_were_written(rows):
    text = csv_text(rows)
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == rows and parsed(text) == rows
    assert text.endswith("\n")


def test_cells_of_one_line_have_no_quotes_and_lines_end_with_one_letter():
    assert csv_text([["a", "b"], [1, None], [True, 2.5]]) == "a,b\n1,\nTrue,2.5\n"
    assert csv_text([["a\rb", "c"]]) == '"a\rb",c\n'
