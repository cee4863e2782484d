"""The wire layout: derived from the P4 headers, and the same in C, numpy, scapy, Wireshark and the host's own code."""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_program import INCLUDES
from capabilities import need, tool
from hypothesis import given
from hypothesis import strategies as st

from ina.aggregation import protocols
from ina.aggregation.wire import c_header, dissector, kinds, layout
from ina.aggregation.wire.layout import DATA, HEAD, PENDING, LayoutError, load
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base import manifest
from ina.cli import wire as cli
from ina.codecs.lanes import Packing

WIRE = load(32)
SOURCE = "p4/include/switchml/headers.p4"


def values_of(header: layout.Header) -> st.SearchStrategy[dict]:
    def field_values(field):
        low = -(1 << field.width - 1) if field.signed else 0
        one = st.integers(low, low + (1 << field.width) - 1)
        return one if field.count == 1 else st.lists(one, min_size=field.count, max_size=field.count).map(tuple)

    return st.fixed_dictionaries({field.name: field_values(field) for field in header.fields})


FRAMES = st.fixed_dictionaries({name: values_of(WIRE[name]) for name in DATA})


# ---- layout


@pytest.mark.fast
def test_places_are_those_of_the_standards():
    """Byte and bit of fields as RFC 791, RFC 768 and SwitchML's published header have them."""
    expected = {
        ("ethernet", "ethertype"): (12, 0, 16), ("ipv4", "ihl"): (14, 4, 4), ("ipv4", "total_len"): (16, 0, 16),
        ("ipv4", "frag_offset"): (20, 3, 13), ("ipv4", "protocol"): (23, 0, 8), ("ipv4", "dst_addr"): (30, 0, 32),
        ("udp", "dst_port"): (36, 0, 16), ("udp", "checksum"): (40, 0, 16), ("switchml", "msg_type"): (42, 0, 4),
        ("switchml", "size"): (42, 5, 3), ("switchml", "job"): (43, 0, 8), ("switchml", "tsi"): (44, 0, 32),
        ("switchml", "set"): (48, 0, 1), ("switchml", "slot"): (48, 2, 14), ("exponents", "e0"): (50, 0, 8),
        ("exponents", "e1"): (51, 0, 8), ("check", "version"): (52, 0, 8), ("check", "headers"): (54, 0, 16),
        ("values", "v"): (64, 0, 32),
    }
    for (name, field_name), (byte, bit, width) in expected.items():
        field = WIRE[name][field_name]
        assert (8 * WIRE.offset(name) + field.offset, field.width) == (8 * byte + bit, width), field_name
    assert WIRE.offset("pending", PENDING) == 64
    assert [WIRE.size(frame) for frame in (DATA, HEAD, PENDING)] == [192, 64, 68]
    assert list(WIRE.headers) == [*HEAD, "pending", "values"]


@pytest.mark.fast
@pytest.mark.parametrize("values", layout.size_codes().values())
def test_payload_is_one_array(values):
    (field,) = load(values)["values"].fields
    assert (field.name, field.width, field.count, load(values)["values"].size) == ("v", 32, values, 4 * values)


@pytest.mark.fast
@given(FRAMES)
def test_pack_and_unpack_are_inverse(headers):
    frame = WIRE.pack(**headers)
    assert len(frame) == WIRE.size(DATA)
    assert WIRE.unpack(frame) == headers
    assert WIRE.unpack(frame + b"tail") == headers


@pytest.mark.fast
def test_wrong_values_say_which_field():
    for call, text in (
        (lambda: WIRE["switchml"].pack({"slot": 2**14}), r"switchml.slot = 16384: expected 0..16383"),
        (lambda: WIRE["exponents"].pack({"e0": 128}), r"exponents.e0 = 128: expected -128..127"),
        (lambda: WIRE["udp"].pack({"sport": 1}), r"header udp has no field 'sport'; it has: src_port"),
        (lambda: WIRE["values"].pack({"v": [1]}), r"values.v: 1 value, 32 expected"),
        (lambda: WIRE["ipv4"].unpack(bytes(30), 14), r"header ipv4 at byte 14: 20 bytes expected, 16 are there"),
        (lambda: WIRE.pack(ip={}), r"there is no header 'ip'; there are: ethernet, ipv4"),
    ):
        with pytest.raises(LayoutError, match=text):
            call()
    for call in (lambda: WIRE["ip"], lambda: WIRE["udp"]["sport"]):
        with pytest.raises(KeyError, match="there are: ethernet|it has: src_port"):
            call()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("header a_t { bit<3> a; } struct headers_t { a_t a; }", "a_t has 3 bits: expected whole bytes"),
        ("header a_t { varbit<16> a; } struct headers_t { a_t a; }", "only bit<n> and int<n> have a fixed place"),
        ("struct headers_t { bit<8> a; }", r"headers_t.a is bit<8>, not a header"),
        ("header a_t { bit<8> a; }", "there is no struct headers_t"),
    ],
)
def test_programs_without_a_fixed_layout(tmp_path, text, problem):
    path = tmp_path / "headers.p4"
    path.write_text(text)
    with pytest.raises(LayoutError, match=problem):
        load(32, path)


@pytest.mark.fast
def test_only_numbered_fields_are_an_array(tmp_path):
    path = tmp_path / "headers.p4"
    path.write_text("header a_t { bit<8> x_0; bit<8> x_1; bit<16> x_2; }\nheader b_t { int<16> y_0; int<16> y_1; }\n"
                    "struct headers_t { a_t a; b_t b; }")
    wire = load(32, path)
    assert [f.name for f in wire["a"].fields] == ["x_0", "x_1", "x_2"]
    assert wire["b"].unpack(b"\xff\xfe\x00\x01") == {"y": (-2, 1)}


# ---- the host's own code


def compile_c(tmp_path, text: str, *flags: str):
    need("cc")
    (tmp_path / "layout.h").write_text(c_header.generate(WIRE, SOURCE, prefix="p4"))
    (tmp_path / "check.c").write_text(text)
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Werror", *INCLUDES, f"-I{tmp_path}"]
    done = subprocess.run([*command, tmp_path / "check.c", "-o", tmp_path / "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tmp_path / "check"


# member of host/protocol/wire.h's frame, the first of which are host/net/internet.h's -> header and unit of the P4 program
HOST_MEMBERS = {
    "net.dst_mac": "ethernet dst_addr", "net.src_mac": "ethernet src_addr", "net.ethertype": "ethernet ethertype",
    "net.version_ihl": "ipv4 version_ihl", "net.tos": "ipv4 tos", "net.total_len": "ipv4 total_len",
    "net.identification": "ipv4 identification", "net.flags_fragment": "ipv4 flags_frag_offset",
    "net.ttl": "ipv4 ttl", "net.protocol": "ipv4 protocol", "net.ip_checksum": "ipv4 hdr_checksum",
    "net.src_ip": "ipv4 src_addr", "net.dst_ip": "ipv4 dst_addr", "net.src_port": "udp src_port",
    "net.dst_port": "udp dst_port", "net.udp_len": "udp length", "net.udp_checksum": "udp checksum",
    "type_overflow_size": "switchml msg_type_overflow_size", "job": "switchml job", "tsi": "switchml tsi",
    "set_slot": "switchml set_checked_slot", "e0": "exponents e0", "e1": "exponents e1",
    "check.version": "check version", "check.flags": "check flags", "check.headers": "check headers",
    "check.check0": "check check0", "check.check1": "check check1",
}
HOST_CONSTANTS = {
    "INA_INTERNET_ETHERTYPE_IPV4": "P4_ETHERTYPE_IPV4", "INA_INTERNET_PROTOCOL_UDP": "P4_IPPROTO_UDP",
    "INA_WIRE_DATA": "P4_SWITCHML_DATA", "INA_WIRE_PENDING": "P4_SWITCHML_PENDING",
    "INA_WIRE_MAXIMUM": "P4_SWITCHML_MAXIMUM",
    "INA_WIRE_SIZE_NONE": "P4_SIZE_NONE", "INA_WIRE_OVERFLOW": "P4_SWITCHML_OVERFLOW_MASK",
    "INA_WIRE_SIZE": "P4_SWITCHML_SIZE_MASK", "INA_WIRE_SET": "P4_SWITCHML_SET_MASK",
    "INA_WIRE_CHECKED": "P4_SWITCHML_CHECKED_MASK", "INA_WIRE_REFUSED": "P4_SWITCHML_REFUSED",
    "INA_WIRE_VERSION": "P4_WIRE_VERSION", "INA_WIRE_SLOT": "P4_SWITCHML_SLOT_MASK",
    "INA_INTERNET_IP": "P4_IPV4_OFFSET", "INA_INTERNET_UDP": "P4_UDP_OFFSET", "INA_INTERNET_SIZE": "P4_SWITCHML_OFFSET",
    "INA_WIRE_PAYLOAD": "P4_PAYLOAD_OFFSET", "sizeof(struct ina_wire_pending)": "sizeof(struct p4_pending)",
    "INA_WIRE_PAYLOAD - INA_INTERNET_IP": "P4_IPV4_LENGTH + P4_CHECK_LENGTH",
    "INA_WIRE_PAYLOAD - INA_INTERNET_UDP": "P4_UDP_LENGTH + P4_CHECK_LENGTH",
}


@pytest.mark.build
def test_the_host_s_header_is_that_of_the_program(tmp_path):
    lines = ["#include <stddef.h>", '#include "wire.h"', '#include "layout.h"', "#define F struct ina_wire_frame"]
    for member, place in HOST_MEMBERS.items():
        header, unit = place.split()
        there = f"P4_{header.upper()}_OFFSET + offsetof(struct p4_{header}, {unit})"
        size = f"sizeof(((struct p4_{header} *)0)->{unit})"
        lines.append(f'static_assert(offsetof(F, {member}) == {there}, "{member} is elsewhere");')
        lines.append(f'static_assert(sizeof(((F *)0)->{member}) == {size}, "{member} has another size");')
    lines += [f'static_assert((int)({host}) == (int)({ours}), "{host}");' for host, ours in HOST_CONSTANTS.items()]
    lines += ['static_assert(INA_INTERNET_FRAGMENT == (P4_IPV4_FRAG_OFFSET_MASK | 1 << P4_IPV4_FLAGS_SHIFT), "fragment");',
              'static_assert(INA_INTERNET_OFFSET == (int)P4_IPV4_FRAG_OFFSET_MASK, "offset");',
              "#include <stdio.h>", "int main(void)", "{",
              "    for (unsigned k = 1; k <= 4096; k++)",
              '        if (ina_wire_size_code(k) >= 0) printf("%d %u\\n", ina_wire_size_code(k), k);', "}"]
    out = subprocess.run([compile_c(tmp_path, "\n".join(lines))], capture_output=True, text=True, check=True).stdout
    assert {int(code): int(values) for code, values in map(str.split, out.splitlines())} == layout.size_codes()


@pytest.mark.fast
def test_every_member_of_the_host_s_frame_is_compared():
    def members(file: str, struct: str) -> list[str]:
        text = (layout.p4_dir().parent / "host" / file).read_text()
        body = text[text.index(f"struct {struct} {{") : text.index("} __attribute__")]
        return [name.strip(" []6") for line in body.splitlines()[1:] if (code := line.partition("/*")[0].strip(" ;"))
                for name in code.removeprefix("struct ").partition(" ")[2].split(",")]

    front = [f"net.{name}" for name in members("net/internet.h", "ina_internet")]
    own = members("protocol/wire.h", "ina_wire_frame")[1:]
    at = own.index("ina_check_header check") if "ina_check_header check" in own else own.index("check")
    own[at : at + 1] = [f"check.{name}" for name in members("protocol/check.h", "ina_check_header")]
    assert [*front, *own] == [*HOST_MEMBERS, "payload"]


PLACES = re.compile(r"(?<![\w.])(34|42|52|58|0x0800|0x45)(?![\w.])|->data\s*[+\[]\s*\d")


@pytest.mark.fast
def test_only_one_header_has_numbers_of_the_headers_in_front():
    """Ends of headers, IPv4's marks and numbered bytes of a frame: other C files use names. Those of Tofino's architecture have
    numbers of their own."""
    def lines(path: Path) -> list[str]:
        code = re.sub(r'/\*.*?\*/|"[^"]*"', lambda match: re.sub(r"[^\n]", " ", match.group()), path.read_text(), flags=re.DOTALL)
        return [f"{path.name}:{n}: {line.strip()}" for n, line in enumerate(code.splitlines(), 1) if PLACES.search(line)]

    files = [*manifest.files("native"), *manifest.files("dpdk"), *manifest.files("dpdk headers")]
    assert len(lines(next(path for path in files if path.name == "internet.h"))) >= 3, "the pattern finds what it is for"
    assert [line for path in files if path.name != "internet.h" and not path.name.startswith("tna") for line in lines(path)] == []


@pytest.mark.fast
def test_transport_s_constants_are_those_of_the_program():
    from ina.aggregation import worker as transport
    from ina.aggregation.worker import config

    assert config.HEADERS == WIRE.size(HEAD)
    port, mask = WIRE.constants["SWITCHML_PORT"], WIRE.constants["SWITCHML_MASK"]
    assert transport.SWITCH.port & mask == port
    slots = 1 << WIRE["switchml"]["slot"].width
    assert config.MAX_SLOTS <= slots


@pytest.mark.build
def test_generated_c_reads_a_frame(tmp_path):
    text = """
#include <arpa/inet.h>
#include <stdio.h>
#include "layout.h"
int main(void)
{
    unsigned char frame[P4_PAYLOAD_OFFSET + sizeof(struct p4_values)];
    if (fread(frame, sizeof frame, 1, stdin) != 1)
        return 1;
    const struct p4_switchml *h = (const void *)(frame + P4_SWITCHML_OFFSET);
    const struct p4_exponents *e = (const void *)(frame + P4_EXPONENTS_OFFSET);
    const struct p4_values *v = (const void *)(frame + P4_PAYLOAD_OFFSET);
    const unsigned place = ntohs(h->set_checked_slot);
    printf("%d %u %d %d %d %u", h->msg_type_overflow_size >> P4_SWITCHML_MSG_TYPE_SHIFT, ntohl(h->tsi),
           (place & P4_SWITCHML_SET_MASK) >> P4_SWITCHML_SET_SHIFT, place & P4_SWITCHML_SLOT_MASK, e->e0,
           ntohl(v->v[31]));
}
"""
    program = compile_c(tmp_path, text)
    frame = WIRE.pack(
        ethernet={}, ipv4={}, udp={}, switchml={"msg_type": 9, "tsi": 0xFEDCBA98, "set": 1, "slot": 0x1234},
        exponents={"e0": -77}, check={}, values={"v": range(1, 33)},
    )
    out = subprocess.run([program], input=frame, capture_output=True, check=True).stdout
    assert out.split() == b"9 4275878552 1 4660 -77 32".split()


# ---- scapy


@pytest.mark.fast
def test_scapy_s_own_layers_agree_with_the_program():
    """Ethernet, IPv4 and UDP as scapy builds them are what the layout packs."""
    need("scapy")
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    mine = WIRE.pack(
        ethernet={"dst_addr": 0x020000000001, "src_addr": 0x040506070809, "ethertype": 0x0800},
        ipv4={"version": 4, "ihl": 5, "tos": 3, "total_len": 28, "identification": 77, "flags": 2, "frag_offset": 5,
              "ttl": 9, "protocol": 17, "hdr_checksum": 0xABCD, "src_addr": 0x0A000001, "dst_addr": 0x0A00FFFE},
        udp={"src_port": 4000, "dst_port": 0xBEE0, "length": 8, "checksum": 0x1111},
    )
    theirs = (
        Ether(dst="02:00:00:00:00:01", src="04:05:06:07:08:09")
        / IP(tos=3, id=77, flags="DF", frag=5, ttl=9, chksum=0xABCD, src="10.0.0.1", dst="10.0.255.254", len=28, proto=17)
        / UDP(sport=4000, dport=0xBEE0, len=8, chksum=0x1111)
    )
    assert bytes(theirs) == mine


def over_udp(wire: layout.Layout, body: bytes) -> bytes:
    """Ethernet, IPv4 and UDP before `body`, with the right lengths."""
    return wire.pack(
        ethernet={"ethertype": 0x0800},
        ipv4={"version": 4, "ihl": 5, "total_len": 28 + len(body), "ttl": 64, "protocol": 17},
        udp={"src_port": 4000, "dst_port": 0xBEEF, "length": 8 + len(body)},
    ) + body


@pytest.mark.fast
def test_scapy_layers_read_and_build_each_kind_of_frame():
    need("scapy")
    from scapy.layers.l2 import Ether

    from ina.aggregation.wire.scapy_layers import Check, Exponents, Pending, SwitchML, Values

    for values in layout.size_codes().values():
        wire = load(values)
        sml = {"msg_type": 1, "overflow": 1, "size": wire.constants["SIZE_CODE"], "job": 200, "tsi": 2**32 - 2,
               "set": 1, "checked": 1, "slot": 16383}
        check = {"version": 2, "check0": 2**32 - 5, "check1": 6}
        head = wire.pack(switchml=sml, exponents={"e0": -96, "e1": 127}, check=check)
        numbers = tuple((i * 0x01234567) % 2**32 for i in range(values))
        body = wire.pack(switchml=sml, exponents={"e0": -96, "e1": 127},
                         check={**check, "headers": layout.checksum(head)}, values={"v": numbers})
        packet = Ether(over_udp(wire, body))
        assert {k: getattr(packet[SwitchML], k) for k in sml} == sml
        assert (packet[Exponents].e0, packet[Exponents].e1) == (-96, 127)
        assert tuple(packet[Values].v) == numbers
        built = SwitchML(**sml) / Exponents(e0=-96, e1=127) / Check(**check) / Values(v=list(numbers))
        assert bytes(built) == body
    pending = WIRE.pack(switchml={"msg_type": 2, "size": 7}, exponents={}, pending={"missing": 0x80000001})
    assert Ether(over_udp(WIRE, pending))[Pending].missing == 0x80000001
    assert bytes(SwitchML(msg_type=2, size=7, checked=0) / Exponents() / Pending(missing=0x80000001)) == pending
    bare = Ether(over_udp(WIRE, WIRE.pack(switchml={"msg_type": 1, "size": 7}, exponents={"e0": 5})))  # published
    assert bare[Exponents].e0 == 5 and Values not in bare and Pending not in bare


# ---- Wireshark


def pcap(path, frames: list[bytes]) -> None:
    records = [struct.pack("<IIII", i, 0, len(f), len(f)) + f for i, f in enumerate(frames)]
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))


def dissected(tmp_path, frames: list[bytes], names: list[str], **preferences: int) -> list[dict[str, str]]:
    """Returns what Wireshark shows of each frame."""
    need("tshark")
    script, capture = tmp_path / "switchml.lua", tmp_path / "run.pcap"
    script.write_text(dissector.generate(load(256), layout.size_codes(), kinds.switchml(), SOURCE))
    pcap(capture, frames)
    command = [tool("INA_TSHARK", "tshark"), "-X", f"lua_script:{script}", "-r", str(capture), "-T", "fields"]
    command += [part for name in names for part in ("-e", f"switchml.{name}")]
    command += [part for name, value in preferences.items() for part in ("-o", f"switchml.{name}:{value}")]
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert "lua" not in done.stderr.lower(), done.stderr
    return [dict(zip(names, line.split("\t"), strict=True)) for line in done.stdout.rstrip("\n").split("\n")]


@pytest.mark.build
def test_wireshark_reads_each_kind_of_frame(tmp_path):
    def frame(wire, message, exponents, **payload) -> bytes:
        return over_udp(wire, wire.pack(switchml=message, exponents=exponents, **payload))

    frames = [
        frame(WIRE, {"msg_type": 1, "overflow": 1, "size": 0, "job": 9, "tsi": 2**32 - 1, "set": 1, "slot": 8191},
              {"e0": -5, "e1": 3}, values={"v": [2**32 - 1 - i for i in range(32)]}),
        frame(WIRE, {"msg_type": 2, "size": 7, "job": 9, "tsi": 7, "slot": 7}, {"e0": 127},
              pending={"missing": 0x80000005}),
        frame(WIRE, {"msg_type": 1, "size": 7, "slot": 1}, {"e0": -128, "e1": -1}),
        frame(load(2048), {"msg_type": 1, "size": 5, "slot": 2}, {}, values={"v": range(2048)}),
    ]
    frames.append(frames[0][:46])  # cut off in its header: not taken for SwitchML
    rows = dissected(tmp_path, frames, ["msg_type", "overflow", "size", "job", "tsi", "set", "slot", "e0", "e1", "missing", "v"])
    assert len(rows) == 5
    assert rows[0] == {"msg_type": "1", "overflow": "1", "size": "0", "job": "9", "tsi": "4294967295", "set": "1",
                       "slot": "8191", "e0": "-5", "e1": "3", "missing": "",
                       "v": ",".join(str(-1 - i) for i in range(32))}
    assert (rows[1]["msg_type"], rows[1]["missing"], rows[1]["e0"], rows[1]["v"]) == ("2", "0x80000005", "127", "")
    assert (rows[2]["e0"], rows[2]["e1"], rows[2]["v"], rows[2]["missing"]) == ("-128", "-1", "", "")
    assert rows[3]["v"] == ",".join(map(str, range(2048)))
    assert set(rows[4].values()) == {""}


def words_of_frames(words) -> list[bytes]:
    filled = np.zeros(-(-len(words) // 32) * 32, np.int32)
    filled[: len(words)] = words
    return [over_udp(WIRE, WIRE.pack(switchml={"msg_type": 1}, exponents={}, values={"v": part.view(np.uint32).tolist()}))
            for part in filled.reshape(-1, 32)]


@pytest.mark.build
@pytest.mark.parametrize(("dtype", "workers", "wraps"), [
    ("int8", 2, True), ("int8", 8, False), ("uint8", 16, True), ("bool", 4, False),
])
def test_wireshark_shows_the_values_in_a_words_lanes(tmp_path, dtype, workers, wraps):
    """Those of a worker, and the sums of all; a highest lane that is narrower knows it modulo its width only."""
    packing = Packing.of(dtype, workers, wraps=wraps)
    rng, limits = np.random.default_rng(5), (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    own = rng.integers(*limits, (workers, 40))
    words = [packing.pack(each.astype(dtype)) for each in own]
    shown = []
    for index, (each, count) in enumerate(((words[0], 1), (np.sum(words, axis=0, dtype=np.int32), workers))):
        (tmp_path / str(index)).mkdir()
        rows = dissected(tmp_path / str(index), words_of_frames(each), ["v", "lane"], lane_bits=packing.bits, lanes=packing.lanes,
                         lane_bias=count * packing.bias)
        lanes = [int(lane) for row in rows for lane in row["lane"].split(",")]
        assert [len(row["v"].split(",")) for row in rows] == [32] * len(rows)
        shown.append(np.reshape(lanes, (-1, packing.lanes))[: len(each)].T.ravel()[:40])  # lane by lane, each of all words
    highest = 32 - packing.bits * (packing.lanes - 1)
    modulus = np.full(40, 1 << packing.bits)
    modulus[len(words[0]) * (packing.lanes - 1) :] = 1 << min(packing.bits, highest)
    assert shown[0].tolist() == own[0].tolist()
    assert ((shown[1] - own.sum(axis=0)) % modulus == 0).all()
    wide = modulus == 1 << packing.bits
    assert shown[1][wide].tolist() == own.sum(axis=0)[wide].tolist()


@pytest.mark.build
def test_wireshark_shows_no_lanes_unless_it_is_told_of_them(tmp_path):
    (row,) = dissected(tmp_path, words_of_frames(np.arange(32)), ["v", "lane"])
    assert row == {"v": ",".join(map(str, range(32))), "lane": ""}


# What a worker of each program sends of 64 words, 32 a packet, the last of them zeros, and what both tools show of it:
# message type, size code, and the first packet's payload.
SENT = {
    "switchml": (protocols.MAX, np.int32, "3", "0", {"v": list(range(32))}),
    "thc": (protocols.OWN, np.int32, "5", "0", {"index": [0x1234 + i for i in range(32)]}),
    "omnireduce": (protocols.OWN, np.int32, "1", "0", {"v": [0x1020304 + i for i in range(32)]}),
    "fpisa": (protocols.OWN, np.float32, "7", "0", {"float": [i / 4 for i in range(32)]}),
    "requantised": (protocols.OWN, np.int32, "9", "0", {"v": [0x1020304 + i for i in range(32)]}),
}


def sent(protocol: str) -> tuple[list[bytes], str, str, dict[str, list]]:
    reduction, dtype, kind, size, shown = SENT[protocol]
    (values,) = shown.values()
    words = np.zeros(64, dtype)
    words[:32] = [spread(each) for each in values] if protocol == "thc" else values
    worker = Worker(WorkerConfig(worker=0, workers=2, slots=8, values=32, life=1, protocol=protocol))
    worker.submit(words.view(np.int32), reduction=reduction)
    return worker.frames_to_send(0)[1:], kind, size, shown  # the first one opens the tensor


def spread(index: int) -> int:
    """Returns the word whose bytes are the four digits of 4 bits of ``index``."""
    return sum((index >> 4 * place & 15) << 8 * place for place in range(4))


@pytest.mark.build
def test_frames_of_indices_are_7_6_times_smaller():
    """1,024 values: four frames of float32, or one of THC's indices, headers included (docs/guide/codecs.md)."""
    worker = Worker(WorkerConfig(worker=0, workers=2, slots=8, values=256, life=1, protocol="thc"))
    worker.submit(np.ones(512, np.int32), reduction=protocols.OWN)
    _, *frames = worker.frames_to_send(0)  # the first one opens the tensor
    assert [len(frame) for frame in frames] == [576, 576]
    assert round(4 * protocols.frame_bytes("switchml", 256) / len(frames[0]), 1) == 7.6


@pytest.mark.build
@pytest.mark.parametrize("protocol", SENT)
def test_wireshark_and_scapy_read_the_frames_of_each_program(tmp_path, protocol):
    """The worker's own frames, as a capture has them. A packet of zeros is one to OmniReduce only."""
    need("scapy")
    from scapy.layers.l2 import Ether

    from ina.aggregation.wire.scapy_layers import Floats, Indices, SwitchML, Values

    frames, kind, size, shown = sent(protocol)
    ((name, values),) = shown.items()
    first, *_, last = dissected(tmp_path, frames, ["msg_type", "size", "v", "index", "float"])
    assert (first["msg_type"], first["size"]) == (kind, size)
    for field in ("v", "index", "float"):
        read = [float(each) if field == "float" else int(each, 0) for each in first[field].split(",") if each]
        assert read == (values if field == name else []), field
    packet = Ether(frames[0])
    assert str(packet[SwitchML].msg_type) == kind
    assert list(packet[{"v": Values, "index": Indices, "float": Floats}[name]].v) == values
    assert bytes(packet) == frames[0]
    zeros = ("6", "7") if protocol == "omnireduce" else (kind, size)
    assert (last["msg_type"], last["size"]) == zeros


@pytest.mark.build
def test_wireshark_and_scapy_read_rounded_sums(tmp_path):
    """Two bytes for each of 32 words, as they come down."""
    need("scapy")
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    from ina.aggregation.wire.scapy_layers import Bytes, Check, Exponents, SwitchML

    below = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.2") / UDP(dport=0xBEE0)
    rounded = Bytes(v=[0x100 * i + 255 - i for i in range(32)])
    frame = bytes(below / SwitchML(msg_type=10, size=0) / Exponents() / Check() / rounded)
    (row,) = dissected(tmp_path, [frame], ["msg_type", "v", "rounded"])
    sums = [each for i in range(32) for each in (i, 255 - i)]
    assert row == {"msg_type": "10", "v": "", "rounded": ",".join(map(str, sums))}
    assert list(bytes(Ether(frame)[Bytes])) == sums


# ---- command line


@pytest.mark.fast
@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("show", "switchml   slot                48   2        14"),
        ("c", "struct wire_switchml {"),
        ("lua", 'local switchml = Proto("switchml", "SwitchML in-network aggregation")'),
    ],
)
def test_commands(capsys, command, line):
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser.add_subparsers())
    args = parser.parse_args(["wire", command, "--values", "64"])
    assert args.main(args) == 0
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.fast
def test_unknown_size_says_which_there_are(capsys):
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser.add_subparsers())
    args = parser.parse_args(["wire", "show", "--values", "100"])
    assert args.main(args) == 2
    assert capsys.readouterr().err == "ina: --values 100: expected one of 32, 64, 128, 256, 1024, 2048\n"


@pytest.mark.build
def test_generated_c_stands_alone(tmp_path):
    need("cc")
    path = tmp_path / "layout.h"
    path.write_text(c_header.generate(load(256), SOURCE))
    command = [shutil.which("cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
