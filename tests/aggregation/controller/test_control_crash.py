"""The controller ends after its n-th write to a switch or to its state file, for all n: nothing leaks, sums are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import child
import pytest
from capabilities import need
from dying_controller import STATUS
from test_recovery_processes import ROOT, Running, total
from waiting import LONG, until

from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.worker import Endpoint, WorkerConfig

pytestmark = [pytest.mark.build, pytest.mark.later]
SLOTS = 64
WRITES = 10  # of a job of two: admission, two workers that attach, leave, the job's end; some of them twice, switch and file


class Dying(Running):
    def begin(self, write=0):
        """Numbers begin at 0 again: these ports of UDP are those of workers of job 0."""
        file = Path(self.arguments[self.arguments.index("--state") + 1])
        if file.exists():
            state = json.loads(file.read_text())
            state["controller"]["last_number"] = 255
            file.write_text(json.dumps(state))
        command = [sys.executable, "-m", "tests.aggregation.controller.dying_controller", str(write), *map(str, self.arguments)]
        self.controller = _Process(command)


class _Process:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")})
        assert self.process.stdout.readline(), self.process.stderr.read()

    def kill(self):
        self.process.terminate()
        self.wait()

    def wait(self):
        child.status(self.process)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def running(tmp_path):
    need("cc", "p4runtime")
    running = Dying(tmp_path)
    yield running
    running.end()


def job(running, name, reduces):
    """A job of two workers, from its first request to its last."""
    clients = [Client(running.name, LONG, token="secret", host=f"h{i + 2}") for i in range(2)]
    endpoints = []
    try:
        for i, client in enumerate(clients):
            client.join(name, i)
        for client in clients:
            client.admit(name, 2)
        for i, client in enumerate(clients):
            a = client.attach(name, i)
            if reduces:
                config = WorkerConfig(worker=i, workers=2, job=a.number, life=a.life, slots=a.slots, values=a.values,
                                      address=a.address, switch=a.switch, rto_min=20e-3, timeout=LONG)
                endpoints.append(Endpoint(config, running.port(a)))
        if reduces:
            total(endpoints, 10_000)
        for client in clients:
            client.release()
    finally:
        for each in (*endpoints, *clients):
            each.close()


def free(running):
    client = Client(running.name, LONG)
    try:
        return client.ping()["free_slots"], list(client.ask("jobs")["jobs"])
    finally:
        client.close()


def test_whatever_the_last_write_was_nothing_stays_taken(running):
    running.controller.kill()
    for write in count(1):
        running.begin(write)
        try:
            job(running, f"job {write}", reduces=False)
            break
        except ControlError as error:
            assert error.code == "gone"
        running.controller.wait()
        assert running.controller.process.returncode == STATUS
        running.begin()
        until(lambda: free(running) == (SLOTS, []), f"what was taken when write {write} was the last one")
        job(running, "the next", reduces=True)
        assert free(running) == (SLOTS, [])
        running.controller.kill()
    assert write > WRITES and free(running) == (SLOTS, [])
