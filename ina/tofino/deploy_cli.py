"""`ina deploy`: an experiment's ports, tables, groups and mirror sessions on a real switch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EPILOG = """
  ina deploy wedge.toml --dry-run                            # planned against the embedded switch
  ina deploy wedge.toml --at switch:50052 --dry-run          # against the switch; nothing is written
  ina deploy wedge.toml --at switch:50052
  ina deploy wedge.toml --hosts                              # what is done on each host
"""


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Add `ina deploy` to the commands."""
    deploy = commands.add_parser("deploy", help="write an experiment's ports, tables, groups and sessions to a real switch",
                                 description="Reads the [tofino] table of an experiment's file, plans every write, makes them, "
                                 "reads them back, and takes them back where one fails.",
                                 epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    deploy.add_argument("experiment", type=Path, help="a TOML file with a table [tofino] (docs/tofino.md)")
    deploy.add_argument("--target", choices=("tofino",), default="tofino", help="what kind of switch (default: %(default)s)")
    deploy.add_argument("--at", default="", metavar="HOST:PORT", help="where the switch's driver is served")
    deploy.add_argument("--api", choices=("bfrt", "p4runtime"), default="bfrt", help="its language (default: %(default)s)")
    deploy.add_argument("--device-id", type=int, metavar="N", help="default: 0 with bfrt, 1 with p4runtime")
    deploy.add_argument("--timeout", type=float, default=10.0, metavar="S", help="for each answer (default: %(default)s)")
    what = deploy.add_mutually_exclusive_group()
    what.add_argument(
        "--dry-run", action="store_true", help="print every write; without --at, planned against the embedded switch"
    )
    what.add_argument("--hosts", action="store_true", help="print what is done on each host")
    deploy.add_argument("--json", action="store_true", help="with --dry-run: the plan as JSON")
    deploy.set_defaults(main=_main)


def _main(args: argparse.Namespace) -> int:
    from ina.compiler.cc import BuildError
    from ina.compiler.errors import CompileError
    from ina.experiment.config import ConfigError
    from ina.switch.p4info import EntityError
    from ina.tofino.deployment import DeploymentError

    try:
        return _deploy(args)
    except (ConfigError, EntityError, DeploymentError, TimeoutError, ImportError, BuildError, CompileError, OSError) as error:
        print(f"ina: {error}", file=sys.stderr)
        return 1


def _deploy(args: argparse.Namespace) -> int:
    from ina.tofino import deploy
    from ina.tofino.experiment import ConfigError, read

    d = read(args.experiment)
    if args.hosts:
        for name, commands in deploy.host_commands(d):
            print(f"# {name}", *commands, "", sep="\n")
        return 0
    if not args.at and not args.dry_run:
        raise ConfigError("--at HOST:PORT is missing: where is the switch's driver served? (or --dry-run, or --hosts)")
    with _connected(args, d) as switch:
        steps = deploy.plan(d, switch)
        if args.dry_run:
            _show(args, switch, steps)
            return 0
        deploy.carry_out(steps, switch, lambda line: print(line, flush=True))
        print(f"{args.experiment} is deployed on {switch.address}")
    return 0


def _show(args: argparse.Namespace, switch: Any, steps: list[Any]) -> None:
    if args.json:
        made = [{"what": s.what, "there": s.there, "changes": [c.as_json() for c in s.changes]} for s in steps]
        print(json.dumps({"switch": switch.address, "api": args.api, "steps": made}, indent=2, default=str))
        return
    count = sum(len(s.changes) for s in steps)
    print(f"{args.experiment} on {switch.address} over {switch.name}: {count} writes")
    for step in steps:
        there = f" ({step.there} there already)" if step.there else ""
        print(f"{step.what}{there}", *(f"    {change}" for change in step.changes), sep="\n")


@contextmanager
def _connected(args: argparse.Namespace, d: Any) -> Iterator[Any]:
    from ina.tofino.deployment import Bfrt, P4Runtime

    if not args.at:
        with _embedded(args, d) as switch:
            yield switch
        return
    if args.api == "bfrt":
        from ina.bfrt.target import BfRuntimeTarget

        switch: Any = Bfrt(BfRuntimeTarget(args.at, args.device_id or 0, d.p4_name, timeout=args.timeout))
    else:
        from ina.p4runtime.target import RemoteSwitch

        switch = P4Runtime(RemoteSwitch(args.at, 1 if args.device_id is None else args.device_id, timeout=args.timeout))
    try:
        yield switch
    finally:
        switch.close()


@contextmanager
def _embedded(args: argparse.Namespace, d: Any) -> Iterator[Any]:
    """A switch in this process that runs the TNA twin of the experiment's program."""
    from ina import paths
    from ina.bfrt.device import Device
    from ina.bfrt.service import Server
    from ina.bfrt.target import BfRuntimeTarget
    from ina.compiler.build import compile_program
    from ina.experiment.config import ConfigError
    from ina.switch import Switch
    from ina.tofino.deployment import Bfrt

    if args.api != "bfrt":
        raise ConfigError("--api p4runtime plans against a switch: give --at HOST:PORT")
    path = paths.p4_dir() / "tofino" / f"{d.p4_name}.p4"
    sizes = {"VALUES": str(d.config.values)} if hasattr(d.config, "values") else {}
    if not path.is_file():
        raise ConfigError(f"{path} is not there: to plan for another program give --at HOST:PORT")
    with Switch(compile_program(path, defines=sizes, include_dirs=[paths.p4_dir()]).so_path) as switch, \
            Server(Device(switch, d.p4_name)) as server, BfRuntimeTarget(server.address) as target:  # fmt: skip
        made = Bfrt(target)
        made.address = f"the embedded switch ({path.name})"
        yield made
