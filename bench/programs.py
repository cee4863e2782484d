"""Public collections of P4 programs through the compiler: programs accepted and refused, with reasons.

    python bench/programs.py FOLDER [--table FILE.md] [--list] [COLLECTION ...]

FOLDER has git clones of the collections that bench/programs.toml pins, each named after its repository (`p4-guide`, or
`jafingerhut+p4-guide`; bare ones suffice). The files are read from the pinned commit, whose tree must have the pinned hash, so
the work tree does not matter. A program is a file that instantiates `main`; it is checked, lowered and written as C, and P4Info
and a reference interpreter are made of it. No network is used.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.frontend import load
from ina.p4.compiler.generate import generate
from ina.p4.compiler.p4info import files as p4info_files
from ina.p4.compiler.reference.interpreter import Interpreter

PINS = Path(__file__).with_name("programs.toml")
MAIN = re.compile(r"\)\s*main\s*;")
TEXTS = (".p4", ".p4i", ".h", ".inc", ".p4inc", ".p4l", ".stf")
SECONDS = 300  # for one program
ACCEPTED, FAIR, WRONG = "accepted", "refused fairly", "refused wrongly"


@dataclass(frozen=True)
class Collection:
    """A pinned repository. `include`: folders of the repository that its programs are compiled with; `define`: macros. `files`
    and `only`: patterns of the paths that are read, and of those of programs."""

    name: str
    url: str
    commit: str
    tree: str
    include: list[str] = field(default_factory=list)
    define: dict[str, str] = field(default_factory=dict)
    files: str = ""
    only: str = ""


@dataclass(frozen=True)
class Verdict:
    program: str
    outcome: str
    reason: str
    seconds: float


def git(repository: Path, *args: str, stdin: bytes | None = None) -> bytes:
    """Runs git. Raises ValueError with its message."""
    done = subprocess.run(["git", "--git-dir", repository, *args], input=stdin, capture_output=True)
    if done.returncode:
        raise ValueError(f"{repository}: git {args[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def clone_of(folder: Path, collection: Collection) -> Path | None:
    """Returns the git directory of a collection's copy; None: there is no copy."""
    owner, name = collection.url.rstrip("/").split("/")[-2:]
    for place in (folder / name, folder / f"{owner}+{name}", folder / f"{name}.git"):
        for git_dir in (place / ".git", place / "repo" / ".git", place / "repo", place):
            if (git_dir / "HEAD").exists():
                return git_dir
    return None


def extract(repository: Path, collection: Collection, into: Path) -> None:
    """Writes the collection's texts at the pinned commit. Raises ValueError for another tree."""
    tree = git(repository, "rev-parse", f"{collection.commit}^{{tree}}").decode().strip()
    if tree != collection.tree:
        raise ValueError(f"{collection.name}: commit {collection.commit} has the tree {tree}, expected {collection.tree}")
    files: list[tuple[str, str, str]] = []
    for line in git(repository, "ls-tree", "-r", "-z", collection.commit).decode().split("\0"):
        meta, _, name = line.partition("\t")
        if name.endswith(TEXTS) and re.search(collection.files, name):
            mode, _, blob = meta.split()
            files.append((name, mode, blob))
    output = git(repository, "cat-file", "--batch", stdin="".join(f"{blob}\n" for *_, blob in files).encode())
    at = 0
    for name, mode, blob in files:
        end = output.index(b"\n", at)
        identifier, kind, size = output[at:end].decode().split()
        if (identifier, kind) != (blob, "blob"):
            raise ValueError(f"{collection.name}: {name}: the copy in {repository} is not whole")
        content, at = output[end + 1 : end + 1 + int(size)], end + 2 + int(size)
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == "120000":
            path.symlink_to(content.decode())
        else:
            path.write_bytes(content)


def programs(folder: Path, collection: Collection) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.p4")):
        name = str(path.relative_to(folder))
        if path.is_file() and re.search(collection.only, name) and MAIN.search(path.read_text(errors="replace")):
            yield path


class TookTooLong(BaseException):
    """A BaseException, as the compiler turns an Exception into an error of its own."""


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TookTooLong


def judge(path: Path, root: Path, collection: Collection, fair: list[dict[str, str]]) -> Verdict:
    """Compiles one program; returns whether it was accepted or refused, and why."""
    started = time.monotonic()
    outcome, reason = ACCEPTED, ""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        checked = load(path, defines=collection.define, include_dirs=[root / d for d in collection.include])
        info = generate(checked)[1]
        p4info_files.binary(info)
        Interpreter(checked)
    except CompileError as error:
        place = f"{Path(error.span.file).name}:{error.span.line}: " if error.span.line else ""
        outcome, reason = WRONG, place + error.message
    except TookTooLong:
        outcome, reason = WRONG, f"takes more than {SECONDS} s"
    except Exception as error:
        outcome, reason = WRONG, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    name = str(path.relative_to(root))
    if outcome == WRONG:
        for rule in fair:
            lacks = "lacks" not in rule or not re.search(rule["lacks"], path.read_text(errors="replace"))
            if lacks and re.search(rule["message"], reason) and re.search(rule.get("program", ""), f"{collection.name}/{name}"):
                outcome, reason = FAIR, f"{rule['why']} ({reason})"
                break
    return Verdict(name, outcome, reason, time.monotonic() - started)


def table(results: dict[str, list[Verdict]], pins: dict[str, Collection], fair: list[dict[str, str]]) -> str:
    """Returns the results in Markdown."""
    lines = ["| collection | commit | programs | accepted | refused fairly | refused wrongly |", "|---|---|---|---|---|---|"]
    for name, verdicts in results.items():
        count = Counter(v.outcome for v in verdicts)
        numbers = [len(verdicts), count[ACCEPTED], count[FAIR], count[WRONG]]
        lines.append(f"| [{name}]({pins[name].url}) | `{pins[name].commit[:12]}` | " + " | ".join(map(str, numbers)) + " |")
    everything = [v for verdicts in results.values() for v in verdicts]
    lines += ["", "Refused fairly:", "", "| programs | why | by whom else |", "|---|---|---|"]
    whys = Counter(v.reason.split(" (")[0] for v in everything if v.outcome == FAIR)
    others = {rule["why"].split(" (")[0]: rule.get("by", "") for rule in fair}
    lines += [f"| {n} | {why} | {others[why]} |" for why, n in whys.most_common()]
    wrong = [(name, v) for name, verdicts in results.items() for v in verdicts if v.outcome == WRONG]
    if wrong:
        lines += ["", "Refused wrongly:", "", "| program | message |", "|---|---|"]
        lines += [f"| {name}: `{v.program}` | {v.reason.replace('|', chr(92) + '|')} |" for name, v in wrong]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the clones are")
    parser.add_argument("collections", nargs="*", help="names of the collections (default: all that are there)")
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="write the table there")
    parser.add_argument("--list", action="store_true", help="print every program with its verdict")
    args = parser.parse_args(argv)
    content: dict[str, Any] = tomllib.loads(PINS.read_text(encoding="utf-8"))
    pins = {name: Collection(name, **d) for name, d in content["collection"].items()}
    unknown = sorted(set(args.collections) - set(pins))
    if unknown:
        parser.error(f"no collection {', '.join(unknown)}; there are: {', '.join(pins)}")
    results: dict[str, list[Verdict]] = {}
    for name in args.collections or pins:
        repository = clone_of(args.folder, pins[name])
        if repository is None:
            print(f"{name}: no clone of {pins[name].url} in {args.folder}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            extract(repository, pins[name], root)
            results[name] = []
            for path in programs(root, pins[name]):
                verdict = judge(path, root, pins[name], content["fair"])
                results[name].append(verdict)
                if args.list or verdict.outcome == WRONG:
                    print(f"{name}: {verdict.program}: {verdict.outcome}: {verdict.reason} [{verdict.seconds:.1f} s]", flush=True)
    text = table(results, pins, content["fair"])
    print(text)
    if args.table:
        args.table.write_text(text, encoding="utf-8")
    return int(any(v.outcome == WRONG for verdicts in results.values() for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
