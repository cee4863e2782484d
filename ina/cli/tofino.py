"""`ina tofino`: resources that a program needs of a Tofino, and deployed switches."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ina.base.bounds import SECONDS, real, whole
from ina.base.error_text import line
from ina.cli.controllers import add_common
from ina.cli.errors import reported
from ina.cli.p4 import preprocessing
from ina.cli.shipped import program_path
from ina.p4.rpc import connections as rpc


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the commands to `ina`; each sets `main`, a function of the parsed arguments."""
    tofino = commands.add_parser("tofino")
    verbs = tofino.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = verbs.add_parser("check", help="what a Tofino cannot do, and how much of one a program takes at least", description=(
        "What in a TNA program no Tofino 1 does, with the place; and estimates, from below, of stages, containers, stateful "
        "ALUs, SRAM, TCAM and hash bits. Exit status 1: there are errors."))
    check.add_argument("program", type=program_path, help="a P4_16 source that includes tna.p4, or a name of ina programs")
    preprocessing(check)
    check.add_argument("--json", action="store_true", help="everything as JSON")
    check.add_argument("--compare", action="store_true", help="compile it too, where a compiler is found, and print both figures")
    check.set_defaults(main=reported(_check, 2))
    compile_ = verbs.add_parser(
        "compile", help="what a real compiler for Tofino says of programs, where one is found",
        description="Compiles with P4C_TOFINO, bf-p4c or p4c-barefoot, and prints the resources that it reports.")
    compile_.add_argument("program", nargs="*", type=program_path, help="default: p4/tofino/*.p4")
    preprocessing(compile_)
    compile_.add_argument("--out", type=Path, default=Path("results/tofino"), help="where it writes (default: %(default)s)")
    compile_.set_defaults(main=reported(_compile, 2))
    controller = verbs.add_parser(
        "controller", help="admit jobs of the hosts of an experiment's file to its switches over BFRuntime",
        description="The controller of deployed switches; it finds running jobs again in its state file.")
    controller.add_argument("experiment", type=Path, help="the file that was deployed")
    controller.add_argument("--at", action="append", default=[], metavar="[NAME=]HOST:PORT",
                            help="where the switch's driver is served, as for ina deploy")
    controller.add_argument("--device-id", type=whole(0, 2**32 - 1), default=0, metavar="N", help="default: %(default)s")
    add_common(controller, "where workers reach it: tcp:HOST:PORT, or a socket's path", "the experiment's")
    controller.set_defaults(main=reported(_controller))
    doctor = verbs.add_parser(
        "doctor", help="see whether the switches of an experiment's file are there, deployed, and their links up",
        description="Asks each switch over BFRuntime, and writes nothing. What is between hosts: ina doctor --target tofino.",
    )
    doctor.add_argument("experiment", type=Path, help="a TOML file with a table [tofino]")
    doctor.add_argument("--at", action="append", default=[], metavar="[NAME=]HOST:PORT", help="as for ina deploy")
    rpc.add_arguments(doctor)
    doctor.add_argument("--device-id", type=whole(0, 2**32 - 1), default=0, metavar="N", help="default: %(default)s")
    doctor.add_argument("--timeout", type=real(1e-3, SECONDS), default=5.0, metavar="S",
                        help="for each answer (default: %(default)s)")
    doctor.add_argument("--json", action="store_true", help="for programs")
    doctor.set_defaults(main=reported(_doctor, 2))


def _controller(args: argparse.Namespace) -> int:
    import logging

    from ina.aggregation.controller.api import DEFAULT_SLOTS
    from ina.lab.deployment import deployment
    from ina.worlds.deployed import daemon
    from ina.worlds.deployed.switch_host import DeployedHost

    level = logging.INFO if args.verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="ina controller: %(message)s")
    d = deployment(args.experiment)
    slots = args.job_slots or getattr(d.config, "slots", 0) or DEFAULT_SLOTS
    arguments = d, d.all_addresses(args.at), args.device_id, rpc.Access.of(args), args.packet_lifetime, args.switch_timeout
    return daemon.serve(lambda: DeployedHost(*arguments), args.name, args.state, slots, args.user)


def _doctor(args: argparse.Namespace) -> int:
    from ina.lab.deployment import deployment
    from ina.lab.doctor.machine import show
    from ina.lab.doctor.switches import examine

    d = deployment(args.experiment)
    return show(examine(d, d.all_addresses(args.at), args.device_id, args.timeout, rpc.Access.of(args)), args.json)


def _compile(args: argparse.Namespace) -> int:
    from ina.base import paths
    from ina.p4.compiler.front.preprocess import macros
    from ina.p4.tofino import compiler

    status = 0
    defines = macros(args.define)
    command = compiler.find()
    for program in args.program or sorted((paths.p4_dir() / "tofino").glob("*.p4")):
        result = compiler.compile_with(command, program, args.out / program.stem, defines, args.include)
        print(compiler.report(result), flush=True)
        status |= not result.fits
    return status


def _check(args: argparse.Namespace) -> int:
    from ina.base import paths
    from ina.p4.compiler.front.preprocess import macros
    from ina.p4.compiler.frontend import load
    from ina.p4.tofino.check import as_json, check, text

    folders = [*args.include, args.program.parent, paths.p4_dir()]
    report = check(load(args.program, defines=macros(args.define), include_dirs=folders))
    print(json.dumps(as_json(report), indent=2) if args.json else text(report))
    accepted = not args.compare or _compare(report, args.program, macros(args.define), args.include)
    return int(bool(report.errors) or not accepted)


def _compare(report: Any, program: Path, defines: dict[str, str], include: list[Path]) -> bool:
    """Compiles the program too and prints both figures. Returns True if the compiler accepts it."""
    import tempfile

    from ina.p4.tofino import compiler

    try:
        with tempfile.TemporaryDirectory() as out:
            result = compiler.compile_with(compiler.find(), program, Path(out), defines, include)
    except (compiler.NoCompiler, OSError, TimeoutError) as error:
        print(f"ina: {line(error)}", file=sys.stderr)
        return False
    print()
    print(compiler.compared(report, result) if result.ok else compiler.report(result))
    return result.ok
