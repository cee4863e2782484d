"""A rank ends when the launcher that started it is gone.

torchrun starts its ranks in sessions of their own and asks for nothing when it is killed itself (SIGKILL, the OOM killer): they
would go on as orphans, and with them the switch process, which lives as long as its workers. Ranks that nobody launched with
torchrun are their starter's own affair.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import threading
from pathlib import Path

MARK = b"TORCHELASTIC_RUN_ID="  # torchrun's, in the environment of all that it starts


@functools.cache
def end_with_launcher() -> int:
    """From now on, the end of torchrun is SIGTERM for this process, which is torchrun's own way to end it, too.

    Returns torchrun's process id; 0: there is none, or it cannot be watched.
    """
    pid = _launcher()
    try:
        watched = os.pidfd_open(pid) if pid else -1
    except OSError:  # it has just ended, or the kernel is older than 5.3
        watched = -1
    if watched < 0:
        return 0
    threading.Thread(target=_watch, args=(watched,), name="ina-launcher", daemon=True).start()
    return pid


def _launcher() -> int:
    """The nearest ancestor that torchrun did not start; 0: this process is not torchrun's either."""
    pid = os.getpid()
    while pid and _is_marked(pid):
        pid = _parent(pid)
    return pid if pid not in (os.getpid(), 1) else 0


def _is_marked(pid: int) -> bool:
    if pid == os.getpid():
        return MARK.decode().rstrip("=") in os.environ
    try:
        return any(variable.startswith(MARK) for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # another user's: not one of ours
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
