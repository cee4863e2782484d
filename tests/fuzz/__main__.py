"""`make fuzz-coverage`: runs every target for some seconds, prints its edge coverage, and keeps the input of a finding.

The exit status is 1 after a finding, if a target could not run, or if none ran.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path

from . import engine, seeds
from .registry import TARGETS, Managed, Target

FILES, SIZE = 40, 6000  # limits of a target's corpus in the tree: number of files, bytes in all


def usable(target: Target) -> str:
    """Message about capabilities that the target lacks here; "" if none."""
    import capabilities

    needs = ("atheris", *target.needs) if isinstance(target, Managed) else ("clang-fuzzer",)
    return next((reason for need in needs if (reason := capabilities.missing(need))), "")


def write_seeds(target: Target, folder: Path) -> None:
    for data in seeds.of(target):
        (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data[: target.longest])


def renew(target: Target, build: Path, corpora: Iterable[Path]) -> int:
    """Replaces the corpus in the tree by the smallest inputs that cover what it and `corpora` cover; findings stay. Returns the
    number of files."""
    with tempfile.TemporaryDirectory() as scratch:
        merged = Path(scratch)
        count = engine.merge(
            target, build, merged, [target.corpus, *corpora] if target.corpus.is_dir() else list(corpora), FILES, SIZE
        )
        target.corpus.mkdir(parents=True, exist_ok=True)
        for path in target.corpus.iterdir():
            if not path.name.startswith("found-"):
                path.unlink()
        for path in merged.iterdir():
            (target.corpus / path.name).write_bytes(path.read_bytes())
    return count


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-coverage", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of them")
    parser.add_argument("--list", action="store_true", help="say which targets there are")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (default 60)")
    parser.add_argument("--minutes", type=float, help="for all targets together, instead of --seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the changes to inputs (default: another one each time)")
    parser.add_argument("--nice", type=int, default=10, help="of the processes (default 10)")
    parser.add_argument(
        "--results", type=Path, default=Path("results/fuzz"), help="where corpora grow, and inputs that find are kept"
    )
    parser.add_argument("--renew", action="store_true", help="write the smallest inputs that cover as much to tests/fuzz/corpus")
    args = parser.parse_args()
    if unknown := set(args.targets) - set(TARGETS):
        parser.error(f"no target {sorted(unknown)[0]!r}; there are: {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in args.targets] or list(TARGETS.values())
    if args.minutes:
        args.seconds = 60 * args.minutes / len(targets)
    if args.list:
        for target in targets:
            print(f"{target.name:<24} {target.about}")
        return 0
    runs = failures = 0
    for target in targets:
        if reason := usable(target):
            print(f"{target.name:<24} left out: {reason}", flush=True)
            continue
        runs += 1
        try:
            failures += not clean(target, args)
        except Exception:  # the other targets still run after any error
            print(f"{target.name:<24} BROKEN\n{traceback.format_exc()}", flush=True)
            failures += 1
    if not runs:
        print("nothing was fuzzed: all targets are left out, for the reasons above", file=sys.stderr)
    return 1 if failures or not runs else 0


def clean(target: Target, args: argparse.Namespace) -> bool:
    """Fuzzes a target, prints the outcome, and keeps a finding. Returns True if there is none."""
    build, folder = args.results / "build", args.results / target.name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    if not target.corpus.is_dir():
        write_seeds(target, corpus)
    run = engine.fuzz(target, args.seconds, build, [corpus, target.corpus], seed=args.seed, nice=args.nice)
    print(run, flush=True)
    if run.artifact is not None:
        path = folder / f"found-{hashlib.sha256(run.artifact).hexdigest()[:12]}"
        path.write_bytes(run.artifact)
        print(f"{path}\n{run.text}", flush=True)
    if args.renew:
        print(f"{target.name:<24} {renew(target, build, [corpus])} files in the corpus", flush=True)
    return run.artifact is None


if __name__ == "__main__":
    sys.exit(main())
