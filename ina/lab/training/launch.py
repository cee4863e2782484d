"""Starts the ranks of one job, listens to rank 0, and ends every one of them whatever happens."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, AnyStr

from ina.base import signals


class JobFailed(RuntimeError):
    """A rank ended badly or went silent; the message has its number, exit status and the end of its log."""


@dataclass(frozen=True)
class Place:
    """Where ranks run: variables for a rank, its command as it is started there, and who is told of its process id."""

    environment: Callable[[int], dict[str, str]]
    command: Callable[[int, list[str]], list[str]]
    started: Callable[[int], None]


def here() -> Place:
    """All on this machine, as processes of its own."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return Place(lambda rank: rendezvous, lambda rank, argv: argv, lambda pid: None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Terminated(KeyboardInterrupt):
    """SIGTERM: what has been started is ended as after Ctrl-C, but nothing is waited for."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises Terminated meanwhile; in threads other than the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signals.raising(lambda _number: Terminated(), signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def die_with_parent(runner: int | str | None = None) -> None:
    """Ask the kernel for SIGTERM when the runner goes away, however it goes (prctl(2), PR_SET_PDEATHSIG = 1)."""
    runner = runner or os.environ.get("INA_RUNNER")  # the kernel says nothing of one that has gone before it was asked
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
    if runner and os.getppid() != int(runner):
        raise SystemExit(f"the runner, process {runner}, is gone")


def say_where_on_request() -> None:
    """In a rank: SIGUSR1 writes the main thread's stack to standard error. The launcher asks when nothing is heard of rank 0."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)


def leave() -> None:
    """Ends a rank that is done, without the interpreter's own end.

    Gloo's threads may outlive destroy_process_group for a moment (a reference in a cycle is enough). One that wants the GIL of an
    interpreter that is being torn down is ended by it, and C++ answers "terminate called without an active exception", SIGABRT.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def tail(path: Path, lines: int = 12) -> str:
    """The end of a log, and before it the error of its last traceback, if that is not in it: what follows may be chatter."""
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
    command: list[str], workers: int, folder: Path, label: str, silence: float, on_message: Callable[[dict], None],
    place: Place | None = None,
) -> None:
    """Runs ``command`` once a rank with torchrun's variables; rank 0's standard output is JSON lines.

    Each rank's standard error goes to ``folder/<label>-rank<i>.log``. ``silence``: longest time in seconds without a
    line from rank 0. ``place``: default, this machine.

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
                        stdout=subprocess.PIPE if rank == 0 else errors,
                        stderr=errors,
                    )
                )
            place.started(ranks[-1].pid)
        _listen(ranks, logs, label, silence, on_message)
    finally:
        end(ranks)


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """An end of a process that was started with pipes."""
    assert stream is not None
    return stream


def _listen(
    ranks: list[subprocess.Popen], logs: list[Path], label: str, silence: float, on_message: Callable[[dict], None]
) -> None:
    stdout = piped(ranks[0].stdout)
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
                    on_message(json.loads(message))
            elif not open_output:
                time.sleep(0.02)
            failed = [r for r, p in enumerate(ranks) if p.poll() not in (None, 0)]
            if failed:
                time.sleep(1.0)  # let the others say why, too
                _raise_failed(ranks, logs, label)
            if time.monotonic() - last > silence:
                _raise_silent(ranks, logs, label, silence, message.decode(errors="replace"))
    stdout.close()


def _raise_silent(ranks: list[subprocess.Popen], logs: list[Path], label: str, silence: float, message: str) -> None:
    heard = f"since {message[:200]}" if message else "at all"
    raise JobFailed(f"job {label}: nothing was heard of rank 0 for {silence:.0f} s, {heard}:\n"
                    + conditions("rank", dict(enumerate(ranks)), logs))  # fmt: skip


def conditions(word: str, processes: dict[int, subprocess.Popen], logs: list[Path]) -> str:
    """Processes of a job that is stuck, by number, a paragraph each: how it is, and the end of its log (``logs[number]``), to
    which those that can (say_where_on_request) write where they are."""
    for process in processes.values():
        if process.poll() is None and _catches(process.pid, signal.SIGUSR1):
            process.send_signal(signal.SIGUSR1)
    time.sleep(1.0)  # for these to do so
    parts = []
    for number, process in processes.items():
        parts.append(f"{word} {number} (pid {process.pid}) {_condition(process)}"
                     + (f"; {_last_words(logs[number])}" if process.returncode != 0 else ""))  # fmt: skip
    return "\n".join(parts)


def _condition(process: subprocess.Popen) -> str:
    code = process.poll()
    if code is None:
        return "is stopped" if _status(process.pid).get("State", "").startswith("T") else "runs"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}" if code else "has ended well"


def _status(pid: int) -> dict[str, str]:
    """/proc/<pid>/status; empty: there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


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
            said = f"; {_last_words(logs[rank])}" if len(parts) == 0 else f"; see {logs[rank]}"
            parts.append(f"rank {rank} (pid {process.pid}) {_condition(process)}{said}")
    raise JobFailed(f"job {label}: " + "\n".join(parts))
