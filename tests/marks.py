"""Each test carries exactly one mark, which says what it needs, and may need what the marks before it may.

fast      nothing: no compiler, no root, no process, well under a second
build     compiles something (P4, C, a sanitizer), starts processes, or takes long
root      root: network namespaces, Mininet, packet sockets
hardware  what only some machines have: DPDK, a compiler for Tofino, BMv2 and p4c, a GPU, ns-3, other people's programs

Which capabilities belong to which is in ``LEAST``; what is not there, a library alone, goes with any mark. A test without a mark
is not collected, and one that needs more than its mark says fails, also where it would be skipped.
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
                  "clang-fuzzer", "atheris", "repository", "curl", "tshark", "ray", "torch-users", "finsy", "p4runtime-shell"),
        "root": ("root", "netns", "mininet", "af-xdp", "tun"),
        "hardware": ("dpdk", "dpdk-testpmd", "p4c", "p4c-samples", "bmv2", "simple_switch_grpc", "ns3", "cuda", "p4c-tofino",
                     "bfrt-client", "ptf", "switchml-controller", "switchml-p4", "p4-examples", "tna-programs"),
    }.items()
    for capability in capabilities
}  # fmt: skip
PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}  # what Python's audit hooks call them


class _Running:
    """The test that runs in this process, and the capabilities that modules need as a whole."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.modules: dict[str, list[str]] = {}


RUNNING = _Running()


def least(*capabilities: str) -> pytest.MarkDecorator:
    """The mark of a test that needs these."""
    return getattr(pytest.mark, max((LEAST.get(name, "fast") for name in capabilities), key=MARKS.index, default="fast"))


def marked(targets: Mapping[str, Any]) -> list[Any]:
    """Parameters, one for each target, with the mark of what it ``needs``."""
    return [pytest.param(name, marks=least(*target.needs)) for name, target in targets.items()]


def of(item: pytest.Item) -> list[str]:
    return [mark.name for mark in item.iter_markers() if mark.name in MARKS]


def suffices(mark: str, capability: str) -> bool:
    return MARKS.index(mark) >= MARKS.index(LEAST.get(capability, "fast"))


def needed(capabilities: tuple[str, ...], file: str) -> None:
    """Fails the test that runs, if its mark says less; outside of tests, keeps what ``file`` needs for its tests' collection."""
    if RUNNING.item is None:
        RUNNING.modules.setdefault(file, []).extend(capabilities)
        return
    (mark,) = of(RUNNING.item)
    for capability in capabilities:
        if not suffices(mark, capability):
            _refuse(RUNNING.item, f"needs {capability}", LEAST[capability])


def _refuse(item: pytest.Item, does: str, mark: str) -> None:
    pytest.fail(f"{item.nodeid} is marked {of(item)[0]}, but {does}: mark it {mark}", pytrace=False)


@contextmanager
def looking() -> Iterator[None]:
    """Around a look at the machine, which may start what a test may not."""
    item, RUNNING.item = RUNNING.item, None
    try:
        yield
    finally:
        RUNNING.item = item


def _audit(event: str, arguments: tuple) -> None:
    if event in PROCESSES and (item := RUNNING.item) is not None and of(item) == ["fast"]:
        _refuse(item, "starts a process", "build")


def problem(item: pytest.Item) -> str:
    """What is wrong with its marks; empty: nothing."""
    name, marks = item.nodeid.partition("[")[0], of(item)
    if not marks:
        return (f"{name} carries none of the marks {', '.join(MARKS)}: add 'pytestmark = pytest.mark.fast' after the file's "
                "imports, or @pytest.mark.fast above the test (tests/marks.py says which)")  # fmt: skip
    if len(marks) > 1:
        return f"{name} carries {len(marks)} of the marks {', '.join(MARKS)}: {', '.join(marks)}; keep one"
    for capability in RUNNING.modules.get(str(item.path), ()):
        if not suffices(marks[0], capability):
            return f"{name} is marked {marks[0]}, but its file needs {capability}: mark it {LEAST[capability]}"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    items = [item for item in report.result if isinstance(item, pytest.Item)] if report.passed else []
    if found := dict.fromkeys(filter(None, map(problem, items))):
        report.outcome, report.longrepr, report.result = "failed", "\n".join(found), []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    RUNNING.item = item
    try:
        return (yield)
    finally:
        RUNNING.item = None


def pytest_configure():
    sys.addaudithook(_audit)
