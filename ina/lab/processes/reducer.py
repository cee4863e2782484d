"""One worker of an all-reduce: ``python -m ina.lab.processes.reducer SPECIFICATION`` (JSON), which crew.py starts.

It prints "ready" when all workers of its job are there, begins when it reads a line, and then prints its measurements.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

import numpy as np

from ina.aggregation.controller.client import Client
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint, WorkerConfig
from ina.lab.oracle import choose_reduction, expected
from ina.lab.training.launch import die_with_parent, say_where_on_request
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import Faults


@dataclass(frozen=True)
class Specification:
    """Arguments of one worker. ``faults``: fields of Faults, None: none; times in seconds."""

    switch: str  # socket of the switch process
    port: str
    job: int
    worker: int
    workers: int
    slots: int
    elements: int
    dtype: str
    seed: int
    rto_min: float
    rto_max: float
    timeout: float
    faults: dict | None = None

    def tensor(self, worker: int) -> np.ndarray:
        """Returns any worker's tensor: each worker can compute the expected sum."""
        rng = np.random.default_rng([self.seed, self.job, worker])
        if self.dtype == "int32":
            return rng.integers(-(2**31), 2**31, self.elements, np.int32)
        return rng.standard_normal(self.elements, np.float32)


def main() -> None:
    die_with_parent()
    say_where_on_request()
    spec = Specification(**json.loads(sys.argv[1]))
    client = Client(spec.switch, timeout=spec.timeout + 30)
    client.join(f"job {spec.job}", spec.worker)
    client.admit(f"job {spec.job}", spec.workers, spec.slots)
    grant = client.attach(f"job {spec.job}", spec.worker, spec.port)
    config = WorkerConfig(
        worker=grant.worker, workers=grant.workers, job=grant.number, life=grant.life, protocol=grant.protocol,
        slots=grant.slots, values=grant.values, rto_min=spec.rto_min, rto_max=spec.rto_max, timeout=spec.timeout,
        address=grant.address, switch=grant.switch,
    )  # fmt: skip
    tensors = [spec.tensor(worker) for worker in range(spec.workers)]
    reduction = choose_reduction(grant.protocol, spec.dtype)
    right, allowed = expected(tensors, len(tensors), grant.protocol, reduction)
    own = tensors[spec.worker]
    port = open_worker_port(grant, Faults(**spec.faults) if spec.faults else None)
    with Endpoint(config, port, client.fileno()) as endpoint:
        endpoint.run(np.zeros(1, spec.dtype), reduction=reduction)
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        before, began = endpoint.stats, time.monotonic()
        endpoint.run(own, reduction=reduction)
        ended, after = time.monotonic(), endpoint.stats
        deviation = float(np.abs(own - right.astype(np.float64)).max())
        if deviation > allowed:
            raise WrongSum(f"job {spec.job}: worker {spec.worker}'s result is off by {deviation:g}, expected at most {allowed:g}")
        stats = {key: after[key] - before[key] for key in after if not key.endswith("_ps")}
        print(json.dumps({"began": began, "ended": ended, "stats": stats}), flush=True)
        sys.stdin.readline()  # the others may need its retransmissions: it leaves when all are done
    client.release()
    client.close()


if __name__ == "__main__":
    main()
