"""`ina tofino check` against p4c's Tofino back end: its lower bounds never exceed the compiler's usage."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from capabilities import need
from tofino_judge import examples, loaded, table, taken_up

from ina.p4.tofino.check import check, report_totals
from ina.p4.tofino.compiler import taken

pytestmark = pytest.mark.hardware


@pytest.mark.parametrize("program", examples() or [None], ids=lambda p: p.stem if p else "none")
def test_an_estimate_is_a_bound(program):
    judgement = taken_up(program)
    report = check(loaded(program))
    assert report.errors == 0
    real = taken(judgement.compiled)
    estimates = {resource: used for resource, (used, _) in report_totals(report).items()}
    assert {resource: (estimates[resource], real[resource]) for resource in real if estimates[resource] > real[resource]} == {}


def test_the_table_of_the_docs_is_what_is_measured():
    need("tna-programs")
    need("p4c-tofino")
    assert tomllib.loads(Path("docs/site/features.toml").read_text())["estimates"] == table()
