"""The command line: ``ina run``, ``ina compile``, ``ina switch``, ..."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from ina import __version__, paths
from ina.wire import cli as wire


def _pairs(items: list[str], flag: str) -> dict[str, str]:
    out = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise SystemExit(f"ina: {flag} {item!r}: expected key=value")
        out[key] = value
    return out


def _run(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("torch") is None:
        print("ina: training needs torch: pip install 'ina[torch,report]'", file=sys.stderr)
        return 1
    from rich.console import Console

    from ina.experiment import config, launch, run

    overrides = _pairs(args.set, "--set")
    for key in ("workers", "epochs", "steps", "backends", "data", "seed", "name", "faults"):
        value = getattr(args, key)
        if value is not None:
            overrides[key] = str(value)
    try:
        chosen = config.load(args.config, overrides)
    except config.ConfigError as error:
        print(f"ina: {error}", file=sys.stderr)
        return 2
    try:
        run.run(chosen, args.results, Console())
    except launch.JobFailed as error:
        print(f"ina: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ina: {error.filename or args.results}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ina: interrupted; every process of the run has been ended", file=sys.stderr)
        return 130
    return 0


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

    run = commands.add_parser("run", help="train a model through the P4 switch and over Gloo, and compare")
    run.add_argument(
        "config", nargs="?", type=Path, help="TOML file with an experiment's keys (default: Fashion-MNIST, 4 workers)"
    )
    run.add_argument("--workers", type=int, help="number of ranks")
    run.add_argument("--epochs", type=int, help="passes over the training set")
    run.add_argument("--steps", type=int, help="stop after this many steps")
    run.add_argument("--backends", help="comma-separated: ina,gloo")
    run.add_argument("--data", help="folder with Fashion-MNIST's IDX files")
    run.add_argument("--seed", type=int)
    run.add_argument("--name", help="the results folder's name begins with it")
    run.add_argument("--faults", help="e.g. loss=0.01,dup=0.01,reorder=0.01,seed=1: on every worker's port")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the configuration")
    run.add_argument(
        "--results", type=Path, default=Path("results"), help="where the results folder is made (default: results)"
    )
    run.set_defaults(main=_run)

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
