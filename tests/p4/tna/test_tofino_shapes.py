"""Small programs of tofino_shapes: the finding of `ina tofino check`, and the verdict of p4c's Tofino back end."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import need
from test_tofino_check import HEAD, TAIL
from tofino_judge import judged
from tofino_shapes import SHAPES

from ina.p4.compiler.frontend import load
from ina.p4.tofino.check import check

TYPES = "struct mixed_t { int<32> first; bit<32> second; }\nstruct pairs_t { int<32> first; int<32> second; }\n"


def written(folder: Path, name: str, body: str) -> Path:
    path = folder / f"{name.replace(' ', '_').replace(',', '').replace('^', '')}.p4"
    path.write_text(HEAD.replace("header data_t", TYPES + "header data_t") + body + TAIL)
    return path


WARNED = {"two operations in two steps", "two operations in one", "a condition in an action",
          "a comparison of two fields by size"}
"""Programs that p4c refuses and `ina tofino check` only warns of: another compiler may take them"""


@pytest.mark.fast
@pytest.mark.parametrize("name, body, accepted, finding", SHAPES, ids=[s[0] for s in SHAPES])
def test_what_is_found(tmp_path, name, body, accepted, finding):
    report = check(load(written(tmp_path, name, body)))
    findings = [f"{f.level}: {f.text}" for f in report.findings]
    assert [finding in f for f in findings] == ([True] if finding else []), findings
    assert all(f.span.line > HEAD.count("\n") for f in report.findings)
    assert bool(report.errors) == (not accepted and name not in WARNED)


@pytest.mark.hardware
@pytest.mark.parametrize("name, body, accepted, finding", SHAPES, ids=[s[0] for s in SHAPES])
def test_the_compiler_agrees(tmp_path, name, body, accepted, finding):
    need("p4c-tofino")
    judgement = judged(written(tmp_path, name, body))
    assert judgement.ok == accepted, judgement.output[-3000:]
