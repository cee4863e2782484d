"""Peers of ina's collectives: which are installed, and processes of theirs that stand still until they are given a turn."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes.util import find_library
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ina.base import paths
from ina.lab.training import launch

SOURCES = Path(__file__).parent
SILENCE = 120.0  # seconds that a start or a turn may take


class Turn(NamedTuple):
    """Seconds of one call: mean of the ranks' clocks; processor: of all ranks together."""

    seconds: float
    processor: float


Process = tuple[list[str], dict[str, str]]  # a command, and what its environment has beside ours


@dataclass(frozen=True)
class Torch:
    """ina and Gloo in the same processes, called from torch."""

    label: str = "torch"
    names: Sequence[str] = ("ina", "gloo")

    def missing(self) -> str:
        return ""

    def title(self) -> str:
        return f"ina and Gloo in torch {metadata.version('torch')}"

    def processes(self, folder: Path, ranks: int, address: str) -> Iterator[Process]:
        rendezvous = launch.here().environment(0)
        for rank in range(ranks):
            yield [sys.executable, "-m", "bench.peers_torch", address], {
                **rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                "INA_RUNNER": str(os.getpid()),
            }


@dataclass(frozen=True)
class Mpi:
    """A library of MPI, called from C, as its own mpirun starts it."""

    label: str
    suffix: str
    package: str
    options: Sequence[str] = ()

    @property
    def names(self) -> Sequence[str]:
        return (self.label,)

    def missing(self) -> str:
        """Returns what to install; empty: it is there."""
        have = all(shutil.which(f"{program}.{self.suffix}") for program in ("mpicc", "mpirun"))
        return "" if have else f"apt install {self.package}"

    def title(self) -> str:
        output = subprocess.run([f"mpirun.{self.suffix}", "--version"], capture_output=True, text=True).stdout
        found = re.search(r"\d+(\.\d+)+", output)
        return f"{self.label} {found[0] if found else 'of unknown version'}"

    def processes(self, folder: Path, ranks: int, address: str) -> Iterator[Process]:
        program = folder / f"peers-{self.suffix}"
        if not program.exists():
            sources = [str(SOURCES / name) for name in ("peers.c", "peers_mpi.c")]
            subprocess.run([f"mpicc.{self.suffix}", "-O2", "-std=gnu11", *sources, "-lm", "-o", str(program)], check=True)
        # Open MPI refuses root, and more ranks than cores, unless it is told that both are meant. Of those it makes idle ones
        # yield, as with mpi_yield_when_idle.
        yield [f"mpirun.{self.suffix}", "-n", str(ranks), *self.options, str(program), address], {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class OneCcl:
    """oneCCL, called from C++; the calling threads do all the work. By default each rank has a thread more that spins, and on as
    many cores as ranks a call takes milliseconds."""

    label: str = "oneCCL"
    names: Sequence[str] = ("oneCCL",)

    def missing(self) -> str:
        files = ("lib/libccl.so.1", "lib/libintlc.so.5", "include/oneapi/ccl.hpp")
        if not all((Path(sys.prefix) / file).exists() for file in files):
            return "pip install --no-deps oneccl-cpu oneccl-devel intel-cmplr-lib-rt"
        if not find_library("fabric"):
            return "apt install libfabric1"
        return "" if shutil.which("c++") else "apt install g++"

    def title(self) -> str:
        return f"{self.label} {metadata.version('oneccl-cpu')}"

    def processes(self, folder: Path, ranks: int, address: str) -> Iterator[Process]:
        program, store = folder / "peers-oneccl", f"{address}.store"
        prefix, library = Path(sys.prefix), folder / "libccl.so.2"
        if not program.exists():
            # libccl.so.1 of oneccl-cpu 2022.2 asks for libccl.so.2, which another package has, and uses nothing of it. Of Intel's
            # compiler it uses functions and does not name their library.
            empty = ["cc", "-shared", "-Wl,-soname,libccl.so.2", "-x", "c", "/dev/null", "-o", str(library)]
            turns = ["cc", "-O2", "-std=gnu11", "-c", str(SOURCES / "peers.c"), "-o", f"{program}.o"]
            link = ["c++", "-O2", "-std=c++17", f"-I{prefix}/include", str(SOURCES / "peers_oneccl.cpp"), f"{program}.o",
                    f"{prefix}/lib/libccl.so.1", "-Wl,--no-as-needed", str(library), f"{prefix}/lib/libintlc.so.5",
                    f"-Wl,-rpath,{folder}:{prefix}/lib", "-o", str(program)]
            for command in (empty, turns, link):
                subprocess.run(command, check=True, stderr=subprocess.PIPE)
        for rank in range(ranks):
            yield [str(program), address], {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "PEERS_STORE": store, "CCL_PROCESS_LAUNCHER": "none",
                "CCL_LOCAL_RANK": str(rank), "CCL_LOCAL_SIZE": str(ranks), "CCL_WORKER_OFFLOAD": "0", "CCL_ATL_SHM": "1",
            }


Library = Torch | Mpi | OneCcl
LIBRARIES: Sequence[Library] = (
    Torch(),
    Mpi("Open MPI", "openmpi", "openmpi-bin libopenmpi-dev", ["--oversubscribe"]),
    Mpi("MPICH", "mpich", "mpich libmpich-dev"),
    OneCcl(),
)


class Group:
    """The ranks of one library; each blocks in reading its socket except in its turns."""

    def __init__(self, library: Library, ranks: int, folder: Path) -> None:
        self.library, self.log = library, folder / f"{library.label}-{time.monotonic_ns()}.log".replace(" ", "-")
        self.processes: list[subprocess.Popen] = []
        self.connections: list[socket.socket] = []
        self.starts: list[float] = []  # seconds by rank
        address = str(self.log.with_suffix(".sock"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(ranks)
            listener.settimeout(0.2)
            try:
                with self.log.open("wb") as log:
                    for command, variables in library.processes(folder, ranks, address):
                        self.processes.append(subprocess.Popen(
                            command, cwd=paths.root(), env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=log,
                            stderr=log))
                deadline = time.monotonic() + SILENCE
                while len(self.connections) < ranks:
                    try:
                        self.connections.append(listener.accept()[0])
                    except TimeoutError:
                        if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                            raise self._failure() from None
                self.lines = []
                for connection in self.connections:
                    connection.settimeout(SILENCE)
                    self.lines.append(connection.makefile("rw"))
                self.starts = [seconds for _, seconds in sorted(self._answers())]
            except BaseException:
                self.close()
                raise

    def turn(self, name: str, collective: str, size: int, calls: int) -> Turn:
        """Has all ranks make so many calls; 0: one on known values, which are compared. Returns the times of one."""
        for lines in self.lines:
            print(name.replace(" ", "-"), collective, size, calls, file=lines, flush=True)
        seconds, processor = (sum(column) / max(1, calls) for column in zip(*self._answers(), strict=True))
        return Turn(seconds / len(self.lines), processor)

    def repeated(self) -> tuple[float, float]:
        """Returns how many packets the ranks of ina have sent again, and how many of these needlessly."""
        for lines in self.lines:
            print("ina repeated 0 0", file=lines, flush=True)
        again, needless = map(sum, zip(*self._answers(), strict=True))
        return again, needless

    def _answers(self) -> list[tuple[float, float]]:
        answers = []
        for lines in self.lines:
            try:
                first, second = map(float, lines.readline().split())
            except (ValueError, OSError):  # nothing: it has ended
                raise self._failure() from None
            answers.append((first, second))
        return answers

    def _failure(self) -> launch.JobFailed:
        time.sleep(1)  # let the others log their errors, too
        return launch.JobFailed(f"{self.library.label}: a rank failed, or was silent for {SILENCE:.0f} s; its log ends:\n"
                                + launch.tail(self.log))

    def close(self) -> None:
        """Ends the ranks: those that can, by themselves."""
        for connection in self.connections:
            with suppress(OSError):  # the rank has ended
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        deadline = time.monotonic() + 10
        while self.connections and any(process.poll() is None for process in self.processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        launch.end(self.processes)


@contextmanager
def standing(libraries: Sequence[Library], ranks: int, folder: Path) -> Iterator[dict[str, Group]]:
    """Starts the ranks of all libraries, one after the other. Yields the groups by the names that they take turns for."""
    with ExitStack() as stack:
        groups = {}
        for library in libraries:
            group = Group(library, ranks, folder)
            stack.callback(group.close)
            groups.update(dict.fromkeys(library.names, group))
        yield groups
