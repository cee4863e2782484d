"""Long commands of `make` say that they go on, and what failed."""

from __future__ import annotations

import importlib.util
import sys

import child
import pytest

from ina.base import paths

pytestmark = pytest.mark.build
SCRIPT = paths.root() / ".ci/aloud.py"


@pytest.fixture
def aloud(monkeypatch):
    spec = importlib.util.spec_from_file_location("aloud", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "QUIET", 0.1)
    return module


def test_a_silent_command_is_said_to_go_on(aloud, capfd):
    done = aloud.quietly(["sh", "-c", "sleep 1; echo done"], "a nap")
    output = capfd.readouterr()
    assert (done.returncode, done.stdout, output.out) == (0, "done\n", "")
    assert {line.partition(" s: ")[2] for line in output.err.splitlines()} == {"a nap"}


def test_lines_of_a_command_come_through_and_the_last_one_is_what_goes_on(aloud, capfd):
    assert aloud.forwarded(["sh", "-c", "echo '  Downloading torch'; sleep 1; echo done; exit 5"], "pip") == 5
    output = capfd.readouterr()
    assert output.out == "  Downloading torch\ndone\n"
    assert output.err.splitlines()[-1].endswith(" s: Downloading torch")


def test_a_line_is_repeated_once_and_then_what_has_come_into_the_folder_is_said(aloud, capfd, tmp_path):
    site = tmp_path / "site-packages"
    (site / "older").mkdir(parents=True)
    (site / "older/some").write_bytes(bytes(1_000_000))
    unpack = f"echo Installing all; mkdir {site}/torch; head -c 2000000 /dev/zero > {site}/torch/lib; sleep 2"
    assert aloud.forwarded(["sh", "-c", unpack], "pip", site) == 0
    heard = [line.partition(" s: ")[2] for line in capfd.readouterr().err.splitlines()]
    assert heard.count("Installing all") == 1 and heard[-1] == "3 MB in site-packages, now torch"


def test_as_a_command_it_prints_only_what_failed():
    done = child.run([sys.executable, SCRIPT, "saying", "sh", "-c", "echo hello; echo there >&2"])
    assert (done.returncode, done.stdout) == (0, "")
    done = child.run([sys.executable, SCRIPT, "failing", "sh", "-c", "echo hello; echo there >&2; exit 4"])
    assert (done.returncode, done.stdout) == (4, "") and done.stderr.endswith("hello\nthere\n")
