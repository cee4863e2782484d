"""Tiers of tests: when a test runs, beside its mark, which says what it may need (marks.py).

gate    make test: what decides on each change; 8 minutes on two processors
later   make test-all: the rest
judge   make judges: tests of the judges themselves (planted defects, fuzzers, benchmarks), and random search

A test without one of these markers is in the gate if it is marked ``fast`` or ``build``, else it runs later. One that starts
several processes chooses by its marker, since its time hangs on what else the machine does: the gate has one test of each kind of
thing. ``fast`` tests are always in the gate. ``--tier test|all|judges`` selects; without it, what is named on the command line
runs. ``--since COMMIT`` leaves of them the files that the change since then may reach, tests/house, and whatever is marked
``gate`` by name.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import multiprocessing.process
import os
from pathlib import Path
from typing import TYPE_CHECKING

import capabilities
import marks
import pytest

if TYPE_CHECKING:
    import import_graph

TIERS = "gate", "later", "judge"
SELECTED = {"test": ("gate",), "all": ("gate", "later"), "judges": ("judge",)}  # --tier -> tiers
LIMITS = {"fast": 300, "build": 900, "root": 900, "hardware": 900}  # mark -> seconds that only a hang takes
GRACE = 60.0  # seconds more for a hang in native code, which lets no handler of a signal run
DURATIONS = Path(__file__).with_name("durations.json")  # file -> seconds of processor time, of the files that take longest


def explicit(item: pytest.Item) -> list[str]:
    """Tiers that the test's own markers, else its class's, else its file's, name."""
    for node in reversed(item.listchain()):
        if names := [mark.name for mark in getattr(node, "own_markers", []) if mark.name in TIERS]:
            return names
    return []


def of(item: pytest.Item) -> str:
    if names := explicit(item):
        return names[0]
    return "gate" if marks.of(item)[:1] in (["fast"], ["build"]) else "later"


def problem(item: pytest.Item) -> str:
    """Message about what is wrong with the item's tier; "" if nothing."""
    names, name = explicit(item), item.nodeid.partition("[")[0]
    if len(set(names)) > 1:
        return f"{name} carries {len(names)} of the tiers {', '.join(TIERS)}: {', '.join(names)}; keep one"
    if names not in ([], ["gate"]) and marks.of(item) == ["fast"]:
        return f"{name} is marked fast and {names[0]}, but all fast tests are in the gate: take {names[0]} away"
    return ""


def several_processes(deed: str) -> None:
    """Fails the running test, which does ``deed`` ("runs ranks"), unless it chooses its tier: called by what starts processes."""
    item = marks.RUNNING.item
    advice = "later, or gate if make test has none of its kind"
    if item is not None and marks.of(item) == ["fast"]:
        marks.refuse(f"{item.nodeid} is marked fast, but {deed}: mark it build, and {advice}")
    elif item is not None and not explicit(item):
        marks.refuse(f"{item.nodeid} {deed}, but chooses no tier: mark it {advice}")


def durations() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


@functools.cache
def _reached(since: str) -> import_graph.Reach:
    import import_graph

    try:
        return import_graph.reached(*import_graph.changed(since))
    except ValueError as error:
        raise pytest.UsageError(f"--since {since}: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Raises UsageError before xdist starts its workers, which lose it."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if unknown := capabilities.unknown():
        raise pytest.UsageError(f"INA_REQUIRE lists {', '.join(sorted(unknown))}: no capability of tests/capabilities.py")
    for argument in config.args:
        if not Path(config.invocation_params.dir, argument.partition("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {argument}")
    if since := config.getoption("since"):
        for note in _reached(since).notes():
            config.get_terminal_writer().line(note)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item):
    """Ends the process, with the stacks of its threads, where the limit ended nothing: this needs no Python, nor its lock."""
    (seconds,) = item.get_closest_marker("timeout").args
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=item.config.errors)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_configure(config):
    config.errors = os.dup(2)  # not captured
    start = multiprocessing.process.BaseProcess.start

    def declared(self):
        several_processes("starts processes by multiprocessing")
        return start(self)

    multiprocessing.process.BaseProcess.start = declared


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves the tests of the chosen tier, the longest files first, each with a limit that only a hang reaches."""
    if tier := config.getoption("tier"):
        chosen = [item for item in items if of(item) in SELECTED[tier]]
        config.hook.pytest_deselected(items=[item for item in items if of(item) not in SELECTED[tier]])
        seconds = durations()
        items[:] = sorted(chosen, key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0.0))
    if since := config.getoption("since"):
        files = _reached(since).tests
        chosen = [item for item in items if item.path in files or explicit(item) == ["gate"]]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMITS[marks.of(item)[0]]))
