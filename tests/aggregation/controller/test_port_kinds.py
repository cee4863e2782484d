"""Kinds of ports: one class and file each, found by name; settings, requests and offers that name none are refused."""

import ast
import json
import uuid
from pathlib import Path

import pytest

from ina.aggregation import port_kinds
from ina.aggregation.control_socket.channel import listen
from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.port_kinds import kinds, offered_kind, requested_kind, setting_kind

pytestmark = pytest.mark.fast

ROOT = Path(port_kinds.__file__).parent.parent.parent
# Where these words are something else, and what else is in the line then.
OTHERS = {
    "aggregation/wire/layout.py": "HEAD",  # headers
    "aggregation/equal_scenarios.py": ".pack(",
    "base/manifest.py": "host/dpdk",  # files of the library
    "net/dpdk.py": "",
    "cli/switch.py": "where.",  # ports of `ina switch`
    "net/ports.py": "UdpPort(",  # the name of a port, as `ina switch -i` writes it
    "cli/doctor.py": "target",  # ina doctor --target
    "lab/doctor/machine.py": "target",
    "backend/settings.py": "found.errors",  # the key
}


def test_each_kind_is_a_file_of_its_name():
    assert sorted(kinds()) == sorted(path.stem for path in Path(port_kinds.__file__).parent.glob("[a-z]*.py"))
    for name, each in kinds().items():
        assert each.name == name and type(each).__module__ == f"ina.aggregation.port_kinds.{name}"
        assert each.help.startswith(name) and 0 < each.rto_min < 1 and 0 < each.rto_min_network < 1
    assert port_kinds.DEFAULT in port_kinds.made_kinds() == ("shm", "udp")


def names_of_kinds(text: str) -> list[str]:
    """Lines with a text that is the name of a kind, alone or before a place or device."""
    lines = text.splitlines()
    constants = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return sorted(lines[node.lineno - 1] for node in constants
            if node.value in kinds() or node.value.startswith(tuple(name + mark for name in kinds() for mark in "@:")))


def test_no_other_file_names_a_kind():
    bad = ['port == "shm"', 'port in ("udp",)', '{"kind": "dpdk"}', 'f"dpdk@{number}"', 'port.startswith("dpdk:")']
    assert names_of_kinds("\n".join(bad)) == sorted(bad)
    for path in ROOT.glob("**/*.py"):
        if path.parent.name != "port_kinds":
            other = OTHERS.get(str(path.relative_to(ROOT)))
            assert [line for line in names_of_kinds(path.read_text()) if other is None or other not in line] == [], path


@pytest.mark.parametrize("setting", ["", "serial", "memif:/tmp/x", "shm@1", "udp:lo", "dpdkx:net_null0", "SHM"])
def test_what_is_no_kind_is_no_setting(setting):
    with pytest.raises(ValueError, match="^expected shm, udp or dpdk:DEVICE$"):
        setting_kind(setting)


def test_settings_and_requests_find_their_kind():
    assert [setting_kind(text).name for text in ("shm", "udp", "dpdk", "dpdk:memif:/x", "dpdk@{rank}:net_null0")] \
        == ["shm", "udp", "dpdk", "dpdk", "dpdk"]
    dpdk = kinds()["dpdk"]
    assert dpdk.request("dpdk:memif:/x", 3) == "dpdk@3" and dpdk.request("dpdk@0:memif:/x", 3) == "dpdk@0"
    assert requested_kind("dpdk@x") == (dpdk, "x") and requested_kind("dpdk") == (dpdk, "")
    with pytest.raises(ValueError, match="expected dpdk:DEVICE or dpdk@PORT:DEVICE"):
        dpdk.check("dpdk")


@pytest.mark.parametrize("request_", ["carrier pigeon", "shm@1", "dpdk:memif:/x", ""])
def test_what_is_no_kind_is_no_request(request_):
    with pytest.raises(ValueError, match=f"^unknown kind of port '{request_}'; expected 'shm' or 'udp'$"):
        requested_kind(request_)


def test_offers_of_no_kind_or_for_others_are_refused():
    with pytest.raises(ValueError, match="unknown kind 'pigeon'; expected 'shm', 'udp' or 'dpdk'"):
        offered_kind({"kind": "pigeon"})
    end = port_kinds.End(None, None, 1000, 32)
    with pytest.raises(ValueError, match="this switch process has no devices of DPDK: start ina-dpdk-switch"):
        kinds()["dpdk"].open_switch(end)
    with pytest.raises(ValueError, match="the worker's own device of DPDK, but this worker has none"):
        offered_kind({"kind": "dpdk"}).open_offered({"kind": "dpdk"}, [], end)


def test_a_worker_refuses_an_attachment_with_a_port_of_no_kind():
    name = f"ina-test-{uuid.uuid4()}"
    address = ["02:00:00:00:00:01", "10.0.0.1", 1]
    reply = {"ok": True, "worker": 0, "workers": 1, "number": 0, "incarnation": 1, "life": 1, "slots": 16, "values": 32,
             "protocol": "switchml", "address": address, "switch": address, "outlives": False, "check": "sum", "key": "",
             "moves": False}
    with listen(name) as listener:
        for kind, tags, wrong in (("udp", "", ""), ("pigeon", "", "unknown kind 'pigeon'"), ("udp", "on", "frames without tags")):
            client = Client(name)
            far, _ = listener.accept()
            with far:
                far.sendall(json.dumps(reply | {"port": {"kind": kind}}).encode() + b"\n")
                if wrong:
                    with pytest.raises(ControlError, match=f"no attachment: .*{wrong}"):
                        client.attach("job", 0, tags=tags)
                else:
                    assert client.attach("job", 0).port == {"kind": kind}
            client.close()
