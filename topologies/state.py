"""What a running network has made outside its own process, in a file: so that a later start can clean up after a crash.

Processes are known by id *and* start time, so that a number that the system has given to another process since is left
alone; interfaces by name. Nothing is ever looked for by pattern.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path


def run_dir() -> Path:
    """Where sockets and state of running networks lie: ``$INA_RUN_DIR``, else ``/run/ina``."""
    path = Path(os.environ.get("INA_RUN_DIR") or "/run/ina")
    path.mkdir(parents=True, exist_ok=True)
    return path


def start_time(pid: int) -> int:
    """When process ``pid`` started, in the kernel's ticks since boot (proc(5), field 22); 0: there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def interface_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


class Busy(RuntimeError):
    """Another network of this tool is up."""


class State:
    """The record of the one network that can be up. Holding it means holding a lock, which the kernel gives back when the
    process ends, however it ends."""

    def __init__(self, name: str) -> None:
        folder = run_dir()
        self._file = folder / "network.json"
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            found = read()
            raise Busy(
                f"a network is up already: {found.get('name', 'one that is just starting')} "
                f"(process {found.get('owner', ['unknown'])[0]}); take it down with: ina net down"
            ) from None
        self.cleaned = clean_up(read())
        self._record: dict = {
            "name": name, "owner": [os.getpid(), start_time(os.getpid())], "processes": [], "interfaces": [], "files": [],
        }  # fmt: skip
        self._write()

    def add(self, *, processes: list[int] = [], interfaces: list[str] = [], files: list[Path] = []) -> None:  # noqa: B006
        self._record["processes"] += [[pid, start_time(pid)] for pid in processes]
        self._record["interfaces"] += interfaces
        self._record["files"] += [str(path) for path in files]
        self._write()

    def close(self) -> None:
        """All is taken down: what is left of the record is cleaned up, and forgotten."""
        if self._lock >= 0:
            clean_up(self._record)
            self._file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def _write(self) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._record))
        part.replace(self._file)


def read() -> dict:
    """The record of the network that is up, or was when its process ended; empty: none."""
    try:
        return json.loads((run_dir() / "network.json").read_text())
    except FileNotFoundError:
        return {}


def clean_up(record: dict) -> list[str]:
    """Ends the processes and removes the interfaces and files of ``record`` that are still there; says which."""
    done = []
    for sign, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0)):
        alive = [(pid, since) for pid, since in record.get("processes", []) if since and start_time(pid) == since]
        for pid, _ in alive:
            os.kill(pid, sign)
            done.append(f"process {pid}: {sign.name}")
        deadline = time.monotonic() + patience
        while any(start_time(pid) == since for pid, since in alive) and time.monotonic() < deadline:
            time.sleep(0.01)
    for name in record.get("interfaces", []):
        if interface_exists(name):
            subprocess.run(["ip", "link", "del", name], capture_output=True)  # its pair may have taken it along just now
            done.append(f"interface {name}")
    for path in record.get("files", []):
        if Path(path).exists():
            Path(path).unlink()
            done.append(f"file {path}")
    return done
