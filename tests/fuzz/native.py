"""Targets in C: built with clang for libFuzzer, or with any compiler to replay files; always with the sanitizers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ina.base import manifest

from .registry import ROOT, Native

HARNESSES = Path("tests/fuzz/c")
INCLUDES = (*manifest.FOLDERS, "ina/p4/compiler/emit", "tests/fuzz/c")
# Shifts in the generated code and accesses to packed headers are defined on this machine only, not by the standard.
FLAGS = (
    "-g1",
    "-std=gnu11",
    "-march=native",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-ffp-contract=off",
)
FUZZED = ("-O1", "-fsanitize=fuzzer-no-link")


class BuildFailed(RuntimeError):
    """A failed build, with the compiler's output."""


def build(target: Native, folder: Path, compiler: str = "clang", root: Path = ROOT) -> Path:
    """The target's executable in `folder`, which caches objects for the next build. `root`: the repository, or a copy of it.

    With clang it is a libFuzzer executable; with another compiler it takes names of input files. Raises BuildFailed.
    """
    fuzzer, folder = compiler == "clang", folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    sources = [root / HARNESSES / target.harness, *(() if fuzzer else (root / HARNESSES / "replay.c",))]
    for pattern in target.sources:
        if not (paths := sorted(root.glob(pattern))):
            raise BuildFailed(f"{target.name}: {pattern}: expected files of that name, found none")
        sources += [path for path in paths if path not in sources]
    if target.program:
        sources += programs(target.program, folder, root)
    flags = [*FLAGS, *(FUZZED if fuzzer else ("-O0",)), *(f"-I{i}" for i in INCLUDES)]
    defines = {sources[0]: [f"-D{d}" for d in target.defines]}
    headers = _digest(sorted(path for i in INCLUDES for path in (root / i).glob("*.h")))
    with ThreadPoolExecutor(2) as pool:
        objects = list(
            pool.map(lambda source: _object(compiler, source, [*flags, *defines.get(source, ())], headers, folder, root), sources)
        )
    executable = folder / f"{target.name}-{compiler.replace('/', '_')}"
    link = "-fsanitize=fuzzer,address,undefined" if fuzzer else "-fsanitize=address,undefined"
    _run([compiler, link, *map(str, objects), "-o", str(executable), "-lm", "-ldl", "-lpthread"], root)
    return executable


def programs(name: str, folder: Path, root: Path = ROOT) -> list[Path]:
    """C files of a generated program, made by the compiler of `root`."""
    if root == ROOT:
        from .programs import generate

        return generate(name, folder)
    script = "from pathlib import Path\nfrom tests.fuzz.programs import generate\n"
    script += f"print(*generate({name!r}, Path({str(folder)!r})), sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.run([sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise BuildFailed(process.stderr[-3000:])
    return [Path(line) for line in process.stdout.split()]


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _object(compiler: str, source: Path, flags: list[str], headers: str, folder: Path, root: Path) -> Path:
    """The object file of a source, compiled once for the same text in any copy of the repository."""
    key = hashlib.sha256("\0".join([compiler, *flags, headers, _digest([source])]).encode()).hexdigest()[:24]
    target = folder / f"{source.stem}-{key}.o"
    if not target.exists():
        name = source.relative_to(root) if source.is_relative_to(root) else source
        _run([compiler, *flags, "-c", str(name), "-o", str(target)], root)
    return target


def _run(command: list[str], root: Path) -> None:
    process = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if process.returncode:
        raise BuildFailed(f"{' '.join(command)}\n{process.stderr[-3000:]}")
