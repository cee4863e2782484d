"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ..."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ina import __version__, paths
from ina.experiment import cli as experiments
from ina.wire import cli as wire


def _compile(args: argparse.Namespace) -> int:
    from ina.compiler import build
    from ina.compiler.errors import CompileError

    defines = {key: value or "1" for key, _, value in (item.partition("=") for item in args.define)}
    try:
        program = build.compile_program(args.program, defines=defines, include_dirs=args.include)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except build.BuildError as error:
        print(f"ina: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ina: {error.filename or paths.cache_dir()}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{program.so_path}")
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ina", description="In-network aggregation: P4 switch programs and real torch training."
    )
    top.add_argument("--version", action="version", version=f"ina {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    experiments.add_arguments(commands)

    compile_ = commands.add_parser("compile", help="compile a P4_16 program to a native switch program")
    compile_.add_argument("program", type=Path)
    compile_.add_argument(
        "-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="preprocessor macro"
    )
    compile_.add_argument(
        "-I", dest="include", action="append", default=[], type=Path, metavar="FOLDER", help="include folder"
    )
    compile_.set_defaults(main=_compile)

    wire.add_arguments(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return args.main(args)


if __name__ == "__main__":
    sys.exit(main())
