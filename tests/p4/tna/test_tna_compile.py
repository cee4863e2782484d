"""TNA programs, compiled: the path of a packet through one pipe, and its requests to the switch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tna_program import DROP, RESUBMIT, UNICAST, data, pipe, pipes, source

from ina.p4.compiler import frontend
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower.lower import lower
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.runtime.entities import TableEntry

pytestmark = pytest.mark.build
REST = b"payload of the packet"


def refused(directory: Path, *args: str, **kwargs: str) -> str:
    path = directory / "program.p4"
    path.write_text(source(*args, **kwargs))
    with pytest.raises(CompileError) as error:
        lower(frontend.load(path))
    return str(error.value)


# --- the path of a packet -----------------------------------------------------------------------------------------------


def test_a_packet_leaves_without_what_stood_in_front_of_it(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.a = hdr.data.a + 1; tm.qid = 5; tm.ingress_cos = 6;",
             egress="hdr.data.b = (bit<32>)intr.egress_port;")
    ingress = p.ingress(data(7, 8) + REST, port=300)
    assert ingress.verdict == UNICAST and ingress.frame == data(8, 8) + REST
    assert ingress.requests == {"ucast_egress_port": 1, "has_ucast": 1, "qid": 5, "ingress_cos": 6}
    egress = p.egress(ingress.frame, port=9)
    assert egress.verdict == UNICAST and egress.frame == data(8, 9) + REST and egress.requests == {}


def test_intrinsic_metadata_of_ingress(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.a = (bit<32>)intr.ingress_port; hdr.data.b = (bit<32>)prsr.global_tstamp;"
             "hdr.data.c = (bit<16>)intr.resubmit_flag;")
    assert p.ingress(data(), port=259, now=5_000_999).frame == data(259, 5000, 0)
    assert p.ingress(data(), port=259, resubmitted=True).frame == data(259, 0, 1)


def test_intrinsic_metadata_of_egress(tmp_path: Path) -> None:
    p = pipe(tmp_path, egress="""hdr.data.a = (bit<32>)intr.egress_rid; hdr.data.b = (bit<32>)intr.deq_timedelta;
        hdr.data.c = intr.pkt_length; hdr.data.d = (bit<8>)intr.egress_qid; hdr.data.e = (bit<8>)intr.egress_cos;""")
    assert p.egress(data() + REST, rid=77).frame == data(77, 14, len(data() + REST), 3, 2) + REST


def test_without_a_port_there_is_no_copy(tmp_path: Path) -> None:
    p = pipe(tmp_path, "invalidate(tm.ucast_egress_port); if (hdr.data.a == 1) tm.ucast_egress_port = 0;"
             "if (hdr.data.a == 2) tm.mcast_grp_b = 0; if (hdr.data.a == 3) tm.copy_to_cpu = 1;")
    assert p.ingress(data(0)).verdict == DROP
    assert p.ingress(data(1)).requests == {"has_ucast": 1}  # port 0 is a port
    assert p.ingress(data(2)).requests == {"has_mcast_b": 1, "ucast_egress_port": 1}
    assert p.ingress(data(3)).requests == {"copy_to_cpu": 1, "ucast_egress_port": 1}


def test_validity_can_be_asked_for(tmp_path: Path) -> None:
    p = pipe(tmp_path, """if (is_validated(tm.mcast_grp_a)) hdr.data.a = 1; tm.mcast_grp_a = 7;
        if (is_validated(tm.mcast_grp_a)) hdr.data.b = 1;""")
    assert p.ingress(data()).frame == data(0, 1)


@pytest.mark.parametrize("valid", [1, 0])
def test_the_mirror_type_of_ingress_is_valid_from_the_first(tmp_path: Path, valid: int) -> None:
    """Other than in egress: Intel's compiler sets it to 0 in the parser, as the hardware needs, unless it is told not to."""
    note = "" if valid else "@disable_reserved_i2e_drop_implementation "
    path = tmp_path / "program.p4"
    path.write_text(source(
        """if (is_validated(dprsr.mirror_type)) hdr.data.b = 1; if (hdr.data.a == 1) invalidate(dprsr.mirror_type);
        if (is_validated(dprsr.mirror_type)) hdr.data.c = 1; if (hdr.data.d == 1) dprsr.mirror_type = 0;
        if (is_validated(dprsr.mirror_type)) hdr.data.e = 1;""",
        types=note + "header mirror_h { bit<8> kind; }", deparser_locals="Mirror() mirror;",
        deparser="if (dprsr.mirror_type == 0) mirror.emit<mirror_h>(3, {9}); pkt.emit(hdr);",
        egress="if (is_validated(dprsr.mirror_type)) hdr.data.b = 2;",
    ))
    (tested,) = pipes(path)
    interpreter = Interpreter(frontend.load(path))
    for a, d in ((0, 0), (1, 0), (1, 1)):
        results = [tested.ingress(data(a, d=d)), interpreter.architecture.run(False, bytes(16), data(a, d=d))]
        for result in results:
            first = valid and a == 0
            assert result.frame == data(a, valid, int(first), d, int(first or d == 1))
            assert result.mirror == (b"\x09" if first or d else None)


def test_a_field_that_was_never_written_equals_nothing_in_a_deparser(tmp_path: Path) -> None:
    p = pipe(tmp_path, "if (hdr.data.a == 1) { dprsr.resubmit_type = 0; } if (hdr.data.a == 2) { dprsr.digest_type = 0; }"
             "if (hdr.data.a == 3) { dprsr.digest_type = 0; invalidate(dprsr.digest_type); }"
             "if (dprsr.digest_type == 0) { hdr.data.b = 7; }",
             deparser_locals="Resubmit() again; Digest<data_h>() digest;",
             deparser="""if (dprsr.resubmit_type == 0) again.emit(); if (dprsr.digest_type == 0) digest.pack(hdr.data);
             pkt.emit(hdr);""", egress="if (hdr.data.a == 1) { dprsr.mirror_type = 0; }",
             egress_deparser_locals="Mirror() mirror;",
             egress_deparser="if (dprsr.mirror_type == 0) mirror.emit(9); pkt.emit(hdr);")
    results = [p.ingress(data(a)) for a in range(4)]
    assert [r.verdict == RESUBMIT for r in results] == [False, True, False, False]
    assert [r.digest is not None for r in results] == [False, False, True, False]
    assert results[0].frame == data(0, 7)  # in the control it is zero
    assert p.egress(data(0)).mirror is None and p.egress(data(1)).mirror == b""


def test_fields_keep_what_was_written_before_the_header_was_valid(tmp_path: Path) -> None:
    p = pipe(tmp_path, """hdr.small.x = 5; hdr.bulk.b3 = 6; md.local.x = 9; hdr.small.setValid(); hdr.bulk.setValid();
        md.local.setValid(); hdr.bulk.b0 = md.local.x; hdr.data.setInvalid(); hdr.data.setValid();""",
             types="header small_h { bit<8> x; bit<8> y; } header bulk_h { bit<8> b0; bit<8> b1; bit<8> b2; bit<8> b3; }",
             headers="small_h small; bulk_h bulk;", metadata="small_h local;")
    assert p.ingress(data(1, 2)).frame == bytes([5, 0, 9, 0, 0, 6]) + data(1, 2)


def test_drop_control(tmp_path: Path) -> None:
    p = pipe(tmp_path, "tm.copy_to_cpu = 1; dprsr.drop_ctl = (bit<3>)hdr.data.a;")
    assert p.ingress(data(0)).requests == {"ucast_egress_port": 1, "has_ucast": 1, "copy_to_cpu": 1}
    assert p.ingress(data(1)).requests == {"ucast_egress_port": 1, "copy_to_cpu": 1, "drop_ctl": 1}
    assert p.ingress(data(2)).requests == {"ucast_egress_port": 1, "has_ucast": 1, "drop_ctl": 2}
    assert p.ingress(data(3)).verdict == DROP
    p = pipe(tmp_path, egress="dprsr.drop_ctl = (bit<3>)hdr.data.a;")
    assert [p.egress(data(a)).verdict for a in (0, 1, 2, 3)] == [UNICAST, DROP, UNICAST, DROP]


# --- parsers ------------------------------------------------------------------------------------------------------------

SELECT = """state start { pkt.extract(intr); pkt.advance(PORT_METADATA_SIZE); pkt.extract(hdr.data);
    transition select(hdr.data.e) { 0: accept; 1: more; 3: reject; } }
    state more { pkt.extract(hdr.more); transition accept; }"""


def test_parser_errors_drop(tmp_path: Path) -> None:
    p = pipe(tmp_path, parser=SELECT, headers="data_h more;")
    assert p.ingress(data()).verdict == UNICAST
    for frame in (data()[:11], data(e=1) + data()[:11], data(e=2)):
        result = p.ingress(frame)
        assert result.verdict == DROP and result.requests == {"parser_drop": 1}
    assert p.ingress(data(e=3) + REST).frame == data(e=3) + REST  # reject is no error


def test_parser_errors_that_the_program_reads(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.data.c = prsr.parser_err;", parser=SELECT, headers="data_h more;")
    assert p.ingress(data(e=1) + data()[:11]).frame == data(c=0x22, e=1) + data()[:11]
    assert p.ingress(data(e=2)).requests == {"parser_drop": 1}  # NO_TCAM all the same


def test_egress_parser_errors_never_drop(tmp_path: Path) -> None:
    p = pipe(tmp_path, egress="hdr.data.setValid(); hdr.data.c = prsr.parser_err;")
    assert p.egress(b"short").frame == data(c=0x22) + b"short"


def test_port_metadata(tmp_path: Path) -> None:
    unpack = """state start { pkt.extract(intr); md.port = port_metadata_unpack<port_t>(pkt);
        pkt.extract(hdr.data); transition accept; }"""
    p = pipe(tmp_path, "hdr.data.c = md.port.x; hdr.data.d = (bit<8>)md.port.y;", parser=unpack, metadata="port_t port;",
             types="struct port_t { bit<16> x; bit<4> y; }")
    assert p.ingress(data(), metadata=bytes.fromhex("1234 5678 9abc def0")).frame == data(c=0x1234, d=5)
    fields = [{"name": "x", "width": 16, "bit": 0}, {"name": "y", "width": 4, "bit": 16}]
    table = {"name": "IP.$PORT_METADATA", "key": "intr.ingress_port", "unpacked": True, "fields": fields}
    assert p.layout["port_metadata"] == table


def test_port_metadata_as_a_header(tmp_path: Path) -> None:
    parser = """state start { pkt.extract(intr); transition select(intr.resubmit_flag) { 1: again; default: port; } }
        state again { pkt.extract(md.resubmit_md); transition next; }
        state port { pkt.extract(md.port); transition next; }
        state next { pkt.extract(hdr.data); transition accept; }"""
    p = pipe(tmp_path, "hdr.data.b = md.port.isValid() ? md.port.y : md.resubmit_md.r[31:0];", parser=parser,
             metadata="port_h port; resubmit_h resubmit_md;",
             types="header port_h { bit<32> x; bit<32> y; } header resubmit_h { bit<64> r; }")
    metadata = bytes(range(8))
    assert p.ingress(data(), metadata=metadata).frame == data(0, 0x04050607)
    assert p.ingress(data(), metadata=metadata, resubmitted=True).frame == data(0, 0x04050607)
    assert [f["name"] for f in p.layout["port_metadata"]["fields"]] == ["x", "y"]


def test_a_parser_that_keeps_nothing_of_the_intrinsic_metadata(tmp_path: Path) -> None:
    parser = """state start { pkt.extract<ingress_intrinsic_metadata_t>(_); pkt.extract<port_h>(_);
        pkt.extract(hdr.data); sum.subtract_all_and_deposit<bit<16>>(_); transition accept; }"""
    p = pipe(tmp_path, parser_locals="Checksum() sum;", parser=parser, types="header port_h { bit<64> x; }")
    assert p.ingress(data(5, 6)).frame == data(5, 6)


@pytest.mark.parametrize(("algorithm", "keys"), [("CRC16", "hdr.data.a: exact; hdr.data.b: selector;"),
                                                 ("IDENTITY", "hdr.data.a: exact;")])
def test_a_selector_that_a_table_makes(tmp_path: Path, algorithm: str, keys: str) -> None:
    table = f"""action put(bit<8> v) {{ hdr.data.d = v; }}
        table t {{ key = {{ {keys} }} actions = {{ put; NoAction; }} default_action = put(5);
            implementation = ActionSelector(16, Hash<bit<16>>(HashAlgorithm_t.{algorithm}), SelectorMode_t.FAIR); }}"""
    assert pipe(tmp_path, "t.apply();", ingress_locals=table).ingress(data(1)).frame == data(1, d=5)


def test_parser_counter(tmp_path: Path) -> None:
    parser = """ParserCounter() left;
    state start { pkt.extract(intr); pkt.advance(PORT_METADATA_SIZE); pkt.extract(hdr.data);
        left.set(hdr.data.e, 15, 0, 3, 0); transition check; }
    state check { transition select(left.is_zero()) { true: accept; false: item; } }
    state item { pkt.extract(hdr.items.next); left.decrement(1); transition check; }"""
    p = pipe(
        tmp_path, "if (hdr.items[0].isValid()) hdr.items[0].setInvalid();", parser=parser, headers="item_h[4] items;",
        types="header item_h { bit<8> x; }", deparser="pkt.emit(hdr.data); pkt.emit(hdr.items);")
    assert p.ingress(data(e=0) + b"abcd").frame == data(e=0) + b"abcd"
    assert p.ingress(data(e=3) + b"abcd").frame == data(e=3) + b"bcd"
    assert p.ingress(data(e=16) + b"abcd").requests == {"parser_drop": 1}  # more than `max`
    assert p.ingress(data(e=5) + b"abcdef").requests == {"parser_drop": 1}  # more than the stack holds


# --- copies and messages ------------------------------------------------------------------------------------------------

MIRROR = "header mirror_h { bit<8> kind; @flexible bit<3> x; @flexible bit<9> y; bit<16> last; }"


def test_mirror_of_ingress_and_flexible_headers(tmp_path: Path) -> None:
    p = pipe(tmp_path, "if (hdr.data.a != 0) dprsr.mirror_type = 2; dprsr.drop_ctl = (bit<3>)hdr.data.b;", types=MIRROR,
             deparser_locals="Mirror() mirror;", deparser="""if (dprsr.mirror_type == 2)
             mirror.emit<mirror_h>((MirrorId_t)hdr.data.c, {9, 3w5, 9w0x155, hdr.data.c}); pkt.emit(hdr);""")
    assert p.pointer.flags == 1
    assert "mirror" not in p.ingress(data(0)).requests
    result = p.ingress(data(1, 1, c=0x3FF))  # dropped and mirrored
    assert result.verdict == DROP
    assert {k: v for k, v in result.requests.items() if k.startswith("mirror")} == {
        "mirror": 1, "mirror_type": 2, "mirror_session": 0x3FF, "mirror_len": 5}
    assert result.mirror == bytes([9, 0b10110101, 0b01010000]) + b"\x03\xff"


def test_mirror_of_egress_is_the_deparsed_packet(tmp_path: Path) -> None:
    p = pipe(tmp_path, types=MIRROR, egress="hdr.data.b = 5; dprsr.mirror_type = 1; dprsr.drop_ctl = (bit<3>)hdr.data.a;",
             egress_deparser_locals="Mirror() mirror;", egress_deparser="""if (dprsr.mirror_type == 1)
             mirror.emit<mirror_h>(3, {1, 0, 0, 2}); pkt.emit(hdr);""")
    assert p.pointer.flags == 0
    result = p.egress(data(0) + REST)
    assert result.verdict == UNICAST and result.frame == data(0, 5) + REST and result.mirror == bytes([1, 0, 0, 0, 2])
    result = p.egress(data(1) + REST)
    assert result.verdict == DROP and result.frame == data(1, 5) + REST and result.mirror is not None
    assert p.egress(data(4) + REST).mirror is None
    assert p.egress(data(5) + REST).frame is None


def test_a_mirrored_copy_in_egress(tmp_path: Path) -> None:
    parser = """state start { pkt.extract(intr); mirror_h m = pkt.lookahead<mirror_h>();
        transition select(m.kind) { 9: mirrored; default: plain; } }
        state mirrored { pkt.extract(hdr.mirror); transition plain; }
        state plain { pkt.extract(hdr.data); transition accept; }"""
    p = pipe(tmp_path, types=MIRROR, headers="mirror_h mirror;", egress_parser=parser,
             egress="""hdr.data.c = (bit<16>)hdr.mirror.y; hdr.data.d = (bit<8>)hdr.mirror.x;
             hdr.mirror.setInvalid();""")
    assert p.egress(data(1), mirror=bytes([9, 0b10110101, 0b01010000, 0, 0])).frame == data(1, c=0x155, d=5)


def test_resubmit(tmp_path: Path) -> None:
    p = pipe(tmp_path, "if (hdr.data.a == 1 && intr.resubmit_flag == 0) dprsr.resubmit_type = 3;"
             "dprsr.mirror_type = 1;"
             "dprsr.drop_ctl = (bit<3>)hdr.data.b;",
             types="header again_h { bit<16> x; bit<48> y; }" + MIRROR,
             deparser_locals="Resubmit() again; Mirror() mirror;",
             deparser="""if (dprsr.resubmit_type == 3) again.emit<again_h>({0x1234, 0x56789abcdef0});
             if (dprsr.mirror_type == 1) mirror.emit<mirror_h>(1, {0, 0, 0, 0}); pkt.emit(hdr);""")
    assert p.ingress(data(0)).resubmit is None and p.ingress(data(1), resubmitted=True).resubmit is None
    result = p.ingress(data(1))
    assert result.verdict == RESUBMIT and result.resubmit == bytes.fromhex("123456789abcdef0") and result.mirror is None
    assert result.requests["resubmit_type"] == 3
    assert p.ingress(data(1, 1)).resubmit is None  # drop_ctl


def test_digest(tmp_path: Path) -> None:
    p = pipe(tmp_path, "if (hdr.data.a != 0) dprsr.digest_type = (bit<3>)hdr.data.a; dprsr.drop_ctl = 1;",
             types="struct first_t { bit<32> a; bit<16> c; } struct second_t { bit<8> e; }",
             deparser_locals="Digest<first_t>() first; Digest<second_t>() second;",
             deparser="""if (dprsr.digest_type == 1) first.pack({hdr.data.b, hdr.data.c});
             if (dprsr.digest_type == 2) second.pack({hdr.data.e}); pkt.emit(hdr);""")
    assert p.ingress(data(0)).digest is None
    assert p.ingress(data(1, 8, 9)).digest == (1, {"a": 8, "c": 9})
    assert p.ingress(data(2, e=4)).digest == (2, {"e": 4})
    assert [d["name"] for d in p.layout["digests"]] == ["ID.first", "ID.second"]
    assert [d["preamble"]["name"] for d in p.program.p4info.message["digests"]] == ["ID.first", "ID.second"]


def test_bridged_metadata(tmp_path: Path) -> None:
    p = pipe(tmp_path, "hdr.bridge.setValid(); hdr.bridge.port = intr.ingress_port; hdr.bridge.mark = 1;",
             types="@flexible header bridge_h { bit<9> port; bit<1> mark; bit<4> z; }", headers="bridge_h bridge;",
             egress_parser="""state start {
                pkt.extract(intr); pkt.extract(hdr.bridge); pkt.extract(hdr.data); transition accept; }""",
             egress="hdr.data.a = (bit<32>)hdr.bridge.port; hdr.data.b = (bit<32>)hdr.bridge.mark; hdr.bridge.setInvalid();",
             )
    ingress = p.ingress(data() + REST, port=0x155)
    assert ingress.frame == bytes([0b10101010, 0b11000000]) + data() + REST
    assert p.egress(ingress.frame).frame == data(0x155, 1) + REST


# --- several pipelines --------------------------------------------------------------------------------------------------


def test_pipelines_are_a_list_of_programs(tmp_path: Path) -> None:
    text = source("count.execute(0);", ingress_locals="""Register<bit<32>, bit<1>>(2, 5) r;
        RegisterAction<bit<32>, bit<1>, bit<32>>(r) count = { void apply(inout bit<32> v) { v = v + 1; } };""")
    text = text.replace("Switch(pipe) main;", "Pipeline(IP(), I(), ID(), EP(), E(), ED()) other;\nSwitch(pipe, other) main;")
    path = tmp_path / "program.p4"
    path.write_text(text)
    first, second = pipes(path)
    assert [p.layout["pipeline"] for p in (first, second)] == ["pipe", "other"]
    assert second.layout["registers"][0]["name"] == "other.I.r"
    assert first.pointer.p4info == second.pointer.p4info
    first.ingress(data())
    assert first.register("I.r") == [6, 5] and second.register("I.r") == [5, 5]


def test_one_pipeline_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.p4"
    path.write_text(source().replace("Switch(pipe)", "Switch(pipe, pipe)"))
    with pytest.raises(CompileError, match="stands in this Switch twice"):
        lower(frontend.load(path))


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "program"),
    [
        ("this mirror header has 9 bits", {"types": "header h { bit<9> x; }", "deparser_locals": "Mirror() m;",
                                           "deparser": "m.emit<h>(1, {0});"}),
        ("more than 8", {"types": "header h { bit<72> x; }", "deparser_locals": "Resubmit() m;", "deparser": "m.emit<h>({0});"}),
        ("Resubmit in egress", {"egress_deparser_locals": "Resubmit() m;", "egress_deparser": "m.emit();"}),
        ("Digest in egress", {"egress_deparser_locals": "Digest<data_h>() d;", "egress_deparser": "d.pack(hdr.data);"}),
        ("port metadata have 64 bits", {"types": "struct t { bit<65> x; }", "metadata": "t m;",
            "parser": "state start { pkt.extract(intr); md.m = port_metadata_unpack<t>(pkt); transition accept; }"}),
        ("'hdr.data.d' is none of the fields", {"ingress": "hdr.data.a = h.get({hdr.data.a, hdr.data.b});",
            "ingress_locals": '@symmetric("hdr.data.a", "hdr.data.d") Hash<bit<32>>(HashAlgorithm_t.CRC32) h;'}),
        ("invalidate of a field other than", {"ingress": "invalidate(tm.qid);"}),
    ],
)
def test_refusals(tmp_path: Path, reason: str, program: dict[str, str]) -> None:
    assert reason in refused(tmp_path, **program)


def test_table_entry_of_a_tna_program(tmp_path: Path) -> None:
    p = pipe(tmp_path, "t.apply();", ingress_locals="""action to(PortId_t port) { tm.ucast_egress_port = port; }
        table t { key = { hdr.data.a: exact; hdr.data.b: ternary; } actions = { to; } size = 16; }""")
    p.add(TableEntry("I.t", {"hdr.data.a": 5, "hdr.data.b": (1, 1)}, "I.to", {"port": 130}, priority=1))
    assert p.ingress(data(5, 3)).requests["ucast_egress_port"] == 130
    assert p.ingress(data(5, 2)).requests["ucast_egress_port"] == 1
