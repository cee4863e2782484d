"""torch's own distributed test suite passes with ina where it passes with Gloo (``make conformance`` prints it all)."""

from __future__ import annotations

import os
import sys

import child
import pytest

pytest.importorskip("torch", reason="the back end needs torch")

from tests.conformance.__main__ import EXCEPTIONS, ROOT, SUMS_FLOATS, compare, run  # noqa: E402

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


def driven(code: str) -> str:
    """Output of a process with the driver of two ranks over Gloo, in which ``code`` runs."""
    head = ("import os, sys; sys.argv = ['driver', 'gloo', '2']; from tests.conformance import driver\n"
            "suite = driver.distributed_test\n")
    done = child.run([sys.executable, "-c", head + code], cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.build
@pytest.mark.later
def test_a_barrier_of_the_suite_waits_for_a_late_rank():
    output = driven("""
class Clock:
    now = 0.0
    def time(self): return self.now
    def sleep(self, seconds):
        self.now += 15
        if self.now > 120: open(folder + "/late", "w").write("1")
folder, suite.time = os.environ["TEMP_DIR"] + "/barrier", Clock()
os.mkdir(folder)
suite.Barrier.sync(2)
print(suite.time.now, suite.default_pg_timeout, suite.CUSTOM_PG_TIMEOUT)
""")
    assert output.split(maxsplit=2) == ["135.0", "180", "{}\n"]


@pytest.mark.build
@pytest.mark.later
def test_a_case_whose_rank_a_signal_ends_says_so():
    output = driven("""
driver.PATIENCE = 1
driver.Suite.test_rank_1_is_killed = lambda self: self.rank and os.kill(os.getpid(), 9)
driver.main(["test_rank_1_is_killed"])
""")
    assert '"result": "failed"' in output and "exit codes of ranks: {0: 1, 1: -9}" in output
