"""One list of jobs, one after the other, in every world that needs no root: their numbers, sizes and windows differ."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest
from capabilities import need
from test_recovery_processes import ROOT, Running

from ina.aggregation.controller.client import Client, SwitchProcess
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.entries import programs
from ina.aggregation.wire import layout
from ina.aggregation.worker import Endpoint, WorkerConfig
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.topology import load
from ina.virtual import Fabric, Star

SIZES = {"VALUES": "64", "SLOTS": "64"}


@dataclass(frozen=True)
class Sum:
    """A job of two workers, each with ``count`` elements."""

    name: str
    count: int
    slots: int
    dtype: type = np.int32


JOBS = (Sum("one", 1000, 16), Sum("two", 1000, 16), Sum("three", 65, 64, np.float32), Sum("four", 5000, 8), Sum("one", 7, 16))


def arrays_of(number, job):
    """Arrays of the workers of job ``number`` of the list: sums of other jobs are others."""
    return [np.arange(job.count).astype(job.dtype) + 1000 * number + worker for worker in range(2)]


class VirtualWorld:
    """A network in virtual time; its controller ends each job before the next."""

    def __init__(self, network, places):
        self.network, self.places = network, places

    def run(self, job, arrays):
        admitted = self.network.admit(self.places, slots=job.slots)
        self.network.all_reduce(admitted, arrays)
        for each in list(self.network._fabric.controller.jobs):
            self.network._fabric.controller.release(each)

    def close(self):
        self.network.close()


class RealWorld:
    """Switches and a controller in processes; the workers are in this one. ``port`` opens a worker's end."""

    def __init__(self, name, kind, port, end):
        self.name, self.kind, self.port, self.close = name, kind, port, end

    def run(self, job, arrays):
        clients = [Client(self.name, 60, token=f"token of {job.name}", host=f"h{worker + 2}") for worker in range(2)]
        endpoints = []
        try:
            for worker, client in enumerate(clients):
                client.join(job.name, worker)
            for client in clients:
                client.admit(job.name, 2, job.slots)
            for worker, client in enumerate(clients):
                a = client.attach(job.name, worker, self.kind)
                try:
                    port = self.port(a)
                finally:
                    for fd in a.fds:
                        os.close(fd)
                config = WorkerConfig(worker=worker, workers=2, job=a.number, life=a.life, slots=a.slots, values=a.values,
                                      address=a.address, switch=a.switch, rto_min=20e-3, timeout=120.0)
                endpoints.append(Endpoint(config, port))
            tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
            for endpoint, ticket in zip(endpoints, tickets, strict=True):
                endpoint.wait(ticket, 120)
            for client in clients:
                client.release()
        finally:
            for each in [*endpoints, *clients]:
                each.close()


def star(folder):
    return VirtualWorld(Star(compile_program(paths.p4_dir() / "switchml.p4", defines=SIZES), hosts=10), 2)


def fabric(folder):
    topology = load("leaf-spine", leaves=2, spines=1, hosts=1, rate=1e9)
    return VirtualWorld(Fabric(compile_program(paths.p4_dir() / "switchml.p4", defines=SIZES), topology), ["h1", "h2"])


def local(kind):
    def make(folder):
        process = SwitchProcess(ROOT / "p4/switchml.p4", SIZES, job_slots=16)
        return RealWorld(process.name, kind, open_worker_port, process.close)

    return make


def over_udp(folder):
    """`ina switch run` with UDP ports, over P4Runtime."""
    running = Running(folder)
    return RealWorld(running.name, "udp", running.port, running.end)


WORLDS = {"star": star, "fabric": fabric, "local-shm": local("shm"), "local-udp": local("udp"), "switch-run-udp": over_udp}


@pytest.mark.build
@pytest.mark.parametrize("name", [*list(WORLDS)[:-1], pytest.param("switch-run-udp", marks=pytest.mark.gate)])
def test_each_job_of_a_row_gets_its_own_sums(name, tmp_path):
    need("cc", *(["p4runtime"] if name == "switch-run-udp" else []))
    with closing(WORLDS[name](tmp_path)) as world:
        for number, job in enumerate(JOBS):
            arrays = arrays_of(number, job)
            expected = arrays[0] + arrays[1]
            world.run(job, arrays)
            for array in arrays:
                np.testing.assert_allclose(array, expected, rtol=1e-6, err_msg=f"job {number}: {job}")


@pytest.mark.fast
def test_every_program_says_where_packets_have_their_jobs_number():
    """`ina switch run` gives the datagrams of a UDP port source ports by it."""
    for program in programs():
        wire, header = (layout.load_atp(), "atp") if program.name in ("atp", "ps", "atp_routes") else (layout.load(), "switchml")
        field = wire[header]["job"]
        assert (field.offset, field.width) == (8 * program.job_byte, 8), program.name
