"""The import graph of the checkout: which modules of ina a file needs, and which test files a change may reach."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import networkx
from folders import FOLDERS, files

ROOT = Path(__file__).resolve().parent.parent
DOORS = {"ina._native": "ina.base.native"}  # the only module that may import this one
SOURCES = files(ROOT / "ina", "**/*.py")
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
NATIVE = ROOT / "ina/base/native.py"  # whoever imports it needs the C
WHOLE = ".c", ".h"  # compiled into one extension, new ones only in these folders
COMPILED = ROOT / "host", ROOT / "ina"
PYTESTS_OWN = {
    ROOT / name for name in ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg")
}


def imported(path: Path, text: bool = True) -> set[str]:
    """Modules of ina that any part of a file needs: imports and, with `text`, names of modules in it (`-m`, importlib)."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            up = ".".join(path.relative_to(ROOT).parts[: -node.level]) if node.level else ""
            base = ".".join(filter(None, (up, node.module)))
            modules |= {full if (full := f"{base}.{alias.name}") in MODULES or full in DOORS else base for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif text and isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES:
            modules.add(node.value)
    return {name for name in modules if name.startswith("ina.")}


@functools.cache
def _helpers() -> dict[str, set[Path]]:
    """Files of tests, bench and topologies by the names that import them: from the root, and from a folder of sys.path."""
    names: dict[str, set[Path]] = {}
    for path in (*files(ROOT / "tests", "**/*.py"), *files(ROOT / "topologies", "*.py"), *files(ROOT / "bench", "*.py")):
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in (dotted, path.stem if str(path.parent) in FOLDERS else dotted):
            names.setdefault(name, set()).add(path)
    return names


def _imported_helpers(path: Path) -> set[Path]:
    """Files of tests, bench and topologies that a file imports, or whose module it names."""
    text = path.read_text()
    names = re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE) + re.findall(r"[\"']([\w.]+)[\"']", text)
    return {helper for name in set(names) for helper in _helpers().get(name, ())} - {path}


@functools.cache
def graph() -> networkx.DiGraph:
    """Edges from each Python file to those that it imports, or names in text."""
    edges = networkx.DiGraph()
    for path in {*SOURCES, *(path for paths in _helpers().values() for path in paths)}:
        edges.add_node(path)
        edges.add_edges_from((path, MODULES[name]) for name in imported(path) if name in MODULES)
        edges.add_edges_from((path, helper) for helper in _imported_helpers(path))
    return edges


def changed(since: str) -> tuple[set[Path], set[Path]]:
    """Files of git's that differ from a commit, and files that git does not know.

    Raises ValueError with git's words where it knows no such commit.
    """
    return _git("diff", "--name-only", "-z", since, "--"), _git("ls-files", "-z", "--others", "--exclude-standard")


def _git(*command: str) -> set[Path]:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return {ROOT / name for name in done.stdout.split("\0") if name}


class Reach(NamedTuple):
    """Test files that a change may reach. ``decisive``: files for which these are all test files; ``ignored``: new files that no
    test can find."""

    tests: set[Path]
    decisive: list[Path]
    ignored: list[Path]

    def notes(self) -> list[str]:
        """Lines for people about files that are not as most: one decides that everything runs, or nothing runs for it."""
        lines = []
        if self.decisive:
            lines.append(f"--since: every test runs, since no test names {_names(self.decisive)}")
        if self.ignored:
            lines.append(f"--since: git does not know {_names(self.ignored)}, and no test finds it: ignored")
        return lines


def _names(paths: list[Path]) -> str:
    names = ", ".join(str(path.relative_to(ROOT)) for path in paths[:3])
    return names + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def reached(paths: Iterable[Path], new: Iterable[Path] = ()) -> Reach:
    """Test files that a change of ``paths`` may reach: they are among them, import one, or stand beside or name a file of data.

    All test files, where a file changed that is neither Python, nor C, nor named by any test: a build file, or settings. A file
    of ``new``, which git does not know, counts only where a test imports, names or finds it by a pattern.
    """
    edges, new = graph(), set(new)
    tests = {path for path in edges if path.name.startswith("test_")}
    needs = {test: {test, *networkx.descendants(edges, test)} for test in tests}
    texts = {path: path.read_text() for path in edges}
    reach = Reach(set(), [], [])
    for path in sorted({*paths, *new}):
        if path.suffix == ".py" and path in edges:
            direct = {path}
        elif path.suffix in WHOLE and (path not in new or any(path.is_relative_to(folder) for folder in COMPILED)):
            direct = {NATIVE}
        else:
            direct = {source for source, text in texts.items() if path.name in text or _beside(path, source)}
            if path.suffix == ".p4":  # programs are found by their names
                direct |= {source for source, text in texts.items() if re.search(rf"\b{re.escape(path.stem)}\b", text)}
        hits = {test for test in tests if needs[test] & direct}
        if hits and path not in PYTESTS_OWN:
            reach.tests.update(hits)
        elif path in new and not _in_a_pattern(path):
            reach.ignored.append(path)
        else:
            reach.decisive.append(path)
    if reach.decisive:
        reach.tests.update(tests)
    return reach


def _in_a_pattern(path: Path) -> bool:
    """True for a new file that a test could find without its name: one of pytest's own, or of a kind that its folder has already
    (experiments/*.toml)."""
    if path.parent == ROOT:
        return path in PYTESTS_OWN
    return path.name == "conftest.py" or any(known.parent == path.parent and known.suffix == path.suffix for known in _known())


@functools.cache
def _known() -> set[Path]:
    return _git("ls-files", "-z")


def _beside(path: Path, source: Path) -> bool:
    """True for data below the folder of a test."""
    return path.is_relative_to(ROOT / "tests") and source.parent != ROOT / "tests" and path.is_relative_to(source.parent)
