"""`ina protocol`: begins a protocol of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from ina.cli.errors import reported


def add_arguments(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command to `ina`; its parts set `main`, a function of the parsed arguments."""
    protocol = subparsers.add_parser("protocol", description="Protocols of your own: a switch program, a worker and entries "
                                     "(docs/guide/new-protocol.md).")
    actions = protocol.add_subparsers(metavar="ACTION", required=True)
    new = actions.add_parser("new", help="write a small protocol that works, to begin with",
                             description="Writes a small protocol that works: program, worker, entries, a test against an "
                             "oracle, an experiment and a README.")
    new.add_argument("name", help="small letters, digits and _")
    new.add_argument("folder", nargs="?", type=Path, help="where to write the files (default: NAME)")
    new.add_argument("--operation", default="maximum", metavar="NAME",
                     help="what the switch does with the workers' int32: maximum (the default), or majority (of signs); "
                          "for sums begin with `ina examples copy lockstep`")
    new.add_argument("--port", type=_port, metavar="N", help="UDP port of its packets (default: 48840)")
    new.set_defaults(main=reported(_new, 2))


def _port(text: str) -> int:
    """Parses a number, also one in hexadecimal, as P4 and the documentation write ports: 0xBEC8. Which ports there are, the
    skeleton says."""
    try:
        return int(text, 16 if text[:2] in ("0x", "0X") else 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a UDP port, such as 48841 or 0xBEC9") from None


def _new(args: argparse.Namespace) -> int:
    from ina.aggregation import skeleton

    folder = args.folder if args.folder is not None else Path(args.name)
    for path in skeleton.write(args.name, folder, args.operation, skeleton.PORT if args.port is None else args.port):
        print(path)
    return 0
