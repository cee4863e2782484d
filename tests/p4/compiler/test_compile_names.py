"""Text of a program in names, annotations, comments and line markers stays in comments and strings of the C code, or becomes
part of an identifier: P4 sources come over the network, and their code runs in the switch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from capabilities import need

need("cc")

import tna_program  # noqa: E402
import v1_program  # noqa: E402

from ina.base import paths  # noqa: E402
from ina.p4.compiler import build, frontend, generate, ir  # noqa: E402
from ina.p4.compiler.emit.emit import c_string  # noqa: E402
from ina.p4.compiler.emit.names import accessors, c_comment  # noqa: E402
from ina.p4.compiler.front.lexer import RESERVED  # noqa: E402
from ina.p4.compiler.front.preprocess import preprocess  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402

pytestmark = pytest.mark.build
# Texts as in P4 strings; EVIL must not be among the tokens of the C code.
HOSTILE = {
    "end of comment": r"*/ EVIL(); /*",
    "overlapping": r"**// EVIL(); //**/",
    "line": r"x\nEVIL();",
    "carriage return": "x\rEVIL();",
    "directive": r"x */\n#include \"EVIL\"\nEVIL",
    "quote": r"\"; EVIL(); \"",
    "backslash": r"\\\"; EVIL(); //",
    "splice": r"*\\\n/ EVIL();",
    "not ASCII": "é\u2028*/ EVIL(); /*",
}
V1MODEL = """
    #include <core.p4>
    #include <v1model.p4>
    @name("{0}") header h_t {{ @name("{0}a") bit<8> a; bit<8> b; }}
    struct headers_t {{ @name("{0}h") h_t h; }}
    @name("{0}e") enum bit<8> kind_t {{ one = 1, two = 2 }}
    struct learn_t {{ @name("{0}l") bit<8> a; }}
    struct meta_t {{ @name("{0}m") bit<8> m; learn_t l; }}
    @name("{0}P")
    parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
        @name("{0}v") value_set<bit<8>>(4) vs;
        @name("{0}start") state start {{ p.extract(hdr.h); transition select(hdr.h.a) {{ vs: accept; default: next; }} }}
        state next {{ transition accept; }}
    }}
    control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
    @name("{0}I")
    control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
        @name("{0}r") register<bit<32>>(8) r;
        @name("{0}c") counter(4, CounterType.packets) c;
        @name("{0}d") direct_counter(CounterType.packets) d;
        @name("{0}x") meter(4, MeterType.bytes) x;
        @name("{0}act") action act(@name("{0}par") bit<9> port) {{ sm.egress_spec = port; d.count(); }}
        @name("{0}t") table t {{
            key = {{ hdr.h.a: exact @name("{0}k"); hdr.h.b: ternary @name("{0}k2"); }}
            actions = {{ act; @name("{0}n") NoAction; }}
            counters = d; default_action = NoAction();
            @name("{0}p") implementation = action_profile(4);
        }}
        apply {{
            bit<32> v;
            r.read(v, 0); r.write(1, v + 1); c.count(1); x.execute_meter(2, meta.m); // */ EVIL(); /* \\
            meta.l.a = 5; // **// EVIL(); //**/
            if (hdr.h.a == 3) {{ digest<learn_t>(1, meta.l); }}
            switch (hdr.h.b) {{ 1: {{ meta.m = 2; }} default: {{ meta.m = 4; }} }}
            t.apply();
            {1}
        }}
    }}
    control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
    control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
    control D(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr.h); }} }}
    V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
INCLUDES = [f"-I{directory}" for directory in paths.include_dirs()]
WORDS = re.compile(r"(?<![\w.>])[A-Za-z]\w*")
# In this order, as C reads a file: a comment may hold a quote, and a string the beginning of a comment.
SILENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def tokens(c_text: str) -> str:
    return SILENT.sub(" ", c_text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_of_a_program_becomes_code(text, tmp_path):
    _check(V1MODEL.format(text, "meta.m = 7;"), tmp_path)


@pytest.mark.parametrize("name", ["*/ EVIL(); /*", "a\\", "**// EVIL", "dir/*/../*/EVIL(); /*"])
def test_no_name_of_a_file_becomes_code(name, tmp_path):
    """Line markers name files, and comments repeat the names."""
    _check(V1MODEL.format("plain", f'\n# 12 "{name}"\nmeta.m = 7; sm.egress_spec = 3;\n'), tmp_path)


def _v1model(variables: str, uses: str) -> str:
    return V1MODEL.format("plain", uses).replace("            bit<32> v;", f"            bit<32> v; {variables}")


def _tna(variables: str, uses: str) -> str:
    return tna_program.source(
        f"{variables} t.apply(); c.count(0); md.sum = h.get({{ hdr.data.a }}); md.x = r.read(0); {uses}",
        metadata="bit<16> sum; bit<8> x;",
        ingress_locals="""
            Hash<bit<16>>(HashAlgorithm_t.CRC16) h; Random<bit<8>>() many; Register<bit<8>, bit<1>>(2) r;
            Counter<bit<32>, bit<1>>(2, CounterType_t.PACKETS_AND_BYTES) c; DirectCounter<bit<32>>(CounterType_t.BYTES) d;
            action hit() { d.count(); dprsr.drop_ctl = 0; } action miss() { d.count(); }
            table t { key = { hdr.data.a: exact; } actions = { hit; miss; } default_action = miss(); counters = d; }""",
    )


@pytest.mark.parametrize(
    ("program", "word", "use_of"),
    [(_v1model, "found", "bit<8> {0}; random({0}, 8w0, 8w255);"), (_tna, "octets", "bit<8> {0} = many.get();")],
    ids=["v1model", "tna"],
)
def test_variables_have_any_name_that_the_c_code_and_its_headers_have(program, word, use_of, tmp_path):
    """One variable for each word and each macro of the program's C code; they live across table lookups and calls of externs."""
    c_text = _compiled(program("", ""), tmp_path)
    command = ["cc", "-std=gnu11", "-dM", "-E", *INCLUDES, tmp_path / "program.c"]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = {*WORDS.findall(tokens(c_text)), *re.findall(r"#define ([A-Za-z]\w*)", macros)}
    names = sorted(words - {*WORDS.findall(tokens(program("", "")))} - RESERVED)
    assert {word, "SIZE_MAX"} <= {*names} and len(names) > 100, names
    byte = "hdr.h.b" if program is _v1model else "hdr.data.b[7:0]"
    use = " ".join(f"{byte} = {byte} ^ {name};" for name in names)
    _compiled(program(" ".join(use_of.format(name) for name in names), use), tmp_path)


def _compiled(source: str, folder: Path) -> str:
    """The C code of a program; asserts that the C compiler accepts it."""
    path = folder / "program.p4"
    path.write_text("\n".join(line.strip() for line in source.split("\n")), newline="")
    text, sources = preprocess(path)
    program = frontend.check(frontend.parse_text(text, str(path), sources))
    program.sources = sources
    c_text, _, _ = generate.generate(program)
    (folder / "program.c").write_text(c_text)
    command = ["cc", "-std=gnu11", "-fsyntax-only", *INCLUDES, str(folder / "program.c")]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0 and "EVIL" not in process.stderr, process.stderr
    return c_text


def _check(source: str, folder: Path) -> None:
    c_text = _compiled(source, folder)
    assert "EVIL" in c_text, "the text is not in the code at all: this test shows nothing"
    assert not re.search(r"\bEVIL\b", tokens(c_text)), [line for line in c_text.splitlines() if "EVIL" in line]


def test_strings_and_comments_hold_any_text(tmp_path):
    """Compiled and read back, byte by byte; no comment ends before its end."""
    texts = ["", "a" * 5000, "\x00\x01\n\r\t\x7f", 'é"\\?', "??=\\", "\\" * 3001, "?" * 1999 + "\n9", "*/", "/*", "\\\n"]
    lines = [f"{{{c_string(text + '.')}, {len((text + '.').encode())}}}, {c_comment(text)}" for text in texts]
    loop = "for (unsigned i = 0; i < sizeof all / sizeof *all; i++) fwrite(all[i].text, 1, all[i].size, stdout);"
    main = f"int main(void) {{ {loop} }}"
    struct = "static const struct { const char *text; size_t size; } all[]"
    (tmp_path / "a.c").write_text("\n".join(["#include <stdio.h>", f"{struct} = {{", *lines, "};", main]))
    subprocess.run(["cc", "-std=gnu11", "-Wno-overlength-strings", tmp_path / "a.c", "-o", tmp_path / "a"], check=True)
    output = subprocess.run([tmp_path / "a"], capture_output=True, check=True).stdout
    assert output == "".join(text + "." for text in texts).encode()


# Names of registers in P4; each must become a different name in C
ALIKE = [
    ["I.x_a", "I.x.a", "I.y.a"],
    ["I.x.a", "I.y.a", "I.x_a"],
    ["a", "a_2", "x.a", "a-2"],
    ["a-b", "a_b", "a.b", "c.a.b", "a_b_2", "b"],
    ["p.q.r", "p_q.r", "p.q_r", "p_q_r", "r", "q_r"],
]


@pytest.mark.parametrize("names", ALIKE, ids=" ".join)
def test_registers_whose_names_read_alike_have_macros_of_their_own(names):
    for order in (names, names[::-1]):
        registers = [ir.Register(name, 32, 4) for name in order]
        macros = accessors(registers)
        assert len({macros[r] for r in registers}) == len(names), macros
        assert all(re.fullmatch(r"reg_\w+", macro, re.ASCII) for macro in macros.values())


def test_registers_whose_names_read_alike_are_not_mixed_up(tmp_path):
    path = tmp_path / "alike.p4"
    path.write_text(v1_program.source(
        "x.apply(1); y.apply(2); x_a.write(0, 3); y_a.write(0, 4); x.apply(5);",
        ingress_locals="register<bit<32>>(2) x_a; register<bit<32>>(2) y_a; Sub() x; Sub() y;",
        types="control Sub(in bit<32> v) { register<bit<32>>(2) a; apply { a.write(0, v); } }",
    ))
    with Switch(build.compile_program(path).so_path) as switch:
        switch.add_port(0)
        switch.add_port(1)
        assert len(switch.step(bytes(60), 0)) == 1
        assert {name: switch.register(f"I.{name}").tolist()[0] for name in ("x.a", "y.a", "x_a", "y_a")} == {
            "x.a": 5, "y.a": 2, "x_a": 3, "y_a": 4,
        }
