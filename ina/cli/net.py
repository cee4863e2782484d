"""``ina net up NAME`` and ``ina net down``: a running network to play with, at Mininet's prompt; ``ina net fail``, ``heal`` and
``slow``: its links, or those of an experiment in the testbed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from ina import topology as topologies
from ina.aggregation import protocols
from ina.base.bounds import whole
from ina.base.error_text import line
from ina.base.extras import PURPOSES
from ina.cli.errors import reported
from ina.cli.topo import parameters, parser
from ina.net import state
from ina.topology import link_events
from ina.topology.topology import Topology

SHOWN = 4  # switches whose sockets are named
PATIENCE = 60.0  # seconds for a network's own process to take it down


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to ``ina``; each of its commands sets ``main``, a function of the parsed arguments."""
    net = commands.add_parser("net")
    verbs = net.add_subparsers(title="commands", metavar="COMMAND", required=True)
    up = verbs.add_parser("up", help="bring a network up and give Mininet's prompt; leaving it takes the network down")
    up.add_argument("name", help=f"topology: {', '.join(topologies.names())}, or a TOML file")
    group = up.add_argument_group("parameters of topologies (ina topo list shows the defaults)")
    for key, (kind, owners) in sorted(parameters().items()):
        group.add_argument(f"--{key}", type=parser(key, kind), metavar=kind.__name__.upper(), help=f"of {', '.join(owners)}")
    up.add_argument("--program", type=Path, metavar="FILE.p4",
                    help="run this program in the switches, whatever it does: they have the entries of --entries, and no jobs")
    up.add_argument("--entries", action="append", default=[], metavar="[SWITCH=]FILE.stf",
                    help="with --program: entries, groups and sessions as in STF, of one switch or of all")
    up.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]",
                    help="with --program: preprocessor macro")
    up.add_argument("--protocol",
                    help=f"what switches and workers speak: {', '.join(protocols.names())}, or the path of your own program "
                    f"(default: {protocols.DEFAULT})")
    up.add_argument("--values", type=whole(1, 2048), help="integers per packet of the switch program (default: 256)")
    up.add_argument("--switch", default="embedded", help="embedded: all switches in one process (the default); process: each "
                    "in one; bmv2: BMv2's simple_switch_grpc")
    up.add_argument("--cables", help="what links between switches are made of: memory (the default of embedded) or veth")
    up.add_argument("--pcap", type=Path, metavar="FOLDER", help="capture what passes --at there")
    up.add_argument("--at", default="all", metavar="NAME,...", help="with --pcap: ports (s1-eth1), hosts (h1), links (h1-s1), "
                    "switches (s1), or all ports of all switches (the default)")
    up.add_argument("--command", help="run this at the prompt and take the network down, such as: pingall")
    up.set_defaults(main=reported(_up), keys=tuple(parameters()))
    verbs.add_parser("down", help="take down the network that is up, or what a killed one left").set_defaults(main=_down)
    for verb, help_text in (("fail", "cut a link: frames on it are lost without a word, until it is healed"),
                            ("heal", "mend a link: it is up, at its own rate and delay"),
                            ("slow", "give a link another rate or delay, until it is healed")):
        link = verbs.add_parser(verb, help=f"{help_text} (of a network that is up, or an experiment in the testbed)")
        link.add_argument("link", metavar="LINK", help="s1-s9: between two switches; h3: a host's; s1>s9: only from s1 to s9")
        if verb == "slow":
            link.add_argument("--rate", help="bit/s, such as 1G or 500M")
            link.add_argument("--delay", help="such as 5ms")
        if verb != "heal":
            link.add_argument("--for", dest="lasting", metavar="TIME", help="then it is healed: 200ms, 5s, or 5 for seconds")
        link.set_defaults(main=_change, verb=verb)


def _change(args: argparse.Namespace) -> int:
    """Changes a link of the running network, through the control socket of its switch process."""
    from ina.aggregation.controller.client import Client, ControlError

    words = [args.verb, args.link]
    if args.verb == "slow":
        if not (args.rate or args.delay):
            print("ina: expected --rate or --delay, such as: ina net slow s1-s9 --rate 1G", file=sys.stderr)
            return 2
        words += [*([args.rate] if args.rate else []), *(["delay", _time(args.delay)] if args.delay else [])]
    if args.verb != "heal" and args.lasting:
        words += ["for", _time(args.lasting)]
    text = " ".join(["at", "0s", *words])
    try:
        link_events.check([text])
        with closing(Client(str(state.run_dir() / "switch.sock"), PATIENCE)) as client:
            client.change_links([text])
    except topologies.TopologyError as error:
        print(f"ina: {line(error)}", file=sys.stderr)
        return 2
    except ControlError as error:
        nothing = "no network is up here (ina net up, or an experiment in the testbed): " * (error.code == "gone")
        print(f"ina: {nothing}{line(error)}", file=sys.stderr)
        return 1
    return 0


def _time(text: str) -> str:
    """Returns a time with its unit: seconds, if it has none."""
    return f"{text}s" if text.replace(".", "", 1).isdigit() else text


def _up(args: argparse.Namespace) -> int:
    from ina.worlds.testbed.mininet import Network

    signal.signal(signal.SIGTERM, _terminate)
    try:
        topology = topologies.load(args.name, **{key: value for key in args.keys if (value := getattr(args, key)) is not None})
        network = Network(topology, **_switches(args, topology), capture=args.pcap, points=args.at.split(","), kind=args.switch,
                          cables=args.cables)
        with network:
            if network.cleaned:
                print(f"ina: {network.cleanup_message}", file=sys.stderr)
            print(f"{topology.name} is up after {network.up_seconds:.1f} s: "
                  f"{', '.join(f'{h.name} {h.ip}' for h in topology.hosts)}; "
                  f"{_doors(args, topology) if args.program else f'INA_SWITCH={network.socket}'}", flush=True)
            network.prompt(args.command)
    except KeyboardInterrupt:
        print("The network is down.")
    return 0


def _switches(args: argparse.Namespace, topology: Topology) -> dict[str, Any]:
    """Returns what runs in the switches: program, defines and entries of a Network. Raises ValueError."""
    from ina.aggregation.lane import DEFAULT
    from ina.p4.compiler.front.preprocess import macros
    from ina.p4.tools import stf_file

    if not args.program:
        if args.entries or args.define:
            raise ValueError(f"{'--entries' if args.entries else '-D'}: expected --program FILE.p4 with it; the controller "
                             "writes the entries of protocols")
        values = 256 if args.values is None else args.values
        if values not in DEFAULT.values:
            raise ValueError(f"--values {values}: expected one of {', '.join(map(str, DEFAULT.values))}")
        return {"program": _program(args.protocol or protocols.DEFAULT), "defines": {"VALUES": str(values), "SLOTS": "1024"}}
    for option in ("protocol", "values"):
        if getattr(args, option) is not None:
            raise ValueError(f"--{option}: expected without --program, which takes -D NAME=VALUE")
    if not args.program.is_file():
        there = "a folder: expected a file in it" if args.program.is_dir() else "there is no such file"
        raise ValueError(f"--program {args.program}: {there}")
    entries: dict[str, list[tuple[str, str]]] = {}
    for word in args.entries:
        switch, equals, file = word.partition("=")
        path, named = (file, [switch]) if equals else (word, [each.name for each in topology.switches])
        if not path or not named[0]:
            raise ValueError(f"--entries {word}: expected FILE.stf, or SWITCH=FILE.stf such as "
                             f"{named[0] or 's1'}={path or 'a.stf'}")
        text = stf_file.read(Path(path))
        for name in named:
            entries.setdefault(name, []).append((path, text))
    return {"program": args.program, "defines": macros(args.define), "entries": entries}


def _doors(args: argparse.Namespace, topology: Topology) -> str:
    """Returns where P4Runtime clients reach the switches."""
    from ina.worlds.testbed.switch_kinds import p4runtime_here

    if not p4runtime_here():
        return f"no P4Runtime ({PURPOSES['p4runtime']}: pip install 'ina[p4runtime]')"
    return "P4Runtime: " + ", ".join(f"unix:{state.run_dir() / switch.name}.p4runtime (device {switch.number})"
                                     for switch in topology.switches[:SHOWN]) + ", ..." * (len(topology.switches) > SHOWN)


def _program(protocol: str) -> Path:
    """Returns the program of the switches. Raises ValueError: there is no such protocol, or only a program."""
    if Path(protocol).suffix == ".p4" and Path(protocol).is_file() and not protocols.is_own(protocol):
        raise ValueError(f"--protocol {protocol}: a program alone, but switches of these networks serve jobs, whose worker (.c) "
                         f"and entries (.py) are expected beside it (docs/guide/new-protocol.md); --program {protocol} has "
                         "the switches run it, whatever it does")
    return protocols.program(protocol)


def _terminate(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)  # Mininet's prompt survives a KeyboardInterrupt


def _down(_args: argparse.Namespace) -> int:
    """Ends the network's own process; if that has been killed, cleans up after it."""
    if os.geteuid() != 0:
        print("ina: only root can take a network down", file=sys.stderr)
        return 1
    pid, since = state.read().get("owner", (0, 0))
    if since and state.start_time(pid) == since:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            lock = state.State("going down")
            break
        except state.Busy as error:
            if time.monotonic() > deadline:
                print(f"ina: process {pid} did not take its network down within {PATIENCE:g} s: {error}", file=sys.stderr)
                return 1
            time.sleep(0.05)
    lock.close()
    print("Removed: " + ", ".join(lock.cleaned) if lock.cleaned else "The network is down." if since else "No network was up.")
    return 0
