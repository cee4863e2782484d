"""BMv2 and the embedded switch on the same program and the same packets, over the same kind of veth pairs, in turn.

Workers behind packet sockets keep a window of packets under way, each distinct, and check every value of every result. The
same controller writes the tables of both switches, BMv2's over P4Runtime. Without root or BMv2 it prints what is missing.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

from bench.common import Figure, Measurement, console
from bench.switch import Native, compiled, header
from ina.aggregation.controller.admission import Controller
from ina.base import paths
from ina.base.native import CData, ffi
from ina.net.namespaces import own_namespace
from ina.net.ports import Port, longest_frame, open_packet
from ina.p4.compiler.build import compile_program
from ina.p4.p4runtime import bmv2
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import SwitchTarget
from ina.worlds.testbed.mininet import missing

WORKERS, TURNS, SECONDS = 4, 5, 0.5
PORTS = range(1, WORKERS + 1)  # BMv2's P4Runtime server takes no replica at port 0
WINDOWS = (8, 32)  # packets of each worker; the better one counts for each switch
MTU = 1500
PROBE = 2000  # packets
VALUES = (32, 64, 128, 256)


@dataclass
class Place:
    """A running switch: ``target`` for the controller, ``far`` ends of PORTS, and its processor time so far, s."""

    target: SwitchTarget
    far: list[Port]
    spent: Callable[[], float]


def processor_time(pid: int) -> float:
    """Returns a process's time in seconds: user and system (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def embedded(program: Path, defines: dict[str, str], folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        switch = stack.enter_context(Switch(compile_program(program, defines=defines).so_path, max_frame=longest_frame(MTU)))
        with own_namespace():
            bmv2.make_interfaces(PORTS, MTU)
            near, far = ([stack.enter_context(open_packet(f"{end}{n}", longest_frame(MTU))) for n in PORTS]
                         for end in ("port", "far"))
        for number, port in zip(PORTS, near, strict=True):
            switch.add_port(number, port.handle)
        switch.start(yields=0, nap=50e-6)  # as in the testbed
        yield Place(switch, far, lambda: time.process_time() - time.thread_time())  # all threads except the workers'
        switch.close()  # before its ports


@contextmanager
def real(program: Path, defines: dict[str, str], folder: Path) -> Iterator[Place]:
    compiled_program = bmv2.compile_bmv2(program, defines)
    with bmv2.Bmv2(PORTS, folder / "bmv2", mtu=MTU) as switch, switch.remote(compiled_program) as remote:
        yield Place(remote, [switch.port(number) for number in PORTS], lambda: processor_time(switch.pid))


KINDS = {"bmv2": real, "embedded": embedded}


def prepare(place: Place, values: int, slots: int, native: Native, ffi_of: FFI) -> tuple[CData, CData]:
    """Prepares the workers of one job. Returns a struct bench, and the memory that it points at."""
    controller = Controller(place.target, 1024)
    job = controller.admit("bench", WORKERS, slots)
    b = ffi_of.new("struct bench *")
    headers = ffi_of.new("uint8_t[]", b"".join(header(controller, job, w, values, PORTS[w]) for w in range(WORKERS)))
    b.header, b.workers, b.values, b.slots = headers, WORKERS, values, slots
    for worker, port in enumerate(place.far):
        b.host[worker] = ffi_of.cast("struct ina_port *", int(ffi.cast("uintptr_t", port.handle)))
    return b, headers


def turn(kind: str, values: int, slots: int, native: Native, ffi_of: FFI, folder: Path) -> tuple[float, float]:
    """Returns packets per second into the switch (as many results come out of it), and its processor time for each, s; zeros
    if a packet was lost with so many under way."""
    defines, rate, spent = {"VALUES": str(values), "SLOTS": "1024"}, float(PROBE), 0.0
    # Each with a new switch, as packets are numbered from 0; the first run gives the second one's length.
    for seconds in (1.0, SECONDS):
        with KINDS[kind](paths.p4_dir() / "switchml.p4", defines, folder) as place:
            b, _headers = prepare(place, values, slots, native, ffi_of)
            b.rounds = max(2, round(seconds * rate) // (WORKERS * slots))
            before = place.spent()
            lost = native.exchange(b)
            spent = (place.spent() - before) / max(1, b.packets)
            if lost < 0 or b.wrong:
                raise SystemExit(f"bmv2 benchmark: {b.wrong} of {b.results} results wrong, {b.packets} packets sent")
            if lost:
                return 0.0, 0.0
            rate = b.packets / b.elapsed_ps * 1e12
    return rate, spent


def measure() -> list[Measurement]:
    if reason := missing("bmv2"):
        console.print(f"bmv2: not measured: {reason}", highlight=False)
        return []
    result = Measurement(
        "bmv2: BMv2 {simple_switch_grpc} (p4c {p4c-bm2-ss}) and the embedded switch over veth: ".format(**bmv2.versions())
        + f"p4/switchml.p4, {WORKERS} workers",
        ["values", "bmv2 kpps", "window", "us", "embedded kpps", "window", "us", "us ratio", "ratio"],
        "embedded over BMv2, packets into the switch without loss (as many results come out); us: its processor time for each",
        "15 and more where BMv2 is an optimised build without logging",
    )
    with tempfile.TemporaryDirectory() as folder:
        ffi_of, native = compiled(Path(folder), "bmv2")
        for values in VALUES:
            turns: dict[tuple[str, int], list[tuple[float, float]]] = {(k, slots): [] for k in KINDS for slots in WINDOWS}
            for _ in range(TURNS):
                for (kind, slots), rates in turns.items():
                    rates.append(turn(kind, values, slots, native, ffi_of, Path(folder)))
            rows = {}
            for kind in KINDS:
                medians = {slots: [Figure.of(figures) for figures in zip(*turns[kind, slots], strict=True)]
                           for slots in WINDOWS}
                slots = max(WINDOWS, key=lambda slots: medians[slots][0])
                rows[kind] = (1e-3 * medians[slots][0], slots, 1e6 * medians[slots][1])
            slow, fast = rows["bmv2"], rows["embedded"]
            result.add(values, *slow, *fast, slow[2] / fast[2], fast[0] / slow[0])
    return [result]
