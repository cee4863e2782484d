"""`ina cluster`: a few servers on an ordinary network, before they train."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ina.aggregation import protocols
from ina.aggregation.control_socket.messages import printable
from ina.base.bounds import real
from ina.cli.errors import reported
from ina.lab.servers.session import SSH

if TYPE_CHECKING:
    from rich.table import Table

    from ina.lab.servers.findings import Expectation, Problem
    from ina.lab.servers.hosts import Host
    from ina.lab.servers.session import Session
    from ina.lab.servers.survey import Pair, Survey

SHOWN = 30  # pairs: of more, those alone are shown that something is wrong with
DESCRIPTION = """
Measures reachability over TCP and UDP, MTU, clocks, rate and loss between all pairs of servers, and what arrives where all send
to one; then says what summing by a switch process (ina switch run --listen) can win there, and what it cannot. Exit status 1:
something without which training fails; 2: wrong options, or a wrong file.
"""
EPILOG = """
Each line of HOSTS: NAME [address=10.0.0.1] [switch] [ranks=8]. NAME: as ssh knows it; address: of the card that it trains
through; switch: it is to run a switch process; ranks: how many train there (1). # begins a comment.
"""


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to `ina`; it sets `main`, a function of the parsed arguments."""
    cluster = commands.add_parser("cluster")
    verbs = cluster.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = verbs.add_parser("check", help="measure between all servers, and say what to expect", description=DESCRIPTION,
                             epilog=EPILOG)
    check.add_argument("hosts", type=Path, metavar="HOSTS", help="a file with a server a line")
    check.add_argument("--ssh", default=SSH, metavar="COMMAND",
                       help="how to run a command there, which is added as one word (default: %(default)s)")
    check.add_argument("--python", default="python3", metavar="COMMAND",
                       help="Python 3.9 or newer there; it needs no packages (default: %(default)s)")
    check.add_argument("--seconds", type=real(0.05, 30), metavar="S", help="of each rate and loss (1; with --quick 0.2)")
    check.add_argument("--quick", action="store_true", help="shorter, and less exact")
    check.add_argument("--udp-rate", type=real(0.1, 100_000, "Mb/s"), default=100.0, metavar="MBPS",
                       help="Mb/s at which UDP loss is measured (default: %(default)s)")
    check.add_argument("--protocol", choices=protocols.names(), default=protocols.DEFAULT,
                       help="whose packets travel (default: %(default)s)")
    check.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    check.set_defaults(main=reported(_check))


def _check(args: argparse.Namespace) -> int:
    import dataclasses

    from rich.console import Console

    from ina.lab.results.progress import Steps
    from ina.lab.servers import findings, hosts, session, survey

    listed = hosts.read(args.hosts)
    options = survey.Options.quick(args.udp_rate * 1e6) if args.quick else survey.Options(udp_rate=args.udp_rate * 1e6)
    if args.seconds is not None:
        options = dataclasses.replace(options, seconds=args.seconds)
    if args.json:
        args.json.open("a").close()  # an error of the name comes now, not after minutes
    sizes, errors = survey.packets(args.protocol), Console(stderr=True)
    errors.print(f"{len(listed)} servers, {len(listed) * (len(listed) - 1)} pairs: about {options.about(len(listed)):.0f} s",
                 highlight=False)
    with session.opened(listed, args.ssh, args.python, options.lifetime(len(listed))) as sessions, \
            Steps(errors, "servers") as steps:
        marked = [each for each in sessions if each.host.switch] or sessions[-1:]
        measured = survey.Surveyor(sessions, options, sizes, steps.update).survey(marked)
        failures = [each.failure for each in sessions if each.failure]
    problems = findings.problems(listed, measured, failures, sizes)
    expected = [findings.expectation(place, listed, measured, sizes) for place in findings.placements(listed)]
    status = 1 if any(problem.necessary for problem in problems) else 0
    if args.json:
        args.json.write_text(json.dumps({
            "servers": [{**dataclasses.asdict(each.host), **each.facts, "failure": each.failure} for each in sessions],
            **measured.json(), "problems": [dataclasses.asdict(problem) for problem in problems],
            "expectations": [each.json() for each in expected], "status": status}, indent=2, allow_nan=False) + "\n")
    _print(listed, sessions, measured, problems, expected)
    return status


def _print(hosts: Sequence[Host], sessions: Sequence[Session], survey: Survey, problems: Sequence[Problem],
           expected: Sequence[Expectation]) -> None:
    from rich.console import Console
    from rich.text import Text

    from ina.lab.servers import findings

    console = Console()
    console.print(_servers(sessions), _pairs(survey), sep="\n")
    for each in survey.incasts:
        volleys = "; ".join(f"{one.slots} packets from each rank at a time: {one.arrived} of {one.sent}" for one in each.volleys)
        rate = findings.bits(each.rate) if each.rate else "?"
        console.print(Text(f"All to {each.target}: {rate} over TCP. {volleys}"))
    console.print(Text("\nFindings" if problems else "\nNothing is wrong.", "bold"))
    for problem in problems:
        console.print(Text(f"{'must be mended' if problem.necessary else 'worth knowing'}: {printable(problem.text)}",
                           "red" if problem.necessary else "yellow"))
    if expected and not any(host.switch for host in hosts):
        console.print(Text("\nNo server is marked with `switch`: what follows is for the last, "
                           f"{hosts[-1].name}, as the one that runs the switch process."))
    for expectation in expected:
        heading, *lines = findings.words(expectation)
        console.print(Text(f"\n{heading}", "bold"))
        for line in lines:
            console.print(Text(line))
    if len(sessions) > 2:
        console.print(Text("\nWith one rank on each of n servers, and m others that sum an equal part each (a process group sums "
                           "in one), large sums are as quick as by a ring if the m cards are n²/(2 m (n - 1)) times as fast; our "
                           "own arithmetic, as the figures above."))
    sys.stdout.flush()


def _servers(sessions: Sequence[Session]) -> Table:
    rows = []
    for each in sessions:
        facts = {key: str(value) if value else "?" for key, value in each.facts.items()}
        rows.append([each.host.name + (" (switch)" if each.host.switch else ""), each.host.address,
                     *(facts.get(key, "") for key in ("card", "mtu", "speed", "rmem_max", "python"))])
    return _table(["server", "address", "card", "MTU>", "Mb/s>", "rmem_max>", "Python"], rows)


def _pairs(survey: Survey) -> Table:
    from ina.lab.servers.findings import is_whole

    pairs = survey.pairs if len(survey.pairs) <= SHOWN else [pair for pair in survey.pairs if not is_whole(pair)]
    table = _table(["from", "to", "TCP", "UDP", "MTU>", "µs>", "Mb/s>", "UDP loss>", "clock, ms>"], list(map(_pair, pairs)))
    if len(pairs) < len(survey.pairs):
        table.caption = f"{len(survey.pairs) - len(pairs)} pairs where everything could be measured: see --json FILE"
    return table


def _pair(pair: Pair) -> list[str]:
    def figure(value: float | None, form: str) -> str:
        return "?" if value is None else form.format(value)

    clock = "?"
    if pair.offset is not None and pair.uncertainty is not None:
        clock = f"{pair.offset * 1e3:+.3f} ± {pair.uncertainty * 1e3:.3f}"
    return [pair.source, pair.target, "blocked" if pair.tcp else "yes", "blocked" if pair.udp else "yes", str(pair.mtu or "?"),
            figure(None if pair.trip is None else pair.trip * 1e6, "{:.0f}"),
            figure(None if pair.rate is None else pair.rate / 1e6, "{:.0f}"), figure(pair.loss, "{:.2%}"), clock]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Returns a table. Columns that end with > are aligned to the right; no cell is markup, or has control characters."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
