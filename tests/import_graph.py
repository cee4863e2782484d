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
SETTINGS = {ROOT / name for name in (
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg",
    "setup.py", "pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py", "tests/folders.py")}
PLUGINS = {ROOT / f"tests/{name}.py" for name in ("capabilities", "crashes", "machine_lock", "marks", "second_look", "tiers")}
WHATEVER = SETTINGS | PLUGINS  # each test needs these
HOUSE = ROOT / "tests/house"  # tests of the whole checkout: whatever changed
FINDERS = ROOT / "tests", ROOT / "bench", ROOT / "ina/lab"  # patterns elsewhere are for what users have, and for packing
PROGRAMS = "p4", "tests", "examples", "ina/p4/compiler/p4include"  # folders with P4


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
        if "iter_modules" in path.read_text():  # of packages that it names
            packages = [package.parent for package in edges[path] if package.name == "__init__.py"]
            edges.add_edges_from((path, module) for folder in packages for module in folder.glob("*.py"))
    return edges


def changed(since: str) -> tuple[set[Path], set[Path]]:
    """Files of git's that differ from a commit, and files that git does not know.

    Raises ValueError with git's words where it knows no such commit.
    """
    known = _git("diff", "--name-only", "--no-renames", "-z", since, "--")
    return known, _git("ls-files", "-z", "--others", "--exclude-standard")


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
            lines.append(f"--since: every test runs, since any may need {_names(self.decisive)}")
        if self.ignored:
            lines.append(f"--since: git does not know {_names(self.ignored)}, and no test finds it: ignored")
        return lines


def _names(paths: list[Path]) -> str:
    names = ", ".join(str(path.relative_to(ROOT)) for path in paths[:3])
    return names + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def reached(paths: Iterable[Path], new: Iterable[Path] = ()) -> Reach:
    """Test files that a change of ``paths`` may reach: they are among them, import one, or name, find by a pattern, or stand
    above a file of data; and those of the whole checkout.

    All test files, where a file changed of which nobody knows who needs it, or that all need: a build file, or settings. A file
    of ``new``, which git does not know, counts only where a test imports, names or finds it by a pattern.
    """
    edges, new = graph(), set(new)
    tests = {path for path in edges if path.name.startswith("test_")}
    house = {test for test in tests if test.is_relative_to(HOUSE)}
    needs = {test: {test, *networkx.descendants(edges, test)} for test in tests}
    texts = {path: path.read_text() for path in edges if path != ROOT / "tests/import_graph.py"}  # its words are examples
    reach = Reach(set(), [], [])
    for path in sorted({*paths, *new}):
        if path.suffix == ".py" and path in edges:
            direct = {path}
        elif path.suffix in WHOLE and (path not in new or any(path.is_relative_to(folder) for folder in COMPILED)):
            direct = {NATIVE, *_naming(path, texts)}
        else:
            direct = _naming(path, texts)
            if path.suffix and (path not in new or _in_a_pattern(path)):
                direct |= {source for source, text in texts.items() if f"*{path.suffix}" in text and _finds(source)}
        hits = {test for test in tests if needs[test] & direct}
        if path not in WHATEVER and (hits or path.name.startswith("test_") and path.suffix == ".py" and path not in new):
            reach.tests.update(hits, house)  # nobody needs a test file that is gone
        elif path in new and not _in_a_pattern(path):
            reach.ignored.append(path)
        else:
            reach.decisive.append(path)
    if reach.decisive:
        reach.tests.update(tests)
    return reach


def _naming(path: Path, texts: dict[Path, str]) -> set[Path]:
    """Sources that name a file, or stand above it."""
    names, words = {path.name}, set()
    if path.suffix == ".p4":  # programs are found by their names
        names = _programs(path.name)
        words = {name.removesuffix(".p4") for name in names.difference(*_included().values())}
    elif path.suffix == ".py" and not path.exists():  # a module
        words = {path.parent.name if path.stem == "__init__" else path.stem}
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b") if words else re.compile("(?!)")
    return {source for source, text in texts.items()
            if any(name in text for name in names) or word.search(text) or _beside(path, source)}


def _finds(source: Path) -> bool:
    return any(source.is_relative_to(folder) for folder in FINDERS)


def _programs(name: str) -> set[str]:
    """Names of the P4 files that include one of this name, themselves or by others, and this."""
    names, before = {name}, 0
    while before < len(names):
        before = len(names)
        names |= {program for program, included in _included().items() if included & names}
    return names


@functools.cache
def _included() -> dict[str, set[str]]:
    """Names of the files that P4 files include, by their names."""
    names: dict[str, set[str]] = {}
    for path in (path for folder in PROGRAMS for path in (ROOT / folder).rglob("*.p4")):
        targets = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(errors="replace"), re.MULTILINE)
        names.setdefault(path.name, set()).update(target.rpartition("/")[2] for target in targets)
    return names


def _in_a_pattern(path: Path) -> bool:
    """True for a new file that a test could find without its name: one of pytest's own, or of a kind that its folder has already
    (experiments/*.toml)."""
    if path.parent == ROOT:
        return path in SETTINGS
    return path.name == "conftest.py" or any(known.parent == path.parent and known.suffix == path.suffix for known in _known())


@functools.cache
def _known() -> set[Path]:
    return _git("ls-files", "-z")


def _beside(path: Path, source: Path) -> bool:
    """True for data below the folder of a test."""
    return path.is_relative_to(ROOT / "tests") and source.parent != ROOT / "tests" and path.is_relative_to(source.parent)
