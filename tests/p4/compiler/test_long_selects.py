"""Long selects: a search in place of a row of comparisons, whose C text takes long to compile and long to run."""

from __future__ import annotations

import random

import pytest
from shadow import Shadowed
from v1_program import check, data, source

from ina.p4.compiler import ir
from ina.p4.compiler.lower.lower import lower

STATES = "".join(f"state s{i} {{ hdr.data.e = {i}; transition accept; }}\n" for i in range(8))


def program(keys: str, cases: list[str]) -> str:
    chosen = "".join(f"{case}: s{i % 8};\n" for i, case in enumerate(cases))
    return source(parser=f"state start {{ p.extract(hdr.data); transition select({keys}) {{ {chosen} }} }}\n{STATES}")


@pytest.mark.build
def test_cases_keep_their_order(tmp_path):
    """The first of equal values counts, also across masks, ranges and other cases between."""
    rng = random.Random(1)
    values = [rng.randrange(300) for _ in range(200)]
    one = [*(f"32w{v}" for v in values[:120]), "32w256 &&& 32w0xffffff0f", "0 .. 5", *(f"32w{v}" for v in values[120:]), "32w7"]
    two = [*(f"(8w{v & 255}, -16s{v})" for v in values), "(8w3, _)", "(8w4 .. 8w9, _)"]
    two += [f"(8w{v & 255}, 16s{v})" for v in values]
    wide = [f"(32w{v}, 32w{v}, 8w0)" for v in values]  # 72 bits: compared
    for name, keys, cases in (("one", "hdr.data.b", one), ("two", "hdr.data.d, (int<16>)hdr.data.c", two),
                              ("wide", "hdr.data.a, hdr.data.b, hdr.data.d", [*wide, "default"])):
        path = tmp_path / f"{name}.p4"
        path.write_text(program(keys, cases))
        switch = Shadowed(path, cflags=["-O1"])
        for v in range(320):
            for c in (v, -v & 0xFFFF):
                switch.process(data(v if v % 3 else 1, v, c, v & 255))


@pytest.mark.fast
@pytest.mark.parametrize("keys", ["hdr.data.b", "hdr.data.c, hdr.data.d"])
def test_a_packet_passes_few_comparisons(tmp_path, keys):
    count = 5000
    form = "32w{0}" if keys == "hdr.data.b" else "({0}, {1})"
    cases = [form.format(i, i & 255) for i in range(count)]
    (module,) = lower(check(tmp_path, program(keys, [*cases, "default"])))
    assert longest(module.ingress.body) < 40
    assert sum(len(s.cases) for s in ir.walk(module.ingress.body) if isinstance(s, ir.Switch)) == count


def longest(body: list[ir.Stmt]) -> int:
    """The most choices, and cases of choices, that a packet passes in `body`."""
    passed = 0
    for stmt in body:
        if isinstance(stmt, ir.If | ir.Switch):
            passed += len(stmt.cases) if isinstance(stmt, ir.Switch) else 1
            passed += max(longest(inner) for inner in ir.blocks(stmt))
    return passed
