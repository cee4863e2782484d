"""Shared by all tests: no skip without a named capability where CI asks for all of them."""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import folders  # noqa: E402, F401  (helpers are found wherever they lie)

HELPERS = "control_process", "controlled", "ranks", "switchml_job", "tna_probe", "v1_program", "waiting"
pytest.register_assert_rewrite(*HELPERS)  # their asserts say what they compared

import machine_lock  # noqa: E402
import marks  # noqa: E402
from capabilities import LEFT_OUT, PROBES, required  # noqa: E402

import ina.base.native  # noqa: E402, F401  (an older compiled part is an error here, and not a capability that is missing)

# A shell that has no job control ignores SIGINT in what it starts in the background, and so would every process of a test.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def token_file(tmp_path_factory):
    """Tests make tokens of their own, and not the user's."""
    before = {name: os.environ.pop(name, None) for name in ("INA_TOKEN", "INA_TOKEN_FILE")}
    os.environ["INA_TOKEN_FILE"] = str(tmp_path_factory.mktemp("token") / "ina.token")
    yield
    del os.environ["INA_TOKEN_FILE"]
    os.environ.update({name: value for name, value in before.items() if value is not None})


def pytest_configure(config):
    """Servers of the tests and their clients have certificates of their own, and find them as those of a user do."""
    config.pluginmanager.register(marks)
    config.certificates = tempfile.mkdtemp()
    os.environ["INA_TLS"] = f"{config.certificates}/tls"


def pytest_unconfigure(config):
    shutil.rmtree(config.certificates)
    if run := getattr(config, "workerinput", {}).get("testrunuid"):
        shutil.rmtree(Path(tempfile.gettempdir()) / f"ina-tests-{os.getuid()}-{run}", ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Beside other tests, but for those marked ``machine``; where one process runs them all, nothing is needed for that."""
    if (run := getattr(item.config, "workerinput", {}).get("testrunuid")) is None:
        return (yield)
    folder = Path(tempfile.gettempdir()) / f"ina-tests-{os.getuid()}-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with machine_lock.held(folder, alone=item.get_closest_marker("machine") is not None):
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
