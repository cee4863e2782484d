"""The front end as a whole: preprocessing, positions, errors, the checked program."""

import dataclasses
from pathlib import Path

import pytest

from ina.p4.compiler import ast, types
from ina.p4.compiler.errors import CompileError, render
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.compiler.frontend import load, parse_text

pytestmark = pytest.mark.fast
PROGRAM = """
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>
header data_t { bit<8> kind; bit<32> value; }
struct headers { data_t data; }
struct metadata { bit<32> old; }
parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.kind) { 1: accept; default: reject; }
    }
}
control Nothing(inout headers hdr, inout metadata meta) { apply {} }
control Sum(inout headers hdr, inout metadata meta)(bit<32> slots) {
    register<bit<32>, bit<32>>(slots) values;
    @name("add_value") action add(bit<32> slot) {
        values.read(meta.old, slot);
        hdr.data.value = hdr.data.value + meta.old;
        values.write(slot, hdr.data.value);
    }
    table places {
        key = { hdr.data.kind: exact; }
        actions = { add; NoAction; }
    }
    apply { places.apply(); }
}
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Sum(4 * 128) first;
    @name("other") Sum(16) second;
    apply {
        if (hdr.data.isValid()) { first.apply(hdr, meta); second.apply(hdr, meta); }
        std.egress_spec = 1;
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply {} }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
"""


def write(directory: Path, text: str, name: str = "program.p4") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def failure(path: Path, **options) -> CompileError:
    with pytest.raises(CompileError) as caught:
        load(path, **options)
    return caught.value


def test_a_whole_program(tmp_path):
    program = load(write(tmp_path, PROGRAM))
    assert program.main.decl.name == "V1Switch"
    assert list(program.main.args) == ["p", "vr", "ig", "eg", "ck", "dep"]
    ingress = program.main.args["ig"]
    assert isinstance(ingress.decl, ast.ControlDecl) and ingress.name == "I"
    first, second = ingress.children["first"], ingress.children["second"]
    assert first.name == "I.first" and second.name == "I.other"
    assert first.args == {"slots": 512} and second.args == {"slots": 16}
    assert first.cp_names == {"add": "I.first.add_value", "places": "I.first.places"}
    assert first.children["values"].args == {"size": 512}
    assert program.errors[:2] == ["NoError", "PacketTooShort"]
    assert program.match_kinds == ["exact", "ternary", "lpm", "range", "optional", "selector"]
    assert program.types["data_t"].fields["value"].type == types.BitType(32)
    assert program.warnings == []


def children(node: ast.Node):
    """Sub-nodes as written, not the declarations that names refer to."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.init and field.name not in ("type_params", "annotations"):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.Node) and not isinstance(item, ast.TypeRef):
                    yield item


def test_every_expression_of_a_checked_program_has_a_type(tmp_path):
    program = load(write(tmp_path, PROGRAM))
    pending, types = list(program.declarations), set()
    while pending:
        node = pending.pop()
        pending += children(node)
        if isinstance(node, ast.Expr):
            assert node.type is not None, f"{ast.source_text(node)} at {node.span}"
            types.add(type(node))
    assert {ast.Name, ast.Member, ast.Call, ast.Binary, ast.IntLiteral} <= types


def test_positions_survive_macros_and_includes(tmp_path):
    write(tmp_path, "\n\nstruct s_t { bit<8> a; }\nconst bit<8> WRONG = undefined_name;\n", "part.p4")
    error = failure(write(tmp_path, '#define X 1\n#include "part.p4"\n'))
    assert error.span[1:] == (4, 22, 14)
    assert error.span.file == str(tmp_path / "part.p4")
    two = "#define TWO const bit<8> a = d; const bit<8> b = c;\n"
    error = failure(write(tmp_path, two + "TWO bool f() { return zz; }\n"))
    assert [d.span[1:] for d in error.diagnostics] == [(2, 1, 3), (2, 1, 3), (2, 23, 2)]
    error = failure(write(tmp_path, "#define ONE(x) const bit<8> x = y;\n\n   ONE(abc)   ONE(def)\n"))
    assert [d.span[1:] for d in error.diagnostics] == [(3, 4, 3)]  # the macro, and once
    error = failure(write(tmp_path, "/* two\nlines */ const   bit<8>    a  = 1   +   b; // x\n"))
    assert error.span[1:3] == (2, 41)


def test_an_error_shows_line_caret_and_suggestion(tmp_path):
    path = write(tmp_path, PROGRAM.replace("hdr.data.value + meta.old", "hdr.data.valeu + meta.old"))
    error = failure(path)
    line = 1 + PROGRAM[: PROGRAM.index("hdr.data.value + ")].count("\n")
    assert str(error).splitlines()[:4] == [
        f"{path}:{line}:35: error: 'hdr.data' of type data_t has no field 'valeu'",
        "            hdr.data.value = hdr.data.valeu + meta.old;",
        "                                      ^~~~~",
        "note: did you mean 'value'?",
    ]


def test_warnings_are_shown_like_errors(tmp_path):
    path = write(tmp_path, "const bit<4> A = 16;\n")
    program = load(path)
    assert render(program.warnings, program.sources, "warning").splitlines() == [
        f"{path}:1:18: warning: 16 does not fit into bit<4> (0..15): it is cut to 0",
        "    const bit<4> A = 16;",
        "                     ^~",
    ]


def test_tabs_keep_the_caret_in_place(tmp_path):
    error = failure(write(tmp_path, "const bit<8> A =\tB;\n"))
    assert str(error).splitlines()[1:] == ["    const bit<8> A =\tB;", "                    \t^"]


def test_errors_are_collected_and_do_not_cascade(tmp_path):
    text = PROGRAM.replace("meta.old, slot", "meta.old, sloth").replace("std.egress_spec = 1", "std.egress_spec = true")
    text = text.replace("bit<32> slots) {", "bit<32> slots) {\n bit<8> broken = nothing;\n bit<8> fine = broken;")
    messages = [d.message for d in failure(write(tmp_path, text)).diagnostics]
    assert messages == [
        "name 'nothing' is not declared",
        "name 'sloth' is not declared",
        "value assigned to 'std.egress_spec' must be bit<9>, not bool",
    ]


def test_include_not_found_says_where_it_looked(tmp_path):
    path = write(tmp_path, '// first\n  #include "nowhere.p4"\n')
    error = failure(path, include_dirs=[tmp_path / "extra"])
    assert error.message == "include file 'nowhere.p4' not found"
    assert error.span[1:3] == (2, 3)
    assert "extra" in str(error) and "include_dirs" in str(error)


def test_include_dirs_and_defines(tmp_path):
    extra = tmp_path / "extra"
    extra.mkdir()
    write(extra, "const bit<16> FROM_EXTRA = N;\n", "lib.p4")
    program = load(
        write(tmp_path, "#include <lib.p4>\n#ifndef N\n#error no N\n#endif\n"),
        defines={"N": "77"},
        include_dirs=[extra],
    )
    constant = program.declarations[0]
    assert constant.value.const == 77 and constant.type == types.BitType(16)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("A", "A+1"),  # through B and back: a name is not expanded within its own expansion
        ("PAIR(A)", "[A+1PAIR]{A+1}"),
        ("EMPTY()y EMPTY()", "zeroyzero"),
        ("INDIRECT(CAT(x,1), __LINE__)", "x116"),
        ('STR(a  "b" c)', '"a\\"b\\"c"'),
        ("VARIADIC(foo, 1, (2, 3))", "foo(1,(2,3))"),
        ("VARIADIC(foo)", "foo()"),
        ("SELF(SELF(2))", "SELF(SELF(2+1)+1)"),
        ("NAME(3) NAME", "[3PAIR]{3}PAIR"),
        ("PAIR /* far */ (\n9\n)", "[9PAIR]{9}"),
        ("LOUD", "PAIR(1)"),
    ],
)
def test_macros(tmp_path, use, expected):
    """Expansion by the rules of C: gcc -E gives the same."""
    text = """#define A B
#define B A + 1
#define PAIR(x) LEFT(x) RIGHT(x)
#define LEFT(x) [x PAIR]
#define RIGHT(x) {x}
#define EMPTY() zero
#define CAT(a, b) a##b
#define INDIRECT(a, b) CAT(a, b)
#define STR(x) #x
#define VARIADIC(f, ...) f(__VA_ARGS__)
#define SELF(x) SELF(x + 1)
#define NAME PAIR
#define NOTHING
#define LOUD PAIR NOTHING (1)

"""
    expanded, _ = preprocess(write(tmp_path, text + use + "\n"))
    lines = [line for line in expanded.splitlines() if not line.startswith("#line")]
    assert "".join("".join(lines).split()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#define F(a) a\nF(1, 2)\n", "macro 'F' takes 1 arguments, not 2"),
        ("#define F(a) a\nF(1\n", "arguments of macro 'F' are never closed: expected ')'"),
        ("#error stop here\n", "#error stop here"),
        ("#inclde <core.p4>\n", "unknown preprocessor directive #inclde"),
        ("#ifndef\n#endif\n", "#ifndef needs a name"),
        ("#ifdef\n#endif\n", "#ifdef needs a name"),
        ("#undef\n", "#undef needs a name"),
        ("#define\n", "#define needs a name"),
        ("#if\n#endif\n", "#if needs a condition"),
        ("#include\n", "#include needs a file"),
        ("#if !defined\n#endif\n", "#if: 'defined' needs a name"),
        ('#include "program.p4"\n', "#include nested more than 64 deep"),
    ],
)
def test_preprocessor_errors(tmp_path, text, message):
    assert failure(write(tmp_path, text)).message == message


def test_shifts_in_conditions(tmp_path):
    """As cpp has them: 64 bits, of which large shifts leave none."""
    condition = "(1 << 65536) == 0 && (-1 >> 70) == -1 && (4 >> 20000000000) == 0 && (1 << 20000000000) == 0"
    text, _ = preprocess(write(tmp_path, f"#if {condition}\nright\n#endif\n"))
    assert "right" in text


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.p4")


def test_both_revisions_of_v1model(tmp_path):
    old = "#include <v1model.p4>\ncontrol c() { register<bit<8>>(4) r; apply { bit<8> x; r.read(x, 3); } }\n"
    assert load(write(tmp_path, old)).types["register"].type_params[0].name == "T"
    new = old.replace("bit<8>>(4)", "bit<8>, bit<4>>(4)")
    assert load(write(tmp_path, "#define V1MODEL_VERSION 20200408\n" + new)).main is None
    error = failure(write(tmp_path, new))
    assert error.message == "extern register takes 1 type argument, not 2"
    assert "V1MODEL_VERSION" in str(error)


def test_line_markers_without_the_preprocessor():
    program = parse_text('#line 7 "other.p4"\nconst bit<8> a = 1;\n# 20\nconst bit<8> b = 2;\n', "given.p4")
    spans = [d.span for d in program.declarations]
    assert [(s.file, s.line) for s in spans] == [("other.p4", 7), ("other.p4", 20)]


def test_deep_nesting_is_an_error_not_a_crash(tmp_path):
    deep = "const bit<8> a = " + "(" * 5000 + "1" + ")" * 5000 + ";"
    assert "levels deep" in failure(write(tmp_path, deep)).message
    chain = "const bit<8> a = " + " + ".join(["8w1"] * 5000) + ";"
    assert "levels deep" in failure(write(tmp_path, chain)).message
    fine = "const bit<32> a = " + "(" * 90 + " + ".join(["32w1"] * 200) + ")" * 90 + ";"
    assert load(write(tmp_path, fine)).declarations[0].value.const == 200


def test_a_large_generated_program(tmp_path):
    fields = "".join(f"bit<32> d{i};" for i in range(600))
    registers = "".join(f"register<bit<32>, bit<32>>(64) r{i};\n" for i in range(600))
    steps = "".join(
        f"r{i}.read(v, 3); hdr.big.d{i} = hdr.big.d{i} + v; r{i}.write(3, hdr.big.d{i});\n" for i in range(600)
    )
    text = f"""
        #define V1MODEL_VERSION 20200408
        #include <v1model.p4>
        header big_t {{ {fields} }} struct headers {{ big_t big; }}
        control c(inout headers hdr) {{ {registers} apply {{ bit<32> v; {steps} }} }}
    """
    control = load(write(tmp_path, text)).declarations[-1]
    assert len(control.body.statements) == 1 + 3 * 600
    assert control.body.statements[-1].call.args[1].type == types.BitType(32)


def test_strings_may_span_lines(tmp_path):
    text = '#define inside OUTSIDE\n@a("one // inside\n# 2 inside\\"x") const bit<8> A = B;\n'
    error = failure(write(tmp_path, text))
    assert error.span.line == 3
    program = parse_text(preprocess(write(tmp_path, text))[0], "p.p4")
    assert program.declarations[0].annotations[0].string == 'one // inside\n# 2 inside"x'
