"""Defects that `ina p4 equal` must find: each changes one line of a copy of a program or of its twin.

`python -m tests.p4.tools.twin_plants` plants them all, one after the other, and prints the effort to find each.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ina import cli
from ina.aggregation import equal_scenarios
from ina.base import paths
from ina.p4.tools.equal.search import Bounds, Outcome, Search, shrink
from ina.p4.tools.equal.task import prepare

SEQUENCES, DEPTH = 1000, 4  # limits within which a defect must show
PACKETS = 8  # most packets of a counter-example


@dataclass(frozen=True)
class Plant:
    """A defect: `old`, which `file` (below p4/) must contain once, becomes `new`. `program`: whose twins are compared."""

    name: str
    file: str
    old: str
    new: str
    program: str = "switchml"


PLANTS = (
    Plant("a worker's bit is not set", "include/switchml/phase.p4", "seen = seen | meta.worker;", "seen = seen | 0;"),
    Plant(
        "one child too few is waited for",
        "include/switchml/phase.p4",
        "left = meta.last + 1 + (bit<8>)meta.parent;",
        "left = meta.last + (bit<8>)meta.parent;",
    ),
    Plant(
        "an older packet takes a row that is complete",
        "include/switchml/phase.p4",
        "left == 0 && (int<32>)(hdr.switchml.tsi - tsi) > 0",
        "left == 0",
    ),
    Plant(
        "a result that is asked for once more is not given",
        "include/switchml/phase.p4",
        "} else if (left == 0) {\n                    meta.complete = 1;",
        "} else if (left == 99) {\n                    meta.complete = 1;",
    ),
    Plant(
        "a pending frame names those that are there",
        "include/switchml/phase.p4",
        "meta.missing = EXPECTED & ~seen;",
        "meta.missing = EXPECTED & seen;",
    ),
    Plant(
        "any child has the sums sent up again",
        "include/switchml/phase.p4",
        "meta.worker & EXPECTED & -EXPECTED != 0",
        "meta.worker & meta.full != 0",
    ),
    Plant(
        "the smallest exponent wins",
        "include/switchml/aggregation.p4",
        "hdr.exponents.e0 > (int<8>)largest0",
        "hdr.exponents.e0 < (int<8>)largest0",
    ),
    Plant(
        "overflows are not seen",
        "include/switchml/aggregation.p4",
        "overflow = overflow | ((old ^ sum) & (hdr.values.v##i ^ sum)); \\",
        "overflow = overflow | 0; \\",
    ),
    Plant(
        "maxima are unsigned",
        "include/switchml/aggregation.p4",
        "(int<LANE_BITS>)old > (int<LANE_BITS>)hdr.values.v##i ? old",
        "old > hdr.values.v##i ? old",
    ),
    Plant(
        "packets of an older life are taken",
        "include/switchml/admission.p4",
        "(bit<8>)hdr.exponents.e1 != own_life",
        "own_life != own_life",
    ),
    Plant(
        "forged frames are forwarded",
        "include/forwarding.p4",
        "if (checked == known) {",
        "if (checked == known || checked == 1) {",
    ),
    Plant(
        "a broadcast goes back to where it came from",
        "switchml.p4",
        "meta.flood == 1 && standard.egress_port == standard.ingress_port",
        "meta.flood == 1 && standard.egress_port == 511",
    ),
    Plant(
        "the twin's sets of a slot share a row",
        "tofino/include/switchml/admission.p4",
        "row = 1w0 ++ hdr.switchml.slot ++ hdr.switchml.set;",
        "row = 1w0 ++ hdr.switchml.slot ++ 1w0;",
    ),
    Plant(
        "the twin's worker stays missing",
        "tofino/include/switchml/phase.p4",
        "workers.own = workers.own & others; \\",
        "workers.own = workers.own; \\",
    ),
    Plant(
        "the twin takes what is late",
        "tofino/include/switchml/phase.p4",
        "(int<32>)(hdr.switchml.tsi - life.finished) < 0)",
        "false)",
    ),
    Plant(
        "the twin says pending in place of the result",
        "tofino/include/switchml/phase.p4",
        "(_, _, _, 0, _,    _, 0, 0, _, _, _): give(To.SENDER);",
        "(_, _, _, 0, _,    _, 0, 0, _, _, _): say_pending();",
    ),
    Plant(
        "the twin expects the packet of a worker too many",
        "tofino/include/switchml/phase.p4",
        "hdr.bridge.absent = OWN_WORKERS;",
        "hdr.bridge.absent = meta.full;",
    ),
    Plant(
        "the twin's smallest exponent wins",
        "tofino/include/switchml/aggregation.p4",
        "largest = max(largest, exponent);",
        "largest = min(largest, exponent);",
    ),
    Plant(
        "the twin's overflow flag is missing",
        "tofino/include/lanes.p4",
        "const default_action = mark();",
        "const default_action = NoAction();",
    ),
    Plant(
        "the twin's check words are those of the first",
        "tofino/include/switchml/aggregation.p4",
        "sum = sum + word;",
        "sum = sum;",
    ),
    Plant(
        "the twin takes headers that do not fit their checksum",
        "tofino/include/switchml/parsing.p4",
        "meta.bad_headers = headers_checksum.verify();",
        "meta.bad_headers = false;",
    ),
    Plant(
        "the twin refuses nobody's version",
        "tofino/include/switchml/admission.p4",
        "(Drop.NONE, _, _, _,    0, OTHER,         _, _, _, _): outdated();",
        "(Drop.NONE, _, _, _,    0, OTHER,         _, _, _, _): refuse(Drop.VERSION);",
    ),
    Plant(
        "the twin takes packets of an older life",
        "tofino/include/switchml/admission.p4",
        "(Drop.NONE, _, _, _,    _, _,             1, _, _, _): refuse(Drop.OLD_LIFE);",
        "(Drop.NONE, _, _, _,    _, _,             1, _, _, _): NoAction();",
    ),
    Plant(
        "the twin's guard is left out",
        "tofino/include/forwarding.p4",
        "if (checked == 1 && known == 0) {",
        "if (checked == 1 && known == 0 && checked == 0) {",
    ),
    Plant(
        "a result does not free its aggregator",
        "include/atp/aggregator.p4",
        "bitmaps.write(meta.row, 0);\n            }\n        } else {",
        "kinds.write(meta.row, kind);\n            }\n        } else {",
        "atp",
    ),
    Plant(
        "what was taken along stays",
        "include/atp/aggregator.p4",
        "if (meta.fate == Fate.EVICTED) {",
        "if (meta.fate == Fate.EVICTED && meta.row == 99) {",
        "atp",
    ),
    Plant(
        "an aggregator is believed for ever",
        "include/atp/aggregator.p4",
        "now - stamp <= (bit<48>)meta.lifetime",
        "now - stamp <= 48w0xffffffffff",
        "atp",
    ),
    Plant(
        "the twin's result does not free its aggregator",
        "tofino/include/atp/aggregator.p4",
        "_, 0 &&& 0xffffff00, 1, _): free_##name##_();  /* the result is there */",
        "_, 0 &&& 0xffffff00, 1, _): NoAction();",
        "atp",
    ),
    Plant(
        "the twin's collisions are not told",
        "tofino/include/atp/aggregator.p4",
        "hdr.atp.collision = 1;",
        "hdr.atp.collision = 0;",
        "atp",
    ),
    Plant(
        "the twin's surplus workers stay",
        "tofino/include/atp/aggregator.p4",
        "workers = workers & ~hdr.bridge.surplus;",
        "workers = workers & ~32w0;",
        "atp",
    ),
    Plant(
        "an offer is decided before all have asked",
        "include/quorum/offers.p4",
        "if (seen == meta.full && (count >= hdr.offer.least",
        "if ((count >= hdr.offer.least",
        "quorum",
    ),
    Plant(
        "who has given counts once more",
        "include/quorum/offers.p4",
        "if (!known && hdr.offer.state == OFFER_GIVE",
        "if (hdr.offer.state == OFFER_GIVE",
        "quorum",
    ),
    Plant(
        "the twin's rivals both contribute",
        "tofino/include/quorum/offers.p4",
        "(_,         0, 0, OFFER_GIVE): give();",
        "(_,         0, _, OFFER_GIVE): give();",
        "quorum",
    ),
    Plant(
        "the twin waits for those that pass",
        "tofino/include/quorum/offers.p4",
        "(_, 0, _, 0, _, _, _):         decide();",
        "(_, 0, _, 0, _, _, _):         NoAction();",
        "quorum",
    ),
    Plant(
        "the twin forgets that it has decided",
        "tofino/include/quorum/offers.p4",
        "meta.without = ALL_KNOWN;",
        "meta.without = meta.given;",
        "quorum",
    ),
    Plant(
        "the twin begins with the contributors of an older phase",
        "tofino/include/quorum/offers.p4",
        "set = 0;",
        "set = set;",
        "quorum",
    ),
    Plant(
        "the twin's offers that are open get pending frames",
        "tofino/include/quorum/headers.p4",
        "hdr.bridge.complete == 0 && hdr.bridge.coded == 0",
        "hdr.bridge.complete == 0",
        "quorum",
    ),
    Plant(
        "the twin passes on offers of several workers",
        "tofino/include/quorum/offers.p4",
        "(1, _, OFFER_PASS,         _, 0, 0, 1): take(Way.PARENT);",
        "(1, _, OFFER_PASS,         _, _, 0, 1): take(Way.PARENT);",
        "quorum",
    ),
    Plant(
        "a child without a member below hears of the end",
        "include/receivers/pruning.p4",
        "if (hdr.receivers.members & below == 0) {",
        "if (below == 0) {",
        "receivers",
    ),
    Plant(
        "the twin takes packets for other receivers",
        "tofino/include/receivers/members.p4",
        "phase.ranks == hdr.receivers.ranks && ",
        "",
        "receivers",
    ),
    Plant(
        "the twin takes packets of other members",
        "tofino/include/receivers/members.p4",
        " && phase.members == hdr.receivers.members",
        "",
        "receivers",
    ),
    Plant(
        "the twin waits for workers that are no members",
        "tofino/include/receivers/members.p4",
        "meta.expected = meta.full & meta.members;",
        "meta.expected = meta.full;",
        "receivers",
    ),
    Plant(
        "the twin sends up a sum of those below",
        "tofino/include/receivers/members.p4",
        "(true, 0): stay();",
        "(true, 0): NoAction();",
        "receivers",
    ),
    Plant(
        "the twin takes another result where all are below",
        "tofino/include/switchml/phase.p4",
        "expected = 1;  // no",
        "expected = 0;  // no",
        "receivers",
    ),
    Plant(
        "the twin tells nobody of a sum for others",
        "tofino/include/receivers/pruning.p4",
        "(To.CHILDREN, 0, _, _, _): by_some();",
        "(To.CHILDREN, 0, _, _, _): NoAction();",
        "receivers",
    ),
    Plant(
        "the twin gives values to whoever asks",
        "tofino/include/receivers/pruning.p4",
        "(To.SENDER,   _, 0, _, _): by_none();",
        "(To.SENDER,   _, 0, _, _): NoAction();",
        "receivers",
    ),
)


@dataclass(frozen=True)
class Found:
    """A finding. `packets`: of the counter-example."""

    outcome: Outcome
    packets: int
    text: str


def copy_with(plant: Plant, folder: Path) -> Path:
    """A copy of the programs with the defect in it. Raises ValueError where the line no longer exists."""
    shutil.copytree(paths.p4_dir(), folder)
    file = folder / plant.file
    text = file.read_text(encoding="utf-8")
    if text.count(plant.old) != 1:
        raise ValueError(f"{plant.file}: {plant.old!r} is there {text.count(plant.old)} times; the plant must follow the code")
    file.write_text(text.replace(plant.old, plant.new), encoding="utf-8")
    return folder


def search(plant: Plant, seed: int = 1) -> Found | None:
    """Searches for packets that show the defect; None if there are none."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = copy_with(plant, Path(scratch) / "p4")
        programs = [str(tree / f"{plant.program}.p4"), str(tree / "tofino" / f"{plant.program}.p4")]
        args = cli.parser().parse_args(["p4", "equal", *programs, "--seed", str(seed)])
        task = prepare(args, equal_scenarios)
        outcome = Search(task.twins, task.maker, Bounds(SEQUENCES, depth=DEPTH)).run(task.letters)
        if outcome.difference is None:
            return None
        packets, difference, _ = shrink(task.twins, outcome.packets, outcome.difference.kind)
        return Found(outcome, len(packets), difference.text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.p4.tools.twin_plants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    misses = 0
    for plant in PLANTS:
        if args.names and not any(name in plant.name for name in args.names):
            continue
        began = time.monotonic()
        finding = search(plant, args.seed)
        misses += finding is None or finding.packets > PACKETS
        text = "no packets show it" if finding is None else (
            f"{finding.outcome.sequences} random sequences, {finding.outcome.sent} packets; "
            f"{finding.packets} left: {finding.text}")
        print(f"{'MISSED' if finding is None or finding.packets > PACKETS else 'found':<7} {plant.name}: {text} "
              f"({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
