"""Launcher: starts the ranks of one job, reads rank 0's messages, and ends all ranks in any case."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, AnyStr

STACKS = 30.0  # seconds for processes to write their stacks when they are asked to; it takes them milliseconds
QUIET = 0.5  # seconds without a new line after which a stack is taken to be written


class JobFailed(RuntimeError):
    """A rank ended badly or went silent; the message has its number, exit status and the end of its log."""


@dataclass(frozen=True)
class Place:
    """A place for ranks: ``environment`` of a rank, its ``command`` there, and ``started``, called with its process id."""

    environment: Callable[[int], dict[str, str]]
    command: Callable[[int, list[str]], list[str]]
    started: Callable[[int], None]


def here() -> Place:
    """Returns the place for ranks that are processes on this machine."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return Place(lambda rank: rendezvous, lambda rank, argv: argv, lambda pid: None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent(runner: int | str | None = None) -> None:
    """Asks the kernel for SIGTERM when the runner ends, in any way (prctl(2), PR_SET_PDEATHSIG = 1)."""
    runner = runner or os.environ.get("INA_RUNNER")  # the kernel sends nothing if it has ended before the call
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
    if runner and os.getppid() != int(runner):
        raise SystemExit(f"the runner, process {runner}, is gone")


def say_where_on_request() -> None:
    """Makes SIGUSR1 write a rank's main stack to standard error. The launcher sends it when rank 0 is silent."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def leave() -> None:
    """Ends a rank that is done, without the interpreter's own finalisation.

    Gloo's threads may outlive destroy_process_group for a moment (a reference in a cycle is enough). One that takes the GIL of an
    interpreter that is being torn down is ended by it, and C++ aborts with "terminate called without an active exception",
    SIGABRT.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def tail(path: Path, lines: int = 12) -> str:
    """Returns the end of a log, preceded by the error of its last traceback if that is not in it."""
    log = path.read_text(errors="replace").splitlines()
    shown = log[-lines:]
    begins = max((i for i, line in enumerate(log) if line.startswith("Traceback (most recent call last)")), default=None)
    if begins is not None:
        error = next((i for i in range(begins + 1, len(log)) if log[i] and not log[i].startswith(" ")), begins)
        if error < len(log) - lines:
            shown = [log[error], "...", *shown]
    return "\n".join("    " + line for line in shown)


def end(ranks: list[subprocess.Popen]) -> None:
    """Ends the processes that this job started, by their own pids: TERM, then KILL after five seconds."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in ranks:
            if process.poll() is None:
                process.send_signal(sign)
        deadline = time.monotonic() + 5
        while any(p.poll() is None for p in ranks) and time.monotonic() < deadline:
            time.sleep(0.02)


def run(
    command: list[str], workers: int, folder: Path, label: str, silence: float, on_message: Callable[[Any], None],
    place: Place | None = None, waiting: Callable[[], None] = lambda: None,
) -> None:
    """Runs ``command`` once a rank with torchrun's variables; rank 0's standard output is JSON lines. It gets a line on its
    standard input when ``on_message`` has returned from an object of the kind "start".

    Each rank's standard error goes to ``folder/<label>-rank<i>.log``. ``silence``: longest time in seconds without a
    line from rank 0. ``place``: default, this machine. ``waiting``: called whenever that rank has been silent for a moment.

    Raises:
        JobFailed: a rank exited with an error, or rank 0 was silent for too long.
    """
    place = place or here()
    base = {**os.environ, "WORLD_SIZE": str(workers), "INA_RUNNER": str(os.getpid())}
    base.setdefault("OMP_NUM_THREADS", "1")
    ranks: list[subprocess.Popen] = []
    logs = [folder / f"{label}-rank{rank}.log" for rank in range(workers)]
    try:
        for rank, log in enumerate(logs):
            with log.open("wb") as errors:
                ranks.append(
                    subprocess.Popen(
                        place.command(rank, [sys.executable, *command]),
                        env={**base, **place.environment(rank), "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                        stdout=subprocess.PIPE if rank == 0 else errors,
                        stderr=errors,
                    )
                )
            place.started(ranks[-1].pid)
        _listen(ranks, logs, label, silence, on_message, waiting)
    finally:
        end(ranks)


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """Returns a stream of a process that was started with pipes."""
    assert stream is not None
    return stream


def _listen(
    ranks: list[subprocess.Popen], logs: list[Path], label: str, silence: float, on_message: Callable[[Any], None],
    waiting: Callable[[], None],
) -> None:
    stdin, stdout = piped(ranks[0].stdin), piped(ranks[0].stdout)
    last = time.monotonic()
    message = pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        open_output = True
        while open_output or any(p.poll() is None for p in ranks):
            if open_output and selector.select(timeout=0.2):
                chunk = os.read(stdout.fileno(), 65536)
                open_output = chunk != b""
                *lines, pending = (pending + chunk).split(b"\n")
                for message in lines:
                    last = time.monotonic()
                    says = json.loads(message)
                    starts = isinstance(says, dict) and says.get("kind") == "start"
                    on_message(says)
                    if starts:
                        with contextlib.suppress(BrokenPipeError):  # why it has ended is found below
                            stdin.write(b"\n")
                            stdin.flush()
            else:
                waiting()
                if not open_output:
                    time.sleep(0.02)
            failed = [r for r, p in enumerate(ranks) if p.poll() not in (None, 0)]
            if failed:
                time.sleep(1.0)  # let the others log their errors, too
                _raise_failed(ranks, logs, label)
            if time.monotonic() - last > silence:
                _raise_silent(ranks, logs, label, silence, message.decode(errors="replace"))
    stdout.close()
    with contextlib.suppress(BrokenPipeError):
        stdin.close()


def _raise_silent(ranks: list[subprocess.Popen], logs: list[Path], label: str, silence: float, message: str) -> None:
    heard = f"since {message[:200]}" if message else "at all"
    raise JobFailed(f"job {label}: nothing was heard of rank 0 for {silence:.0f} s, {heard}:\n"
                    + conditions("rank", dict(enumerate(ranks)), logs))


def conditions(word: str, processes: dict[int, subprocess.Popen], logs: list[Path]) -> str:
    """Describes the processes of a stuck job by number, a paragraph each: its state, and the end of its log
    (``logs[number]``), to which those that can (say_where_on_request) write their stacks."""
    asked = {number: process for number, process in processes.items()
             if process.poll() is None and not _is_stopped(process.pid) and _catches(process.pid, signal.SIGUSR1)}
    before = {number: logs[number].stat().st_size for number in asked}
    for process in asked.values():
        process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + STACKS
    sizes: dict[int, int] = {}
    while time.monotonic() < deadline:
        last, sizes = sizes, {number: logs[number].stat().st_size for number in asked}
        if sizes == last and all(sizes[n] > before[n] or process.poll() is not None for n, process in asked.items()):
            break
        time.sleep(QUIET)
    return "\n".join(f"{word} {number} (pid {process.pid}) {_condition(process)}"
                     + (f"; {_last_words(logs[number])}" if process.returncode != 0 else "")
                     for number, process in processes.items())


def _condition(process: subprocess.Popen) -> str:
    code = process.poll()
    if code is None:
        return "is stopped" if _is_stopped(process.pid) else "runs"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}" if code else "has ended well"


def _status(pid: int) -> dict[str, str]:
    """Returns /proc/<pid>/status; empty: there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _is_stopped(pid: int) -> bool:
    return _status(pid).get("State", "").startswith("T")


def _catches(pid: int, number: int) -> bool:
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> number - 1 & 1)


def _last_words(log: Path) -> str:
    if end_of_log := tail(log):
        return f"its log ends:\n{end_of_log}"
    folder = os.statvfs(log.parent)
    return f"its log {log} is empty" + ("" if folder.f_bavail and folder.f_favail else ": no space is left there")


def _raise_failed(ranks: list[subprocess.Popen], logs: list[Path], label: str) -> None:
    parts: list[str] = []
    for rank, process in enumerate(ranks):
        code = process.poll()
        if code not in (None, 0):
            details = f"; {_last_words(logs[rank])}" if len(parts) == 0 else f"; see {logs[rank]}"
            parts.append(f"rank {rank} (pid {process.pid}) {_condition(process)}{details}")
    raise JobFailed(f"job {label}: " + "\n".join(parts))
