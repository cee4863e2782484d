"""`ina wire`: the wire layout as a table, a C header or a Wireshark dissector."""

from __future__ import annotations

import argparse
import sys
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

    if args.values not in layout.VALUES:
        sizes = ", ".join(map(str, layout.VALUES))
        print(f"ina: --values {args.values}: expected one of {sizes}", file=sys.stderr)
        return 2
    wire, atp = layout.load(args.values), layout.load_atp(args.values)
    if args.what == "c":
        print(c_header.generate(wire, kinds.SOURCE), end="")
        print(c_header.generate(atp, kinds.ATP_SOURCE, "atp", layout.ATP_HEAD), end="")
    elif args.what == "lua":
        print(dissector.generate(wire, layout.size_codes(), kinds.switchml(), kinds.SOURCE), end="")
        print(dissector_atp.generate(atp, kinds.atp(), kinds.ATP_SOURCE), end="")
    else:
        print("\n".join(_table(wire)))
        print("\nATP")
        print("\n".join(_atp_table(atp)))
    return 0


def _atp_table(wire: Layout) -> list[str]:
    from ina.aggregation.wire.layout import ATP_DATA, ATP_HEAD

    lines = [_line(wire, name, field, wire.offset(name, ATP_DATA)) for name in ("atp", "values") for field in wire[name].fields]
    for title, frame in (("data", ATP_DATA), ("without payload", ATP_HEAD)):
        lines.append(f"{title}: {wire.size(frame)} bytes: {' | '.join(frame)}")
    return lines


def _line(wire: Layout, name: str, field: Field, start: int) -> str:
    width = f"{field.count} x {field.width}" if field.count > 1 else str(field.width)
    byte, bit = divmod(8 * start + field.offset, 8)
    return f"{name:10} {field.name:16} {byte:5} {bit:3} {width:>9}{'  signed' if field.signed else ''}"


def _table(wire: Layout) -> list[str]:
    """Returns a line for each field with its place in the frame, and one for each kind of frame."""
    from ina.aggregation.wire.layout import DATA, HEAD, PENDING

    lines = [f"{'header':10} {'field':16} {'byte':>5} {'bit':>3} {'width':>9}"]
    for name, header in wire.headers.items():
        start = wire.offset(name, PENDING if name == "pending" else DATA)
        lines += [_line(wire, name, field, start) for field in header.fields]
    for title, frame in (("data", DATA), ("without payload", HEAD), ("pending", PENDING)):
        lines.append(f"{title}: {wire.size(frame)} bytes: {' | '.join(frame)}")
    return lines
