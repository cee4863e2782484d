"""``ina dash`` as a user starts it, over a real switch process with a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from capabilities import need

need("bottle", "waitress")

from waiting import LONG, until  # noqa: E402

from ina import cli  # noqa: E402
from ina.aggregation.controller.client import Client, start_server  # noqa: E402
from ina.base import paths  # noqa: E402


@pytest.mark.build
@pytest.mark.gate
def test_the_command_shows_a_running_job_and_ends_at_interrupt(tmp_path):
    need("cc")
    kept = tmp_path / "new" / "dash.token"
    server = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "64", "SLOTS": "32"}, job_slots=16)
    client = Client(server.name)
    client.join("a/b", 0)
    client.admit("a/b", 1)
    for fd in client.attach("a/b", 0).fds:
        os.close(fd)
    command = [sys.executable, "-m", "ina.cli", "dash", "--switch", server.name, "--token-file", str(kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address, _, token = process.stdout.readline().strip().partition("?token=")
            assert kept.read_text() == f"{token}\n" and kept.stat().st_mode & 0o777 == 0o600
            request = urllib.request.Request(f"{address}api/live", headers={"Authorization": f"Bearer {token}"})

            def row():
                with urllib.request.urlopen(request, timeout=LONG) as answer:
                    rows = {one["name"]: one for one in json.load(answer)["switches"]}
                return rows[f"@{server.name}"] if "about" in rows[f"@{server.name}"] else None

            shown = until(row, "the switch process's row")
            assert shown["error"] == "" and shown["about"]["pid"] == server.pid
            (job,) = shown["jobs"]
            assert (job["name"], job["here"], job["workers"], job["slots"], job["root"]) == ("a/b", 1, 1, 16, "s1")
            assert [link["name"] for link in shown["links"]] == job["links"] == ["0"]
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{address}api/live", timeout=LONG)
            assert refused.value.code == 401
            refused.value.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(LONG) == 0
        finally:
            process.kill()
            client.release()
            client.close()
            server.close()


@pytest.mark.fast
def test_an_address_that_is_not_here(capsys):
    assert cli.main(["dash", "--host", "192.0.2.1"]) == 1
    assert "cannot listen at 192.0.2.1, port 0: " in capsys.readouterr().err
    assert cli.main(["dash", "--host", ""]) == 1
    assert 'cannot listen at no address, port 0: expected an address: 0.0.0.0 listens at all' in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize(("make", "text"), [
    (lambda file: (file.write_text("x" * 32), file.chmod(0o640)), "can be read by others: chmod 600"),
    (lambda file: (file.write_text("short"), file.chmod(0o600)), "expected a token of 16 to 255 printable characters"),
    (lambda file: os.mkfifo(file, 0o600), "no regular file; expected a file with a token"),
    (lambda file: file.mkdir(), "expected a file with a token"),
    (lambda file: file.symlink_to(file.parent / "none"), "is a link to no file: remove it, or name another file"),
])
def test_token_files_that_are_none(tmp_path, capsys, make, text):
    file = tmp_path / "dash.token"
    make(file)
    assert cli.main(["dash", "--token-file", str(file)]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"ina: dash: --token-file: {file}") and text in message


@pytest.mark.fast
def test_a_token_file_is_used_at_each_start(tmp_path, monkeypatch):
    tokens = []

    class Server:
        effective_port = 1

        def run(self):
            pass

    def listen(application, host, port):
        tokens.append(application._token)
        return Server()

    monkeypatch.setattr("ina.dash.server.listen", listen)
    file = tmp_path / "dash.token"
    for arguments in (["--token-file", str(file)], ["--token-file", str(file)], [], []):
        assert cli.main(["dash", *arguments]) == 0
    assert tokens[0] == tokens[1] == file.read_text().strip()
    assert len(set(tokens)) == 3, "without a file, each start has a token of its own"


@pytest.mark.fast
def test_all_kinds_are_there_before_the_address_is(monkeypatch, capsys):
    monkeypatch.setattr("ina.dash.server.listen", lambda application, host, port: SimpleNamespace(effective_port=1, run=int))
    monkeypatch.setattr("ina.lab.kind.kinds", lambda: print("kinds"))
    assert cli.main(["dash"]) == 0
    loaded, address = capsys.readouterr().out.splitlines()
    assert loaded == "kinds" and address.startswith("http://127.0.0.1:1/?token=")


@pytest.mark.fast
@pytest.mark.parametrize(("arguments", "text"), [(["--port", "70000"], "--port"), (["--port", "x"], "--port")])
def test_ports_that_are_none(arguments, text, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["dash", *arguments])
    assert end.value.code == 2 and text in capsys.readouterr().err
