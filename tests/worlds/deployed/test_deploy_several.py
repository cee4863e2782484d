"""`ina deploy` for several switches: two leaves and a root, each an embedded TNA switch that serves BFRuntime."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack

import pytest
import tofino_file
from capabilities import need

need("cc", "p4runtime")

from ina.base import paths  # noqa: E402
from ina.base.settings import ConfigError  # noqa: E402
from ina.cli import main  # noqa: E402
from ina.lab.deployment import deployment  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget  # noqa: E402
from ina.p4.bfrt.rows import Row  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402

pytestmark = pytest.mark.build
SWITCHES = "leaf1", "leaf2", "root"
FILE = """
kind = "training"
name = "racks"
workers = 4
values = 64
slots = 32

[tofino]
p4_name = "switchml"
controller = "10.0.0.1:5588"

[[tofino.switch]]
name = "leaf1"
at = "{leaf1}"
ports = {{ "1/0" = {{ fec = "rs" }}, "2/0" = {{}}, "32/0" = {{ fec = "rs" }}, "3/0" = {{ loopback = "mac-near" }} }}

[[tofino.switch]]
name = "leaf2"
at = "{leaf2}"
ports = {{ "1/0" = {{}}, "2/0" = {{}}, "31/0" = {{}} }}

[[tofino.switch]]
name = "root"
at = "{root}"
[tofino.switch.ports]
"5/0" = {{ fec = "rs" }}
"6/0" = {{}}

[[tofino.link]]
ends = ["leaf1:32/0", "root:5/0"]
[[tofino.link]]
ends = ["root:6/0", "leaf2:31/0"]

[[tofino.mirror]]
switch = "root"
session = 5
port = "6/0"
"""
HOSTS = "".join(tofino_file.host(n, f"leaf{(n + 1) // 2}", 2 - n % 2) for n in range(1, 5))
AT = {"leaf1": {1: 0, 2: 4}, "leaf2": {3: 0, 4: 4}}  # host's number -> device port
UPLINKS = {("leaf1", 188): ("root", 16), ("leaf2", 184): ("root", 20)}
CABLES = UPLINKS | {there: here for here, there in UPLINKS.items()}


@pytest.fixture(scope="module")
def program():
    return compile_program(paths.p4_dir() / "tofino" / "switchml.p4", defines={"VALUES": "64"}, include_dirs=[paths.p4_dir()])


@pytest.fixture
def switches(program):
    with ExitStack() as stack:
        result = {name: stack.enter_context(Switch(program.so_path, pipes=2)) for name in SWITCHES}
        for name in SWITCHES:
            for port in [*AT.get(name, {}).values(), *(port for at, port in CABLES if at == name)]:
                result[name].add_port(port)
        yield result


@pytest.fixture
def servers(switches):
    with ExitStack() as stack:
        yield {name: stack.enter_context(Server(Device(switch, "switchml"))) for name, switch in switches.items()}


@pytest.fixture
def file(tmp_path, servers):
    path = tmp_path / "racks.toml"
    path.write_text(FILE.format(**{name: server.address for name, server in servers.items()}) + HOSTS)
    return path


def everything(servers):
    entries = {}
    for name, server in servers.items():
        with BfRuntimeTarget(server.address, client_id=5) as target:
            tables = ("$PORT", "$pre.node", "$pre.mgid", "$mirror.cfg", "l2", "guard", "host")
            entries[name] = {t: sorted(map(str, target.client.read([Row(t)]))) for t in tables}
    return entries


def arrivals(switches, at, port, frame):
    """Host ports that a frame finally reaches, over the cables."""
    ports, waiting = [], [(at, port)]
    for here, into in waiting:
        assert len(waiting) < 20, "a circle"
        for out, same in switches[here].step(frame, port=into):
            assert same == frame
            if (here, out) in CABLES:
                waiting.append(CABLES[here, out])
            else:
                ports.append((here, out))
    return sorted(ports)


def mac(n):
    return bytes.fromhex(f"0c42a100000{n}")


def test_frames_cross_the_switches_that_were_deployed(file, switches, servers, capsys):
    assert main(["deploy", str(file)]) == 0
    out = capsys.readouterr().out
    assert "leaf1: port 32/0 (device port 188): 1 written" in out and "root: mirror session 5: 1 written" in out
    assert "leaf2: port 31/0 (device port 184): up" in out
    assert out.endswith(f"{file} is deployed on 3 switches: leaf1, leaf2, root\n")
    places = {n: (leaf, port) for leaf, hosts in AT.items() for n, port in hosts.items()}
    for source in places:
        for n, place in places.items():
            assert arrivals(switches, *places[source], mac(n) + mac(source) + b"\x88\xb5" + bytes(50)) == [place]
        flooded = arrivals(switches, *places[source], b"\xff" * 6 + mac(source) + b"\x88\xb5" + bytes(50))
        assert flooded == sorted(set(places.values()) - {places[source]})
    before = everything(servers)
    assert main(["deploy", str(file)]) == 0
    assert " 1 written" not in capsys.readouterr().out and everything(servers) == before


def test_a_dry_run_prints_every_write_by_switch_and_makes_none(file, servers, capsys):
    before = everything(servers)
    assert main(["deploy", str(file), "--dry-run"]) == 0
    out = capsys.readouterr().out
    counts = [int(n) for n in re.findall(r"(\d+) writes", out)]
    assert counts[0] == sum(counts[1:]) == out.count("\n    ") == 46
    first, of_root = out.index("\nleaf1, "), out.index("\nroot, ")
    assert f"{file} on 3 switches: leaf1, leaf2, root over BFRuntime" in out[:first]
    assert f"leaf1, {servers['leaf1'].address}: 17 writes\n" in out and f"root, {servers['root'].address}: 13 writes\n" in out
    to_server3 = "forwarding.l2[hdr.ethernet.dst_addr=0c:42:a1:00:00:03] SwitchIngress.forwarding.forward"
    assert first < out.index(f"{to_server3}(port=188)") < of_root < out.index(f"{to_server3}(port=20)")
    assert main(["deploy", str(file), "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["switches"]
    assert [s["name"] for s in report] == list(SWITCHES)
    assert sum(len(step["changes"]) for s in report for step in s["steps"]) == 46
    assert everything(servers) == before


def test_a_step_that_fails_at_one_switch_takes_back_what_others_have(file, servers, capsys):
    with BfRuntimeTarget(servers["root"].address, client_id=3) as target:
        node = Row("$pre.node", {"$MULTICAST_NODE_ID": 1000 << 16}, {"$MULTICAST_RID": 3, "$DEV_PORT": [4]})
        target.client.write([("INSERT", node)])
    before = everything(servers)
    assert main(["deploy", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ina: root: forwarding: every host's MAC address, and broadcasts: insert $pre.node[")
    assert "13 steps before were taken back" in error  # six of leaf1, five of leaf2, two ports of root
    assert everything(servers) == before


def test_a_switch_that_dies_meanwhile(file, servers, capsys, monkeypatch):
    """Its writes cannot be taken back, which is reported; those at the others are."""
    from ina.worlds.deployed import deployable

    before = everything(servers)
    del before["leaf2"]
    real = deployable.Bfrt.write

    def write(switch, step):
        if step.what.startswith("forwarding") and switch.address == servers["leaf2"].address:
            servers["leaf2"].__exit__(None, None, None)
        real(switch, step)

    monkeypatch.setattr(deployable.Bfrt, "write", write)
    assert main(["deploy", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ina: leaf2: forwarding: every host's MAC address, and broadcasts: ")
    assert "could not be taken back: leaf2: port 31/0 (device port 184): " in error and "; leaf1" not in error
    assert everything({name: servers[name] for name in before}) == before


def test_nothing_is_written_before_all_answer(file, servers, capsys):
    before = everything(servers)
    assert main(["deploy", str(file), "--at", "leaf1=127.0.0.1:1", "--timeout", "0.3"]) == 1
    assert "ina: leaf1: no BFRuntime server answers at 127.0.0.1:1 within 0.3 s" in capsys.readouterr().err
    file.write_text(file.read_text().replace('name = "root"', 'name = "root"\np4_name = "other"'))
    assert main(["deploy", str(file)]) == 1
    assert f"ina: root: {servers['root'].address}: device 0 does not run 'other'; it runs switchml" in capsys.readouterr().err
    assert everything(servers) == before


def test_what_is_done_on_each_host(file, capsys):
    assert main(["deploy", str(file), "--hosts"]) == 0
    texts = dict(zip(("1", "2", "3", "4"), re.split(r"# server\d\n", capsys.readouterr().out)[1:], strict=True))
    assert all("ip neigh replace 10.255.0.1 lladdr 02:ff:00:00:00:01" in texts[n] and "10.255.0.2" not in texts[n] for n in "12")
    assert all("ip neigh replace 10.255.0.2 lladdr 02:ff:00:00:00:02" in texts[n] and "10.255.0.1" not in texts[n] for n in "34")
    assert "--peer 10.0.0.4 --peer 10.0.0.1 --peer 10.0.0.2\n" in texts["3"]  # of its own switch first
    assert "INA_HOST=server3" in texts["3"] and "--node-rank 2" in texts["3"]


@pytest.mark.parametrize("old, new, message", [
    ('ends = ["leaf1:32/0", "root:5/0"]', 'ends = ["leaf1:32/0", "root:6/0"]', "fec is rs at one end and none at the other"),
    ('["leaf1:32/0", "root:5/0"]', '["leaf1", "root:5/0"]', "[[tofino.link]] number 1: ends = ['leaf1', 'root:5/0']"),
    ('ends = ["leaf1:32/0", "root:5/0"]', 'ends = ["leaf1:1/0", "root:5/0"]', "leaf1:1/0 is an end of host 'server1' already"),
    ('ends = ["leaf1:32/0", "root:5/0"]', 'ends = ["leaf1:32/0", "rot:5/0"]', "switch = 'rot' is none of leaf1, leaf2, root"),
    ('ends = ["leaf1:32/0", "root:5/0"]', 'ends = ["leaf1:3/0", "root:5/0"]', "port 3/0 is a loopback port"),
    ('[[tofino.link]]\nends = ["leaf1:32/0", "root:5/0"]', "", "no way from server1 to leaf2, root, server3, server4"),
    ('switch = "leaf2"', 'switch = "leaf3"', "host 'server3': switch = 'leaf3' is none of leaf1, leaf2, root"),
    ('switch = "leaf2"\nport = "1/0"', 'port = "1/0"', "host 'server3': switch = '' is none of"),
    ('port = "1/0"', 'port = "9/0"', "host 'server1': port = '9/0' is none of the ports of leaf1: 1/0, 2/0, 3/0, 32/0"),
    ('ip = "10.0.0.2"', 'ip = "10.255.0.3"', "host 'server2' has the address of root: 10.255.0.3"),
    ('name = "root"', 'name = "leaf1"', "two switches have name = 'leaf1'"),
    ('name = "root"', 'name = "a:b"', "[[tofino.switch]] number 3: name = 'a:b': expected a name of letters"),
    ('name = "server1"', 'name = "root"', "node root is there twice"),
    ("[[tofino.switch]]", '[tofino.ports]\n"1/0" = {{}}\n[[tofino.switch]]', "ports: where there are tables [[tofino.switch]]"),
    ("p4_name", 'at = "x:1"\np4_name', "at: where there are tables [[tofino.switch]], each"),
    ('at = "{leaf1}"', "aat = 1", "[[tofino.switch]] number 1: unknown key 'aat'; did you mean 'at'"),
    ('at = "{leaf1}"', "at = 1", "[[tofino.switch]] number 1: at = 1: expected text"),
    ('"6/0" = {{}}', '"6/0" = {{ fec = "x" }}', '[tofino.switch.ports."6/0"]: fec = \'x\''),
    ('switch = "root"\nsession', 'switch = "top"\nsession', "mirror session 5: switch = 'top' is none of leaf1, leaf2, root"),
])
def test_errors_name_the_key(tmp_path, old, new, message):
    file = tmp_path / "racks.toml"
    text = FILE + HOSTS.replace("{", "{{").replace("}", "}}")
    assert old in text
    file.write_text(text.replace(old, new, 1).format(leaf1="a:1", leaf2="b:1", root="c:1"))
    with pytest.raises(ConfigError) as error:
        deployment(file)
    assert str(error.value).startswith(str(file)) and message in str(error.value)


def test_the_file_of_the_docs_is_planned(tmp_path, capsys):
    text = (paths.p4_dir().parent / "docs" / "guide" / "tofino.md").read_text()
    file = tmp_path / "racks.toml"
    file.write_text(re.search(r"```toml\n(# racks.toml\n.*?)```", text, re.S)[1])
    assert main(["deploy", str(file), "--embedded"]) == 0
    assert "on 3 switches: leaf1, leaf2, root over BFRuntime: 44 writes\n" in capsys.readouterr().out


def examined(file, capsys, *options):
    """Runs the doctor; returns its findings by subject, and its exit status."""
    status = main(["tofino", "doctor", str(file), "--json", *options])
    return {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}, status


def test_the_doctor_looks_at_every_switch(file, switches, servers, capsys):
    before = everything(servers)
    findings, status = examined(file, capsys)
    assert status == 0 and everything(servers) == before
    assert findings["leaf1 32/0"]["found"] == "to root:5/0: not configured" and findings["leaf1 32/0"]["verdict"] == "warning"
    assert findings["deployed"]["found"] == "not as the file says: 17 writes at leaf1, 16 writes at leaf2, 13 writes at root"
    assert findings["tree"]["found"] == "a job of all hosts is aggregated at root over leaf1, leaf2"
    assert main(["deploy", str(file)]) == 0
    capsys.readouterr()
    findings, status = examined(file, capsys)
    assert status == 0 and {each["verdict"] for each in findings.values()} == {"good", "fact"}
    assert findings["root 5/0"]["found"] == "to leaf1:32/0: up, 100G, FEC rs"
    assert findings["leaf2 program"]["found"].startswith("SwitchML, 64 values per packet, ")
    switches["leaf2"].remove_port(4)  # its cable
    findings, status = examined(file, capsys)
    assert status == 1 and findings["leaf2 2/0"]["verdict"] == "bad" and "to server4: down" in findings["leaf2 2/0"]["found"]
    servers["root"].stop()
    file.write_text(file.read_text().replace("values = 64", "values = 256"))
    findings, status = examined(file, capsys)
    assert status == 1 and "nobody listens at" in findings["root"]["found"] and "deployed" not in findings
    assert findings["leaf1 program"]["verdict"] == "bad" and "-D VALUES=256" in findings["leaf1 program"]["advice"]
    file.write_text(re.sub(r"at = .*\n", "", file.read_text()))
    assert main(["tofino", "doctor", str(file)]) == 2
    assert "--at leaf1=HOST:PORT is missing" in capsys.readouterr().err


def test_where_switches_are(file, capsys):
    for at, message in (("x:1", "--at x:1: which of leaf1, leaf2, root? Expected NAME=HOST:PORT"),
                        ("spine=x:1", f"--at spine=x:1: {file} has no switch 'spine'; it has leaf1, leaf2, root")):
        assert main(["deploy", str(file), "--at", at]) == 2
        assert message in capsys.readouterr().err
    text = file.read_text()
    file.write_text(re.sub(r'(name = "leaf2"\n)at = .*\n', r"\1", text))
    assert main(["deploy", str(file), "--dry-run"]) == 2
    assert "--at leaf2=HOST:PORT is missing" in capsys.readouterr().err
    file.write_text(re.sub(r"at = .*\n", 'at = "same:1"\n', text))
    assert main(["deploy", str(file)]) == 2
    assert "two switches are at same:1" in capsys.readouterr().err


def test_the_published_program_has_no_controller_here(tmp_path, program, monkeypatch):
    from ina.worlds.deployed import remote
    from ina.worlds.deployed.switch_host import DeployedHost

    published = remote.PUBLISHED
    monkeypatch.setattr(remote, "job_program_of", lambda place, p4info: (published, published.sizes(p4info)))
    file = tmp_path / "racks.toml"
    with Switch(program.so_path, pipes=2) as switch, Server(Device(switch, "switchml")) as server:
        file.write_text(FILE.format(leaf1=server.address, leaf2="b:1", root="c:1") + HOSTS)
        with pytest.raises(ValueError, match="the published SwitchML program has one switch with one address"):
            DeployedHost(deployment(file), dict.fromkeys(SWITCHES, server.address))
