"""A process that imports torch once and forks the ranks of all tests: each import takes two seconds of CPU time.

    fork_server = ForkServer()
    rank = fork_server.start("print('hello')", {"RANK": "0", **os.environ}, Path("/tmp"))
    out, err = rank.communicate(timeout=60)

A rank behaves like `python -c SCRIPT`: it has its own environment, folder, output and `__main__`, and ends as any interpreter
does. Only `/proc/PID/environ` remains the fork server's.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from waiting import TookTooLong

ROOT = Path(__file__).resolve().parent.parent


class Forked:
    """A forked rank, with `pid`, `returncode`, and `communicate` as in `subprocess.Popen`; `close` kills it."""

    def __init__(self, out: int, err: int, status: int):
        self._pipes = {out: b"", err: b"", status: b""}
        self._out, self._err, self._status = out, err, status
        while b"\n" not in self._pipes[status]:
            if not (data := os.read(status, 100)):
                raise RuntimeError("the fork server ended before it forked a rank")
            self._pipes[status] += data
        self.pid = int(self._pipes[status].split()[0])

    @property
    def returncode(self) -> int | None:
        """Exit status as in `Popen` (a signal's number negated); None until `communicate` has seen the end."""
        words = self._pipes[self._status].split()
        return int(words[1]) if len(words) > 1 else None

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Standard output and error, read until all writers have closed them. Raises TookTooLong."""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as waiting:
            for pipe in self._pipes:
                waiting.register(pipe, selectors.EVENT_READ)
            while waiting.get_map():
                if not (ready := waiting.select(max(0.0, deadline - time.monotonic()))):
                    raise TookTooLong(f"waited {timeout:g} s for the end of rank {self.pid}; {self._said()}")
                for key, _ in ready:
                    self._pipes[key.fd] += (data := os.read(key.fd, 65536))
                    if not data:
                        waiting.unregister(key.fd)
        return self._pipes[self._out].decode(), self._pipes[self._err].decode()

    def _said(self) -> str:
        return f"so far it said {self._pipes[self._out].decode()[-2000:]!r} and {self._pipes[self._err].decode()[-2000:]!r}"

    def close(self) -> None:
        """Kills the rank if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            while data := os.read(self._status, 100):
                self._pipes[self._status] += data
        for pipe in self._pipes:
            os.close(pipe)


class ForkServer:
    """Client of the fork server, whose process ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            env = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                       TORCH_DEVICE_BACKEND_AUTOLOAD="0")
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)

    def start(self, script: str, env: dict[str, str], folder: Path) -> Forked:
        import tiers  # not in the fork server itself, nor in what it forks

        tiers.several_processes("forks ranks")
        pipes = [os.pipe() for _ in range(3)]
        request = json.dumps({"script": script, "env": env, "folder": str(folder)}).encode()
        socket.send_fds(self._socket, [request], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        return Forked(*(end for end, _ in pipes))


def _fork_ranks(control: socket.socket) -> dict:
    """Serves requests; returns in each forked rank, with the rank's request. Exits when the client does."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ranks: dict[int, int] = {}  # pid -> descriptor for its status
    with selectors.DefaultSelector() as waiting:
        waiting.register(control, selectors.EVENT_READ)
        waiting.register(ended, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in waiting.select()]
            if ended in ready:
                os.read(ended, 4096)
                for pid in list(ranks):
                    child, status = os.waitpid(pid, os.WNOHANG)
                    if child:
                        os.write(ranks[pid], b"%d" % os.waitstatus_to_exitcode(status))
                        os.close(ranks.pop(pid))
            if control not in ready:
                continue
            request, fds, _, _ = socket.recv_fds(control, 1 << 20, 3)
            if not request:
                raise SystemExit
            out, err, status = fds
            pid = os.fork()
            if not pid:
                break
            os.write(status, b"%d\n" % pid)
            ranks[pid] = status
            os.close(out)
            os.close(err)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    control.close()
    for fd in (out, err, status, ended, wake, *ranks.values()):
        os.close(fd)
    return json.loads(request)


if __name__ == "__main__":
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401

    import ina.backend.process_group  # noqa: F401

    job = _fork_ranks(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["folder"])
    sys.path[0], sys.argv = "", ["-c"]
    exec(compile(job["script"], "<string>", "exec"), globals())  # at top level, so that it ends as an interpreter does
