"""tests/stf: a program and an STF file for each feature of the language and of v1model. The interpreter and the compiled
switch always pass all of them; so does BMv2 where available, except for the differences in docs/guide/p4.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bmv2_target import Bmv2Target, compile_sample
from capabilities import need
from folders import files

from ina.p4.compiler import frontend
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.tools import stf as folders
from ina.p4.tools import stf_file as stf
from ina.p4.tools.stf_target import CompiledTarget, InterpreterTarget

FOLDER = Path(__file__).parent.parent.parent / "stf"
PROGRAMS = files(FOLDER, "*.p4")
PAGE = (FOLDER.parent.parent / "docs" / "reference" / "p4-features.md").read_text()
PATIENCE = 30.0  # seconds for BMv2 to send a frame that ours sent
NOT_ON_BMV2 = {
    "action_profiles": "a hit ends the process where two tables share a profile",
    "assertions": "a false assertion ends the process",
    "hash_random": "no such hash",
    "initial_entries": "a table with entries takes no more",
    "loops": "runs the body of a loop once",
    "loops_over": "p4c: BMV2 does not support for-in loops",
    "no_match": "a select without a fitting case accepts the packet",
    "packet_length": "p4c: packet.length() not supported",
    "registers_beyond": "an access beyond the end ends the process",
}


class Counted(CompiledTarget):
    """Target that notes how many frames each sent frame caused."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.counts: list[int] = []

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        frames = super().send(port, frame)
        self.counts.append(len(frames))
        return frames


class Bmv2Beside(Bmv2Target):
    """BMv2 that waits for as many frames as ours sent, and at the end for an unexpected one."""

    def __init__(self, config: Path, info: dict, counts: list[int]) -> None:
        super().__init__(config, info)
        self.counts = iter(counts)

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self.switch.exchange(frame, port, next(self.counts), PATIENCE)


def judged_by_interpreter(path: Path) -> stf.Result:
    checked = frontend.load(path)
    return stf.run(path.with_suffix(".stf").read_text(), InterpreterTarget(Interpreter(checked), p4info.build(checked)))


def judged_by_compiled(path: Path) -> tuple[stf.Result, list[int]]:
    target = Counted(compile_program(path, cflags=["-O1"]))
    with target.switch:
        return stf.run(path.with_suffix(".stf").read_text(), target), target.counts


@pytest.mark.fast
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_interpreter(path: Path) -> None:
    assert judged_by_interpreter(path).failures == []


@pytest.mark.build
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_compiled(path: Path) -> None:
    need("cc")
    assert judged_by_compiled(path)[0].failures == []


@pytest.mark.hardware
@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem not in NOT_ON_BMV2], ids=lambda p: p.stem)
def test_bmv2(path: Path, tmp_path: Path) -> None:
    need("cc", "p4c", "bmv2", "netns")
    _, counts = judged_by_compiled(path)
    config, _ = compile_sample(path, tmp_path)
    target = Bmv2Beside(config, p4info.build(frontend.load(path)), counts)
    try:
        result = stf.run(path.with_suffix(".stf").read_text(), target)
        assert result.failures == []
        assert target.switch.exchange(b"", 0, 1, 0.1) == []
    finally:
        target.close()


@pytest.mark.fast
def test_a_folder_has_these_programs() -> None:
    """They include v1model.p4 through another file."""
    assert [program for program, _ in folders.tests_in(FOLDER)] == PROGRAMS


@pytest.mark.fast
def test_each_program_has_its_file_and_its_line_in_the_docs() -> None:
    assert {p.stem for p in PROGRAMS} == {t.stem for t in FOLDER.glob("*.stf")}
    assert {p.stem for p in PROGRAMS} == set(re.findall(r"\(\.\./\.\./tests/stf/(\w+)\.p4\)", PAGE))
