"""ATP on one core: the compiled p4/atp.p4 in memory beside SwitchML's on the same packets, and the parameter server alone.

The switch gets every worker's packets and every result of the server, and makes a copy for each worker; its figure is the
workers' packets, so that it compares with SwitchML's. The server adds up every worker's packets: a plain parameter server.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np
from cffi import FFI

from bench import switch as switchml
from bench.common import Figure, Measurement, declared, shared_object
from ina.aggregation.entries.atp import ATP
from ina.aggregation.entries.base import Child, Parent, Place
from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker import SERVER, Worker, WorkerConfig, worker_address
from ina.aggregation.worker.config import ATP_SWITCH
from ina.base import paths
from ina.base.native import CData, ffi, lib
from ina.net.ports import Address
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import insert

WORKERS, SLOTS, BATCH, RUNS, HEADER = 4, 64, 32, 5, 58
PACKETS = 100_000  # a run


class Native(Protocol):
    """bench/atp.c."""

    def run(self, b: CData) -> int: ...

    def serve(self, b: CData) -> int: ...


def compiled(folder: Path) -> tuple[FFI, Native]:
    """Compiles bench/atp.c. Returns its declarations and the shared object."""
    source = Path(__file__).with_suffix(".c")
    return shared_object(source, folder, f"""
        struct ina_switch; struct ina_packet; struct ina_port;
        {declared("bench", source)}
        int run(struct bench *b); int serve(struct bench *b);
    """)


def header(index: int, values: int, switch: Address, own: Address | None = None) -> bytes:
    """Returns the headers of a worker's packets to ``switch``, Ethernet to bitmap."""
    sender = Worker(WorkerConfig(index, WORKERS, life=1, slots=1, values=values, protocol="atp", switch=switch, address=own))
    sender.submit(np.zeros(1, np.int32))
    return sender.frames_to_send(0)[0][:HEADER]


def prepare(bench: FFI, values: int, headers: list[bytes]) -> tuple[CData, CData]:
    b = bench.new("struct bench *")
    b.workers, b.values, b.slots, b.batch = WORKERS, values, SLOTS, BATCH
    b.rounds = max(8, PACKETS * 64 // max(64, values) // (WORKERS * SLOTS))
    memory = bench.new("uint8_t[]", b"".join(headers))
    b.header = memory
    return b, memory


def pointer(bench: FFI, kind: str, value: CData) -> CData:
    return bench.cast(kind, int(ffi.cast("uintptr_t", value)))


def switch(values: int, bench: FFI, native: Native) -> float:
    """Returns workers' packets per second, in millions."""
    program = compile_program(paths.p4_dir() / "atp.p4", defines={"VALUES": str(values), "SLOTS": str(SLOTS)})
    result = bytearray(header(0, values, SERVER, ATP_SWITCH))
    result[:12], result[26:34] = result[6:12] + result[:6], result[30:34] + result[26:30]  # from the server to the switch
    result[34:38], result[42] = result[36:38] + result[34:36], 0x30
    b, memory = prepare(bench, values, [*(header(i, values, ATP_SWITCH) for i in range(WORKERS)), bytes(result)])
    with Switch(program.so_path) as sw:
        place = Place(number=0, incarnation=1, life=1, children=WORKERS, workers=tuple(range(WORKERS)), slot_base=0, slots=SLOTS,
                      group=1,
                      strict=True, parent=Parent(WORKERS, SERVER, ATP_SWITCH))
        children = [Child(i, i, worker_address(0, i), (i,)) for i in range(WORKERS)]
        entries = ATP()
        sw.write(insert(*entries.job(place), *(e for c in children for e in entries.child(place, c)),
                        entries.group(place, children)))
        pairs = []
        for number in range(WORKERS + 1):
            pair = ffi.new("struct ina_port *[2]")
            if error := lib.ina_port_mem_pair(SLOTS, HEADER + 4 * values, pair):
                raise OSError(-error, f"memory port of {SLOTS} frames")
            pairs.append(pair)
            sw.add_port(number, pair[0])
            b.port[number] = pointer(bench, "struct ina_port *", pair[0])
            b.host[number] = pointer(bench, "struct ina_port *", pair[1])
        b.sw = pointer(bench, "struct ina_switch *", sw.pointer)
        b.input = pointer(bench, "void *", ffi.addressof(lib, "ina_switch_input"))
        ended = native.run(b)
        for number, pair in enumerate(pairs):
            sw.remove_port(number)
            lib.ina_port_close(pair[0])
            lib.ina_port_close(pair[1])
    del memory
    if ended or b.wrong or b.results != b.packets:
        raise SystemExit(f"ATP switch benchmark: {b.wrong} of {b.results} results wrong, {b.packets} packets sent")
    return b.packets / b.elapsed_ps * 1e6


def server(values: int, bench: FFI, native: Native) -> float:
    """Returns workers' packets per second that a plain parameter server adds up, in millions."""
    config = ServerConfig(WORKERS, life=1, slots=SLOTS, values=values).to_c()
    config.peer = config.worker[0]
    b, raw = prepare(bench, values, [header(i, values, SERVER, worker_address(0, 0)) for i in range(WORKERS)] + [bytes(HEADER)])
    state = ffi.new("uint64_t[]", lib.ina_ps_state_size(config) // 8)
    lib.ina_ps_init(state, config, 0)
    frames = bench.new("uint8_t[]", (WORKERS * SLOTS + 1) * (HEADER + 4 * values))
    b.server, b.frames = pointer(bench, "void *", state), frames
    b.receive = pointer(bench, "void *", ffi.addressof(lib, "ina_ps_receive"))
    b.frames_to_send = pointer(bench, "void *", ffi.addressof(lib, "ina_ps_frames_to_send"))
    native.serve(b)
    stats = ffi.cast("struct ina_ps_stats *", ffi.cast("uint8_t *", state) + lib.ina_ps_stats_offset(config))
    del raw
    if b.wrong or not b.results or stats.merged_raw != b.packets:
        raise SystemExit(f"server benchmark: {b.wrong} of {b.results} results wrong, {stats.merged_raw} of {b.packets} added")
    return b.packets / b.elapsed_ps * 1e6


def measure() -> list[Measurement]:
    result = Measurement(
        f"ATP in memory: one core, {WORKERS} workers, {SLOTS} aggregators",
        ["values", "ATP Mpps", "server Mpps", "server payload Gb/s", "SwitchML Mpps", "ratio"],
        "of the ATP switch to SwitchML's",
        "0.8: a sum goes up to the server and its result comes down, where SwitchML answers at once",
    )
    with tempfile.TemporaryDirectory() as folder:
        (bench, native), peer = compiled(Path(folder)), switchml.compiled(Path(folder))
        for values in (32, 64, 256, 1024):
            atp, added, other = (
                Figure.of(run(values) for _ in range(RUNS))
                for run in (lambda v: switch(v, bench, native), lambda v: server(v, bench, native),
                            lambda v: switchml.one(v, *peer)[0])
            )
            result.add(values, atp, added, added * values * 32e-3, other, atp / other)
    return [result]
