"""Generates C from a checked program, and compiles it: what compile_program needs for a program that is not in the cache."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ina.base import cache, paths
from ina.base.cc import compile_to, preprocessed
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.compiled import key_of, toolchain_digest
from ina.p4.compiler.emit.emit import PRELUDE, c_file
from ina.p4.compiler.emit.names import Origins
from ina.p4.compiler.errors import internal_errors
from ina.p4.compiler.externs import user
from ina.p4.compiler.frontend import deep_recursion
from ina.p4.compiler.lower.lower import lower
from ina.p4.compiler.optimise.optimise import optimise
from ina.p4.compiler.p4info import p4info as p4info_of

UNROLLED_LINES = 6000  # of C: beyond this, -O3 takes long and gains nothing (measured: -O1 code is as fast)


def generate(
    program: CheckedProgram, digest: str = "", externs: str | Path | user.UserBodies | None = None
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Returns (C text, P4Info, layout of each pipeline) of a checked program. Raises CompileError for what is not supported."""
    with internal_errors(program.filename), deep_recursion():
        modules = lower(program, externs)
        for module in modules:
            optimise(module)
        info = p4info_of.build(program)
        c_text, layouts = c_file(modules, digest, info, program.sources)
    return c_text, info, layouts


def compile_c(
    command: list[str], source: Path, target: Path, cflags: Sequence[str] | None = None, headers: Sequence[Path] | None = None
) -> None:
    """Compiles C text to a shared object; `headers`: folders of the headers that it includes. Raises BuildError."""
    if cflags is None:
        with source.open("rb") as f:
            long = sum(1 for _ in f) > UNROLLED_LINES
        cflags = ["-O1" if long else "-O3", "-march=native"]
    includes = [f"-I{directory}" for directory in headers or paths.include_dirs()]
    call = [
        *command,
        "-std=gnu11",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-ffp-contract=off",  # meters: every processor rounds alike
        *cflags,
        *includes,
        str(source),
    ]
    compile_to(target, call)


def own_code(command: list[str], externs: user.UserBodies, cflags: Sequence[str] | None, folder: Path) -> str:
    """Returns a digest of all that the switch has of a user's externs, with what their C text includes. Raises CompileError for
    names that C has already. The C compiler reads them only if they, or a file that they include, are not as they were."""
    begin = "ina_own_externs_begin"
    flags = [*(["-O3", "-march=native"] if cflags is None else cflags), *(f"-I{d}" for d in paths.include_dirs())]
    record_path = folder / f"externs-{key_of([toolchain_digest(tuple(command)), *flags, externs.key()])}.json"
    record = cache.read_record(record_path)
    if record is not None and all(cache.digest(Path(f)) == expected for f, expected in record["sources"].items()):
        return str(record["digest"])
    with cache.problems(folder), tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch, "externs.c")
        source.write_text(
            f'#include "program.h"\n#include "table.h"\n{PRELUDE}\n{begin}\n{externs.c_text()}\n', "utf-8"
        )
        text = preprocessed([*command, "-std=gnu11", *flags, "-dD", "-MD", "-MF", str(Path(scratch, "read"))], source)
        read = shlex.split(Path(scratch, "read").read_text().replace("\\\n", " "))[2:]
        externs.check_names(text.partition(begin)[0])
        digest = key_of([externs.key(), text])
        texts = [externs.c_text(), *(Path(f).read_text("utf-8", "replace") for f in read)]
        if not any("__has_include" in text for text in texts):  # the C compiler does not say which files are absent
            cache.write_record(record_path, {"digest": digest, "sources": {f: cache.digest(Path(f)) for f in read}})
    return digest


def comments_digest(path: str | Path, sources: Mapping[str, str]) -> str:
    """Returns a digest of everything that comments in the C text repeat: the files' texts and their names relative to the
    program's."""
    origins = Origins(str(path), {})
    return key_of([f"{origins.file(file)}\0{text}" for file, text in sources.items()])
