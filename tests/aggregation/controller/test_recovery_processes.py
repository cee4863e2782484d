"""Recovery of a real controller, of switches and of a group's job, in processes that are killed and started anew."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import child
import numpy as np
import pytest
from capabilities import need
from tiers import several_processes
from waiting import LONG, until

from ina.aggregation.controller.admission import switch_address
from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.controller.state import StateFile
from ina.aggregation.worker import Endpoint, WorkerConfig, worker_address
from ina.net.ports import open_udp
from ina.worlds.deployed import daemon
from ina.worlds.deployed.remote import NoAnswer

ROOT = Path(__file__).parent.parent.parent.parent
ADDRESS = switch_address("s1")


def worker(number):
    """Address of host h<number+1> at port <number>, which ``ina switch run`` assigns to frames of its UDP ports."""
    return worker_address(0, number)


class Process:
    """``ina ...``, which prints one line when it is ready."""

    def __init__(self, *argv):
        several_processes("runs a controller and a switch")
        command = [sys.executable, "-m", "ina.cli", *map(str, argv)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.ready_line = self.process.stdout.readline()
        assert self.ready_line, self.process.stderr.read()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        child.status(self.process)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def running(tmp_path):
    """A real switch over P4Runtime with two hosts at UDP ports, and its controller, which ``begin`` starts (again)."""
    need("cc", "p4runtime")
    return Running(tmp_path)


class Running:
    def __init__(self, folder):
        self.name = str(folder / "socket")
        topology = folder / "net.toml"
        topology.write_text('[[link]]\nends = ["h2-h3", "s1"]\n')
        ports = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in (1, 2)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        self.own = [port.getsockname()[1] for port in ports]
        plugs = [f"-i{i}@udp:127.0.0.1:0,127.0.0.1:{own}" for i, own in enumerate(self.own, 1)]
        self.switch = Process("switch", "run", "p4/switchml.p4", "-DVALUES=64", "-DSLOTS=64", *plugs, "--grpc", "127.0.0.1:0")
        address = self.switch.ready_line.split()[1].rstrip(",")
        self.inside = [int(number) for number in re.findall(r"@udp:127\.0\.0\.1:(\d+)", self.switch.ready_line)]
        self.arguments = ("controller", "--topology", topology, "--switch", f"s1={address}", "--name", self.name,
                          "--state", folder / "jobs.json", "--job-slots", "16", "--packet-lifetime", "0.2")
        for port in ports:
            port.close()
        self.begin()

    def begin(self):
        self.controller = Process(*self.arguments)

    def port(self, attachment, faults=None, own=None):
        """The worker's end, on loopback, where its host's address is not."""
        i = attachment.worker
        return open_udp(("127.0.0.1", self.own[i]), ("127.0.0.1", self.inside[i]), source=attachment.switch,
                        destination=attachment.address, max_frame=512, frames=256)

    def end(self):
        for process in (self.controller, self.switch):
            if process.process.poll() is None:
                process.kill()


@pytest.mark.fast
def test_a_switch_that_does_not_answer_is_reported_once(monkeypatch, capsys):
    answers = [NoAnswer("s1: nobody listens"), NoAnswer("s1: nobody listens"), NoAnswer("s1: no answer"), "the switches"]
    pauses = []
    monkeypatch.setattr("ina.worlds.deployed.daemon.time", SimpleNamespace(sleep=pauses.append))

    def switches():
        answer = answers.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    assert daemon._awaited(switches) == "the switches" and pauses == [daemon.CHECK] * 3
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("s1: ")[2] for line in lines] == ["nobody listens", "no answer"]


@pytest.mark.build
@pytest.mark.later
def test_a_controller_that_starts_before_its_switch(tmp_path):
    """Nobody listens at the switch's address: it reports that, and begins when the switch does."""
    need("cc", "p4runtime")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    command = [sys.executable, "-m", "ina.cli", "controller", "--topology", "star", "--switch", f"s1={address}", "--name",
               str(tmp_path / "socket"), "--state", str(tmp_path / "jobs.json")]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    switch = None
    try:
        line = controller.stderr.readline()
        assert line.startswith("ina: waiting until it answers, ") and f": switch s1: nobody listens at {address}" in line, line
        switch = Process("switch", "run", "p4/switchml.p4", "-DVALUES=64", "-DSLOTS=64", "-i1@udp:127.0.0.1:0,127.0.0.1:9",
                         "--grpc", address)
        assert "switchml over P4Runtime" in controller.stdout.readline()
        controller.send_signal(signal.SIGTERM)
        assert child.output(controller)[1] == ""
    finally:
        controller.kill()
        controller.wait()
        if switch is not None:
            switch.kill()


@pytest.mark.build
@pytest.mark.gate
def test_sums_go_on_while_the_controller_is_killed_and_started_anew(running, tmp_path):
    """It is killed with -9 during all-reduces."""
    endpoints, clients = [], []
    try:
        for i, a in enumerate(connect(running.name, clients)):
            assert (a.address, a.switch, a.outlives) == (worker(i + 1), ADDRESS, True)
            config = WorkerConfig(worker=i, workers=2, job=a.number, life=a.life, slots=a.slots, values=a.values,
                                  address=a.address, switch=a.switch, rto_min=20e-3, timeout=LONG)
            endpoints.append(Endpoint(config, running.port(a)))
            lease = a.incarnation
        total(endpoints, 10_000)
        for _ in range(2):
            arrays = [np.arange(2_000_000, dtype=np.int32) for _ in endpoints]
            tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
            running.controller.kill()
            with pytest.raises(ControlError, match="ended"):
                clients[0].ping()
            running.begin()
            for client in clients:
                client.close()
            clients.clear()
            assert [a.incarnation for a in connect(running.name, clients, lease)] == [lease, lease]
            for endpoint, ticket in zip(endpoints, tickets, strict=True):
                endpoint.wait(ticket, LONG)
            assert all((array == 2 * np.arange(2_000_000, dtype=np.int32)).all() for array in arrays)
        assert clients[0].ask("jobs")["jobs"]["job"]["members"]["1"]["host"] == "h3"
        assert len(clients[0].counters()["program"]["SwitchIngress.drops"]) == 13
        for client in clients:
            client.release()
        assert clients[0].ask("jobs") == {"jobs": {}}
        running.controller.kill(signal.SIGTERM)
        assert json.loads((tmp_path / "jobs.json").read_text())["controller"]["jobs"] == []
        assert not (tmp_path / "socket").exists()
    finally:
        for endpoint in endpoints:
            endpoint.close()
        for client in clients:
            client.close()
        running.end()


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("file", ["lost", "older"])
def test_a_controller_without_its_state_gives_no_job_the_sums_of_another(running, tmp_path, file):
    """The switch goes on: the old job's rows are final, with the numbers and values that the new job begins with."""
    path = tmp_path / "jobs.json"
    try:
        for base, count in ((10, 1000), (100, 1000), (1000, 20)):
            clients = []
            attachments = connect(running.name, clients)
            assert attachments[0].number == 0
            endpoints = [Endpoint(WorkerConfig(
                worker=i, workers=2, job=a.number, life=a.life, slots=a.slots, values=a.values, address=a.address,
                switch=a.switch, rto_min=20e-3, timeout=LONG), running.port(a)) for i, a in enumerate(attachments)]
            total(endpoints, count, base)
            for endpoint in endpoints:
                endpoint.close()
            for client in clients:
                client.release()
                client.close()
            running.controller.kill(signal.SIGTERM)
            path.unlink()
            if file == "older":  # than the first job
                StateFile(path).save({"controller": {"jobs": [], "lives": {}, "last_number": 255}, "tokens": {}, "principals": {},
                                      "left": {}})
            running.begin()
    finally:
        running.end()


@pytest.mark.build
@pytest.mark.later
def test_a_groups_job_comes_back_by_itself(running, monkeypatch):
    """The back end's job of two ranks, in this process; the jobs alone handle the controller's end."""
    need("torch")
    import torch

    from ina.backend import job as backend
    from ina.backend.settings import Settings

    monkeypatch.setattr(backend, "open_worker_port", running.port)
    settings, jobs = Settings(program=Path("p4/switchml.p4"), protocol="switchml", switch=running.name), []
    try:
        for rank in range(2):
            monkeypatch.setenv("INA_HOST", f"h{rank + 2}")
            jobs.append(backend.Job(running.name, running.controller.process.pid, "group", rank, 2, 60.0, settings, "secret"))
        assert [job.admit() for job in jobs] == ["", ""]
        for step in range(3):
            if step:
                running.controller.kill()
            tensors = [torch.full((100_000,), float(rank + step)) for rank in range(2)]
            tickets = [job.submit(tensor, False, 0) for job, tensor in zip(jobs, tensors, strict=True)]
            for job, ticket in zip(jobs, tickets, strict=True):
                assert job.wait(*ticket, "all-reduce", LONG)
            assert all((tensor == 1 + 2 * step).all() for tensor in tensors)
            if step:
                running.begin()
                probe = Client(running.name)
                until(lambda probe=probe: own_members(probe) == 2, "both to come back")
                probe.close()
        for job in jobs:
            job.close(in_peace=True)
        probe = Client(running.name)
        assert probe.ask("jobs") == {"jobs": {}}
        probe.close()
    finally:
        for job in jobs:
            job.close(in_peace=False)
        running.end()


def own_members(client) -> int:
    """Number of members of the group's job that are of this process."""
    return sum(member["pid"] == os.getpid() for member in client.ask("jobs")["jobs"]["group"]["members"].values())


def total(endpoints, count, base=1):
    arrays = [np.full(count, base + i, np.int32) for i in range(len(endpoints))]
    tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
    for endpoint, ticket in zip(endpoints, tickets, strict=True):
        endpoint.wait(ticket, LONG)
    assert all((array == 2 * base + 1).all() for array in arrays)


def connect(name, clients, lease=0):
    """Connects both workers of the job, each in its host (again: with their incarnation, ``lease``)."""
    clients += [Client(name, LONG, token="secret", host=f"h{i + 2}") for i in range(2)]
    for i, client in enumerate(clients):
        client.join("job", i)
    for client in clients:
        client.admit("job", 2)
    return [client.attach("job", i, held=lease) for i, client in enumerate(clients)]
