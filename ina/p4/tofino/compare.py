"""Estimates of `ina tofino check` beside what a real compiler reports of the same program."""

from __future__ import annotations

from ina.p4.tofino.check import Report, report_totals
from ina.p4.tofino.compiler import Compiled

# By the names of check's totals, the title of a kind in the compiler's reports.
TITLES = {"stateful and meter ALUs": "SALU/meter", "SRAM blocks": "SRAM", "TCAM blocks": "TCAM", "hash bits": "hash bits"}


def taken(made: Compiled) -> dict[str, int]:
    """Of the fullest pipeline, by the names of check's totals. `stages`: up to the last that anything is in."""
    found = {"stages": max((last(stages) for stages in made.stages.values()), default=0)}
    found["bits of containers for headers"] = max(made.phv.values(), default=0)
    for what, title in TITLES.items():
        found[what] = max((sum(s[title] for s in stages) for stages in made.stages.values()), default=0)
    return found


def last(stages: list[dict[str, int]]) -> int:
    return max((number for number, stage in enumerate(stages, 1) if any(stage.values())), default=0)


def text(report: Report, made: Compiled) -> str:
    """A table; the compiler's containers hold metadata too."""
    real = taken(made)
    lines = [f"{'':34}{'at least':>10}{'taken':>10}{'there are':>12}"]
    for what, (used, has) in report_totals(report).items():
        lines.append(f"    {what:30}{used:10,}{f'{real[what]:,}' if what in real else '':>10}{has:12,}")
    return "\n".join(lines)
