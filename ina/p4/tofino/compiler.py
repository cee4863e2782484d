"""A compiler for Tofino that somebody else wrote, where there is one: what it says of a program, and what that really takes.

`P4C_TOFINO` names it, or else it is on PATH: `bf-p4c` of an SDE or of open-p4studio, or `p4c-barefoot`, the open back end of
p4c by itself (which stops before the assembler). With `-g` it writes resources.json and phv.json for each pipeline (p4c,
backends/tofino/compiler_interfaces/schemas), which are read here.
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

from ina.base import paths

VARIABLE, NAMES = "P4C_TOFINO", ("bf-p4c", "p4c-barefoot")
DEADLINE = 1800.0  # seconds for a program
STAGES = 12
# What of a stage is counted: title, where it is in resources.json, and how many there are.
KINDS = (
    ("tables", "logical_tables", "ids", 16), ("SRAM", "rams", "srams", 80), ("map RAM", "map_rams", "maprams", 48),
    ("TCAM", "tcams", "tcams", 24), ("SALU/meter", "meter_alus", "meters", 4), ("statistics", "statistic_alus", "stats", 4),
    ("hash bits", "hash_bits", "bits", 416), ("gateways", "gateways", "gateways", 16), ("VLIW", "vliw", "instructions", 32),
)  # fmt: skip


class NoCompiler(RuntimeError):
    """There is none here; the message says how to name one."""


@dataclass
class Compiled:
    """`ok`: it took the program; `said`: its output; `stages`: by pipeline, of each stage how much is used by KINDS' titles;
    `phv`: by pipeline, bits of containers in use; `folder`: everything that it wrote."""

    program: Path
    compiler: str
    ok: bool
    seconds: float
    said: str
    folder: Path
    stages: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    phv: dict[str, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Stages in which anything is."""
        return max((sum(any(s.values()) for s in stages) for stages in self.stages.values()), default=0)

    @property
    def fits(self) -> bool:
        """p4c-barefoot by itself says that all is well of a program for which it took more stages than there are."""
        return self.ok and self.used <= STAGES


def find() -> str:
    """Raises NoCompiler."""
    wanted = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else list(NAMES)
    for name in wanted:
        if found := shutil.which(name):
            return found
    text = (f"there is no {' and no '.join(wanted)}: {VARIABLE} can name a compiler for Tofino, such as bf-p4c of Intel's SDE or "
            "open-p4studio, or p4c-barefoot of p4c built with -DENABLE_TOFINO=ON (docs/tofino.md)")  # fmt: skip
    raise NoCompiler(text)


def command(compiler: str, program: Path, out: Path, defines: Mapping[str, str], include: Sequence[Path]) -> list[str]:
    words = [compiler, "--target", "tofino", "--arch", "tna", "-g", "-o", str(out)]
    if "barefoot" in Path(compiler).name:
        words += ["-D__TARGET_TOFINO__=1"]  # what the driver, bf-p4c, sees to
    words += [f"-D{name}={value}" if value else f"-D{name}" for name, value in defines.items()]
    return [*words, *(f"-I{folder}" for folder in include), str(program)]


def compile_with(compiler: str, program: Path, out: Path, defines: Mapping[str, str] | None = None,
                 include: Sequence[Path] = ()) -> Compiled:  # fmt: skip
    """Runs it. Raises OSError; TimeoutError after half an hour."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    words = command(compiler, program, out, defines or {}, [*include, program.parent, paths.p4_dir()])
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=DEADLINE)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{compiler} did not finish {program} within {DEADLINE:g} s") from None
    made = Compiled(program, compiler, done.returncode == 0, time.monotonic() - began, done.stdout, out)
    for path in sorted(out.rglob("resources.json")):
        made.stages[path.parent.parent.name] = stages_of(json.loads(path.read_text()))
    for path in sorted(out.rglob("phv.json")):
        made.phv[path.parent.parent.name] = phv_bits(json.loads(path.read_text()))
    return made


def stages_of(said: dict[str, Any]) -> list[dict[str, int]]:
    """Of each stage, how many of each kind are in use: in a resources.json those are listed that are."""
    stages = said.get("resources", said).get("mau", {}).get("mau_stages", [])
    return [{title: len(stage.get(where, {}).get(items, ())) for title, where, items, _ in KINDS}
            for stage in sorted(stages, key=lambda s: s["stage_number"])]  # fmt: skip


def phv_bits(said: dict[str, Any]) -> int:
    """Width of all containers that hold anything."""
    return sum(int(c.get("bit_width", 0)) for c in said.get("containers", ()) if c.get("slices"))


def report(made: Compiled) -> str:
    verdict = "compiled" if made.fits else "TOO MANY STAGES, though compiled," if made.ok else "REFUSED"
    lines = [f"{made.program}: {verdict} by {Path(made.compiler).name} in {made.seconds:.0f} s"]
    for pipe, stages in made.stages.items():
        used = sum(any(s.values()) for s in stages)
        phv = f"; containers of {made.phv[pipe]} bits of 6144" if pipe in made.phv else ""
        lines.append(f"  pipeline {pipe}: {used} of 12 stages{phv}")
        lines.append("    stage " + "".join(f"{title:>12}" for title, *_ in KINDS))
        for number, stage in enumerate(stages):
            if any(stage.values()):
                lines.append(f"    {number:5} " + "".join(f"{stage[title]:12}" for title, *_ in KINDS))
        lines.append("    all   " + "".join(f"{sum(s[title] for s in stages):12}" for title, *_ in KINDS))
        lines.append("    of    " + "".join(f"{12 * most:12}" for *_, most in KINDS))
    said = [line for line in made.said.splitlines() if "error" in line.lower()] or made.said.splitlines()
    if not made.ok:
        lines += [f"  {line}" for line in said[:20]]
    lines.append(f"  everything that it wrote: {made.folder}")
    return "\n".join(lines)
