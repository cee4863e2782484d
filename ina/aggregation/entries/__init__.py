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
from ina.aggregation.entries import fields
from ina.aggregation.entries.alone import PROGRAM as ALONE
from ina.aggregation.entries.base import (
    ANNOTATION,
    BITMAP,
    Child,
    Identity,
    JobProgram,
    Parent,
    Place,
    Sizes,
    entries_of,
    lane_of,
    statement,
)
from ina.aggregation.entries.published import PROGRAM as PUBLISHED
from ina.base.settings import nearest
from ina.p4.runtime.p4info import P4Info

__all__ = ["ALONE", "ANNOTATION", "BITMAP", "PUBLISHED", "Child", "Identity", "JobProgram", "Parent", "Place", "Sizes",
           "entries_of", "lane_of", "pool_of", "program_named", "programs", "recognise"]


UNSTATED = 512  # slots of a program that does not state how many it has: those of ours by default


def program_named(name: str) -> JobProgram:
    """Returns a protocol's JobProgram. Raises ValueError: no such protocol, no controller for it, or an error in a user's own
    (file, line)."""
    protocols.named(name)
    if protocols.is_own(name):
        return _own(protocols.own_path(name))
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
    _check_names(spec.origin, program)
    if wrong := fields.problem(program):
        raise ValueError(f"{spec.origin}: PROGRAM.{wrong}")
    program.name = str(path)  # a path, by which every process finds it
    return program


def _check_names(file: str | None, program: JobProgram) -> None:
    """Raises ValueError: a user's JobProgram has an attribute that no JobProgram has, or lacks a necessary one."""
    needed = [name for name in (*dir(JobProgram), *JobProgram.__annotations__) if not name.startswith("_")]
    own = [each for each in type(program).__mro__ if not each.__module__.startswith("ina.")]
    inherited = {name for each in type(program).__mro__ if each not in own for name in vars(each)}
    for name in (name for each in own for name in vars(each)):
        if name not in inherited and name not in needed and not name.startswith("_"):
            raise ValueError(f"{file}: PROGRAM has {name!r}, which no JobProgram has{nearest(name, needed)}; names of your own "
                             "begin with _")
    if missing := [name for name in needed if not hasattr(program, name)]:
        raise ValueError(f"{file}: PROGRAM has no {', '.join(missing)}, which every JobProgram has (docs/guide/new-protocol.md)")


def programs() -> list[JobProgram]:
    """Returns the JobPrograms of all protocols that the controller can set up."""
    return [program_named(name) for name in protocols.names() if find_spec(f"{__name__}.{name}")]


def recognise(p4info: P4Info, path: Path | None = None) -> tuple[JobProgram, Sizes] | None:
    """Returns the JobProgram and sizes of a switch's program: a user's own by its ``path``, others by the protocol that they
    state; None: no known protocol's. Raises ValueError: its annotation is none, or states more slots than its registers have."""
    stated = statement(p4info)
    if path is not None and protocols.is_own(str(path)):
        program = program_named(str(path))
    else:
        program = program_named(stated[0]) if stated and stated[0] in protocols.names() else PUBLISHED
    sizes = program.sizes(p4info)
    if sizes is None:
        return None
    program.check_slots(p4info, sizes.slots)
    return program.limited(p4info), sizes


def pool_of(program: JobProgram, p4info: P4Info, pool: int | None = None) -> int:
    """Returns the slots that a controller may give to jobs at a switch with the program of ``p4info``: ``pool``, by default all
    that the program states. Raises ValueError: it has fewer, so packets of the others would never be answered."""
    sizes = program.sizes(p4info)
    if sizes is None:
        return UNSTATED if pool is None else pool
    program.check_slots(p4info, sizes.slots)
    if pool is None:
        return sizes.slots
    if program.reserves and pool > sizes.slots:
        raise ValueError(f"a pool of {pool} slots, but the program {program.title} was compiled for {sizes.slots}: expected at "
                         f"most these, or the program compiled with SLOTS={pool}")
    return pool
