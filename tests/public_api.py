"""The public modules as text: signatures for tests/house/public_api.txt, a reference for docs/reference/api.md.

`python tests/public_api.py` writes both.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT, PAGE = ROOT / "tests/house/public_api.txt", ROOT / "docs/reference/api.md"
MODULES = ("ina.p4", "ina.topology", "ina.virtual", "ina.experiment", "ina.backend", "ina.backend.hooks",
           "ina.backend.optimizers", "ina.backend.pipelining", "ina.backend.ready", "ina.moe", "ina.codecs", "ina.protocol")
COMPILED = {"native"}  # methods that lead to the compiled part
PASSED_ON = {"P4Info"}  # users get them and give them back; their members are private
PLAIN = (int, float, str, bool, bytes, tuple, type(None))
HEAD = """\
# The Python interface

All that is public: each module, what it has, signatures, and what may be raised. Everything else in the package is private and
changes without notice. `import ina` is enough: `ina.p4.compile` imports `ina.p4` when it is first used. This page is written from
the docstrings by `python tests/public_api.py`; a test compares them.
"""


def public() -> Iterator[tuple[str, str, object]]:
    """(module, name, object) of all that is public, submodules left out."""
    for module_name in MODULES:
        module = import_module(module_name)
        for name in module.__all__:
            if not isinstance(thing := getattr(module, name), ModuleType):
                yield module_name, name, thing


def annotation(value: object) -> str:
    """An annotation as the source has it; without the modules of its names where it is an object, as they vary."""
    return value if isinstance(value, str) else re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(value))


def signature(thing: object) -> str:
    """A callable's parameters and result, without `self` and private parameters; a default that is no plain value is `...`."""
    parts, star = [], False
    full = inspect.signature(thing)
    for name, parameter in full.parameters.items():
        if name.startswith("_") or name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        text = str(parameter).partition(":")[0].partition("=")[0].strip()
        if parameter.annotation is not parameter.empty:
            text += f": {annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}" if isinstance(parameter.default, PLAIN) else " = ..."
        parts.append(text)
    result = "" if full.return_annotation in (full.empty, None, "None") else f" -> {annotation(full.return_annotation)}"
    return f"({', '.join(parts)}){result}"


def members(cls: type) -> Iterator[tuple[str, object]]:
    """(name, function, property or annotation) of a class's public members, its fields left out."""
    if cls.__name__ in PASSED_ON or issubclass(cls, Exception):
        return
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("ina."):
            continue
        own = {**({} if fields else base.__dict__.get("__annotations__", {})), **base.__dict__}
        for name, value in own.items():
            if name.startswith("_") or name in seen | fields | COMPILED or type(value).__name__ == "member_descriptor":
                continue
            seen.add(name)
            if isinstance(value, cached_property):
                value = property(value.func)
            if not callable(value) and not isinstance(value, (property, classmethod, staticmethod)):
                value = base.__annotations__.get(name, type(value).__name__)
            yield name, value


def declaration(name: str, thing: object) -> str:
    if not isinstance(thing, type):
        return f"{name}{signature(thing)}"
    if issubclass(thing, Exception):
        return f"{name}({', '.join(base.__name__ for base in thing.__bases__)})"
    abstract = inspect.isabstract(thing) or thing.__init__ is object.__init__ or getattr(thing, "_is_protocol", False)
    if name in PASSED_ON or abstract:
        return f"class {name}"
    return f"{name}{signature(thing).partition(' -> ')[0]}"


def member(name: str, value: object) -> str:
    if isinstance(value, property):
        result = annotation(inspect.signature(value.fget).return_annotation)
        return f".{name}: {result}"
    return f".{name}: {value}" if isinstance(value, str) else f".{name}{signature(getattr(value, '__func__', value))}"


def snapshot() -> str:
    """Each public name and member with its signature, in a line of its own."""
    lines, before = [], ""
    for module, name, thing in public():
        if module != before:
            lines += ["", module]
        before = module
        lines.append(f"    {declaration(name, thing)}")
        if isinstance(thing, type):
            lines += [f"        {member(key, value)}" for key, value in members(thing)]
    return "\n".join(lines).lstrip("\n") + "\n"


def text_of(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def page() -> str:
    """The reference: a part for each module, in it each name with its signature and docstring."""
    lines, before = [HEAD], ""
    for module, name, thing in public():
        if module != before:
            lines += [f"## {module}\n", text_of(import_module(module)), ""]
        before = module
        lines += [f"### {name}\n", "```python", declaration(name, thing), "```\n", text_of(thing), ""]
        if isinstance(thing, type):
            for key, value in members(thing):
                about = "" if isinstance(value, str) else text_of(value)
                body = about.replace("\n", "\n  ").replace("\n  \n", "\n\n")
                lines.append(f"- `{member(key, value)}`" + (f"  \n  {body}" if about else ""))
            lines.append("")
    return "\n".join(lines).rstrip("\n").replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
    PAGE.write_text(page())
