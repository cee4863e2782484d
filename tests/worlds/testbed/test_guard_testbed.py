"""A host of a network that forges the switch's frames, through a socket of the kernel's: they reach no worker."""

from __future__ import annotations

import subprocess
import sys

import pytest
from real_networks import DEFINES, PROGRAM, ROOT, alone, environment, run_workers
from waiting import until

from ina.topology import load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture

COUNT, RATE = 400_000, 20e6
# It asks for the job, as everybody may, and answers the first worker's packets, the last one first: sooner or later it comes
# across those that the worker waits for.
FORGER = """
import socket, sys, time
sys.path.insert(0, "tests")
from forger import results
from ina.aggregation.controller.client import Client
from ina.aggregation.worker import Address, WorkerConfig
from ina.topology.topology import Node
name, count = sys.argv[1], int(sys.argv[2])
client = Client(name)
while not (jobs := client.ask("jobs")["jobs"]):
    time.sleep(0.001)
job, s1, h1 = jobs["job"], Node("s1"), Node("h1")
config = WorkerConfig(0, 3, job=job["number"], life=job["life"], slots=32, values=256,
                      address=Address(h1.mac, h1.ip, 4000 + job["number"]), switch=Address(s1.mac, s1.ip, 0xBEE0))
frames = results(config, 1000, count)[::-1]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
    sock.bind(("h4-eth0", 0))
    while True:
        for frame in frames:
            sock.send(frame)
"""


def test_forged_results_reach_no_worker_of_a_network():
    with Network(load("star", hosts=4, rate=RATE), PROGRAM, DEFINES) as network:
        command = network.command("h4", [sys.executable, "-c", FORGER, network.socket, str(COUNT)])
        forger = subprocess.Popen(command, env=environment(), cwd=ROOT)
        try:
            run_workers(network, COUNT, ["h1", "h2", "h3"])  # they check their sums
            until(lambda: forged(network).get(4, 0) > 1000, "frames that were forged")
            assert forger.poll() is None
        finally:
            forger.kill()
            forger.wait()
        assert list(forged(network)) == [4]


def forged(network: Network) -> dict[int, int]:
    """Number of forged frames that arrived, by port."""
    program = network.counters()["program"]
    cells = next(cells for name, cells in program.items() if name.endswith("forged"))
    return {port: packets for port, (packets, _) in enumerate(cells) if packets}
