"""An external compiler for Tofino, where there is one: its verdict on a program, and the resources that the program takes.

`P4C_TOFINO` names it, or else it is on PATH: `bf-p4c` of an SDE or of open-p4studio, or `p4c-barefoot`, the open back end of p4c
by itself (which stops before the assembler). With `-g` it writes resources.json and phv.json for each pipeline (p4c,
backends/tofino/compiler_interfaces/schemas), which are read here, and compared with the estimates of `ina tofino check`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ina.base import paths, tool
from ina.p4.tofino.check import Report, report_totals

VARIABLE, NAMES = "P4C_TOFINO", ("bf-p4c", "p4c-barefoot")
DEADLINE = 1800.0  # seconds for a program
STAGES = 12
# Resources of a stage: title, their two keys in resources.json, and how many a stage has.
KINDS = (
    ("tables", "logical_tables", "ids", 16), ("SRAM", "rams", "srams", 80), ("map RAM", "map_rams", "maprams", 48),
    ("TCAM", "tcams", "tcams", 24), ("SALU/meter", "meter_alus", "meters", 4), ("statistics", "statistic_alus", "stats", 4),
    ("hash bits", "hash_bits", "bits", 416), ("gateways", "gateways", "gateways", 16), ("VLIW", "vliw", "instructions", 32),
)


class NoCompiler(RuntimeError):
    """No compiler for Tofino; the message says how to name one."""


@dataclass
class Compiled:
    """`ok`: it accepted the program; `output`: its messages; `stages`: by pipeline, of each stage how much is used by KINDS'
    titles; `phv`: by pipeline, bits of containers in use; `folder`: everything that it wrote."""

    program: Path
    compiler: str
    ok: bool
    seconds: float
    output: str
    folder: Path
    stages: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    phv: dict[str, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Number of stages that are not empty."""
        return max((sum(any(s.values()) for s in stages) for stages in self.stages.values()), default=0)

    @property
    def fits(self) -> bool:
        """True if it was accepted and fits; p4c-barefoot by itself also accepts programs that need more stages than there are."""
        return self.ok and self.used <= STAGES


def find() -> str:
    """Returns the compiler's path. Raises NoCompiler."""
    names = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else list(NAMES)
    for name in names:
        if path := shutil.which(name):
            return path
    text = (f"there is no {' and no '.join(names)}: {VARIABLE} can name a compiler for Tofino, such as bf-p4c of Intel's SDE or "
            "open-p4studio, or p4c-barefoot of p4c built with -DENABLE_TOFINO=ON (docs/guide/tofino.md)")
    raise NoCompiler(text)


def command(compiler: str, program: Path, out: Path, defines: Mapping[str, str], include: Sequence[Path]) -> list[str]:
    words = [compiler, "--target", "tofino", "--arch", "tna", "-g", "-o", str(out)]
    if "barefoot" in Path(compiler).name:
        words += ["-D__TARGET_TOFINO__=1"]  # defined by the driver, bf-p4c
    words += [f"-D{name}={value}" if value else f"-D{name}" for name, value in defines.items()]
    return [*words, *(f"-I{folder}" for folder in include), str(program)]


def compile_with(compiler: str, program: Path, out: Path, defines: Mapping[str, str] | None = None,
                 include: Sequence[Path] = ()) -> Compiled:
    """Runs the compiler. Raises OSError; TimeoutError after half an hour."""
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    words = command(compiler, program, out, defines or {}, [*include, program.parent, paths.p4_dir()])
    try:
        process = tool.run(words, DEADLINE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{compiler} did not finish {program} within {DEADLINE:g} s") from None
    result = Compiled(program, compiler, process.returncode == 0, time.monotonic() - start, process.stdout, out)
    for path in sorted(out.rglob("resources.json")):
        result.stages[path.parent.parent.name] = stages_of(json.loads(path.read_text()))
    for path in sorted(out.rglob("phv.json")):
        result.phv[path.parent.parent.name] = phv_bits(json.loads(path.read_text()))
    return result


def stages_of(content: dict[str, Any]) -> list[dict[str, int]]:
    """Returns, for each stage, how many of each kind are in use: resources.json lists only those."""
    stages = content.get("resources", content).get("mau", {}).get("mau_stages", [])
    return [{title: len(stage.get(section, {}).get(items, ())) for title, section, items, _ in KINDS}
            for stage in sorted(stages, key=lambda s: s["stage_number"])]


def phv_bits(content: dict[str, Any]) -> int:
    """Returns the width of all containers that hold anything."""
    return sum(int(c.get("bit_width", 0)) for c in content.get("containers", ()) if c.get("slices"))


def report(compiled: Compiled) -> str:
    verdict = "compiled" if compiled.fits else "TOO MANY STAGES, though compiled," if compiled.ok else "REFUSED"
    lines = [f"{compiled.program}: {verdict} by {Path(compiled.compiler).name} in {compiled.seconds:.0f} s"]
    for pipe, stages in compiled.stages.items():
        count = sum(any(s.values()) for s in stages)
        phv = f"; containers of {compiled.phv[pipe]} bits of 6144" if pipe in compiled.phv else ""
        lines.append(f"  pipeline {pipe}: {count} of 12 stages{phv}")
        lines.append("    stage " + "".join(f"{title:>12}" for title, *_ in KINDS))
        for number, stage in enumerate(stages):
            if any(stage.values()):
                lines.append(f"    {number:5} " + "".join(f"{stage[title]:12}" for title, *_ in KINDS))
        lines.append("    all   " + "".join(f"{sum(s[title] for s in stages):12}" for title, *_ in KINDS))
        lines.append("    of    " + "".join(f"{12 * most:12}" for *_, most in KINDS))
    messages = [line for line in compiled.output.splitlines() if "error" in line.lower()] or compiled.output.splitlines()
    if not compiled.ok:
        lines += [f"  {line}" for line in messages[:20]]
    lines.append(f"  everything that it wrote: {compiled.folder}")
    return "\n".join(lines)


# Titles of kinds in the compiler's reports, by the names of check's totals.
TITLES = {"stateful and meter ALUs": "SALU/meter", "SRAM blocks": "SRAM", "TCAM blocks": "TCAM", "hash bits": "hash bits"}


def taken(compiled: Compiled) -> dict[str, int]:
    """Returns the use of the fullest pipeline, by the names of check's totals. `stages`: up to the last that is not empty."""
    totals = {"stages": max((last(stages) for stages in compiled.stages.values()), default=0)}
    totals["bits of containers for headers"] = max(compiled.phv.values(), default=0)
    for name, title in TITLES.items():
        totals[name] = max((sum(s[title] for s in stages) for stages in compiled.stages.values()), default=0)
    return totals


def last(stages: list[dict[str, int]]) -> int:
    return max((number for number, stage in enumerate(stages, 1) if any(stage.values())), default=0)


def compared(report: Report, compiled: Compiled) -> str:
    """Returns the table of both; the compiler's containers hold metadata too."""
    real = taken(compiled)
    rows = [f"    {name:30}{bound:10,}{f'{real[name]:,}' if name in real else '':>10}{limit:12,}"
            for name, (bound, limit) in report_totals(report).items()]
    return "\n".join([f"{'':34}{'at least':>10}{'taken':>10}{'there are':>12}", *rows])
