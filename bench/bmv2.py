"""BMv2 and the embedded switch on the same program and the same packets, over the same kind of veth pairs, in turn.

Workers behind packet sockets keep a window of packets under way, each distinct, and check every value of every result. Both
switches are given their tables by the same controller, BMv2 over P4Runtime. Needs root and BMv2; says so otherwise.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.common import Measurement, console
from bench.switch import compiled, header
from ina import paths
from ina._native import ffi
from ina.compiler.build import compile_program
from ina.control.controller import Controller
from ina.p4runtime import bmv2
from ina.switch import Switch
from ina.transport.namespaces import own_namespace
from ina.transport.ports import open_packet
from topologies.mininet import missing

WORKERS, TURNS, SECONDS = 4, 5, 1.0
PORTS = range(1, WORKERS + 1)  # BMv2's P4Runtime server takes no replica at port 0
WINDOWS = (8, 32)  # packets of each worker; each switch has the one that suits it better
MTU = 1500
PROBE = 2000  # packets


@contextmanager
def embedded(program: Path, defines: dict[str, str], folder: Path) -> Iterator[tuple[object, list]]:
    """A target for the controller, and the far ends of PORTS."""
    with ExitStack() as stack:
        switch = stack.enter_context(Switch(compile_program(program, defines=defines).so_path, max_frame=MTU + bmv2.HEADROOM))
        with own_namespace():
            bmv2.make_interfaces(PORTS, MTU)
            near, far = ([stack.enter_context(open_packet(f"{end}{n}", MTU + bmv2.HEADROOM)) for n in PORTS]
                         for end in ("port", "far"))  # fmt: skip
        for number, port in zip(PORTS, near, strict=True):
            switch.add_port(number, port.handle)
        switch.start(yields=0, nap=50e-6)  # as in the testbed
        yield switch, far
        switch.close()  # before its ports


@contextmanager
def real(program: Path, defines: dict[str, str], folder: Path) -> Iterator[tuple[object, list]]:
    """The same with BMv2."""
    made = bmv2.compile_bmv2(program, defines)
    with bmv2.Bmv2(PORTS, folder / "bmv2", mtu=MTU) as switch, switch.remote(made) as remote:
        yield remote, [switch.port(number) for number in PORTS]


KINDS = {"bmv2": real, "embedded": embedded}


class Bench:
    """One switch with one job, whose workers `turn` lets exchange."""

    def __init__(self, target: object, far: list, values: int, slots: int, native: object, ffi_of: object):
        self._native, self._slots = native, slots
        controller = Controller(target, 1024)
        job = controller.admit("bench", WORKERS, slots)
        self._b = b = ffi_of.new("struct bench *")
        self._headers = ffi_of.new("uint8_t[]", b"".join(header(controller, job, w, values, PORTS[w]) for w in range(WORKERS)))
        b.header, b.workers, b.values, b.slots = self._headers, WORKERS, values, slots
        for worker, port in enumerate(far):
            b.host[worker] = ffi_of.cast("struct ina_port *", int(ffi.cast("uintptr_t", port.handle)))

    def turn(self, packets: int) -> float:
        """Packets per second into the switch; as many come out of it. 0: one of them was lost."""
        b = self._b
        b.rounds = max(2, packets // (WORKERS * self._slots))
        lost = self._native.exchange(b)
        if lost < 0 or b.wrong:
            raise SystemExit(f"bmv2 benchmark: {b.wrong} of {b.results} results wrong, {b.packets} packets sent")
        return 0.0 if lost else b.packets / b.elapsed_ps * 1e12


def rate(kind: str, values: int, slots: int, native: object, ffi_of: object, folder: Path) -> float:
    """Packets per second of one turn; 0: with so many packets under way one was lost."""
    defines, found = {"VALUES": str(values), "SLOTS": "1024"}, float(PROBE)
    for seconds in (1.0, SECONDS):  # of a switch each: packets are numbered from 0, and the first says how many the second needs
        with KINDS[kind](paths.p4_dir() / "switchml.p4", defines, folder) as (target, far):
            found = Bench(target, far, values, slots, native, ffi_of).turn(round(seconds * found))
        if not found:
            break
    return found


def measure() -> list[Measurement]:
    if reason := missing() or bmv2.missing():
        console.print(f"bmv2: not measured: {reason}", highlight=False)
        return []
    said = bmv2.versions()
    result = Measurement(
        "bmv2: BMv2 {simple_switch_grpc} (p4c {p4c-bm2-ss}) and the embedded switch over veth: ".format(**said)
        + f"p4/switchml.p4, {WORKERS} workers",
        ["values", "bmv2 kpps", "window", "embedded kpps", "window", "ratio"],
        "embedded over BMv2, packets into the switch without loss; as many results come out",
        "15 and more where BMv2 is an optimised build without logging",
    )
    with tempfile.TemporaryDirectory() as folder:
        ffi_of, native = compiled(Path(folder), "bmv2")
        for values in (32, 64, 128, 256):
            turns = {(kind, slots): [] for kind in KINDS for slots in WINDOWS}
            for _ in range(TURNS):
                for (kind, slots), rates in turns.items():
                    rates.append(1e-3 * rate(kind, values, slots, native, ffi_of, Path(folder)))
            row: list[object] = [values]
            for kind in KINDS:
                row += max((statistics.median(turns[kind, slots]), slots) for slots in WINDOWS)
            result.add(*row, row[3] / row[1])  # type: ignore[operator]
    return [result]
