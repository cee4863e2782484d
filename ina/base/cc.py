"""The C compiler, and the cache of shared objects that it built, keyed by everything that they depend on.

Files appear under their final name only when complete, and are used only if they have not changed since (cache.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ina.base import cache, tool

CC_DEADLINE = 600  # seconds


class BuildError(RuntimeError):
    """There is no C compiler, or it failed."""


def c_compiler() -> list[str]:
    """Returns `$CC`, else cc, gcc or clang. Raises BuildError when there is none."""
    setting = os.environ.get("CC")
    if setting:
        command = shlex.split(setting)
        if shutil.which(command[0]):
            return command
        raise BuildError(f"CC={setting}: no such program; set CC to a C compiler or unset it")
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C compiler found (tried cc, gcc, clang): install one (Debian: apt-get install gcc) or set CC")


@functools.cache
def toolchain(command: tuple[str, ...]) -> str:
    """Returns a hash that identifies the compiler and the processor (`-march=native`)."""
    version = tool.run([*command, "--version"], CC_DEADLINE).stdout
    digest = hashlib.sha256(version.encode())
    digest.update(platform.machine().encode())
    digest.update("\n".join(sorted(set(processors("model name", "flags", "Features", "CPU part")))).encode())
    return digest.hexdigest()


def processors(*fields: str) -> list[str]:
    """Returns the lines about these ``fields`` of each processor, from the kernel; none where it tells nothing."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    return [line for line in lines if line.startswith(fields)]


def compile_to(target: Path, call: Sequence[str]) -> None:
    """Runs the compiler's `call`, to which `-o` is added. Raises BuildError with the compiler's output."""
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        _run([*call, "-o", part])
        os.chmod(part, 0o755)
        os.replace(part, target)
    finally:
        Path(part).unlink(missing_ok=True)


def preprocessed(call: Sequence[str], source: Path) -> str:
    """Returns preprocessed C, without line markers. Raises BuildError."""
    return _run([*call, "-E", "-P", str(source)])


def shared_object(name: str, flags: Sequence[str], sources: Sequence[Path], libraries: Sequence[str] = (),
                  also: str = "") -> Path:
    """Returns the shared object of C sources, compiled unless it is in the cache.

    The cache key covers the compiler, the processor, the flags, the preprocessed sources, the libraries' names and `also`, which
    is whatever else the caller wants in it. Raises BuildError.
    """
    compiler = c_compiler()
    digest = hashlib.sha256(repr((toolchain(tuple(compiler)), compiler, list(flags), list(libraries), also)).encode())
    for source in sources:
        digest.update(preprocessed([*compiler, *flags], source).encode())
    target = cache.folder() / f"{name}-{digest.hexdigest()[:32]}.so"
    record = target.with_suffix(".json")
    if cache.read_record(record) is None:
        with cache.problems(target):
            compile_to(target, [*compiler, *flags, "-shared", "-fPIC", *map(str, sources), *libraries])
            cache.write_record(record, {}, [target])
    return target


def _run(call: Sequence[str]) -> str:
    try:
        process = tool.run(call, CC_DEADLINE)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{shlex.join(call)} did not finish within {CC_DEADLINE} s") from None
    if process.returncode:
        raise BuildError(f"{shlex.join(call)} failed:\n{process.stderr[-4000:]}")
    return process.stdout
