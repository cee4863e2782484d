"""`ina deploy` of switch processes: planned, started by a shell in place of ssh, looked at, ended; alone and beside a Tofino."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import tiers
from capabilities import need
from control_process import free_tcp_name
from listening_switch import TOKEN, listening, sum_once, workers
from waiting import until

need("cc")

from ina.base.native import lib  # noqa: E402
from ina.base.settings import ConfigError  # noqa: E402
from ina.cli import main  # noqa: E402
from ina.lab.deployment import deployment, switch_processes  # noqa: E402
from ina.lab.doctor.machine import BAD, Finding, show  # noqa: E402
from ina.worlds.deployed import processes  # noqa: E402
from ina.worlds.deployed.deployable import DeploymentError  # noqa: E402

pytestmark = pytest.mark.build
ROOT = Path(__file__).resolve().parent.parent.parent.parent
SSH = "--ssh", "env INA_TRIED={host} sh -c"
FILE = """
kind = "training"
name = "sums"
workers = 3
values = 64
slots = 32

[process]
ina = "{ina}"

[[process.switch]]
name = "sums"
listen = "{listen}"
machine = "node9"

[[process.host]]
name = "server1"
ip = "192.168.7.1"
ranks = 2
interface = "enp1s0"

[[process.host]]
name = "server2"
ip = "192.168.7.2"
"""
TOFINO = """
[tofino]
p4_name = "switchml"
controller = "10.0.0.1:5589"
[tofino.ports]
"1/0" = {}
"2/0" = {}
"3/0" = {}
""" + "".join(f"""
[[tofino.host]]
name = "{name}"
port = "{n}/0"
mac = "0c:42:a1:00:00:0{n}"
ip = "10.0.0.{n}"
""" for n, name in enumerate("abc", 1))


@pytest.fixture
def listen():
    return free_tcp_name().removeprefix("tcp:")


@pytest.fixture
def file(tmp_path, listen, monkeypatch):
    monkeypatch.setenv("INA_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "sums.toml"
    path.write_text(FILE.format(ina=f"{sys.executable} -m ina.cli", listen=listen))
    yield path
    with suppress(ConfigError, DeploymentError):  # what a test that failed has left
        for switch in switch_processes(path).switches:
            if running := processes.look(switch, 10):
                os.kill(running.about["pid"], signal.SIGTERM)


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.gate
def test_a_switch_process_is_planned_started_used_and_ended(file, listen, tmp_path, capsys):
    tiers.several_processes("starts a switch process")
    assert main(["deploy", str(file), "--status"]) == 1
    assert f"nobody listens at {listen}" in capsys.readouterr().out
    assert main(["deploy", str(file), "--dry-run"]) == 0
    command = f"-m ina.cli switch run switchml --listen {listen} -DVALUES=64 --job-slots=32"
    assert command in (out := capsys.readouterr().out) and f"sums at {listen} is to be started on node9" in out
    assert not (tmp_path / "ina").exists(), "nothing was done"
    log = tmp_path / "ina" / "switch-sums.log"
    log.parent.mkdir()
    log.write_text("why the one before has ended\n")
    assert main(["deploy", str(file), *SSH]) == 0
    assert log.with_suffix(".log.1").read_text() == "why the one before has ended\n", "read later, too"
    out = capsys.readouterr().out
    assert f"sums at {listen} runs: process " in out and f"{file} is deployed on sums at {listen}" in out
    assert log.stat().st_mode & 0o77 == 0 and TOKEN not in log.read_text()
    assert main(["deploy", str(file), *SSH]) == 0
    assert "is there already: process " in capsys.readouterr().out, "started once"
    with workers(f"tcp:{listen}", "a job") as endpoints:
        sum_once(endpoints)
        assert main(["deploy", str(file), "--status", "--json"]) == 0
        (finding,) = json.loads(capsys.readouterr().out)
        assert finding["verdict"] == "good" and "1 job: a job (2 workers)" in finding["found"]
        assert main(["deploy", str(file), "--down"]) == 1
        assert "has 1 job (a job), which would fail" in capsys.readouterr().err
        sum_once(endpoints)
    until(lambda: main(["deploy", str(file), "--down"]) == 0, "the job's end")
    assert f"sums at {listen} has ended" in capsys.readouterr().out
    assert main(["deploy", str(file), "--down"]) == 0
    assert f"sums at {listen}: nobody listens there" in capsys.readouterr().out


@pytest.mark.later
def test_a_process_of_its_operator_is_taken_where_it_is_what_the_file_says(file, listen, capsys):
    change(file, 'machine = "node9"\n', "")
    assert main(["deploy", str(file)]) == 1
    error = capsys.readouterr().err
    assert f"sums at {listen}: nobody listens there" in error and "names no machine" in error
    with listening() as other:
        change(file, listen, other.name.removeprefix("tcp:"))
        assert main(["deploy", str(file)]) == 0
        assert "is there already" in capsys.readouterr().out
        change(file, "values = 64", "values = 128")
        for option in ([], ["--dry-run"]):
            assert main(["deploy", str(file), *option]) == 1
            assert re.search(r"switchml with 64 values a packet runs there, but .*sums.toml says switchml with 128",
                             capsys.readouterr().err)
        assert main(["deploy", str(file), "--status"]) == 1
        os.environ["INA_TOKEN"] = TOKEN[::-1]  # the fixture puts it back
        assert main(["deploy", str(file)]) == 1
        assert "the token of this socket is needed" in capsys.readouterr().err
        assert main(["deploy", str(file), "--down"]) == 1
        assert other.process.poll() is None


@pytest.mark.later
@pytest.mark.parametrize(("wire", "words"), [(1, "the switch process is older: upgrade ina on its machine"),
                                             (999, "this one is older: upgrade ina here")])
def test_versions_that_differ_say_which_side_is_older(file, wire, words, monkeypatch, capsys):
    with listening() as other:
        change(file, switch_processes(file).switches[0].listen, other.name.removeprefix("tcp:"))
        ping = processes.Client.ping
        monkeypatch.setattr(processes.Client, "ping", lambda client: ping(client) | {"wire": wire})
        assert main(["deploy", str(file), "--dry-run"]) == 1
        assert f"speaks wire version {wire}, ina here {lib.INA_WIRE_VERSION}: {words}" in capsys.readouterr().err
        assert main(["deploy", str(file), "--down"]) == 0, "before it is upgraded, it is to be ended"
        assert "has ended" in capsys.readouterr().out


@pytest.mark.later
@pytest.mark.parametrize(("shell", "ina", "words"), [
    ("sh -c 'echo {host}: no such host >&2; exit 255'", "", "could not be started on node9 (status 255): node9: no such host"),
    ("no-such-command {host}", "", "--ssh: there is no command 'no-such-command'"),
    (SSH[1], "no-such-ina", "could not be started on node9 (status 5): "),
])
def test_a_machine_or_a_command_that_is_not_there_is_named(file, shell, ina, words, capsys):
    tiers.several_processes("starts a shell")
    if ina:
        file.write_text(re.sub('ina = ".*"', f'ina = "{ina}"', file.read_text()))
    assert main(["deploy", str(file), "--ssh", shell]) == 1
    assert words in capsys.readouterr().err


def test_one_that_does_not_answer_is_named_within_the_time_for_an_answer(file, listen, capsys):
    host, _, port = listen.rpartition(":")
    with socket.create_server((host, int(port))):  # who takes connections and says nothing
        for option in ([], ["--dry-run"], ["--down"]):
            assert main(["deploy", str(file), "--timeout", "0.2", *option]) == 1
            assert f"sums at {listen}: " in (error := capsys.readouterr().err) and "time-out while waiting" in error
        assert main(["deploy", str(file), "--timeout", "0.2", "--status"]) == 1


@pytest.mark.later
def test_processes_that_were_started_are_ended_where_a_later_one_cannot_be(file, listen, capsys):
    """The second one's address is none of this machine's."""
    tiers.several_processes("starts a switch process")
    change(file, "[[process.host]]", '[[process.switch]]\nname = "spare"\nlisten = "127.0.0.1:1"\nmachine = "node8"\n\n'
           "[[process.host]]")
    text = file.read_text()
    file.write_text(text.replace('ip = "192.168.7.1"', 'ip = "192.168.7.1"\nswitch = "sums"')
                    .replace('ip = "192.168.7.2"', 'ip = "192.168.7.2"\nswitch = "sums"'))
    broken = "sh -c 'case {host} in node8) echo no power >&2; exit 1;; esac; exec sh -c \"$0\"'"
    assert main(["deploy", str(file), "--ssh", broken]) == 1
    captured = capsys.readouterr()
    assert f"sums at {listen} runs" in captured.out and "on node8 (status 1): no power" in captured.err
    assert processes.look(switch_processes(file).switch("sums"), 10) is None


def test_the_same_file_says_how_ranks_reach_it(file, listen, capsys):
    assert main(["deploy", str(file), "--hosts"]) == 0
    first, second = capsys.readouterr().out.split("# server2\n")
    assert f"INA_SWITCH={listen} GLOO_SOCKET_IFNAME=enp1s0 torchrun --nnodes 2 --node-rank 0 --nproc-per-node 2 " in first
    assert "--master-addr 192.168.7.1" in first and "needs the token" in first and "10." not in first.replace(listen, "")
    assert second.startswith(f"INA_SWITCH={listen} torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 ")


def test_one_file_has_both_kinds(file, listen, capsys):
    need("p4runtime")
    file.write_text(file.read_text() + TOFINO)
    assert len(deployment(file).hosts) == 3 and len(switch_processes(file).hosts) == 2
    assert main(["deploy", str(file), "--embedded", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] and report["processes"][0]["address"] == listen and not report["processes"][0]["running"]
    assert main(["deploy", str(file), "--hosts"]) == 0
    out = capsys.readouterr().out
    assert "# a\nip link" in out and "# server1, over sums\n" in out
    assert main(["deploy", str(file), "--target", "process", "--hosts"]) == 0
    assert "ip link" not in capsys.readouterr().out
    assert main(["deploy", str(file), "--target", "tofino", "--down"]) == 2
    assert "stays until its driver is started anew" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("old", "new", "message"), [
    ('machine = "node9"', 'machin = ""', r":14: \[\[process.switch\]\] number 1: unknown key 'machin'; did you mean 'machine'"),
    ('machine = "node9"', 'machine = "-oProxyCommand=x"', r":14: .*machine = '-oProxyCommand=x': expected a name such as node9"),
    ('name = "sums"\nlisten', 'listen', r"number 1: name is missing"),
    ('ranks = 2', 'ranks = 0', r":19: \[\[process.host\]\] number 1: ranks = 0: expected 1 to 256"),
    ('ranks = 2', 'ranks = 3', r":4: workers = 3, but the tables \[\[process.host\]\] have 4 ranks together"),
    ('ip = "192.168.7.2"', 'ip = "192.168.7.1"', r":24: .*number 2: two have ip = '192.168.7.1'"),
    ('ip = "192.168.7.2"', 'ip = "192.168.7.2"\nswitch = "sum"', r":25: .*switch = 'sum': expected one of sums"),
    ('[process]', '[process]\nprogramme = "x"', r":9: \[process\]: unknown key 'programme'; did you mean 'program'"),
    ('ina = "', 'ina = "\' ', r":9: \[process\]: ina = .*: expected a command"),
])
def test_errors_name_file_line_and_key(file, old, new, message):
    change(file, old, new)
    with pytest.raises(ConfigError) as error:
        switch_processes(file)
    assert str(error.value).startswith(f"{file}:") and re.search(message, str(error.value)), error.value


@pytest.mark.parametrize("place", ["eth0", "10.0.0.9:0", "10.0.0.9:65536", "10.0.0.9:000001655360", "10.0.0.9:", "0.0.0.0",
                                   "224.0.0.1", "10.0.0.999"])
def test_a_place_to_listen_at_is_one_address(file, listen, place):
    change(file, listen, place)
    with pytest.raises(ConfigError, match=re.escape(f"listen = '{place}': expected an IPv4 address of its machine")):
        switch_processes(file)


def test_ranks_of_one_job_are_at_one_switch(file):
    other = '[[process.switch]]\nname = "other"\nlisten = "10.0.0.8"\n\n'
    change(file, "[[process.host]]", f'{other}[[process.host]]\nswitch = "sums"')
    change(file, 'name = "server2"', 'name = "server2"\nswitch = "other"')
    with pytest.raises(ConfigError, match="switch = 'other', but server1 is at sums: the ranks of one experiment are one job"):
        switch_processes(file)


def test_no_tree_has_both_kinds(file):
    """A switch process has no port for a cable, and another controller."""
    tree = TOFINO.replace("[tofino.ports]\n", '[[tofino.switch]]\nname = "leaf"\n[tofino.switch.ports]\n')
    tree = tree.replace('port = "', 'switch = "leaf"\nport = "')
    tree = tree.replace('switch = "leaf"\nport = "3/0"', 'switch = "sums"\nport = "3/0"')
    text = file.read_text()
    file.write_text(text + tree)
    with pytest.raises(ConfigError, match=r"host 'c': sums is a switch process, which has no ports .*: no tree has both kinds"):
        deployment(file)
    link = '\n[[tofino.link]]\nends = ["leaf:2/0", "sums:1/0"]\n'
    file.write_text(text + tree.replace('switch = "sums"', 'switch = "leaf"') + link)
    with pytest.raises(ConfigError, match="link leaf:2/0 to sums:1/0: sums is a switch process"):
        deployment(file)
    file.write_text(text.replace('ip = "192.168.7.2"', 'ip = "192.168.7.2"\nswitch = "leaf"') + tree)
    with pytest.raises(ConfigError, match=r"switch = 'leaf' is a Tofino: ranks there have tables \[\[tofino.host\]\]"):
        switch_processes(file)


def test_a_file_without_either_table_and_options_that_do_not_fit_are_refused(file, listen, capsys):
    for options, words in ((["--at", "switch:50052"], "--at: it belongs to a table [tofino]"),
                           (["--host", "server1"], "--host: it belongs to a table [tofino]"),
                           (["--target", "tofino"], "has no table [tofino]"),
                           (["--json"], "--json: expected with --dry-run or --status"),
                           (["--ssh", "sh -c"], "expected a command with {host}")):
        assert main(["deploy", str(file), *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
    file.write_text(file.read_text().partition("[process]")[0])
    assert main(["deploy", str(file)]) == 2
    assert "there is no table [tofino] or [process]" in capsys.readouterr().err


def test_names_of_others_are_no_markup(capsys):
    assert show([Finding(BAD, "sums", "1 job: a[/] [red]b [tofino] (2 workers)", "see [process]")], False) == 1
    out = capsys.readouterr().out
    assert "1 job: a[/] [red]b [tofino] (2 workers)" in out and "-> see [process]" in out


def test_the_file_of_the_docs_is_one(tmp_path):
    text = (ROOT / "docs" / "guide" / "operate.md").read_text()
    path = tmp_path / "sums.toml"
    path.write_text(re.search(r"```toml\n(# sums.toml\n.*?)```", text, re.S)[1])
    d = switch_processes(path)
    assert [h.name for h in d.hosts] == ["server1", "server2"] and d.switches[0].address == "10.0.0.9:5588"
