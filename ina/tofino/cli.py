"""`ina tofino`: what a program asks of a Tofino."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Add the commands to `ina`; each sets `main`, a function of the parsed arguments."""
    tofino = commands.add_parser("tofino", help="look at a program for Tofino as far as its source tells")
    verbs = tofino.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = verbs.add_parser("check", help="what a Tofino cannot do, and how much of one a program takes at least", description=(
        "What in a TNA program no Tofino 1 does, with the place; and estimates, from below, of stages, containers, stateful "
        "ALUs, SRAM, TCAM and hash bits. Exit status 1: there are errors."))  # fmt: skip
    check.add_argument("program", type=Path, help="a P4_16 source that includes tna.p4")
    check.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="preprocessor macro")
    check.add_argument("-I", dest="include", action="append", default=[], type=Path, metavar="FOLDER", help="include folder")
    check.add_argument("--json", action="store_true", help="everything as JSON")
    check.set_defaults(main=_check)


def _check(args: argparse.Namespace) -> int:
    from ina import paths
    from ina.compiler.errors import CompileError
    from ina.compiler.frontend import load
    from ina.tofino.check import as_json, check, text
    from ina.tofino.program import NotTna

    defines = {key: value or "1" for key, _, value in (item.partition("=") for item in args.define)}
    try:
        report = check(load(args.program, defines=defines, include_dirs=[*args.include, args.program.parent, paths.p4_dir()]))
    except CompileError as error:
        print(error, file=sys.stderr)
        return 2
    except NotTna as error:
        print(f"ina: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ina: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(json.dumps(as_json(report), indent=2) if args.json else text(report))
    return 1 if report.errors else 0
