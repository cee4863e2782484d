"""The compiled switch in memory on one core: distinct packets parsed, aggregated, replicated and verified.

Every packet of every worker is different, goes through a port in memory, the runtime and the compiled p4/switchml.p4, and
every value of every replica is checked. Only the switch's side (ports, runtime, program) is timed, in processor time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np
from cffi import FFI

from bench.common import Figure, Measurement, declared, shared_object
from ina.aggregation.controller.admission import Controller, Job
from ina.aggregation.worker.config import HEADERS, WorkerConfig
from ina.aggregation.worker.worker import Worker
from ina.base import paths
from ina.base.native import CData, ffi, lib
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch

WORKERS, SLOTS, BATCH, RUNS = 4, 64, 32, 5
PACKETS = 100_000  # of a run; they are numbered from 0, so each run needs a new switch


class Native(Protocol):
    """bench/switch.c."""

    def run(self, b: CData) -> int: ...

    def exchange(self, b: CData) -> int: ...

    def limit(self, b: CData, into: CData, rows: CData, out: CData) -> int: ...


def compiled(folder: Path, name: str = "switch") -> tuple[FFI, Native]:
    """Compiles bench/switch.c, or a file that includes it. Returns its declarations and the shared object."""
    return shared_object(Path(__file__).with_name(f"{name}.c"), folder, f"""
        struct ina_switch; struct ina_packet; struct ina_port;
        {declared("bench", Path(__file__).with_suffix(".c"))}
        int run(struct bench *b); int exchange(struct bench *b);
        uint64_t limit(const struct bench *b, const uint32_t *in, uint32_t *rows, uint32_t *out);
    """)


def header(controller: Controller, job: Job, worker: int, values: int, port: int) -> bytes:
    """Attaches a worker at a port of the switch. Returns its packets' headers, Ethernet to exponents, slot and tsi 0."""
    address = controller.attach(job, worker, port).address
    sender = Worker(WorkerConfig(worker=worker, workers=WORKERS, job=job.number, life=job.life, slots=1,
                                 values=values, address=address))
    sender.submit(np.zeros(1, np.int32))
    return sender.frames_to_send(0)[0][:HEADERS]


def one(values: int, bench: FFI, native: Native) -> tuple[float, float]:
    """Returns packets per second into the switch (as many come out of it), and those of the hand-written loop."""
    program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values), "SLOTS": str(SLOTS)})
    b = bench.new("struct bench *")
    with Switch(program.so_path) as switch:
        controller = Controller(switch, SLOTS)
        job = controller.admit("bench", WORKERS, SLOTS)
        pairs = []
        for worker in range(WORKERS):
            pair = ffi.new("struct ina_port *[2]")
            if error := lib.ina_port_mem_pair(SLOTS, HEADERS + 4 * values, pair):
                raise OSError(-error, f"memory port of {SLOTS} frames")
            pairs.append(pair)
            switch.add_port(worker, pair[0])
            b.port[worker] = bench.cast("struct ina_port *", int(ffi.cast("uintptr_t", pair[0])))
            b.host[worker] = bench.cast("struct ina_port *", int(ffi.cast("uintptr_t", pair[1])))
        headers = bench.new("uint8_t[]", b"".join(header(controller, job, w, values, w) for w in range(WORKERS)))
        b.sw = bench.cast("struct ina_switch *", int(ffi.cast("uintptr_t", switch.pointer)))
        b.input = bench.cast("void *", int(ffi.cast("uintptr_t", ffi.addressof(lib, "ina_switch_input"))))
        b.header, b.workers, b.values, b.slots, b.batch = headers, WORKERS, values, SLOTS, BATCH
        b.rounds = max(8, PACKETS * 64 // max(64, values) // (WORKERS * SLOTS))
        ended_well = native.run(b) == 0
        for worker, pair in enumerate(pairs):
            switch.remove_port(worker)
            lib.ina_port_close(pair[0])
            lib.ina_port_close(pair[1])
    if not ended_well or b.wrong or b.results != b.packets or not b.packets:
        raise SystemExit(f"switch benchmark: {b.wrong} of {b.results} results wrong, {b.packets} packets sent")
    arrays = [np.zeros(n * SLOTS * values, np.uint32) for n in (WORKERS, 1, WORKERS)]
    bare = native.limit(b, *(bench.cast("uint32_t *", array.ctypes.data) for array in arrays))
    return b.packets / b.elapsed_ps * 1e6, b.packets / bare * 1e6


def measure() -> list[Measurement]:
    result = Measurement(
        f"switch in memory: one core, {WORKERS} workers, {SLOTS} slots",
        ["values", "Mpps", "payload Gb/s", "bare loop Mpps", "ratio"],
        "of a hand-written loop that only adds and copies",
        "20 Mpps at 64 values, 15 at 256 into the switch; as many replicas come out, and all are verified in full",
    )
    with tempfile.TemporaryDirectory() as folder:
        bench, native = compiled(Path(folder))
        for values in (32, 64, 128, 256, 1024, 2048):
            runs = [one(values, bench, native) for _ in range(RUNS)]
            mpps, bare = (Figure.of(rates) for rates in zip(*runs, strict=True))
            result.add(values, mpps, mpps * values * 32e-3, bare, mpps / bare)
    return [result]
