"""open-p4studio's PTF tests, unmodified, before the embedded switch: what docs/tna-conformance.md says of them holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ptf_examples
import pytest
from capabilities import need

pytestmark = pytest.mark.hardware
RECORDED: dict[str, dict[str, str]] = json.loads(ptf_examples.RESULTS.read_text())


def test_the_page_has_the_recorded_results():
    assert ptf_examples.PAGE.read_text() == ptf_examples.page(RECORDED)


@pytest.fixture(scope="module")
def published() -> Any:
    need("ptf", "p4runtime")
    with ptf_examples.client() as made:
        yield made


@pytest.mark.parametrize("name", sorted(name for name, tests in RECORDED.items() if not all(tests.values())))
def test_an_example(name: str, published: Path):
    passing = {test for test, why in RECORDED[name].items() if not why}
    found = {said["name"]: said for said in ptf_examples.run(name, published, tuple(sorted(passing)))}
    assert {test for test, said in found.items() if said["result"] == "pass"} == passing, [
        (test, said["why"]) for test, said in found.items() if said["result"] != "pass"
    ]
