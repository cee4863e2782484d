"""open-p4studio's PTF tests, unmodified, on the embedded switch: outcomes as in tests/ptf/results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ptf_examples
import pytest
from capabilities import need

pytestmark = pytest.mark.hardware
RECORDED: dict[str, dict[str, str]] = json.loads(ptf_examples.RESULTS.read_text())


@pytest.fixture(scope="module")
def published() -> Any:
    need("ptf", "p4runtime")
    with ptf_examples.client() as package:
        yield package


@pytest.mark.parametrize("name", sorted(name for name, tests in RECORDED.items() if not all(tests.values())))
def test_an_example(name: str, published: Path):
    passing = {test for test, reason in RECORDED[name].items() if not reason}
    outcomes = {outcome["name"]: outcome for outcome in ptf_examples.run(name, published, tuple(sorted(passing)))}
    assert {test for test, outcome in outcomes.items() if outcome["result"] == "pass"} == passing, [
        (test, outcome["why"]) for test, outcome in outcomes.items() if outcome["result"] != "pass"
    ]
