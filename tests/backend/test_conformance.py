"""torch's own distributed test suite passes with ina where it passes with Gloo (``make conformance`` prints it all)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the back end needs torch")

from tests.conformance.__main__ import EXCEPTIONS, SUMS_FLOATS, compare, run  # noqa: E402

LIMIT = 1500.0  # seconds, which only a hang takes


@pytest.mark.build
@pytest.mark.later
@pytest.mark.timeout(2 * LIMIT)
def test_torch_s_distributed_suite():
    gloo = {record["case"]: record for record in run("gloo", 3, limit=LIMIT)}
    ina = {record["case"]: record for record in run("ina", 3, limit=LIMIT)}
    passed = [case for case, record in gloo.items() if record["result"] == "passed"]
    assert len(passed) >= 85, "Gloo itself passes too few cases to judge by"
    assert not compare(gloo, ina)
    assert sum(ina[case]["switch"] for case in passed if case not in EXCEPTIONS) > 500
    assert sum(bool(SUMS_FLOATS.match(case)) for case in passed) >= 6


@pytest.mark.fast
def test_a_case_that_does_not_conform_is_named():
    def record(case, result, switch=1, why=""):
        return {case: {"case": case, "result": result, "switch": switch, "why": why}}

    gloo = record("a", "passed") | record("test_reduce_sum", "passed") | record("c", "passed") | record("d", "skipped")
    ina = record("a", "failed", why="wrong sum") | record("test_reduce_sum", "passed", switch=0) | record("d", "skipped")
    assert compare(gloo, ina) == [
        "a: failed: wrong sum", "test_reduce_sum: no call went through the switch", "c: did not run"]
