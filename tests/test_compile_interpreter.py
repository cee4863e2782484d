"""Every program of the interpreter's own tests, compiled: the same tests with the compiled switch as the interpreter's shadow."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_interpreter
from shadow import Shadowed
from test_interpreter import *  # noqa: F403  its tests, run here once more
from v1_program import source

pytestmark = pytest.mark.usefixtures("compiled_as_well")


def interpret(directory: Path, *args: str, seed: int = 0, **kwargs: str) -> Shadowed:
    path = directory / "program.p4"
    path.write_text(source(*args, **kwargs))
    return Shadowed(path, seed=seed)


@pytest.fixture
def compiled_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_interpreter, "interpret", interpret)
