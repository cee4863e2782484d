"""Compiles a P4 file to a shared object.

The object is cached under a key of everything that it depends on: the preprocessed source, the compiler's own files,
the C compiler with its flags and the processor (`-march=native`). It is used only if it is unchanged (cache.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ina.base import cache, notices
from ina.base.cc import c_compiler
from ina.p4.compiler.compiled import CompiledProgram, from_cache, from_record, key_of, toolchain_digest
from ina.p4.compiler.errors import CompileError, render


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
    bodies, own = None, ""
    if externs is not None:
        from ina.p4.compiler.externs import user
        from ina.p4.compiler.generate import own_code

        bodies = user.load(Path(externs))
        command = [*command, f"-iquote{bodies.folder}"]
        own = own_code(command, bodies, cflags, folder)
    arguments.append(own)
    arguments.append("\0".join(cflags) if cflags is not None else "default")
    record_path = folder / f"{Path(path).stem}-{key_of(arguments)}.known.json"
    if (compiled := from_record(record_path)) is not None:
        return compiled

    # The compiler itself, which takes half as long to import as a switch to start, and which a program in the cache does without.
    from ina.p4.compiler.front.preprocess import preprocess
    from ina.p4.compiler.frontend import check, parse_text
    from ina.p4.compiler.generate import comments_digest, compile_c, generate

    lookups: dict[str, bool] = {}
    text, sources = preprocess(path, defines=defines, include_dirs=include_dirs, lookups=lookups)
    digest = source_hash(text)
    key = key_of([digest, comments_digest(path, sources), Path(path).name, arguments[0], arguments[-1], own])
    stem = f"{Path(path).stem}-{key}"
    compiled = from_cache(folder, stem, Path(path).name)
    if compiled is None:
        so, c = folder / f"{stem}.so", folder / f"{stem}.c"
        with notices.going_on(f"compiles {path}", f"once: it is kept in {folder}", folder / f"{stem}.lock"):
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
                compile_c(command, c, so, cflags)
                record = {"p4info": p4info, "layouts": layouts, "source_hash": digest, "warnings": warnings}
                cache.write_record(folder / f"{stem}.json", record, [so, c])
        compiled = CompiledProgram(so, c, p4info, layouts, digest, Path(path).name, warnings)
    files = {str(Path(f).absolute()): cache.digest(Path(f)) for f in sources}
    with cache.problems(folder):
        known = {"stem": stem, "name": Path(path).name, "sources": files, "lookups": lookups}
        cache.write_record(record_path, known)
    return compiled
