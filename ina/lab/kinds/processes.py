"""All-reduces by processes, in wall-clock time: on this machine over shared memory, or in the hosts of a real network."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from ina.aggregation import protocols
from ina.aggregation.controller.client import Client, start_server
from ina.lab.experiment_keys import ETHERNET, AllReduce
from ina.lab.kinds import testbed, virtual_network
from ina.lab.kinds.allreduce import ring_model
from ina.lab.kinds.reducer import Specification
from ina.lab.results.record import Reduction
from ina.lab.training.launch import JobFailed, Place, conditions, end, here, piped
from ina.worlds.testbed.mininet import Network

START = 90.0  # seconds for all workers to be there


def reduce(config: AllReduce) -> list[Reduction]:
    """Runs all jobs at once, each with one tensor; every worker checks its sum.

    Raises JobFailed: a worker failed, or is silent; ConfigError: there is no such network here.
    """
    defines = {"VALUES": str(config.values), "SLOTS": str(max(virtual_network.LEAST_SLOTS, config.pool))}
    faults = {"duplicate": config.duplicate, "reorder": config.reorder, "corrupt": config.corrupt,
              "duplicate_delay": 10e-3, "reorder_delay": 2e-3, "seed": config.seed}  # fmt: skip
    base = Specification("", "shm", 0, 0, config.workers, config.window, config.elements, config.dtype, config.seed,
                         config.rto_min, config.rto_max, config.timeout)  # fmt: skip
    if config.world == "local":
        faults["loss"] = config.loss  # a worker's port is its wire, both ways
        process = start_server(config.program_path, defines)
        try:
            return _run(config, replace(base, switch=process.name), faults, here(), None)
        finally:
            process.close()
    place = virtual_network.place(config)
    hosts = [host for job in place.hosts(config) for host in job]
    links = tuple(replace(link, loss=config.loss or link.loss) for link in place.topology.links)
    mtu = max(place.topology.mtu, protocols.frame_bytes(config.protocol, config.values) - ETHERNET)
    topology = replace(place.topology, links=links, mtu=mtu)
    with testbed.opened(Network(topology, config.program_path, defines, seed=config.seed, kind=config.switch)) as network:
        ranks = testbed.place(network, hosts)
        return _run(config, replace(base, switch=network.socket, port="udp"), faults, ranks, network)


def _run(config: AllReduce, base: Specification, faults: dict, place: Place, network: Network | None) -> list[Reduction]:
    specifications = []
    for index in range(config.jobs * config.workers):
        job, worker = divmod(index, config.workers)
        seeded = {**faults, "seed": faults["seed"] * 1024 + index} if any(
            faults.get(key) for key in ("loss", "duplicate", "reorder", "corrupt")) else None  # fmt: skip
        specifications.append(replace(base, job=job, worker=worker, faults=seeded))
    with _start(specifications, place) as crew:
        crew.answers(START, "ready")
        meter = testbed.Meter(network) if network else None
        if meter:
            meter.start()
        crew.go_on()
        answers = crew.answers(config.timeout + 30, "done")
        links = meter.stop()["links"] if meter else {}
        counters = _counters(base.switch)
        crew.go_on()
        crew.ended(30)
    began = min(answer["began"] for answer in answers)
    seconds = max(answer["ended"] for answer in answers) - began
    busiest, load, use = _busiest(links, seconds)
    ring = ring_model(config, 4 * config.elements) if config.world == "testbed" and config.rate else None
    reductions = []
    for job in range(config.jobs):
        own = answers[job * config.workers : (job + 1) * config.workers]
        reductions.append(Reduction(
            job=f"job {job}", workers=config.workers, bytes=4 * config.elements,
            seconds=max(answer["ended"] for answer in own) - min(answer["began"] for answer in own),
            busiest_link=busiest, busiest_bytes=load, link_use=use,
            ring_model_seconds=ring if config.topology == "star" else None,
            stats={"workers": {key: sum(answer["stats"][key] for answer in own) for key in own[0]["stats"]},
                   "network": links, "drops": counters},
        ))  # fmt: skip
    return reductions


def _busiest(links: dict[str, dict], seconds: float) -> tuple[str, int, float | None]:
    """Returns the direction of a link that was busy longest: name, bytes, share of the time."""
    ways = [(8 * link[f"{way}_bytes"] / (link["rate"] or 1e15), f"{name} {way}", link[f"{way}_bytes"], link["rate"])
            for name, link in links.items() for way in ("up", "down")]  # fmt: skip
    if not ways:
        return "", 0, None
    busy, name, load, rate = max(ways)
    return name, load, busy / seconds if rate else None


def _counters(switch: str) -> dict:
    client = Client(switch)
    try:
        return client.counters()["program"]
    finally:
        client.close()


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
            self._processes[number].wait(5)
        raise JobFailed(conditions("process", {number: self._processes[number]}, self._logs))


@contextmanager
def _start(specifications: list[Specification], place: Place) -> Iterator[Crew]:
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{rank}.log" for rank in range(len(specifications))]
        try:
            for rank, (spec, log) in enumerate(zip(specifications, logs, strict=True)):
                with log.open("wb") as errors:
                    command = place.command(rank, [sys.executable, "-m", "ina.lab.kinds.reducer", json.dumps(asdict(spec))])
                    environment = {**os.environ, **place.environment(rank), "INA_RUNNER": str(os.getpid())}
                    processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True,
                                                      stdout=subprocess.PIPE, stderr=errors))  # fmt: skip
                place.started(processes[-1].pid)
            yield Crew(processes, logs)
        finally:
            end(processes)
            for process in processes:
                for stream in (process.stdin, process.stdout):
                    piped(stream).close()
