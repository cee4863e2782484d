"""Watches the launcher of a rank, so that the rank ends with it.

torchrun starts its ranks in sessions of their own and cannot signal them when it is killed itself (SIGKILL, the OOM killer): they
would go on as orphans, and with them the switch process, which lives as long as its workers. Ranks without torchrun are not
watched.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import threading
from pathlib import Path

MARK = b"TORCHELASTIC_RUN_ID="  # set by torchrun in the environment of its processes


@functools.cache
def end_with_launcher() -> int:
    """Sends SIGTERM to this process when torchrun ends; torchrun itself ends its ranks with SIGTERM, too.

    Returns torchrun's process id; 0: there is none, or it cannot be watched.
    """
    pid = _launcher()
    try:
        descriptor = os.pidfd_open(pid) if pid else -1
    except OSError:  # it has just ended, or the kernel is older than 5.3
        descriptor = -1
    if descriptor < 0:
        return 0
    threading.Thread(target=_watch, args=(descriptor,), name="ina-launcher", daemon=True).start()
    return pid


def _launcher() -> int:
    """Returns the nearest ancestor that torchrun did not start; 0: this process is not torchrun's either."""
    pid = os.getpid()
    while pid and _is_marked(pid):
        pid = _parent(pid)
    return pid if pid not in (os.getpid(), 1) else 0


def _is_marked(pid: int) -> bool:
    if pid == os.getpid():
        return MARK.decode().rstrip("=") in os.environ
    try:
        return any(variable.startswith(MARK) for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # another user's process, so not of this job
        return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _watch(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
