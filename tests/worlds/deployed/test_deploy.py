"""`ina deploy`: an experiment's file planned, written to a TNA switch over BFRuntime or P4Runtime, read back, taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import child
import pytest
from capabilities import missing, need

need("cc", "p4runtime")

from ina.base.settings import ConfigError  # noqa: E402
from ina.cli import main  # noqa: E402
from ina.lab import plan as plans  # noqa: E402
from ina.lab.deployment import deployment  # noqa: E402
from ina.net.namespaces import own_namespace  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.ports import PortConfig  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget  # noqa: E402
from ina.p4.bfrt.rows import Row  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime.device import Device as P4RuntimeDevice  # noqa: E402
from ina.p4.p4runtime.service import Server as P4RuntimeServer  # noqa: E402
from ina.p4.runtime import Program, Switch  # noqa: E402
from ina.p4.runtime.entities import MulticastGroupEntry, Replica, TableEntry, insert  # noqa: E402
from ina.worlds.deployed import host_setup  # noqa: E402

pytestmark = pytest.mark.build
PROGRAM = Path(__file__).parent.parent.parent / "programs/served" / "deployed.p4"
FILE = """
kind = "training"
name = "small"
workers = 2
values = 256

[tofino]
p4_name = "deployed"
controller = "10.0.0.1:5588"

[tofino.ports]
"1/0" = { fec = "rs", autoneg = "off" }
"2/0" = { speed = "40G" }
"3/0" = { loopback = "mac-near" }

[[tofino.host]]
name = "a"
port = "1/0"
mac = "0c:42:a1:00:00:01"
ip = "10.0.0.1"
interface = "enp1s0"

[[tofino.host]]
name = "b"
port = "2/0"
mac = "0c:42:a1:00:00:02"
ip = "10.0.0.2"

[[tofino.mirror]]
session = 5
port = "3/0"
max_length = 128
"""
BROADCAST = (1 << 48) - 1


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def program():
    return compile_program(PROGRAM)


@pytest.fixture
def switch(program):
    with Switch(program.so_path) as switch:
        for port in (0, 4):
            switch.add_port(port)
        yield switch


@pytest.fixture
def address(switch):
    with Server(Device(switch, "deployed")) as server:
        yield server.address


def everything(address):
    with BfRuntimeTarget(address) as target:
        tables = ("$PORT", "$pre.node", "$pre.mgid", "$mirror.cfg", "l2")
        return {t: sorted(map(str, target.client.read([Row(t)]))) for t in tables}


def test_a_deployment_is_written_and_does_what_it_says(file, address, switch, capsys):
    assert main(["deploy", "--target", "tofino", "--at", address, str(file)]) == 0
    out = capsys.readouterr().out
    assert "port 1/0 (device port 0): 1 written" in out and "mirror session 5: 1 written" in out
    assert "port 1/0 (device port 0): up" in out and f"is deployed on {address}" in out
    frame = bytes.fromhex("0c42a1000002" "0c42a1000001" "88b5") + bytes(50)
    assert switch.step(frame, port=0) == [(4, frame)]
    flooded = b"\xff" * 6 + frame[6:]
    assert sorted(port for port, _ in switch.step(flooded, port=0)) == [0, 4]
    before = everything(address)
    assert main(["deploy", "--at", address, str(file)]) == 0  # again: nothing is left to do
    assert "0 written, 1 there already" in capsys.readouterr().out
    assert everything(address) == before
    assert any("BF_SPEED_40G" in row for row in before["$PORT"]) and len(before["$PORT"]) == 3


def test_a_dry_run_prints_every_write_and_makes_none(file, address, capsys):
    before = everything(address)
    assert main(["deploy", "--at", address, str(file), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{file} on {address} over BFRuntime: 9 writes" in out
    assert "insert $PORT[$DEV_PORT=4] $SPEED=BF_SPEED_40G" in out
    assert "insert pipe.SwitchIngress.l2[hdr.ethernet.dst_addr=0c:42:a1:00:00:02] SwitchIngress.forward(port=4)" in out
    assert "insert $mirror.cfg[$sid=5] $normal(" in out
    assert main(["deploy", "--at", address, str(file), "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sum(len(s["changes"]) for s in report["steps"]) == 9
    first = report["steps"][0]["changes"][0]
    assert (first["type"], first["table"], first["key"]) == ("INSERT", "$PORT", {"$DEV_PORT": 0})
    assert everything(address) == before


def test_what_is_there_and_other_is_changed(file, address, capsys):
    assert main(["deploy", "--at", address, str(file)]) == 0
    other = FILE.replace('"2/0" = { speed = "40G" }', '"2/0" = { fec = "rs" }')
    file.write_text(other.replace("a1:00:00:02", "a1:00:00:0b"))
    assert main(["deploy", "--at", address, str(file), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "delete $PORT[$DEV_PORT=4]\n    insert $PORT[$DEV_PORT=4] $SPEED=BF_SPEED_100G" in out  # a driver changes no speed
    assert "insert pipe.SwitchIngress.l2" in out
    assert main(["deploy", "--at", address, str(file)]) == 0
    assert any("BF_SPEED_100G" in row and "$DEV_PORT=4" in row for row in everything(address)["$PORT"])
    capsys.readouterr()
    file.write_text(file.read_text().replace('autoneg = "off"', 'autoneg = "on"'))
    assert main(["deploy", "--at", address, str(file), "--dry-run"]) == 0
    assert "modify $PORT[$DEV_PORT=0]" in capsys.readouterr().out


def test_a_step_that_fails_takes_all_before_it_back(file, address, switch, capsys):
    """The flood group cannot be made: its node's number belongs to another tree."""
    with BfRuntimeTarget(address, client_id=3) as target:
        target.write(insert(TableEntry("l2", {"hdr.ethernet.dst_addr": 9}, "forward", {"port": 4})))
        target.add_port(PortConfig("2/0", "25G", fec="rs"))
        node = Row("$pre.node", {"$MULTICAST_NODE_ID": 1000 << 16}, {"$MULTICAST_RID": 3, "$DEV_PORT": [4]})
        target.client.write([("INSERT", node)])
    before = everything(address)
    assert main(["deploy", "--at", address, str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ina: forwarding: every host's MAC address, and broadcasts: insert $pre.node[")
    assert "3 steps before were taken back" in error  # two ports added, one made anew
    assert everything(address) == before
    assert 8 not in switch.ports  # the loopback port


def test_over_p4runtime(file, program, capsys):
    ported = FILE
    for name, number in (("1/0", "0"), ("2/0", "4"), ("3/0", "8")):
        ported = ported.replace(f'"{name}"', f'"{number}"')
    with P4RuntimeDevice(device_id=1) as device, P4RuntimeServer(device, "127.0.0.1:0") as server:
        device.load(Program(program.so_path))
        assert main(["deploy", "--at", server.address, "--api", "p4runtime", str(file), "--dry-run"]) == 1
        assert "port 1/0: P4Runtime knows no front panel" in capsys.readouterr().err
        file.write_text(ported)
        assert main(["deploy", "--at", server.address, "--api", "p4runtime", str(file), "--dry-run"]) == 0
        out = capsys.readouterr().out
        assert "port 0: not P4Runtime's; configure it by the switch's own means" in out
        assert "insert multicast group[group=1000] replicas=['port 0 rid 0', 'port 4 rid 0']" in out
        assert main(["deploy", "--at", server.address, "--api", "p4runtime", str(file)]) == 0
        (group,) = device.switch.read([MulticastGroupEntry(1000)])
        assert group.replicas == (Replica(0, 0), Replica(4, 0)) and len(device.switch.read([TableEntry("l2")])) == 3
        assert main(["deploy", "--at", server.address, "--api", "p4runtime", str(file)]) == 0
        assert "0 written, 4 there already" in capsys.readouterr().out


def test_entries_of_a_job_are_not_deployed(file, capsys):
    """A second run with them could get the sums of the first: a controller gives each run a lease of its own."""
    file.write_text(FILE.replace("[tofino.ports]", "job = true\n\n[tofino.ports]", 1))
    assert main(["deploy", str(file), "--dry-run"]) == 2
    assert "[tofino]: job: entries of a job are not deployed any more" in capsys.readouterr().err


def test_what_is_done_on_each_host(file, capsys):
    assert main(["deploy", str(file), "--hosts"]) == 0
    out = capsys.readouterr().out
    first, second = out.split("# b\n")
    assert first.startswith("# a\nip link set enp1s0 mtu 1500 up\nip addr replace 10.0.0.1/32 dev enp1s0\n")
    assert "ip neigh replace 10.0.0.2 lladdr 0c:42:a1:00:00:02" in first and "--node-rank 1" in second
    assert "INA_SWITCH=tcp:10.0.0.1:5588 INA_HOST=b" in second
    probe = "ina doctor --target tofino --values 256 --interface enp1s0 --peer 10.0.0.2"
    assert f"ina doctor --target tofino --agent 600 &\n{probe}\n" in first
    file.write_text(FILE.replace('"10.0.0.', '"192.168.7.'))  # switches are at 10.255.0.1: none of these networks
    assert main(["deploy", str(file), "--hosts"]) == 0
    first, _ = capsys.readouterr().out.split("# b\n")
    assert "ip addr replace 192.168.7.1/32 dev enp1s0\nip route replace 10.255.0.1/32 dev enp1s0 src 192.168.7.1\n" in first
    assert "ip route replace 192.168.7.2/32 dev enp1s0 src 192.168.7.1\n" in first
    assert "ip neigh replace 10.255.0.1 lladdr" in first


@pytest.mark.parametrize(("route", "message"), [
    ({"dst": "default", "gateway": "10.9.0.1", "dev": "eno1"}, ""),
    ({"dst": "10.0.0.0/8", "dev": "eno1"},
     "route 10.0.0.0/8 over eno1 covers its own address 10.0.0.1, the switch's 10.255.0.1, b's 10.0.0.2"),
    ({"dst": "10.0.0.2", "dev": "eno1"}, "route 10.0.0.2 over eno1 covers b's 10.0.0.2"),
    ({"dst": "10.0.0.0/30", "dev": "enp1s0"}, ""),
    ({"dst": "10.0.0.4/30", "dev": "eno1"}, ""),
    ({"type": "local", "dst": "10.0.0.1", "dev": "eno1"}, "local route 10.0.0.1 over eno1 covers its own address 10.0.0.1"),
    ({"type": "broadcast", "dst": "10.0.0.2", "dev": "eno1"}, ""),
    ({"type": "blackhole", "dst": "10.255.0.0/16"},
     "blackhole route 10.255.0.0/16 without an interface covers the switch's 10.255.0.1"),
])
def test_routes_that_overlap(file, route, message):
    d = deployment(file)
    assert host_setup.overlaps(d, d.hosts[0], [route]) == ([message] if message else [])


@pytest.mark.skipif(bool(missing("root") or missing("netns")), reason=f"needs netns: {missing('root') or missing('netns')}")
def test_a_host_keeps_its_management_network(file, capsys):
    """The network is in 10.0.0.0/8, like the deployment's addresses: it is refused, unchanged; elsewhere other settings stay."""
    def ip(*words):
        return child.run(["ip", *words], check=True).stdout

    with own_namespace():
        for name in ("eno1", "enp1s0"):
            ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-peer")
            ip("link", "set", name, "up")
            ip("link", "set", f"{name}-peer", "up")
        ip("addr", "add", "10.4.0.9/8", "dev", "eno1")
        before = ip("route", "show", "table", "all"), ip("addr")
        assert main(["deploy", str(file), "--host", "a", "--dry-run"]) == main(["deploy", str(file), "--host", "a"]) == 1
        assert "host a: route 10.0.0.0/8 over eno1 covers its own address 10.0.0.1," in (captured := capsys.readouterr()).err
        assert captured.out == "" and (ip("route", "show", "table", "all"), ip("addr")) == before
        file.write_text(FILE.replace('"10.0.0.', '"192.168.7.'))
        assert main(["deploy", str(file), "--host", "a", "--dry-run"]) == 1
        assert "covers the switch's 10.255.0.1: " in capsys.readouterr().err
        file.write_text(file.read_text().replace("[tofino]", '[tofino]\nip = "192.168.7.254"'))
        assert main(["deploy", str(file), "--host", "a", "--dry-run"]) == 0
        output = capsys.readouterr().out
        assert "ip addr replace 192.168.7.1/32 dev enp1s0" in output and "192.168.7.1" not in ip("addr")
        for _ in range(2):
            assert main(["deploy", str(file), "--host", "a"]) == 0
            assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == output.splitlines()
            assert "192.168.7.1/32" in ip("addr", "show", "enp1s0")
            assert "192.168.7.2 lladdr 0c:42:a1:00:00:02" in ip("neigh", "show", "dev", "enp1s0")
            for peer in ("192.168.7.2", "192.168.7.254"):
                assert f"{peer} dev enp1s0 src 192.168.7.1" in ip("route", "get", peer)
            for machine in ("10.0.0.2", "10.255.0.1"):
                assert "dev eno1 src 10.4.0.9" in ip("route", "get", machine)
        assert main(["deploy", str(file), "--host", "c"]) == 2 and "has no such host; it has a, b" in capsys.readouterr().err
        ip("link", "del", "enp1s0")
        assert main(["deploy", str(file), "--host", "a"]) == 1
        assert "this machine has no interface 'enp1s0'" in capsys.readouterr().err


def test_the_same_file_is_an_experiment(file):
    assert plans.load(file).base.workers == 2


def test_the_file_of_the_docs_is_one(tmp_path):
    text = (Path(__file__).parent.parent.parent.parent / "docs" / "guide" / "tofino.md").read_text()
    path = tmp_path / "wedge.toml"
    path.write_text(re.search(r"```toml\n(# wedge.toml\n.*?)```", text, re.S)[1])
    d = deployment(path)
    assert [h.name for h in d.hosts] == ["server1", "server2", "server3", "server4"] and len(d.switches[0].ports) == 5


@pytest.mark.parametrize("old, new, message", [
    ("[tofino]", "[tofno]", "unknown key 'tofno'"),
    ('controller = "10.0.0.1:5588"', 'controller = "10.0.0.1"', "controller = '10.0.0.1': expected HOST:PORT"),
    ("p4_name", "p4name", "unknown key 'p4name'; did you mean 'p4_name'"),
    ('fec = "rs"', 'fec = "fc"', "port 1/0: fec = 'fc' does not exist at 100G: expected one of none, rs"),
    ('speed = "40G"', 'spead = "40G"', "unknown key 'spead'; did you mean 'speed'"),
    ('"2/0" = { speed = "40G" }', '"2/0" = { speed = 40 }', "speed = 40: expected text"),
    ('speed = "40G"', 'speed = ["x"]', "speed = ['x']: expected text"),
    ('speed = "40G"', 'speed = "30G"', "speed = '30G': expected '1G' or '10G'"),
    ("workers = 2", "workers = 3", "workers = 3, but there are 2 tables"),
    ('mac = "0c:42:a1:00:00:02"', 'mac = "0c:42"', "number 2: mac = '0c:42': expected six bytes"),
    ('mac = "0c:42:a1:00:00:02"', 'mac = "01:42:a1:00:00:02"', "such as 0c:42:a1:00:00:01, no multicast address"),
    ('mac = "0c:42:a1:00:00:02"', 'mac = "0c:42:a1:00:00:01"', "two hosts have mac = '0c:42:a1:00:00:01'"),
    ('ip = "10.0.0.2"', 'ip = "10.0.0.999"', "number 2: ip = '10.0.0.999': expected an IPv4 address"),
    ('port = "2/0"', 'port = "7/0"', "host 'b': port = '7/0' is none of [tofino.ports]: 1/0, 2/0, 3/0"),
    ('port = "2/0"', 'port = "3/0"', "host 'b': port 3/0 is a loopback port"),
    ("session = 5", "session = 5000", "number 1: session = 5000: expected 1 to 1,015"),
    ("session = 5", "session = 5\ngroup = 70000", "group = 70000: expected 0 to 65,535"),
    ("max_length = 128", "max_length = 0", "max_length = 0: expected 1 to 65,535"),
    ("session = 5", 'session = "5"', "session = '5': expected a whole number"),
    ('"3/0" = {', '"2/2" = { speed = "25G" }\n"3/0" = {', "ports 2/0 and 2/2 share a lane of their connection"),
])
def test_errors_name_the_key(file, old, new, message):
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError) as error:
        deployment(file)
    assert str(error.value).startswith(str(file)) and message in str(error.value)


def test_all_errors_are_told_with_their_lines(file):
    lines = FILE.replace('mac = "0c:42:a1:00:00:02"', 'mac = "0c:42"').replace("session = 5", "session = 5000").splitlines()
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as error:
        deployment(file)
    places = [next(n for n, line in enumerate(lines, start=1) if line.startswith(text)) for text in ('mac = "0c:42"', "session")]
    assert str(error.value).splitlines() == [
        f"{file}:{places[0]}: [[tofino.host]] number 2: mac = '0c:42': expected six bytes such as 0c:42:a1:00:00:01, "
        "no multicast address",
        f"{file}:{places[1]}: [[tofino.mirror]] number 1: session = 5000: expected 1 to 1,015",
    ]


def test_errors_of_the_command(file, address, capsys):
    assert main(["deploy", str(file)]) == 2
    assert "--at HOST:PORT is missing" in capsys.readouterr().err
    assert main(["deploy", str(file), "--at", "127.0.0.1:1", "--timeout", "0.3"]) == 1
    assert "no BFRuntime server answers at 127.0.0.1:1 within 0.3 s" in capsys.readouterr().err
    file.write_text(FILE.replace('p4_name = "deployed"', 'p4_name = "other"'))
    assert main(["deploy", str(file), "--at", address]) == 1
    assert "does not run 'other'; it runs deployed" in capsys.readouterr().err
    file.write_text(FILE.replace("1/0", "33/0"))
    assert main(["deploy", str(file), "--at", address]) == 1
    assert "port 33/0: this switch has no such port on its front panel" in capsys.readouterr().err
