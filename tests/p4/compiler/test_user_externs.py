"""Externs of a program's own: bodies in C and in Python, which agree."""

from pathlib import Path

import pytest
import tna_program
from v1_program import data, source

from ina.p4 import Switch
from ina.p4 import compile as compile_p4
from ina.p4.compiler import frontend, sandbox
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.compiler.generate import generate
from ina.p4.compiler.reference.interpreter import Interpreter

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_extern"
TWICE = "extern bit<32> twice(in bit<32> value);"
BODY = """
from ina.p4 import UserFunction
class Twice(UserFunction):
    names = ("twice",)
    c_source = "static uint64_t twice(uint64_t value) { return 2 * value; }"
    def call(self, value):
        return 2 * value
"""


def program(tmp_path, types=TWICE, ingress="hdr.data.a = twice(hdr.data.a);", **parts):
    path = tmp_path / "own.p4"
    path.write_text(source(ingress, types=types, **parts))
    return path


def externs(tmp_path, text=BODY):
    path = tmp_path / "own.py"
    path.write_text(text)
    return path


def refused(tmp_path, text, **parts):
    with pytest.raises(CompileError) as raised:
        generate(frontend.load(program(tmp_path, **parts)), externs=externs(tmp_path, text))
    return str(raised.value)


@pytest.mark.build
def test_the_example_computes_the_same_in_c_and_in_python():
    values = [0, 1, 15, 16, 1000, 1_000_000, 2, 3]
    own = EXAMPLE / "average.py"
    switch = Switch(compile_p4(EXAMPLE / "average.p4", externs=own))
    interpreter = Interpreter(frontend.load(EXAMPLE / "average.p4"), externs=own)
    answers = set()
    for value in values:
        frame = value.to_bytes(4) + bytes(12) + b"payload"
        [(port, answer)] = switch.process(3, frame)
        assert [(port, answer)] == interpreter.process(frame, 3)
        root, rest = int.from_bytes(answer[8:12]), int.from_bytes(answer[12:16])
        assert (port, root * root + rest, answer[16:]) == (3, value, b"payload") and rest <= 2 * root
        answers.add(answer[4:8])
    assert len(answers) > 4  # the average moves


@pytest.mark.build
def test_numbers_keep_their_signs_and_widths(tmp_path):
    """Signed ones reach C and Python as negative numbers; results are cut to their types."""
    types = "extern bool shift(in int<8> by, inout bit<4> small, out int<16> large);"
    ingress = """
        bit<4> small = hdr.data.a[3:0];
        int<16> large;
        bool negative = shift((int<8>)(bit<8>)hdr.data.d, small, large);
        hdr.data.e = negative ? 8w1 : 8w0;
        hdr.data.a = (bit<32>)small;
        hdr.data.c = (bit<16>)large;"""
    body = '''
from ina.p4 import UserFunction
class Shift(UserFunction):
    names = ("shift",)
    c_source = """
static uint64_t shift(int64_t by, uint64_t *small, int64_t *large)
{
    *small += 9;
    *large = 1000 * by;
    return by < 0;
}
"""
    def call(self, by, small):
        return by < 0, small + 9, 1000 * by
'''
    path, own = program(tmp_path, types, ingress), externs(tmp_path, body)
    switch, interpreter = Switch(compile_p4(path, externs=own)), Interpreter(frontend.load(path), externs=own)
    for a, d in ((0, 0), (7, 1), (15, 0xFF), (3, 0x80), (9, 0x7F)):
        frame = data(a=a, d=d)
        [(_, answer)] = switch.process(0, frame)
        assert [(1, answer)] == interpreter.process(frame, 0)
        signed = d - 256 if d > 127 else d
        assert int.from_bytes(answer[:4]) == (a + 9) % 16
        assert int.from_bytes(answer[8:10]) == 1000 * signed % 65536 and answer[11] == (signed < 0)


@pytest.mark.build
def test_a_changed_body_is_compiled_again(tmp_path):
    path, own = program(tmp_path), externs(tmp_path)
    [(_, first)] = Switch(compile_p4(path, externs=own)).process(0, data(a=5))
    externs(tmp_path, BODY.replace("2 * value", "3 * value"))
    [(_, second)] = Switch(compile_p4(path, externs=own)).process(0, data(a=5))
    assert (int.from_bytes(first[:4]), int.from_bytes(second[:4])) == (10, 15)


@pytest.mark.fast
def test_an_extern_without_a_body_is_refused(tmp_path):
    with pytest.raises(CompileError, match=r"own.p4:\d+:\d+: .*the function 'twice' is not supported") as raised:
        generate(frontend.load(program(tmp_path)))
    assert "--externs FILE.py" in str(raised.value)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.py: no subclass of UserFunction or UserObject"),
        ("import nothing_of_this_name", "own.py: ModuleNotFoundError"),
        (BODY.replace("uint64_t twice(", "uint64_t thrice("), "the C source of this extern defines no function 'twice'"),
        (BODY.replace('"twice"', '"hash"'), "own.py: Twice: 'hash' is an extern of the architecture"),
        (BODY.replace("c_source =", "text ="), "own.py: Twice has no c_source"),
    ],
)
def test_files_that_are_no_bodies_are_refused(tmp_path, text, message):
    assert message in refused(tmp_path, text)


@pytest.mark.fast
def test_types_that_c_has_not_are_refused(tmp_path):
    types = "extern bit<65> twice(in bit<65> value);"
    message = refused(tmp_path, BODY, types=types, ingress="bit<65> x = twice(65w1); hdr.data.a = x[31:0];")
    assert "at most 64 bits, not bit<65>" in message


@pytest.mark.build
def test_a_controller_cannot_send_a_program_with_externs_of_its_own(tmp_path):
    """Whoever may send programs must not run native code by them: a sent program comes without a file of bodies."""
    text, _ = preprocess(program(tmp_path))
    with pytest.raises(sandbox.NotCompiled, match="the function 'twice' is not supported"):
        sandbox.compile_text(text)


@pytest.mark.build
def test_a_program_for_tofino_has_them_too(tmp_path):
    path, own = tmp_path / "own.p4", externs(tmp_path)
    path.write_text(tna_program.source("hdr.data.a = twice(hdr.data.a);", types=TWICE))
    frame = data(a=21) + bytes(48)
    answers = Switch(compile_p4(path, externs=own)).process(0, frame)
    assert answers == [(1, data(a=42) + bytes(48))]
    assert answers == Interpreter(frontend.load(path), externs=own).process(frame, 0)


HELPED = BODY.replace("from ina.p4 import", "from pathlib import Path\nfrom ina.p4 import")


@pytest.mark.build
@pytest.mark.parametrize("by", ["file", "header"])
def test_changed_c_text_outside_of_the_file_is_compiled_again(tmp_path, by):
    other, path = tmp_path / "other.h", program(tmp_path)
    text = f"Path({str(other)!r}).read_text()" if by == "file" else repr(f'#include "{other}"')
    own = externs(tmp_path, HELPED.replace('"static uint64_t twice(uint64_t value) { return 2 * value; }"', text))
    for factor in (2, 3):
        other.write_text(f"static uint64_t twice(uint64_t value) {{ return {factor} * value; }}\n")
        [(_, frame)] = Switch(compile_p4(path, externs=own)).process(0, data(a=7))
        assert frame[:4] == (7 * factor).to_bytes(4)


@pytest.mark.build
def test_c_text_that_asks_for_a_file_is_compiled_again_when_it_comes(tmp_path):
    other, path = tmp_path / "other.h", program(tmp_path)
    text = f"""#if __has_include("{other}")
#include "{other}"
#else
static uint64_t twice(uint64_t value) {{ return 2 * value; }}
#endif"""
    own = externs(tmp_path, HELPED.replace('"static uint64_t twice(uint64_t value) { return 2 * value; }"', repr(text)))
    for factor in (2, 3):
        [(_, frame)] = Switch(compile_p4(path, externs=own)).process(0, data(a=7))
        assert frame[:4] == (7 * factor).to_bytes(4)
        other.write_text("static uint64_t twice(uint64_t value) { return 3 * value; }\n")


@pytest.mark.build
def test_a_bool_is_the_lowest_bit_in_c_and_in_python(tmp_path):
    path = program(
        tmp_path, types="extern bool twice(in bit<32> value);", ingress="hdr.data.a = twice(hdr.data.a) ? 32w1 : 32w0;"
    )
    own = externs(tmp_path)
    [(_, compiled)] = Switch(compile_p4(path, externs=own)).process(0, data(a=1))
    [(_, interpreted)] = Interpreter(frontend.load(path), externs=own).process(data(a=1), 0)
    assert compiled == interpreted and compiled[:4] == bytes(4)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BODY.replace('("twice",)', "None"), "own.py: Twice: names is None: expected a tuple of names"),
        (BODY.replace('("twice",)', '"twice"'), "own.py: Twice: names is 'twice': expected a tuple of names"),
        (BODY.replace("c_source =", "c_source = 5 #"), "own.py: Twice: c_source is 5: expected C text"),
        (BODY + "    def __init__(self, x): pass", "own.py: Twice: expected a class that can be made without arguments"),
        ("raise SystemExit(2)", "own.py: SystemExit: 2"),
        (BODY + "class Other(Twice): pass", "own.py: Other: 'twice' is an extern of Twice too"),
        (BODY.replace('"static', '"/* twice( */ static').replace("t twice(", "t other("), "defines no function 'twice'"),
        *(
            (
                BODY.replace("UserFunction", "UserObject") + f"    state_bytes = {size}",
                f"own.py: Twice: state_bytes is {value}: expected",
            )
            for size, value in [("2**70", 2**70), (0, 0), (-8, -8), (8.0, 8.0), ("None", None), ("'x'", "'x'")]
        ),
    ],
)
def test_bad_externs_are_refused_with_file_and_class(tmp_path, text, message):
    assert message in refused(tmp_path, text)


@pytest.mark.fast
@pytest.mark.parametrize("value", ["'x'", "[1]", "(None,)", "float('nan')", "2.5"])
def test_a_python_body_that_returns_no_whole_number_is_told(tmp_path, value):
    own = externs(tmp_path, BODY.replace("return 2 * value\n", f"return {value}\n"))
    interpreter = Interpreter(frontend.load(program(tmp_path)), externs=own)
    with pytest.raises(CompileError, match=r"own\.p4:\d+.*own\.py: Twice: its Python body returned .*: expected a whole number"):
        interpreter.process(data(a=1), 0)


@pytest.mark.fast
def test_an_optional_argument_that_is_left_out_is_refused(tmp_path):
    types = "extern bit<32> twice(in bit<32> value, @optional in bit<32> more);"
    message = "the argument 'more' is missing"
    assert message in refused(tmp_path, BODY, types=types)
    with pytest.raises(CompileError, match=message):
        Interpreter(frontend.load(program(tmp_path, types=types)), externs=externs(tmp_path)).process(data(a=1), 0)


@pytest.mark.build
@pytest.mark.parametrize("name", ["memcpy", "ina_load", "uint64_t", "while"])
def test_names_that_c_has_are_refused(tmp_path, name):
    path = program(tmp_path, types=TWICE.replace("twice", name), ingress=f"hdr.data.a = {name}(hdr.data.a);")
    with pytest.raises(CompileError, match=f"own.py: Twice: '{name}' is a name of C"):
        compile_p4(path, externs=externs(tmp_path, BODY.replace("twice", name)))


@pytest.mark.build
def test_an_extern_may_have_the_name_of_a_parameter(tmp_path):
    path = program(tmp_path, types=TWICE.replace("twice", "a0"), ingress="hdr.data.a = a0(hdr.data.a);")
    [(_, frame)] = Switch(compile_p4(path, externs=externs(tmp_path, BODY.replace("twice", "a0")))).process(0, data(a=4))
    assert frame[:4] == (8).to_bytes(4)


SHADOWS = """
from ina.p4 import UserObject
class First(UserObject):
    names = ("a_b",)
    c_source = "static uint64_t a_b_c(void *state) { return 1; }"
class Second(UserObject):
    names = ("a",)
    c_source = "static uint64_t a_b_c(void *state) { return 1; }"
"""


@pytest.mark.fast
def test_two_externs_that_need_one_c_function_are_refused(tmp_path):
    types = "extern a_b { a_b(); bit<32> c(); } extern a { a(); bit<32> b_c(); }"
    message = refused(
        tmp_path, SHADOWS, types=types, ingress_locals="a_b() x; a() y;", ingress="hdr.data.a = x.c(); hdr.data.b = y.b_c();"
    )
    assert "own.p4:" in message and "the externs 'a_b' and 'a' both need a C function 'a_b_c'" in message


@pytest.mark.fast
def test_an_error_in_a_python_body_names_program_file_and_line(tmp_path):
    own = externs(tmp_path, BODY.replace("return 2 * value\n", "return {}[value]\n"))
    interpreter = Interpreter(frontend.load(program(tmp_path)), externs=own)
    with pytest.raises(CompileError) as raised:
        interpreter.process(data(5), 0)
    message = str(raised.value)
    assert "own.p4:" in message and f"{own}: Twice: its Python body call() failed in line 7: KeyError: 5" in message


@pytest.mark.build
def test_a_quoted_include_is_looked_for_beside_the_file(tmp_path):
    c_source = '"static uint64_t twice(uint64_t value) { return 2 * value; }"'
    own = externs(tmp_path, BODY.replace(c_source, "'#include \"twice.h\"'"))
    for factor in (2, 3):
        (tmp_path / "twice.h").write_text(f"static uint64_t twice(uint64_t value) {{ return {factor} * value; }}")
        switch = Switch(compile_p4(program(tmp_path), externs=own))
        [(_, answer)] = switch.process(0, data(5))
        assert answer == data(5 * factor)


@pytest.mark.build
def test_the_c_compiler_reads_unchanged_externs_once(tmp_path, monkeypatch):
    own = externs(tmp_path)
    first = compile_p4(program(tmp_path), externs=own)
    monkeypatch.setattr("ina.p4.compiler.generate.preprocessed", None)
    assert compile_p4(program(tmp_path), externs=own) == first
