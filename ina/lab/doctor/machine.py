"""Examination of this machine, and of network interfaces, for ``ina doctor``: fit for a run, and what will limit it?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import numpy as np

from ina.aggregation import port_kinds, protocols
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.backend.settings import Settings, sources
from ina.base.plurals import counted
from ina.lab.doctor import reachability
from ina.lab.processors import ticks
from ina.worlds.dpdk import requirements as fast_path
from ina.worlds.dpdk.requirements import BAD, FACT, GOOD, WARNING, read
from ina.worlds.testbed.mininet import missing

TORCH = (2, 7), (2, 15)  # oldest and newest release that the back end was tried with
ETHERNET = 14  # bytes of a frame before its IP packet
LARGER = "a larger MTU on the NICs of both hosts and on the switch's ports"
LOST = 1e-4  # share of lost datagrams up to which a run is slow, not hopeless
ELEMENTS = 1 << 20  # of the all-reduce that is timed, float32
SIZE = ELEMENTS * np.dtype(np.float32).itemsize
ROUNDS = 20


@dataclass(frozen=True)
class Finding:
    """One result of a check. ``verdict``: good, warning (it runs, but could run better), bad (it does not run) or fact;
    ``advice``: what to do."""

    verdict: str
    what: str
    found: str
    advice: str = ""


def _judged(good: bool, what: str, found: str, advice: str, otherwise: str = WARNING) -> Finding:
    """Returns a good finding, or one that is ``otherwise``, with advice."""
    return Finding(GOOD, what, found) if good else Finding(otherwise, what, found, advice)


# ---- the machine


def settings(options: argparse.Namespace) -> Iterator[Finding]:
    """Settings from the environment and ina.toml; defaults for ``options`` that are not given."""
    defaults = {"protocol": protocols.DEFAULT, "values": Settings.values, "slots": Settings.slots, "port": port_kinds.DEFAULT}
    own: dict[str, object] = {}
    try:
        configured, given = Settings.read(), sources()
        own = {key: getattr(configured, key) for key in defaults if given.is_set(key)}
    except ValueError as error:
        yield Finding(BAD, "settings", str(error), "no group can be made as long as the environment or the file says so")
    if own:
        yield Finding(FACT, "settings", ", ".join(f"{key} {value}" for key, value in own.items()))
    if own.get("port", port_kinds.DEFAULT) not in port_kinds.made_kinds():
        del own["port"]  # its trials are ina doctor --target dpdk, and ina-dpdk-worker
    for key, value in {**defaults, **own}.items():
        if getattr(options, key) is None:
            setattr(options, key, value)


def software() -> Iterator[Finding]:
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler):
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60).stdout
        yield Finding(GOOD, "C compiler", version.splitlines()[0] if version else compiler)
    else:
        yield Finding(BAD, "C compiler", f"there is no {compiler}", "install gcc or clang: programs are compiled to C")
    if util.find_spec("torch") is None:
        yield Finding(WARNING, "torch", "not installed", "pip install 'ina[torch]', or do without the back end")
        return
    version = metadata.version("torch")
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    versions = f"{'.'.join(map(str, TORCH[0]))} to {'.'.join(map(str, TORCH[1]))}"
    yield _judged(TORCH[0] <= number <= TORCH[1], "torch", version, f"the back end was tried with {versions}")
    if not any(point.value.startswith("ina.") for point in metadata.entry_points(group="torch.backends")):
        advice = "install the package, or call ina.backend.register()"
        yield Finding(WARNING, "back end", "torch does not find it by itself", advice)


def processors(workers: int) -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0))
    summary = f"{count} for {counted(workers, 'worker')} and a switch"
    yield _judged(count > workers, "processors", summary, "they take turns: times are the machine's, not the network's")
    if load := os.getloadavg()[0] / count:
        yield _judged(load < 0.5, "load", f"{load:.2f} per processor", "something else is running: measure when it is not")
    governors = {read(f"/sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor") for n in os.sched_getaffinity(0)} - {""}
    if governors:
        yield _judged(governors == {"performance"}, "frequency governor", ", ".join(sorted(governors)),
                      "figures will vary; 'performance' keeps them steady")


def clock() -> Iterator[Finding]:
    source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    costs, calls = [], 2000
    for _ in range(10):
        began = time.perf_counter_ns()
        for _ in range(calls):
            time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        costs.append((time.perf_counter_ns() - began) / calls)
    cost = min(costs)
    yield _judged(cost < 500, "clock", f"{source or 'unknown source'}, {cost:.0f} ns a call from Python",
                  "a clock that needs a system call slows every batch of packets; prefer tsc")


def program(protocol: str, values: int, slots: int) -> Iterator[Finding]:
    """Checks that the protocol's program compiles, and how many jobs have room."""
    path, began = protocols.program(protocol), time.monotonic()
    with closing(_switch(protocol, values, slots)) as process:
        try:
            ready = process.wait_ready()
            yield Finding(GOOD, "program", f"{path.name}, {values} values, ready in {time.monotonic() - began:.1f} s")
            jobs = ready["free_slots"] // slots
            room = f"room for {counted(jobs, 'process group')} of {counted(slots, 'slot')} each"
            yield _judged(jobs > 1, "slots", room, "each further group goes to Gloo: fewer INA_SLOTS, or more SLOTS")
        except ControlError as error:
            yield Finding(BAD, "program", f"{path}: {error}", "ina compile shows where")


def testbed() -> Iterator[Finding]:
    lacking = missing()
    yield _judged(not lacking, "testbed", lacking or "root and Mininet are there", "the local world needs none of it")


# ---- a network interface


def interface(name: str, frame: int, values: int) -> Iterator[Finding]:
    """Checks a network interface. ``frame``: longest frame, bytes from the Ethernet header on, with ``values`` elements."""
    place = f"/sys/class/net/{name}"
    if not Path(place).is_dir():
        others = ", ".join(sorted(path.name for path in Path("/sys/class/net").iterdir()))
        yield Finding(BAD, name, "there is no such interface", f"there are: {others}")
        return
    state = read(f"{place}/operstate")
    yield _judged(state in ("up", "unknown"), f"{name} link", state, f"ip link set {name} up; check the cable", BAD)
    mtu = int(read(f"{place}/mtu"))
    yield _judged(mtu >= frame - 14, f"{name} MTU", f"{mtu}, packets need {frame - 14}",
                  f"ip link set {name} mtu {frame - 14}, or fewer INA_VALUES", BAD)
    speed = read(f"{place}/speed")
    if speed.lstrip("-").isdigit() and int(speed) > 0:
        rate = int(speed) * 1e6 * values / (8 * (frame + ETHERNET_OVERHEAD))
        yield Finding(FACT, f"{name} rate", f"{int(speed) / 1000:g} Gb/s: at most {rate / 1e6:.0f} M elements/s")
    if shutil.which("ethtool"):
        features = subprocess.run(["ethtool", "-k", name], capture_output=True, text=True, timeout=60).stdout
        enabled = [feature for feature in ("generic-receive-offload", "large-receive-offload", "tcp-segmentation-offload")
                   if re.search(rf"^{feature}: on", features, re.M)]
        yield _judged(not enabled, f"{name} offloads", f"{', '.join(enabled)} on" if enabled else "off",
                      f"a switch on it may see frames longer than the wire's: ethtool -K {name} gro off lro off tso off")
    for key in ("rmem_max", "wmem_max"):
        size = read(f"/proc/sys/net/core/{key}")
        if size and int(size) < 1 << 20:
            yield Finding(WARNING, key, f"{size} bytes", f"bursts overflow a socket's buffer: sysctl -w net.core.{key}=4194304")


# ---- paths to other hosts


def peers(addresses: list[str], frame: int, count: int) -> Iterator[Finding]:
    """Round trip and loss to every host's agent, with datagrams as long as the run's."""
    size = frame - ETHERNET - 28  # IPv4 and UDP
    for ip in addresses:
        single = reachability.probe(ip, min(count, 200), size)
        if single.error:
            yield Finding(BAD, ip, f"{size} bytes: {single.error}", LARGER)
            continue
        if not single.answered:
            small = reachability.probe(ip, 20, reachability.HEAD.size)
            if small.answered:
                yield Finding(BAD, ip, f"short datagrams are answered, those of {size} bytes are not", LARGER)
                continue
            mac = reachability.neighbour(ip)
            reason = f"its MAC address is known, {mac}: is it right, and forwarded?" if mac else (
                "its MAC address is not known: ip neigh replace ..., or broadcasts do not get through")
            advice = f"is the agent there (ina doctor --target tofino --agent 600)? {reason}"
            yield Finding(BAD, ip, f"no answer to {single.sent} probes", advice)
            continue
        burst = reachability.probe(ip, count, size, burst=32)
        median, worst = single.quantile(0.5), single.quantile(0.99)
        yield Finding(GOOD, f"{ip} round trip", f"{median * 1e6:.0f} us, 99 % within {worst * 1e6:.0f} us ({size} bytes)")
        lost, sent = single.sent - single.answered + burst.sent - burst.answered, single.sent + burst.sent
        verdict = GOOD if not lost else WARNING if lost <= sent * LOST else BAD
        yield Finding(verdict, f"{ip} loss", f"{lost} of {sent} datagrams", "" if not lost else
                      "FEC and cable (ethtool -S: symbol and CRC errors), or a host that does not keep up")


# ---- a trial run


def _switch(protocol: str, values: int, slots: int) -> SwitchProcess:
    sizes = {"VALUES": str(values), "SLOTS": str(max(4096, slots))}
    return SwitchProcess(protocols.program(protocol), sizes, job_slots=slots)


def trial(protocol: str, workers: int, values: int, slots: int, port: str) -> Iterator[Finding]:
    """Runs a real job of ``workers`` threads and a switch process: round trip, goodput, and bottleneck."""
    with ExitStack() as stack:
        process = stack.enter_context(closing(_switch(protocol, values, slots)))
        try:
            process.wait_ready()
            clients = [stack.enter_context(closing(Client(process.name))) for _ in range(workers)]
            for index, client in enumerate(clients):
                client.join("doctor", index)
                client.admit("doctor", workers)
            endpoints = [stack.enter_context(closing(_endpoint(client, index, port))) for index, client in enumerate(clients)]
            small = _all_reduce_seconds(endpoints, lambda i: np.ones(1, np.float32), ROUNDS)
            busy, began = ticks()[0], time.monotonic()
            large = _all_reduce_seconds(endpoints, lambda i: np.full(ELEMENTS, i, np.float32), ROUNDS)
            seconds, spent = (ticks()[0] - busy) / os.sysconf("SC_CLK_TCK"), time.monotonic() - began
            stats = [endpoint.stats for endpoint in endpoints]
        except (ControlError, OSError, RuntimeError) as error:
            yield Finding(BAD, "all-reduce", str(error))
            return
    yield Finding(FACT, "4-byte all-reduce", f"{small * 1e6:.0f} us over {port}")
    goodput = f"{8 * SIZE / large / 1e9:.1f} Gb/s for each worker"
    yield Finding(FACT, f"{SIZE >> 20} MiB all-reduce", f"{large * 1e3:.2f} ms: {goodput}")
    resent = sum(each["retransmissions"] for each in stats) / max(1, sum(each["tx_packets"] for each in stats))
    yield _judged(resent < 0.001, "sent again", f"{resent:.2%} of the packets",
                  "lost, or later than the time-out: another process takes the processors")
    count = len(os.sched_getaffinity(0))
    use = seconds / spent / count
    yield Finding(FACT, "bound by", f"{'the processors' if use > 0.85 else 'waiting for each other'}: {use:.0%} of {count} busy")


def _endpoint(client: Client, index: int, kind: str) -> Endpoint:
    attachment = client.attach("doctor", index, kind)
    try:
        return Endpoint(attachment.config(rto_min=0.1, timeout=30.0), open_worker_port(attachment, None), client.fileno())
    finally:
        for fd in attachment.fds:
            os.close(fd)


def _all_reduce_seconds(endpoints: list[Endpoint], make: Callable[[int], np.ndarray], rounds: int) -> float:
    """Returns the median seconds of an all-reduce by all endpoints; checks the sum."""
    arrays = [make(i) for i in range(len(endpoints))]
    expected = sum(float(array[0]) for array in arrays)
    times: list[float] = []
    failures: list[Exception] = []
    barrier = threading.Barrier(len(endpoints))

    def work(index: int) -> None:
        try:
            out = np.empty_like(arrays[index])
            for _ in range(rounds):
                barrier.wait(30)
                began = time.monotonic()
                endpoints[index].run(arrays[index], out, timeout=60.0)
                if index == 0:
                    times.append(time.monotonic() - began)
                if abs(out[0] - expected) > 1e-3 * max(1.0, expected) or abs(out[-1] - out[0]) > 1e-3:
                    raise RuntimeError(f"worker {index}: the sum is {out[0]}, not {expected}")
        except Exception as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(endpoints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(str(failures[0])) from failures[0]
    return sorted(times)[len(times) // 2]


# ---- the command


def _wrong(options: argparse.Namespace) -> str:
    if options.target != "tofino" and (options.peer or options.agent is not None):
        return "--peer and --agent are for --target tofino"
    if options.slots and options.slots & (options.slots - 1):
        return f"--slots {options.slots}: expected a power of two"
    if options.target == "tofino" and not (options.peer or options.interface or options.agent is not None):
        return "--target tofino: which --interface, and which --peer (or --agent SECONDS to answer)?"
    return ""


def examine(options: argparse.Namespace) -> Iterator[Finding]:
    yield from settings(options)
    frame = protocols.frame_bytes(options.protocol, options.values)
    if options.target == "dpdk":
        yield from processors(options.workers)
        yield from (Finding(*finding) for finding in fast_path.examine())
    elif not options.target:
        yield from software()
        yield from processors(options.workers)
        yield from clock()
        yield from testbed()
    for name in options.interface:
        yield from interface(name, frame, options.values)
    if options.target == "tofino":
        yield from peers(options.peer, frame, options.count)
    if options.target:
        return
    yield from program(options.protocol, options.values, options.slots)
    if not options.quick:
        yield from trial(options.protocol, options.workers, options.values, options.slots, options.port)


def main(options: argparse.Namespace) -> int:
    if wrong := _wrong(options):
        print(f"ina: {wrong}", file=sys.stderr)
        return 2
    if options.agent is not None:
        print(f"answering probes at UDP port {reachability.PORT} for {options.agent:g} s", flush=True)
        try:
            print(f"{reachability.answer(options.agent)} probes answered")
        except OSError as error:
            print(f"ina: UDP port {reachability.PORT}: {error.strerror}", file=sys.stderr)
            return 1
        return 0
    return show(examine(options), options.json)


def show(findings: Iterable[Finding], as_json: bool) -> int:
    """Prints findings as they come. Returns the exit status; 1: there are bad ones."""
    shown = []
    colours = {GOOD: "green", WARNING: "yellow", BAD: "red", FACT: "blue"}
    if not as_json:
        from rich.console import Console
        from rich.markup import escape

        console = Console(highlight=False)
    for finding in findings:
        shown.append(finding)
        if not as_json:
            text = escape(f"{finding.what:18} {finding.found}")  # names of jobs, for instance, are others'
            console.print(f"[{colours[finding.verdict]}]{finding.verdict:8}[/] {text}", soft_wrap=True)
            if finding.advice:
                console.print(f"{'':27} [dim]-> {escape(finding.advice)}[/]", soft_wrap=True)
    if as_json:
        json.dump([dataclasses.asdict(finding) for finding in shown], sys.stdout, indent=1)
        print()
    return int(any(finding.verdict == BAD for finding in shown))
