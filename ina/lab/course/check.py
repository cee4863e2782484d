"""Check of a student's program: it is compiled, runs the packet tests of its step, and then the step's walks and virtual runs.

`check` does it in this process; `judged` in a process of its own that ends at a deadline, whatever the program is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ina.base import tool
from ina.base.plurals import counted
from ina.lab.course.step import COURSE, INCLUDED, Step, Walk

if TYPE_CHECKING:
    from ina.p4.compiler.checked_program import CheckedProgram
    from ina.p4.compiler.compiled import CompiledProgram

PASS, FAIL, REFUSED, STOPPED = "pass", "FAIL", "refused", "stopped"  # see Verdict
DIAGNOSTICS = 5  # of a compiler, shown
DEADLINE = 120.0  # seconds of a check


@dataclass(frozen=True)
class Result:
    """The result of one test. `details`, `hint` and `trace`: of one that failed, in lines; `note`: of a walk or a run, how far it
    went."""

    title: str
    passed: bool
    place: str = ""
    note: str = ""
    details: Sequence[str] = ()
    hint: str = ""
    trace: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of a check. `verdict`: PASS, FAIL, REFUSED (the program does not compile) or STOPPED (the check has no end,
    or there is none). `message`: the compiler's report, or why there is no result."""

    step: str
    verdict: str
    message: str = ""
    results: Sequence[Result] = ()

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)

    def first(self) -> str:
        """Returns the first test that failed, or the first line of the message."""
        for result in self.results:
            if not result.passed:
                return result.title + (f" ({result.place})" if result.place else "")
        return self.message.strip().splitlines()[0] if self.message else ""


def check(step: Step, program: Path) -> Verdict:
    """Checks a program against a step. Raises OSError, BuildError (there is no C compiler), StfError (a test of the course)."""
    from ina.p4.compiler import frontend
    from ina.p4.compiler.build import compile_program
    from ina.p4.compiler.errors import CompileError, render

    beside = program.parent / INCLUDED
    if beside.is_file() and beside.read_bytes() != (COURSE / INCLUDED).read_bytes():
        return Verdict(step.name, REFUSED, f"{beside} is not the course's: expected what `ina exercise new` writes; remove it")
    try:
        checked = frontend.load(program, include_dirs=[COURSE])
        # -O1: a class waits for compilers, and not for packets.
        compiled = compile_program(program, include_dirs=[COURSE], cflags=["-O1"])
    except CompileError as error:
        more = len(error.diagnostics) - DIAGNOSTICS
        report = render(error.diagnostics[:DIAGNOSTICS], error.sources)
        return Verdict(step.name, REFUSED, report + (f"\n... and {counted(more, 'more error')}" if more > 0 else ""))
    results = list(_results(step, compiled, checked))
    verdict = PASS if all(result.passed for result in results) else FAIL
    return Verdict(step.name, verdict, compiled.warnings, results)


def _results(step: Step, compiled: CompiledProgram, checked: CheckedProgram) -> Iterator[Result]:
    """Yields the results of the packet tests, and, if all of them passed, of the walks, and then of the runs."""
    from ina.lab.course import cases

    failed = False
    for path in step.tests:
        case = cases.load(path)
        failure = cases.run(case, compiled, checked)
        if failure is None:
            yield Result(case.title, True)
        else:
            failed = True
            yield Result(case.title, False, failure.place, "", failure.message, failure.hint, failure.trace)
    for walk in step.walks:
        skipped = Result(walk.title, False, note="not run: what comes before first")
        result = skipped if failed else _walked(walk, compiled, checked)
        failed |= not result.passed
        yield result
    for walk in step.walks:
        if walk.run:
            result = Result(walk.run, False, note="not run: what comes before first") if failed else _run(walk, compiled)
            failed |= not result.passed
            yield result


def _walked(walk: Walk, compiled: CompiledProgram, checked: CheckedProgram) -> Result:
    from ina.lab.course import walks
    from ina.p4.runtime.entity_error import EntityError
    from ina.p4.tools.stf_numbers import StfError

    try:
        report = walks.run(walk, compiled)
    except (StfError, EntityError, ValueError) as error:
        return Result(walk.title, False, details=[str(error)], hint=walk.hint)
    extent = "all of them" if report.complete else f"not all of them, {counted(report.depth, 'step')} deep"
    note = f"{counted(report.states, 'state')}, {extent}"
    if report.violation is None:
        return Result(walk.title, True, note=note)
    steps = [f"{number:2}. {step}" for number, step in enumerate(report.steps, 1)]
    after = f"after {'this' if len(steps) == 1 else 'these'} {counted(len(steps), 'step')}: {report.violation}"
    return Result(walk.title, False, "", note, [after, *steps], walk.hint, list(walks.traced(walk, report, checked)))


def _run(walk: Walk, compiled: CompiledProgram) -> Result:
    from ina.lab.course import virtual
    from ina.p4.runtime.entity_error import EntityError
    from ina.p4.tools.stf_numbers import StfError

    try:
        outcome = virtual.run(walk, compiled)
    except (StfError, EntityError) as error:
        return Result(walk.run, False, details=[str(error)], hint=walk.hint)
    note = f"{counted(outcome.frames, 'frame')}, {outcome.lost} lost, {outcome.time * 1e3:.1f} ms"
    if not outcome.problem:
        return Result(walk.run, True, note=note)
    return Result(walk.run, False, "", note, [outcome.problem, "after these frames of the workers:", *outcome.trace], walk.hint)


def judged(step: Step, program: Path, seconds: float = DEADLINE) -> Verdict:
    """Checks a program in a process of its own, which gets `seconds`. Whatever ends it early is a verdict. Raises OSError."""
    words = [sys.executable, "-m", "ina.lab.course.judge", step.name, str(program.absolute()), str(seconds)]
    try:
        done = tool.run(words, seconds)
    except subprocess.TimeoutExpired:
        return Verdict(step.name, STOPPED, f"no result within {seconds:g} s: expected a program that compiles and answers in a "
                       "few seconds; look for large registers, loops, and much repeated code (--deadline gives more time)")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Verdict(step.name, STOPPED, f"the check ended with status {done.returncode}: {last}")
    content = json.loads(done.stdout)
    return Verdict(**{**content, "results": [Result(**result) for result in content["results"]]})


def encoded(verdict: Verdict) -> str:
    """Returns a verdict as JSON, as `judged` reads it."""
    return json.dumps(asdict(verdict))


def lines(name: str, verdict: Verdict) -> Iterator[str]:
    """Yields the report of a check for a student: a line for each test, and all about the first one that failed."""
    yield f"{name}: {f'step {verdict.step}: ' if verdict.step else ''}{verdict.verdict}"
    if verdict.message:
        yield from verdict.message.rstrip().splitlines()
    shown = False
    for result in verdict.results:
        more = f" ({result.place or result.note})" if result.place or result.note else ""
        yield f"  {'pass' if result.passed else 'FAIL'}  {result.title}{more}"
        if result.details and not shown:
            shown = True
            yield from _details(result)
    if verdict.results:
        yield f"{verdict.passed} of {counted(len(verdict.results), 'test')} passed"


def _details(result: Result) -> Iterable[str]:
    yield from (f"        {line}" for line in result.details)
    if result.hint:
        yield f"        hint: {result.hint}"
    if result.trace:
        yield "        step by step:"
        yield from (f"          {line}" for line in result.trace)
