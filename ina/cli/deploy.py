"""`ina deploy`: an experiment's ports, tables, groups and mirror sessions on Tofinos, and its switch processes."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.base import tokens
from ina.base.bounds import SECONDS, real, whole
from ina.base.plurals import counted
from ina.cli.errors import reported
from ina.lab.servers.session import SSH
from ina.p4.rpc import connections as rpc

if TYPE_CHECKING:
    from ina.worlds.deployed.deployment_file import Deployment
    from ina.worlds.deployed.process_file import Processes
    from ina.worlds.deployed.processes import Intent

EPILOG = """
  ina deploy wedge.toml --dry-run                            # planned against the embedded switch
  ina deploy wedge.toml --at switch:50052 --insecure --dry-run   # against the switch; nothing is written
  ina deploy wedge.toml --at switch:50052 --insecure
  ina deploy wedge.toml --hosts                              # what is done on each host
  ina deploy wedge.toml --host server1                       # on that host, as root: its address, routes and neighbours
  ina deploy racks.toml                                      # several switches, each where the file says that it is
  ina deploy sums.toml                                       # switch processes ([process]), started by ssh where none is
  ina deploy sums.toml --status                              # Tofinos and switch processes: is all there?
  ina deploy sums.toml --down                                # end the switch processes, unless jobs run
"""
KINDS = ("tofino", "process")  # tables of the file


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds `ina deploy` to the commands."""
    deploy = commands.add_parser("deploy", description="Reads the [tofino] table of an experiment's file, plans every write, "
                                 "makes them, reads them back, and takes them back where one fails; and the [process] table, "
                                 "whose switch processes it starts on their machines where nobody listens.",
                                 epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    deploy.add_argument("experiment", type=Path, help="a TOML file with a table [tofino] (docs/guide/tofino.md), [process] "
                        "(docs/guide/operate.md), or both")
    deploy.add_argument("--target", choices=KINDS, help="these switches only (default: all of the file)")
    deploy.add_argument("--ssh", default=SSH, metavar="COMMAND", help="how to run a command on a switch process's machine, which "
                        "is added as one word (default: %(default)s)")
    deploy.add_argument("--at", action="append", default=[], metavar="[NAME=]HOST:PORT",
                        help="where the switch's driver is served; of several switches, once for each that is elsewhere than the "
                        "file says")
    rpc.add_arguments(deploy)
    deploy.add_argument("--api", choices=("bfrt", "p4runtime"), default="bfrt", help="its language (default: %(default)s)")
    deploy.add_argument("--device-id", type=whole(0, 2**64 - 1), metavar="N", help="default: 0 with bfrt, 1 with p4runtime")
    deploy.add_argument("--timeout", type=real(1e-3, SECONDS), default=10.0, metavar="S",
                        help="for each answer (default: %(default)s)")
    modes = deploy.add_mutually_exclusive_group()
    modes.add_argument("--dry-run", action="store_true", help="print every write, and make none; planned against the switch, or "
                       "against the embedded one where nobody says where the switch is")
    modes.add_argument("--embedded", action="store_true", help="as --dry-run, against the embedded switch wherever they are")
    modes.add_argument("--hosts", action="store_true", help="print what is done on each host")
    modes.add_argument("--status", action="store_true", help="say whether all is there, and write nothing")
    modes.add_argument("--down", action="store_true", help="end the switch processes, whoever started them, unless one has jobs; "
                       "what was written to a Tofino stays until its driver is started anew")
    deploy.add_argument("--host", metavar="NAME", help="this machine is that host: give its NIC its address, routes and "
                        "neighbours, unless other routes overlap; with --dry-run only look and say")
    deploy.add_argument("--json", action="store_true", help="with --dry-run or --status: as JSON")
    deploy.set_defaults(main=reported(_deploy))


def _deploy(args: argparse.Namespace) -> int:
    from ina.base.settings import ConfigError
    from ina.lab.deployment import deployment, switch_processes, tables
    from ina.worlds.deployed import host_setup

    kinds = tables(args.experiment, KINDS)
    if args.target and args.target not in kinds:
        raise ConfigError(f"--target {args.target}: {args.experiment} has no table [{args.target}]")
    kinds = [args.target] if args.target else kinds
    d = deployment(args.experiment) if "tofino" in kinds else None
    processes = switch_processes(args.experiment) if "process" in kinds else None
    for option in ("at", "host"):
        if d is None and getattr(args, option):
            raise ConfigError(f"--{option}: it belongs to a table [tofino]; [process] says where its switches listen, and its "
                              "hosts need no set-up")
    if args.json and not (args.dry_run or args.embedded or args.status):
        raise ConfigError("--json: expected with --dry-run or --status")
    if args.host and d:
        return _host(args, d)
    if args.hosts:
        commands = host_setup.host_commands(d) if d else []
        if processes:
            commands += [(f"{name}, over {processes.hosts[0].switch}" if d else name, lines)
                         for name, lines in processes.host_commands(str(tokens.path()))]
        for name, lines in commands:
            print(f"# {name}", *lines, "", sep="\n")
        return 0
    if args.status:
        return _status(args, d, processes)
    if args.down:
        return _down(args, d, processes)
    return _up(args, d, processes)


def _host(args: argparse.Namespace, d: Deployment) -> int:
    from ina.base.settings import ConfigError
    from ina.worlds.deployed import host_setup

    if args.at or args.hosts or args.embedded or args.status or args.down:
        raise ConfigError("--host: expected with --dry-run alone: nothing is written to a switch")
    host = next((h for h in d.hosts if h.name == args.host), None)
    if host is None:
        names = ", ".join(h.name for h in d.hosts)
        raise ConfigError(f"--host {args.host}: {args.experiment} has no such host; it has {names}")
    host_setup.set_up(d, host, not args.dry_run, _say)
    return 0


def _up(args: argparse.Namespace, d: Deployment | None, processes: Processes | None) -> int:
    """Brings everything in place, or shows what is to be done. All switches are looked at before anything is done."""
    from ina.worlds.deployed import deploy
    from ina.worlds.deployed import processes as switch_processes

    with ExitStack() as stack:
        switches, steps = {}, {}
        intents = switch_processes.plan(processes, args.timeout, not args.embedded) if processes else []
        if d:
            addresses = {} if args.embedded else d.addresses(args.at)
            if addresses or not (args.dry_run or args.embedded):
                addresses = d.all_addresses(args.at, " (or --dry-run, or --hosts)" if not addresses else "")
            switches = stack.enter_context(_connect(args, d, addresses))
            steps = deploy.plan(d, switches)
        if args.dry_run or args.embedded:
            _show(args, switches, steps, intents)
            return 0
        if processes:
            started = switch_processes.up(processes, intents, _reach(args), args.timeout, _say)
        try:
            if d:
                deploy.carry_out(steps, switches, _say)
        except BaseException:
            if processes:
                switch_processes.end(started, args.timeout)
            raise
    names = [*([_where(switches)] if d else []), *(f"{i.switch.name} at {i.switch.address}" for i in intents)]
    print(f"{args.experiment} is deployed on {' and '.join(names)}")
    return 0


def _status(args: argparse.Namespace, d: Deployment | None, processes: Processes | None) -> int:
    from ina.lab.doctor import processes as doctor
    from ina.lab.doctor.machine import show
    from ina.lab.doctor.switches import examine

    parts = [examine(d, d.all_addresses(args.at), args.device_id or 0, args.timeout, rpc.Access.of(args))] if d else []
    parts += [doctor.examine(processes, args.timeout)] if processes else []
    return show(chain(*parts), args.json)


def _down(args: argparse.Namespace, d: Deployment | None, processes: Processes | None) -> int:
    from ina.base.settings import ConfigError
    from ina.worlds.deployed.processes import down

    if processes is None:
        raise ConfigError(f"--down: it ends switch processes, and {args.experiment} has no table [process]; what is in a Tofino "
                          "stays until its driver is started anew")
    down(processes, args.timeout, _say)
    if d:
        _say(f"{', '.join(s.name for s in d.switches)} of [tofino]: ports and entries stay until the driver is started anew")
    return 0


def _reach(args: argparse.Namespace) -> Callable[[str], Sequence[str]]:
    """Returns a function that makes of a machine's name the words of --ssh. Raises ConfigError."""
    from ina.lab.servers.hosts import Host
    from ina.lab.servers.session import transport

    return lambda machine: transport(args.ssh, Host(machine, ""))


def _say(text: str) -> None:
    print(text, flush=True)


def _where(switches: dict[str, Any]) -> str:
    if len(switches) == 1:
        return next(iter(switches.values())).address
    return f"{len(switches)} switches: {', '.join(switches)}"


def _show(args: argparse.Namespace, switches: dict[str, Any], plan: dict[str, list[Any]], intents: Sequence[Intent]) -> None:
    counts = {name: sum(len(s.changes) for s in steps) for name, steps in plan.items()}
    if args.json:
        plans = [{"name": name, "switch": switches[name].address, "api": args.api,
                  "steps": [{"what": s.what, "there": s.there, "changes": [c.as_json() for c in s.changes]} for s in steps]}
                 for name, steps in plan.items()]
        report: dict[str, Any] = plans[0] if len(plans) == 1 else {"switches": plans} if plans else {}
        if intents:
            report["processes"] = [intent.as_json() for intent in intents]
        print(json.dumps(report, indent=2, default=str))
        return
    for intent in intents:
        print(intent)
    if not switches:
        return
    language = next(iter(switches.values())).name
    print(f"{args.experiment} on {_where(switches)} over {language}: {counted(sum(counts.values()), 'write')}")
    for name, steps in plan.items():
        if len(plan) > 1:
            print(f"\n{name}, {switches[name].address}: {counted(counts[name], 'write')}")
        for step in steps:
            there = f" ({step.there} there already)" if step.there else ""
            print(f"{step.what}{there}", *(f"    {change}" for change in step.changes), sep="\n")


@contextmanager
def _connect(args: argparse.Namespace, d: Any, addresses: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Connects to all switches, by name; without addresses, to embedded ones."""
    from ina.p4.runtime.entity_error import EntityError
    from ina.worlds.deployed.deployable import Bfrt, DeploymentError, P4Runtime

    switches: dict[str, Any] = {}
    with ExitStack() as stack:
        if not addresses:
            programs = {s.p4_name: stack.enter_context(_embedded(args, d, s.p4_name)) for s in d.switches}
            for s in d.switches:
                switches[s.name] = Bfrt(programs[s.p4_name].target)
                switches[s.name].address = f"the embedded switch ({s.p4_name}.p4)"
            yield switches
            return
        for name, address in addresses.items():
            try:
                if args.api == "bfrt":
                    from ina.p4.bfrt.remote_switch import BfRuntimeTarget

                    name_there = d.switch(name).p4_name
                    switches[name] = Bfrt(BfRuntimeTarget(address, args.device_id or 0, name_there, timeout=args.timeout,
                                                          access=rpc.Access.of(args)))
                else:
                    from ina.p4.p4runtime.remote_switch import RemoteSwitch

                    device = 1 if args.device_id is None else args.device_id
                    switches[name] = P4Runtime(RemoteSwitch(address, device, timeout=args.timeout, access=rpc.Access.of(args)))
            except (EntityError, TimeoutError, OSError) as error:
                raise DeploymentError(f"{name}: {error}" if d.several else str(error)) from None
            stack.callback(switches[name].close)
        yield switches


@contextmanager
def _embedded(args: argparse.Namespace, d: Any, p4_name: str) -> Iterator[Any]:
    """Starts an embedded switch that runs the TNA twin of the experiment's program, to plan against."""
    from ina.base import paths
    from ina.base.settings import ConfigError
    from ina.p4.bfrt.device import Device
    from ina.p4.bfrt.remote_switch import BfRuntimeTarget
    from ina.p4.bfrt.service import Server
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Switch
    from ina.worlds.deployed.deployable import Bfrt

    if args.api != "bfrt":
        raise ConfigError("--api p4runtime plans against a switch: give --at HOST:PORT")
    path = paths.p4_dir() / "tofino" / f"{p4_name}.p4"
    sizes = {"VALUES": str(d.config.values)} if hasattr(d.config, "values") else {}
    if not path.is_file():
        raise ConfigError(f"{path} is not there: to plan for another program give --at HOST:PORT")
    with Switch(compile_program(path, defines=sizes, include_dirs=[paths.p4_dir()]).so_path) as switch, \
            tempfile.TemporaryDirectory() as folder, Server(Device(switch, p4_name), f"unix:{folder}/bfrt") as server, \
            BfRuntimeTarget(server.address) as target:
        yield Bfrt(target)
