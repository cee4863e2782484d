"""`ina stf`: STF tests of one program or of a folder, on the compiled switch and on the interpreter, as a table.

A test passes, fails (a packet or counter is not what the file expects), is refused (the program does not compile: a
located error of the compiler), or cannot be run (the file asks for what the target does not have, or cannot be read).
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ina.base import error_text
from ina.base.cc import BuildError
from ina.base.native import lib
from ina.p4.compiler import frontend
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter, InterpreterError
from ina.p4.compiler.reference.tables import TableError
from ina.p4.runtime.entity_error import EntityError
from ina.p4.tools import stf_file as stf
from ina.p4.tools.stf_numbers import StfError, number
from ina.p4.tools.stf_target import PORTS, CompiledTarget, InterpreterTarget

DROP_PORT = lib.INA_DROP_PORT
Outcome = tuple[str, str]  # "pass", "FAIL", "refused" or "no run"; the reason


class Options(NamedTuple):
    """Preprocessor macros, include folders, and a Python file with the bodies of the program's own externs."""

    defines: Mapping[str, str]
    include_dirs: Sequence[Path]
    externs: Path | None = None


def tests_in(folder: Path) -> list[tuple[Path, Path]]:
    """Returns the programs of a folder that have a test of the same name, dangling links too. Raises ValueError for none."""
    tests = [(p, p.with_suffix(".stf")) for p in sorted(folder.glob("*.p4")) if os.path.lexists(p.with_suffix(".stf"))]
    usable = [(p, t) for p, t in tests if is_ours(p)]
    if not usable:
        raise ValueError(f"{folder}: no v1model or TNA program (*.p4) with a test (*.stf) of the same name")
    return usable


def is_ours(program: Path) -> bool:
    """Returns True if a program includes v1model.p4 or tna.p4, also through other files, or cannot be read; programs for other
    architectures include files that we lack."""
    try:
        return any(Path(source).name in ("v1model.p4", "tna.p4") for source in preprocess(program)[1])
    except CompileError:
        return False
    except OSError:
        return True


def run(program: Path, test: Path, target: str, options: Options) -> Outcome:
    """Runs a test on `target` ("compiled" or "interpreter")."""
    try:
        text = test.read_text(encoding="utf-8-sig")
        if target == "interpreter":
            checked = frontend.load(program, defines=options.defines, include_dirs=options.include_dirs)
            interpreter = Interpreter(checked, externs=options.externs)
            result = stf.run(text, InterpreterTarget(interpreter, p4info.build(checked)), str(test))
        else:
            compiled = CompiledTarget(compile_program(program, **options._asdict()), ports(text))
            with compiled.switch:
                result = stf.run(text, compiled, str(test))
    except CompileError as error:
        first = error.diagnostics[0]
        return "refused", f"{first.span}: {first.message}"
    except OSError as error:
        return "no run", error_text.line(error)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return "no run", f"{test}:{line}: not UTF-8: {error.reason}"
    except (BuildError, StfError, InterpreterError, TableError, EntityError) as error:
        return "no run", str(error).splitlines()[0]
    return ("pass", "") if result.passed else ("FAIL", result.failures[0])


def ports(text: str) -> set[int]:
    """Returns the ports of every switch, and those that a test names beyond them."""
    numbers = set(range(PORTS))
    for command in stf.parse(text):
        if command.name in ("packet", "expect", "no_packet"):
            with contextlib.suppress(StfError):
                numbers.add(number(command.text.partition(" ")[0]))
    return {port for port in numbers if 0 <= port < DROP_PORT}


def report(tests: Sequence[tuple[Path, Path]], targets: Sequence[str], options: Options) -> int:
    """Prints a line for each test, reasons below it, and the sums. Returns 0 when everything passed, else 1."""
    width = max(len(test.stem) for _, test in tests)
    sums: dict[str, Counter[str]] = {target: Counter() for target in targets}
    print(f"{'':{width}}  " + "  ".join(f"{target:11}" for target in targets))
    for program, test in tests:
        outcomes = [run(program, test, target, options) for target in targets]
        print(f"{test.stem:{width}}  " + "  ".join(f"{verdict:11}" for verdict, _ in outcomes).rstrip(), flush=True)
        for target, (verdict, reason) in zip(targets, outcomes, strict=True):
            sums[target][verdict] += 1
            if reason:
                print(f"    {target}: {reason}")
    for target, verdicts in sums.items():
        print(f"{target}: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    return int(any(verdict != "pass" for verdicts in sums.values() for verdict in verdicts))
