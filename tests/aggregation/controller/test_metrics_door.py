"""The switch process's socket for Prometheus: figures of a real job, and nothing for whoever asks for more."""

from __future__ import annotations

import json
import os
import socket
import stat
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from capabilities import need
from control_process import free_tcp_name
from listening_switch import listening, sum_once, workers
from waiting import LONG, until

from ina import __version__, cli
from ina.aggregation.controller import counter_cells, metrics_door
from ina.aggregation.controller.api import Operations, Session
from ina.base import tokens

OWN = "127.0.0.1"


def asked(port: int, path: str = "/metrics", token: str = "", method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an answer."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"http://{OWN}:{port}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Values by metric and labels, without the label ``process``, as Prometheus's own library reads them."""
    need("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    return {(sample.name, frozenset({*sample.labels.items()} - {("process", sample.labels["process"])})): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}


@pytest.fixture(scope="module")
def machine():
    """A switch process with a socket for Prometheus, its name, and that socket's port."""
    need("cc")
    port = int(free_tcp_name().rpartition(":")[2])
    with listening("--metrics", str(port)) as (process, name):
        assert process.stdout.readline() == f"metrics for Prometheus: http://{OWN}:{port}/metrics\n"
        yield process, name, port


@pytest.mark.build
@pytest.mark.gate
def test_a_job_is_seen_while_it_runs_and_what_it_sent_is_counted(machine):
    process, name, port = machine

    def look():
        status, text = asked(port)
        assert status == 200 and f'process="{name}"' in text
        return values(text)

    before = look()
    assert before["ina_up", frozenset()] == 1 and before["ina_switch_free_slots", frozenset({("switch", "s1")})] == 16384
    with workers(name, "seen") as endpoints:
        sum_once(endpoints, 6400)  # a hundred packets of each
        during = look()
    job = ("job", "seen")
    assert [during[f"ina_job_{key}", frozenset({job})] for key in ("workers", "workers_asked", "slots")] == [2, 2, 128]
    assert during["ina_switch_free_slots", frozenset({("switch", "s1")})] == 16384 - 128
    ports = {dict(labels)["worker"]: dict(labels) for metric, labels in during if metric == "ina_job_port_info"}
    assert ports.keys() == {"0", "1"} and {each["ip"] for each in ports.values()} and job in ports["0"].items()
    for each in ports.values():
        packets = {way: during["ina_port_packets_total", frozenset({("port", each["port"]), ("direction", way)})]
                   for way in ("in", "out")}
        assert packets["in"] >= 100 and packets["out"] >= 100, packets
    assert not [metric for metric, _ in look() if metric.startswith("ina_job_")], "it is over"
    (build,) = [dict(labels) for metric, labels in before if metric == "ina_build_info"]
    assert build["version"] == __version__ and build["protocol"] == "switchml" and len(build["source_hash"]) > 8


@pytest.mark.build
@pytest.mark.gate
def test_the_figures_of_the_process_are_those_of_the_kernel(machine):
    process, _, port = machine
    figures = values(asked(port)[1])
    own = {metric.removeprefix("ina_process_"): value for (metric, _), value in figures.items() if "_process_" in metric}
    assert own["open_descriptors"] == len(os.listdir(f"/proc/{process.pid}/fd")) + 1, "the connection that asked"
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    assert own["resident_memory_bytes"] == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.1)
    booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    assert own["start_time_seconds"] >= booted + ticks / os.sysconf("SC_CLK_TCK") - 2
    assert own["cpu_seconds_total"] > 0 and own["descriptors_limit"] >= own["open_descriptors"]


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize(("path", "method", "headers", "status", "words"), [
    ("/counters", "GET", {}, 404, "expected /metrics"),
    ("/jobs", "POST", {}, 404, "expected /metrics"),
    ("/metrics", "DELETE", {}, 405, "only GET"),
    ("/metrics", "GET", {"Origin": "http://evil.example"}, 403, "pages of browsers"),
    ("/metrics", "GET", {"Host": "evil.example"}, 403, "Host: 'evil.example'"),
    ("/metrics", "GET", {"X": "x" * 9000}, 400, "longer than 8192 bytes"),
])
def test_nothing_else_is_answered(machine, path, method, headers, status, words):
    answer = asked(machine[2], path, method=method, **headers)
    assert answer[0] == status and words in json.loads(answer[1])["error"], answer


@pytest.mark.build
@pytest.mark.gate
def test_what_is_no_http_reaches_no_operation(machine):
    with socket.create_connection((OWN, machine[2]), LONG) as sock:
        sock.sendall(b'{"op": "stop"}\r\n\r\n')
        assert b'"code": "invalid"' in sock.makefile("rb").read()
    assert asked(machine[2])[0] == 200


@pytest.mark.build
@pytest.mark.gate
def test_those_who_ask_nothing_keep_nobody_out(machine):
    """At most 64 wait with a request that is not complete; the oldest makes room."""
    idle = [socket.create_connection((OWN, machine[2]), LONG) for _ in range(70)]
    try:
        assert asked(machine[2])[0] == 200
        until(lambda: idle[0].recv(1) == b"", "the end of the oldest")
    finally:
        for sock in idle:
            sock.close()


@pytest.mark.build
@pytest.mark.gate
def test_with_a_token_nobody_looks_without_it(tmp_path):
    need("cc")
    file, port = tmp_path / "metrics.token", int(free_tcp_name().rpartition(":")[2])
    with listening("--metrics", f"{OWN}:{port}", "--metrics-token-file", str(file), INA_TOKEN="f" * 32) as (process, _):
        process.stdout.readline()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert asked(port, token=token)[0] == 200
        for wrong in ("", token[:-1], "f" * 32):
            status, text = asked(port, token=wrong)
            assert status == 401 and "--metrics-token-file" in text


@pytest.mark.fast
@pytest.mark.parametrize(("where", "words"), [
    ("0.0.0.0:9560", "other machines reach this address: --metrics-token-file"),
    ("web", "'web' is no TCP port"), ("70000", "no TCP port"), ("localhost:9560", "no IPv4 address"),
    (":9560", "no IPv4 address"), ("00000099999", "no TCP port"),
])
def test_a_place_that_is_none_is_named(where, words):
    with pytest.raises(ValueError, match=words):
        metrics_door.opened(where, "s", None)


@pytest.mark.fast
def test_the_control_sockets_token_is_none_for_metrics(tmp_path):
    file = tmp_path / "ina.token"
    control = tokens.kept_in(file)
    with pytest.raises(ValueError, match="--metrics-token-file .*/ina.token: this is the control socket's token"):
        metrics_door.opened("0", "s", file, control)
    metrics_door.opened("0", "s", tmp_path / "another", control).listener.close()


@pytest.mark.fast
def test_a_place_that_is_taken_is_named():
    with socket.create_server((OWN, 0)) as other:
        with pytest.raises(OSError, match="--metrics .*: cannot listen there"):
            metrics_door.opened(str(other.getsockname()[1]), "s", None)


@pytest.mark.fast
@pytest.mark.parametrize(("options", "words"), [
    (["switchml", "--metrics", "9560"], "--metrics: it belongs to --listen"),
    (["--listen", OWN, "--metrics-token-file", "t"], "--metrics-token-file: it belongs to --metrics"),
])
def test_an_option_that_would_do_nothing_is_refused(options, words, capsys):
    assert cli.main(["switch", "run", *options]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.fast
def test_no_scrape_parses_the_program(monkeypatch):
    """Workers wait while the process makes a text, so what takes long is done before it serves."""
    from test_control import FakeHost

    parsed = []
    monkeypatch.setattr(counter_cells.frontend, "load", lambda *arguments, **options: parsed.append(arguments) or SimpleNamespace(
        types={}))
    counter_cells._enums.cache_clear()
    service = Operations(FakeHost())
    monkeypatch.setattr(service.host, "counters", lambda: {"program": {"drops": [[1, 2]]}, "ports": {}}, raising=False)
    metrics_door.prepare(service)
    assert len(parsed) == 1
    with socket.create_server((OWN, 0)) as listener:
        door = metrics_door.MetricsDoor(listener, "s", "")
        session = Session(0, lambda message, fds: None, metrics_door.NOBODY)
        answer = metrics_door.answer(door, service, session, b"GET /metrics HTTP/1.1\r\nHost: ina\r\n\r\n")
    assert b'ina_up{process="@s"} 1\n' in answer and b'cell="0"} 1\n' in answer and len(parsed) == 1
    counter_cells._enums.cache_clear()
