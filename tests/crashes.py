"""Tests that kill the process they run in, beside others (xdist): each is run once, the rest of its file by the next process.

xdist gives up after four such tests for each process; what did not run then is said at the end.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling


class Scheduler(LoadFileScheduling):
    """xdist's own would run the test that crashed again and again, and never come to those behind it."""

    crashed = False

    def remove_node(self, node):
        """Returns the test at which the process ended; None for one that had nothing left to do."""
        names = [(unit, name) for unit in self.assigned_work[node].values() for name, done in unit.items() if not done]
        if not names:
            return super().remove_node(node)
        unit, name = names[0]
        unit[name] = self.crashed = True
        super().remove_node(node)
        return name

    def left(self) -> dict[str, int]:
        """Number of tests that did not run, by file."""
        counts = {file: list(unit.values()).count(False) for file, unit in self.workqueue.items()}
        return {file: count for file, count in counts.items() if count}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter, config):
    scheduler = getattr(config.pluginmanager.get_plugin("dsession"), "sched", None)
    if isinstance(scheduler, Scheduler) and scheduler.crashed and (left := scheduler.left()):
        terminalreporter.write_line("Not run, since too many processes crashed: "
                                    + ", ".join(f"{file} ({count})" for file, count in left.items()))
