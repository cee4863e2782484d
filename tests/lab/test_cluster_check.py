"""`ina cluster check` from its file to its report; three addresses of the loopback stand for servers, and a shell for ssh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import child
import pytest
import tiers
from waiting import LONG, until

from ina import cli
from ina.lab.servers import survey

pytestmark = [pytest.mark.build, pytest.mark.gate]
SHELL = "env INA_TRIED={host} sh -c"


def hosts(folder, *lines):
    (path := folder / "hosts.txt").write_text("\n".join(lines) + "\n")
    return path


def check(path, *options):
    tiers.several_processes("starts agents")
    return cli.main(["cluster", "check", str(path), "--quick", "--python", sys.executable, *map(str, options)])


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Waits that only lost packets need are long: on a busy machine nothing is taken for lost."""
    monkeypatch.setattr(survey, "WAIT", 9.0)


def gone(pids):
    return all(not Path(f"/proc/{pid}").exists() for pid in pids)


def test_all_pairs_are_measured_and_all_agents_end(tmp_path, capsys):
    pids, figures = tmp_path / "pids", tmp_path / "figures.json"
    path = hosts(tmp_path, "# three", "127.0.0.2", "127.0.0.3 ranks=2", "127.0.0.4 switch ranks=0")
    shell = f"env INA_TRIED={{host}} sh -c 'echo $$ >> {pids}; exec sh -c \"$0\"'"
    assert check(path, "--ssh", shell, "--seconds", "0.3", "--json", figures) == 0
    assert gone(agents := pids.read_text().split()) and len(agents) == 3
    result = json.loads(figures.read_text())
    names = {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
    assert {(pair["source"], pair["target"]) for pair in result["pairs"]} == {(a, b) for a in names for b in names if a != b}
    for pair in result["pairs"]:
        assert pair["tcp"] == pair["udp"] == pair["error"] == ""
        assert pair["mtu"] == 65535  # of the loopback, whose own is longer than a packet can be
        assert pair["trip"] >= pair["least"] and abs(pair["offset"]) <= pair["uncertainty"] + 1e-3  # one clock
        assert pair["rate"] > 0 and pair["length"] == 50 + 16 + 4 * 2048
    (incast,) = result["incasts"]
    assert incast["target"] == "127.0.0.4" and incast["sources"] == ["127.0.0.2", "127.0.0.3"] and not incast["error"]
    assert incast["volleys"][0]["slots"] == 128 and incast["volleys"][0]["sent"] == 128 * 3 * 5  # 3 ranks, 5 rounds
    (expected,) = result["expectations"]
    assert expected["placement"] == {"server": "127.0.0.4", "ranks": [1, 2], "own": 0} and expected["switch_bytes"] == 3
    output = capsys.readouterr().out
    assert "127.0.0.4 runs the switch process alone: 3 ranks on 2 servers" in output and "-D VALUES=2048" in output


def test_a_server_without_an_agent_is_named_and_the_others_are_measured(tmp_path, capsys):
    path = hosts(tmp_path, "127.0.0.2", "127.0.0.3", "127.0.0.4")
    shell = "sh -c 'case {host} in *.4) echo no such host >&2; exit 255;; esac; exec sh -c \"$0\"'"
    assert check(path, "--ssh", shell, "--json", tmp_path / "figures.json") == 1
    result = json.loads((tmp_path / "figures.json").read_text())
    assert [problem["text"] for problem in result["problems"] if problem["necessary"]] == [
        "127.0.0.4: the agent ended (exit status 255): no such host"]
    assert len(result["pairs"]) == 2 and result["incasts"] == []
    assert "must be mended: 127.0.0.4: the agent ended" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("lines", "options", "words"), [
    (["127.0.0.2"], [], "hosts.txt: 1 servers: expected 2 to 64"),
    (["127.0.0.2", "127.0.0.3 rank=2"], [], "hosts.txt:2: rank=2: expected NAME"),
    (["127.0.0.2", "127.0.0.3"], ["--ssh", "sh -c"], "--ssh sh -c: expected a command with {host}"),
    (["127.0.0.2", "127.0.0.3"], ["--ssh", "no-such-command {host}"], "there is no command 'no-such-command'"),
])
def test_a_wrong_file_or_option_ends_with_status_2(lines, options, words, tmp_path, capsys):
    assert check(hosts(tmp_path, *lines), *options) == 2
    error = capsys.readouterr().err
    assert words in " ".join(error.split()) and "Traceback" not in error


def test_a_place_for_figures_that_is_none_is_named_before_anything_is_measured(tmp_path, capsys):
    path = hosts(tmp_path, "127.0.0.2", "127.0.0.3")
    assert check(path, "--ssh", SHELL, "--json", tmp_path / "nowhere" / "figures.json") == 1
    assert "nowhere/figures.json: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_agents_everywhere(number, tmp_path):
    pids = tmp_path / "pids"
    path = hosts(tmp_path, "127.0.0.2", "127.0.0.3")
    shell = f"env INA_TRIED={{host}} sh -c 'echo $$ >> {pids}; exec sh -c \"$0\"'"
    tiers.several_processes("starts agents")
    process = subprocess.Popen([sys.executable, "-m", "ina.cli", "cluster", "check", path, "--seconds", "30", "--ssh", shell,
                                "--python", sys.executable], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    until(lambda: pids.exists() and pids.read_text().count("\n") == 2, "both agents")
    process.send_signal(number)
    out, error = child.output(process, LONG)
    assert (process.returncode, out) == (128 + number, "") and "Traceback" not in error, error
    until(lambda: gone(pids.read_text().split()), "the end of both agents")
