"""One worker of an all-reduce: ``python -m ina.lab.processes.reducer SPECIFICATION`` (JSON), which crew.py starts.

It prints "ready" when all workers of its job are there, begins when it reads a line, and then prints its measurements.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from ina.aggregation.controller.client import Attachment, Client
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint
from ina.lab.oracle import choose_reduction, expected
from ina.lab.processes.moving import Moving, Staying, moving
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
    rto_fixed: bool = False
    check: str = ""
    faults: dict | None = None
    moves: bool = False  # it goes on when its job is moved to another tree
    store: str = ""  # then: the folder in which the workers agree

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
    client.admit(f"job {spec.job}", spec.workers, spec.slots, check=spec.check)
    attach = partial(client.attach, f"job {spec.job}", spec.worker, spec.port, moves=spec.moves)
    grant = attach()
    tensors = [spec.tensor(worker) for worker in range(spec.workers)]
    reduction = choose_reduction(grant.protocol, spec.dtype)
    right, allowed = expected(tensors, len(tensors), grant.protocol, reduction)
    own = tensors[spec.worker]

    def opened(grant: Attachment) -> Endpoint:
        port = open_worker_port(grant, Faults(**spec.faults) if spec.faults else None)
        return Endpoint(grant.config(rto_min=spec.rto_min, rto_max=spec.rto_max, timeout=spec.timeout, rto_fixed=spec.rto_fixed),
                        port, client.fileno())

    def begun(endpoint: Endpoint) -> AbstractContextManager[Moving | Staying]:
        if not spec.moves:
            return nullcontext(Staying(endpoint))
        return moving(Moving(spec.worker, spec.workers, client, endpoint, grant, lambda: opened(attach())), spec.store)

    with opened(grant) as endpoint, begun(endpoint) as worker:
        worker.run(np.zeros(1, spec.dtype), reduction)
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        before, began = worker.stats, time.monotonic()
        worker.run(own, reduction)
        ended, after = time.monotonic(), worker.stats
        deviation = float(np.abs(own - right.astype(np.float64)).max())
        if deviation > allowed:
            raise WrongSum(f"job {spec.job}: worker {spec.worker}'s result is off by {deviation:g}, expected at most {allowed:g}")
        stats = {key: after[key] - before[key] for key in after if not key.endswith("_ps")}
        print(json.dumps({"began": began, "ended": ended, "stats": stats, "stalls": worker.stalls}), flush=True)
        sys.stdin.readline()  # the others may need its retransmissions: it leaves when all are done
    client.release()
    client.close()


if __name__ == "__main__":
    main()
