"""Estimates of `ina tofino check` beside the resources that a real compiler reports for the same program."""

from __future__ import annotations

from ina.p4.tofino.check import Report, report_totals
from ina.p4.tofino.compiler import Compiled

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


def text(report: Report, compiled: Compiled) -> str:
    """Returns the table of both; the compiler's containers hold metadata too."""
    real = taken(compiled)
    lines = [f"{'':34}{'at least':>10}{'taken':>10}{'there are':>12}"]
    for name, (bound, limit) in report_totals(report).items():
        lines.append(f"    {name:30}{bound:10,}{f'{real[name]:,}' if name in real else '':>10}{limit:12,}")
    return "\n".join(lines)
