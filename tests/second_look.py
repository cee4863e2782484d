"""make test's verdict: a second look at time-outs, in the open, and a word where a required capability has no test.

A test that ended because a helper's patience ended (waiting.TookTooLong) is run once more, alone, after all others. If it
passes, the run is good and says UNSTABLE, with the first traceback; the name goes to results/unstable.jsonl, and a name that
stands there, or in the file of earlier tries, is not looked at again. Wrong values, signals, hangs and reports of sanitizers are
never looked at twice, nor is any fast test, nor anything in make test-all.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import marks
import pytest
from capabilities import PROBES, required
from waiting import TookTooLong

ROOT = Path(__file__).resolve().parent.parent
UNSTABLE = Path("results/unstable.jsonl")  # below the folder that pytest was started in
EARLIER = Path(tempfile.gettempdir(), "ina-try-ci/unstable.jsonl")  # of runs on clean clones, which leave nothing else


class Verdict:
    """Reports of a run: failures by test, capabilities that tests needed."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failures: dict[str, list[pytest.TestReport]] = {}
        self.needs: set[str] = set()
        self.messages: list[str] = []  # for the end of the summary

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.setdefault(report.nodeid, []).append(report)
        if report.when == "call" and report.passed:
            self.needs.update(getattr(report, "needs", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._worth_a_look() and self._passes():
            session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus == pytest.ExitCode.OK and self._whole() and (without := self.untested()):
            self.messages.append(f"INA_REQUIRE lists {', '.join(sorted(without))}, but no test of make test that passed needs it")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _worth_a_look(self) -> bool:
        reports = [report for reports in self.failures.values() for report in reports]
        if not reports or not all(getattr(report, "took_too_long", False) for report in reports):
            return False
        if again := sorted(self.failures.keys() & earlier()):
            self.messages.append(f"unstable before, so not looked at again: {', '.join(again)}")
            return False
        return True

    def _passes(self) -> bool:
        """Runs the failed tests once more, one after the other, with nothing beside them; returns True if all pass."""
        names = sorted(self.failures)
        print(f"\n\n{len(names)} took too long: a second look, alone", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"--rootdir={self.config.rootpath}", *self._settings(),
                   *names]
        if subprocess.run(command, cwd=self.config.invocation_params.dir).returncode:
            self.messages.append("took too long, and failed when looked at again: " + ", ".join(names))
            return False
        self._note(names)
        self.needs.update(*(report.needs for reports in self.failures.values() for report in reports))
        stats = self.config.pluginmanager.get_plugin("terminalreporter").stats
        stats["unstable"] = stats.pop("failed", []) + stats.pop("error", [])
        self.messages += [f"UNSTABLE: {len(names)} passed only when looked at again, alone:", *names]
        self.messages += [f"\n{name}, at first:\n{self.failures[name][0].longreprtext}" for name in names]
        return True

    def _settings(self) -> list[str]:
        inifile = self.config.inipath
        plugins = [f"-p{name}" for name in self.config.getoption("plugins") or () if name == "conftest"]
        return [*(["-c", str(inifile)] if inifile else []), *plugins]

    def _note(self, names: list[str]) -> None:
        """Appends the names to the file of unstable tests."""
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        file = Path(self.config.invocation_params.dir, UNSTABLE)
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as lines:
            for name in names:
                entry = {"test": name, "commit": commit, "load": os.getloadavg()[0],
                         "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                         "first": self.failures[name][0].longreprtext[-2000:]}
                lines.write(json.dumps(entry) + "\n")

    def _whole(self) -> bool:
        """True for a run of the whole tier: no folder, word, mark or change chose among its tests."""
        option = self.config.option
        paths = {Path(self.config.invocation_params.dir, argument).resolve() for argument in self.config.args}
        return paths == {ROOT / "tests"} and not (option.keyword or option.markexpr or option.since or option.collectonly)

    def untested(self) -> set[str]:
        return (required() & PROBES.keys()) - self.needs

    def pytest_terminal_summary(self, terminalreporter) -> None:
        for message in self.messages:
            terminalreporter.write_line(message)


def earlier() -> set[str]:
    """Names of tests that were unstable before."""
    names = set()
    for file in (UNSTABLE, EARLIER):
        if file.exists():
            names |= {json.loads(line)["test"] for line in file.read_text().splitlines() if line.strip()}
    return names


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Notes on the report what the test needed, and whether it failed because a helper's patience ended."""
    report = yield
    report.needs = sorted({*marks.RUNNING.needs, *marks.RUNNING.modules.get(str(item.path), ())})
    if report.failed and call.excinfo is not None and call.excinfo.errisinstance(TookTooLong) and marks.of(item) != ["fast"]:
        report.took_too_long = True
    return report


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("tier") == "test" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Verdict(config), "verdict")
