"""The state of the running switch processes as tables and JSON, for ``ina jobs``, ``switches``, ``counters`` and ``top``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ina.aggregation.control_socket.channel import shown
from ina.aggregation.control_socket.discovery import running
from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller.client import ControlError
from ina.aggregation.controller.looks import ask, clock, flat, link_jobs_words, rates_between, sample, silent_words, workers_of
from ina.base import signals


def run(args: argparse.Namespace) -> int:
    """Runs ``ina jobs``, ``switches``, ``counters`` or ``top``; returns the exit status."""
    try:
        return _top(args) if args.operation == "top" else _once(args, args.operation)
    except (ControlError, ValueError) as error:
        print(f"ina: {error}", file=sys.stderr)
        return 1
    except (LookupError, TypeError, AttributeError) as error:  # a reply of another version, or of another program
        print(f"ina: an answer that makes no sense ({type(error).__name__}: {printable(error)}); does a switch process of this "
              "version listen there?", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        if isinstance(error, signals.Terminated):
            raise
        return 130  # the usual end of ina top


def _names(args: argparse.Namespace) -> list[str]:
    names = [args.switch.removeprefix("@")] if args.switch else running()
    if not names:
        raise ValueError("no switch process runs here (in this network namespace); --switch NAME names one, and --switch "
                         "HOST:PORT one that listens at an address (ina switch run --listen)")
    return names


def _ask_all(args: argparse.Namespace, ask: Callable[[str], dict]) -> dict[str, dict]:
    """Returns every switch process's reply. One that was discovered and does not answer is left out: it may have just ended."""
    replies = {}
    for name in _names(args):
        try:
            replies[name] = ask(name)
        except ControlError as error:
            if args.switch:
                raise
            print(f"ina: {shown(name)} is left out: {error}", file=sys.stderr)
    return replies


def _once(args: argparse.Namespace, operation: str) -> int:
    replies = _ask_all(args, lambda name: ask(name, operation, "ping"))
    if args.json:
        print(json.dumps({name: reply[operation] for name, reply in replies.items()}, indent=2))
    else:
        table = {"jobs": jobs_table, "switches": switches_tables, "counters": counters_tables}[operation]
        for name, reply in replies.items():
            Console().print(_title(name, reply["ping"]), table(reply[operation], reply["ping"]), sep="\n")
    return 0


def _title(name: str, about: dict) -> Text:
    return Text(printable(f"{shown(name)}: process {about['pid']}, {about['program']}, {about['values']} values per packet, "
                          f"{about['free_slots']} slots free"), "bold")


INCIDENTS = 16  # of links that are shown, the last ones
WIDTH = 80  # characters: wider tables are split, and each part repeats the rows' names


def _table(*columns: str) -> Table:
    """Makes a table. Columns that end with > are aligned to the right."""
    table = Table()
    for column in columns:
        number = column.endswith(">")
        name = Text(printable(column.removesuffix(">")))  # names come from other users, as cells do
        table.add_column(name, justify="right" if number else "left", no_wrap=number)
    return table


def _row(table: Table, *cells: str) -> None:
    """Adds a row. Names and texts come from other users: no markup, and no control characters reach the terminal."""
    table.add_row(*(Text(printable(cell, "\n")) for cell in cells))


def jobs_table(reply: dict, about: dict) -> Table:
    table = _table("job", "number>", "workers>", "slots>", "tree", "members")
    for name, job in reply["jobs"].items():
        others = [switch for switch in job["switches"] if switch != job["root"]]
        members = [printable(f"{i} {m['host'] or ''} pid {m['pid'] or '?'} port {m['port']}".replace("  ", " "))
                   for i, m in sorted(job["members"].items(), key=lambda item: int(item[0]))]
        _row(table, printable(name), str(job["number"]), "/".join(map(str, workers_of(job))), str(job["slots"]),
                      job["root"] + (f" over {', '.join(others)}" if others else ""), "\n".join(members))
    return table


def switches_tables(reply: dict, about: dict) -> Group:
    """Returns the table of switches and, if links were down or slow, that of links."""
    table = _table("switch", "state", "slots>", "free>", "jobs")
    for name, switch in reply["switches"].items():
        _row(table, printable(name), switch["state"], str(switch["slots"]), str(switch["free_slots"]), ", ".join(switch["jobs"]))
    incidents = reply.get("links") or []
    parts: list[RenderableType] = [table, links_table(incidents[-INCIDENTS:])] if incidents else [table]
    parts += [Text(printable(silent_words(one))) for one in reply.get("silent") or []]
    return Group(*parts)


def links_table(incidents: Sequence[dict]) -> Table:
    """Returns the table of links that are or were down or slow (ina/aggregation/controller/link_recovery.py)."""
    table = _table("link", "state", "since", "until", "why", "lost>", "jobs")
    for one in incidents:
        _row(table, one["link"], one["state"], clock(one["began"]), clock(one["ended"]), one["reason"], str(one["lost"]),
             "\n".join(link_jobs_words(one)))
    return table


def counters_tables(reply: dict, about: dict) -> Group:
    """Returns tables of the program's non-zero cells, with the program's names for them, and by switch if the reply has
    switches; then of ports, links, and the parameter server's counters of each job, by number."""
    from ina.aggregation.controller.counter_cells import labels  # imports the compiler

    switches = reply.get("switches") or {"": {"program": reply["program"]}}
    table = _table(*["switch"] * (len(switches) > 1), "counter", "cell", "packets>", "bytes>")
    parts: list[RenderableType] = []
    for switch, own in switches.items():
        if own.get("error"):
            parts.append(Text(printable(f"{switch} does not answer: {own['error']}"), "red"))
        for counter, cells in own["program"].items():
            names = labels(about.get("source") or about["program"], counter, len(cells)) if any(map(any, cells)) else []
            for number, (packets, size) in enumerate(cells):
                if packets or size:
                    prefix = [switch] * (len(switches) > 1)
                    _row(table, *prefix, counter, names[number], str(packets), str(size) if size else "")
    if table.row_count:
        parts.insert(0, table)
    tables = {"port": reply.get("ports"), "link": reply.get("links"), "server's job": reply.get("server", {}).get("jobs")}
    for kind, rows in tables.items():
        if rows:
            numbers = {name: flat(row) for name, row in rows.items()}
            columns = list(dict.fromkeys(key for row in numbers.values() for key in row))
            for group in _groups(columns, numbers):
                table = _table(kind, *(f"{column}>" for column in group))
                for name, row in numbers.items():
                    _row(table, str(name), *(f"{row.get(column, 0):.10g}" for column in group))
                parts.append(table)
    return Group(*parts)


def _groups(columns: Sequence[str], rows: dict[str, dict]) -> Iterator[list[str]]:
    """Splits the columns into groups that fit beside the rows' names."""
    frame = 3  # a cell's spaces and line
    group: list[str] = []
    rest = room = WIDTH - max(len(str(name)) for name in rows) - frame - 1
    for column in columns:
        width = frame + max(len(column), *(len(f"{row.get(column, 0):.10g}") for row in rows.values()))
        if group and width > rest:
            yield group
            group, rest = [], room
        group, rest = [*group, column], rest - width
    yield group


# ---- top


def _top(args: argparse.Namespace) -> int:
    from ina.cli import top  # termios, which a machine without terminals lacks

    if not (args.json or args.once or args.count) and top.possible():
        return top.show(lambda: _names(args), sample, rates_between, args.delay)
    count = 1 if args.once else args.count
    console = Console()
    with nullcontext() if args.json else Live(console=console, auto_refresh=False) as live:
        looks, before = 0, _ask_all(args, sample)
        while not count or looks < count:
            time.sleep(args.delay)
            now = _ask_all(args, sample)
            rates = {name: rates_between(before.get(name, reply), reply) for name, reply in now.items()}
            before = now
            if live is None:
                print(json.dumps(rates), flush=True)
            else:
                live.update(Group(*(top_tables(name, reply, rates[name]) for name, reply in before.items())), refresh=True)
            looks += 1
    return 0


def top_tables(name: str, reply: dict, rates: dict) -> Group:
    about = reply["ping"]
    parts: list[RenderableType] = [_title(name, about), jobs_table(reply["jobs"], about)]
    if rates.get("faults"):
        parts.append(links_table(rates["faults"]))
    for kind in ("ports", "links"):
        if rows := rates.get(kind):
            ways = ("in", "out") if kind == "ports" else ("up", "down")
            table = _table(kind[:-1], *(f"{way} {unit}>" for way in ways for unit in ("packets/s", "Mb/s")), "drops/s>")
            for row, rate in rows.items():
                cells = [f"{rate[f'{way}_{unit}'] / scale:,.{digits}f}" for way in ways
                         for unit, scale, digits in (("packets", 1, 0), ("bits", 1e6, 1))]
                _row(table, str(row), *cells, f"{rate['drops']:,.0f}")
            parts.append(table)
    return Group(*parts)
