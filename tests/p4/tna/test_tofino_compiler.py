"""`make tofino`: finds a compiler for Tofino, runs it and reads its reports; with a real one, for our programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from capabilities import need

from ina.cli import main
from ina.p4.tofino import compiler

STAGE = {
    "stage_number": 3, "logical_tables": {"size": 16, "ids": [{"id": 0, "table_name": "t"}]},
    "rams": {"nRows": 8, "nColumns": 12, "srams": [{"row": 0, "column": 2, "usages": []}, {"row": 1, "column": 2, "usages": []}]},
    "meter_alus": {"nAlus": 4, "meters": [{"row": 1, "usages": []}]}, "tcams": {"nRows": 12, "nColumns": 2, "tcams": []},
}
FAKE = """#!/bin/sh
echo "$@" > "$FAKE_LOG"
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
mkdir -p "$out/pipe/logs"
cp "$FAKE_RESOURCES" "$out/pipe/logs/resources.json"
echo '{"containers": [{"bit_width": 32, "slices": [1]}, {"bit_width": 8, "slices": []}]}' > "$out/pipe/logs/phv.json"
case "$1" in *bad.p4) echo "bad.p4(3): [--Werror=x] error: table does not fit"; exit 1;; esac
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake p4c-barefoot: it records its arguments, and writes reports according to the schema."""
    path = tmp_path / "p4c-barefoot"
    path.write_text(FAKE)
    path.chmod(0o755)
    (tmp_path / "resources.json").write_text(json.dumps({"resources": {"mau": {"nStages": 12, "mau_stages": [STAGE]}}}))
    for name, value in (("FAKE_LOG", "log"), ("FAKE_RESOURCES", "resources.json")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("P4C_TOFINO", str(path))
    return tmp_path


@pytest.mark.build
def test_its_reports_are_printed(fake, capsys):
    program = fake / "good.p4"
    program.write_text("")
    assert main(["tofino", "compile", str(program), "--out", str(fake / "out"), "-D", "VALUES=32"]) == 0
    out = capsys.readouterr().out
    assert "good.p4: compiled by p4c-barefoot" in out and "pipeline pipe: 1 of 12 stages; containers of 32 bits of 6144" in out
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("all"))
    assert row[1:6] == ["1", "2", "0", "0", "1"]  # tables, SRAM, map RAM, TCAM, SALU
    call = (fake / "log").read_text().split()
    assert call[:5] == ["--target", "tofino", "--arch", "tna", "-g"] and "-DVALUES=32" in call and "-D__TARGET_TOFINO__=1" in call


@pytest.mark.build
def test_a_refusal_is_told_with_its_reason(fake, capsys):
    program = fake / "bad.p4"
    program.write_text("")
    assert main(["tofino", "compile", str(program), "--out", str(fake / "out")]) == 1
    out = capsys.readouterr().out
    assert "bad.p4: REFUSED by p4c-barefoot" in out and "error: table does not fit" in out


@pytest.mark.fast
def test_without_a_compiler_it_says_how_to_name_one(monkeypatch, capsys):
    monkeypatch.setenv("P4C_TOFINO", "/nowhere/bf-p4c")
    assert main(["tofino", "compile"]) == 2
    assert "there is no /nowhere/bf-p4c: P4C_TOFINO can name a compiler" in capsys.readouterr().err


@pytest.mark.build
def test_more_stages_than_there_are_is_a_failure(fake, capsys):
    """p4c-barefoot itself succeeds in this case, and leaves the check to the assembler."""
    stages = [{**STAGE, "stage_number": number} for number in range(14)]
    (fake / "resources.json").write_text(json.dumps({"resources": {"mau": {"nStages": 12, "mau_stages": stages}}}))
    program = fake / "good.p4"
    program.write_text("")
    assert main(["tofino", "compile", str(program), "--out", str(fake / "out")]) == 1
    assert "good.p4: TOO MANY STAGES, though compiled, by p4c-barefoot" in capsys.readouterr().out


@pytest.mark.hardware
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["switchml", "atp"])
def test_a_real_compiler_places_our_programs(name, tmp_path):
    need("p4c-tofino")
    result = compiler.compile_with(compiler.find(), Path("p4/tofino") / f"{name}.p4", tmp_path, {"VALUES": "64"})
    assert result.ok, result.output[-4000:]
    assert result.used == 12 and max(result.phv.values()) < 6144


@pytest.mark.fast
def test_the_variable_goes_first(fake, monkeypatch):
    assert compiler.find() == os.environ["P4C_TOFINO"]


@pytest.mark.build
def test_an_estimate_is_printed_beside_what_it_takes(fake, capsys):
    program = Path("p4/tofino/switchml.p4")
    assert main(["tofino", "check", str(program), "--compare"]) == 0
    rows = {line[:34].strip(): line[34:].split() for line in capsys.readouterr().out.partition("there are")[2].splitlines()}
    assert rows["stages"][1:] == ["1", "12"] and rows["SRAM blocks"][1:] == ["2", "960"]
    assert rows["bits of containers for headers"][1:] == ["32", "6,144"] and len(rows["of which tables use"]) == 2


@pytest.mark.build
def test_a_comparison_ends_where_the_compiler_refuses(fake, capsys):
    program = fake / "bad.p4"
    program.write_text(Path("p4/tofino/switchml.p4").read_text())
    assert main(["tofino", "check", str(program), "-I", "p4/tofino", "--compare"]) == 1
    assert "bad.p4: REFUSED by p4c-barefoot" in capsys.readouterr().out
