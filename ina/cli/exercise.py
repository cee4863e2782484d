"""`ina exercise`: a course on in-network aggregation in P4: its steps, skeletons for students, and checks of what they write."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from ina.base.bounds import real
from ina.base.csv_text import csv_text
from ina.cli.errors import reported


def add_arguments(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command to `ina`; its parts set `main`, a function of the parsed arguments."""
    exercise = subparsers.add_parser(
        "exercise",
        description="A course on in-network aggregation in P4, in steps. Each has a skeleton with things to do, and a check that "
        "runs packets through what a student has written, and says what is wrong with the first one that goes wrong.",
    )
    actions = exercise.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        parser.set_defaults(main=reported(run, 2))
        return parser

    action("list", _list, "list the steps")
    show = action("show", _show, "show a step's task and tests")
    show.add_argument("name", help="a step of ina exercise list")
    new = action("new", _new, "write a step's skeleton, to begin with")
    new.add_argument("name", help="a step of ina exercise list")
    new.add_argument("folder", nargs="?", type=Path, default=Path(), help="where to write NAME.p4 (default: here)")
    check = action("check", _check, "check programs; exit status 0: all passed, 1: one did not, 2: one cannot be checked")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH",
                       help="a program, or a folder whose programs (*.p4) are checked")
    check.add_argument("--step", metavar="NAME",
                       help="the step of all programs (default: what each says in its line 'exercise: NAME')")
    check.add_argument("--csv", action="store_true", help="print a row for each program, instead of reports")
    check.add_argument("--deadline", type=real(1, 3600), default=120.0, metavar="SECONDS",
                       help="for one program, all its tests together (default: 120)")


def _list(args: argparse.Namespace) -> int:
    from ina.lab.course import step

    steps = step.steps()
    width = max(len(each.name) for each in steps)
    for each in steps:
        print(f"{each.number}. {each.name:<{width}}  {each.about} ({each.minutes} min)")
    return 0


def _show(args: argparse.Namespace) -> int:
    from ina.lab.course import step

    each = step.named(args.name)
    print(f"{each.number}. {each.title}: {each.about}", each.task.rstrip(), sep="\n")
    print("\nTests, in this order:")
    for path in each.tests:
        print(f"  packets: {path.read_text(encoding='utf-8').splitlines()[0].removeprefix('#').strip()}")
    for walk in each.walks:
        print(f"  all orders: {walk.title}")
    for walk in each.walks:
        if walk.run:
            print(f"  virtual time: {walk.run}")
    print(f"\nina exercise new {each.name} writes the skeleton, {each.name}.p4; "
          f"ina exercise check {each.name}.p4 runs the tests.")
    return 0


def _new(args: argparse.Namespace) -> int:
    from ina.lab.course import step

    each = step.named(args.name)
    text = each.skeleton.read_text(encoding="utf-8")
    if args.folder.exists() and not args.folder.is_dir():
        raise FileExistsError(f"{args.folder} is a file: expected a folder for {each.name}.p4, one that there is or a new one, "
                              f"such as: ina exercise new {each.name} class")
    args.folder.mkdir(parents=True, exist_ok=True)
    program = args.folder / f"{each.name}.p4"
    try:
        with program.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FileExistsError(f"{program} is there already: expected a new file; choose another folder, or move it") from None
    print(program)
    if f'"{step.INCLUDED}"' in text:
        (args.folder / step.INCLUDED).write_bytes((step.COURSE / step.INCLUDED).read_bytes())
        print(f"{args.folder / step.INCLUDED} (headers and parser, which {program.name} includes)")
    return 0


def _programs(paths: list[Path]) -> list[Path]:
    """Returns the programs that paths name. Raises ValueError: a folder has none; OSError: a file is not there."""
    from ina.lab.course.step import INCLUDED

    programs = []
    for path in paths:
        if not path.is_dir():
            path.stat()
            programs.append(path)
            continue
        inside = [program for program in sorted(path.glob("*.p4")) if program.name != INCLUDED]
        if not inside:
            raise ValueError(f"{path}: no program (*.p4) in this folder; ina exercise new NAME {path} writes a skeleton there")
        programs += inside
    return programs


def _check(args: argparse.Namespace) -> int:
    from ina.lab.course import check, step

    fixed = step.named(args.step) if args.step else None
    programs = _programs(args.paths)
    if args.csv:
        sys.stdout.write(csv_text([["program", "step", "verdict", "passed", "tests", "first"]]))
    status = 0
    for position, program in enumerate(programs):
        try:
            text = step.source(program)
            verdict = check.judged(fixed or step.step_of(program, text), program, args.deadline)
        except (step.StepError, OSError) as error:
            verdict = check.Verdict("", check.STOPPED, str(error))
        status = max(status, {check.PASS: 0, check.STOPPED: 2 if not verdict.step else 1}.get(verdict.verdict, 1))
        if args.csv:
            sys.stdout.write(csv_text([[program, verdict.step, verdict.verdict, verdict.passed, len(verdict.results),
                                        "" if verdict.verdict == check.PASS else verdict.first()]]))
            sys.stdout.flush()
        else:
            print(*([""] if position else []), *check.lines(str(program), verdict), sep="\n", flush=True)
    return status
