"""`python -m tests.random_programs`: judges random programs for a chosen time; shrinks and keeps those that differ.

Prints a line for each failure and a progress line; with --bmv2 also how many programs lost which feature for BMv2. The
exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from .adapt import KNOWN, adapt
from .bmv2 import judge_bmv2, missing
from .generate import Generator
from .judge import Verdict, judge
from .render import text
from .shrink import shrink

FINE = {"agree", "left out"}
OF_BMV2 = {"bmv2", "p4c"}


def run(seed: int, bmv2: bool) -> tuple[int, Verdict]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = judge(Generator(seed).program(), Path(folder))
        if bmv2 and verdict.kind == "agree":
            verdict = judge_bmv2(Generator(seed).program(), Path(folder))
        return seed, verdict


def alike(first: Verdict, second: Verdict) -> bool:
    """Tells whether two verdicts show the same defect; refusals and crashes are identified by their last line."""
    if first.kind != second.kind:
        return False
    return first.kind not in ("refused", "crashed", "p4c") or first.text.splitlines()[-1:] == second.text.splitlines()[-1:]


def keep(seed: int, verdict: Verdict, folder: Path, tries: int) -> Path:
    """Writes the smallest program with the same defect, and its verdict, to `folder`."""
    judge_of, program = (judge_bmv2, adapt) if verdict.kind in OF_BMV2 else (judge, lambda p: (p, frozenset()))
    with tempfile.TemporaryDirectory() as scratch:
        small = shrink(program(Generator(seed).program())[0], lambda p: alike(judge_of(p, Path(scratch)), verdict), tries)
        outcome = judge_of(small, Path(scratch))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{seed}.p4"
    tables = [f"// {t.name}: {e}" for t in small.tables if not t.const for e in t.entries]
    notes = [f"// seed {seed}, {outcome.kind}", *(f"// {line}" for line in outcome.text.splitlines()), *tables]
    path.write_text("\n".join(notes) + "\n" + text(small))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0); the next has the next seed")
    parser.add_argument("--count", type=int, default=0, help="programs (default: until --minutes are over)")
    parser.add_argument("--minutes", type=float, default=10, help="at most so long (default 10)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--shrink", type=int, default=300, help="tries to make a program that fails smaller (default 300)")
    parser.add_argument("--results", type=Path, default=Path("results/random-programs"), help="where programs that fail are kept")
    parser.add_argument("--bmv2", action="store_true", help="ask p4c and BMv2's simple_switch, too (seconds a program)")
    args = parser.parse_args()
    if args.bmv2 and (reason := missing()):
        parser.error(f"--bmv2: {reason}")
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    start = last = time.monotonic()
    batch, seed = 4 * args.jobs, args.seed
    with ProcessPoolExecutor(args.jobs) as pool:
        while time.monotonic() - start < 60 * args.minutes and not 0 < args.count <= seed - args.seed:
            until = min(seed + batch, args.seed + args.count) if args.count else seed + batch
            for number, verdict in pool.map(run, range(seed, until), repeat(args.bmv2)):
                counts[verdict.kind] += 1
                left_out.update(verdict.left_out)
                refusals.update([verdict.text] * (verdict.kind == "left out"))
                if verdict.kind not in FINE:
                    path = keep(number, verdict, args.results, args.shrink)
                    print(f"seed {number}: {verdict.kind}: {path}", flush=True)
            seed = until
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"{seed - args.seed} programs in {last - start:.0f} s: {dict(counts)}", flush=True)
    print(f"{sum(counts.values())} programs in {time.monotonic() - start:.0f} s: {dict(counts)}")
    for name, number in left_out.most_common():
        print(f"    {number:6} without {name}{f': {KNOWN[name]}' if name in KNOWN else ''}")
    for reason, number in refusals.most_common():
        print(f"    {number:6} not judged by BMv2: {reason}")
    return 1 if set(counts) - FINE else 0


if __name__ == "__main__":
    sys.exit(main())
