"""Annotations @likely and @unlikely: hints for the C compiler, and a fast path of ingress without unlikely branches. Results
do not change."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_compile import MOVING, Direct, own_cache, write  # noqa: F401
from v1_program import TABLE, data

pytestmark = pytest.mark.build
NOTE = re.compile(r"@(un)?likely")
# The path start, both, one has as many bytes as possible; `kind` chooses.
FORKS = MOVING | {
    "parser": """state start { p.extract(hdr.data); transition select(hdr.data.d) { 1: both; 2: one; 3: reject; _: accept; } }
                 state both { p.extract(hdr.first); transition one; }
                 state one { p.extract(hdr.second); transition accept; }"""
}
REGISTERS = "register<bit<32>>(4) r; register<bit<32>>(4) s;"
RARE = "if (hdr.data.a == 1) @unlikely { hdr.data.c = 5; }"
COUNT = "bit<32> n; r.read(n, hdr.data.b); r.write(hdr.data.b, n + 1);"


@pytest.mark.parametrize(
    ("statements", "wanted"),
    [
        ("if (hdr.data.a == 1) { hdr.data.c = 1; }", []),
        ("if (hdr.data.a == 1) @likely { hdr.data.c = 1; }", ["likely"]),
        ("if (hdr.data.a == 1) @unlikely { hdr.data.c = 1; } else { hdr.data.c = 2; }", ["unlikely"]),
        ("if (hdr.data.a == 1) { hdr.data.c = 1; } else @unlikely { hdr.data.c = 2; }", ["likely"]),
        ("if (hdr.data.a == 1) @unlikely { hdr.data.c = 1; } else if (hdr.data.a == 2) @likely { hdr.data.c = 2; }",
         ["unlikely", "likely"]),
        ("if (hdr.data.a == 1) @unlikely { } else { hdr.data.c = 2; }", ["likely"]),
    ],
)
def test_annotations_are_hints(tmp_path, statements, wanted):
    text = Direct(write(tmp_path, statements)).compiled.c_path.read_text()
    ingress = text[text.index("void ingress_one(") : text.index("static void ingress(")]
    assert re.findall(r"if \(ina_((?:un)?likely)\(.*hdr_data", ingress) == wanted


def frames(count: int = 400) -> list[bytes]:
    """Packets of all kinds, some too short."""
    rng = np.random.default_rng(7)
    result = []
    for _ in range(count):
        a, b, c, d, e = (int(rng.integers(0, n)) for n in (4, 6, 4, 5, 4))
        frame = data(a, b, c, d, e) + rng.bytes(128 + 4)
        result.append(frame[: int(rng.integers(1, len(frame)))] if rng.random() < 0.1 else frame)
    return result


@pytest.mark.parametrize(
    "statements",
    [
        "if (hdr.data.a == 1) @unlikely { sm.egress_spec = 2; } hdr.data.c = 7;",
        "if (hdr.data.a == 1) @likely { sm.egress_spec = 2; } else { mark_to_drop(sm); }",
        "if (hdr.data.a == 1) @likely { hdr.data.c = 9; }",
        # a state change comes first: the packet cannot be restarted
        f"{COUNT} if (hdr.data.a == 1) @unlikely {{ s.write(0, n); mark_to_drop(sm); }}",
        f"if (hdr.data.e == 1) {{ {COUNT} }} if (hdr.data.a == 1) @unlikely {{ s.write(1, hdr.data.b); }}",
        "hdr.data.e = hdr.data.e + 1; " + RARE,
        f"{RARE} {COUNT} if (hdr.data.a == 2) @unlikely {{ hdr.first.setInvalid(); }}",
        # an index out of range is unlikely, too
        f"{RARE} {COUNT} s.read(n, hdr.data.b); hdr.data.a = n;",
        "if (hdr.data.a == 1) @unlikely { exit; } if (hdr.data.a == 2) { return; } hdr.data.c = 5;",
        "if (hdr.data.a == 1) @unlikely { return; } if (hdr.data.a == 2) { exit; } hdr.data.c = 5;",
        "assert(hdr.data.a != 1); if (hdr.data.a == 2) @unlikely { hdr.data.c = 5; }",
        RARE + " assert(hdr.data.a != 2);",
        # headers
        RARE + " hdr.first.setInvalid(); hdr.first.setValid(); hdr.first.v3 = 8;",
        RARE + " hdr.tag.setValid(); hdr.tag.t = 0x74616721;",
        RARE + " hdr.first = hdr.second; hdr.second.v0 = 3;",
        "hdr.tag.setValid(); if (hdr.data.a == 1) @unlikely { hdr.tag.setInvalid(); } hdr.tag.t = 3;",
        "if (sm.parser_error != error.NoError) @unlikely { hdr.data.e = 9; } hdr.second.v1 = hdr.data.a;",
        # tables, and calls of the runtime
        "if (t.apply().hit) @unlikely { hdr.data.c = 3; } hdr.data.a = 3;",
        "if (hdr.data.a == 1) @unlikely { sm.mcast_grp = 5; } else if (hdr.data.a == 2) { clone(CloneType.I2E, 4); }",
        "clone(CloneType.I2E, 4); " + RARE,
        "if (sm.instance_type == 0) { resubmit_preserving_field_list(1); } " + RARE,
        "if (hdr.data.a == 1) @unlikely { random(hdr.data.a, 0, 100); } random(hdr.data.b, 0, 100);",
        "random(hdr.data.b, 0, 100); " + RARE,
        RARE + " for (bit<8> i = 0; i < hdr.data.e; i = i + 1) { hdr.data.b = hdr.data.b + 3; }",
        f"for (bit<8> i = 0; i < hdr.data.e; i = i + 1) {{ {RARE} s.write(0, hdr.data.b); }}",
        RARE + " switch (hdr.data.e) { 1: { hdr.data.b = 3; } 2: { exit; } default: { } }",
    ],
)
def test_packets_do_not_see_them(tmp_path, statements):
    """Verdicts, frames and registers equal those of the same program without annotations, on any path of the packets."""
    egress = "if (hdr.first.isValid()) { hdr.first.v1 = hdr.second.v2; } else { hdr.data.b = hdr.data.b + 1; }"
    locals_ = REGISTERS + TABLE % ("hdr.data.c: exact;", "")
    folders = [tmp_path / "with", tmp_path / "without"]
    for folder in folders:
        folder.mkdir()
    both = [
        Direct(write(folder, text, ingress_locals=locals_, egress=egress, **FORKS))
        for folder, text in zip(folders, (statements, NOTE.sub("", statements)), strict=True)
    ]
    text = [p.compiled.c_path.read_text() for p in both]
    again = ("clone", "resubmit", "for (")  # the frame's bytes are needed again, or statements run twice
    assert ("ingress_usual(" in text[0]) == (not any(word in statements for word in again))
    assert "ingress_usual(" not in text[1]
    verdicts = set()
    for frame in frames():
        outcomes = []
        for program in both:
            pkt = program.packet(frame)
            verdict = program.ingress(pkt)
            at_ingress = (verdict, pkt.clone, pkt.clone_session, pkt.mcast_grp, pkt.egress_port, pkt.field_list)
            sent = program.frame(pkt) if verdict in (1, 2) and program.egress(pkt) == 1 else None
            registers = {r["name"]: program.register(r["name"]).tolist() for r in program.compiled.layout["registers"]}
            outcomes.append((at_ingress, sent, registers))
        assert outcomes[0] == outcomes[1], frame.hex()
        verdicts.add(outcomes[0][0])
    assert verdicts


def test_what_is_unlikely_is_not_in_the_usual_version(tmp_path):
    rare = "if (hdr.data.a == 1) @unlikely { hdr.data.c = 0x1234; }"
    before, after = (
        Direct(write(tmp_path, text, ingress_locals=REGISTERS, **FORKS)).compiled.c_path.read_text()
        for text in (f"{rare} {COUNT}", f"{COUNT} {rare}")
    )
    for text, times in ((before, 1), (after, 2)):
        assert text[text.index("ingress_one(") :].count("4660u") == times
    fast = before[before.index("INA_INLINE int ingress_usual(") :]
    fast = fast[: fast.index("\n}\n")]
    assert "hdr_first == ina_zeros" not in fast and "hdr_second == ina_zeros" not in fast  # they stay where they were extracted


def test_headers_are_not_looked_for_where_egress_knows_them(tmp_path):
    text = Direct(write(tmp_path, "", egress="hdr.first.v1 = hdr.second.v1;", **FORKS)).compiled.c_path.read_text()
    egress = text[text.index("egress_one(") :]
    fast, slow = egress[: egress.index("return;")], egress[egress.index("return;") :]
    assert "hdr_first == ina_zeros" not in fast and "hdr_first == ina_zeros" in slow
