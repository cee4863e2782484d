"""A compiler that is ended takes along what it has started, and its temporary files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import child
import pytest
import waiting
from capabilities import need

need("cc")

from ina.base import cc, paths, tool  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.gate]

# As gcc does: what compiles is a child of the driver, and its output a file for the next step.
DRIVER = """#!/bin/sh
case "$*" in *--version*) echo driver; exit;; esac
touch "$TMPDIR/step.s"
cat {place}/never > /dev/null 2>&1 &
echo $! > {place}/part
mv {place}/part {place}/child
wait
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with a compiler, whose child waits for a writer that never comes."""
    os.mkfifo(tmp_path / "never")
    driver = tmp_path / "driver"
    driver.write_text(DRIVER.format(place=tmp_path))
    driver.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    for name, value in (("CC", str(driver)), ("TMPDIR", str(tmp_path / "tmp")), ("INA_CACHE", str(tmp_path / "cache"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield tmp_path
    with suppress(OSError):  # ENXIO: no reader, as it should be
        os.close(os.open(tmp_path / "never", os.O_WRONLY | os.O_NONBLOCK))


def assert_nothing_is_left(place: Path) -> None:
    waiting.until(lambda: ended(int((place / "child").read_text())), "the end of the compiler's child")
    assert [path.name for path in (place / "tmp").iterdir()] == []
    assert [path.name for path in (place / "cache").glob(".*")] == []


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(("number", "message"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_ends_all_of_a_compiler(place, number, message):
    command = [sys.executable, "-m", "ina.cli", "compile", str(paths.p4_dir() / "ps.p4")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        waiting.until((place / "child").exists, "the compiler's child")
        process.send_signal(number)
        _, errors = child.output(process)
    assert (process.returncode, errors) == (128 + number, f"ina: {message}\n")
    assert_nothing_is_left(place)


def test_a_compiler_that_takes_too_long_is_ended_with_its_children(place, monkeypatch):
    """The deadline is over as soon as the child is there."""
    communicate = subprocess.Popen.communicate

    def over(process, timeout=None):
        if timeout is None:
            return communicate(process)
        waiting.until((place / "child").exists, "the compiler's child")
        raise subprocess.TimeoutExpired(process.args, timeout)

    (place / "cache").mkdir()
    monkeypatch.setattr(subprocess.Popen, "communicate", over)
    with pytest.raises(cc.BuildError, match="did not finish within 600 s"):
        cc.compile_to(place / "cache/program.so", [os.environ["CC"]])
    assert_nothing_is_left(place)


def test_a_tool_answers(place):
    done = tool.run(["sh", "-c", "cat; echo out; echo error >&2; echo $TMPDIR; exit 3"], 60)
    assert (done.returncode, done.stderr) == (3, "error\n") and done.stdout.startswith(f"out\n{place}/tmp/ina-tool-")
