"""``make soak``: jobs over DPDK for MINUTES, with random loss, duplication, reordering and corruption.

A job of two workers runs from beginning to end. Beside it others come and go at two more ports of the same switch, each with
its own size, type, window and faults. Every value of every sum is compared; at the end no mbuf may be missing, and no process may
have grown. One line every ten seconds says how it goes; the exit status is 0 if all was right.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ina.base.bounds import real, whole
from ina.lab.training.launch import piped

ROOT = Path(__file__).resolve().parent.parent
PROGRESS = 10.0  # seconds
SETTLED = 60.0  # seconds after which a process's memory is stable
GROWTH = 16 << 20  # bytes that it may grow after that: caches of allocators
ENDED = 60.0


class Program:
    """A process that prints lines of JSON; ``messages`` has the last of each kind."""

    def __init__(self, module: str, *arguments: object):
        command = [sys.executable, "-m", module, *map(str, arguments), "--json"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, PYTHONPATH=str(ROOT)))
        self.module = module
        self.messages: dict[str, dict] = {}
        self.errors = ""
        self.count = 0
        self.memory: list[tuple[float, int]] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._out, self._err)]
        for reader in self._readers:
            reader.start()

    def _out(self) -> None:
        for line in piped(self.process.stdout):
            message = json.loads(line)
            kind = next(iter(message))
            self.messages[kind] = message if kind in ("pid", "all_reduce") else message[kind]
            self.count += kind == "all_reduce"

    def _err(self) -> None:
        for line in piped(self.process.stderr):
            self.errors = (self.errors + line)[-4000:]

    def wait(self, kind: str, seconds: float) -> dict:
        """Waits for a message of that kind and returns it. Raises SystemExit with the process's standard error."""
        deadline = time.monotonic() + seconds
        while kind not in self.messages:
            if self.process.poll() is not None or time.monotonic() >= deadline:
                raise SystemExit(f"soak: {self.module} does not say {kind!r}:\n{self.errors}")
            time.sleep(0.05)
        return self.messages[kind]

    def measure_memory(self) -> int:
        """Measures its private memory, bytes."""
        try:
            fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        except OSError:
            return 0
        self.memory.append((time.monotonic(), (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")))
        return self.memory[-1][1]

    def grown(self, since: float) -> int:
        """Returns growth since then, bytes: the least of the last three measurements less the most of the first three."""
        settled = [size for when, size in self.memory if when >= since]
        return min(settled[-3:]) - max(settled[:3]) if len(settled) >= 6 else 0

    def finish(self, seconds: float = ENDED) -> int:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.errors += f"it did not end within {seconds:g} s, and was killed\n"
        for reader in self._readers:
            reader.join(5)
        return self.process.returncode


def faults(rng: random.Random) -> str:
    return (f"loss={rng.choice([0.0005, 0.005, 0.02])},dup={rng.choice([0.0, 0.01])},reorder={rng.choice([0.0, 0.02])},"
            f"corrupt={rng.choice([0.0, 0.005])},seed={rng.randrange(1 << 20)}")


def pair(folder: Path, job: str, ports: tuple[int, int], rng: random.Random, seconds: float, size: int) -> list[Program]:
    """Starts two workers of a job."""
    spec, dtype, together = faults(rng), rng.choice(["int32", "float32"]), rng.choice([1, 2, 4])
    window = rng.choice([32, 64, 128])
    common = ["--device", f"memif:{folder}/ports.sock", "--control", folder / "control", "--job", job, "--workers", 2, "--verify",
              "--size", size, "--dtype", dtype, "--in-flight", together, "--window", window, "--fault", spec, "--rto", 0.004,
              "--duration", seconds, "--timeout", 60]
    return [Program("ina.worlds.dpdk.worker", *common, "--worker", i, "--at", port) for i, port in enumerate(ports)]


def soak(minutes: float, seed: int, folder: Path) -> list[str]:
    """Runs the soak test. Returns the errors."""
    rng, errors, start = random.Random(seed), [], time.monotonic()
    end = start + 60 * minutes
    ports = [word for i in range(4) for word in ("--port", f"{i}=memif:{folder}/ports.sock")]
    switch = Program("ina.worlds.dpdk.switch", "--program", ROOT / "p4/switchml.p4", "-D", "VALUES=256", *ports,
                     "--control", folder / "control", "--shards", rng.choice([1, 2]))
    running = [switch]
    try:
        about = switch.wait("pid", 120)
        print(f"switch of {about['shards']} shards, process {about['pid']}", flush=True)
        long = pair(folder, "long", (0, 1), rng, end - time.monotonic(), 1 << 20)
        running += long
        jobs, sums, reported = 0, 0, time.monotonic()
        guests: list[Program] = []
        while True:
            now = time.monotonic()
            if guests and all(guest.process.poll() is not None for guest in guests):
                errors += _finish(guests)
                sums += sum(guest.count for guest in guests) // 2
                running = [program for program in running if program not in guests]
                guests = []
            if not guests and end - now > 15:
                jobs += 1
                guests = pair(folder, f"guest-{jobs}", (2, 3), rng, rng.uniform(5, min(40, end - now - 8)),
                              4 * rng.choice([1, 300, 10_000, 250_000]))
                running += guests
            ended = [program for program in (switch, *long) if program.process.poll() is not None]
            if ended and (switch in ended or now < end - 5):
                errors.append(f"{ended[0].module} ended early:\n{ended[0].errors}")
                break
            if now - reported >= PROGRESS:
                reported = now
                memory = " ".join(f"{program.measure_memory() >> 20}" for program in (switch, *long))
                mbufs = [program.messages.get("all_reduce", {}).get("mbufs", {}) for program in long]
                print(f"{now - start:6.0f} s: {long[0].count} all-reduces of the long job, {sums} of {jobs} others, all right; "
                      f"mbufs of its workers {', '.join(str(m.get('in_use', '-')) for m in mbufs)}; MiB {memory}", flush=True)
            if not guests and len(ended) == 2:
                break
            if now > end + 2 * ENDED:
                errors.append("workers do not end")
                break
            time.sleep(0.2)
        errors += _finish(long) + _finish(guests)
        errors += [f"{p.module} grew by {p.grown(start + SETTLED) >> 10} KiB" for p in (switch, *long)
                   if p.grown(start + SETTLED) > GROWTH]
        switch.process.send_signal(signal.SIGINT)
        errors += _finish([switch])
        print(f"{time.monotonic() - start:.0f} s, {jobs + 1} jobs, {long[0].count + sums} all-reduces verified; the switch: "
              f"{json.dumps(switch.messages.get('summary', {}).get('ports', {}))}", flush=True)
    finally:
        for program in running:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()
    return errors


def _finish(programs: list[Program]) -> list[str]:
    errors = []
    for program in programs:
        if status := program.finish():
            errors.append(f"{program.module} ended with status {status}:\n{program.errors}")
        elif (mbufs := program.messages["summary"]["mbufs"])["in_use"] != mbufs["held"]:
            errors.append(f"{program.module} lost mbufs: {mbufs}")
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=real(0.01, 100_000), default=10.0, help="(default: %(default)g)")
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=0,
                        help="of sizes, faults and windows (default: from the clock)")
    args = parser.parse_args()
    if args.minutes <= 0:
        parser.error(f"--minutes {args.minutes:g}: expected more than 0")
    seed = args.seed or int(time.time())
    print(f"soak of {args.minutes:g} minutes, --seed {seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="ina-soak-") as folder:
            errors = soak(args.minutes, seed, Path(folder))
    except KeyboardInterrupt:
        print("soak: interrupted", file=sys.stderr)
        return 130
    for each in errors:
        print(f"WRONG: {each}", file=sys.stderr)
    print("soak: " + (f"{len(errors)} things wrong" if errors else "all right"), flush=True)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
