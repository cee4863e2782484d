"""Texts of errors where all kinds are caught: they name the error, though an assertion's own text is empty."""

from __future__ import annotations

import json

import pytest

from ina.base.error_text import reason
from ina.lab.results.record import ERROR, reasoned
from ina.p4.compiler.errors import CompileError, Span

pytestmark = pytest.mark.fast
WRONG = CompileError(Span("a.p4", 1, 1, 1), "expected an expression")


@pytest.mark.parametrize("error, text", [
    (RuntimeError("the switch is gone"), "the switch is gone"),
    (FileNotFoundError(2, "No such file or directory", "x"), "[Errno 2] No such file or directory: 'x'"),
    (json.JSONDecodeError("Expecting value", "", 0), "Expecting value: line 1 column 1 (char 0)"),
    (WRONG, str(WRONG)),
    (AssertionError(), "AssertionError"),
    (TimeoutError(), "TimeoutError"),
    (KeyError("slots"), "KeyError: 'slots'"),
    (TypeError("unhashable type: 'list'"), "TypeError: unhashable type: 'list'"),
])
def test_an_error_is_described(error, text):
    assert reason(error) == text


def test_a_run_that_a_defect_ends_says_so_in_its_folder(tmp_path):
    with pytest.raises(AssertionError), reasoned(tmp_path):
        raise AssertionError
    assert (tmp_path / ERROR).read_text() == "AssertionError\n"
