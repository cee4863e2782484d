"""`ina wire`: the wire layout as a table, a C header or a Wireshark dissector."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ina.base.bounds import whole

if TYPE_CHECKING:
    from ina.aggregation.wire.layout import Field, Layout


def add_arguments(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command `wire` to `ina`; each of its commands sets `main`, a function of the parsed arguments."""
    wire = subparsers.add_parser("wire")
    commands = wire.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in (
        ("show", "every field's place in the frame"),
        ("c", "C header: packed structs, masks, constants"),
        ("lua", "Wireshark dissector"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--values", type=whole(1, 2048), default=256, help="integers per packet (default: 256)")
        command.set_defaults(main=main, what=name)


def main(args: argparse.Namespace) -> int:
    # the compiler's front end: not for `ina --help`
    from ina.aggregation.wire import c_header, dissector, dissector_atp, kinds, layout

    sizes = layout.size_codes()
    if args.values not in sizes.values():
        print(f"ina: --values {args.values}: expected one of {', '.join(map(str, sizes.values()))}", file=sys.stderr)
        return 2
    wire, atp = layout.load(args.values), layout.load_atp(args.values)
    if args.what == "c":
        print(c_header.generate(wire, kinds.SOURCE), end="")
        print(c_header.generate(atp, kinds.ATP_SOURCE, "atp", layout.ATP_HEAD), end="")
    elif args.what == "lua":
        print(dissector.generate(wire, sizes, kinds.switchml(), kinds.SOURCE), end="")
        print(dissector_atp.generate(atp, kinds.atp(), kinds.ATP_SOURCE), end="")
    else:
        print(f"{'header':10} {'field':16} {'byte':>5} {'bit':>3} {'width':>9}")
        frames = {"data": layout.DATA, "without payload": layout.HEAD, "pending": layout.PENDING}
        print("\n".join(_table(wire, wire.headers, frames)))
        print("\nATP")
        print("\n".join(_table(atp, ("atp", "values"), {"data": layout.ATP_DATA, "without payload": layout.ATP_HEAD})))
    return 0


def _line(name: str, field: Field, start: int) -> str:
    width = f"{field.count} x {field.width}" if field.count > 1 else str(field.width)
    byte, bit = divmod(8 * start + field.offset, 8)
    return f"{name:10} {field.name:16} {byte:5} {bit:3} {width:>9}{'  signed' if field.signed else ''}"


def _table(wire: Layout, names: Iterable[str], frames: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a line for each field of these headers, with its place in the first frame that has it, and one for each frame."""
    places = {name: wire.offset(name, next(frame for frame in frames.values() if name in frame)) for name in names}
    lines = [_line(name, field, start) for name, start in places.items() for field in wire[name].fields]
    return lines + [f"{title}: {wire.size(frame)} bytes: {' | '.join(frame)}" for title, frame in frames.items()]
