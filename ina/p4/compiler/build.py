"""Compiles a P4 file to a shared object.

The object is cached under a key of everything that it depends on: the preprocessed source, the compiler's own files,
the C compiler with its flags and the processor (`-march=native`). It is used only if it is unchanged (cache.py).
"""

from __future__ import annotations

import functools
import hashlib
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.base import cache, manifest, paths
from ina.base.cc import c_compiler, compile_to, preprocessed, toolchain
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.emit.emit import PRELUDE, c_file
from ina.p4.compiler.emit.names import Origins
from ina.p4.compiler.errors import CompileError, internal_errors, render
from ina.p4.compiler.externs import user
from ina.p4.compiler.front.preprocess import is_file, preprocess
from ina.p4.compiler.frontend import check, deep_recursion, parse_text
from ina.p4.compiler.lower.lower import lower
from ina.p4.compiler.optimise.optimise import optimise
from ina.p4.compiler.p4info import p4info as p4info_of

UNROLLED_LINES = 6000  # of C: beyond this, -O3 takes long and gains nothing (measured: -O1 code is as fast)


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program on disk. `p4info` is P4Info (JSON mapping), `layouts` the result of `layout.describe` for each pipeline: one,
    except for a TNA `Switch` of several. `warnings`: text about legal but doubtful constructs, such as literals that are cut."""

    so_path: Path
    c_path: Path
    p4info: dict[str, Any]
    layouts: list[dict[str, Any]]
    source_hash: str
    name: str
    warnings: str = ""

    @property
    def layout(self) -> dict[str, Any]:
        """Returns the layout of the only pipeline, or the first one."""
        return self.layouts[0]


@functools.cache
def toolchain_digest(command: tuple[str, ...]) -> str:
    """Returns a digest that identifies compiler, processor and our own code generation."""
    return hashlib.sha256((toolchain(command) + manifest.digest("compiler")).encode()).hexdigest()


def source_hash(text: str) -> str:
    """Returns the SHA-256 of preprocessed source without line markers and blank lines."""
    lines = (line.rstrip() for line in text.splitlines())
    return hashlib.sha256("\n".join(x for x in lines if x and not x.lstrip().startswith("#")).encode()).hexdigest()


def compile_program(
    path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = (),
    cflags: Sequence[str] | None = None, externs: str | Path | None = None,
) -> CompiledProgram:
    """Compiles the v1model or TNA program at `path`, or finds it in the cache.

    `externs`: a Python file with the bodies of the program's own externs (externs/user.py). `cflags` replace the optimisation
    flags (default: -O3 -march=native; -O1 for very long code). Raises CompileError (the P4 program), BuildError (no or failing C
    compiler), OSError (unreadable source, cache not writable).
    """
    command = c_compiler()
    folder = cache.folder()
    arguments = [toolchain_digest(tuple(command)), str(Path(path).absolute()), *(str(Path(d).absolute()) for d in include_dirs)]
    arguments += [f"-D{k}={v}" for k, v in sorted((defines or {}).items())]
    bodies = user.load(Path(externs)) if externs is not None else None
    quoted = [f"-iquote{bodies.folder}"] if bodies is not None else []
    own = _own_code([*command, *quoted], bodies, cflags, folder) if bodies is not None else ""
    arguments.append(own)
    arguments.append("\0".join(cflags) if cflags is not None else "default")
    record_path = folder / f"{Path(path).stem}-{key_of(arguments)}.known.json"
    if (compiled := _from_record(record_path)) is not None:
        return compiled
    lookups: dict[str, bool] = {}
    text, sources = preprocess(path, defines=defines, include_dirs=include_dirs, lookups=lookups)
    digest = source_hash(text)
    key = key_of([digest, _comments_digest(path, sources), Path(path).name, arguments[0], arguments[-1], own])
    stem = f"{Path(path).stem}-{key}"
    compiled = _from_cache(folder, stem, Path(path).name)
    if compiled is None:
        so, c = folder / f"{stem}.so", folder / f"{stem}.c"
        try:
            program = check(parse_text(text, str(path), sources))
            program.sources = sources
            c_text, p4info, layouts = generate(program, digest, bodies)
        except CompileError as error:
            error.sources.update(sources)
            raise
        warnings = render(program.warnings, sources, "warning")
        with cache.problems(folder):
            cache.write(c, c_text.encode())
            compile_c([*command, *quoted], c, so, cflags)
            record = {"p4info": p4info, "layouts": layouts, "source_hash": digest, "warnings": warnings}
            cache.write_record(folder / f"{stem}.json", record, [so, c])
        compiled = CompiledProgram(so, c, p4info, layouts, digest, Path(path).name, warnings)
    files = {str(Path(f).absolute()): cache.digest(Path(f)) for f in sources}
    with cache.problems(folder):
        known = {"stem": stem, "name": Path(path).name, "sources": files, "lookups": lookups}
        cache.write_record(record_path, known)
    return compiled


def key_of(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _own_code(command: list[str], externs: user.UserBodies, cflags: Sequence[str] | None, folder: Path) -> str:
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


def _comments_digest(path: str | Path, sources: Mapping[str, str]) -> str:
    """Returns a digest of everything that comments in the C text repeat: the files' texts and their names relative to the
    program's."""
    origins = Origins(str(path), {})
    return key_of([f"{origins.file(file)}\0{text}" for file, text in sources.items()])


def _from_cache(folder: Path, stem: str, name: str) -> CompiledProgram | None:
    """Returns the cached program, or None if a file is missing or damaged, so that it is compiled again."""
    record = cache.read_record(folder / f"{stem}.json")
    return CompiledProgram(folder / f"{stem}.so", folder / f"{stem}.c", name=name, **record) if record else None


def _from_record(path: Path) -> CompiledProgram | None:
    """Returns the program of an earlier call with the same arguments, if all files that it read are unchanged and those that it
    looked for are there or absent as they were: `__has_include` asks for some, and others would hide a file that was found."""
    record = cache.read_record(path)
    if record is None or any(cache.digest(Path(f)) != expected for f, expected in record["sources"].items()):
        return None
    if any(is_file(f) != there for f, there in record["lookups"].items()):
        return None
    return _from_cache(path.parent, record["stem"], record["name"])


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
