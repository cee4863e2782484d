"""``make soak``, switch processes: jobs come and go at ``ina switch run --listen`` for MINUTES, while much goes wrong.

Two switch processes at the loopback. One stays from beginning to end, so that growth shows; the other is ended and started anew
at the same address again and again. Jobs of two to four ranks come and go at both: some ranks leave in peace, some are killed in
the middle of a sum or lose their control connection, and some send forged frames by their own address. Strangers connect without
the token, with a wrong one, with nothing to say, or with nonsense. Each rank compares every sum with its own arithmetic.

At the end both processes must be empty: no job, no port, all slots free, as many descriptors as at first (``LIMITS``), no more
memory. One line every few seconds says how it goes; then come a table and, with --json, a file. Exit status 0: all was right.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import soak_rank
from bench.soak_rank import ENDS, Rank
from ina.aggregation.controller.client import Client, ControlError
from ina.base import tokens
from ina.base.bounds import real, whole

ROOT = Path(__file__).resolve().parent.parent
PROGRESS = 5.0  # s between two lines
LOOK = 0.1  # s between two looks at the processes
MEASURED = 1.0  # s between two measurements of memory
SETTLED = 0.3  # share of the time after which a process's memory is stable, at most a minute of it
JOBS = 3  # at a time
READY, ENDED = 120.0, 60.0  # s: for a switch process, which may compile its program; for a job after all its events
LIVES = (8.0, 20.0)  # s that the second switch process lives, at least and at most
# Bytes that memory may grow; numbers that may remain; s until all ranks have heard of a lost one.
LIMITS = {"memory": 8 << 20, "descriptors": 0, "jobs": 0, "ports": 0, "delay": 10.0}
FORKS = multiprocessing.get_context("forkserver")  # imports once, so that most of the time is sums
FORKS.set_forkserver_preload(["bench.soak_rank"])


class Broken(Exception):
    """The soak cannot go on; the message says why."""


class Switch:
    """A switch process, which can be ended and started anew at its address. ``lives``: how often it was started."""

    def __init__(self, name: str, address: str, token: str, log: Path):
        self.name, self.address, self.token, self.lives = name, address, token, 0
        self._log = log
        self.memory: list[tuple[float, int]] = []  # of this life: monotonic s, bytes
        self.descriptors = 0  # when it was empty
        self.slots = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "ina.cli", "switch", "run", "-DVALUES=64", "--job-slots=32", "-L", "warn", "--listen",
                   self.address]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=self._environment())
        self.lives += 1
        self.memory.clear()
        self.ready = False
        self.deadline = time.monotonic() + READY

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(ROOT), "INA_TOKEN": self.token}

    def awake(self) -> bool:
        """Returns True once ranks can attach. Raises Broken."""
        if self.ready:
            return True
        if self.process.poll() is not None:
            raise Broken(f"switch {self.name} ended with status {self.process.returncode}: {self._log.read_text()[-500:]}")
        if time.monotonic() > self.deadline:
            raise Broken(f"switch {self.name} was not ready within {READY:g} s")
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            return False
        with suppress(ControlError):
            about = self.ask("ping")
            self.slots, self.ready = about["free_slots"], True
            self.descriptors = self._baseline()
        return self.ready

    def _baseline(self) -> int:
        """Returns the descriptors of the empty process, once it has dropped those of who has asked it."""
        counts = []
        for _ in range(10):
            counts.append(self.open_descriptors())
            time.sleep(LOOK / 2)
        return min(counts)

    def ask(self, operation: str) -> dict[str, Any]:
        with closing(Client(self.address, 30.0, access=self.token)) as client:
            return client.ask(operation)

    def measure(self) -> int:
        """Measures its private memory in bytes."""
        with suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
            self.memory.append((time.monotonic(), (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")))
        return self.memory[-1][1] if self.memory else 0

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def grown(self, since: float) -> int:
        """Returns growth since then in bytes: the least of the last three measurements less the most of the first three."""
        settled = [size for when, size in self.memory if when >= since]
        return min(settled[-3:]) - max(settled[:3]) if len(settled) >= 6 else 0

    def remains(self) -> dict[str, int]:
        """Returns what is there beyond an empty process: jobs, ports, slots that are not free, descriptors."""
        free = self.ask("ping")["free_slots"]
        return {"jobs": len(self.ask("jobs")["jobs"]), "ports": len(self.ask("counters")["ports"]), "slots": self.slots - free,
                "descriptors": max(0, self.open_descriptors() - self.descriptors)}

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(ENDED)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Broken(f"switch {self.name} did not end within {ENDED:g} s of signal {number}") from None


@dataclass
class Job:
    """A job that runs. ``life``: of its switch, when it began; ``bad``: how its rank ``victim`` ends, "": none does."""

    name: str
    switch: Switch
    life: int
    bad: str
    victim: int
    processes: list[Any]  # of multiprocessing
    results: list[Path]
    begun: float
    ended: dict[int, float] = field(default_factory=dict)  # by rank, monotonic s


@dataclass
class Report:
    """Figures of a soak, and what was wrong."""

    seed: int
    seconds: float = 0.0
    jobs: Counter[str] = field(default_factory=Counter)  # by their end
    sums: int = 0
    forged: int = 0
    strangers: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    delay: float = 0.0  # s, the longest from a bad end until the last other rank had ended
    growth: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


class Soak:
    """The run of one soak. ``say``: prints a line."""

    def __init__(self, seconds: float, seed: int, folder: Path, say: Callable[[str], None]):
        self.rng, self.report, self.folder, self.say = random.Random(seed), Report(seed), folder, say
        self.begin = time.monotonic()
        self.seconds = seconds
        self.token = secrets.token_hex(16)
        self.running: list[Job] = []
        self.connections: list[socket.socket] = []  # of strangers who say nothing
        self.switches: list[Switch] = []
        self.number = 0

    def run(self) -> Report:
        """Runs it all. Errors are in the report."""
        try:
            for name in ("steady", "restarted"):
                self.switches.append(Switch(name, free_address(), self.token, self.folder / f"{name}.log"))
            while not all([switch.awake() for switch in self.switches]):
                time.sleep(LOOK)
            self.begin = time.monotonic()
            self._loop(self.begin + self.seconds)
            self._settle()
        except Broken as error:
            self.report.errors.append(str(error))
        finally:
            self._close()
        self.report.seconds = time.monotonic() - self.begin
        return self.report

    def _loop(self, end: float) -> None:
        reported = measured = self.begin
        restart = self.begin + min(self.rng.uniform(*LIVES), self.seconds / 2)
        stranger = self.begin
        while (now := time.monotonic()) < end or self.running:
            self._collect()
            if now < end and len(self.running) < JOBS:
                self._start()
            if now >= restart and now < end:
                self._restart()
                restart = now + self.rng.uniform(*LIVES)
            if now >= stranger:
                self._stranger()
                stranger = now + self.rng.uniform(0.1, 0.5)
            if now - measured >= MEASURED:
                measured = now
                for switch in self.switches:
                    switch.measure()
            if now - reported >= PROGRESS:
                reported = now
                self._progress()
            for switch in self.switches:
                switch.awake()
            time.sleep(LOOK)

    def _progress(self) -> None:
        r = self.report
        ends = ", ".join(f"{count} {end}" for end, count in sorted(r.jobs.items()))
        memory = ", ".join(f"{switch.name} {switch.measure() / 2**20:.1f} MiB" for switch in self.switches)
        wrong = f"{len(r.errors)} WRONG" if r.errors else "all right"
        self.say(f"{time.monotonic() - self.begin:6.0f} s: {sum(r.jobs.values())} jobs ({ends}), {r.sums} sums of ranks, "
                 f"{r.forged} forged frames, {sum(r.strangers.values())} strangers, {r.restarts} restarts; {memory}; {wrong}")

    # ---- jobs

    def _start(self) -> None:
        ready = [switch for switch in self.switches if switch.awake()]
        if not ready:
            return
        self.number += 1
        rng, switch = self.rng, self.rng.choice(ready)
        ranks, bad = rng.randint(2, 4), rng.choice(("", "", *ENDS[1:]))
        name, seed, victim = f"job {self.number}", rng.randrange(1 << 30), rng.randrange(ranks) if bad else -1
        token, rounds, forges = secrets.token_hex(8), rng.randint(2, 40), rng.randrange(ranks) if rng.random() < 0.5 else -1
        passed = tokens.pass_for(self.token, token)
        processes, results = [], []
        for rank in range(ranks):
            about = Rank(switch.address, name, token, passed if rank else self.token, rank, ranks, rounds, seed,
                         bad if rank == victim else "leave", rank == forges)
            results.append(self.folder / f"{self.number}-{rank}.json")
            processes.append(FORKS.Process(target=soak_rank.main, args=(about, results[-1]), daemon=True))
            processes[-1].start()
        self.running.append(Job(name, switch, switch.lives, bad, victim, processes, results, time.monotonic()))

    def _collect(self) -> None:
        now = time.monotonic()
        for job in list(self.running):
            for rank, process in enumerate(job.processes):
                if process.exitcode is not None:
                    job.ended.setdefault(rank, now)
            if len(job.ended) == len(job.processes):
                self.running.remove(job)
                self._judge(job)
            elif now > job.begun + 2 * ENDED:
                self.running.remove(job)
                late = [rank for rank in range(len(job.processes)) if rank not in job.ended]
                self.report.errors.append(f"{job.name} at {job.switch.name}: ranks {late} did not end within {2 * ENDED:g} s")
                _kill(job)

    def _judge(self, job: Job) -> None:
        """Compares how a job has ended with how it should have."""
        restarted, report = job.life != job.switch.lives, self.report
        failures = []
        for rank, (process, path) in enumerate(zip(job.processes, job.results, strict=True)):
            status, text = process.exitcode, path.read_text() if path.exists() else ""
            process.close()
            path.unlink(missing_ok=True)
            if rank == job.victim and status == -signal.SIGKILL:
                continue
            if not text:
                report.errors.append(f"{job.name}: rank {rank} ended with status {status} and no result: see its error above")
                continue
            result = json.loads(text)
            report.sums += result["sums"]
            report.forged += result["forged"]
            if result["wrong"]:
                report.errors.append(f"{job.name} at {job.switch.name}: {result['wrong']} wrong sums at rank {rank}")
            if result["failure"]:
                failures.append((rank, result["failure"]))
        end = job.bad or "left"
        if failures and not job.bad:
            end = "restart"
            if not restarted:
                report.errors.append(f"{job.name} at {job.switch.name} should have ended in peace: {failures}")
        if job.bad and not restarted:
            report.delay = max(report.delay, delay := max(job.ended.values()) - job.ended[job.victim])
            if delay > LIMITS["delay"]:
                report.errors.append(f"{job.name}: ranks heard of a lost one {delay:.1f} s later; expected {LIMITS['delay']:g} s "
                                     "at most")
            silent = len(job.processes) - 1 - len(failures)
            if silent:
                report.errors.append(f"{job.name}: {silent} ranks did not hear that rank {job.victim} was lost by {job.bad}")
        report.jobs[end] += 1

    def _restart(self) -> None:
        switch = self.switches[1]
        if switch.awake():
            switch.end(self.rng.choice([signal.SIGTERM, signal.SIGKILL]))
            switch.start()
            self.report.restarts += 1

    # ---- strangers

    def _stranger(self) -> None:
        """Connects as somebody without the token, in one of several ways."""
        kind = self.rng.choice(["silent", "nonsense", "wrong token", "HTTP"])
        switch = self.rng.choice(self.switches)
        host, _, port = switch.address.rpartition(":")
        with suppress(OSError, ControlError):  # refused, as it should be; or the process is being started anew
            if kind == "wrong token":
                Client(switch.address, 5.0, access="x" * 32).close()
                if switch.ready:
                    self.report.errors.append(f"{switch.name} took a client with a wrong token")
                return
            sock = socket.create_connection((host, int(port)), 5.0)
            if kind == "nonsense":
                sock.send(self.rng.randbytes(self.rng.randrange(1, 2000)))
            elif kind == "HTTP":
                sock.send(b"GET /jobs HTTP/1.1\r\nAuthorization: Bearer nobody\r\n\r\n")
            self.connections.append(sock)
        self.report.strangers[kind] += 1
        while len(self.connections) > 100:
            self.connections.pop(0).close()

    # ---- the end

    def _settle(self) -> None:
        """Waits until both processes are empty, and judges what has remained, and what has grown."""
        for sock in self.connections:
            sock.close()
        self.connections.clear()
        deadline = time.monotonic() + ENDED
        since = self.begin + min(60.0, SETTLED * self.seconds)
        for switch in self.switches:
            while not switch.awake():  # READY at most
                time.sleep(LOOK)
            while any((remains := switch.remains()).values()):
                if time.monotonic() > deadline:
                    break
                time.sleep(LOOK)
            grown = switch.grown(since) if switch.lives == 1 else 0
            self.report.growth[switch.name] = {**remains, "memory": grown, "resident": switch.measure()}
            for name, count in remains.items():
                if count > LIMITS.get(name, 0):
                    self.report.errors.append(f"{switch.name}: {count} {name} remain {ENDED:g} s after its last job")
            if grown > LIMITS["memory"]:
                most = int(LIMITS["memory"]) >> 10
                self.report.errors.append(f"{switch.name} grew by {grown >> 10} KiB; expected {most} at most")

    def _close(self) -> None:
        for sock in self.connections:
            sock.close()
        for job in self.running:
            _kill(job)
        for switch in self.switches:
            with suppress(Broken):
                switch.end()


def _kill(job: Job) -> None:
    for process in job.processes:
        process.kill()
        process.join(ENDED)


def free_address() -> str:
    """Returns an address of the loopback with a TCP port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def rows(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yields what was counted, how much of it, and what was allowed."""
    for end, count in sorted(report.jobs.items()):
        yield f"jobs: {end}", str(count), ""
    yield "sums of ranks, each compared", str(report.sums), ""
    yield "forged frames", str(report.forged), ""
    for kind, count in sorted(report.strangers.items()):
        yield f"strangers: {kind}", str(count), ""
    yield "restarts of a switch process", str(report.restarts), ""
    yield "s until all ranks heard of a lost one, at most", f"{report.delay:.1f}", f"{LIMITS['delay']:g}"
    for name, growth in report.growth.items():
        for what, count in growth.items():
            limit = LIMITS.get(what, 0)
            if what == "resident":
                yield f"{name}: private memory at the end, MiB", f"{count / 2**20:.1f}", ""
            elif what == "memory":
                yield f"{name}: growth of memory, KiB", f"{count >> 10}", f"{int(limit) >> 10}"
            else:
                yield f"{name}: {what} that remain", str(count), f"{limit:g}"
    yield "wrong", str(len(report.errors)), "0"


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM a KeyboardInterrupt, too."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak_servers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=real(0.05, 100_000), default=10.0, help="(default: %(default)g)")
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=0, help="of jobs and ends (default: from the clock)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    args = parser.parse_args(argv)
    from rich.console import Console
    from rich.table import Table

    seed = args.seed or int(time.time())
    print(f"soak of switch processes, {args.minutes:g} minutes, --seed {seed}", flush=True)
    try:
        with interruptible(), tempfile.TemporaryDirectory(prefix="ina-soak-") as folder:
            report = Soak(60 * args.minutes, seed, Path(folder), lambda text: print(text, flush=True)).run()
    except KeyboardInterrupt:
        print("soak: interrupted", file=sys.stderr)
        return 130
    table = Table("what", "count", "allowed", title=f"{report.seconds:.0f} s", title_justify="left")
    for row in rows(report):
        table.add_row(*row)
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(vars(report) | {"limits": LIMITS}, indent=2) + "\n")
    for each in report.errors:
        print(f"WRONG: {each}", file=sys.stderr)
    print("soak: " + (f"{len(report.errors)} things wrong" if report.errors else "all right"), flush=True)
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
