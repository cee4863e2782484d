"""Child process of tests/net/test_port_dpdk.py: the same jobs of a switch and its workers over DPDK rings and over memory.

Prints a line for each combination of protocol, type and faults; raises where sums differ, or an mbuf is lost.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller
from ina.aggregation.worker import Endpoint, WorkerConfig
from ina.net import dpdk
from ina.net.ports import Faults, Port, memory_pair
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch

P4 = Path(__file__).resolve().parent.parent / "p4"
WORKERS, VALUES, SLOTS = 3, 128, 32  # long enough for a switch to forward frames in place
SIZES = (1, 63, 1000, 30_000)
BAD = Faults(loss=0.03, duplicate=0.05, reorder=0.05, corrupt=0.01, duplicate_delay=2e-3, reorder_delay=1e-3)


def reduce_all(so_path: str, dtype: str, pairs: list[tuple[Port, Port]], faults: Faults | None) -> list[np.ndarray]:
    """Runs all-reduces of every size over these port pairs (switch, worker)."""
    rng = np.random.default_rng(7)
    inputs = [[(rng.integers(-(10**6), 10**6, n)).astype(dtype) for n in SIZES] for _ in range(WORKERS)]
    outs = [[np.zeros_like(a) for a in each] for each in inputs]
    with Switch(so_path) as switch:
        controller = Controller(switch, 512)
        job = controller.admit("job", WORKERS, SLOTS)
        for i, (inner, _) in enumerate(pairs):
            switch.add_port(i, inner)
            controller.attach(job, i, i)
        switch.start(yields=0)
        endpoints = []
        for i, (_, outer) in enumerate(pairs):
            if faults:
                outer.with_faults(*(Faults(**{**vars_of(faults), "seed": 2 * i + way}) for way in (0, 1)))
            config = WorkerConfig(worker=i, workers=WORKERS, life=job.life, slots=SLOTS, values=VALUES, rto_min=4e-3, timeout=200)
            endpoints.append(Endpoint(config, outer, spin=1e-4))
        tickets = [[e.submit(a, o) for a, o in zip(arrays, each, strict=True)]
                   for e, arrays, each in zip(endpoints, inputs, outs, strict=True)]
        for endpoint, each in zip(endpoints, tickets, strict=True):
            for ticket in each:
                endpoint.wait(ticket)
        if faults:
            assert all(e.stats["retransmissions"] > 5 for e in endpoints)
        for endpoint in endpoints:
            endpoint.close()
        for i, (inner, _) in enumerate(pairs):
            switch.remove_port(i)
            inner.close()
    for each in outs[1:]:
        for one, other in zip(outs[0], each, strict=True):
            assert np.array_equal(one, other), "the workers' sums differ"
    if dtype == "int32":
        for k, out in enumerate(outs[0]):
            assert np.array_equal(out, sum(each[k] for each in inputs)), SIZES[k]
    return outs[0]


def vars_of(faults: Faults) -> dict:
    return {name: getattr(faults, name) for name in faults.__dataclass_fields__}


def main() -> None:
    dpdk.start(sys.argv[1:])
    frame = protocols.frame_bytes("switchml", VALUES)
    pool = dpdk.Pool(8192, frame)
    compiled = compile_program(P4 / "switchml.p4", defines={"VALUES": str(VALUES)}, include_dirs=[P4]).so_path
    number, in_use = 0, []
    for dtype in ("int32", "float32"):
        for faults in (None, BAD):
            devices = []
            for i in range(WORKERS):
                devices.append(dpdk.ring_pair(f"r{number}_{i}", pool, 256))
            number += 1
            pairs = [(a.port(), b.port()) for a, b in devices]
            over_rings = reduce_all(compiled, dtype, pairs, faults)
            for a, b in devices:
                a.close()
                b.close()
            in_use.append(pool.in_use)
            over_memory = reduce_all(compiled, dtype, [memory_pair(256, frame) for _ in range(WORKERS)], faults)
            for one, other in zip(over_rings, over_memory, strict=True):
                assert one.tobytes() == other.tobytes(), "sums over rings are not those over memory, bit by bit"
            print(dtype, "with faults" if faults else "without faults", time.process_time(), flush=True)
    assert in_use == [0] * 4, in_use
    pool.close()


if __name__ == "__main__":
    main()
