"""Programs that a compiler for Tofino accepts or refuses: one feature each, with the finding of `ina tofino check` ("": none).

A row: name, declarations and `apply` of an ingress control (between test_tofino_check.HEAD and TAIL), verdict of p4c's Tofino
back end (true: accepted), and a part of our finding.
"""

from __future__ import annotations

REGISTER = """
    Register<{cell}, bit<8>>(16) r;
    RegisterAction<{cell}, bit<8>, {out}>(r) act = {{ void apply(inout {cell} v, out {out} o) {{ {body} }} }};
    apply {{ {use} }}"""
USES = {"bit<32>": "meta.y = act.execute(hdr.data.index[7:0]); hdr.data.d = meta.y;",
        "int<32>": "meta.y = (bit<32>)act.execute(hdr.data.index[7:0]); hdr.data.d = meta.y;",
        "bit<8>": "meta.flag = act.execute(hdr.data.index[7:0]); hdr.data.e = (bit<16>)meta.flag;",
        "bit<1>": "meta.flag[0:0] = act.execute(hdr.data.index[7:0]); hdr.data.e[0:0] = meta.flag[0:0];"}


def stateful(cell: str, out: str, body: str) -> str:
    return REGISTER.format(cell=cell, out=out, body=body, use=USES[out])


TWO = """
    Register<bit<32>, bit<8>>(16) r;
    Register<{cell}, bit<8>>(16) s;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) one = {{ void apply(inout bit<32> v, out bit<32> o) {{ v = v + 1; o = v; }} }};
    RegisterAction<{cell}, bit<8>, {cell}>(s) two = {{ void apply(inout {cell} v, out {cell} o) {{ v = v + 1; o = v; }} }};
    action both() {{ meta.x = one.execute({i}); meta.flag = (bit<8>)two.execute({j}); }}
    table t {{ key = {{ hdr.data.a : exact; }} actions = {{ both; }} size = 16; }}
    apply {{ t.apply(); hdr.data.d = meta.x; hdr.data.e = (bit<16>)meta.flag; }}"""
ONE = """
    Register<bit<32>, bit<8>>(16) r;
    RegisterAction<bit<32>, bit<8>, bit<32>>(r) one = {{ void apply(inout bit<32> v, out bit<32> o) {{ v = v + 1; o = v; }} }};
    action count() {{ meta.x = one.execute(hdr.data.index[7:0]); }}
    action other() {{ meta.x = 7; }}
    table t {{ {key} actions = {{ count; {more} }} {default} }}
    apply {{ t.apply(); hdr.data.d = meta.x; }}"""
KEY = "key = { hdr.data.a : exact; }"
ACTION = """
    action act() {{ {body} }}
    table t {{ key = {{ hdr.data.f : exact; }} actions = {{ act; }} size = 16; }}
    apply {{ t.apply(); }}"""
SHAPES = (
    ("a pair of one type", stateful("pair_t", "bit<32>", "v.first = v.first + 1; v.second = hdr.data.a; o = v.first;"), True, ""),
    ("a pair of int and bit", stateful("mixed_t", "bit<32>", "v.second = v.second + 1; o = v.second;"), False,
     "both words of a pair are int or both are bit"),
    ("a word of 24 bits", stateful("bit<24>", "bit<32>", "v = v + 1; o = 0;"), False, "a cell of 24 bits"),
    ("three comparisons", stateful("bit<32>", "bit<32>", "if (v == 1 || v == 2 || v == 3) { v = 0; } o = v;"), False,
     "3 comparisons"),
    ("a sum of three", stateful("bit<32>", "bit<32>", "v = v + hdr.data.a + 1; o = v;"), False, "is 2 operations"),
    ("a product", stateful("bit<32>", "bit<32>", "v = v << 1; o = v;"), False, "has no '<<'"),
    ("a comparison of a sum of three", stateful("bit<32>", "bit<32>", "if (v + hdr.data.a - hdr.data.b > 9) { v = 0; } o = v;"),
     False, "a side of a comparison has one operation"),
    ("a comparison of a slice", stateful("bit<32>", "bit<32>", "if (v[7:0] == 3) { v = 0; } o = v;"), False, "whole words"),
    ("a mask of the packet", stateful("bit<32>", "bit<32>", "if (v & hdr.data.a == 0) { v = 1; } o = v;"), False,
     "the mask of a comparison is a constant"),
    ("a sum of a pair put out", stateful("pair_t", "bit<32>", "v.first = v.first + hdr.data.a; v.second = v.second + hdr.data.b; "
     "o = v.first + v.second;"), False, "goes into a word, and from there out"),
    ("an unsigned constant from 2^31 on", stateful("bit<32>", "bit<32>", "if (v > 32w0x90000000) { v = 0; } o = v;"), False,
     "is less than 2^31"),
    ("a bit that is a field's", stateful("bit<1>", "bit<1>", "v = hdr.data.a[0:0]; o = v;"), False, "set to a constant"),
    ("a signed sum and 0", stateful("pairs_t", "int<32>", "if (v.first + v.second < 0) { v.first = 1; } o = v.second;"),
     True, ""),
    ("a signed sum and another", stateful("pairs_t", "int<32>", "if (v.first + v.second < 9) { v.first = 1; } o = v.second;"),
     True, "where that overflows, not what P4 says"),
    ("a part put out", stateful("bit<8>", "bit<1>", "o = v[0:0]; v = 1;"), True, ""),
    ("two registers, one index", TWO.format(cell="bit<32>", i="hdr.data.index[7:0]", j="hdr.data.index[7:0]"), True,
     "their indices must be the same"),
    ("two registers, two indices", TWO.format(cell="bit<32>", i="hdr.data.index[7:0]", j="hdr.data.c[7:0]"), False,
     "at two indices"),
    ("two registers, two widths", TWO.format(cell="bit<8>", i="hdr.data.index[7:0]", j="hdr.data.index[7:0]"), False,
     "must be of one kind and width"),
    ("a register for an entry", ONE.format(key=KEY, more="other;", default="default_action = other();"), True, ""),
    ("a register where nothing matches", ONE.format(key=KEY, more="other;", default="default_action = count();"), False,
     "it can only do that for an entry"),
    ("a register of a table without a key", ONE.format(key="", more="", default="const default_action = count();"), True, ""),
    ("a register of one of two actions without a key", ONE.format(key="", more="other;", default="default_action = other();"),
     False, "it must be the only action"),
    ("one operation", ACTION.format(body="hdr.data.a = hdr.data.a & hdr.data.b;"), True, ""),
    ("two operations in two steps", ACTION.format(body="hdr.data.a = ~hdr.data.a; hdr.data.a = hdr.data.a + hdr.data.b;"), False,
     "a compiler folds both"),
    ("two operations in one", ACTION.format(body="hdr.data.a = hdr.data.a + hdr.data.b + hdr.data.c;"), False,
     "several operations"),
    ("a condition in an action", ACTION.format(body="if (hdr.data.b == 1) { hdr.data.a = 1; }"), False,
     "a condition in an action"),
    ("two longest prefixes", """
    action act() { hdr.data.a = 1; }
    table t { key = { hdr.data.b : lpm; hdr.data.c : lpm; } actions = { act; } size = 16; }
    apply { t.apply(); }""", False, "beside another longest prefix"),
    ("a comparison of two fields by size", "apply { if (hdr.data.a < hdr.data.b) { hdr.data.c = 1; } }", False,
     "compares two fields by size"),
)
