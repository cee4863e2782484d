"""One STF file for each feature of the language and of v1model that is easy to get wrong: the interpreter and the compiled
switch both pass it. The header is a 32 | b 32 | c 16 | d 8 | e 8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from v1_program import source

from ina.compiler import frontend, p4info, stf
from ina.compiler.build import compile_program
from ina.compiler.interpreter import Interpreter
from ina.p4.stf_target import SwitchTarget

FEATURES: dict[str, tuple[dict[str, Any], str]] = {
    "varbit": (
        {
            "types": "header o_t { bit<4> n; bit<4> k; varbit<64> v; bit<8> z; }",
            "headers": "o_t o; o_t q;",
            "parser": """state start { p.extract(hdr.data); p.extract(hdr.o, (bit<32>)hdr.data.d * 8);
                transition accept; }""",
            "ingress": """hdr.data.e = sm.parser_error == error.HeaderTooShort ? 8w1 : 0;
                if (hdr.o.isValid()) { hdr.q = hdr.o; hdr.q.k = 0xF; if (hdr.q.v == hdr.o.v) { hdr.o.z = 0x77; } }""",
        },
        """packet 0 00000000 00000000 0000 03 00  12 aabbcc 34  eeff
        expect 1 00000000 00000000 0000 03 00  12 aabbcc 77  1f aabbcc 34  eeff $
        packet 0 00000000 00000000 0000 00 00  12 34
        expect 1 00000000 00000000 0000 00 00  12 77  1f 34 $
        packet 0 00000000 00000000 0000 09 00  12 010203040506070809 34
        expect 1 00000000 00000000 0000 09 01  12 010203040506070809 34 $""",
    ),
    "wide arithmetic": (
        {
            "types": "header w_t { bit<192> x; int<200> y; }",
            "headers": "w_t w;",
            "parser": "state start { p.extract(hdr.data); p.extract(hdr.w); transition accept; }",
            "ingress": """hdr.w.x = (hdr.w.x + 1) << 8; hdr.w.y = hdr.w.y >> hdr.data.d;
                hdr.data.e = hdr.w.y < -1 ? 8w1 : 8w2; hdr.data.c = hdr.w.x[191:176] ^ (bit<16>)hdr.w.x;""",
        },
        f"""packet 0 00000000 00000000 0000 04 00 {'00' * 8}{'ff' * 16} 80{'00' * 24}
        expect 1 00000000 00000000 0000 04 01 {'00' * 6}01{'00' * 17} f8{'00' * 24} $
        packet 0 00000000 00000000 0000 ff 00 {'ff' * 23}01 {'ff' * 25}
        expect 1 00000000 00000000 fdff ff 02 {'ff' * 22}0200 {'ff' * 25} $""",
    ),
    "arrays": (
        {
            "types": "struct s_t { bit<8> k; bit<8> l; } header x_t { bit<8>[4] v; s_t[2] s; }",
            "headers": "x_t x;",
            "parser": "state start { p.extract(hdr.data); p.extract(hdr.x); transition accept; }",
            "ingress": "hdr.x.v[hdr.data.d] = hdr.x.s[1].l; hdr.x.s[hdr.data.e & 1] = { 8w9, hdr.x.v[3] };",
        },
        """packet 0 00000000 00000000 0000 02 00 01020304 05060708
        expect 1 00000000 00000000 0000 02 00 01020804 09040708 $
        packet 0 00000000 00000000 0000 08 01 01020304 05060708
        expect 1 00000000 00000000 0000 08 01 01020304 05060904 $""",
    ),
    "header unions": (
        {
            "types": "header l_t { bit<8> x; } header r_t { bit<16> y; } header_union u_t { l_t l; r_t r; }",
            "headers": "u_t u; u_t[2] us;",
            "parser": """state start { p.extract(hdr.data); transition select(hdr.data.d) { 0: left; default: right; } }
                state left { p.extract(hdr.u.l); transition accept; }
                state right { p.extract(hdr.us.next.r); transition accept; }""",
            "ingress": """if (hdr.data.e == 1) { hdr.u.r.setValid(); hdr.u.r.y = 0xBEEF; } if (hdr.u.isValid()) {
                hdr.data.c = 1; } if (hdr.us[0].r.isValid()) { hdr.us[1].l.setValid(); hdr.us[1].l.x = 0x11; }""",
        },
        """packet 0 00000000 00000000 0000 00 00 aa
        expect 1 00000000 00000000 0001 00 00 aa $
        packet 0 00000000 00000000 0000 00 01 aa
        expect 1 00000000 00000000 0001 00 01 beef $
        packet 0 00000000 00000000 0000 05 00 aabb
        expect 1 00000000 00000000 0000 05 00 aabb 11 $""",
    ),
    "checksum with payload": (
        {
            "compute": """update_checksum_with_payload(true, { hdr.data.a, hdr.data.b, hdr.data.d, hdr.data.e }, hdr.data.c,
                HashAlgorithm.csum16);""",
        },
        """packet 0 00010002 00030004 ffff 00 05 0006 07
        expect 1 00010002 00030004 f8ea 00 05 0006 07 $""",
    ),
    "assertions end a packet": (
        {"ingress": "assert(hdr.data.d != 1); assume(hdr.data.d != 2);"},
        """packet 0 00000000 00000000 0000 01 00
        packet 0 00000000 00000000 0000 02 00
        packet 0 00000000 00000000 0000 03 00
        expect 1 00000000 00000000 0000 03 00 $""",
    ),
    "meters": (
        {
            "ingress_locals": "meter(4, MeterType.packets) m;",
            "ingress": "m.execute_meter((bit<32>)hdr.data.d, hdr.data.e);",
        },
        """meter_array_set_rates m 0.000000001:1 0.000000001:2
        packet 0 00000000 00000000 0000 01 00
        expect 1 00000000 00000000 0000 01 00 $
        packet 0 00000000 00000000 0000 01 00
        expect 1 00000000 00000000 0000 01 01 $
        packet 0 00000000 00000000 0000 01 00
        expect 1 00000000 00000000 0000 01 02 $
        packet 0 00000000 00000000 0000 02 05
        expect 1 00000000 00000000 0000 02 00 $""",
    ),
    "copy in, copy out": (
        {
            "ingress_locals": """action f(inout bit<8> x, inout bit<8> y) { x = x + 1; y = y + x; }
                action g(in bit<8> x, out bit<8> y) { y = x; exit; }""",
            "ingress": "f(hdr.data.d, hdr.data.d); if (hdr.data.e == 1) { g(8w7, hdr.data.e); } hdr.data.c = 9;",
        },
        """packet 0 00000000 00000000 0000 10 00
        expect 1 00000000 00000000 0009 21 00 $
        packet 0 00000000 00000000 0000 10 01
        expect 1 00000000 00000000 0000 21 07 $""",
    ),
    "loops and switch": (
        {
            "ingress": """for (bit<8> i in 1 .. 5) { if (i == 2) { continue; } if (i > hdr.data.d) { break; }
                hdr.data.a = hdr.data.a + (bit<32>)i; }
                for (bit<8> k = 0; k < hdr.data.e; k = k + 1) { hdr.data.b = hdr.data.b + 2; }
                switch (hdr.data.d) { 1: 2: { hdr.data.c = 12; } 3: { hdr.data.c = 3; } default: { hdr.data.c = 0xFF; } }""",
        },
        """packet 0 00000000 00000000 0000 04 03
        expect 1 00000008 00000006 00ff 04 03 $
        packet 0 00000000 00000000 0000 02 00
        expect 1 00000001 00000000 000c 02 00 $
        packet 0 00000000 00000000 0000 03 00
        expect 1 00000004 00000000 0003 03 00 $""",
    ),
    "resubmit with a field list": (
        {
            "metadata": "@field_list(3) bit<8> kept; bit<8> lost;",
            "ingress": """if (sm.instance_type == 6) { hdr.data.d = meta.kept; hdr.data.e = meta.lost; }
                else { meta.kept = 7; meta.lost = 8; hdr.data.a = 1; resubmit_preserving_field_list(3); }""",
        },
        """packet 0 00000000 00000000 0000 01 02
        expect 1 00000000 00000000 0000 07 00 $""",
    ),
}

@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("target", ["interpreter", "compiled"])
def test_feature(tmp_path: Path, name: str, target: str) -> None:
    program, text = FEATURES[name]
    path = tmp_path / "program.p4"
    path.write_text(source(**{"ingress": "", **program}))
    if target == "interpreter":
        checked = frontend.load(path)
        result = stf.run(text, stf.InterpreterTarget(Interpreter(checked), p4info.build(checked)))
    else:
        switch = SwitchTarget(compile_program(path, cflags=["-O1"]))
        result = stf.run(text, switch)
        switch.switch.close()
    assert result.failures == []
