"""The compiled switch, in memory on one core: distinct packets parsed, aggregated, replicated and verified."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from cffi import FFI

from bench.common import Measurement
from ina import paths
from ina._native import ffi as native
from ina._native import lib
from ina.compiler.build import compile_program
from ina.control.controller import Controller
from ina.switch.embedded import Switch
from ina.transport.config import WorkerConfig
from ina.transport.worker import Worker

WORKERS, SLOTS, RUNS = 4, 64, 7
ROOM = 128

CDEF = """
struct job { void *sw; void *input; uint8_t *frames; uint64_t stride; uint32_t length, workers, slots, values, rounds;
             uint64_t results, wrong; uint32_t expected; uint32_t round; };
uint64_t run(struct job *); uint64_t limit(struct job *, uint32_t *, uint8_t *);
void check(void *, uint16_t, void *, uint64_t);
"""


def compiled(folder: Path):
    """bench/switch.c as a shared object."""
    target = folder / "bench_switch.so"
    includes = [f"-I{path}" for path in paths.include_dirs()]
    source = Path(__file__).with_suffix(".c")
    command = [
        "cc",
        "-O3",
        "-march=native",
        "-std=gnu11",
        "-shared",
        "-fPIC",
        *includes,
        str(source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    ffi = FFI()
    ffi.cdef(CDEF)
    return ffi, ffi.dlopen(str(target))


def one(values: int, ffi, code) -> tuple[float, float, bool]:
    """Packets per second through the switch, of the bare inner loop, and whether every replica had the right sums."""
    program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values), "SLOTS": str(SLOTS)})
    switch = Switch(program.so_path)
    controller = Controller(switch, SLOTS)
    job = controller.admit("bench", WORKERS, SLOTS)
    length = 52 + 4 * values
    stride = (ROOM + length + 52 + 63) // 64 * 64 + 64
    frames = np.zeros(WORKERS * SLOTS * stride, np.uint8)
    for index in range(WORKERS):
        worker = controller.attach(job, index, index)
        switch.add_port(index)
        config = WorkerConfig(
            worker=index, workers=WORKERS, job=job.number, incarnation=job.incarnation, slots=1, values=values,
            address=worker.address,
        )  # fmt: skip
        sender = Worker(config)
        sender.submit(np.zeros(1, np.int32))
        frame = np.frombuffer(sender.frames_to_send(0)[0], np.uint8)  # headers of a full packet of this worker
        for slot in range(SLOTS):
            at = (slot * WORKERS + index) * stride + ROOM
            frames[at : at + length] = frame
            frames[at + length : at + length + 52] = frame[:52]
    rounds = max(20, 200_000 // (WORKERS * SLOTS))
    c = ffi.new("struct job *")
    c.sw = ffi.cast("void *", int(native.cast("uintptr_t", switch.pointer)))
    c.input = ffi.cast("void *", int(native.cast("uintptr_t", native.addressof(lib, "ina_switch_input"))))
    c.frames, c.stride, c.length = ffi.cast("uint8_t *", frames.ctypes.data), stride, length
    c.workers, c.slots, c.values, c.rounds = WORKERS, SLOTS, values, rounds
    c.expected = sum(range(WORKERS))
    output = native.cast(
        "void (*)(void *, uint16_t, const struct ina_packet *, uint64_t)",
        int(ffi.cast("uintptr_t", ffi.addressof(code, "check"))),
    )
    lib.ina_switch_set_output(switch.pointer, output, native.cast("void *", int(ffi.cast("uintptr_t", c))))
    packets = WORKERS * SLOTS * rounds
    c.results = c.wrong = 0
    nanoseconds = code.run(c)
    good = c.wrong == 0 and c.results == packets
    rows = np.zeros(SLOTS * values, np.uint32)
    out = np.zeros(4 * values, np.uint8)
    bare = min(
        code.limit(c, ffi.cast("uint32_t *", rows.ctypes.data), ffi.cast("uint8_t *", out.ctypes.data))
        for _ in range(3)
    )
    switch.close()
    return packets / nanoseconds * 1e3, packets / bare * 1e3, good


def measure() -> list[Measurement]:
    result = Measurement(
        f"switch in memory: one core, {WORKERS} workers, {SLOTS} slots",
        ["values", "Mpps", "payload Gb/s", "bare loop Mpps", "ratio"],
        "of a hand-written loop that only adds and copies",
        "20 Mpps at 64 values, 15 at 256; every replica is verified in full, which is part of the time",
    )
    with tempfile.TemporaryDirectory() as folder:
        ffi, code = compiled(Path(folder))
        for values in (32, 64, 128, 256, 1024, 2048):
            runs = [one(values, ffi, code) for _ in range(RUNS)]
            if not all(good for _, _, good in runs):
                raise SystemExit(f"switch benchmark: wrong or missing results at {values} values per packet")
            mpps, bare = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
            result.add(values, mpps, mpps * values * 32e-3, bare, mpps / bare)
    return [result]
