"""Verdict, schema, P4Info and reports of the open compiler for Tofino (P4C_TOFINO) for a program.

A program takes it some seconds to a minute, so the results are cached by compiler and source.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import child
from capabilities import need

from ina.base import cache, paths
from ina.p4.compiler.build import source_hash
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.compiler.frontend import load
from ina.p4.tofino import compiler

DEADLINE = 900.0  # seconds for a program
OTHERS = ("p4rt_utests", "t2na_counter_true_egress_accounting")  # of v1model, of Tofino 2
KEPT = ("bf-rt.json", "p4info.txtpb", "said.json", "resources.json", "phv.json")


@dataclass(frozen=True)
class Judged:
    """The compiler's results. `ok`: it accepts the program; `output`: its messages; `folder`: the files it wrote."""

    ok: bool
    output: str
    folder: Path

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        return json.loads((self.folder / "bf-rt.json").read_text())

    @functools.cached_property
    def p4info(self) -> str:
        """Text of the P4Info of standard externs."""
        return (self.folder / "p4info.txtpb").read_text()

    @functools.cached_property
    def compiled(self) -> compiler.Compiled:
        result = compiler.Compiled(Path(), "", self.ok, 0.0, self.output, self.folder)
        for path in sorted(self.folder.rglob("resources.json")):
            result.stages[path.parent.parent.name] = compiler.stages_of(json.loads(path.read_text()))
        for path in sorted(self.folder.rglob("phv.json")):
            result.phv[path.parent.parent.name] = compiler.phv_bits(json.loads(path.read_text()))
        return result


def judged(program: Path, include: tuple[Path, ...] = (), defines: dict[str, str] | None = None) -> Judged:
    judge = Path(compiler.find())
    folders = [*include, program.parent, paths.p4_dir()]
    text, _ = preprocess(program, defines=defines or {}, include_dirs=folders)
    status = judge.stat()
    name = f"{judge.resolve()} {status.st_size} {status.st_mtime_ns} {program.name}"
    key = hashlib.sha256(f"{name} {source_hash(text)}".encode()).hexdigest()[:24]
    result = cache.folder() / "tofino-judge" / f"{program.stem}-{key}"
    if not (result / "said.json").exists():
        _judge(judge, program, folders, defines or {}, result)
    verdict = json.loads((result / "said.json").read_text())
    return Judged(verdict["ok"], verdict["said"], result)


def taken_up(program: Path) -> Judged:
    """p4c's results for one of `examples()`, which it must accept."""
    need("tna-programs")
    need("p4c-tofino")
    judgement = judged(program, (program.parent.parent,))
    assert judgement.ok, judgement.output[-4000:]
    return judgement


def _judge(judge: Path, program: Path, folders: list[Path], defines: dict[str, str], result: Path) -> None:
    result.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=result.parent) as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        words = compiler.command(str(judge), program, out, defines, folders)
        words[1:1] = ["--bf-rt-schema", str(out / "bf-rt.json"), "--p4runtime-force-std-externs",
                      "--p4runtime-files", str(out / "p4info.txtpb")]
        process = child.run(words, DEADLINE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            errors="replace")
        (out / "said.json").write_text(json.dumps({"ok": process.returncode == 0, "said": process.stdout}))
        for path in out.rglob("*"):
            if path.is_file() and path.name not in KEPT:
                path.unlink()
        shutil.rmtree(result, ignore_errors=True)
        out.rename(result)


def examples() -> list[Path]:
    """Intel's open examples for Tofino 1, if present. (The published SwitchML takes the compiler half an hour.)"""
    if not (folder := os.environ.get("INA_P4STUDIO")):
        return []
    programs = Path(folder, "p4-examples/p4_16_programs")
    return [p for p in sorted(programs.glob("*/*.p4")) if p.stem == p.parent.name and p.stem not in OTHERS]


def loaded(program: Path) -> CheckedProgram:
    return load(program, include_dirs=[program.parent, program.parent.parent])


def table() -> dict[str, list[str]]:
    """Estimates for docs/site/features.toml: for every example the estimate of `ina tofino check` / the compiler's usage."""
    from ina.p4.tofino.check import check, report_totals
    from ina.p4.tofino.compiler import taken

    rows = {}
    for program in examples():
        estimates = report_totals(check(loaded(program)))
        real = taken(judged(program, (program.parent.parent,)).compiled)
        rows[program.stem] = [f"{estimates[resource][0]:,} / {real[resource]:,}" for resource in real]
    return rows


if __name__ == "__main__":
    print("\n".join(f"{name} = {json.dumps(cells)}" for name, cells in table().items()))
