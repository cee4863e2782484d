"""The preprocessor beside GCC's cpp, on random programs of directives, and on what P4 takes otherwise than C."""

from __future__ import annotations

import random
import re
from pathlib import Path

import child
import pytest
from capabilities import need

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front import macros
from ina.p4.compiler.front.preprocess import preprocess, preprocess_text

CPP = ["cc", "-E", "-P", "-undef", "-nostdinc", "-x", "assembler-with-cpp"]
PROGRAMS = 80  # of 15 lines and groups; `python tests/p4/compiler/test_preprocessor.py FIRST COUNT` tries others
TOKEN = re.compile(
    r'[A-Za-z_]\w*|\.?[0-9](?:[eE][+-]|[\w.])*|"(?:\\.|[^"\\])*"|\'[^\'\n]*\'|<<|>>|&&|\|\||[<>=!]=|##|\S', re.ASCII)
NAMES = ("A", "B", "C", "D", "w255", "E")
CALLED = {"F": 1, "G": 2, "V": 2, "N": 0}
NUMBERS = ("0", "1", "2", "7", "15ULL", "0x1F", "0b101", "017", "3u", "9223372036854775807", "0xffffffffffffffff", "'a'", "4L",
           "-1", "-70", "'ab'", "'\\377'")
OPERATORS = ("+", "-", "*", "/", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&", "^", "|", "&&", "||")
HEADERS = {
    "once.h": "#pragma once\nonce A\n#define FROM_ONCE 1\n",
    "guard.h": "#ifndef GUARD_H\n#define GUARD_H\nguard __LINE__\n#undef B\n#define B guarded\n#endif\n",
    "again.h": '#include "once.h"\nagain G(1,\n A) F\n',
    "mark.h": "\ufeff#define MARKED C\nmark MARKED\n",
}


class Grammar:
    """Random text with directives: what a line may be, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def program(self, lines: int = 15) -> str:
        return self.random.choice(("", "", "", "\ufeff")) + "".join(self.line(3) for _ in range(lines))

    def line(self, depth: int) -> str:
        r = self.random
        kind = r.choices(("text", "define", "undef", "if", "include", "rest"), (8, 6, 1, 5 if depth else 0, 0.6, 0.5))[0]
        if kind == "text":
            return self.text(r.randint(1, 6)) + "\n"
        if kind == "undef":
            return f"#undef {r.choice((*NAMES, *CALLED))}\n"
        if kind == "include":
            form = r.choice(['#include "{}"\n', " # include <{}>\n", '#define FILE "{}"\n#include FILE\n'])
            return form.format(r.choice([*HEADERS]))
        if kind == "rest":
            return r.choice(["#\n", "#pragma none\n", "/* two\n lines */ A\n", "a // B\n", "#define A \\\n  B C\n",
                             "#if 0\ndon't \"\n#endif\n", "#line 77\n", f"#if 0\n{self.skipped()}\n#else // it's\nB\n#endif\n"])
        return self.definition() if kind == "define" else self.group(depth)

    def skipped(self) -> str:
        """A line that does not count: with quotes that are never closed, and what is no comment behind them."""
        return "".join(self.random.choice(("a", " ", "'", '"', "\\\"", "\\'", "\\\\", "/*", "*/", "//")) for _ in range(6))

    def definition(self) -> str:
        r = self.random
        if r.random() < 0.5:
            return f"#define {r.choice(NAMES)}{self.body(())}\n"
        name = r.choice([*CALLED])
        params = {"F": ("x",), "G": ("x", "y"), "V": ("x", "..."), "N": ()}[name]
        used = tuple("__VA_ARGS__" if param == "..." else param for param in params)
        return f"#define {name}({', '.join(params)}){self.body(used)}\n"

    def body(self, params: tuple[str, ...]) -> str:
        r = self.random
        if r.random() < 0.1:
            return ""
        words = [self.word(params) for _ in range(r.randint(1, 5))]
        return " " + "".join(word + r.choice(("", " ", " ")) if not word[-1:].isalnum() else word + " " for word in words).strip()

    def word(self, params: tuple[str, ...]) -> str:
        r = self.random
        if params and r.random() < 0.5:
            param = r.choice(params)
            form = r.choices(("{}", "#{}", "{} ## {}", "a##{}", "{}##1", "({})", ", ## {}"), (6, 1, 1, 1, 1, 1, 0.5))[0]
            return form.format(*[param, r.choice(params)][: form.count("{}")])
        return self.atom() if r.random() < 0.8 else f"defined {r.choice(NAMES)}"

    def atom(self) -> str:
        r = self.random
        return r.choice((
            r.choice(NAMES), r.choice(NAMES), r.choice([*CALLED]), self.call(), "8w255",
            "x", "1", "-", "+", ">", "(1)", '"s A"', "__LINE__"))

    def call(self) -> str:
        r = self.random
        name = r.choice([*CALLED])
        count = CALLED[name] + (r.randint(-1, 2) if name == "V" else 0)
        words = (*NAMES, "F", "G(1, 2)", "F(A)", "(1, 2)", "1", "", "-", '"\\n"')
        arguments = (" ".join(r.choice(words) for _ in range(r.randint(0, 2))) for _ in range(count))
        return f"{name}{r.choice(('', ' '))}({', '.join(arguments)})"

    def text(self, words: int) -> str:
        return self.random.choice((" ", "  ", "", "-")).join(self.atom() for _ in range(words))

    def group(self, depth: int) -> str:
        r = self.random
        out = [self.opening()]
        out += [self.line(depth - 1) for _ in range(r.randint(0, 3))]
        for _ in range(r.choice((0, 0, 1, 2))):
            name = r.choice(NAMES)
            out.append(r.choice((f"#elif {self.condition(3)}\n", f"#elifdef {name}\n", f"#elifndef {name}\n")))
            out += [self.line(depth - 1) for _ in range(r.randint(0, 2))]
        if r.random() < 0.5:
            out += ["#else\n", *(self.line(depth - 1) for _ in range(r.randint(0, 2)))]
        return "".join([*out, "#endif\n"])

    def opening(self) -> str:
        r = self.random
        name = r.choice((*NAMES, *CALLED, "__LINE__", "__has_include"))
        return r.choice((f"#ifdef {name}\n", f"#ifndef {name}\n", *[f"#if {self.condition(3)}\n"] * 3))

    def condition(self, depth: int) -> str:
        r = self.random
        if not depth or r.random() < 0.25:
            header = r.choice((*HEADERS, "none.h"))
            return r.choice((*NUMBERS, *NAMES, "F(2)", f"defined {r.choice(NAMES)}", f"defined({r.choice([*CALLED])})",
                             f'__has_include("{header}")', f"__has_include(<{header}>)", "__LINE__"))
        a, b, c = (self.condition(depth - 1) for _ in range(3))
        operator = r.choice(OPERATORS)
        if operator in ("<<", ">>"):
            b = str(r.choice((0, 1, 5, 63, 64, 100)) if operator == "<<" else r.choice((0, 3, 63, 70, "-2")))
        return r.choice((f"({a}) {operator} {b}", f"{a} {operator} ({b})", f"({a} ? {b} : {c})",
                         f"{r.choice('-!~+')}{a}", f"({a}, {b})"))


def tokens(text: str) -> list[str]:
    """The tokens of our output, without line markers and the comments that stay in it."""
    lines = [line for line in text.splitlines() if not line.startswith("#line")]
    return TOKEN.findall(re.sub(r"/\*.*?\*/", " ", "\n".join(lines), flags=re.DOTALL))


def beside_cpp(text: str, folder: Path) -> bool:
    """Compares one program; returns whether cpp takes it."""
    path = folder / "program.S"
    path.write_text(text)
    process = child.run([*CPP, "-I", folder, path])
    message = ""
    try:
        ours: str | None = preprocess(path, include_dirs=[folder])[0]
    except CompileError as error:
        assert error.span.file and error.span.line, error
        ours, message = None, str(error)
    if process.returncode:
        assert ours is None, f"cpp refuses it: {process.stderr}"
        return False
    assert ours is not None, f"cpp takes it: {message}"
    assert tokens(ours) == TOKEN.findall(process.stdout)
    return True


def compare(seeds: range, folder: Path) -> int:
    """Compares the programs of `seeds`; returns how many cpp takes."""
    for name, text in HEADERS.items():
        (folder / name).write_text(text)
    return sum(beside_cpp(Grammar(seed).program(), folder) for seed in seeds)


@pytest.mark.build
def test_random_programs_give_the_tokens_of_cpp(tmp_path):
    need("cc")
    assert compare(range(PROGRAMS), tmp_path) > PROGRAMS // 4


def branch(condition: str, text: str = "") -> bool:
    """Returns whether the group of a condition is taken, behind `text`."""
    return "taken" in preprocess_text(f"{text}\n#if {condition}\ntaken\n#endif\n", "p.p4", files={"/h.p4": ""})[0]


@pytest.mark.fast
@pytest.mark.parametrize(("condition", "expected"), [
    ("-7 % 3 == -1 && -7 / 2 == -3 && 7 % -3 == 1 && -9223372036854775807 - 1 < 0", True),
    ("15ULL == 15 && 0b101 == 5 && 017 == 15 && 0x1Fu == 31 && 'a' == 97 && '\\n' == 10", True),
    ("1 << -1 == 0 && 1 << 0xffffffffffffffff == 0 && 8 << -2 == 2 && 1 << 70000 == 0 && -1 >> 70 == -1", True),
    ("1 >> -3 == 8 && -1 << 64 == 0 && -5 << -1 == -3 && -1 << -70 == -1 && 1 << 63 < 0 && 1u << 63 > 0", True),
    ("'ab' == 24930 && 'abcd' == 0x61626364 && 'xabcd' == 'abcd' && '\\377' == -1 && 'a\\377' == 0x61ff", True),
    ("'\\377abc' < 0 && '\\x0141' == 65 && '\\q\\e' == 0x711b && '\\18' == 0x138 && '\u00e9' == 0xc3a9 && '\"' == 34", True),
    ("-1 > 0u && (1 ? -1 : 0u) > 0 && ~0u == 18446744073709551615u", True),
    ("0 && 1 / 0 || 1 || 2 % 0", True), ("HAS_A && HAS(__LINE_) == 0 && TWO == 2", True), ("HAS_B || TWO == 1", False),
    ('__has_include("/h.p4") && !__has_include("/none.p4") && !__has_include(<none.p4>)', True),
    ("defined __has_include && defined(__LINE__) && __LINE__ == 7", True), ("unknown || true", False),
])
def test_conditions(condition, expected):
    text = """#define A
#define HAS(x) defined x
#define HAS_A defined A
#define HAS_B defined(B)
#define TWO defined(A) + 1
"""
    assert branch(condition, text) == expected


@pytest.mark.fast
@pytest.mark.parametrize(("text", "expected"), [
    ("#define w255 W\n8w255 w255 0xe+w255 1..w255 'w255'", "8w255 W 0xe+w255 1..w255 'w255'"),
    ("#if 0\n#elifdef X\na\n#elifndef X\nb\n#else\nc\n#endif", "b"),
    ("#define AND &&&\n1 AND 2 |+| 3 ++ 4", "1 &&& 2 |+| 3 ++ 4"),  # operators of P4 alone
    ("#define E\n#define F(x) x\n-E- F(-)F(-) a F(b)c >E> F(>)", "- - - - a b c > > >"),  # no token becomes another
    ("#define F(x, ...) [x, ## __VA_ARGS__]\nF(1) F(1,) F(1, 2, 3)", "[1] [1,] [1, 2, 3]"),
    ("#define A(x, y) x ## y\nA(&&, &) A(8, w1) A(, b) A(a,) A(-, 1)", "&&& 8w1 b a -1"),
    ("# define S(x) #x\nS( a  'b'  \"c\\n\" )", '"a \'b\' \\"c\\\\n\\""'),
    ("#define f(a) a*g\n#define g(a) f(a)\nf(2)(9)", "2*9*g"),
    ("## rule\n# a remark\n#pragma x\n#\ntext", "text"),
    ("K = 1\n#line 1\n2;", "K = 1 2;"),  # of one line number, but of two lines
    ("#line 41 \"o.p4\"\n__LINE__ __FILE__\n# 7\n__LINE__", '41 "o.p4"\n7'),
    ('#line 41 "a\\\\b\\"c.p4"\n__LINE__ __FILE__', '41 "a\\\\b\\"c.p4"'),
    ("@name(\"two\nlines\") a", '@name("two\ue000lines"\n) a'),
    ("#if 0\nit's \"open\n#if\n#else junk\n#endif\n#endif\nx", "x"),
    ("__COUNTER__ __COUNTER__", "0 1"),
    ("#define L __LINE__\n__COUNTER__.5 __COUNTER__... .__COUNTER__ -__COUNTER__- -(__LINE__) L.5 __FILE__.5",
     '0 .5 1 ... . 2 -3 - -(2) 2 .5 "p.p4".5'),  # as apart as what other macros make
    ("#define L() 1\n#define V(x) x\nL()V L()V() L()V\nb", "1 V 1 1 V\nb"),  # V has no arguments, but is a token of its own
    ("\ufeff#define A a\nA \ufeffA", "a \ufeffa"),  # a byte order mark is dropped where the file begins
    # A quote that is never closed takes the rest of its line. (To look behind it was quadratic in the number of quotes.)
    ("#if 0\ndon't /* x\n#endif\na", "a"), ('#if 0\n"\\" /* x\n#else \' /*\na\n#endif', "a"), ("#pragma it's /*\na", "a"),
])
def test_texts(text, expected):
    lines = preprocess_text(text + "\n", "p.p4", files={})[0].splitlines()
    assert "\n".join(line for line in lines if line and not line.startswith("#line")) == expected


@pytest.mark.fast
@pytest.mark.parametrize(("text", "message"), [
    ("#if 8w5", "#if: '8w5' is not an integer of C"), ("#if 08", "#if: '08' is not an integer of C"),
    ("#if 1 / 0", "#if: division by zero"), ("#if (1", "#if: expected ')', not the end of the line"),
    ("#if 1 2", "#if: expected an operator, not '2'"), ("#if 1 +", "#if: expected a value at the end of the line"),
    ("#if ''", "#if: '' is not supported: expected characters between quotes, and no \\u"),
    ("#if 'ab", "#if: 'ab is not supported: expected characters between quotes, and no \\u"),
    ("#if '\\'", "#if: '\\' is not supported: expected characters between quotes, and no \\u"),
    ('#if "a"', "#if: expected a value, not '\"a\"'"),
    ("#if defined(A", "#if: 'defined (A' is never closed: expected ')'"), ("#if f(1)", "#if: expected an operator, not '('"),
    ("#if __has_include", '#if: __has_include needs ("file") or (<file>)'), ("#if 1", "#if without #endif"),
    ("#else", "#else without #if"), ("#endif", "#endif without #if"), ("#elifdef A", "#elifdef without #if"),
    ("#if 0\n#else\n#elif 1", "#elif behind #else"), ("#ifdef 3", "#ifdef needs a name, not '3'"),
    ("#define defined", "#define needs a name, not 'defined'"), ("#define F(a, a) a", "macro 'F' has two parameters 'a'"),
    ("#define F(a", "parameters of macro 'F' are never closed: expected ')'"),
    ("#define F(1) a", "macro 'F': expected a parameter, not '1'"),
    ("#define A ## b", "macro 'A': '##' needs a token on both sides"),
    ("#define F(...) __VA_OPT__(a)", "macro 'F': __VA_OPT__ is not supported"),
    ("#include nothing", "malformed #include: expected \"file\" or <file>, not 'nothing'"),
    ("#include_next <a>", "#include_next is not supported"),
    ("#line x", "#line needs a number"), ("#pragma push_macro(\"A\")", '#pragma push_macro("A") is not supported'),
    ("a /* b", "comment is never closed: expected '*/'"), ('a "b\\"', "string literal is never closed: expected '\"'"),
    ("#if " + "(" * 20_000, "arguments of macros, or a condition, are nested too deep"),
    ("#define F(x) x\n" + "F(" * 450 + ")" * 450, "arguments of macros, or a condition, are nested too deep"),
    ("#define D(x) P(x, x)\n#define P(x, y) x##y\n" + "D(" * 30 + "a" + ")" * 30,
     "macros make more than 300,000 tokens of this program"),
    ("#define F(x) x\n" + "F(" * 20_000 + ")" * 20_000, "macros make more than 300,000 tokens of this program"),
    ("#define A0 x x\n" + "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(40)) + "A40",
     "macros make more than 300,000 tokens of this program"),
])
def test_errors(monkeypatch, text, message):
    monkeypatch.setattr(macros, "MAX_EXPANDED", 300_000)
    with pytest.raises(CompileError) as caught:
        preprocess_text("\n" + text + "\n", "p.p4", files={})
    assert caught.value.message == message
    assert caught.value.span.file == "p.p4" and caught.value.span.line > 1


@pytest.mark.fast
def test_quotes_search_in_the_including_files_folder(tmp_path):
    """As cpp has it: not in the folders of the files that include that one."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.p4").write_text('#include "beside.p4"\n')
    (tmp_path / "beside.p4").write_text("outer\n")
    (tmp_path / "main.p4").write_text('#include "sub/inner.p4"\n#include "beside.p4"\n')
    with pytest.raises(CompileError, match=r"'beside.p4' not found") as caught:
        preprocess(tmp_path / "main.p4")
    assert caught.value.span.file == str(tmp_path / "sub" / "inner.p4")
    (tmp_path / "sub" / "beside.p4").write_text("inner\n")
    assert tokens(preprocess(tmp_path / "main.p4")[0]) == ["inner", "outer"]


if __name__ == "__main__":
    import sys
    import tempfile

    first, count = int(sys.argv[1]), int(sys.argv[2])
    taken = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(first, first + count):
            try:
                taken += compare(range(seed, seed + 1), Path(scratch))
            except AssertionError as error:
                print(f"seed {seed}: {error}")
    print(f"{taken} of {count} programs are programs")
