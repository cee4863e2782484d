"""Values of a Tofino that its architecture's text leaves open, the same from the compiled program and from the interpreter.

What is right follows from p4c's back end for Tofino (p4lang/bf-p4c): its sources, and the packets of its own tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tna_program
from shadow import Shadowed
from tna_program import data

from ina.p4.compiler.reference.interpreter import CloneSession
from ina.p4.compiler.reference.objects import FilterArray
from ina.p4.runtime import Update
from ina.p4.runtime.tna_entities import FilterEntry, LpfConfig, WredConfig

pytestmark = pytest.mark.build
IN, OUT = 0, 1


def switch(folder: Path, *ingress: str, **parts: str) -> Shadowed:
    """A program on both: they get every frame and must agree."""
    path = folder / "program.p4"
    path.write_text(tna_program.source(*ingress, **parts))
    return Shadowed(path, cflags=["-O1"])


def sent(program: Shadowed, frame: bytes) -> bytes:
    """The one frame that leaves, by port 1."""
    ((port, out),) = program.process(frame, IN)
    assert port == OUT
    return out


# --- cells ----------------------------------------------------------------------------------------------------------------


OBJECTS = """Register<bit<8>, int<8>>(256) r; Counter<bit<32>, int<8>>(256, CounterType_t.PACKETS) c;
    Register<bit<8>, int<8>>(256) s; Meter<int<8>>(256, MeterType_t.PACKETS) m; Lpf<bit<32>, int<8>>(256) l;
    RegisterAction<bit<8>, int<8>, bit<8>>(r) add = {
        void apply(inout bit<8> v, out bit<8> x) { v = v + hdr.data.e; x = v; } };"""


def test_the_index_of_a_cell_is_its_bits(tmp_path: Path) -> None:
    program = switch(tmp_path, """int<8> i = (int<8>)hdr.data.d; hdr.data.e = add.execute(i); c.count(i);
        if (hdr.data.c == 0) { s.write(i, 5); } else { hdr.data.a[7:0] = s.read(i); }
        hdr.data.a[15:8] = m.execute(i); hdr.data.b = l.execute(hdr.data.b, i);""",
        ingress_locals=OBJECTS)
    program.meters["I.m"].configure(0xFE, 0, 0, 0, 0)
    for d, color in ((0xFF, 0), (0xFE, 3), (0x7F, 0)):
        for c, e, before in ((0, 3, 0), (1, 6, 5)):
            assert sent(program, data(1 << 16, 9, c, d, 3)) == data(1 << 16 | color << 8 | before, 9, c, d, e)
        assert program.counters["I.c"].packets[d] == 2


def test_the_sample_of_a_filter_is_its_bits_and_its_result_has_its_type(tmp_path: Path) -> None:
    program = switch(tmp_path, "hdr.data.c = (bit<16>)l.execute(hdr.data.d, 0); hdr.data.e = w.execute((int<8>)hdr.data.e, 0);",
        ingress_locals="Lpf<bit<8>, bit<1>>(1) l; Wred<int<8>, bit<1>>(1, 1, 2) w;")
    entries = FilterEntry("I.l", 0, LpfConfig(1, 1, rate=True)), FilterEntry("I.w", 0, WredConfig(0.0, 100, 200, 0.0))
    program.switch.write([Update("MODIFY", entry) for entry in entries])
    average, early = (o for o in program.machine.objects.values() if isinstance(o, FilterArray))
    average.cells[0] = 2, 1.0, 1.0, 1.0, 0.0, 0.0
    early.cells[0] = 1, 0.0, 0.0, 0.0, 100.0, 200.0
    for d, c, e, dropped in ((200, 200, 0xFF, 1), (200, 400 & 255, 1, 2)):
        assert sent(program, data(d=d, e=e)) == data(c=c, d=d, e=dropped)


# --- hashes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "width"), [("CRC8", 20), ("CRC16", 32), ("CRC16", 40), ("CRC32", 64)])
def test_a_hash_of_more_bits_than_its_algorithm_repeats_them(tmp_path: Path, algorithm: str, width: int) -> None:
    size = int(algorithm[3:])
    locals_ = f"Hash<bit<{width}>>(HashAlgorithm_t.{algorithm}) wide; Hash<bit<{size}>>(HashAlgorithm_t.{algorithm}) plain;"
    program = switch(tmp_path, """bit<64> x;
        if (hdr.data.e == 0) { x = (bit<64>)wide.get({hdr.data.a}); } else { x = (bit<64>)plain.get({hdr.data.a}); }
        hdr.data.a = x[63:32]; hdr.data.b = x[31:0];""", ingress_locals=locals_)
    for value in (1, 0xDEADBEEF):
        plain = int.from_bytes(sent(program, data(value, e=1))[:8], "big")
        repeated = sum(plain << at for at in range(0, width, size)) & (1 << width) - 1
        assert plain and int.from_bytes(sent(program, data(value))[:8], "big") == repeated


@pytest.mark.parametrize("algorithm", ["XOR8", "IDENTITY"])
def test_only_crcs_repeat(tmp_path: Path, algorithm: str) -> None:
    program = switch(tmp_path, "hdr.data.b = h.get({hdr.data.d});",
                     ingress_locals=f"Hash<bit<32>>(HashAlgorithm_t.{algorithm}) h;")
    assert sent(program, data(d=0x5A)) == data(b=0x5A, d=0x5A)


def crc16(text: bytes) -> int:
    """CRC-16/ARC by division: each byte enters with its bits turned round, and so does the remainder leave."""
    register = 0
    for byte in text:
        register ^= int(f"{byte:08b}"[::-1], 2) << 8
        for _ in range(8):
            register = (register << 1 ^ 0x8005 * (register >> 15)) & 0xFFFF
    return int(f"{register:016b}"[::-1], 2)


SYMMETRIC = '@symmetric("hdr.data.b", "hdr.data.a") @symmetric("hdr.data.d", "hdr.data.e") '


def test_symmetric_fields_stand_once_at_the_place_of_the_later(tmp_path: Path) -> None:
    assert crc16(b"123456789") == 0xBB3D  # the catalogue's check value
    program = switch(tmp_path, "hdr.data.c = h.get({hdr.data.a, hdr.data.d, hdr.data.b, hdr.data.e});",
                     ingress_locals=SYMMETRIC + "Hash<bit<16>>(HashAlgorithm_t.CRC16) h;")
    for a, b, d, e in ((0x458394AE, 0x7282F3A0, 3, 7), (0x7282F3A0, 0x458394AE, 7, 3)):
        expected = crc16(bytes(5) + (a ^ b).to_bytes(4, "big") + bytes([d ^ e]))
        assert sent(program, data(a, b, 0, d, e)) == data(a, b, expected, d, e)
    assert crc16(bytes(4) + (0x458394AE ^ 0x7282F3A0).to_bytes(4, "big")) == 0x40F4  # as in p4c's symmetric_hash.stf


# --- math units -----------------------------------------------------------------------------------------------------------


def math_unit(folder: Path, unit: str, width: int = 32) -> Shadowed:
    """Program that puts the function of a into b, both cut to `width` bits."""
    return switch(folder, "hdr.data.b = (bit<32>)f.execute(0);", ingress_locals=f"""MathUnit<bit<{width}>>({unit}) unit;
        Register<bit<{width}>, bit<1>>(1) r; RegisterAction<bit<{width}>, bit<1>, bit<{width}>>(r) f = {{
        void apply(inout bit<{width}> v, out bit<{width}> x) {{ v = unit.execute(hdr.data.a[{width - 1}:0]); x = v; }} }};""")


def result(program: Shadowed, x: int) -> int:
    return int.from_bytes(sent(program, data(x))[4:8], "big")


SQUARES = "false, 1, -6, {225, 196, 169, 144, 121, 100, 81, 64, 0, 0, 0, 0, 0, 0, 0, 0}"


@pytest.mark.parametrize("unit", [SQUARES, "MathOp_t.SQR, 1"])
@pytest.mark.parametrize("width", [16, 32])
def test_squares_of_four_bits_are_exact(tmp_path: Path, unit: str, width: int) -> None:
    """An operand is shifted left, too, until its leading one is at the top of the table's index."""
    program = math_unit(tmp_path, unit, width)
    for x in range(256):
        leading = x & 15 << max(0, x.bit_length() - 4)
        assert result(program, x) == leading * leading, x


def test_reciprocal_square_roots(tmp_path: Path) -> None:
    """2^24 / sqrt(x), which is 16.16 fixed point; the table's values, 114 and more, are as large as fit 8 bits."""
    program = math_unit(tmp_path, "MathOp_t.RSQRT, 0x1000000")
    known = {0x10000: 0x10000, 0x20000: 0xB500, 0x30000: 0x9400, 0x50000: 0x7200, 0x90000: 0x5A80, 0xF00000: 0x1120,
             0xF0000000: 0x112}  # as in p4c's math_unit3.stf
    for x, y in known.items():
        assert result(program, x) == y
    for x in (0x40, 0x48, 0x5000, 0x700000):  # operands that fit the index
        assert abs(result(program, x) / (2**24 / x**0.5) - 1) <= 0.5 / 114


def test_a_tenth(tmp_path: Path) -> None:
    program = math_unit(tmp_path, "MathOp_t.MUL, 1, 10")
    for x, y in {0x10000: 0x1980, 0xA00: 0x100, 0xF0: 0x18, 0x6400000: 0x9A0000, 0: 0}.items():  # as in p4c's math_unit4.stf
        assert result(program, x) == y


# --- checksums ------------------------------------------------------------------------------------------------------------


def summed(frame: bytes) -> int:
    """The ones' complement sum of 16-bit words; an odd last byte is the high half of its word."""
    frame += bytes(len(frame) % 2)
    total = sum(int.from_bytes(frame[i : i + 2], "big") for i in range(0, len(frame), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def negated(*texts: bytes) -> int:
    """The ones' complement of the sum of all of `texts`, each of which begins with a high half; 0 as 0xFFFF, or the other way."""
    return ~summed(b"".join(text + bytes(len(text) % 2) for text in texts)) & 0xFFFF


TYPES = "header bytes_t { bit<8> a; bit<16> c; bit<8> b; bit<24> e; } header more_t { bit<8> x; bit<16> y; }"
PARSER = "state start {{ pkt.extract(intr); pkt.advance(PORT_METADATA_SIZE); {} transition accept; }}"
NOTHING = "state start { pkt.extract(intr); transition accept; }"  # the egress parser: all is payload


def test_the_calls_of_a_parser_s_checksum_make_one_list(tmp_path: Path) -> None:
    """A byte behind an odd number of them is the low half of its word."""
    calls = """s.subtract({hdr.bytes.a}); s.subtract({hdr.bytes.b, hdr.bytes.e}); s.subtract({hdr.bytes.c, 8w0});
        s.add({hdr.data.c}); t.add({hdr.bytes.a}); t.add({hdr.bytes.e, hdr.bytes.b});
        md.s = s.get(); md.t = t.get(); md.wrong = t.verify();"""
    program = switch(tmp_path, "hdr.data.a[15:0] = md.s; hdr.data.b[15:0] = md.t; hdr.data.d = md.wrong ? 8w1 : 0;",
                     types=TYPES, headers="bytes_t bytes;", metadata="bit<16> s; bit<16> t; bool wrong;",
                     parser_locals="Checksum() s; Checksum() t;", egress_parser=NOTHING,
                     parser=PARSER.format("pkt.extract(hdr.bytes); pkt.extract(hdr.data);" + calls))
    for text, added in (("42000005000000", 0), ("ff1234feabcdef", 0x8001), ("010002fefeff00", 4)):
        one, two, three, four = (bytes.fromhex(text[a:b]) for a, b in ((0, 2), (2, 6), (6, 8), (8, 14)))
        first = summed(negated(one + three + four + two).to_bytes(2, "big") + added.to_bytes(2, "big"))
        second = summed(one + four + three)
        expected = data(first, second, added, int(second != 0xFFFF))
        assert sent(program, bytes.fromhex(text) + data(c=added)) == bytes.fromhex(text) + expected


@pytest.mark.parametrize("listed", ["", "hdr.data.a", "hdr.data.d"])
def test_a_residual_is_less_all_that_is_parsed_after_the_call(tmp_path: Path, listed: str) -> None:
    """Extracted or skipped; what the parser leaves does not count."""
    calls = (f"s.subtract({{{listed}}});" if listed else "") + """s.subtract_all_and_deposit(md.rest); pkt.extract(hdr.more);
        s.subtract({hdr.data.c}); pkt.advance(16); """
    program = switch(tmp_path, "hdr.data.b[15:0] = md.rest;", types=TYPES, headers="more_t more;", metadata="bit<16> rest;",
                     parser_locals="Checksum() s;", parser=PARSER.format("pkt.extract(hdr.data);" + calls),
                     deparser="pkt.emit(hdr.data); pkt.emit(hdr.more);", egress_parser=NOTHING)
    fields = data(0x01020304, 0, 0x8899, 0x81)
    before = {"": b"", "hdr.data.a": fields[:4], "hdr.data.d": fields[10:11]}[listed]
    for payload in (b"", b"any payload", b"?" * 200):
        for after in (b"\x05\x12\x34??", b"\xff\xfe\x01\x00\x80"):
            rest = negated(before + fields[8:10], bytes(len(before) % 2) + after)
            out = sent(program, fields + after + payload)
            assert out == data(0x01020304, rest, 0x8899, 0x81) + after[:3] + payload


def test_a_checksum_with_its_payload_is_updated_by_a_residual(tmp_path: Path) -> None:
    """Fields that are subtracted, or parsed after the call, are listed anew; the rest is in the old checksum."""
    calls = "s.subtract({hdr.data.c, hdr.data.a}); s.subtract_all_and_deposit(md.rest); pkt.extract(hdr.more);"
    program = switch(tmp_path, "hdr.data.a = 7; hdr.more.y = 9;", types=TYPES, headers="more_t more;", metadata="bit<16> rest;",
                     parser_locals="Checksum() s;", parser=PARSER.format("pkt.extract(hdr.data);" + calls), egress_parser=NOTHING,
                     deparser_locals="Checksum() s;", deparser="""hdr.data.c = s.update({hdr.data.a, hdr.more, 8w0, md.rest});
                     pkt.emit(hdr.data); pkt.emit(hdr.more);""")
    payload = b"\0any payload"
    frame = data(1, 2, 0, 4, 5) + b"\x01\x02\x03" + payload
    out = sent(program, data(1, 2, negated(frame), 4, 5) + frame[12:])
    assert summed(out) in (0, 0xFFFF) and out[12:] == b"\x01\x00\x09" + payload


@pytest.mark.parametrize("narrow", [3, 4])
def test_the_padding_of_flexible_fields_enters_no_sum(tmp_path: Path, narrow: int) -> None:
    """Neither a hash nor the number of a checksum's bytes, in the compiled program as in the interpreter."""
    program = switch(tmp_path, "hdr.data.c = md.s; hdr.data.a = h.get(hdr.loose);", metadata="bit<16> s;",
                     headers="loose_t loose;",
                     types=f"header loose_t {{ @flexible bit<4> a; bit<8> z; @flexible bit<{narrow}> b; bit<8> y; }}",
                     ingress_locals="Hash<bit<32>>(HashAlgorithm_t.CRC32) h;", parser_locals="Checksum() s;",
                     deparser="pkt.emit(hdr.data);", egress_parser=NOTHING,
                     parser=PARSER.format("pkt.extract(hdr.loose); pkt.extract(hdr.data); "
                                          "s.add(hdr.loose); s.add({hdr.data.d}); md.s = s.get();"))
    for text in ("f0ffe012", "3a5c8001"):
        sent(program, bytes.fromhex(text) + data(d=0x9A))


FLEXIBLE = "header loose_t {{ {}bit<8> t; @flexible bit<9> x; @flexible bit<2> y; bit<8> z; @flexible bit<4> w; }}"


@pytest.mark.parametrize("lanes", ["", " ".join(f"bit<32> v{i};" for i in range(16))], ids=["short", "with lanes"])
@pytest.mark.parametrize("change", ["", "hdr.loose.y = 2;", "hdr.other = hdr.loose; hdr.loose.setInvalid();",
                                    "hdr.loose.setInvalid(); hdr.loose.setValid();"])
def test_the_padding_of_flexible_fields_leaves_as_zeros(tmp_path: Path, change: str, lanes: str) -> None:
    """Padding belongs to no field: what it was when the header was extracted does not matter."""
    program = switch(tmp_path, change, types=FLEXIBLE.format(lanes), headers="loose_t loose; loose_t other;",
                     parser=PARSER.format("pkt.extract(hdr.loose); pkt.extract(hdr.data);"), egress_parser="""
                     state start { pkt.extract(intr); pkt.extract(hdr.loose); pkt.extract(hdr.data); transition accept; }""",
                     egress="hdr.data.d = 1;")
    front = b"\xa5" * (64 if lanes else 0)
    y = 2 if "y = 2" in change else 3
    for filling in (0, 0b11111):
        loose = b"\x01" + (0x155 << 7 | 3 << 5 | filling).to_bytes(2, "big") + bytes([7, 0x90 | filling & 15])
        left = b"\x01" + (0x155 << 7 | y << 5).to_bytes(2, "big") + bytes([7, 0x90])
        assert sent(program, front + loose + data(5) + b"rest") == front + left + data(5, d=1) + b"rest"


# --- mirrored copies, errors of parsers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [0, 5])
@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_a_copy_to_a_session_that_nobody_has_configured_is_dropped(tmp_path: Path, side: str, session: int) -> None:
    """0 is never configured: sessions count from 1."""
    deparser = f"if (hdr.data.d == 1) {{ m.emit<mirrored_t>(10w{session}, {{ 8w7 }}); }} pkt.emit(hdr);"
    parts = {"deparser": deparser, "deparser_locals": "Mirror(0) m;", "egress_parser": NOTHING}
    if side == "egress":
        parts = {"egress_deparser": deparser, "egress_deparser_locals": "Mirror(0) m;", "egress_parser": """
            state start { pkt.extract(intr); transition select(pkt.lookahead<bit<8>>()) { 7: accept; default: take; } }
            state take { pkt.extract(hdr.data); transition accept; }"""}
    program = switch(tmp_path, types="header mirrored_t { bit<8> kind; }", **parts)
    assert sent(program, data(1, d=1)) == data(1, d=1)
    if session:
        program.clone_sessions[session] = CloneSession(3, None)
        assert sorted(program.process(data(1, d=1), IN)) == [(OUT, data(1, d=1)), (3, b"\x07" + data(1, d=1))]


def test_a_cut_header_has_two_bits_of_parser_err(tmp_path: Path) -> None:
    """PARSER_ERROR_PARTIAL_HDR and PARSER_ERROR_SRC_EXT, as in p4c's parser_error.stf."""
    program = switch(tmp_path, "hdr.data.c = prsr.parser_err;", types="header long_t { bit<512> w; }", headers="long_t long;",
                     parser=PARSER.format("pkt.extract(hdr.data); pkt.extract(hdr.long);"), egress_parser=NOTHING)
    assert sent(program, data(1) + b"cut") == data(1, c=0x0022) + b"cut"
    assert sent(program, data(1) + bytes(64)) == bytes(64) + data(1)


@pytest.mark.parametrize(("types", "fields", "before"), [
    ("", "{} bit<2> two;", ""),
    ("struct bits_s {{ {} }}", "bits_s s; bit<2> two;", "s."),
    ("struct bits_s {{ {} }} struct outer_s {{ bits_s s; }}", "outer_s o; bit<2> two;", "o.s."),
    ("struct bits_s {{ {} bit<2> two; }}", "bits_s[1] s;", "s[0]."),
])
@pytest.mark.parametrize(("field", "rotate"), [("high", 4), ("low", 0), ("middle", 2)])
def test_a_parser_counter_loads_a_narrow_field_in_its_byte(
    tmp_path: Path, field: str, rotate: int, types: str, fields: str, before: str
) -> None:
    """`max` and `rotate` are those of the byte; the other fields in it do not count, in whatever structs they are."""
    bits = "bit<4> high; bit<4> low; bit<2> one; bit<4> middle;"
    types = f"{types.format(bits)} header bits_t {{ {fields.format(bits)} }} header item_t {{ bit<8> x; }}"
    parser = PARSER.replace("transition accept; }}", "transition count; }} {}").format(
        f"pkt.extract(hdr.data); pkt.extract(hdr.bits); left.set(hdr.bits.{before}{field}, 8w3 << {rotate}, {rotate}, 3, 0);", """
        state count { transition select(left.is_zero()) { true: accept; false: item; } }
        state item { pkt.extract(hdr.items.next); left.decrement(1); transition count; }""")
    program = switch(tmp_path, types=types, headers="bits_t bits; item_t[4] items;", parser_locals="ParserCounter() left;",
                     parser=parser, deparser="pkt.emit(hdr.data);", egress_parser=NOTHING)
    for number in range(4):
        byte = bytes([number << 4 | 0xF if field == "high" else 0xF0 | number, 0xC3 | number << 2])
        assert sent(program, data() + byte + b"items") == data() + b"items"[number:]
    byte = bytes([0x40 | 0xF if field == "high" else 0xF4, 0xC3 | 4 << 2])
    assert program.process(data() + byte + b"items", IN) == []  # more than `max`


@pytest.mark.parametrize(("item", "items", "index", "packed", "below"), [
    ("bit<4> x;", "item_s[3] items; bit<4> rest;", 0, b"\x2f\xff", 4),
    ("bit<4> x;", "item_s[3] items; bit<4> rest;", 1, b"\xf2\xff", 0),
    ("bit<4> x;", "item_s[3] items; bit<4> rest;", 2, b"\xff\x2f", 4),
    ("bit<3> high; bit<5> x;", "item_s[2] items;", 1, b"\xff\xe2", 0),
    ("bit<5> x; bit<3> low;", "item_s[2] items;", 1, b"\xff\x17", 3),
    ("bit<6> x;", "item_s[2] items; bit<4> rest;", 0, b"\x0b\xff", 2),
    ("bit<6> x;", "item_s[2] items; bit<4> rest;", 1, b"\xfc\x2f", 0),  # in two bytes
])
def test_a_parser_counter_loads_the_field_of_an_element(
    tmp_path: Path, item: str, items: str, index: int, packed: bytes, below: int
) -> None:
    """Elements of an array of structs in a header need not begin where bytes do."""
    types = f"struct item_s {{ {item} }} header items_t {{ {items} }} header byte_t {{ bit<8> x; }}"
    parser = PARSER.replace("transition accept; }}", "transition count; }} {}").format(
        f"pkt.extract(hdr.data); pkt.extract(hdr.all); left.set(hdr.all.items[{index}].x, 255, {below}, 7, 0);", """
        state count { transition select(left.is_zero()) { true: accept; false: item; } }
        state item { pkt.extract(hdr.bytes.next); left.decrement(1); transition count; }""")
    program = switch(tmp_path, types=types, headers="items_t all; byte_t[4] bytes;", parser_locals="ParserCounter() left;",
                     parser=parser, deparser="pkt.emit(hdr.data);", egress_parser=NOTHING)
    assert sent(program, data() + packed + b"bytes") == data() + b"tes"
