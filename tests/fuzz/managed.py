"""Targets in Python: runs the function of each, with its exceptions checked, under atheris in a process of its own.

python -m tests.fuzz.managed TARGET FLAG ...        libFuzzer's flags and corpora, as atheris takes them
python -m tests.fuzz.managed --replay TARGET ...    only the corpora in the tree, without atheris
"""

from __future__ import annotations

import importlib
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from .registry import ROOT, TARGETS, Function, Managed

MEMORY = 4 << 30  # bytes of addresses that a target's process may have
LONGEST = 20_000  # characters of a refusal
# Messages of Python itself about wrong values. As the text of a refusal they name neither place nor expectation.
PYTHON_SAYS = re.compile(
    "|".join(
        (
            "invalid literal for int",
            "could not convert string to float",
            "not enough values to unpack",
            "too many values to unpack",
            "embedded null",
            r"'[\w-]+' codec can't (de|en)code",
            "[^:]* is not in list$",
            r"(list|tuple)\.index",
            "object of type '",
            "can only concatenate",
            r"'\w+' object ",
            r"\w+\(\) argument ",
            "unhashable type",
            r"\w+ (index out of range|indices must be)",
            "unsupported operand",
            "[^:]* must be str, not ",
            "Exceeds the limit",
        )
    )
)


class Finding(Exception):
    """A refusal whose text is not ours."""


def watched(function: Function, declared: tuple[type[Exception], ...]) -> Callable[[bytes], None]:
    """Wraps the function: only exceptions that count as findings leave it."""

    def call(data: bytes) -> None:
        try:
            function(data)
        except declared as error:
            text = str(error)
            if not text.strip() or len(text) > LONGEST or PYTHON_SAYS.match(text):
                raise Finding(
                    f"{type(error).__name__}: {text[:300]!r}: expected what was wrong, where, and what was expected"
                ) from error

    return call


def make(target: Managed) -> Callable[[bytes], None]:
    function, *declared = getattr(importlib.import_module(f".{target.module}", __package__), target.make)()
    return watched(function, tuple(declared))


def modules() -> list[str]:
    """Our modules to instrument: each takes a while."""
    paths = [path.relative_to(ROOT) for package in ("ina", "topologies") for path in (ROOT / package).rglob("*.py")]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def replay(names: list[str]) -> int:
    """Calls each target with the files of its corpus; prints inputs that are findings."""
    status = 0
    for name in names:
        target = TARGETS[name]
        assert isinstance(target, Managed)
        function = make(target)
        for path in sorted(target.corpus.iterdir()):
            try:
                function(path.read_bytes())
            except Exception:
                print(f"{name}: {path}\n{traceback.format_exc()}", flush=True)
                status = 1
    return status


def main() -> None:
    if sys.argv[1] == "--replay":
        sys.exit(replay(sys.argv[2:]))
    import atheris

    name, *flags = sys.argv[1:]
    target = TARGETS[name]
    assert isinstance(target, Managed)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    others = [module for module in modules() if not any(f"{module}.".startswith(f"{watched}.") for watched in target.watch)]
    with atheris.instrument_imports(include=["ina", "topologies"], exclude=others, enable_loader_override=False):
        function = make(target)
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again"  # libFuzzer starts itself to merge corpora, by the first of its arguments
        again.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tests.fuzz.managed {name} \"$@\"\n")
        again.chmod(0o700)
        atheris.Setup([str(again), *flags], function, enable_python_coverage=True)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
