"""`ina tofino check` against p4c's Tofino back end: what it says is least is no more than the compiler takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import need
from tofino_judge import examples, loaded, table, taken_up

from ina.p4.tofino.check import check, report_totals
from ina.p4.tofino.compare import taken

pytestmark = pytest.mark.hardware


@pytest.mark.parametrize("program", examples() or [None], ids=lambda p: p.stem if p else "none")
def test_an_estimate_is_a_bound(program):
    said = taken_up(program)
    report = check(loaded(program))
    assert report.errors == 0
    real = taken(said.compiled)
    estimates = {what: used for what, (used, _) in report_totals(report).items()}
    assert {what: (estimates[what], real[what]) for what in real if estimates[what] > real[what]} == {}


def test_the_table_of_the_docs_is_what_is_measured():
    need("tna-programs")
    need("p4c-tofino")
    text = Path("docs/tna-conformance.md").read_text()
    assert text.partition("<!-- estimates -->\n")[2].partition("<!-- end of estimates -->")[0].splitlines()[2:] == table()
