"""The protocols' tables, found by the protocol's name: ``ina/aggregation/entries/<name>.py`` makes one JobProgram, ``PROGRAM``.

For a user's own protocol (ina/aggregation/protocols.py) the file lies beside its program.
"""

from __future__ import annotations

import functools
import traceback
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from ina.aggregation import protocols
from ina.aggregation.entries.base import ANNOTATION, BITMAP, Child, Identity, JobProgram, Parent, Place, Sizes, statement
from ina.aggregation.entries.published import PROGRAM as PUBLISHED
from ina.p4.runtime.p4info import P4Info

__all__ = ["ANNOTATION", "BITMAP", "PUBLISHED", "Child", "Identity", "JobProgram", "Parent", "Place", "Sizes", "program_named",
           "programs", "recognise"]  # fmt: skip


def program_named(name: str) -> JobProgram:
    """Returns a protocol's JobProgram. Raises ValueError: no such protocol, no controller for it, or an error in a user's own
    (file, line)."""
    protocols.named(name)
    if protocols.is_own(name):
        return _own(Path(name).resolve())
    module = f"{__name__}.{name}"
    if find_spec(module) is None:
        raise ValueError(f"there is no controller for the protocol {name!r}: no file ina/aggregation/entries/{name}.py")
    program: JobProgram = import_module(module).PROGRAM
    return program


@functools.cache
def _own(path: Path) -> JobProgram:
    spec = spec_from_file_location(f"ina_protocol_{path.stem}", path.with_suffix(".py"))
    assert spec is not None and spec.loader is not None  # never None for a name that ends in .py
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == spec.origin]
        line = error.lineno if isinstance(error, SyntaxError) else places[-1] if places else 1
        raise ValueError(f"{spec.origin}:{line}: {type(error).__name__}: {error}") from error
    program = getattr(module, "PROGRAM", None)
    if not isinstance(program, JobProgram):
        raise ValueError(f"{spec.origin}: no PROGRAM, a JobProgram with the entries of a job (docs/guide/new-protocol.md)")
    program.name = str(path)  # a path, by which every process finds it
    return program


def programs() -> list[JobProgram]:
    """Returns the JobPrograms of all protocols that the controller can set up."""
    return [program_named(name) for name in protocols.names() if find_spec(f"{__name__}.{name}")]


def recognise(p4info: P4Info, path: Path | None = None) -> tuple[JobProgram, Sizes] | None:
    """Returns the JobProgram and sizes of a switch's program: a user's own by its ``path``, others by the protocol that they
    state; None: no known protocol's. Raises ValueError: its annotation is none."""
    if path is not None and protocols.is_own(str(path)):
        program = program_named(str(path))
        sizes = program.sizes(p4info)
        return (program, sizes) if sizes else None
    stated = statement(p4info)
    if stated and stated[0] in protocols.names():
        return program_named(stated[0]), stated[1]
    sizes = PUBLISHED.sizes(p4info)
    return (PUBLISHED, sizes) if sizes else None
