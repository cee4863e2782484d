"""Random programs agree in the compiled switch, the interpreter and an oracle that shares no code with them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from capabilities import need
from random_programs import bmv2, tree
from random_programs.adapt import KNOWN, adapt
from random_programs.generate import Generator
from random_programs.judge import judge
from random_programs.plants import PLANTS, search
from random_programs.render import text
from random_programs.shrink import shrink


@pytest.mark.build
@pytest.mark.parametrize(
    "first", [pytest.param(8, marks=pytest.mark.gate), *(pytest.param(n, marks=pytest.mark.later) for n in (0, 16, 24, 32, 40))]
)
def test_random_programs_agree(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 8):
        verdict = judge(Generator(seed).program(), tmp_path)
        assert verdict.kind == "agree", f"seed {seed}: {verdict.kind}\n{verdict.text}"


@pytest.mark.hardware
@pytest.mark.judge
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_agree_with_bmv2(seed: int, tmp_path: Path) -> None:
    need(*bmv2.NEEDS)
    verdict = bmv2.judge_bmv2(Generator(seed).program(), tmp_path)
    assert verdict.kind in ("agree", "left out"), f"{verdict.kind}\n{verdict.text}"


@pytest.mark.build
def test_what_bmv2_does_otherwise_is_taken_out_once_and_by_name() -> None:
    """The rest is a program on which all agree; adapting it again removes nothing."""
    names: set[str] = set()
    for seed in range(60):
        adapted, left_out = adapt(Generator(seed).program())
        names |= left_out
        assert adapt(adapted) == (adapted, frozenset())
    assert names == set(KNOWN)


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("first", range(0, 12, 4))
def test_programs_as_bmv2_gets_them_agree_in_ours(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 4):
        verdict = judge(adapt(Generator(seed).program())[0], tmp_path)
        assert verdict.kind == "agree", f"seed {seed}: {verdict.kind}\n{verdict.text}"


@pytest.mark.build
def test_tables_that_no_packet_gets_to_take_no_entries(tmp_path: Path) -> None:
    program = next(p for p in (Generator(seed).program() for seed in range(100)) if any(not t.const for t in p.tables))
    hidden = tree.If(tree.Lit(tree.BOOL, 0), tuple(tree.Apply(t.name) for t in program.tables), ())
    assert judge(replace(program, ingress=(*program.ingress[:2], hidden)), tmp_path).kind == "agree"


@pytest.mark.fast
def test_programs_that_cannot_even_be_written_are_judged(tmp_path: Path) -> None:
    """Shrinking tries such programs: tables without their actions."""
    program = next(p for p in (Generator(seed).program() for seed in range(100)) if p.tables)
    assert judge(replace(program, actions=()), tmp_path).kind == "crashed"


@pytest.mark.fast
def test_a_program_is_a_function_of_its_seed() -> None:
    assert [text(Generator(7).program()), text(Generator(7).program())] == [text(Generator(7).program())] * 2
    assert text(Generator(7).program()) != text(Generator(8).program())


@pytest.mark.build
@pytest.mark.judge
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_planted_defects_are_found(plant) -> None:
    finding = search(plant)
    assert finding is not None and finding[1] == plant.finds


@pytest.mark.build
def test_the_oracle_imports_nothing_of_the_compiler() -> None:
    script = "import sys; sys.path.insert(0, 'tests'); import random_programs.oracle, random_programs.generate\n"
    script += "assert not [m for m in sys.modules if m == 'ina' or m.startswith('ina.')], sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], check=True)


@pytest.mark.fast
def test_shrinking_keeps_what_fails() -> None:
    """A failure that needs one statement is shrunk to little else."""

    def fails(program) -> bool:
        return "crc32" in text(program)

    seed = next(s for s in range(100) if fails(Generator(s).program()))
    small = shrink(Generator(seed).program(), fails, tries=3000)
    assert fails(small)
    assert len(text(small)) < len(text(Generator(seed).program())) / 2
