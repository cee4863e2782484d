"""Words of docs/reference/glossary.md: docstrings begin with a noun or a verb, names are none of those that it replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import files

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST = set("What Of Whether Whose Who Which How Where When Why".split())
VAGUE = set("said told wishes obey culprit happening happenings".split())


def names(tree: ast.Module) -> set[str]:
    """Variables, parameters, functions and classes that a module defines."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return defined | stored | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text.splitlines()[0]


@pytest.mark.parametrize("folder", ["ina", "topologies", "host", "bench", "examples", "tests"])
def test_docstrings_begin_with_a_noun_or_a_verb_and_names_are_nouns(folder):
    wrong = []
    for path in files(ROOT / folder, "**/*.py"):
        tree, where = ast.parse(path.read_text()), path.relative_to(ROOT)
        wrong += [f"{where}:{line}: {text}" for line, text in docstrings(tree) if re.match(r"\w*", text)[0] in FIRST]
        wrong += [f"{where}: {name}" for name in sorted(names(tree) & VAGUE)]
    assert wrong == []


def test_the_glossary_says_what_is_checked_here():
    glossary = (ROOT / "docs/reference/glossary.md").read_text()
    assert all(f'"{word} ..."' in glossary for word in FIRST)
    assert all(word.removesuffix("s") in glossary for word in VAGUE)
