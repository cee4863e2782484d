"""``ina jobs``, ``switches``, ``counters`` and ``top`` against a real switch process with a job of two workers."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys

import child
import numpy as np
import pytest
from capabilities import need
from rich.console import Console
from terminal import Terminal
from waiting import LONG

from ina import cli
from ina.aggregation.control_socket import discovery
from ina.aggregation.controller.api import DEFAULT_SLOTS
from ina.aggregation.controller.client import Client, start_server
from ina.aggregation.controller.counter_cells import labels
from ina.aggregation.controller.looks import rates_between
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint, WorkerConfig
from ina.backend import launcher
from ina.base import paths
from ina.cli.running import counters_tables, switches_tables, top_tables
from ina.lab.training import launch
from ina.net import state


@pytest.fixture(scope="module")
def job():
    """(switch process, endpoints) of job a/b, after one all-reduce of 6,400 integers in 101 packets each."""
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "64", "SLOTS": "32"}, job_slots=16)
    clients = [Client(process.name) for _ in range(2)]
    endpoints = []
    for worker, client in enumerate(clients):
        client.join("a/b", worker)
        client.admit("a/b", 2)
        a = client.attach("a/b", worker)
        config = WorkerConfig(worker=worker, workers=2, job=a.number, life=a.life, slots=a.slots, values=a.values,
                              rto_min=5.0, rto_max=5.0, rto_fixed=True)
        endpoints.append(Endpoint(config, open_worker_port(a), client.fileno()))
        for fd in a.fds:
            os.close(fd)
    tickets = [endpoint.submit(np.zeros(6400, np.int32)) for endpoint in endpoints]
    for endpoint, ticket in zip(endpoints, tickets, strict=True):
        endpoint.wait(ticket, LONG)
    yield process, endpoints
    for endpoint, client in zip(endpoints, clients, strict=True):
        endpoint.close()
        client.release()
        client.close()
    process.close()


@pytest.fixture
def ina(job, capsys, monkeypatch):
    """Runs ``ina ...`` on the job's switch process; returns its output."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*argv):
        assert cli.main([*argv, "--switch", job[0].name]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.build
def test_jobs(ina, job):
    output = ina("jobs")
    assert f"@{job[0].name}: process {job[0].pid}" in output and "64 values per packet" in output
    row = next(line for line in output.splitlines() if "a/b" in line)
    assert [cell.strip() for cell in row.split("│")[1:6]] == ["a/b", "0", "2/2", "16", "s1"]
    assert f"pid {os.getpid()} port 0" in output
    (report,) = json.loads(ina("jobs", "--json")).values()
    assert report["jobs"]["a/b"]["switches"] == {"s1": {"slot_base": 0, "children": [0, 1]}}


@pytest.mark.build
def test_switches(ina):
    row = next(line for line in ina("switches").splitlines() if "a/b" in line)
    assert [cell.strip() for cell in row.split("│")[1:6]] == ["s1", "up", "32", "16", "a/b"]
    (report,) = json.loads(ina("switches", "--json")).values()
    assert report["switches"]["s1"]["free_slots"] == 16


@pytest.mark.build
def test_counters(ina):
    (report,) = json.loads(ina("counters", "--json")).values()
    assert [port["rx_packets"] for port in report["ports"].values()] == [101, 101]
    output = ina("counters")
    assert "tx_bytes" in output
    assert len([line for line in output.splitlines() if " 101 " in line]) == 2
    head, *rows = [[cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]] for line in output.splitlines()
                   if line.startswith(("┃ port", "│ 0", "│ 1"))]
    ports = [dict(zip(head, row, strict=True)) for row in rows]
    assert sum(int(port["consumed"]) for port in ports) == 101, "of each two packets one ends as a part of the sum"
    assert [port["drops"] for port in ports] == ["0", "0"], "which is no loss"


@pytest.mark.fast
def test_many_counters_of_a_link_keep_its_name_in_80_columns():
    from rich.console import Console

    ways = ("packets", "bytes", "tail_drops", "ecn_marks", "max_queue_bytes", "lost", "duplicated")
    link = {"rate": 100e6, **{f"{way}_{counter}": 123_456_789 for way in ("up", "down") for counter in ways}}
    counters = {"program": {}, "ports": {}, "links": {"h1": link, "s1-s12": link}}
    console = Console(width=80, record=True, file=open(os.devnull, "w"))
    console.print(counters_tables(counters, {"program": ""}))
    text = console.export_text()
    assert text.count("s1-s12") >= 2 and all(len(line) <= 80 for line in text.splitlines())
    assert all("s1-s12" in text.splitlines()[i + 1] for i, line in enumerate(text.splitlines()) if "│ h1" in line)


@pytest.mark.build
def test_top_shows_rates(ina, job, capsys):
    output = ina("top", "--once", "-d", "0.05")
    assert "in packets/s" in output and "16 slots free" in output and "a/b" in output
    (report,) = json.loads(ina("top", "-n", "1", "-d", "0.05", "--json")).values()
    assert report["jobs"] == {"a/b": [2, 2]} and set(report["ports"]) == {"0", "1"}
    assert set(report["ports"]["0"]) == {"in_packets", "in_bits", "out_packets", "out_bits", "drops"}


@pytest.mark.fast
def test_rates():
    def look(at, packets, size, tail):
        link = {"rate": 1e9, "up_packets": packets, "up_bytes": size, "up_tail_drops": tail, "down_packets": 0, "down_bytes": 0,
                "down_tail_drops": 0, "lost": tail, "errors": {"tx_full": 0}}
        return {"at": at, "jobs": {"jobs": {}}, "counters": {"links": {"h1": link}}}

    rates = rates_between(look(10.0, 100, 1000, 1), look(12.0, 300, 5000, 3))["links"]["h1"]
    assert rates == {"up_packets": 100, "up_bits": 16000, "down_packets": 0, "down_bits": 0, "drops": 2}


@pytest.mark.build
@pytest.mark.later
def test_running_ones_are_found(job):
    assert job[0].name in discovery.running()
    command = [sys.executable, "-m", "ina.cli", "switches", "--json"]
    environment = {key: value for key, value in os.environ.items() if key != "INA_SWITCH"}
    output = child.run(command, env=environment).stdout
    assert job[0].name in json.loads(output)


@pytest.mark.fast
def test_sockets_of_others_are_left_alone(tmp_path, monkeypatch):
    table = tmp_path / "unix"
    rows = ["0: 2 0 00010000 1 1 77 @ina-12-0123456789ab", "0: 2 0 00010000 1 1 70 @a", "0: one two three 4 5 6 7",
            "0: 2 0 00000000 1 3 78 @ina-13-0123456789ab",
            "0: 2 0 00010000 1 1 79 @ina-network", f"0: 2 0 00010000 1 1 80 {tmp_path}/switch.sock", "0: 2 0 00010000 1 1 81"]
    table.write_bytes(b"Num Path\n0: 2 0 00010000 1 1 60 @\xff\xfe\n" + "\n".join(rows).encode() + b"\n")
    monkeypatch.setenv("INA_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(discovery, "listening", lambda listening=discovery.listening: listening(str(table)))
    assert discovery.running() == ["ina-12-0123456789ab", f"{tmp_path}/switch.sock"]


@pytest.mark.fast
@pytest.mark.parametrize(("argv", "text"), [
    (["jobs", "--switch", "nobody"], "no switch process at socket @nobody"),
])
def test_errors(argv, text, capsys):
    assert cli.main(argv) == 1
    assert text in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize(("command", "text"), [
    ("jobs", "jobs with their switches, slots and workers"), ("switches", "switches with their pools"),
    ("counters", "what the switch programs, ports and links have counted"), ("top", "--once"),
    ("controller", "It can be ended and started anew under"),
])
def test_help(command, text, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0 and text in " ".join(capsys.readouterr().out.split())


@pytest.mark.fast
@pytest.mark.parametrize(("arguments", "text"), [
    (["--topology", "star", "--switch", "s1"], "--switch: s1: expected NAME=HOST:PORT"),
    (["--topology", "star", "--switch", "s1=127.0.0.1:1", "--election-id", "0"], "--election-id: "),
    (["--topology", "star", "--switch", "s7=127.0.0.1:1"], "star has no switch 's7'; it has: s1"),
    (["--topology", "stars", "--switch", "s1=127.0.0.1:1"], "there is no topology 'stars'"),
])
def test_a_controller_that_cannot_be(arguments, text, tmp_path, capsys):
    need("p4runtime")
    try:
        status = cli.main(["controller", *arguments, "--name", "ina-test-nowhere", "--state", str(tmp_path / "jobs.json")])
    except SystemExit as end:  # the options cannot be parsed
        status = end.code
    assert status == 2
    assert text in capsys.readouterr().err


@pytest.mark.fast
def test_help_names_the_slots_of_a_job_that_asks_for_none(capsys):
    with pytest.raises(SystemExit):
        cli.main(["controller", "--help"])
    assert f"(default: {DEFAULT_SLOTS})" in capsys.readouterr().out


@pytest.mark.fast
def test_nothing_runs(monkeypatch, capsys):
    monkeypatch.delenv("INA_SWITCH", raising=False)
    monkeypatch.setattr("ina.cli.running.running", list)
    assert cli.main(["jobs"]) == 1
    assert "--switch NAME names one, and --switch HOST:PORT one that listens" in capsys.readouterr().err


@pytest.mark.fast
def test_cells_are_called_as_the_program_calls_them(tmp_path):
    program = str(paths.p4_dir() / "switchml.p4")
    assert labels(program, "SwitchIngress.drops", 13)[1] == "malformed"
    assert labels(program, "SwitchIngress.drops", 26)[14] == "job 1: malformed"
    assert labels(program, "SwitchIngress.drops", 7) == list("0123456")
    assert labels(str(tmp_path / "gone.p4"), "SwitchIngress.drops", 2) == ["0", "1"]


@pytest.mark.fast
def test_whatever_others_call_their_sockets():
    """Names are any bytes, and the kernel lists them as they are: as if there were other lines, and no text at all."""
    with socket.socket(socket.AF_UNIX) as strange, socket.socket(socket.AF_UNIX) as ours:
        strange.bind(f"\0{os.getpid()}\n0: a b c d\n\xff".encode("latin-1"))
        strange.listen()
        ours.bind(f"\0ina-test {os.getpid()}")
        ours.listen()
        assert f"@ina-test {os.getpid()}" in discovery.listening()


@pytest.mark.build
@pytest.mark.parametrize("read", [state.start_time, launcher._parent, lambda pid: int(launch._status(pid)["PPid"])])
def test_whatever_others_call_their_processes(read):
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff) Z 1', 0, 0, 0)"  # PR_SET_NAME
    command = [sys.executable, "-c", f"{rename}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert read(process.pid) > 0
        process.stdin.close()


@pytest.mark.build
def test_top_on_a_terminal_has_a_screen_and_ends_with_q(job):
    with Terminal([sys.executable, "-m", "ina.cli", "top", "-d", "0.05", "--switch", job[0].name]) as terminal:
        screen = terminal.until(lambda screen: any(line.startswith("port 1 ") for line in screen))
        assert "job a/b: 2 of 2 workers, 16 slots, root s1" in screen[1]
        terminal.press("q")
        assert terminal.status() == 0 and terminal.is_sane()


@pytest.mark.fast
def test_links_that_are_down_are_shown_with_jobs_that_moved_or_wait():
    def shown(group):
        console = Console(width=160, file=io.StringIO())
        console.print(group)
        return console.file.getvalue()

    down = {"link": "s1-s9", "state": "down", "reason": "s1-eth3: it has no carrier", "began": 1e9, "noticed": 1e9, "ended": None,
            "lost": 12, "moved": {"job 0": "s18"}, "waited": ["job 1"], "waiting": ["job 1"]}
    slow = {**down, "link": "h3", "state": "slow", "reason": "1 Gb/s", "ended": 1e9 + 5, "lost": 0, "moved": {}, "waited": []}
    reply = {"switches": {}, "links": [slow, down]}
    text = shown(switches_tables(reply, {}))
    assert all(word in text for word in ("s1-s9", "it has no carrier", "12", "job 0 moved to root s18", "job 1 waits", "1 Gb/s"))
    look = {"at": 1.0, "jobs": {"jobs": {}}, "counters": {}, "switches": reply,
            "ping": {"pid": 1, "program": "p", "values": 1, "free_slots": 1}}
    text = shown(top_tables("s", look, rates_between(look, {**look, "at": 2.0})))
    assert "s1-s9" in text and "1 Gb/s" not in text, "only what is down or slow now"
