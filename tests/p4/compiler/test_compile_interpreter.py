"""The interpreter's own tests with the compiled program as its shadow: one small program per feature of the
language.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import test_interpreter
import test_interpreter_tables
import test_interpreter_v1model
from shadow import Shadowed
from v1_program import source

pytestmark = pytest.mark.build
MODULES = (test_interpreter, test_interpreter_tables, test_interpreter_v1model)
ELSEWHERE = {
    "test_extract_and_emit_are_inverse",  # tests/p4/compiler/test_compile.py has fewer, larger programs: each one is compiled
}


def interpret(directory: Path, *args: str, seed: int = 0, **kwargs: str) -> Shadowed:
    path = directory / "program.p4"
    path.write_text(source(*args, **kwargs))
    return Shadowed(path, seed=seed)


def cases() -> list:
    params = []
    for name, function in (item for module in MODULES for item in vars(module).items()):
        if not name.startswith("test_") or "interpret" not in function.__code__.co_names or name in ELSEWHERE:
            continue
        marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
        if not marks:
            params.append(pytest.param(function, {}, id=name.removeprefix("test_")))
        for mark in marks:
            names, values = mark.args
            for i, value in enumerate(values):
                arguments = dict(zip(names, value, strict=True)) if not isinstance(names, str) else {names: value}
                params.append(pytest.param(function, arguments, id=f"{name.removeprefix('test_')}-{i}"))
    return params


@pytest.mark.parametrize(("function", "arguments"), cases())
def test_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function, arguments: dict):
    monkeypatch.setattr(sys.modules[function.__module__], "interpret", interpret)
    function(tmp_path, **arguments)
