"""The import graph of the checkout: which modules of ina a file needs, and which test files a change may reach."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import networkx
from folders import FOLDERS, files

ROOT = Path(__file__).resolve().parent.parent
DOORS = {"ina._native": "ina.base.native"}  # the only module that may import this one
SOURCES = files(ROOT / "ina", "**/*.py")
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
NATIVE = ROOT / "ina/base/native.py"  # whoever imports it needs the C
WHOLE = ".c", ".h"  # compiled into one extension


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


def changed(since: str) -> set[Path]:
    """Files that differ from a commit, files that git does not know included.

    Raises ValueError with git's words where it knows no such commit.
    """
    paths: set[Path] = set()
    for command in (["diff", "--name-only", "-z", since, "--"], ["ls-files", "-z", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        paths |= {ROOT / name for name in done.stdout.split("\0") if name}
    return paths


def reached(paths: Iterable[Path]) -> set[Path]:
    """Test files that a change of ``paths`` may reach: they are among them, import one, or stand beside or name a file of data.

    All test files, where a file changed that is neither Python, nor C, nor named by any test: a build file, or settings.
    """
    edges = graph()
    tests = {path for path in edges if path.name.startswith("test_")}
    needs = {test: {test, *networkx.descendants(edges, test)} for test in tests}
    texts = {path: path.read_text() for path in edges}
    chosen: set[Path] = set()
    for path in paths:
        if path.suffix == ".py" and path in edges:
            direct = {path}
        elif path.suffix in WHOLE:
            direct = {NATIVE}
        else:
            direct = {source for source, text in texts.items() if path.name in text or _beside(path, source)}
            if path.suffix == ".p4":  # programs are found by their names
                direct |= {source for source, text in texts.items() if re.search(rf"\b{re.escape(path.stem)}\b", text)}
        hits = {test for test in tests if needs[test] & direct}
        if not hits:
            return tests
        chosen |= hits
    return chosen


def _beside(path: Path, source: Path) -> bool:
    """True for data below the folder of a test."""
    return path.is_relative_to(ROOT / "tests") and source.parent != ROOT / "tests" and path.is_relative_to(source.parent)
