"""What public programs use and no book explains: their spellings, in small."""

from __future__ import annotations

from pathlib import Path

import pytest
from shadow import Shadowed
from v1_program import data, source

from ina.compiler.errors import CompileError
from ina.compiler.frontend import load


def sent(tmp_path: Path, text: str, **packet: int) -> bytes:
    """What leaves, of the compiled program and the interpreter."""
    path = tmp_path / "program.p4"
    path.write_text(text)
    ((_, frame),) = Shadowed(path, cflags=["-O1"]).process(data(**packet))
    return frame


def test_lines_of_comment_that_begin_with_a_number_sign(tmp_path):
    comments = "########\n# a comment line, as p4c skips it\n  ## title ##\n#Planter's\n"
    text = source("hdr.data.e = 1;", types=comments)
    assert sent(tmp_path, text) == data(e=1)
    path = tmp_path / "wrong.p4"
    path.write_text(text + "\nbit<8> wrong = ;\n")
    with pytest.raises(CompileError, match=f"wrong.p4:{len(text.splitlines()) + 2}:"):  # lines still count
        load(path)


def test_a_name_that_a_backslash_splits(tmp_path):
    split = "#define LONG_NA\\\nME 5\n#define SUM(a, b) a + \\\n  b\nconst bit<8> five = LONG_N\\\nAME;\n"
    assert sent(tmp_path, source("hdr.data.e = SUM(five, 2);", types=split)) == data(e=7)


def test_a_shift_in_a_macro(tmp_path):
    macros = "#define HALF(x) (x >> 1)\n#define LESS x >>= 1\ntypedef bit<8> byte_t;\n"
    ingress = "bit<8> x = hdr.data.d; LESS; hdr.data.e = HALF(x) + (bit<8>)(byte_t)HALF(hdr.data.d);"
    assert sent(tmp_path, source(ingress, types=macros), d=200) == data(d=200, e=150)
