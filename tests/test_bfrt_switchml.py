"""The published SwitchML, all of it but the Tofino.

Its program on the embedded switch, its own controller's modules, unmodified, over Intel's client and our BFRuntime server, and
then packets of its workers that are added up.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime", "bfrt-client", "tna-programs")
if not os.environ.get("INA_P4APP_SWITCHML"):
    pytest.skip("INA_P4APP_SWITCHML does not name a checkout of p4app-switchML", allow_module_level=True)

import bfrt_client  # noqa: E402

from ina.bfrt.device import Device  # noqa: E402
from ina.bfrt.service import Server  # noqa: E402
from ina.compiler.build import compile_program  # noqa: E402
from ina.rpc.connections import Access  # noqa: E402
from ina.switch import Switch  # noqa: E402

PLAIN = Access(insecure=True)  # all that the published client knows
FOLDER = Path(os.environ["INA_P4APP_SWITCHML"], "dev_root")
# As switchml.py of the published controller sets a switch up, without its console and its gRPC server for workers.
SETUP = """
import sys
sys.path.insert(0, sys.argv[2])
import bfrt_grpc.client as gc
from arp_icmp_responder import ARPandICMPResponder
from bitmap_checker import BitmapChecker
from drop_simulator import DropSimulator
from exponents import Exponents
from forwarder import Forwarder
from next_step_selector import NextStepSelector
from ports import Ports
from pre import PRE
from processor import Processor
from rdma_receiver import RDMAReceiver
from rdma_sender import RDMASender
from udp_receiver import UDPReceiver
from udp_sender import UDPSender
from workers_counter import WorkersCounter

ALL, SESSION = 0x8000, 0
interface = gc.ClientInterface(sys.argv[1], client_id=0, device_id=0)
interface.bind_pipeline_config("SwitchML")
at = (gc.Target(0, pipe_id=0xFFFF), gc, interface.bfrt_info_get("SwitchML"))
ports, pre, forwarder = Ports(*at), PRE(*at), Forwarder(*at, ALL)
addressed = [c(*at) for c in (ARPandICMPResponder, RDMAReceiver, UDPReceiver, RDMASender, UDPSender)]
others = [c(*at) for c in (DropSimulator, BitmapChecker, WorkersCounter, Exponents)]
others += [Processor(*at, i) for i in range(32)] + [NextStepSelector(*at, False)]
pre.add_multicast_group(ALL)
workers = [(0, 0, "0C:42:A1:00:00:01", "10.0.0.1"), (1, 4, "0C:42:A1:00:00:02", "10.0.0.2")]
assert ports.add_ports([(1, 0, 100, "none", "disable"), (2, 0, 100, "rs", "default")]) == (True, None)
assert pre.add_multicast_nodes(ALL, [(ALL + port, port) for _, port, *_ in workers])[0]
forwarder.add_entries([(port, mac) for _, port, mac, _ in workers])
for control in addressed:
    control.set_switch_mac_and_ip("00:11:22:33:44:55", "10.0.0.254")
pre.add_multicast_group(SESSION)
_, _, receiver, _, sender = addressed
for number, port, mac, ip in workers:
    assert receiver.add_udp_worker(number, mac, ip, 0xBEE0, 0xFFF0, len(workers), SESSION) == (True, None)
    sender.add_udp_worker(number, mac, ip)
    assert pre.add_multicast_node(SESSION, number, port)[0]
found, said = ports.get_stats()
assert found and {p["$DEV_PORT"]: p["$FEC"] for p in said} == {0: "NONE", 4: "RS"}, said
assert sorted(port for _, port in forwarder.get_entries()) == [0, 4]
print("set up")
"""


def frame(worker: int, values: list[int], slot: int = 3) -> bytes:
    """A packet of a published UDP worker: 64 values, size code 1, tensor index 7, exponents 5 and 6."""
    payload = bytes([0x11, 0]) + struct.pack(">IH2b64i", 7, slot, 5, 6, *values)
    udp = struct.pack(">HHHH", 4000, 0xBEE0, 8 + len(payload), 0) + payload
    ends = bytes([10, 0, 0, worker + 1]), bytes([10, 0, 0, 254])
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, *ends)
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    return bytes.fromhex("001122334455") + bytes.fromhex(f"0c42a100000{worker + 1}") + b"\x08\x00" + ip + udp


def test_the_published_controller_sets_the_published_program_up(tmp_path):
    published = bfrt_client.package(tmp_path)
    program = compile_program(FOLDER / "p4/switchml.p4", cflags=["-O1"])
    with Switch(program.so_path) as switch, Server(Device(switch, "SwitchML"), access=PLAIN) as server:
        for port in (0, 4):
            switch.add_port(port)
        assert bfrt_client.run(SETUP, published, server.address, str(FOLDER / "controller")).endswith("set up\n")
        assert switch.step(frame(0, list(range(64))), port=0) == []
        replies = dict(switch.step(frame(1, [1000] * 64), port=4))
        assert sorted(replies) == [0, 4]  # the result, to both
        for port, reply in replies.items():
            assert reply[:6].hex() == f"0c42a100000{1 + port // 4}" and reply[6:12].hex() == "001122334455"
            assert struct.unpack(">64i", reply[52 : 52 + 256]) == tuple(1000 + i for i in range(64))
        again = switch.step(frame(0, list(range(64))), port=0)  # a retransmission: the result, to him alone
        assert [port for port, _ in again] == [0] and again[0][1][52:] == replies[0][52:]
