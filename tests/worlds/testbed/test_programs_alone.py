"""Networks whose switches run a program alone: its entries, P4Runtime clients, links that fail, and no jobs."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from real_networks import alone, ina

from ina.aggregation.controller.client import ControlError
from ina.p4.compiler.build import compile_program
from ina.p4.p4runtime.remote_switch import RemoteSwitch
from ina.p4.runtime import CounterEntry, TableEntry, Update
from ina.topology import TopologyError, load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture

ROUTER = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct meta_t { }
parser P(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets) seen;
    action drop() { mark_to_drop(standard); }
    action forward(bit<9> port) { standard.egress_spec = port; }
    table to { key = { hdr.ethernet.dst: exact; } actions = { forward; drop; } default_action = drop(); }
    apply { seen.count((bit<32>)standard.ingress_port); to.apply(); }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def forward(host: int, port: int) -> str:
    return f"add to hdr.ethernet.dst:0x{host:012x} forward(port:{port})\n"


def to(host: int) -> Update:
    return Update("INSERT", TableEntry("to", {"hdr.ethernet.dst": host}, "forward", {"port": host}))


@pytest.fixture
def router(tmp_path: Path) -> Path:
    path = tmp_path / "router.p4"
    path.write_text(ROUTER)
    return path


def reaches(network: Network, host: str, ip: str) -> bool:
    ping = ["ping", "-c", "2", "-i", "0.2", "-W", "2", ip]
    return subprocess.run(network.command(host, ping), stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["embedded", "process"])
def test_each_switch_has_its_own_entries(router, kind):
    leaf1 = forward(1, 1) + forward(2, 2) + "packet 1 00\nexpect 2 00\n"  # a test's packets are passed over
    entries = {"s1": [("one.stf", leaf1), ("more.stf", forward(3, 3))], "s2": [("two.stf", forward(3, 1) + forward(1, 3))],
               "s3": [("up.stf", forward(1, 1) + forward(3, 2))]}
    with Network(load("leaf-spine", leaves=2, spines=1, hosts=2), router, {}, kind=kind, entries=entries) as network:
        assert reaches(network, "h1", "10.0.0.2") and reaches(network, "h1", "10.0.0.3")
        assert not reaches(network, "h1", "10.0.0.4"), "no switch has an entry for it"
        seen = network.counters()["program"]["I.seen"]
        assert seen[1][0] >= 2 and sum(packets for packets, _ in seen) >= 3 * 4, "each switch counts"


def test_a_controller_drives_a_switch_that_keeps_its_links(router):
    with Network(load("star", hosts=2, delay=0.02), router, {}, entries={"s1": [("s1.stf", forward(1, 1))]}) as network:
        assert not reaches(network, "h1", "10.0.0.2")
        address = f"unix:{Path(network.socket).parent}/s1.p4runtime"
        with closing(RemoteSwitch(address, device_id=1)) as remote:
            remote.write([to(2)])
            assert reaches(network, "h1", "10.0.0.2")
            assert remote.read([CounterEntry("seen", 1)])[0].packets >= 2
            slower = ["at 0s slow h2-s1 delay 400ms"]
            with closing(network.client()) as client:
                client.change_links(slower)
            compiled = compile_program(router)
            remote.set_pipeline(compiled.p4info, ROUTER.encode())
            assert remote.read([TableEntry("")]) == [], "a new pipeline begins empty"
            remote.write([to(1), to(2)])
            ping = network.command("h1", ["ping", "-c", "1", "-W", "5", "10.0.0.2"])
            output = subprocess.run(ping, capture_output=True, text=True).stdout
            assert float(output.split("time=")[1].split()[0]) > 400, f"the link is as slow as before: {output}"


def test_jobs_are_refused_and_links_fail(router):
    entries = {"s1": [("s1.stf", forward(1, 1) + forward(2, 2))]}
    with Network(load("star", hosts=2), router, {}, entries=entries) as network, closing(network.client()) as client:
        with pytest.raises(ControlError, match="router.p4, a program alone: they serve no jobs") as error:
            client.admit("job", 1)
        assert error.value.code == "denied"
        client.change_links(["at 0s fail h2-s1"])
        assert not reaches(network, "h1", "10.0.0.2")
        client.change_links(["at 0s heal h2-s1"])
        assert reaches(network, "h1", "10.0.0.2")


@pytest.mark.parametrize(("entries", "message"), [
    ({"s1": [("a.stf", "\nadd too hdr.ethernet.dst:1 forward(port:1)")]},
     r"a.stf:2: table 'too' is unknown; .*\(for switch s1\)"),
    ({"s1": [("a.stf", "check_counter seen(1) packets == 0")]}, r"a.stf:1: the switch runs: its file has entries"),
    ({"s1": [("a.stf", "add to hdr.ethernet.dst:1 forward(port:512)")]}, r"a.stf:1: .*512"),
])
def test_entries_that_do_not_fit(router, entries, message):
    network = Network(load("star", hosts=2), router, {}, entries=entries)
    with pytest.raises(ControlError, match=message), network:
        pass


def test_entries_of_a_switch_that_is_not_there(router):
    with pytest.raises(TopologyError, match="entries for 's9': star has the switches s1"):
        Network(load("star", hosts=2), router, {}, entries={"s9": []})


@pytest.mark.gate
def test_the_command(router, tmp_path):
    (tmp_path / "all.stf").write_text(forward(1, 1))
    (tmp_path / "more.stf").write_text(forward(2, 2))
    done = ina("net", "up", "star", "--hosts", "2", "--program", str(router), "--entries", str(tmp_path / "all.stf"), "--entries",
               f"s1={tmp_path / 'more.stf'}", "--command", "pingall")
    assert "0% dropped (2/2 received)" in done.stderr and "P4Runtime: unix:" in done.stdout
