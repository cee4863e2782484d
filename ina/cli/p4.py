"""`ina compile`, `ina stf`, `ina explain`, `ina trace`: their arguments and output."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from ina.base.bounds import whole
from ina.cli.errors import Command, reported
from ina.cli.parsers import folder
from ina.cli.shipped import program_path


def add_arguments(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to `ina`; each sets `main`, a function of the parsed arguments."""
    compile_ = _command(subparsers, "compile", _compile)
    _program(compile_)
    compile_.add_argument("-o", dest="output", type=Path, metavar="FILE.so", help="copy the shared object there")
    compile_.add_argument("--c", dest="c", type=Path, metavar="FILE.c", help="copy the generated C there")
    externs(compile_)
    compile_.add_argument(
        "--p4info", action="append", default=[], type=Path, metavar="FILE", help="P4Info as .json, .txtpb or .bin"
    )
    compile_.add_argument(
        "--device-config", type=Path, metavar="FILE",
        help="what a P4Runtime controller sends to have an embedded switch run it: the source, with all that it includes",
    )

    stf = _command(subparsers, "stf", _stf)
    stf.add_argument("program", type=Path, help="PROGRAM.p4, or a folder of programs with tests of the same names")
    stf.add_argument("test", type=Path, nargs="?", help="TEST.stf (default: the program's name with .stf)")
    stf.add_argument(
        "--target", choices=("compiled", "interpreter", "both"), default="both", help="who is judged (default: both)"
    )
    preprocessing(stf)
    externs(stf)

    explain = _command(subparsers, "explain", _explain)
    _program(explain)
    explain.add_argument("--svg", type=Path, metavar="FILE.svg", help="draw the parser's states")

    trace = _command(subparsers, "trace", _trace)
    _program(trace)
    externs(trace)
    trace.add_argument("packets", help="a pcap file, or one frame in hexadecimal digits")
    trace.add_argument("--entries", type=Path, metavar="FILE.stf", help="table entries, groups and sessions as in STF")
    trace.add_argument("--port", type=whole(0, 511, "programs have 9 bits for it"), default=0,
                       help="where the frames come in (default: 0)")
    trace.add_argument("--limit", type=whole(1, 10**9), default=100, help="packets to show (default: 100)")


def _command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Command
) -> argparse.ArgumentParser:
    command = subparsers.add_parser(name)
    command.set_defaults(main=reported(run))
    return command


def _program(command: argparse.ArgumentParser) -> None:
    command.add_argument("program", type=program_path, help="a P4_16 source, or a name of ina programs")
    preprocessing(command)


def preprocessing(command: argparse.ArgumentParser) -> None:
    """Adds -D and -I."""
    command.add_argument(
        "-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="preprocessor macro"
    )
    command.add_argument(
        "-I", dest="include", action="append", default=[], type=folder, metavar="FOLDER",
        help="include folder; after them, that of the package's own programs is searched",
    )


def externs(command: argparse.ArgumentParser) -> None:
    """Adds --externs."""
    command.add_argument(
        "--externs", type=Path, metavar="FILE.py", help="bodies of externs that the program itself declares, in C and Python"
    )


def _folders(args: argparse.Namespace) -> list[Path]:
    """Returns include folders, with the package's own last, as wherever a protocol's program is compiled."""
    from ina.base import paths

    return [*args.include, paths.p4_dir()]


def _defines(args: argparse.Namespace) -> dict[str, str]:
    from ina.p4.compiler.front.preprocess import macros

    return macros(args.define)


def _load(args: argparse.Namespace) -> Any:
    """Loads and checks the program; its warnings go to stderr."""
    from ina.p4.compiler import errors, frontend

    program = frontend.load(args.program, defines=_defines(args), include_dirs=_folders(args))
    if program.warnings:
        print(errors.render(program.warnings, program.sources, "warning"), file=sys.stderr)
    return program


def _compile(args: argparse.Namespace) -> int:
    """Prints the shared object's path; warnings and the summary go to stderr."""
    from ina.p4.compiler import build, sandbox
    from ina.p4.compiler.p4info import files as p4info_files
    from ina.p4.tools import explain

    for path in args.p4info:
        p4info_files.check_name(path)
    started = time.perf_counter()
    compiled = build.compile_program(
        args.program, defines=_defines(args), include_dirs=_folders(args), externs=args.externs
    )
    seconds = time.perf_counter() - started
    for path in args.p4info:
        p4info_files.write(compiled.p4info, path)
    if args.device_config:
        args.device_config.write_bytes(sandbox.to_send(args.program, defines=_defines(args), include_dirs=_folders(args)))
    if args.c:
        _copy(compiled.c_path, args.c)
    if args.output:
        _copy(compiled.so_path, args.output)
    if compiled.warnings:
        print(compiled.warnings, file=sys.stderr)
    print("\n".join(explain.summary(compiled, seconds)), file=sys.stderr)
    print(args.output or compiled.so_path)
    return 0


def _copy(source: Path, target: Path) -> None:
    """Copies a file. Raises OSError about `target`: the source has just been written."""
    import shutil

    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error


def _stf(args: argparse.Namespace) -> int:
    from ina.p4.tools import stf

    targets = ("compiled", "interpreter") if args.target == "both" else (args.target,)
    if args.program.is_dir():
        if args.test is not None:
            raise ValueError(f"{args.program} is a folder: its tests are the .stf files beside the programs")
        tests = stf.tests_in(args.program)
    else:
        _check_order(args.program, args.test)
        tests = [(args.program, args.test or args.program.with_suffix(".stf"))]
        for path in tests[0]:
            path.stat()  # reports a missing file before a table begins
    return stf.report(tests, targets, stf.Options(_defines(args), _folders(args), args.externs))


def _check_order(program: Path, test: Path | None) -> None:
    """Raises ValueError for a test in the program's place: as P4 it would make no sense at its first digits."""
    if program.suffix == ".stf":
        beside = test or program.with_suffix(".p4")
        name = beside if beside.suffix == ".p4" and beside.exists() else "PROGRAM.p4"
        raise ValueError(f"{program} is a test: expected its program first: ina stf {name} {program}")
    if test is not None and test.suffix == ".p4":
        raise ValueError(f"{test} is a program: expected a test (.stf) after the first")


def _explain(args: argparse.Namespace) -> int:
    from ina.p4.tools import explain, parser_graph

    program = _load(args)
    print("\n".join(explain.lines(program)))
    if args.svg:
        args.svg.write_text(parser_graph.svg(parser_graph.graphs(explain.parser_of(program))), encoding="utf-8")
    return 0


def _trace(args: argparse.Namespace) -> int:
    from ina.p4.tools import stf_file, trace

    program = _load(args)
    entries = stf_file.read(args.entries) if args.entries else ""
    tracer = trace.Tracer(program, entries, str(args.entries or ""), args.externs)
    for number, (seconds, frame) in enumerate(trace.packets(args.packets, args.limit), start=1):
        print("\n".join(tracer.packet(number, frame, args.port, seconds)))
    return 0
