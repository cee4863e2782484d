"""``python -m bench [startup codec lanes thc compressors switch complete check tags atp bmv2 emulator groups layers narrow local
protocols recovery testbed links servers dpdk] [--quick]``: measures, prints, keeps JSON and plots."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import common
from ina.base import signals

NAMES = ("startup", "codec", "lanes", "thc", "compressors", "switch", "complete", "check", "tags", "atp", "bmv2", "emulator",
         "groups", "layers", "narrow", "local", "protocols", "recovery", "testbed", "links", "servers")
BY_NAME = ("dpdk",)  # only run by name: make bench-dpdk


def _quick(parser: argparse.ArgumentParser, name: str) -> Callable[[], Iterable[common.Measurement]]:
    """Returns the short form of a benchmark."""
    form: Callable[[], Iterable[common.Measurement]] | None
    form = getattr(importlib.import_module(f"bench.{name}"), "quick", None)
    if form is None:
        parser.error(f"--quick: {name} has no short form; leave --quick out, or name only those that have one: servers")
    return form


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="WHAT",
                        help=f"any of {', '.join(NAMES)} (default: all of these), {', '.join(BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="a short form of two minutes, where WHAT has one (servers)")
    parser.add_argument("--results", type=Path, default=Path("results"))
    args = parser.parse_args()
    unknown = set(args.what) - {*NAMES, *BY_NAME}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: expected any of {', '.join((*NAMES, *BY_NAME))}")
    short = {name: _quick(parser, name) for name in args.what or NAMES} if args.quick else {}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code is kept, as where a package is installed
    environment = common.record.environment()
    common.console.print(
        "{cpu}, {cores} cores, kernel {kernel}, commit {commit}".format(**environment), highlight=False
    )
    measurements = []
    try:
        with signals.terminable():  # children end with their benchmark
            for name in args.what or NAMES:
                for measurement in short[name]() if args.quick else importlib.import_module(f"bench.{name}").measure():
                    measurement.show()
                    measurements.append(measurement)
    except (signals.Terminated, KeyboardInterrupt) as error:
        raise SystemExit(signals.STATUS if isinstance(error, signals.Terminated) else 130) from None
    finally:
        if measurements:
            common.save(measurements, args.results)


if __name__ == "__main__":
    main()
