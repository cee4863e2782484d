"""Secrets that a dataclass holds are not in its text, which ends in logs and tracebacks."""

from __future__ import annotations

import ast

import pytest

from ina.base import paths

pytestmark = pytest.mark.fast
NAMES = ("token", "access", "secret", "job_token")
TEXTS = ("str", "bytes")


def secrets(tree: ast.Module) -> list[tuple[str, int, ast.expr | None]]:
    """Returns (class and field, line, default) for each field of a dataclass that is a text and called like a secret."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            continue
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id in NAMES:
                kind = ast.unparse(each.annotation).removeprefix("Annotated[").partition(",")[0]
                if kind in TEXTS:
                    found.append((f"{node.name}.{each.target.id}", each.lineno, each.value))
    return found


def is_hidden(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Call) and any(each.arg == "repr" and ast.unparse(each.value) == "False"
                                                 for each in default.keywords)


def test_secrets_are_not_in_the_text_of_what_holds_them():
    found = [(path, *each) for path in sorted((paths.root() / "ina").rglob("*.py"))
             for each in secrets(ast.parse(path.read_text()))]
    assert "Agreement.token" in [name for _, name, _, _ in found]
    assert [f"{path}:{line}: {name}: field(repr=False)" for path, name, line, default in found if not is_hidden(default)] == []
