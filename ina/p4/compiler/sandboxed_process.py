"""The process that compiles what somebody else sent: it gives up all privileges that it can before it reads the text.

    python -m ina.p4.compiler.sandboxed_process FOLDER LIMITS < request > answer

sandbox.py starts it, with a folder of its own. It sets limits of time, memory and output; as root it becomes `nobody`, without
groups, capabilities or network. Only then is the request read: JSON with the text and with all that it may include. The answer
is a line of JSON, followed by the shared object; or the error, whose lines are the text's own.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from ina.base import manifest, tool
from ina.base.cc import BuildError
from ina.p4.compiler.build import source_hash
from ina.p4.compiler.errors import CompileError, render
from ina.p4.compiler.front.preprocess import preprocess_text
from ina.p4.compiler.frontend import check, parse_text
from ina.p4.compiler.generate import compile_c, generate

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38  # linux/prctl.h
CLONE_NEWNET, CLONE_NEWIPC = 0x40000000, 0x08000000  # linux/sched.h
NOBODY = 65534
PROCESSES = 512  # limit for all processes of `nobody`
FILES = 256


def main() -> None:
    tool.caller_cleans()
    folder, limits = Path(sys.argv[1]), json.loads(sys.argv[2])
    for header in manifest.files("program"):  # `nobody` may not be able to read their folder
        shutil.copy(header, folder)
    os.chdir(folder)  # from here on relative: `nobody` may not be able to read the folders above it
    confine(limits)
    answer, code = _compiled(json.load(sys.stdin))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(code)
    sys.stdout.flush()


def confine(limits: dict[str, int]) -> None:
    """Gives up privileges for good; the working folder and its contents stay this process's. Raises OSError if something cannot
    be given up."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, limit in (
        (resource.RLIMIT_CPU, limits["seconds"]), (resource.RLIMIT_AS, limits["memory"]), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["output"]), (resource.RLIMIT_NOFILE, FILES),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    if os.geteuid() == 0:
        _become_nobody(libc)
    _require(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _require(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "a signal when the switch ends")  # after a change of user


def _become_nobody(libc: Any) -> None:
    libc.unshare(CLONE_NEWNET | CLONE_NEWIPC)  # in a container root may not do this; then the network stays reachable
    try:
        entry = pwd.getpwnam("nobody")
        user, group = entry.pw_uid, entry.pw_gid
    except KeyError:
        user = group = NOBODY
    for path in (Path("."), *Path(".").iterdir()):
        os.chown(path, user, group)
    os.setgroups([])
    os.setresgid(group, group, group)
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    os.setresuid(user, user, user)


def _require(result: int, subject: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"cannot have {subject}")


def _compiled(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Returns the answer, and the shared object."""
    name: str = request["name"]
    sources: dict[str, str] = {}
    try:
        text, sources = preprocess_text(request["text"], name, request["defines"], request["folders"], request["files"])
        program = check(parse_text(text, name, sources))
        program.sources = sources
        digest = source_hash(text)
        c_text, p4info, layouts = generate(program, digest)
        c, so = Path("program.c"), Path("program.so")
        c.write_text(c_text, encoding="utf-8")
        compile_c(request["command"], c, so, headers=[Path(".")])
        warnings = render(program.warnings, sources, "warning")
        answer = {"p4info": p4info, "layouts": layouts, "source_hash": digest, "warnings": warnings, "c": c_text}
        return answer, so.read_bytes()
    except CompileError as error:
        error.sources.update(sources)
        return {"error": str(error)}, b""
    except BuildError as error:  # its message may name files
        print(error, file=sys.stderr)
        return {"error": "the C compiler refuses the program: the switch's log says why"}, b""


if __name__ == "__main__":
    main()
