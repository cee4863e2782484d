"""`ina p4 equal`, which compares two programs: its arguments and output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ina.base.bounds import real, whole
from ina.base.error_text import line
from ina.cli.errors import reported
from ina.cli.parsers import folder
from ina.cli.shipped import program_path

if TYPE_CHECKING:
    from ina.p4.tools.equal.search import Outcome
    from ina.p4.tools.equal.task import Task

EQUAL, DIFFER, WRONG = 0, 1, 2
DESCRIPTION = """\
Sends the same sequences of packets into two programs, and compares what comes out: the frames of each port, digests, and
counters and registers that both are said to have. First every sequence of a few packets, as long as they lead to other states;
then random ones, made from A's parser, from values that both programs compare with, and by changing earlier packets. What differs
is made small and printed, with STF files that repeat it. Exit status: 0 no difference was found, 1 they differ, 2 something is
wrong with what was asked for. It is a search, no proof.

Programs of the protocols that come with the package, and those of one of your own (docs/guide/new-protocol.md), get their
controller's entries. For others --entries FILE.stf has entries by the names of A, and packets to begin with; --mapping FILE.toml
says what is called otherwise in B, and which differences are meant (docs/guide/p4.md)."""


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command `p4` to `ina`; each of its commands sets `main`, a function of the parsed arguments."""
    group = commands.add_parser("p4")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    equal = verbs.add_parser("equal", help="whether two programs answer every sequence of packets alike", description=DESCRIPTION,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    equal.add_argument("a", type=program_path, metavar="A",
                       help="a program, or a name of ina programs; its parser says what packets look like")
    equal.add_argument("b", type=program_path, metavar="B", help="its twin, for the same architecture or another")
    equal.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]",
                       help="preprocessor macro of both (our protocols': VALUES=32 and SLOTS=4)")
    equal.add_argument("-I", dest="include", action="append", default=[], type=folder, metavar="FOLDER",
                       help="include folder of both")
    equal.add_argument("--mapping", type=Path, metavar="FILE.toml", help="names of B, and differences that are meant")
    equal.add_argument("--entries", type=Path, metavar="FILE.stf",
                       help="entries of both by the names of A, and packets to begin with")
    equal.add_argument("--interpreter", action="store_true", help="run both on the reference interpreter: 200 times slower")
    equal.add_argument("--seed", type=whole(0, 2**63), default=1, metavar="N", help="of the random part (default: %(default)s)")
    equal.add_argument("--sequences", type=whole(0, 10**9), default=2000, metavar="N", help="random ones (default: %(default)s)")
    equal.add_argument("--length", type=whole(1, 10**4), default=30, metavar="N", help="packets of each (default: %(default)s)")
    equal.add_argument("--depth", type=whole(0, 100), default=5, metavar="N",
                       help="packets of a systematic sequence (default: %(default)s)")
    equal.add_argument("--states", type=whole(1, 10**7), default=3000, metavar="N",
                       help="that the systematic part goes on from (default: %(default)s)")
    equal.add_argument("--letters", type=whole(1, 1000), default=16, metavar="N",
                       help="packets that systematic sequences are made of, where no protocol of ours has its own: the first of "
                       "the files, else of those that change registers (default: %(default)s)")
    equal.add_argument("--paths", type=whole(1, 10**6), default=64, metavar="N",
                       help="through A's parser, which packets are made along (default: %(default)s)")
    equal.add_argument("--visits", type=whole(1, 1000), default=3, metavar="N",
                       help="of one state of the parser on one path (default: %(default)s)")
    equal.add_argument("--minutes", type=real(0, 10**5), default=10, metavar="N", help="all together (default: %(default)s)")
    equal.add_argument("--shrink", type=real(0, 10**5), default=30, metavar="SECONDS",
                       help="for making a counter-example small (default: %(default)s)")
    equal.add_argument("--stf", type=Path, metavar="FILE.stf", default=Path("differs.stf"),
                       help="where the counter-example goes (default: %(default)s)")
    equal.set_defaults(main=reported(_search, WRONG))


def _search(args: argparse.Namespace) -> int:
    from ina.aggregation import equal_scenarios
    from ina.p4.tools.equal.search import Bounds, Search
    from ina.p4.tools.equal.task import prepare

    task = prepare(args, equal_scenarios)
    bounds = Bounds(args.sequences, args.length, args.depth, args.states, 60 * args.minutes, args.letters)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    outcome = Search(task.twins, task.maker, bounds, say).run(task.letters)
    if not outcome.sent:
        raise ValueError("no packet was sent: --sequences, --depth and --minutes leave none")
    print(_extent(outcome, args.depth))
    for note in (*task.notes, *outcome.notes):
        print(f"note: {note}")
    if outcome.difference is None:
        if not outcome.answered:
            print("ina: no frame left either program: entries that let packets through are missing (--entries)", file=sys.stderr)
        print(f"no difference between A {args.a} and B {args.b}")
        return EQUAL
    return _report(args, task, outcome)


def _extent(outcome: Outcome, depth: int) -> str:
    systematic = f"sequences of up to {outcome.depth} of {outcome.letters} packets, " if outcome.depth and depth else ""
    end = ", when the time was over" if outcome.over else ""
    return (f"{systematic}{outcome.states:,} states, {outcome.sequences:,} random sequences; {outcome.sent:,} packets into each, "
            f"{outcome.ways:,} ways through the programs, {outcome.seconds:.1f} s{end}")


def _report(args: argparse.Namespace, task: Task, outcome: Outcome) -> int:
    from ina.p4.tools.equal import report
    from ina.p4.tools.equal.search import shrink

    assert outcome.difference is not None
    packets, difference, over = shrink(task.twins, outcome.packets, outcome.difference.kind, args.shrink)
    print(f"A {args.a} and B {args.b} differ; {len(packets)} of {len(outcome.packets)} packets show it (seed {args.seed})")
    if over:
        print(f"note: {args.shrink:g} s were too few to make it as small as it can be (--shrink)")
    print()
    print("\n".join(report.lines(task.twins, packets, difference)))
    print()
    tests = [report.stf(calls, side.p4info, task.twins, packets, first=side is task.twins.a, difference=difference)
             for calls, side in zip(task.calls, (task.twins.a, task.twins.b), strict=True)]
    files = [args.stf, args.stf]
    if tests[0] != tests[1]:
        files[1] = args.stf.with_name(f"{args.stf.stem}-b{args.stf.suffix}")
    try:
        for file, test in zip(files, tests, strict=True):
            file.write_text(test, encoding="utf-8")
    except OSError as error:  # the result stands without the files
        print(f"ina: {line(error)}", file=sys.stderr)
        return DIFFER
    print("Again (A's answers are what is expected):")
    for program, file in zip((args.a, args.b), files, strict=True):
        print(f"    {report.command(program, file, task.defines, args.include)}")
    return DIFFER
