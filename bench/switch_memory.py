"""Switch in memory on one core: distinct packets parsed, aggregated, replicated and verified.

Every packet of every worker is different, goes through a port in memory, the runtime and the compiled `p4/switchml.p4`,
and every value of every result is checked at every worker. Only the switch's side (ports, runtime, program) is timed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI

from ina import paths
from ina._native import ffi, lib
from ina.switch import MulticastGroupEntry, Replica, Switch, TableEntry, insert

SOURCE = Path(__file__).with_suffix(".c")
SIZE_CODES = {32: 0, 64: 1, 128: 2, 256: 3, 1024: 4, 2048: 5}
SWITCH_IP, SWITCH_PORT, SWITCH_MAC = 0x0A00FFFE, 0xBEE0, 0x02000000FFFE


def checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def header(worker: int, values: int) -> bytes:
    """Ethernet to exponents of worker's packets, job 1 in incarnation 1; slot and tsi are 0."""
    length = 20 + 8 + 10 + 4 * values
    ip = bytearray.fromhex("45000000000000004011000000000000") + SWITCH_IP.to_bytes(4, "big")
    ip[2:4] = length.to_bytes(2, "big")
    ip[12:16] = (0x0A000001 + worker).to_bytes(4, "big")
    ip[10:12] = checksum(ip).to_bytes(2, "big")
    ethernet = SWITCH_MAC.to_bytes(6, "big") + (worker + 1).to_bytes(6, "big") + b"\x08\x00"
    udp = b"".join(v.to_bytes(2, "big") for v in (4001, SWITCH_PORT, length - 20, 0))
    switchml = bytes([1 << 4 | SIZE_CODES[values], 1]) + bytes(6)
    return ethernet + bytes(ip) + udp + switchml + b"\x00\x01"


def admit(switch: Switch, workers: int, slots: int) -> None:
    """Job 1 in incarnation 1 with slots 0.. on ports 0.. ."""
    job = {"full": (1 << workers) - 1, "last": workers - 1, "base": 0, "mask": slots - 1, "incarnation": 1, "group": 1}
    key = "hdr.switchml.job"
    switch.write(
        insert(
            TableEntry("job", {key: 1}, "set_job", {**job, "strict": 1}),
            MulticastGroupEntry(1, tuple(Replica(w, w) for w in range(workers))),
        )
    )
    for w in range(workers):
        source = {key: 1, "hdr.ipv4.src_addr": 0x0A000001 + w, "hdr.udp.src_port": 4001, "standard.ingress_port": w}
        address = {"mac": w + 1, "ip": 0x0A000001 + w, "port": 4001}
        switch.write(
            insert(
                TableEntry("worker", source, "set_worker", {"worker": 1 << w}),
                TableEntry("replica", {key: 1, "standard.egress_rid": w}, "to_worker", address),
            )
        )


def measure(
    program: Any, values: int, workers: int = 4, slots: int = 128, batch: int = 32, seconds: float = 1.0
) -> dict[str, float]:
    """Packets per second into the switch (as many come out of it), elements per second, Gb/s of frames."""
    bench = FFI()
    text = SOURCE.read_text()
    bench.cdef("struct ina_switch; struct ina_packet; struct ina_port;")
    bench.cdef(re.search(r"struct bench \{.*?\n\};", text, re.S)[0] + "int run(struct bench *b);")
    with tempfile.TemporaryDirectory() as folder, Switch(program) as switch:
        object_ = Path(folder) / "bench.so"
        includes = [f"-I{d}" for d in paths.include_dirs()]
        command = ["cc", "-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", *includes, SOURCE, "-o", object_]
        subprocess.run(command, check=True)
        native = bench.dlopen(str(object_))
        b = bench.new("struct bench *")
        pairs = []
        for w in range(workers):
            pair = ffi.new("struct ina_port *[2]")
            error = lib.ina_port_mem_pair(slots, 64 + 4 * values, pair)
            if error:
                raise OSError(-error, f"memory port of {slots} frames")
            pairs.append(pair)
            switch.add_port(w, pair[0])
            b.port[w] = bench.cast("struct ina_port *", int(ffi.cast("uintptr_t", pair[0])))
            b.host[w] = bench.cast("struct ina_port *", int(ffi.cast("uintptr_t", pair[1])))
        admit(switch, workers, slots)
        headers = bench.new("uint8_t[]", b"".join(header(w, values) for w in range(workers)))
        b.sw = bench.cast("struct ina_switch *", int(ffi.cast("uintptr_t", switch.pointer)))
        b.input = bench.cast("void *", int(ffi.cast("uintptr_t", ffi.addressof(lib, "ina_switch_input"))))
        b.header, b.workers, b.values, b.slots, b.batch = headers, workers, values, slots, batch
        b.rounds = 4
        while True:
            b.elapsed_ps = b.packets = b.results = b.wrong = 0
            if native.run(b):
                raise RuntimeError("a port lent fewer frames than it has")
            if b.wrong or b.results != b.packets:
                raise RuntimeError(f"{b.wrong} of {b.results} results are wrong, {b.packets} packets were sent")
            if b.elapsed_ps > seconds * 0.4e12:
                break
            # the next run numbers its packets from 0 again: it needs rows that were never used
            b.rounds = max(8, int(b.rounds * min(50, seconds * 1e12 / max(1, b.elapsed_ps))) // 2 * 2)
            switch.restore(bytes(switch.program.pointer.state_size))
        for number, pair in enumerate(pairs):
            switch.remove_port(number)
            lib.ina_port_close(pair[0])
            lib.ina_port_close(pair[1])
        rate = b.packets / (b.elapsed_ps * 1e-12)
        return {
            "values": values, "workers": workers, "slots": slots, "batch": batch, "packets": b.packets,
            "mpps": rate / 1e6, "elements_per_second": rate * values,
            "gbit_per_second": rate * 8 * (52 + 4 * values) / 1e9,
        }  # fmt: skip


def main() -> None:
    from ina.compiler.build import compile_program

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    for values in args.values:
        program = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": str(values)})
        r = measure(program, values, args.workers, args.slots, args.batch)
        rates = f"{r['mpps']:6.1f} Mpps, {r['elements_per_second'] / 1e9:5.2f} G elements/s"
        print(f"{values:5} values, {args.workers} workers: {rates}, {r['gbit_per_second']:6.1f} Gb/s")


if __name__ == "__main__":
    main()
