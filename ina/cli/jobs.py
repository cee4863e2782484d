"""``ina jobs``, ``ina switches``, ``ina counters`` and ``ina top``: what the running switch processes are doing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.controller.counter_cells import labels
from ina.aggregation.socket.channel import shown
from ina.aggregation.socket.discovery import running
from ina.aggregation.socket.messages import printable
from ina.base.bounds import real, whole

ANSWER = 10.0  # seconds
PHASES = ("ingress", "egress")  # of a switch: a packet that ends in one did so as the program says
COMMANDS = {
    "jobs": "jobs with their switches, slots and workers",
    "switches": "switches with their pools and jobs",
    "counters": "what the switch programs, ports and links have counted",
}


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Add the commands to ``ina``."""
    for name, text in COMMANDS.items():
        _common(commands.add_parser(name, help=text, description=text), partial(_once, what=name))
    text = "jobs, and the packets and bits per second of ports and links, again and again"
    top = _common(commands.add_parser("top", help=text, description=text), _top)
    top.add_argument("-d", "--delay", type=real(0.05, 86400), default=1.0, metavar="SECONDS",
                     help="between two looks (default: 1)")
    top.add_argument("-n", "--count", type=whole(0, 10**9), default=0, metavar="N", help="end after so many (default: at Ctrl-C)")
    top.add_argument("--once", action="store_true", help="as -n 1")


def _common(parser: argparse.ArgumentParser, main: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser.add_argument("--switch", metavar="NAME", default=os.environ.get("INA_SWITCH"),
                        help="socket of a switch process: an abstract name, or a path with a '/' (default: INA_SWITCH, else all "
                             "that this machine's jobs and networks have started)")
    parser.add_argument("--json", action="store_true", help="JSON, an object with a key for each switch process")
    parser.set_defaults(main=lambda args: _guarded(main, args))
    return parser


def _guarded(main: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        return main(args)
    except (ControlError, ValueError) as error:
        print(f"ina: {error}", file=sys.stderr)
        return 1
    except (LookupError, TypeError, AttributeError) as error:  # another version's, or a stranger's at the other end of TCP
        print(f"ina: an answer that makes no sense ({type(error).__name__}: {printable(error)}); does a switch process of this "
              "version listen there?", file=sys.stderr)  # fmt: skip
        return 1
    except KeyboardInterrupt:
        return 130


def _names(args: argparse.Namespace) -> list[str]:
    names = [args.switch.removeprefix("@")] if args.switch else running()
    if not names:
        raise ValueError("no switch process runs here (in this network namespace); --switch NAME names one")
    return names


def _ask(name: str, *what: str) -> dict[str, dict]:
    client = Client(name, ANSWER)
    try:
        return {each: client.ask(each) for each in what}
    finally:
        client.close()


def _each(args: argparse.Namespace, ask: Callable[[str], dict]) -> dict[str, dict]:
    """What every switch process says. One that was found and does not answer is passed over: it may just have ended."""
    said = {}
    for name in _names(args):
        try:
            said[name] = ask(name)
        except ControlError as error:
            if args.switch:
                raise
            print(f"ina: {shown(name)} is left out: {error}", file=sys.stderr)
    return said


def _once(args: argparse.Namespace, what: str) -> int:
    found = _each(args, lambda name: _ask(name, what, "ping"))
    if args.json:
        print(json.dumps({name: said[what] for name, said in found.items()}, indent=2))
    else:
        show = {"jobs": jobs_table, "switches": switches_table, "counters": counters_tables}[what]
        for name, said in found.items():
            Console().print(_title(name, said["ping"]), show(said[what], said["ping"]), sep="\n")
    return 0


def _title(name: str, about: dict) -> Text:
    return Text(printable(f"{shown(name)}: process {about['pid']}, {about['program']}, {about['values']} values per packet, "
                          f"{about['free_slots']} slots free"), "bold")  # fmt: skip


WIDTH = 80  # characters: what is wider becomes several tables, so that each row keeps its name


def _table(*columns: str) -> Table:
    """Columns that end with > are aligned to the right."""
    table = Table()
    for column in columns:
        number = column.endswith(">")
        name = Text(printable(column.removesuffix(">")))  # others', as cells are
        table.add_column(name, justify="right" if number else "left", no_wrap=number)
    return table


def _row(table: Table, *cells: str) -> None:
    """Names and texts are others': no markup, and nothing that a terminal acts upon."""
    table.add_row(*(Text(printable(cell, "\n")) for cell in cells))


def jobs_table(said: dict, about: dict) -> Table:
    table = _table("job", "number>", "workers>", "slots>", "tree", "members")
    for name, job in said["jobs"].items():
        others = [switch for switch in job["switches"] if switch != job["root"]]
        members = [printable(f"{i} {m['host'] or ''} pid {m['pid'] or '?'} port {m['port']}".replace("  ", " "))
                   for i, m in sorted(job["members"].items(), key=lambda item: int(item[0]))]  # fmt: skip
        _row(table, printable(name), str(job["number"]), f"{len(job['members'])}/{job['workers']}", str(job["slots"]),
                      job["root"] + (f" over {', '.join(others)}" if others else ""), "\n".join(members))
    return table


def switches_table(said: dict, about: dict) -> Table:
    table = _table("switch", "state", "slots>", "free>", "jobs")
    for name, switch in said["switches"].items():
        _row(table, printable(name), switch["state"], str(switch["slots"]), str(switch["free_slots"]), ", ".join(switch["jobs"]))
    return table


def counters_tables(said: dict, about: dict) -> Group:
    """The program's cells that are not zero, by the names that the program gives them, and by switch where they say so; then
    ports, links, and what the parameter server did for each job, by number."""
    switches = said.get("switches") or {"": {"program": said["program"]}}
    table = _table(*["switch"] * (len(switches) > 1), "counter", "cell", "packets>", "bytes>")
    parts: list[RenderableType] = []
    for switch, its in switches.items():
        if its.get("error"):
            parts.append(Text(printable(f"{switch} does not answer: {its['error']}"), "red"))
        for counter, cells in its["program"].items():
            names = labels(about.get("source") or about["program"], counter, len(cells)) if any(map(any, cells)) else []
            for number, (packets, size) in enumerate(cells):
                if packets or size:
                    named = [switch] * (len(switches) > 1)
                    _row(table, *named, counter, names[number], str(packets), str(size) if size else "")
    if table.row_count:
        parts.insert(0, table)
    tables = {"port": said.get("ports"), "link": said.get("links"), "server's job": said.get("server", {}).get("jobs")}
    for kind, rows in tables.items():
        if rows:
            flat = {name: _flat(row) for name, row in rows.items()}
            columns = list(dict.fromkeys(key for row in flat.values() for key in row))
            for few in _that_fit(columns, flat):
                table = _table(kind, *(f"{column}>" for column in few))
                for name, row in flat.items():
                    _row(table, str(name), *(f"{row.get(column, 0):.10g}" for column in few))
                parts.append(table)
    return Group(*parts)


def _that_fit(columns: Sequence[str], rows: dict[str, dict]) -> Iterator[list[str]]:
    """The columns, as many at a time as go beside the rows' names."""
    frame = 3  # a cell's spaces and line
    few: list[str] = []
    left = room = WIDTH - max(len(str(name)) for name in rows) - frame - 1
    for column in columns:
        wide = frame + max(len(column), *(len(f"{row.get(column, 0):.10g}") for row in rows.values()))
        if few and wide > left:
            yield few
            few, left = [], room
        few, left = [*few, column], left - wide
    yield few


def _flat(row: dict) -> dict[str, float]:
    """Numbers of a port or link: of dictionaries in it the sum, which is what matters as long as it is zero. Of what a switch's
    runtime calls drops, ``consumed`` is what ended in the program: added up, or dropped for a reason that it counts itself."""
    flat: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, dict) and key == "drops":
            flat["consumed"] = sum(value.get(phase, 0) for phase in PHASES)
            value = {reason: n for reason, n in value.items() if reason not in PHASES}
        flat[key] = sum(value.values()) if isinstance(value, dict) else value
    return flat


# ---- top


def _top(args: argparse.Namespace) -> int:
    count = 1 if args.once else args.count
    console = Console()
    with nullcontext() if args.json else Live(console=console, auto_refresh=False) as live:
        looks, before = 0, _each(args, _look)
        while not count or looks < count:
            time.sleep(args.delay)
            now = _each(args, _look)
            rates = {name: rates_between(before.get(name, said), said) for name, said in now.items()}
            before = now
            if live is None:
                print(json.dumps(rates), flush=True)
            else:
                live.update(Group(*(top_tables(name, said, rates[name]) for name, said in before.items())), refresh=True)
            looks += 1
    return 0


def _look(name: str) -> dict:
    said = _ask(name, "ping", "jobs", "counters")
    return {**said, "at": time.monotonic()}


def rates_between(old: dict, new: dict) -> dict:
    """``jobs``: by name, workers here and in all. ``ports`` or ``links``: by name, per second: packets and bits of both
    directions (``in``: towards the switch, ``up``: from the host or the first switch), and drops."""
    seconds = max(new["at"] - old["at"], 1e-9)
    result: dict = {"jobs": {name: [len(job["members"]), job["workers"]] for name, job in new["jobs"]["jobs"].items()}}
    for kind, ways in (("ports", {"in": "rx", "out": "tx"}), ("links", {"up": "up", "down": "down"})):
        rows = new["counters"].get(kind) or {}
        if not rows:
            continue
        result[kind] = {}
        for name, row in rows.items():
            now, was = _flat(row), _flat(old["counters"].get(kind, {}).get(name, {}))
            rate = {f"{way}_{unit}": scale * (now[f"{key}_{field}"] - was.get(f"{key}_{field}", 0)) / seconds
                    for way, key in ways.items() for unit, field, scale in (("packets", "packets", 1), ("bits", "bytes", 8))}
            lost = [key for key in now if key.endswith("drops") or key == "lost"]
            rate["drops"] = sum(now[key] - was.get(key, 0) for key in lost) / seconds
            result[kind][name] = rate
    return result


def top_tables(name: str, said: dict, rates: dict) -> Group:
    about = said["ping"]
    parts: list[RenderableType] = [_title(name, about), jobs_table(said["jobs"], about)]
    for kind in ("ports", "links"):
        if rows := rates.get(kind):
            ways = ("in", "out") if kind == "ports" else ("up", "down")
            table = _table(kind[:-1], *(f"{way} {unit}>" for way in ways for unit in ("packets/s", "Mb/s")), "drops/s>")
            for row, rate in rows.items():
                cells = [f"{rate[f'{way}_{unit}'] / scale:,.{digits}f}" for way in ways
                         for unit, scale, digits in (("packets", 1, 0), ("bits", 1e6, 1))]  # fmt: skip
                _row(table, str(row), *cells, f"{rate['drops']:,.0f}")
            parts.append(table)
    return Group(*parts)
