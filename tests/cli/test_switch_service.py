"""A switch process as a service: what it tells its manager, and the unit of examples/servers."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import child
import pytest
from capabilities import need
from listening_switch import listening, sum_once, workers
from waiting import LONG

from ina.aggregation.controller import server
from ina.cli import parser

SERVERS = Path(__file__).resolve().parent.parent.parent / "examples/servers"
UNIT = SERVERS / "ina-switch.service"


@pytest.fixture
def manager(tmp_path):
    """A service manager's socket; its address is ``getsockname``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(LONG)
        yield sock


@pytest.mark.build
@pytest.mark.gate
def test_the_manager_hears_when_workers_can_attach_that_it_lives_and_that_it_ends(manager):
    need("cc")
    with listening(NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC="6000000") as (process, name):
        assert manager.recv(100) == b"READY=1"
        with workers(name, "a") as endpoints:
            sum_once(endpoints)
            assert manager.recv(100) == b"WATCHDOG=1"
            manager.setblocking(False)
            with suppress(BlockingIOError):  # its queue has room for what comes now
                while manager.recv(100) == b"WATCHDOG=1":
                    pass
            manager.settimeout(LONG)
        process.send_signal(signal.SIGTERM)
        while (message := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert message == b"STOPPING=1" and child.status(process) == 143, "the unit says that this is its end in peace"


@pytest.mark.fast
def test_it_is_not_ready_before_it_has_a_switch(manager, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    manager.setblocking(False)
    looked = []

    def make(*_arguments):
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        looked.append("NOTIFY_SOCKET" in os.environ)
        raise OSError("no switch")

    assert server.main(["--program", "p.p4", "--name", f"ina-test-{os.getpid()}"], make=make) == 1
    assert looked == [False], "what it starts finds no manager"
    with pytest.raises(BlockingIOError):
        manager.recv(100)


# ---- the unit


def settings() -> dict[str, str]:
    lines = [line for line in (SERVERS / "ina-switch.env").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def directives(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.M)


def command_line(variables: dict[str, str]) -> list[str]:
    """The words of ExecStart as systemd makes them (systemd.service(5), "Command lines"): ${A} is a word, or a part of one, and
    $A as many words as it has."""
    words = []
    for word in directives("ExecStart")[0].split():
        if lone := re.fullmatch(r"\$(\w+)", word):
            words += variables[lone[1]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda each: variables[each[1]], word))
    return words


@pytest.mark.fast
def test_the_unit_starts_what_the_command_line_takes():
    used = set(re.findall(r"\$\{?(\w+)", directives("ExecStart")[0]))
    assert used == set(settings()), "each setting is used, and each that is used is there"
    for options, expected in (("", "info"), ("-L error", "error")):
        _, *words = command_line({**settings(), "OPTIONS": options})
        args = parser(words).parse_args(words)
        assert (args.listen, args.program.name, args.define) == ("eth0", "switchml.p4", ["VALUES=256"])
        assert args.log_level == expected


@pytest.mark.fast
def test_what_the_unit_keeps_is_where_it_may_write():
    (environment,) = directives("Environment")
    places = dict(word.split("=", 1) for word in shlex.split(environment))
    assert places == {"INA_TOKEN_FILE": f"/var/lib/{directives('StateDirectory')[0]}/ina.token",
                      "INA_CACHE": f"/var/cache/{directives('CacheDirectory')[0]}"}
    assert directives("User") == ["ina"] and " ina " in (SERVERS / "ina-switch.sysusers").read_text()


@pytest.mark.build
def test_systemd_takes_the_unit_and_finds_it_shut_off(tmp_path):
    """``security`` rates from 0 (shut off) to 10; of 2 and less it says OK (systemd-analyze(1))."""
    need("systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ina/bin/ina", sys.executable))
    done = child.run(["systemd-analyze", "verify", "--man=no", unit])
    assert done.returncode == 0 and UNIT.name not in done.stderr, done.stderr
    done = child.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit])
    assert done.returncode == 0, done.stdout
    open_unit = re.sub(r"^(Protect|System|Restrict|NoNew).*\n", "", unit.read_text(), flags=re.M)
    unit.write_text(f"{open_unit}\n[Service]\nProtectTime=yes\n")
    assert "ProtectTime" in child.run(["systemd-analyze", "verify", "--man=no", unit]).stderr, "it looks at the file"
    assert child.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit]).returncode == 1


@pytest.mark.build
def test_systemd_makes_the_user(tmp_path):
    need("systemd")
    (tmp_path / "etc/sysusers.d").mkdir(parents=True)
    file = tmp_path / "etc/sysusers.d/ina-switch.conf"
    file.write_text((SERVERS / "ina-switch.sysusers").read_text())
    done = child.run(["systemd-sysusers", f"--root={tmp_path}", "--dry-run", "ina-switch.conf"])
    assert done.returncode == 0 and not re.search("ailed|nvalid|gnor", done.stderr), done.stderr
