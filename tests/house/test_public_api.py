"""The public interface: names and signatures stay as public_api.txt has them; all is documented, and names nothing private."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
import typing
from importlib import import_module

import pytest
from capabilities import need
from folders import files
from public_api import MODULES, PAGE, PASSED_ON, ROOT, SNAPSHOT, members, page, public, snapshot
from test_docs import blocks

import ina

need("torch")

AGAIN = "after a change that is meant run: python tests/public_api.py"
PUBLIC = [thing for _, _, thing in public()]


@pytest.mark.fast
def test_names_and_signatures_are_those_that_users_rely_on():
    assert snapshot() == SNAPSHOT.read_text(), AGAIN


@pytest.mark.fast
def test_the_reference_is_what_the_docstrings_say():
    assert page() == PAGE.read_text(), AGAIN


@pytest.mark.fast
def test_all_that_is_public_has_a_docstring():
    missing = [module for module in MODULES if not import_module(module).__doc__]
    for module, name, thing in public():
        own = vars(thing)["__doc__"] if isinstance(thing, type) else thing.__doc__
        if not own or own.startswith(f"{name}("):  # the latter is what a dataclass writes itself
            missing.append(f"{module}.{name}")
        if isinstance(thing, type):
            missing += [f"{module}.{name}.{key}" for key, value in members(thing)
                        if not isinstance(value, str) and not value.__doc__]
    assert missing == []


def classes(annotation: object) -> set[type]:
    """The classes in an annotation, as deep as it goes."""
    if isinstance(annotation, typing.TypeVar):
        return classes(annotation.__bound__)
    if isinstance(annotation, list):  # a callable's parameters
        return set().union(*map(classes, annotation))
    own = {annotation} if isinstance(annotation, type) and not typing.get_args(annotation) else set()
    return own.union(*map(classes, typing.get_args(annotation)))


def mentioned(thing: object) -> set[type]:
    """The classes that a signature or a field names; those of private fields are the module's own business."""
    import torch
    import torch.distributed as dist

    from ina.backend import Options

    if not getattr(thing, "__module__", None):  # a constructor of object's
        return set()
    hints = typing.get_type_hints(thing, localns={"torch": torch, "dist": dist, "Options": Options})
    return set().union(*(classes(hint) for name, hint in hints.items() if not name.startswith("_")))


@pytest.mark.fast
def test_nothing_public_names_a_private_type():
    private = []
    for module, name, thing in public():
        subjects = [(name, thing)]
        if isinstance(thing, type):
            made = [] if dataclasses.is_dataclass(thing) or name in PASSED_ON else [(name, thing.__init__)]
            own = [(f"{name}.{key}", value) for key, value in members(thing) if not isinstance(value, str)]
            subjects = [] if issubclass(thing, Exception) or name in PASSED_ON else [*subjects, *made, *own]
        for subject, value in subjects:
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            private += [f"{module}.{subject}: {cls.__module__}.{cls.__qualname__}" for cls in mentioned(function)
                        if cls.__module__.startswith("ina.") and cls not in PUBLIC]
    assert private == []


def private_uses(text: str) -> list[str]:
    """Imports and attributes of ina in a program that are not public."""
    tree, wrong = ast.parse(text), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wrong += [alias.name for alias in node.names if alias.name.startswith("ina.") and alias.name not in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ina":
            names = ina.__all__ if node.module == "ina" else import_module(node.module).__all__ if node.module in MODULES else ()
            wrong += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in names]
        elif isinstance(node, ast.Attribute) and (text := ast.unparse(node)).startswith("ina."):
            module, _, name = text.rpartition(".")
            known = ina.__all__ if module == "ina" else import_module(module).__all__ if module in MODULES else [name]
            wrong += [text] * (name not in known)
    return wrong


@pytest.mark.fast
def test_examples_and_readme_use_public_names_only():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files(ROOT / "examples", "**/*.py")}
    texts |= {f"README.md, block {i}": block for i, block in enumerate(blocks("python")) if block.startswith(("import", "from"))}
    assert {place: wrong for place, text in texts.items() if (wrong := private_uses(text))} == {}


@pytest.mark.fast
@pytest.mark.parametrize("text", [
    "import ina.worlds.virtual", "from ina import lab", "from ina.p4 import embedded", "ina.p4.runtime.Switch",
    "import ina\nina.backend.COUNTERS",
])
def test_private_names_would_be_found(text):
    assert private_uses(text)


@pytest.mark.build
@pytest.mark.parametrize("module", ["ina", "ina.p4", "ina.topology", "ina.backend"])
def test_importing_is_cheap(module):
    """Neither numpy nor the compiled part nor torch comes with a name."""
    code = f"import sys, {module}; print({{'numpy', 'torch', 'ina._native', 'networkx', 'rich'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.fast
def test_a_name_that_is_not_there_is_an_attribute_error():
    for module in (ina, ina.p4, ina.backend):
        with pytest.raises(AttributeError, match=r"^module 'ina[.\w]*' has no attribute 'nmae'$"):
            module.nmae  # noqa: B018
        assert set(module.__all__) <= set(dir(module))
