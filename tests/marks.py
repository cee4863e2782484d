"""Marks of tests: each test carries exactly one, which names the capabilities it may need, those of the marks before included.

fast      nothing: no compiler, no root, no process, well under a second
build     compiles something (P4, C, a sanitizer), starts processes, or takes long
root      root: network namespaces, Mininet, packet sockets
hardware  only on some machines: DPDK, a compiler for Tofino, BMv2 and p4c, a GPU, ns-3, other people's programs

``LEAST`` maps capabilities to marks; any mark allows the others (a library only). A test without a mark
is not collected, and one that needs more than its mark allows fails, even where it would be skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

MARKS = "fast", "build", "root", "hardware"

# capability -> the least mark that may need it
LEAST = {
    capability: mark
    for mark, capabilities in {
        "build": ("cc", "gcc-x86-64", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "sanitizers", "thread-sanitizer",
                  "clang-fuzzer", "atheris", "repository", "curl", "systemd", "promtool", "tshark", "ray", "torch-users",
                  "deepspeed", "finsy", "p4runtime-shell", "p4runtime-package", "notebooks", "groff", "browser", "chromium"),
        "root": ("root", "netns", "tc", "mininet", "af-xdp", "tun"),
        "hardware": ("dpdk", "dpdk-testpmd", "p4c", "p4c-samples", "bmv2", "simple_switch_grpc", "ns3", "cuda", "p4c-tofino",
                     "bfrt-client", "ptf", "switchml-controller", "switchml-p4", "p4-examples", "tna-programs", "bf-p4c"),
    }.items()
    for capability in capabilities
}
PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}  # their names in Python's audit events


class _Running:
    """The test that runs in this process, and the capabilities that whole modules need."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.modules: dict[str, list[str]] = {}
        self.needs: list[str] = []  # capabilities that the test has asked for
        self.refusals: list[str] = []  # not reported yet: raised in another thread, or caught by the test


RUNNING = _Running()


def least(*capabilities: str) -> pytest.MarkDecorator:
    """The least mark that allows these capabilities."""
    return getattr(pytest.mark, max((LEAST.get(name, "fast") for name in capabilities), key=MARKS.index, default="fast"))


def marked(targets: Mapping[str, Any]) -> list[Any]:
    """Parameters, one for each target, with the mark that its ``needs`` require."""
    return [pytest.param(name, marks=least(*target.needs)) for name, target in targets.items()]


def of(item: pytest.Item) -> list[str]:
    return [mark.name for mark in item.iter_markers() if mark.name in MARKS]


def suffices(mark: str, capability: str) -> bool:
    return MARKS.index(mark) >= MARKS.index(LEAST.get(capability, "fast"))


def needed(capabilities: tuple[str, ...], file: str) -> None:
    """Fails the running test if its mark allows less; outside of tests, notes the needs of ``file`` for its tests' collection."""
    if RUNNING.item is None:
        RUNNING.modules.setdefault(file, []).extend(capabilities)
        return
    RUNNING.needs += capabilities
    (mark,) = of(RUNNING.item)
    for capability in capabilities:
        if not suffices(mark, capability):
            _refuse(RUNNING.item, f"needs {capability}", LEAST[capability])


def _refuse(item: pytest.Item, deed: str, mark: str) -> None:
    refuse(f"{item.nodeid} is marked {of(item)[0]}, but {deed}: mark it {mark}")


def refuse(message: str) -> None:
    """Fails the running test, also where another thread is refused, or the test catches the exception."""
    RUNNING.refusals.append(message)
    pytest.fail(message, pytrace=False)


@contextmanager
def looking() -> Iterator[None]:
    """Context of a probe of the machine, which may start processes that a test may not."""
    item, RUNNING.item = RUNNING.item, None
    try:
        yield
    finally:
        RUNNING.item = item


def _audit(event: str, arguments: tuple) -> None:
    if event in PROCESSES and (item := RUNNING.item) is not None and of(item) == ["fast"]:
        _refuse(item, "starts a process", "build")


def problem(item: pytest.Item) -> str:
    """Message about what is wrong with the item's marks; "" if nothing."""
    name, marks = item.nodeid.partition("[")[0], of(item)
    if not marks:
        return (f"{name} carries none of the marks {', '.join(MARKS)}: add 'pytestmark = pytest.mark.fast' after the file's "
                "imports, or @pytest.mark.fast above the test (tests/marks.py says which)")
    if len(marks) > 1:
        return f"{name} carries {len(marks)} of the marks {', '.join(MARKS)}: {', '.join(marks)}; keep one"
    for capability in RUNNING.modules.get(str(item.path), ()):
        if not suffices(marks[0], capability):
            return f"{name} is marked {marks[0]}, but its file needs {capability}: mark it {LEAST[capability]}"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A phase that was refused something has failed, whoever caught the exception."""
    report = yield
    refusals, RUNNING.refusals = RUNNING.refusals, []
    if refusals and report.outcome != "failed":
        report.outcome, report.longrepr = "failed", refusals[0]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    RUNNING.item, RUNNING.needs = item, []
    try:
        return (yield)
    finally:
        RUNNING.item = None


def pytest_configure():
    sys.addaudithook(_audit)
