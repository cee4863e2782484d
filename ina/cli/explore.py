"""`ina explore`: every interleaving of a small job, over the compiled program and the real workers. `ina simulate`: random
kills, restarts and lost memory of switches, workers, parameter servers and controller, repeatable by their seeds."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ina.aggregation import protocols
from ina.base.bounds import whole
from ina.base.plurals import counted
from ina.cli.errors import exit_status

if TYPE_CHECKING:
    from ina.aggregation.entries import JobProgram
    from ina.p4.runtime.loaded_program import Program
    from ina.p4.runtime.p4info import P4Info
    from ina.topology import Topology
    from ina.worlds.virtual.explorer import Explorer


def add_arguments(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command `explore` to `ina`; it sets `main`, a function of the parsed arguments."""
    explore = subparsers.add_parser(
        "explore",
        description="Walks every state of a small job that arrival, loss, duplication and time-outs can lead to, with "
        "the compiled switch program and the real worker. Without a budget of faults there is no bound on them: whatever was "
        "sent may come at any time, any number of times, or never.",
    )
    explore.add_argument("--topology", default="star hosts=2", metavar="'NAME KEY=VALUE ...'",
                         help="with a worker at each host, along the aggregation tree (default: star hosts=2)")
    explore.add_argument("--protocol", metavar="NAME",
                         help="one without a parameter server, or the path of your own program (default: switchml)")
    explore.add_argument("--program", type=Path, metavar="FILE", help="P4 program (default: that of the protocol)")
    explore.add_argument("--slots", type=whole(1, 8192), default=1, help="of the job, a power of two (default: 1)")
    explore.add_argument("--elements", type=whole(1, 10**6, "states multiply with each packet"), default=64,
                         help="of the tensor; a packet has 32 (default: 64)")
    explore.add_argument("--tensors", type=whole(1, 64, "states multiply with each"), default=1, metavar="N",
                         help="of that size, one after the other; every third one overflows (default: 1)")
    explore.add_argument("--dtype", choices=("int32", "float32"), default="int32")
    explore.add_argument("--maxima", action="store_true", help="maxima of int32, and a sum after each of several --tensors")
    explore.add_argument("--late", action="store_true",
                         help="workers may be slow to send again: an answer may come between time-out and transmission")
    explore.add_argument("--first", action="append", type=whole(0, 2**63 - 1), metavar="N",
                         help="number of the job's first packet; once for each walk (default: 0, and a window before each wrap "
                         "of that number: the signed one and the unsigned one)")
    explore.add_argument("--published", action="store_true", help="the rules for published clients: one bit for the phase")
    explore.add_argument("--then", action="append", default=[], choices=("next", "lost", "old", "gone"),
                         help="another job of the same number in the same slots, which may begin at any time: the controller "
                         "goes on (next), or another one begins without a state (lost), also when the last job has ended (gone), "
                         "or with a state from before the last job (old); once for each")
    explore.add_argument("--forgetful", action="store_true",
                         help="switches may lose their registers at any time; that the job can finish is not asked then")
    explore.add_argument("--max-states", type=whole(1, 10**9, "each is kept"), default=1_000_000, metavar="N",
                         help="stop there (default: 1000000)")
    budget = explore.add_argument_group("a budget of faults, for a walk that counts every copy of a frame")
    for name in ("losses", "duplicates", "timeouts"):
        budget.add_argument(f"--{name}", type=whole(0, 1000, "states multiply with each"), metavar="N", help="on one path")
    budget.add_argument("--depth", type=whole(1, 10**6), metavar="N", help="steps from the start (default: all)")
    explore.set_defaults(main=main)
    simulate = subparsers.add_parser(
        "simulate",
        description="Runs a protocol's compiled program, its workers, its parameter server and the real controller in virtual "
        "time, one seed after the other. At any event any of them may end and come back, with lost or older state, while wires "
        "lose, duplicate and reorder. Ends at the first wrong sum, leaked slot or aggregator, stuck job or run "
        "without an end, and prints its seed.",
    )
    simulate.add_argument("--protocol", metavar="NAME",
                          help=f"{', '.join(protocols.names())}, or the path of your own program (default: {protocols.DEFAULT})")
    simulate.add_argument("--events", type=whole(1, 10**12), default=1_000_000, metavar="N",
                          help="of all seeds together (default: 1000000)")
    simulate.add_argument("--seed", type=whole(0, 2**63), default=1, metavar="N", help="the first one (default: 1)")
    simulate.add_argument("--length", type=whole(1, 10**9), default=20_000, metavar="N",
                          help="events of one seed, about (default: 20000)")
    simulate.add_argument("--program", type=Path, metavar="FILE", help="P4 program (default: that of the protocol)")
    simulate.set_defaults(main=simulate_main)


def _walks(args: argparse.Namespace) -> tuple[Topology, list[tuple[int, Explorer]]]:
    """Returns the network, and each walk with the number of its first packet. Raises what is wrong with the arguments."""
    import numpy as np

    from ina.base import paths
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.loaded_program import Program
    from ina.topology import specified
    from ina.worlds.virtual.explorable import job, starts
    from ina.worlds.virtual.restarts import jobs

    if args.then and (args.published or args.dtype != "int32" or args.tensors > 1):
        raise ValueError("--then: jobs of one int32 tensor only, and not by the rules for published clients")
    if args.then and (args.maxima or args.late):
        raise ValueError("--then: neither with --maxima nor with --late")
    if args.maxima and args.dtype != "int32":
        raise ValueError("--maxima: of int32 only")
    network = specified(args.topology)
    pool = 1 << max(1, args.slots - 1).bit_length()
    path = args.program or protocols.program(args.protocol or protocols.DEFAULT)
    built = compile_program(path, defines={"VALUES": "32", "SLOTS": str(pool)}, include_dirs=[paths.p4_dir()])
    program = Program(built.so_path)
    protocol = _protocol(program.p4info, args.program, args.protocol)
    if protocol.name != protocols.DEFAULT and (args.then or args.published):
        raise ValueError(f"--then, --published: of the protocol switchml only, and the program is {protocol.title}'s")
    options = {"slots": args.slots, "elements": args.elements, "restarts": args.forgetful}
    if args.forgetful and any(getattr(args, name) is not None for name in ("losses", "duplicates", "timeouts", "depth")):
        raise ValueError("--forgetful: only without a budget of faults")

    def explorer(first: int) -> Explorer:
        if args.then:
            return jobs(program, network, args.then, **options, first=first)
        return job(program, network, protocol=protocol.name, **options, dtype=getattr(np, args.dtype), count=args.tensors,
                   strict=not args.published, first=first, maximum=args.maxima, late=args.late)

    return network, [(first, explorer(first)) for first in args.first or starts(protocol, args.slots)]


def main(args: argparse.Namespace) -> int:
    from ina.worlds.virtual.explorer import Budget

    try:
        network, walks = _walks(args)
    except Exception as error:
        return exit_status(error, 2)
    counts = {name: getattr(args, name) for name in ("losses", "duplicates", "timeouts")}
    budget = Budget(**{name: count or 0 for name, count in counts.items()})
    bounded = args.depth is not None or any(count is not None for count in counts.values())
    faults = "any number of faults"
    if bounded:
        each = (counted(budget.losses, "loss", "losses"), counted(budget.duplicates, "duplicate"),
                counted(budget.timeouts, "time-out"))
        faults = f"at most {', '.join(each)}"
    switches = counted(len(network.switches), "switch", "switches")
    print(f"{network.name}: {counted(len(network.hosts), 'worker')}, {switches}; {faults}")
    complete = True
    while walks:  # a walk that is done frees its states
        began = time.monotonic()
        first, walk = walks.pop(0)
        report = walk.explore(args.depth or sys.maxsize, budget, args.max_states) if bounded else \
            walk.saturate(args.max_states, finish=not args.forgetful)
        complete &= report.complete
        extent = "all of them" if report.complete else f"not all of them, {counted(report.depth, 'step')} deep"
        print(f"from packet {first}: {report.states} states ({extent}), {report.executed} steps of machines, "
              f"{time.monotonic() - began:.1f} s")
        print("  states of " + ", ".join(f"{name}: {count}" for name, count in report.local.items()))
        if report.violation is not None:
            print(f"violation: {report.violation}", *(f"  {i}. {step}" for i, step in enumerate(report.steps, 1)), sep="\n")
            return 1
    finishes = f"; the job can finish from every {'state' if complete else 'one of these states'}"
    print(f"no wrong sum{'' if args.forgetful else finishes}")
    return 0


def _protocol(p4info: P4Info, program: Path | None, name: str | None) -> JobProgram:
    """Returns the protocol of that name, else the one that the program states. Raises ValueError: it states another, or none."""
    from ina.aggregation.entries import program_named, recognise

    if name is not None or program is None:
        protocol = program_named(name or protocols.DEFAULT)
        _check_statement(protocol, p4info, program)
        return protocol
    recognised = recognise(p4info, program)
    if recognised is None:
        raise ValueError(f"{program}: no protocol's program, by its annotation @ina_program (docs/guide/new-protocol.md)")
    return recognised[0]


def _check_statement(protocol: JobProgram, p4info: P4Info, program: Path | None) -> None:
    """Raises ValueError: the program does not state the protocol."""
    if protocol.sizes(p4info) is None:
        raise ValueError(f"{program or protocol.name}: its annotation @ina_program does not say that it is the protocol "
                         f"{protocol.name}'s")


def _simulated(args: argparse.Namespace, protocol: str) -> Program:
    """Returns the program. Raises what is wrong with the arguments."""
    from ina.aggregation.entries import program_named
    from ina.base import paths
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.loaded_program import Program
    from ina.worlds.virtual.applications import applied_reductions
    from ina.worlds.virtual.simulation import macros

    entries = program_named(protocol)
    built = compile_program(args.program or protocols.program(protocol), defines=macros(protocol),
                            include_dirs=[paths.p4_dir()])
    program = Program(built.so_path)
    _check_statement(entries, program.p4info, args.program)
    applied_reductions(entries)
    return program


def simulate_main(args: argparse.Namespace) -> int:
    import logging
    from collections import Counter

    from ina.worlds.virtual.simulation import Simulation

    # it warns of switches, and parameter servers, that do not answer
    logging.getLogger("ina.aggregation.controller").setLevel(logging.ERROR)
    protocol = args.protocol or protocols.DEFAULT
    try:
        program = _simulated(args, protocol)
    except Exception as error:
        return exit_status(error, 2)
    began, events, tensors, seed = time.monotonic(), 0, 0, args.seed
    faults: Counter[str] = Counter()
    while events < args.events:
        simulation = Simulation(program, seed, protocol)
        report = simulation.run(min(args.length, args.events))
        simulation.close()
        if report.violation is not None:
            length = min(args.length, args.events)
            print(report)
            print(f"again: ina simulate --protocol {protocol} --seed {seed} --events {length} --length {args.length}")
            return 1
        events, tensors, seed = events + report.events, tensors + report.tensors, seed + 1
        faults.update(report.faults)
    print(f"seeds {args.seed} to {seed - 1}: {events:,} events, {tensors:,} sums, {time.monotonic() - began:.1f} s")
    print(", ".join(f"{kind}: {count:,}" for kind, count in sorted(faults.items())))
    print("no wrong sum, no leaked slot or aggregator, no stuck job")
    return 0
