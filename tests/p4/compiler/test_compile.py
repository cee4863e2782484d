"""The compiler's back end: memory accesses of its programs, code that must stay fast, and refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from v1_program import data, source

from ina.base import paths
from ina.base.cc import BuildError
from ina.base.native import ffi
from ina.p4.compiler import build, frontend, generate
from ina.p4.compiler.errors import CompileError
from ina.p4.runtime.loaded_program import Program

pytestmark = pytest.mark.build
HEADROOM = 128
DROP, UNICAST, MULTICAST, RESUBMIT, RECIRCULATE = range(5)


class Direct:
    """A compiled program without a switch: its state, one packet, and empty tables."""

    def __init__(self, path: Path, **options) -> None:
        self.compiled = build.compile_program(path, **options)
        self.ffi, self.loaded = ffi, Program(self.compiled.so_path)
        self.program = program = self.loaded.pointer
        self.state = self._aligned(program.state_size)
        self.meta = self._aligned(program.meta_size)
        program.init(self.state, 1)
        self.tables = self.ffi.new("uint64_t[]", 1 + program.table_count)
        self.table = self.ffi.new("uint64_t[]", 5 + 64 + 1)
        self.table[5 + 64] = (1 << 64) - 1  # buckets of an exact table, empty
        for i in range(program.table_count):
            self.tables[1 + i] = int(self.ffi.cast("uintptr_t", self.table))

    def _aligned(self, size: int):
        memory = np.zeros(size + 64, np.uint8)
        start = -memory.ctypes.data % 64
        view = memory[start : start + size]
        self.__dict__.setdefault("memory", []).append(memory)
        return self.ffi.cast("uint8_t *", view.ctypes.data)

    def packet(self, frame: bytes, headroom: int = HEADROOM, tailroom: int = 64):
        self.buffer = self.ffi.new("uint8_t[]", b"\xee" * headroom + frame + b"\xee" * tailroom)
        fields = {
            "data": self.buffer + headroom, "len": len(frame), "wire_len": len(frame), "headroom": headroom,
            "tailroom": tailroom, "meta": self.meta,
        }
        return self.ffi.new("struct ina_packet *", fields)

    def ingress(self, pkt) -> int:
        self.program.ingress(self.state, self.ffi.cast("struct ina_tables *", self.tables), pkt, 1, 0)
        return pkt.verdict

    def egress(self, pkt) -> int:
        self.program.egress(self.state, self.ffi.cast("struct ina_tables *", self.tables), pkt, 1, 0)
        return pkt.verdict

    def frame(self, pkt) -> bytes:
        return bytes(self.ffi.buffer(pkt.data, pkt.len))

    def send(self, frame: bytes, **room: int) -> bytes | None:
        """Runs ingress and, unless dropped, egress of one copy; returns the frame that leaves."""
        pkt = self.packet(frame, **room)
        if self.ingress(pkt) not in (UNICAST, MULTICAST) or self.egress(pkt) != UNICAST:
            return None
        assert pkt.headroom == pkt.data - self.ffi.cast("uint8_t *", self.buffer)
        assert pkt.headroom + pkt.len + pkt.tailroom == len(self.buffer) - 1
        return self.frame(pkt)

    def register(self, name: str) -> np.ndarray:
        layout = next(r for r in self.compiled.layout["registers"] if r["name"].endswith(name))
        whole = np.frombuffer(self.ffi.buffer(self.state, self.program.state_size), np.uint8)
        cells = [whole[layout["offset"] + i * layout["stride"] :][: layout["bytes"]] for i in range(layout["size"])]
        return np.array([int.from_bytes(c.tobytes(), "little") for c in cells])


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("INA_CACHE", str(tmp_path_factory.mktemp("cache")))


def write(tmp_path: Path, *args: str, **kwargs: str) -> Path:
    path = tmp_path / "program.p4"
    path.write_text(source(*args, **kwargs))
    return path


def aggregation(n: int, rows: int = 8, width: int = 32, rename=lambda name: name, form: str = "statements") -> str:
    """A program like SwitchML: op 0 stores, 1 adds, 2 loads `n` values of row `row`; one statement per value
    and step.
    """
    r = rename
    t = f"bit<{width}>"
    each = range(n)
    fields = " ".join(f"{t} {r(f'v{i}')};" for i in each)
    registers = " ".join(f"register<{t}>({rows}) {r(f'value{i}')};" for i in each)
    field = [f"hdr.{r('values')}.{r(f'v{i}')}" for i in each]
    cell = [r(f"value{i}") for i in each]
    store = " ".join(f"{cell[i]}.write(meta.{r('row')}, {field[i]});" for i in each)
    if form == "temporaries":
        add = " ".join(
            f"{{ {t} {r('old')}; {cell[i]}.read({r('old')}, meta.{r('row')}); {t} {r('sum')} = {r('old')} + {field[i]};"
            f" meta.{r('flag')} = meta.{r('flag')} | (({r('old')} ^ {r('sum')}) & ({field[i]} ^ {r('sum')}));"
            f" {cell[i]}.write(meta.{r('row')}, {r('sum')}); }}" for i in each
        )
        locals_ = ""
    elif form == "statements":  # one pair of variables for all
        locals_ = f"{t} {r('old')}; {t} {r('sum')};"
        add = " ".join(
            f"{cell[i]}.read({r('old')}, meta.{r('row')}); {r('sum')} = {r('old')} + {field[i]};"
            f" meta.{r('flag')} = meta.{r('flag')} | (({r('old')} ^ {r('sum')}) & ({field[i]} ^ {r('sum')}));"
            f" {cell[i]}.write(meta.{r('row')}, {r('sum')});" for i in each
        )
    else:  # an action for each value
        locals_ = " ".join(
            f"action {r(f'add{i}')}(in bit<32> {r('at')}) {{ {t} {r('old')}; {cell[i]}.read({r('old')}, {r('at')});"
            f" {t} {r('sum')} = {r('old')} + {field[i]};"
            f" meta.{r('flag')} = meta.{r('flag')} | (({r('old')} ^ {r('sum')}) & ({field[i]} ^ {r('sum')}));"
            f" {cell[i]}.write({r('at')}, {r('sum')}); }}" for i in each
        )
        add = " ".join(f"{r(f'add{i}')}(meta.{r('row')});" for i in each)
    load_ = " ".join(f"{cell[i]}.read({field[i]}, meta.{r('row')});" for i in each)
    return source(
        f"meta.{r('row')} = hdr.data.a; if (hdr.data.d == 0) {{ {store} }} else if (hdr.data.d == 1) {{ {add} }}"
        f" else {{ {load_} }} hdr.data.b = (bit<32>)meta.{r('flag')};",
        types=f"header {r('values_t')} {{ {fields} }}",
        headers=f"{r('values_t')} {r('values')};",
        metadata=f"bit<32> {r('row')}; {t} {r('flag')};",
        parser=f"state start {{ p.extract(hdr.data); p.extract(hdr.{r('values')}); transition accept; }}",
        ingress_locals=registers + locals_,
    )


def values_frame(row: int, op: int, values: np.ndarray) -> bytes:
    return data(a=row, d=op) + values.astype(values.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    ("n", "width", "form"),
    [(8, 32, "statements"), (31, 32, "temporaries"), (256, 32, "temporaries"), (100, 32, "actions"),
     (64, 16, "temporaries"), (33, 64, "statements"), (40, 8, "actions")],
)
def test_fused_rows(tmp_path, n, width, form):
    """Results as with NumPy; the values of a row are adjacent, and loops cover all of them."""
    path = tmp_path / "program.p4"
    path.write_text(aggregation(n, width=width, form=form))
    program = Direct(path)
    kind = np.dtype(f"u{width // 8}")
    layout = [r for r in program.compiled.layout["registers"] if "value" in r["name"]]
    assert [r["offset"] - layout[0]["offset"] for r in layout] == [i * width // 8 for i in range(n)]
    assert layout[0]["offset"] % 64 == 0 and layout[0]["stride"] % (64 if n * width > 256 else 32) == 0
    c = program.compiled.c_path.read_text()
    assert (
        set(re.findall(r"for \(uint32_t i = 0; i < (\d+); i\+\+\)", c)) == {str(n)}
    )
    rng = np.random.default_rng(n)
    rows = np.zeros((8, n), kind)
    for _ in range(60):
        row, op = int(rng.integers(0, 10)), int(rng.integers(0, 3))
        values = rng.integers(0, 1 << width, n, dtype=np.uint64, endpoint=False).astype(kind)
        frame = values_frame(row, op, values)
        expected, flag = values.copy(), 0
        old = rows[row] if row < 8 else np.zeros(n, kind)
        if op == 0 and row < 8:
            rows[row] = values
        elif op == 1:
            total = old + values
            flag = int(np.bitwise_or.reduce((old ^ total) & (values ^ total)))
            if row < 8:
                rows[row] = total
        elif op == 2:
            expected = old.copy()
        sent = program.send(frame + b"tail")
        assert sent[12:-4] == expected.astype(kind.newbyteorder(">")).tobytes()
        assert int.from_bytes(sent[4:8], "big") == flag & 0xFFFFFFFF
        assert sent[-4:] == b"tail"
    for i in range(n):
        assert (program.register(f"value{i}") == rows[:, i]).all()


@pytest.mark.parametrize("form", ["metadata", "locals", "controls"])
def test_other_ways_to_write_it(tmp_path, form):
    """Reading, adding and writing in three sweeps through metadata or local variables; one control instance per value; the
    index in a header."""
    n, types, metadata = 24, f"header values_t {{ {' '.join(f'bit<32> f{i};' for i in range(24))} }}", ""
    if form == "metadata":
        locals_ = " ".join(f"register<bit<32>>(4) r{i};" for i in range(n))
        metadata = " ".join(f"bit<32> t{i};" for i in range(n))
        sweeps = ["r{i}.read(meta.t{i}, hdr.data.a);", "meta.t{i} = meta.t{i} + hdr.v.f{i};",
                  "r{i}.write(hdr.data.a, meta.t{i}); hdr.v.f{i} = meta.t{i};"]
        body = " ".join(sweep.format(i=i) for sweep in sweeps for i in range(n))
    elif form == "locals":
        locals_ = " ".join(f"register<bit<32>>(4) r{i};" for i in range(n))
        sweeps = ["bit<32> t{i};", "r{i}.read(t{i}, hdr.data.a);", "if (hdr.v.f{i} != 0) {{ t{i} = t{i} + hdr.v.f{i}; }}",
                  "r{i}.write(hdr.data.a, t{i});", "hdr.v.f{i} = t{i};"]
        body = " ".join(sweep.format(i=i) for sweep in sweeps for i in range(n))
    else:
        types += """ control One(in bit<32> row, inout bit<32> v) { register<bit<32>>(4) r;
            apply { bit<32> t; r.read(t, row); t = t + v; r.write(row, t); v = t; } }"""
        locals_ = " ".join(f"One() o{i};" for i in range(n))
        body = " ".join(f"o{i}.apply(hdr.data.a, hdr.v.f{i});" for i in range(n))
    path = write(
        tmp_path, body, types=types, headers="values_t v;", metadata=metadata, ingress_locals=locals_,
        parser="state start { p.extract(hdr.data); p.extract(hdr.v); transition accept; }",
    )
    program = Direct(path)
    c = program.compiled.c_path.read_text()
    assert c.count(f"i < {n}; i++") >= 2 and len(c.splitlines()) < 600
    values = np.arange(n, dtype=np.uint32)
    for row, times in ((1, 1), (3, 1), (1, 2), (4, 1), (4, 1)):
        sent = np.frombuffer(program.send(values_frame(row, 0, values))[12:], ">u4")
        assert (sent == values * times).all()


def test_names_change_nothing(tmp_path):
    """Programs that differ only in identifiers become the same C except for its names."""
    texts = []
    for k, rename in enumerate([lambda s: s, lambda s: "x" + s[::-1].replace("_", "q") + "z"]):
        path = tmp_path / f"program{k}.p4"
        path.write_text(aggregation(20, rename=rename, form="temporaries"))
        text, _, _ = generate.generate(frontend.load(path))
        code = text[text.index("INA_INLINE void ingress_one") : text.index("extern const struct ina_program")]
        numbers: dict[str, int] = {}
        code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
        code = re.sub(r"\b[A-Za-z_]\w*", lambda m, n=numbers: f"v{n.setdefault(m[0], len(n))}", code)
        texts.append(code.split())
    assert texts[0] == texts[1]


def test_the_c_text_reads_like_the_program(tmp_path):
    """Names of the program, and a comment with file, line and text for each of its statements and states."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "rule.p4").write_text("if (hdr.data.b == 7) {\n    hdr.data.c = meta.limit; /* a note */\n}\n")
    path = write(
        tmp_path,
        '\nmeta.limit = (bit<16>)hdr.data.d;\n#include "include/rule.p4"\nr.write(0, hdr.data.a);\nt.apply();\n',
        metadata="bit<16> limit; bit<16> unread;",
        ingress_locals='''register<bit<32>>(4) r;
            action to(bit<9> port) { sm.egress_spec = port; }
            table t { key = { hdr.data.a: exact; } actions = { to; NoAction; } }''',
    )
    text = build.compile_program(path).c_path.read_text()
    program = path.read_text().splitlines()
    line = next(n for n, x in enumerate(program, 1) if "meta.limit =" in x)
    statements = [" ".join(x.split()) for x in text.splitlines()]
    for fragment in (
        f"/* {path.name}:{line}: {program[line - 1].strip()} */ meta_limit = ina_load8(hdr_data + 10 /* d */);",
        "/* include/rule.p4:1: if (hdr.data.b == 7) { */ if (ina_load32(hdr_data + 4 /* b */) == 7u) {",
        "/* include/rule.p4:2: hdr.data.c = meta.limit; / * a note * / */",
        "reg_r(0u) = ina_load32(hdr_data /* a */);",
        "{ /* table I.t: hdr.data.a exact */",
        "case 0u: { /* I.to */",
    ):
        assert fragment in " ".join(statements), fragment
    assert "unread" not in text


def test_a_parser_that_extracts_nothing(tmp_path):
    """No header has an offset, and the whole frame leaves."""
    program = Direct(write(tmp_path, "hdr.data.a = 5;", parser="state start { transition accept; }"))
    assert program.send(data(a=1) + b"tail") == data(a=1) + b"tail"


def test_runs_that_are_no_loops_stay_as_they_are(tmp_path):
    """Adjacent statements that depend on each other, values used later, one statement that differs: all in program order."""
    n = 16
    shift = " ".join(f"hdr.values.v{i + 1} = hdr.values.v{i} + 1;" for i in range(n - 1))
    odd = " ".join(f"hdr.values.v{i} = hdr.values.v{i} + {7 if i == 9 else 1};" for i in range(n))
    copies = " ".join(f"bit<32> t{i} = hdr.values.v{i};" for i in range(n))
    back = " ".join(f"hdr.values.v{i} = t{n - 1 - i};" for i in range(n))
    path = write(
        tmp_path, f"if (hdr.data.d == 0) {{ {shift} }} else if (hdr.data.d == 1) {{ {odd} }} else {{ {copies} {back} }}",
        types=f"header values_t {{ {' '.join(f'bit<32> v{i};' for i in range(n))} }}", headers="values_t values;",
        parser="state start { p.extract(hdr.data); p.extract(hdr.values); transition accept; }",
    )
    program = Direct(path)
    values = np.arange(100, 100 + n, dtype=np.uint32)
    add = np.where(np.arange(n) == 9, 7, 1)
    for op, expected in ((0, 100 + np.arange(n)), (1, values + add), (2, values[::-1])):
        sent = np.frombuffer(program.send(values_frame(0, op, values))[12:], ">u4")
        assert (sent == expected).all(), op


MOVING = {
    "types": f"header bulk_t {{ {' '.join(f'bit<32> v{i};' for i in range(16))} }} header tag_t {{ bit<32> t; }}",
    "headers": "tag_t tag; bulk_t first; bulk_t second;",
    "parser": "state start { p.extract(hdr.data); p.extract(hdr.first); p.extract(hdr.second); transition accept; }",
}


@pytest.mark.parametrize(
    ("statements", "order"),
    [
        ("", ["data", "first", "second"]),
        ("hdr.tag.setValid(); hdr.tag.t = 0x74616721;", ["data", "tag", "first", "second"]),
        ("hdr.first.setInvalid();", ["data", "second"]),
        ("hdr.data.setInvalid();", ["first", "second"]),
        ("hdr.second.setInvalid();", ["data", "first"]),
        ("hdr.first.setInvalid(); hdr.tag.setValid(); hdr.tag.t = 0x74616721;", ["data", "tag", "second"]),
        ("bulk_t x = hdr.first; hdr.first = hdr.second; hdr.second = x;", ["data", "second", "first"]),
        ("hdr.first = hdr.second;", ["data", "second", "second"]),
        ("hdr.second = hdr.first; hdr.first.setInvalid(); hdr.data.setInvalid();", ["first"]),
    ],
)
@pytest.mark.parametrize("headroom", [128, 2])
def test_headers_that_move(tmp_path, statements, order, headroom):
    program = Direct(write(tmp_path, statements, **MOVING))
    parts = {"data": data(1, 2, 3, 4, 5), "first": bytes(range(64)), "second": bytes(range(100, 164)), "tag": b"tag!"}
    frame = parts["data"] + parts["first"] + parts["second"] + b"rest"
    assert program.send(frame, headroom=headroom) == b"".join(parts[name] for name in order) + b"rest"


def test_no_room_to_grow_drops(tmp_path):
    program = Direct(write(tmp_path, "hdr.tag.setValid();", **MOVING))
    frame = data() + bytes(128)
    assert program.send(frame, headroom=1, tailroom=2) is None
    assert program.send(frame, headroom=1, tailroom=3) is not None


def test_runts_and_every_short_length(tmp_path):
    program = Direct(
        write(tmp_path, "if (sm.parser_error != error.NoError) { hdr.data.a = 9; hdr.data.e = 1; }", **MOVING)
    )
    frame = data(1, 2, 3, 4, 5) + bytes(range(128))
    for length in range(len(frame)):
        sent = program.send(frame[:length])
        changed = data(9, 2, 3, 4, 1) + frame[12:length] if length >= 12 else frame[:length]
        assert sent == changed, length


def test_resubmitting_programs_leave_the_frame_alone(tmp_path):
    values = " ".join(f"hdr.first.v{i} = hdr.first.v{i} + 1;" for i in range(16))
    program = Direct(
        write(tmp_path, f"{values} if (sm.instance_type == 0) {{ resubmit_preserving_field_list(1); }}", **MOVING)
    )
    frame = data() + bytes(128)
    pkt = program.packet(frame)
    assert program.ingress(pkt) == RESUBMIT
    assert program.frame(pkt) == frame
    pkt.instance_type = 6
    assert program.ingress(pkt) == UNICAST
    assert program.egress(pkt) == UNICAST
    assert program.frame(pkt) == data() + b"\0\0\0\1" * 16 + bytes(64)


def test_a_replica_may_lie_anywhere(tmp_path):
    """Egress works on copies of frame and metadata."""
    program = Direct(write(tmp_path, "hdr.first.v3 = 7;", egress="hdr.second.v2 = 8;", **MOVING))
    frame = data() + bytes(128)
    pkt = program.packet(frame)
    program.ingress(pkt)
    copy = program.ffi.new("uint8_t[]", bytes(program.ffi.buffer(program.buffer)))
    meta = program._aligned(program.program.meta_size)
    program.ffi.memmove(meta, program.meta, program.program.meta_size)
    program.ffi.memmove(program.buffer, b"\xaa" * len(program.buffer), len(program.buffer))
    program.ffi.memmove(program.meta, b"\xaa" * program.program.meta_size, program.program.meta_size)
    pkt.data, pkt.meta = copy + HEADROOM, meta
    assert program.egress(pkt) == UNICAST
    expected = bytearray(frame)
    expected[12 + 12 + 3] = 7
    expected[76 + 8 + 3] = 8
    assert program.frame(pkt) == bytes(expected)


@pytest.mark.parametrize(
    ("statements", "kind", "order"),
    [
        ("", 1, ["data", "first", "second"]),  # as in most packets
        ("", 0, ["data", "second"]),
        ("hdr.tag.t = 5;", 1, ["data", "first", "second"]),  # never valid: nothing is kept
        ("hdr.tag.setValid(); hdr.tag.t = 0x74616721;", 1, ["data", "tag", "first", "second"]),
        ("hdr.tag.setValid(); hdr.tag.t = 5; hdr.tag.setInvalid();", 1, ["data", "first", "second"]),
        ("hdr.first.setInvalid();", 1, ["data", "second"]),
        ("hdr.first = hdr.second; hdr.second.v0 = 0x64656667;", 1, ["data", "second", "second"]),
    ],
)
def test_egress_of_usual_packets_and_of_others(tmp_path, statements, kind, order):
    """Egress is generated twice; its effect on a header depends on the headers that ingress left valid."""
    egress = """if (hdr.first.isValid()) { hdr.first.v1 = hdr.second.v2; } else { hdr.second.v1 = 7; }
                if (hdr.tag.isValid()) { hdr.data.b = 9; } else { hdr.data.c = (bit<16>)hdr.tag.t; }"""
    parser = """state start { p.extract(hdr.data); transition select(hdr.data.d) { 1: both; default: one; } }
                state both { p.extract(hdr.first); transition one; }
                state one { p.extract(hdr.second); transition accept; }"""
    path = write(tmp_path, statements, egress=egress, **MOVING | {"parser": parser})
    program = Direct(path)
    assert program.compiled.c_path.read_text().count("egress_one(") == 2  # the function and its call
    assert "as in most packets" in program.compiled.c_path.read_text()
    headers = {"data": bytearray(data(1, 2, 3, kind, 5)), "first": bytearray(range(64)), "second": bytearray(range(100, 164)),
               "tag": bytearray(b"tag!")}
    frame = headers["data"] + (headers["first"] if kind else b"") + headers["second"] + b"rest"
    parts = [(name, bytearray(headers[name])) for name in order]
    names, second = [name for name, _ in parts], headers["second"][8:12]
    if names.count("second") == 2 or "first" in names:
        parts[1 + ("tag" in names)][1][4:8] = second
    else:
        parts[-1][1][4:8] = bytes([0, 0, 0, 7])
    if "tag" in names:
        parts[0][1][4:8] = bytes([0, 0, 0, 9])
    else:
        parts[0][1][8:10] = bytes([0, 5 if "hdr.tag.setInvalid" in statements else 0])
    assert program.send(bytes(frame)) == b"".join(bytes(part) for _, part in parts) + b"rest"


def test_sums_of_headers_in_each_byte_order(tmp_path):
    """Checksums over whole words of a header, and over fields that are not adjacent: with and without carries."""
    fields = {"whole": "hdr.first.v0, hdr.first.v1", "parts": "hdr.first.v1, hdr.data.e, hdr.first.v0, 8w0"}
    programs = {
        name: Direct(
            write(
                tmp_path,
                "hdr.data.d = (bit<8>)sm.checksum_error;",
                verify=f"verify_checksum(true, {{ {text} }}, hdr.data.c, HashAlgorithm.csum16);",
                compute=f"update_checksum(true, {{ {text} }}, hdr.data.c, HashAlgorithm.csum16);",
                **MOVING,
            )
        )
        for name, text in fields.items()
    }
    assert "ina_u32 *)(hdr_first" in programs["whole"].compiled.c_path.read_text()
    rng = np.random.default_rng(3)
    words = [0, 1, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFF0000, 0xFFFFFFFF, *map(int, rng.integers(0, 1 << 32, 40))]
    for a in words:
        for b in words:
            first, second = a.to_bytes(4, "big"), b.to_bytes(4, "big")
            for name, summed in (("whole", first + second), ("parts", second + b"\1" + first + b"\0")):
                total = sum(int.from_bytes(summed[i : i + 2], "big") for i in range(0, len(summed), 2))
                while total >> 16:
                    total = (total & 0xFFFF) + (total >> 16)
                right = total ^ 0xFFFF
                values = first + second + bytes(120)
                for checksum, error in ((right, 0), (right ^ 0x0100, 1)):
                    sent = programs[name].send(data(1, 2, checksum, 3, 1) + values)
                    assert sent == data(1, 2, right, error, 1) + values


def test_a_batch_is_its_packets_one_by_one(tmp_path):
    path = write(
        tmp_path,
        "r.read(hdr.data.b, 0); r.write(0, hdr.data.b + hdr.data.a);",
        ingress_locals="register<bit<32>>(1) r;",
    )
    program = Direct(path)
    n = 5
    pkts = program.ffi.new("struct ina_packet[]", n)
    metas = program._aligned(program.program.meta_size * n)
    buffers = [program.ffi.new("uint8_t[]", bytes(128) + data(a=i + 1) + bytes(64)) for i in range(n)]
    for i in range(n):
        pkts[i].data, pkts[i].len, pkts[i].wire_len = buffers[i] + 128, 12, 12
        pkts[i].headroom, pkts[i].tailroom, pkts[i].meta = 128, 64, metas + i * program.program.meta_size
    program.program.ingress(program.state, program.ffi.NULL, pkts, n, 0)
    program.program.egress(program.state, program.ffi.NULL, pkts, n, 0)
    assert [program.frame(pkts[i])[4:8] for i in range(n)] == [bytes([0, 0, 0, s]) for s in (0, 1, 3, 6, 10)]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ({"types": "extern void other(in bit<32> x);", "ingress": "other(hdr.data.a);"}, "the function 'other'"),
        (
            {"types": "header half_t { bit<4> h; }", "headers": "half_t half;", "egress": "hdr.half.setValid();"},
            "4 bits, which is no whole number of bytes",
        ),
        ({"metadata": "bit<8> m;", "ingress": "clone(CloneType.E2E, 1);"}, "clone other than I2E"),
    ],
)
def test_refusals_name_the_place(tmp_path, program, message):
    path = write(tmp_path, **{"ingress": "", **program})
    with pytest.raises(CompileError, match=message) as error:
        build.compile_program(path)
    assert error.value.span.line > 0 and "program.p4" in str(error.value)


def test_the_cache_knows_what_a_program_depends_on(tmp_path, monkeypatch):
    path = write(tmp_path, "hdr.data.a = N;")
    first = build.compile_program(path, defines={"N": "1"})
    calls = []
    with monkeypatch.context() as patched:  # undo() would also end this test's own cache: others write into the user's
        patched.setattr(generate, "compile_c", lambda *args: calls.append(args))
        assert build.compile_program(path, defines={"N": "1"}) == first
    assert not calls
    other = build.compile_program(path, defines={"N": "2"})
    assert other.so_path != first.so_path and other.source_hash != first.source_hash
    assert not list(other.so_path.parent.glob(".*"))


def test_a_missing_compiler_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler"):
        build.compile_program(write(tmp_path, "hdr.data.a = 1;"))
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no C compiler found"):
        build.compile_program(write(tmp_path, "hdr.data.a = 1;"))


def test_what_is_no_program_is_not_loaded(tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(b"nothing")
    with pytest.raises(OSError, match="x.so"):
        Program(path)


@pytest.mark.parametrize("values", [32, 256])
def test_switchml_compiles_without_warnings_and_in_loops(values):
    compiled = build.compile_program(
        paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values)},
        cflags=["-O2", "-march=native", "-Werror", "-Wshadow"],
    )
    c = compiled.c_path.read_text()
    assert len(c.splitlines()) < 3200
    assert c.count(f"i < {values}; i++") >= 3
    assert compiled.layout["state"]["size"] < 2 * 1024 * (4 * values + 128)


SANITIZED = """
import pathlib, random, sys
sys.path.insert(0, {tests!r})
import folders
import test_compile, test_compile_differential as differential
flags = ["-O1", "-g", "-march=native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
program = test_compile.Direct(pathlib.Path({p4!r}), defines={{"VALUES": "32", "SLOTS": "4"}}, cflags=flags)
rng = random.Random(1)
for _ in range(500):
    program.send(differential.aggregation_frame(rng, 32, 0)[0], headroom=rng.choice([0, 1, 128]))
"""


def test_under_sanitizers(tmp_path):
    """Frames of all lengths in buffers without slack: no access outside of them, no undefined behaviour."""
    script = SANITIZED.format(tests=str(Path(__file__).parent.parent.parent), p4=str(paths.p4_dir() / "switchml.p4"))
    libraries = [
        subprocess.run(
            [*build.c_compiler(), f"-print-file-name={name}"], capture_output=True, text=True
        ).stdout
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {**os.environ, "LD_PRELOAD": ":".join(p.strip() for p in libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=paths.root(), env=environment
    )
    assert process.returncode == 0, process.stderr[-2000:]
