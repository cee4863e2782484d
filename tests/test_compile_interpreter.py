"""The interpreter's own tests with the compiled program as its shadow: one small program per feature of the
language.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import test_interpreter
from shadow import Shadowed
from v1_program import source

from ina.compiler.errors import CompileError

NOT_COMPILED = {
    # What this back end refuses, and how it says so.
    "test_select_masks_ranges_and_value_sets": "a parser value set is not supported",
    "test_varbit": "varbit",
    "test_action_selector": "the table property 'implementation' is not supported",
    "test_registers_counters_meters": "meter.execute_meter is not supported",
}
ELSEWHERE = {
    "test_extract_and_emit_are_inverse",  # tests/test_compile.py has fewer, larger programs: each one is compiled
    "test_assert",  # an interpreter's exception; compiled programs ignore assert
}


def interpret(directory: Path, *args: str, seed: int = 0, **kwargs: str) -> Shadowed:
    path = directory / "program.p4"
    path.write_text(source(*args, **kwargs))
    return Shadowed(path, seed=seed)


def cases() -> list:
    found = []
    for name, function in vars(test_interpreter).items():
        if not name.startswith("test_") or "interpret" not in function.__code__.co_names or name in ELSEWHERE:
            continue
        marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
        if not marks:
            found.append(pytest.param(function, {}, id=name.removeprefix("test_")))
        for mark in marks:
            names, values = mark.args
            for i, value in enumerate(values):
                given = dict(zip(names, value, strict=True)) if not isinstance(names, str) else {names: value}
                found.append(pytest.param(function, given, id=f"{name.removeprefix('test_')}-{i}"))
    return found


@pytest.mark.parametrize(("function", "given"), cases())
def test_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function, given: dict):
    monkeypatch.setattr(test_interpreter, "interpret", interpret)
    refusal = NOT_COMPILED.get(function.__name__)
    if refusal is None:
        function(tmp_path, **given)
        return
    with pytest.raises(CompileError, match=refusal) as error:
        function(tmp_path, **given)
    assert error.value.span.line > 0
