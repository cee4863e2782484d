"""Settings and fixtures for all tests; where CI requires all capabilities, no skip without a named one."""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import folders  # noqa: E402, F401  (puts the helpers' folders on sys.path)

HELPERS = "control_process", "controlled", "dash_page", "ranks", "switchml_job", "tna_probe", "v1_program", "waiting"
pytest.register_assert_rewrite(*HELPERS)  # asserts of helpers show the compared values

import crashes  # noqa: E402
import machine_lock  # noqa: E402
import marks  # noqa: E402
import second_look  # noqa: E402
import tiers  # noqa: E402
from capabilities import LEFT_OUT, PROBES, required  # noqa: E402

import ina.base.native  # noqa: E402, F401  (an outdated extension is an error here, not a missing capability)

# How long an example takes is no verdict.
hypothesis.settings.register_profile("ina", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ina")

# A shell that has no job control ignores SIGINT in what it starts in the background, and so would every process of a test.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def token_file(tmp_path_factory):
    """Gives tests a token file of their own instead of the user's."""
    before = {name: os.environ.pop(name, None) for name in ("INA_TOKEN", "INA_TOKEN_FILE")}
    os.environ["INA_TOKEN_FILE"] = str(tmp_path_factory.mktemp("token") / "ina.token")
    yield
    del os.environ["INA_TOKEN_FILE"]
    os.environ.update({name: value for name, value in before.items() if value is not None})


def pytest_addoption(parser):
    parser.addoption("--tier", choices=tiers.SELECTED, help="tests of make test, make test-all or make judges (tiers.py)")
    parser.addoption("--since", metavar="COMMIT", help="of these, the tests that the change since COMMIT may reach")


def pytest_configure(config):
    """Gives the tests' servers and clients certificates of their own, in the place where a user's would be found. Notices that
    depend on what is in the cache are left out of what commands print."""
    for plugin in (marks, tiers, second_look, crashes):
        config.pluginmanager.register(plugin)
    config.own_folder = Path(tempfile.mkdtemp())
    os.environ["INA_TLS"] = str(config.own_folder / "tls")
    os.environ["INA_QUIET"] = "true"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Gives a test process the folder of the run's locks, which is the first process's: it ends when no other one is left."""
    node.workerinput["locks"] = str(node.config.own_folder)


def pytest_unconfigure(config):
    shutil.rmtree(config.own_folder)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Refuses files with tests whose mark or tier is wrong."""
    report = yield
    items = [item for item in report.result if isinstance(item, pytest.Item)] if report.passed else []
    if problems := dict.fromkeys(filter(None, (problem(item) for item in items for problem in (marks.problem, tiers.problem)))):
        report.outcome, report.longrepr, report.result = "failed", "\n".join(problems), []
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Takes the machine lock for each test: exclusively for those marked ``machine``. A single test process needs no lock."""
    if (folder := getattr(item.config, "workerinput", {}).get("locks")) is None:
        return (yield)
    with machine_lock.held(Path(folder), alone=item.get_closest_marker("machine") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and required():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        name = reason.partition("needs ")[2].partition(":")[0]
        if (name not in PROBES or name in required()) and not reason.startswith(LEFT_OUT):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped, but CI must run it ({reason})"
    return report
