"""A switch's process is killed under a torch job in a real network: the job moves to another spine, and no sum is wrong."""

import os
import signal
import subprocess
import sys

import child
import pytest
from capabilities import need
from real_networks import DEFINES, PROGRAM, alone, environment
from test_testbed_switches import children

from ina.topology import Node, load, routes
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.gate]
__all__ = ["alone"]  # a fixture

RANK = """
import sys, torch, torch.distributed as dist
dist.init_process_group("ina")
rank, n = dist.get_rank(), dist.get_world_size()
for step in range(40):
    tensors = [torch.arange(300_000, dtype=torch.float32) % 1000 + rank + step + i for i in range(3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, (tensor, work) in enumerate(zip(tensors, works)):
        work.wait()
        assert torch.equal(tensor, n * (torch.arange(300_000) % 1000 + step + i) + n * (n - 1) / 2), (step, i)
        tensor.zero_()
    print(step, flush=True)
dist.destroy_process_group()
"""


def test_a_job_goes_on_over_another_spine():
    need("torch")
    topology = load("leaf-spine", leaves=2, spines=2, hosts=2, rate=1e9)
    ways = routes.tables(topology)
    # What is not aggregated keeps its routes: the ranks' store must not be reached over the switch that will be killed.
    hosts = next(pair for pair in (("h1", "h3"), ("h2", "h4")) if ways["s1"][pair[1]].node == ways["s2"][pair[0]].node == "s4")
    with Network(topology, PROGRAM, DEFINES, kind="process") as network:
        common = {**environment(), "MASTER_ADDR": Node(hosts[0]).ip, "MASTER_PORT": "29500", "INA_SWITCH": network.socket,
                  "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(network.command(host, [sys.executable, "-c", RANK]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**common, "RANK": str(rank), "GLOO_SOCKET_IFNAME": f"{host}-eth0"}, text=True)
            for rank, host in enumerate(hosts)
        ]
        try:
            while (line := ranks[0].stdout.readline()) not in ("10\n", ""):
                pass
            client = network.client()
            (job,) = client.ask("jobs")["jobs"].values()
            assert job["root"] == "s3" and set(job["switches"]) == {"s3", "s1", "s2"}
            os.kill(children(network._process.pid)["ina-s3"], signal.SIGKILL)
            outs = [child.output(rank, child.TRAINING) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        assert [rank.returncode for rank in ranks] == [0, 0], outs
        assert outs[0][0].splitlines()[-1] == "39" and line == "10\n"
        assert all("switch s3 is lost" in error and "goes on over s4, s1, s2" in error for _, error in outs)
        assert "is gone" in client.ask("switches")["switches"]["s3"]["state"]
        client.close()
