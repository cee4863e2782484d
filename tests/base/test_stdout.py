"""A standard output that is full or closed is an error of its own: no traceback, and no file or folder is blamed."""

from __future__ import annotations

import os
import subprocess
import sys

import child
import pytest
from capabilities import need

from ina.base import paths

COMMANDS = {"help": "ina.cli --help", "print": f"ina.cli explain {paths.p4_dir() / 'ps.p4'}",
            "results folder": "ina.cli experiment run link-failure --results {}",
            "dpdk switch": "ina.worlds.dpdk.switch --help", "dpdk worker": "ina.worlds.dpdk.worker --help"}


def ina(command: str, streams: str, folder) -> subprocess.CompletedProcess[str]:
    line = f'exec "{sys.executable}" -m {command.format(folder / "results")} {streams}'
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
    name = {"ina.cli": "ina"}.get(module := command.split()[0], module.replace("ina.worlds.", "ina-").replace(".", "-"))
    assert done.stderr.splitlines()[-1] == f"{name}: cannot write to standard output: {reason}"
    assert "Traceback" not in done.stderr


@pytest.mark.build
@pytest.mark.later
def test_without_streams_errors_keep_their_status(tmp_path):
    done = ina("ina.cli explain none.p4", ">&- 2>&- <&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    done = ina("ina.cli explain none.p4", ">&-", tmp_path)
    assert (done.returncode, done.stderr) == (1, "ina: none.p4: No such file or directory\n")


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [*COMMANDS.values(), "ina.cli doctor --quick", "ina.cli topo show fat-tree --k 16"],
                         ids=[*COMMANDS, "table", "topology"])
def test_a_reader_that_has_gone_ends_a_command_without_a_word(command, unbuffered, tmp_path):
    """And is no error of a file or folder of the command's, nor one of the library that prints tables."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = child.run([sys.executable, "-m", *command.format(tmp_path / "results").split()], cwd=tmp_path, stdout=pipe,
                         stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (141, "")
