"""`ina p4 equal`: are two programs twins? Its arguments, and what it prints."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ina.bounds import real, whole

if TYPE_CHECKING:
    from ina.equal.control import Call
    from ina.equal.mapping import Mapping
    from ina.equal.packets import Maker, Packet
    from ina.equal.search import Outcome
    from ina.equal.twins import Rules, Twins

EQUAL, DIFFER, WRONG = 0, 1, 2
FEW = 8  # ports of programs of which nobody says others, and packets of an alphabet
DESCRIPTION = """\
Sends the same sequences of packets into two programs, and compares what comes out: the frames of each port, digests, and
counters and registers that both are said to have. First every sequence of a few packets, as long as they lead to other states;
then random ones, made from A's parser, from values that both programs compare with, and by changing earlier packets. What differs
is made small and printed, with STF files that repeat it. Exit status: 0 no difference was found, 1 they differ, 2 something is
wrong with what was asked for. It is a search, no proof.

Programs of the protocols that come with the package, and those of one of your own (docs/new-protocol.md), get their
controller's entries. For others --entries FILE.stf has entries by the names of A, and packets to begin with; --mapping FILE.toml
says what is called otherwise in B, and which differences are meant (docs/p4.md)."""


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Add the command `p4` to `ina`; each of its commands sets `main`, a function of the parsed arguments."""
    group = commands.add_parser("p4", help="compare a P4 program with its twin")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    equal = verbs.add_parser("equal", help="whether two programs answer every sequence of packets alike", description=DESCRIPTION,
                             formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    equal.add_argument("a", type=Path, metavar="A", help="a program; its parser says what packets look like")
    equal.add_argument("b", type=Path, metavar="B", help="its twin, for the same architecture or another")
    equal.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]",
                       help="preprocessor macro of both (our protocols': VALUES=32 and SLOTS=4)")  # fmt: skip
    equal.add_argument("-I", dest="include", action="append", default=[], type=Path, metavar="FOLDER",
                       help="include folder of both")  # fmt: skip
    equal.add_argument("--mapping", type=Path, metavar="FILE.toml", help="names of B, and differences that are meant")
    equal.add_argument("--entries", type=Path, metavar="FILE.stf",
                       help="entries of both by the names of A, and packets to begin with")  # fmt: skip
    equal.add_argument("--interpreter", action="store_true", help="run both on the reference interpreter: 200 times slower")
    equal.add_argument("--seed", type=whole(0, 2**63), default=1, metavar="N", help="of the random part (default: %(default)s)")
    equal.add_argument("--sequences", type=whole(0, 10**9), default=2000, metavar="N", help="random ones (default: %(default)s)")
    equal.add_argument("--length", type=whole(1, 10**4), default=30, metavar="N", help="packets of each (default: %(default)s)")
    equal.add_argument("--depth", type=whole(0, 100), default=5, metavar="N",
                       help="packets of a systematic sequence (default: %(default)s)")  # fmt: skip
    equal.add_argument("--states", type=whole(1, 10**7), default=3000, metavar="N",
                       help="that the systematic part goes on from (default: %(default)s)")  # fmt: skip
    equal.add_argument("--minutes", type=real(0, 10**5), default=10, metavar="N", help="all together (default: %(default)s)")
    equal.add_argument("--stf", type=Path, metavar="FILE.stf", default=Path("differs.stf"),
                       help="where the counter-example goes (default: %(default)s)")  # fmt: skip
    equal.set_defaults(main=main)


@dataclass
class Task:
    """`calls`: for A, for B. `letters` of the systematic part; none: chosen from what random packets show."""

    twins: Twins
    calls: tuple[list[Call], list[Call]]
    maker: Maker
    letters: Sequence[Packet]
    defines: dict[str, str]


def main(args: argparse.Namespace) -> int:
    from ina.compiler.cc import BuildError
    from ina.compiler.errors import CompileError
    from ina.compiler.reference.expressions import InterpreterError
    from ina.compiler.reference.tables import TableError
    from ina.compiler.stf import StfError

    try:
        return _search(args)
    except CompileError as error:
        print(error, file=sys.stderr)
    except (BuildError, StfError, InterpreterError, TableError, ValueError) as error:
        print(f"ina: {error}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"ina: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", file=sys.stderr)
    return WRONG


def _search(args: argparse.Namespace) -> int:
    from ina.equal.search import Bounds, Search

    task = prepare(args)
    bounds = Bounds(args.sequences, args.length, args.depth, args.states, 60 * args.minutes)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    outcome = Search(task.twins, task.maker, bounds, say).run(task.letters)
    if not outcome.sent:
        raise ValueError("no packet was sent: --sequences, --depth and --minutes leave none")
    print(_extent(outcome, args.depth))
    if outcome.difference is None:
        if not outcome.answered:
            print("ina: no frame left either program: entries that let packets through are missing (--entries)", file=sys.stderr)
        print(f"no difference between A {args.a} and B {args.b}")
        return EQUAL
    return _report(args, task, outcome)


def prepare(args: argparse.Namespace) -> Task:
    """Both programs with their entries, and what makes packets. Raises what compiling and reading raise."""
    from ina import paths
    from ina.compiler import frontend, p4info
    from ina.compiler.errors import CompileError
    from ina.compiler.preprocess import macros
    from ina.equal import control, ours, sides, values
    from ina.equal.mapping import Mapping, load
    from ina.equal.packets import Maker, Packet
    from ina.equal.shapes import Shapes
    from ina.equal.twins import Twins

    mapping = load(args.mapping) if args.mapping else Mapping()
    includes, defines = [*args.include, paths.p4_dir()], macros(args.define)
    try:
        checked = frontend.load(args.a, defines=ours.DEFINES | defines, include_dirs=includes)
    except CompileError:  # those may be macros of its own
        checked = frontend.load(args.a, defines=defines, include_dirs=includes)
    protocol = ours.program_of(p4info.build(checked), args.a)
    if protocol is not None:
        defines = ours.DEFINES | defines
    files = {"both": args.entries or mapping.entries("both"), "a": mapping.entries("a"), "b": mapping.entries("b")}
    texts = {which: _text(path) for which, path in files.items() if path}

    a = sides.side(args.a, defines, includes, args.interpreter, checked if protocol is not None else None)
    b = sides.side(args.b, defines, includes, args.interpreter)
    world = ours.World(calls=(), ports=())
    if protocol is not None and "both" not in texts:
        world = ours.world(*protocol, a.p4info)
    shapes = Shapes(a.program)
    written = {which: control.recorded(text, (b if which == "b" else a).p4info, str(files[which]))
               for which, text in texts.items()}  # fmt: skip
    shared = [*world.calls, *(written["both"].calls if "both" in written else ())]
    names = mapping.names(a.p4info, b.p4info, shapes)
    calls = [*shared], control.Translator(names, a.p4info, b.p4info).calls(shared)
    seeds = [*world.packets, *(Packet(*p) for which in ("both", "a") if which in written for p in written[which].packets)]
    back = {there: here for here, there in names.ports.items()}
    pool = values.Values()
    values.collect(pool, a.program, shapes, {}, {})
    values.collect(pool, b.program, shapes, mapping.fields(shapes), back)
    values.collect_entries(pool, calls[0], a.p4info, shapes)
    usable = world.ports or sorted({*mapping.ports(), *(p.port for p in seeds)} or range(FEW))
    if not world.ports and not mapping.ports():
        usable = sorted({*usable, *(p for p in pool.wanted_ports() if all(control.takes(p, side.p4info) for side in (a, b)))})
    for which, side, own in zip("ab", (a, b), calls, strict=True):
        own += written[which].calls if which in written else []
        side.open({*usable, *map(names.port, usable), *control.ports(own, side.p4info)})
        side.write(own)
        if side.draws:
            print(f"ina: {side.program.filename} draws random numbers: what depends on them may differ", file=sys.stderr)

    limits = mapping.limits(shapes) if mapping.get("packets") else world.limits
    maker = Maker(shapes, pool, list(usable), seeds, random.Random(args.seed), limits)
    twins = Twins(a, b, shapes, _rules(mapping, names.ports, world.counters, shapes, a.p4info, b.p4info))
    return Task(twins, calls, maker, world.letters or seeds[:FEW], defines)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8") from None


def _rules(
    mapping: Mapping, ports: dict[int, int], counters: Sequence[str], shapes: Any, a: dict[str, Any], b: dict[str, Any]
) -> Rules:
    from ina.equal.twins import Rules
    from ina.switch.p4info import P4Info

    ours, theirs = P4Info(a), P4Info(b)
    names = [{d["preamble"]["name"] for d in info.get("digests", [])} for info in (a, b)]
    if mapping.digests and bool(names[0]) != bool(names[1]):
        print(f"ina: only {'A' if names[0] else 'B'} has digests: they are not compared", file=sys.stderr)
    alike = tuple((ours.counter(c).name, theirs.counter(c).name) for c in counters)
    return Rules(
        ports=ports,
        ignored=mapping.ignored(shapes),
        any_order=mapping.any_order,
        digests=mapping.digests and all(names),
        digest_names=names[0] == names[1],
        counters=(*alike, *mapping.pairs("counters", a, b)),
        registers=mapping.pairs("registers", a, b),
    )


def _extent(outcome: Outcome, depth: int) -> str:
    done = f"sequences of up to {outcome.depth} of {outcome.letters} packets, " if outcome.depth and depth else ""
    end = ", when the time was over" if outcome.over else ""
    return (f"{done}{outcome.states:,} states, {outcome.sequences:,} random sequences; {outcome.sent:,} packets into each, "
            f"{outcome.ways:,} ways through the programs, {outcome.seconds:.1f} s{end}")  # fmt: skip


def _report(args: argparse.Namespace, task: Task, outcome: Outcome) -> int:
    from ina.equal import report
    from ina.equal.shrink import shrink

    assert outcome.difference is not None
    packets, difference = shrink(task.twins, outcome.packets, outcome.difference.kind)
    print(f"A {args.a} and B {args.b} differ; {len(packets)} of {len(outcome.packets)} packets show it (seed {args.seed})")
    print()
    print("\n".join(report.lines(task.twins, packets, difference)))
    print()
    tests = [report.stf(calls, side.p4info, task.twins, packets, first=side is task.twins.a, difference=difference)
             for calls, side in zip(task.calls, (task.twins.a, task.twins.b), strict=True)]  # fmt: skip
    files = [args.stf, args.stf]
    if tests[0] != tests[1]:
        files[1] = args.stf.with_name(f"{args.stf.stem}-b{args.stf.suffix}")
    try:
        for file, test in zip(files, tests, strict=True):
            file.write_text(test, encoding="utf-8")
    except OSError as error:  # they differ all the same
        print(f"ina: {error.filename}: {error.strerror}", file=sys.stderr)
        return DIFFER
    print("Again (A's answers are what is expected):")
    for program, file in zip((args.a, args.b), files, strict=True):
        print(f"    {report.command(program, file, task.defines, args.include)}")
    return DIFFER
