"""`ina wire`: the wire layout as a table, a C header or a Wireshark dissector."""

from __future__ import annotations

import argparse

from ina.wire import c_header, dissector, layout

SOURCE = "p4/include/headers.p4"


def add_arguments(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `wire` to `ina`; each of its commands sets `main`, a function of the parsed arguments."""
    wire = subparsers.add_parser("wire", help="show the wire layout, or generate C or a Wireshark dissector from it")
    commands = wire.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text, main in (
        ("show", "every field's place in the frame", show),
        ("c", "C header: packed structs, masks, constants", c),
        ("lua", "Wireshark dissector", lua),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--values", type=int, choices=layout.VALUES, default=256, help="integers per packet (default: 256)")
        command.set_defaults(main=main)


def show(args: argparse.Namespace) -> int:
    wire = layout.load(args.values)
    print(f"{'header':10} {'field':16} {'byte':>5} {'bit':>3} {'width':>5}")
    for name, header in wire.headers.items():
        frame = layout.PENDING if name == "pending" else layout.DATA
        start = wire.offset(name, frame)
        for field in header.fields:
            width = f"{field.count} x {field.width}" if field.count > 1 else field.width
            byte, bit = divmod(8 * start + field.offset, 8)
            print(f"{name:10} {field.name:16} {byte:5} {bit:3} {width:>5}{'  signed' if field.signed else ''}")
    for title, frame in (("data", layout.DATA), ("without payload", layout.HEAD), ("pending", layout.PENDING)):
        print(f"{title}: {wire.size(frame)} bytes: {' | '.join(frame)}")
    return 0


def c(args: argparse.Namespace) -> int:
    print(c_header.generate(layout.load(args.values), SOURCE), end="")
    return 0


def lua(args: argparse.Namespace) -> int:
    print(dissector.generate(layout.load(args.values), layout.size_codes(), SOURCE), end="")
    return 0
