"""Record of what a running network has made outside its own process, in a file: a later start can clean up after a crash.

Processes are identified by id *and* start time, so that a process that got the same id later is left alone; interfaces by name.
Nothing is looked for by pattern.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import TypedDict

LOCK = "\0ina-network"  # an abstract socket: the kernel frees its name when its process ends


def run_dir() -> Path:
    """Returns the folder for sockets and state of running networks: ``$INA_RUN_DIR``, else ``/run/ina``."""
    path = Path(os.environ.get("INA_RUN_DIR") or "/run/ina")
    path.mkdir(parents=True, exist_ok=True)
    return path


def start_time(pid: int) -> int:
    """Returns when process ``pid`` started, in the kernel's ticks since boot (proc(5), field 22); 0 for none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def interface_exists(name: str) -> bool:
    return any(name == interface for _, interface in socket.if_nameindex())


class Busy(RuntimeError):
    """Another network of this tool is up."""


class Record(TypedDict, total=False):
    """A network's processes (id and start time), interfaces and files, for clean-up."""

    name: str
    owner: list[int]
    processes: list[list[int]]
    interfaces: list[str]
    files: list[str]


class State:
    """The record of the one network that can be up in this network namespace, where names of interfaces are unique. It holds a
    lock, which the kernel frees when the process ends."""

    def __init__(self, name: str) -> None:
        self._file = run_dir() / "network.json"
        self._lock = socket.socket(socket.AF_UNIX)
        try:
            self._lock.bind(LOCK)
            self._lock.listen(1)
        except OSError:
            self._lock.close()
            raise Busy(f"a network is up already (process {_holder()}); take it down with: ina net down") from None
        record = read()
        pid, since = record.get("owner", (0, 0))
        if since and pid != os.getpid() and start_time(pid) == since:  # in another network namespace, where the lock is another
            self._lock.close()
            raise Busy(f"a network is up already (process {pid}, in another network namespace), with its files in {run_dir()}; "
                       "take it down with: ina net down, or choose another folder with INA_RUN_DIR")
        self.cleaned = clean_up(record)
        self._record: Record = {
            "name": name, "owner": [os.getpid(), start_time(os.getpid())], "processes": [], "interfaces": [], "files": [],
        }
        self._write()

    def add(self, *, processes: list[int] = [], interfaces: list[str] = [], files: list[Path] = []) -> None:  # noqa: B006
        self._record["processes"] += [[pid, start_time(pid)] for pid in processes]
        self._record["interfaces"] += interfaces
        self._record["files"] += [str(path) for path in files]
        self._write()

    def close(self) -> None:
        """Cleans up what the record still lists, and removes it."""
        if self._lock.fileno() >= 0:
            clean_up(self._record)
            self._file.unlink(missing_ok=True)
            self._lock.close()

    def _write(self) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._record))
        part.replace(self._file)


def _holder() -> object:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(LOCK)
            return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError:
            return "that has ended just now"


def read() -> Record:
    """Reads the record of the network that is up, or was when its process ended; empty: none."""
    try:
        record: Record = json.loads((run_dir() / "network.json").read_text())
        return record
    except FileNotFoundError:
        return {}


def clean_up(record: Record) -> list[str]:
    """Ends the processes and removes the interfaces and files of ``record`` that are still there; returns a list of them."""
    actions = []
    for sign, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0)):
        alive = [(pid, since) for pid, since in record.get("processes", []) if since and start_time(pid) == since]
        for pid, _ in alive:
            os.kill(pid, sign)
            actions.append(f"process {pid}: {sign.name}")
        deadline = time.monotonic() + patience
        while any(start_time(pid) == since for pid, since in alive) and time.monotonic() < deadline:
            time.sleep(0.01)
    for name in record.get("interfaces", []):
        if interface_exists(name):
            subprocess.run(["ip", "link", "del", name], capture_output=True)  # it may have gone with its peer just now
            actions.append(f"interface {name}")
    for path in record.get("files", []):
        if Path(path).exists():
            Path(path).unlink()
            actions.append(f"file {path}")
    return actions
