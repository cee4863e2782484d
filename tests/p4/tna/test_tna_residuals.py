"""Checksum objects of Tofino programs against exact sums: numbers without bounds, reduced once, at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tna_program
from shadow import Shadowed
from tna_program import data

from ina.p4.compiler import frontend
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower.lower import lower
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.compiler.reference.signals import InterpreterError

pytestmark = pytest.mark.build
TYPES = "header pair_t { bit<16> x; bit<16> y; } header odd_t { bit<8> x; bit<16> y; }"
ITEM = "header item_t { bit<8> left; bit<16> r; bit<8> k; }"
NOTHING = "state start { pkt.extract(intr); transition accept; }"  # the egress parser: all is payload
START = "state start { pkt.extract(intr); pkt.advance(PORT_METADATA_SIZE); "


def switch(folder: Path, parser: str, ingress: str = "hdr.data.a[15:0] = md.r;", **parts: str) -> Shadowed:
    """A program on both back ends, which must agree: `parser` follows the ports' metadata."""
    path = folder / "program.p4"
    defaults = {"metadata": "bit<16> r;", "parser_locals": "Checksum() s; Checksum() t;", "deparser": "pkt.emit(hdr.data);"}
    path.write_text(tna_program.source(ingress, egress_parser=NOTHING, parser=START + parser, **defaults | parts))
    return Shadowed(path, cflags=["-O1"])


def sent(program: Shadowed, frame: bytes) -> bytes:
    ((_, out),) = program.process(frame, 0)
    return out


def words(octets: bytes) -> int:
    octets += bytes(len(octets) % 2)
    return sum(int.from_bytes(octets[i : i + 2], "big") for i in range(0, len(octets), 2))


def reduced(total: int) -> int:
    """A sum in ones' complement: of two zeros, only that of no words or zeros is 0."""
    return (total - 1) % 0xFFFF + 1 if total else 0


class Exact:
    """A Checksum object."""

    def __init__(self) -> None:
        self.added = self.subtracted = self.octets = 0
        self.less = False

    def take(self, octets: bytes, subtract: bool) -> None:
        total = words(bytes(self.octets % 2) + octets)
        self.octets += len(octets)
        self.added += 0 if subtract else total
        self.subtracted += total if subtract else 0
        self.less |= subtract

    def value(self) -> int:
        return reduced(self.added + (0xFFFF - reduced(self.subtracted) if self.less else 0))


def drawn(seed: int) -> tuple[str, str, Callable[[bytes], dict[str, int]]]:
    """A parser of one state, its headers, and what it writes to its metadata (r0, r1: residuals; g0, g1: sums) for a frame."""
    rng = random.Random(seed)
    kinds = [rng.choice(("pair_t", "odd_t")) for _ in range(5)]
    steps: list[tuple[str, int, int]] = []
    extracted = 0
    for _ in range(rng.randint(8, 20)):
        steps.append((rng.choice(("extract", "add", "subtract", "subtract", "deposit", "get", "advance", "set")),
                      rng.randint(0, 1), rng.randint(0, 4)))
    text = []
    for step, which, number in steps:
        match step:
            case "extract" if extracted < len(kinds):
                text.append(f"pkt.extract(hdr.h{extracted});")
                extracted += 1
            case "add" | "subtract" if number < extracted:
                text.append(f"{'st'[which]}.{step}({{hdr.h{number}.x, hdr.h{number}.y}});")
            case "deposit":
                text.append(f"{'st'[which]}.subtract_all_and_deposit(md.r{number % 2});")
            case "get":
                text.append(f"md.g{number % 2} = {'st'[which]}.get();")
            case "advance":
                text.append("pkt.advance(8);")
            case "set" if number < extracted:
                text.append(f"hdr.h{number}.y = 16w{0xFFFF if which else 0x1234};")

    def model(frame: bytes) -> dict[str, int]:
        objects, at, headers = (Exact(), Exact()), 0, []
        results = dict.fromkeys(("r0", "r1", "g0", "g1"), 0)
        deposits: dict[str, tuple[Exact, int, int]] = {}
        for step, which, number in steps:
            match step:
                case "extract" if len(headers) < len(kinds):
                    size = 4 if kinds[len(headers)] == "pair_t" else 3
                    headers.append(frame[at : at + size])
                    at += size
                case "add" | "subtract" if number < len(headers):
                    objects[which].take(headers[number], step == "subtract")
                case "deposit":
                    deposits[f"r{number % 2}"] = objects[which], at, objects[which].octets % 2
                case "get":
                    results[f"g{number % 2}"] = objects[which].value()
                case "advance":
                    at += 1
                case "set" if number < len(headers):
                    headers[number] = headers[number][:-2] + (b"\xff\xff" if which else b"\x12\x34")
        for name, (owner, start, odd) in deposits.items():
            parsed = words(bytes(odd) + frame[start:at])
            results[name] = reduced(owner.added + 0xFFFF - reduced(owner.subtracted + parsed))
        return results

    return " ".join(text), " ".join(f"{kind} h{i};" for i, kind in enumerate(kinds)), model


@pytest.mark.parametrize("seed", range(12))
def test_sums_and_residuals_are_exact(tmp_path: Path, seed: int) -> None:
    text, headers, model = drawn(seed)
    program = switch(tmp_path, text + " transition accept; }", """hdr.data.setValid(); hdr.data.a = md.r0 ++ md.r1;
                     hdr.data.b = md.g0 ++ md.g1;""", types=TYPES, headers=headers,
                     metadata="bit<16> r0; bit<16> r1; bit<16> g0; bit<16> g1;")
    rng = random.Random(seed)
    for _ in range(30):
        octets = rng.choice((b"\x00", b"\xff", b"\x00\xff", bytes(range(256))))
        frame = bytes(rng.choice(octets) for _ in range(48))
        result = sent(program, frame)[:8]
        values = {name: int.from_bytes(result[2 * i : 2 * i + 2], "big") for i, name in enumerate(("r0", "r1", "g0", "g1"))}
        assert values == model(frame), frame.hex()


def test_a_sum_of_many_words_keeps_its_carry(tmp_path: Path) -> None:
    """The sum of 65,600 words 0xFFFF has more than 32 bits."""
    program = switch(tmp_path, "pkt.extract(hdr.data); transition more; } state more { md.n = md.n + 1; "
                     + "s.add({hdr.data.c}); t.subtract({hdr.data.c}); " * 64
                     + "transition select(md.n) { 1025: end; default: more; } } state end { md.r = s.get(); md.t = t.get(); "
                     "transition accept; }", "hdr.data.a = md.r ++ md.t;", metadata="bit<16> r; bit<16> t; bit<16> n;")
    for c in (0xFFFF, 0xFFFE):
        total = reduced(c * 64 * 1025)
        assert sent(program, data(c=c)) == data(total << 16 | 0xFFFF - total, c=c)


def test_the_last_call_for_a_place_deposits(tmp_path: Path) -> None:
    """In the order of the calls, not of the states in the text; the other object's residual is forgotten."""
    program = switch(tmp_path, """pkt.extract(hdr.data); transition select(hdr.data.d) { 0: first; default: second; } }
        state first { pkt.extract(hdr.a); s.subtract({hdr.a.x}); s.subtract_all_and_deposit(md.r);
            transition select(hdr.b.isValid()) { true: third; false: second; } }
        state second { pkt.extract(hdr.b); t.subtract_all_and_deposit(md.r);
            transition select(hdr.a.isValid()) { true: third; false: first; } }
        state third { pkt.extract(hdr.c); transition accept; }""", types=TYPES, headers="odd_t a; odd_t b; pair_t c;")
    a, b, c = b"\x81\x12\x34", b"\x82\x56\x78", b"\x01\x02\x03\x04"
    assert sent(program, data(d=0) + a + b + c) == data(0xFFFF - reduced(words(c)), d=0)
    assert sent(program, data(d=1) + b + a + c) == data(0xFFFF - reduced(words(a[:1]) + words(b"\0" + c)), d=1)


def test_each_header_of_a_stack_gets_the_residual_of_its_call(tmp_path: Path) -> None:
    program = switch(tmp_path, """pkt.extract(hdr.data); transition more; } state more { pkt.extract(hdr.items.next);
        s.subtract_all_and_deposit(hdr.items.last.r); transition select(hdr.items.last.left) { 0: accept; default: more; } }""",
                     "", types=ITEM, headers="item_t[4] items;", deparser="pkt.emit(hdr);")
    items = [bytes([left, 0, left, 7 + left]) for left in (3, 2, 1, 0)]
    for count in range(1, 5):
        taken = items[-count:]
        residuals = [0xFFFF - reduced(words(b"".join(taken[i + 1 :]))) for i in range(count)]
        expected = b"".join(item[:1] + r.to_bytes(2, "big") + item[3:] for item, r in zip(taken, residuals, strict=True))
        frame = sent(program, data(1) + b"".join(taken) + b"payload")
        assert frame in (expected + data(1) + b"payload", data(1) + expected + b"payload")


def test_a_parser_s_own_changes_are_in_no_residual(tmp_path: Path) -> None:
    """It is less what the packet had: neither what the parser assigns nor another residual."""
    program = switch(tmp_path, """s.subtract_all_and_deposit(hdr.a.y); t.subtract_all_and_deposit(md.r); pkt.extract(hdr.a);
        hdr.a.x = 0x55; pkt.extract(hdr.data); transition accept; }""", types=TYPES, headers="odd_t a;",
                     deparser="pkt.emit(hdr);")
    rest = 0xFFFF - reduced(words(b"\x01\x23\x45" + data(3, 4)))
    assert sent(program, b"\x01\x23\x45" + data(3, 4)) == b"\x55" + rest.to_bytes(2, "big") + data(rest, 4)


@pytest.mark.parametrize("place", ["all.r", "all.a.y", "all.wide[23:8]"])
def test_a_residual_of_a_parser_in_a_parser_counts_until_the_outermost_ends(tmp_path: Path, place: str) -> None:
    """It goes to where the parameter's argument is."""
    program = switch(tmp_path, "pkt.extract(hdr.data); outer.apply(pkt, md.all, md.r); pkt.extract(hdr.c); transition accept; }",
                     f"hdr.data.a[15:0] = md.{place}; hdr.data.c = md.r;", headers="pair_t c;", metadata="all_t all; bit<16> r;",
                     parser_locals="Outer() outer;", types=TYPES + f"""struct all_t {{ bit<16> r; bit<32> wide; odd_t a; }}
        parser Inner(packet_in pkt, inout all_t all, out bit<16> r) {{ Checksum() s; state start {{ pkt.extract(all.a);
            s.subtract_all_and_deposit({place}); s.subtract_all_and_deposit(r); transition accept; }} }}
        parser Outer(packet_in pkt, inout all_t all, out bit<16> r) {{ Inner() inner; state start {{
            inner.apply(pkt, all, r); transition accept; }} }}""")
    rest = 0xFFFF - reduced(words(b"\1\2\3\4"))
    assert sent(program, data(1) + b"\5\6\7" + b"\1\2\3\4") == data(rest, c=rest)


def test_a_residual_in_an_argument_that_is_copied_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="a residual in an argument that overlaps another one"):
        switch(tmp_path, "pkt.extract(hdr.data); inner.apply(pkt, md.a, md.a.y); transition accept; }",
               parser_locals="Inner() inner;", metadata="odd_t a; bit<16> r;", types=TYPES + """
               parser Inner(packet_in pkt, inout odd_t a, inout bit<16> r) { Checksum() s; state start {
                   s.subtract_all_and_deposit(r); transition accept; } }""")


@pytest.mark.parametrize("width", [8, 12, 32])
def test_a_residual_has_16_bits(tmp_path: Path, width: int) -> None:
    path = tmp_path / "program.p4"
    path.write_text(tna_program.source(
        metadata=f"bit<{width}> r;", parser_locals="Checksum() s;",
        parser=START + "s.subtract_all_and_deposit(md.r); pkt.extract(hdr.data); transition accept; }",
    ))
    checked = frontend.load(path)
    with pytest.raises(CompileError, match=f"a residual of type bit<{width}>"):
        lower(checked)
    with pytest.raises(InterpreterError, match=f"a residual of type bit<{width}>"):
        Interpreter(checked).process(data(), 0)
