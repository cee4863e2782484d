"""A standard output that is full or closed is an error of its own: no traceback, and no file or folder is blamed."""

from __future__ import annotations

import os
import subprocess
import sys

import child
import pytest
from capabilities import need

from ina.base import paths

COMMANDS = {"help": "--help", "print": f"explain {paths.p4_dir() / 'ps.p4'}",
            "results folder": "experiment run link-failure --results {}"}


def ina(command: str, streams: str, folder) -> subprocess.CompletedProcess[str]:
    line = f'exec "{sys.executable}" -m ina.cli {command.format(folder / "results")} {streams}'
    return child.run(["sh", "-c", line], cwd=folder)


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize(("streams", "reason"), [
    (">/dev/full", "No space left on device"), (">&-", "Bad file descriptor"), ("<&- >&-", "Bad file descriptor"),
])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_cannot_be_written(command, streams, reason, tmp_path):
    need("dev-full")
    done = ina(command, streams, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"ina: cannot write to standard output: {reason}"
    assert "Traceback" not in done.stderr


@pytest.mark.build
@pytest.mark.later
def test_without_streams_errors_keep_their_status(tmp_path):
    done = ina("explain none.p4", ">&- 2>&- <&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    done = ina("explain none.p4", ">&-", tmp_path)
    assert (done.returncode, done.stderr) == (1, "ina: none.p4: No such file or directory\n")


@pytest.mark.build
@pytest.mark.gate
def test_a_reader_that_has_gone_ends_a_command_without_a_word(tmp_path):
    """And is no error of the file that --svg names."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = child.run([sys.executable, "-m", "ina.cli", "topo", "show", "fat-tree", "--k", "16"], cwd=tmp_path, stdout=pipe,
                         stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")
