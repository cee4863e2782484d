"""Workers, switch and back on one core, run to completion: real workers, the compiled switch, every sum verified.

Every frame is built by a worker's protocol machine, goes through a port in memory, the runtime and the compiled
p4/switchml.p4, and its result back into the worker's tensor. Every value of every tensor of every worker is compared.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from cffi import FFI

from bench.common import Figure, Measurement, declared, shared_object
from ina.aggregation.controller.admission import Controller
from ina.aggregation.worker.addresses import worker_address
from ina.aggregation.worker.config import HEADERS, MAX_OPS, WorkerConfig, fill_tensor
from ina.base import paths
from ina.base.native import CData, ffi, lib
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch
from ina.p4.runtime.loaded_program import Program

WORKERS, RUNS = 4, 5
ELEMENTS, AHEAD = 1 << 18, 1  # of a tensor: so long that few frames carry only exponents; tensors of a worker on their way
VALUES = (64, 128, 256, 1024, 2048)
KEY = bytes(range(1, 17))  # of check words of mode keyed
PACKETS = 600_000  # of 256 values, about, in a run
STAGES = ("worker ports", "build", "switch ports", "switch", "decode", "ingress", "egress", "waiting")  # enum stage


def window(values: int) -> int:
    """Returns slots of the job, and frames of a burst: few enough for frames and rows to stay in the core's caches."""
    return max(4, min(16, 4096 // values))


class Native(Protocol):
    """bench/complete.c."""

    def work(self, c: CData) -> int: ...

    def serve_switch(self, c: CData) -> None: ...

    def watch(self, timed: CData, original: CData) -> None: ...

    def latency(self, cpu: int) -> int: ...

    def limit(self, c: CData, values: int, frames: CData, rows: CData) -> float: ...


def compiled(folder: Path) -> tuple[FFI, Native]:
    """Compiles bench/complete.c. Returns its declarations and the shared object."""
    source, kinds = Path(__file__).with_suffix(".c"), ("switch", "packet", "port", "protocol", "tensor", "program")
    return shared_object(source, folder, f"""
        {" ".join(f"struct ina_{kind};" for kind in kinds)}
        {declared("complete", source).replace("WORKERS", str(WORKERS))}
        int work(struct complete *c); void serve_switch(struct complete *c);
        void watch(struct ina_program *timed, const struct ina_program *original);
        uint64_t latency(int cpu);
        double limit(const struct complete *c, uint32_t values, uint8_t *frames, uint32_t *rows);
    """)


def memory_ports(values: int) -> list[tuple[CData, CData]]:
    """Opens the switch's and the worker's end of each worker's link: ``struct ina_port *``."""
    pairs = []
    for _ in range(WORKERS):
        pair = ffi.new("struct ina_port *[2]")
        if error := lib.ina_port_mem_pair(window(values), HEADERS + 4 * values, pair):
            raise OSError(-error, f"memory port of {window(values)} frames")
        pairs.append((pair[0], pair[1]))
    return pairs


def frames(values: int, count: int, slots: int) -> int:
    """Returns frames of all workers for `count` tensors without retransmissions; a tensor's first ones carry its exponents."""
    blocks = ELEMENTS // values
    return WORKERS * count * (blocks + min(blocks, slots))


@dataclass(frozen=True)
class Admitted:
    """Number and life of a job in its packets, from its switch's controller (ina/aggregation/controller/job_incarnations.py)."""

    number: int
    life: int


class Rig:
    """A switch and a job of ``WORKERS`` workers with ``struct complete`` around them; either may be in another process.

    ``ports``: (switch's, worker's) end of each link, NULL where another process has it; the caller owns them.
    ``job``: admitted at a switch elsewhere, for workers without a switch here; None: a switch here, which admits its own.
    """

    def __init__(
        self, values: int, ports: list[tuple[CData, CData]], bench: FFI, native: Native, watch: bool = False,
        slots: int = 0, job: Admitted | None = None, check: str = "", elements: int = ELEMENTS,
    ) -> None:
        slots, self.check, self.elements = slots or window(values), check, elements
        self.values, self.bench, self.native = values, bench, native
        self._keep: list[object] = [ports]
        c = self.c = bench.new("struct complete *")
        own = np.random.default_rng(values).integers(-1 << 20, 1 << 20, (WORKERS, elements), np.int32)
        sums = own.sum(axis=0, dtype=np.int32)
        c.sums = bench.cast("int32_t *", sums.ctypes.data)
        self._keep += [own, sums]
        for worker, (inner, outer) in enumerate(ports):
            c.port[worker], c.host[worker] = (self._cast("struct ina_port *", end) for end in (inner, outer))
            c.own[worker] = bench.cast("int32_t *", own[worker].ctypes.data)
        self.switch: Switch | None = None
        if job:
            self.job = job
        else:
            self.switch, self.job = self._admit(ports, slots, watch)
        for worker in range(WORKERS):
            self._add_worker(worker, slots)
        if self.switch:
            c.sw = self._cast("struct ina_switch *", self.switch.pointer)
        c.protocol = self._cast("struct ina_protocol *", lib.ina_protocol_named(b"switchml"))
        for member, function in (("input", "switch_input"), ("exponent", "codec_exponent"), ("encode", "codec_encode"),
                                 ("decode", "codec_decode")):
            setattr(c, member, self._cast("void *", ffi.addressof(lib, f"ina_{function}")))
        c.batch, c.ahead, c.watch = window(values), AHEAD, watch
        c.count = max(8, PACKETS * min(256, values) // (WORKERS * elements))

    def _cast(self, kind: str, pointer: CData) -> CData:
        return self.bench.cast(kind, int(ffi.cast("uintptr_t", pointer)))

    def _admit(self, ports: list[tuple[CData, CData]], slots: int, watch: bool) -> tuple[Switch, Admitted]:
        """Makes a switch with its ports and the entries of a job."""
        defines = {"VALUES": str(self.values), "SLOTS": str(slots)}
        program = Program(compile_program(paths.p4_dir() / "switchml.p4", defines=defines).so_path)
        if watch:
            timed = ffi.new("struct ina_program *")
            self.native.watch(self._cast("struct ina_program *", timed), self._cast("struct ina_program *", program.pointer))
            program.pointer = timed
            self._keep.append(timed)
        switch = Switch(program)
        controller = Controller(switch, slots)
        job = controller.admit("bench", WORKERS, slots)
        for worker, (inner, _) in enumerate(ports):
            if inner != ffi.NULL:
                switch.add_port(worker, inner)
            controller.attach(job, worker, worker)
        return switch, Admitted(job.number, job.life)

    def _add_worker(self, worker: int, slots: int) -> None:
        number, life = self.job.number, self.job.life
        config = WorkerConfig(worker=worker, workers=WORKERS, job=number, life=life, slots=slots, values=self.values,
                              address=worker_address(number, worker), rto_min=20e-3, check=self.check,
                              key=KEY if self.check == "keyed" else b"").to_c()
        protocol = lib.ina_protocol_named(b"switchml")
        memory = np.zeros(protocol.state_size(config) + 64, np.uint8)
        state = ffi.cast("void *", (memory.ctypes.data + 63) // 64 * 64)
        protocol.init(state, config, 0)
        raw = np.zeros(AHEAD * self.elements + 16, np.float32)
        first = -raw.ctypes.data // 4 % 16  # aligned to a cache line like torch's tensors, unlike numpy's arrays
        arrays = raw[first : first + AHEAD * self.elements].reshape(AHEAD, self.elements)
        work, tensors = ffi.new("struct ina_tensor[]", AHEAD), ffi.new("struct ina_tensor[]", MAX_OPS)
        for tensor, array in zip(work, arrays, strict=True):
            fill_tensor(tensor, array, array, False, 0)
        self._keep += [config, memory, arrays, work, tensors]
        self.c.state[worker] = self._cast("void *", state)
        self.c.work[worker], self.c.tensors[worker] = (self._cast("struct ina_tensor *", each) for each in (work, tensors))

    def run(self) -> Rig:
        """Reduces ``c.count`` tensors. SystemExit: it stopped, or a sum is wrong."""
        stopped = self.native.work(self.c)
        if stopped or self.c.wrong or self.c.sent < self.packets:
            raise SystemExit(f"bench: {self.c.wrong} values are wrong, {self.c.sent} packets were sent"
                             f"{', and then nothing moved for ten seconds' if stopped else ''}"
                             f"{'; ' + self.drops() if self.switch else ''}")
        return self

    def drops(self) -> str:
        """Describes the packets that the switch has dropped, by the reason's number in the program."""
        assert self.switch is not None  # it is in this process
        packets = self.switch.counter("drops")[:, 0]
        reasons = ", ".join(f"{packets[reason]} of reason {reason}" for reason in packets.nonzero()[0])
        if not reasons:
            return "the switch dropped nothing"
        return f"the switch dropped {reasons} (enum Drop in p4/include/switchml/metadata.p4)"

    @property
    def packets(self) -> int:
        """Blocks that workers send into the switch: each once, without retransmissions and packets without values."""
        return self.c.count * WORKERS * (self.elements // self.values)

    def limit(self) -> float:
        """Returns packets per second of the hand-written loop."""
        frames = np.zeros(2 * WORKERS * self.c.batch * (4 * self.values + 192) + 64, np.uint8)
        rows = np.zeros(self.c.batch * self.values, np.uint32)
        aligned = self.bench.cast("uint8_t *", (frames.ctypes.data + 63) // 64 * 64)
        return 1e12 / min(self.native.limit(self.c, self.values, aligned, self.bench.cast("uint32_t *", rows.ctypes.data))
                          for _ in range(5))

    def rate(self) -> float:
        """Returns packets per second of processor time."""
        return self.packets / self.c.elapsed_ps * 1e12

    def cycles(self) -> list[float]:
        """Returns cycles of each packet: build, ports, ingress, rest of the switch, egress, decode; then ns for comparing and new
        values."""
        stages = dict(zip(STAGES, (cycles / self.packets for cycles in self.c.cycles), strict=True))
        rest = stages["switch"] - stages["ingress"] - stages["egress"]
        return [stages["build"], stages["worker ports"] + stages["switch ports"], stages["ingress"], rest, stages["egress"],
                stages["decode"], self.c.aside_ps / self.packets / 1e3]

    def close(self) -> None:
        """Ends the switch; ports stay open for their owners."""
        if not self.switch:
            return
        for worker in range(WORKERS):
            if self.c.port[worker] != self.bench.NULL:
                self.switch.remove_port(worker)
        self.switch.close()


def in_memory(values: int, bench: FFI, native: Native, watch: bool = False, count: int = 0, check: str = "",
              elements: int = ELEMENTS) -> Rig:
    """Runs once over memory ports, `count` tensors unless it is 0, and closes the ports. ``check``: of protocols.CHECKS."""
    ports = memory_ports(values)
    rig = Rig(values, ports, bench, native, watch, check=check, elements=elements)
    rig.c.count = count or rig.c.count
    try:
        return rig.run()
    finally:
        rig.close()
        for pair in ports:
            for port in pair:
                lib.ina_port_close(port)


def tables(name: str, expected: str) -> tuple[Measurement, Measurement]:
    """Returns empty tables for `add`: rates, and cycles of the time-stamp counter for each packet by stage."""
    rates = Measurement(
        name, ["values", "Mpps", "frames Gb/s", "M ATE/s", "by hand Mpps", "ratio"],
        "of a loop by hand that quantises, adds, copies and turns back", expected,
    )
    stages = Measurement(
        name.replace(":", " cycles:", 1) + ": cycles of a packet",
        ["values", "build", "ports", "ingress", "copies", "egress", "decode", "verify", "share"],
        "the workers' share: build, decode and half of the ports'; verify: ns, with new values",
        "workers and switch take half each; comparing is not in the rate",
    )
    return rates, stages


def add(rates: Measurement, stages: Measurement, values: int, runs: list[Rig], watched: list[list[float]]) -> float:
    """Adds a row to each table, from finished runs and from runs with a watch in the switch. Returns packets per second."""
    pps, by_hand = (Figure.of(rate(rig) for rig in runs) for rate in (Rig.rate, Rig.limit))
    share = Figure.of((cycles[0] + cycles[1] / 2 + cycles[5]) / sum(cycles[:6]) for cycles in watched)
    rates.add(values, pps / 1e6, pps * (HEADERS + 4 * values) * 8e-9, pps * values / 1e6, by_hand / 1e6, pps / by_hand)
    stages.add(values, *map(Figure.of, zip(*watched, strict=True)), share)
    return pps


def measure() -> list[Measurement]:
    rates, stages = tables(
        f"complete: one core run to completion in memory, {WORKERS} workers",
        "10 Mpps at 256 values: quantised, framed, parsed, added, replicated, turned back, and every sum verified",
    )
    with tempfile.TemporaryDirectory() as folder:
        bench, native = compiled(Path(folder))
        for values in VALUES:
            runs = [in_memory(values, bench, native) for _ in range(RUNS)]
            add(rates, stages, values, runs, [in_memory(values, bench, native, watch=True).cycles() for _ in range(RUNS)])
    return [rates, stages]
