"""`ina switch run --listen` on the loopback, and a job of two workers that sums there over UDP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import child
import numpy as np
import tiers
from control_process import free_tcp_name
from waiting import LONG

TOKEN = "0123456789abcdef0123456789abcdef"


class Listening(NamedTuple):
    """``name``: of its control socket. ``errors``: of its standard error, once it has ended."""

    process: subprocess.Popen[str]
    name: str


@contextmanager
def listening(*options: str, at: str = "", main: Sequence[str] = ("-m", "ina.cli"), **environment: str) -> Iterator[Listening]:
    """A switch process for workers, which is ready. ``at``: its name, default: a free port; ``main``: Python's arguments for
    `ina`."""
    tiers.several_processes("starts a switch process")
    name = at or free_tcp_name()
    command = [sys.executable, *main, "switch", "run", "-DVALUES=64", "--listen", name.removeprefix("tcp:"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"INA_TOKEN": TOKEN} | environment)
    try:
        assert (line := process.stdout.readline()).startswith("switchml.p4 (switchml, 64 values"), line + process.stderr.read()
        yield Listening(process, name)
    finally:
        process.terminate()
        try:
            child.output(process)
        finally:
            process.kill()


@contextmanager
def workers(name: str, job: str, count: int = 2, token: str = "") -> Iterator[list]:
    """Endpoints of a job's workers, which leave in peace."""
    from ina.aggregation.controller.client import Client
    from ina.aggregation.controller.worker_ports import open_worker_port
    from ina.aggregation.worker import Endpoint

    clients, endpoints = [], []
    for worker in range(count):
        client = Client(name, LONG, token=token, access=TOKEN)
        client.join(job, worker)
        client.admit(job, count)
        attachment = client.attach(job, worker, tags="on")
        config = attachment.config(rto_min=0.5, rto_max=5.0, timeout=LONG)
        endpoints.append(Endpoint(config, open_worker_port(attachment), client.fileno()))
        for fd in attachment.fds:
            os.close(fd)
        clients.append(client)
    yield endpoints
    for endpoint, client in zip(endpoints, clients, strict=True):
        endpoint.close()
        client.release()
        client.close()


def sum_once(endpoints: list, elements: int = 1000) -> None:
    """Sums integers of all workers, and compares each sum."""
    arrays = [np.arange(elements, dtype=np.int32) * (worker + 1) for worker in range(len(endpoints))]
    tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
    for endpoint, ticket in zip(endpoints, tickets, strict=True):
        endpoint.wait(ticket, LONG)
    expected = np.arange(elements) * sum(range(1, len(endpoints) + 1))
    assert all(np.array_equal(array, expected) for array in arrays)
