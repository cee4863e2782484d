"""Compiles programs whose source somebody else sent, in a process that cannot do harm with it (sandboxed_process.py).

The text may include files that ship with the project, by name; no other file that it names is opened. The result is kept in the
cache of this process's user under the hash of all its inputs.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ina.base import cache, paths
from ina.base.cc import c_compiler
from ina.p4.compiler.compiled import CompiledProgram, key_of, toolchain_digest
from ina.p4.compiler.front.preprocess import P4INCLUDE, preprocess

log = logging.getLogger(__name__)

LONGEST = 16 << 20  # bytes of source
TAIL = 4096  # bytes of the child's standard error that go to the log
SHIPPED = {"/p4include": P4INCLUDE, "/p4": None}  # by their names in messages; None: paths.p4_dir()


@dataclass(frozen=True)
class Limits:
    """Limits of one compilation. `seconds`: wall-clock time, and processor time of each process; `memory`: bytes of address space
    of each process; `output`: bytes of each file."""

    seconds: int = 300
    memory: int = 4 << 30
    output: int = 64 << 20


class NotCompiled(Exception):
    """An error for source that does not compile, or not within the limits; the message is for its sender."""


class Busy(NotCompiled):
    """An error if another source is being compiled for too long."""


_one = threading.Lock()  # all senders together get one processor


def compile_text(
    text: str, name: str = "program.p4", defines: Mapping[str, str] | None = None, limits: Limits | None = None
) -> CompiledProgram:
    """Compiles P4 text called `name`, or finds it in the cache. Raises NotCompiled, BuildError (there is no C compiler) and
    OSError (the cache)."""
    limits, defines = limits or Limits(), dict(defines or {})
    if len(text) > LONGEST:
        raise NotCompiled(f"{len(text)} characters of source: expected {LONGEST} at most")
    if not re.fullmatch(r"[\w.-]{1,100}\.p4", name, re.ASCII):
        raise NotCompiled(f"name {name[:100]!r}: expected letters, digits, '_', '-' and '.', with .p4 behind them")
    for macro, value in defines.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", macro, re.ASCII) or not isinstance(value, str) or not value.isprintable():
            raise NotCompiled(f"macro {macro[:100]!r}: expected a name of letters, digits and _, and a value of one line of text")
    command, shipped = c_compiler(), shipped_files()
    request = {"text": text, "name": name, "defines": defines, "files": shipped, "folders": list(SHIPPED), "command": command}
    payload = json.dumps(request, sort_keys=True)
    stem = f"sent-{Path(name).stem}-{key_of([toolchain_digest(tuple(command)), payload])}"
    folder = cache.folder()
    so, c, record = folder / f"{stem}.so", folder / f"{stem}.c", folder / f"{stem}.json"
    description = cache.read_record(record)
    if description is None:
        if not _one.acquire(timeout=limits.seconds):
            raise Busy(f"another program is being compiled for more than {limits.seconds} s: try again")
        try:
            description, c_text, code = _run(payload, limits)
        finally:
            _one.release()
        with cache.problems(folder):
            cache.write(c, c_text.encode())
            cache.write(so, code)
            cache.write_record(record, description, [so, c])
    return CompiledProgram(so, c, name=name, **description)


def to_send(path: str | Path, *, defines: Mapping[str, str] | None = None, include_dirs: Sequence[str | Path] = ()) -> bytes:
    """Returns the p4_device_config that a P4Runtime controller sends: JSON with the preprocessed source.

    Raises CompileError and OSError.
    """
    text, _ = preprocess(path, defines=defines, include_dirs=include_dirs)
    return json.dumps({"source": text, "name": Path(path).name}).encode()


def shipped_files() -> dict[str, str]:
    """Returns the texts of shipped files by their absolute paths in the child."""
    texts = {}
    for prefix, folder in SHIPPED.items():
        folder = folder or paths.p4_dir()
        for path in sorted(folder.rglob("*.p4")):
            texts[f"{prefix}/{path.relative_to(folder)}"] = path.read_text(encoding="utf-8")
    return texts


def _run(request: str, limits: Limits) -> tuple[dict[str, Any], str, bytes]:
    """Compiles in a child process; returns the program's description, its C text and its shared object. Raises NotCompiled."""
    return _parse_answer(*confined("ina.p4.compiler.sandboxed_process", request, limits))


def confined(
    module: str, request: str, limits: Limits, started: Callable[[subprocess.Popen[bytes]], None] | None = None
) -> tuple[bytes, int]:
    """Runs ``python -m MODULE FOLDER LIMITS`` on a request, as sandboxed_process.py does; returns its answer and exit status.
    ``started`` gets the process, whose group (it leads one) may be killed. Raises NotCompiled: it took too long."""
    with tempfile.TemporaryDirectory(prefix="ina-compile-") as folder, tempfile.TemporaryFile() as request_file, \
            tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        request_file.write(request.encode())
        request_file.seek(0)
        command = [sys.executable, "-m", module, folder, json.dumps(asdict(limits))]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                       "LANG": "C.UTF-8", "HOME": ".", "TMPDIR": ".", "PYTHONDONTWRITEBYTECODE": "1"}
        child = subprocess.Popen(command, stdin=request_file, stdout=answer, stderr=errors, cwd="/", env=environment,
                                 start_new_session=True)
        try:
            if started:
                started(child)
            status = child.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            raise NotCompiled(f"the program was not compiled within {limits.seconds} s") from None
        finally:
            _kill_group(child)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL))
        if stderr_text := errors.read().decode(errors="replace").strip():
            log.warning("compiling a program that was sent:\n%s", stderr_text)
        answer.seek(0)
        return answer.read(), status


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kills the child and all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _parse_answer(answer: bytes, status: int) -> tuple[dict[str, Any], str, bytes]:
    head, _, code = answer.partition(b"\n")
    try:
        response = json.loads(head)
        if error := response.get("error"):
            raise NotCompiled(str(error))
        description = {key: response[key] for key in ("p4info", "layouts", "source_hash", "warnings")}
        return description, str(response["c"]), code
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise NotCompiled(f"the compiler has failed on this program (status {status}): the switch's log says more") from None
