"""Long commands of `make` say that they go on, and what failed."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

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


def test_of_lines_that_are_chosen_the_last_is_said_and_all_of_them_after_a_failure(aloud, capfd):
    script = "echo noise; echo compiled 3 of 9; sleep 1; echo end; exit 3"
    with pytest.raises(SystemExit) as end:
        aloud.main(["--saying", "compiled [0-9]+", "starting", "sh", "-c", script])
    output = capfd.readouterr()
    ticks = output.err.splitlines()
    assert (end.value.code, output.out, ticks[-3:]) == (3, "", ["noise", "compiled 3 of 9", "end"])
    assert {line.partition(" s: ")[2] for line in ticks[:-3]} == {"compiled 3"}


def test_what_pip_says_is_heard_if_it_is_large_or_if_pip_fails(aloud, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "aloud", aloud)
    loader = SourceFileLoader("install_of_ci", str(SCRIPT.with_name("install")))
    install = module_from_spec(spec_from_loader("install_of_ci", loader))
    loader.exec_module(install)
    lines = ["WARNING: Location 'file:///x/' is ignored", "Requirement already satisfied: numpy", "  Downloading a-1.whl (96 kB)",
             "  Downloading torch-2.whl (190.5 MB)", "Progress 45000000 of 190500000",
             "Installing collected packages: a, b, torch",
             "Successfully installed a-1 b-1 torch-2"]
    assert [install.shown(line) for line in lines] == [
        None, None, ("    downloads a-1.whl, 96 kB", False), ("    downloads torch-2.whl, 190.5 MB", True),
        ("45 of 190 MB of torch-2.whl", False), ("    unpacks 3 packages", True), (f"    {lines[-1]}", True)]
    script = "; ".join(f"echo {shlex.quote(line)}" for line in lines[:2])
    assert aloud.forwarded(["sh", "-c", script], "pip", shown=install.shown) == 0
    assert capfd.readouterr() == ("", "")
    assert aloud.forwarded(["sh", "-c", f"{script}; exit 1"], "pip", shown=install.shown) == 1
    assert capfd.readouterr() == ("", f"{lines[0]}\n{lines[1]}\n")
