"""ATP's wire layout: the same in the P4 program, the host's code, scapy and Wireshark."""

import struct
import subprocess

import pytest
from c_program import INCLUDES
from capabilities import need, tool

from ina.aggregation.wire import c_header, dissector_atp, kinds, layout
from ina.aggregation.wire.layout import ATP_DATA, ATP_HEAD, load_atp

pytestmark = pytest.mark.build
WIRE = load_atp(32)
HEAD = {"msg_type": 5, "resend": 1, "collision": 0, "ecn": 1, "overflow": 0, "exponent": -77, "index": 0xABCD,
        "life": 0x1234, "job": 200, "sequence": 2**40 - 2, "bitmap": 0x80000005}


def over_udp(body: bytes) -> bytes:
    """Ethernet, IPv4 and UDP before `body`, with the right lengths."""
    return WIRE.pack(
        ethernet={"ethertype": 0x0800},
        ipv4={"version": 4, "ihl": 5, "total_len": 28 + len(body), "ttl": 64, "protocol": 17},
        udp={"src_port": 4000, "dst_port": 0xBEF0, "length": 8 + len(body)},
    ) + body


def test_places():
    assert (WIRE.size(ATP_HEAD), WIRE.size(ATP_DATA)) == (70, 198)
    assert WIRE["atp"].unpack(WIRE.pack(atp=HEAD)) == HEAD
    assert {kind.name: kind.number for kind in kinds.atp()} == {
        "data": 1, "floats": 2, "result": 3, "float_result": 4, "pending": 5, "maxima": 6, "refused": 7,
        "offer": 8, "answer": 9, "to": 10, "to_result": 11}


# what host/protocol/atp_frame.h says -> what the P4 program says
SAME = {
    "offsetof(struct ina_atp_wire, type_flags)": "P4_ATP_OFFSET", "INA_ATP_PAYLOAD": "P4_PAYLOAD_OFFSET",
    "offsetof(struct ina_atp_wire, exponent)": "P4_ATP_OFFSET + offsetof(struct p4_atp, exponent)",
    "offsetof(struct ina_atp_wire, index)": "P4_ATP_OFFSET + offsetof(struct p4_atp, index)",
    "offsetof(struct ina_atp_wire, identity)": "P4_ATP_OFFSET + offsetof(struct p4_atp, life)",
    "offsetof(struct ina_atp_wire, identity) + 2": "P4_ATP_OFFSET + offsetof(struct p4_atp, job)",
    "offsetof(struct ina_atp_wire, identity) + 3": "P4_ATP_OFFSET + offsetof(struct p4_atp, sequence)",
    "offsetof(struct ina_atp_wire, bitmap)": "P4_ATP_OFFSET + offsetof(struct p4_atp, bitmap)",
    "INA_ATP_SEQUENCE_BITS": "8 * sizeof(((struct p4_atp *)0)->sequence)",
    "INA_ATP_RESEND": "P4_ATP_RESEND_MASK", "INA_ATP_COLLISION": "P4_ATP_COLLISION_MASK", "INA_ATP_ECN": "P4_ATP_ECN_MASK",
    "INA_ATP_OVERFLOW": "P4_ATP_OVERFLOW_MASK", "sizeof(struct ina_atp_pending)": "P4_PENDING_LENGTH",
    "INA_ATP_PAYLOAD - INA_INTERNET_IP": "P4_IPV4_LENGTH", "INA_ATP_PAYLOAD - INA_INTERNET_UDP": "P4_UDP_LENGTH",
    **{f"INA_ATP_{kind.name.upper()}": str(kind.number) for kind in kinds.atp()},
}


def test_the_host_s_header_is_that_of_the_program(tmp_path):
    need("cc")
    (tmp_path / "layout.h").write_text(c_header.generate(WIRE, "p4/include/atp/headers.p4", "p4", ATP_HEAD))
    lines = ["#include <stddef.h>", '#include "atp_frame.h"', '#include "layout.h"']
    lines += [f'static_assert((int)({host}) == (int)({ours}), "{host}");' for host, ours in SAME.items()]
    (tmp_path / "check.c").write_text("\n".join([*lines, ""]))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *INCLUDES, f"-I{tmp_path}"]
    command = ["cc", *flags, tmp_path / "check.c"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_worker_s_frame_is_as_the_program_reads_it():
    import numpy as np

    from ina.aggregation.worker import Worker, WorkerConfig
    from ina.aggregation.worker.config import ATP_SWITCH

    assert ATP_SWITCH.port == WIRE.constants["ATP_PORT"]
    worker = Worker(WorkerConfig(3, 5, job=9, life=0x1234, values=32, protocol="atp", switch=ATP_SWITCH,
                                 first_packet=2**40 + 5))
    worker.submit(np.arange(20, dtype=np.int32))
    (frame,) = worker.frames_to_send(0)
    head = WIRE.unpack(frame, ATP_DATA)
    assert {k: head["atp"][k] for k in ("msg_type", "resend", "exponent", "life", "job", "sequence", "bitmap")} == {
        "msg_type": 1, "resend": 0, "exponent": -96, "life": 0x1234, "job": 9, "sequence": 5, "bitmap": 8}
    assert head["values"]["v"][3:23] == tuple(range(20))
    assert (head["ipv4"]["total_len"], head["udp"]["length"]) == (56 + 128, 36 + 128)


@pytest.mark.parametrize("kind, payload", [(1, 32), (3, 2048), (1, 0), (5, 1)])
def test_scapy_reads_and_builds(kind, payload):
    need("scapy")
    from scapy.layers.l2 import Ether

    from ina.aggregation.wire.scapy_atp import ATP, ATPCheck, ATPValues

    numbers = [(i * 0x01234567) % 2**32 for i in range(payload)]
    values = b"".join(n.to_bytes(4, "big") for n in numbers)
    head = {"atp": HEAD | {"msg_type": kind}, "check": {"version": 2, "check0": 7}}
    head["check"]["headers"] = layout.checksum(WIRE.pack(**head))
    body = WIRE.pack(**head) + values
    packet = Ether(over_udp(body))
    assert {k: getattr(packet[ATP], k) for k in HEAD} == HEAD | {"msg_type": kind}
    assert bytes(packet[ATP]) == body
    if kind == 5 or not payload:
        assert ATPValues not in packet
    else:
        assert packet[ATPValues].v == numbers
        assert bytes(ATP(**HEAD | {"msg_type": kind}) / ATPCheck(check0=7) / ATPValues(v=numbers)) == body


def test_wireshark_reads_it(tmp_path):
    need("tshark")
    script, capture = tmp_path / "atp.lua", tmp_path / "run.pcap"
    script.write_text(dissector_atp.generate(load_atp(), kinds.atp(), "p4/include/atp/headers.p4"))
    frames = [over_udp(WIRE.pack(atp=HEAD, check={}) + bytes([0, 0, 0, 6])),
              over_udp(WIRE.pack(atp=HEAD | {"msg_type": 1}, check={}, values={"v": [2**32 - 1 - i for i in range(32)]})),
              over_udp(WIRE.pack(atp=HEAD)[:10])]
    records = [struct.pack("<IIII", i, 0, len(f), len(f)) + f for i, f in enumerate(frames)]
    capture.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    names = [*HEAD, "seen", "v"]
    command = [tool("INA_TSHARK", "tshark"), "-X", f"lua_script:{script}", "-r", str(capture), "-T", "fields"]
    command += [part for name in names for part in ("-e", f"inatp.{name}")]
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and "lua" not in done.stderr.lower(), done.stderr
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in done.stdout.rstrip("\n").split("\n")]
    fields = {k: str(v) for k, v in HEAD.items()} | {"bitmap": "0x80000005"}
    assert rows[0] == fields | {"seen": "0x00000006", "v": ""}
    assert rows[1] == fields | {"msg_type": "1", "seen": "", "v": ",".join(str(-1 - i) for i in range(32))}
    assert set(rows[2].values()) == {""}
