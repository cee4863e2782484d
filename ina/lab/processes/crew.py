"""Workers of all-reduces in processes of their own, in wall-clock time: their start, and what they measure."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ina.aggregation.controller.client import Client
from ina.lab.processes.reducer import Specification
from ina.lab.processes.testbed import Meter
from ina.lab.training.launch import JobFailed, Place, conditions, end, piped
from ina.worlds.testbed.mininet import Network

START = 180.0  # seconds for all workers to be there
ENDED = 60.0  # seconds for a process that has said its last word to end


@dataclass(frozen=True)
class Measurements:
    """Measurements of all workers. ``answers``: of each, its begin, its end and its counters; ``links``: differences of their
    counters, by name; ``counters``: of the switch's program; ``incidents``: links that were down or slow
    (ina/aggregation/controller/link_recovery.py), ``began``: time.time() of the start."""

    answers: list[dict]
    links: dict[str, dict]
    counters: dict[str, int]
    incidents: list[dict]
    began: float

    def busiest(self) -> tuple[str, int, float | None]:
        """Returns the direction of a link that was busy longest: name, bytes, share of the time."""
        seconds = max(answer["ended"] for answer in self.answers) - min(answer["began"] for answer in self.answers)
        ways = [(8 * link[f"{way}_bytes"] / (link["rate"] or 1e15), f"{name} {way}", link[f"{way}_bytes"], link["rate"])
                for name, link in self.links.items() for way in ("up", "down")]
        if not ways:
            return "", 0, None
        busy, name, load, rate = max(ways)
        return name, load, busy / seconds if rate else None


def work(specifications: Sequence[Specification], place: Place, network: Network | None, timeout: float,
         link_events: Sequence[str] = ()) -> Measurements:
    """Starts the workers, has them work at once, and waits until they have ended. ``network``: whose links they use;
    ``link_events``: of these links.

    Raises JobFailed: a worker failed, or is silent after ``timeout`` seconds.
    """
    with _start(specifications, place) as crew:
        crew.answers(START, "ready")
        meter = Meter(network)
        meter.start()
        with closing(Client(specifications[0].switch)) as client:
            began = time.time()
            if link_events:
                client.change_links(link_events)
            crew.go_on()
            answers = crew.answers(timeout, "done")
            links = meter.stop()["links"]
            counters, incidents = client.counters()["program"], client.ask("switches")["links"]
        crew.go_on()
        crew.ended(ENDED)
    return Measurements(answers, links, counters, incidents, began)


class Crew:
    """Processes that work in step: each prints a line, then all get a line and go on."""

    def __init__(self, processes: list[subprocess.Popen[str]], logs: list[Path]) -> None:
        self._processes, self._logs = processes, logs

    def answers(self, seconds: float, state: str) -> list[dict]:
        """Returns the next line of each, from JSON. Raises JobFailed if one is missing after ``seconds``."""
        deadline = time.monotonic() + seconds
        lines: dict[int, dict] = {}
        with selectors.DefaultSelector() as selector:
            for number, process in enumerate(self._processes):
                selector.register(piped(process.stdout), selectors.EVENT_READ, number)
            while len(lines) < len(self._processes):
                events = selector.select(max(0.0, deadline - time.monotonic()))
                if not events:
                    silent = [n for n in range(len(self._processes)) if n not in lines]
                    parts = conditions("process", {n: self._processes[n] for n in silent}, self._logs)
                    raise JobFailed(f"waited {seconds:g} s for processes {', '.join(map(str, silent))} to be {state}:\n{parts}")
                for key, _ in events:
                    stream = piped(self._processes[key.data].stdout)
                    line = stream.readline()
                    if not line:
                        self._failed(key.data)
                    lines[key.data] = json.loads(line)
                    selector.unregister(stream)
        return [lines[number] for number in range(len(self._processes))]

    def go_on(self) -> None:
        for process in self._processes:
            stdin = piped(process.stdin)
            stdin.write("\n")
            stdin.flush()

    def ended(self, seconds: float) -> None:
        """Waits until all have ended well, up to ``seconds``. Raises JobFailed."""
        deadline = time.monotonic() + seconds
        for number, process in enumerate(self._processes):
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise JobFailed(f"process {number} did not end within {seconds:g} s") from None
            if status:
                self._failed(number)

    def _failed(self, number: int) -> None:
        with suppress(subprocess.TimeoutExpired):  # it may have closed its output, and still run
            self._processes[number].wait(ENDED)
        raise JobFailed(conditions("process", {number: self._processes[number]}, self._logs))


@contextmanager
def _start(specifications: Sequence[Specification], place: Place) -> Iterator[Crew]:
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{rank}.log" for rank in range(len(specifications))]
        try:
            for rank, (spec, log) in enumerate(zip(specifications, logs, strict=True)):
                if spec.moves:
                    store = Path(folder) / f"job{spec.job}"
                    store.mkdir(exist_ok=True)
                    spec = replace(spec, store=str(store))
                with log.open("wb") as errors:
                    command = place.command(rank, [sys.executable, "-m", "ina.lab.processes.reducer", json.dumps(asdict(spec))])
                    environment = {**os.environ, **place.environment(rank), "INA_RUNNER": str(os.getpid())}
                    processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True,
                                                      stdout=subprocess.PIPE, stderr=errors))
                place.started(processes[-1].pid)
            yield Crew(processes, logs)
        finally:
            end(processes)
            for process in processes:
                for stream in (process.stdin, process.stdout):
                    piped(stream).close()
