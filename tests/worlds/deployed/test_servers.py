"""Servers with one network card each, several ranks on a card, a router between them, and a switch process on one more server.

Each server is a network namespace. Nothing is deployed: `ina switch run --listen` on one, INA_SWITCH on the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import child
import pytest
import tiers
from capabilities import need
from waiting import until

need("cc", "torch", "root", "netns")

from ina.net.namespaces import own_namespace  # noqa: E402

pytestmark = [pytest.mark.root, pytest.mark.later]
ROOT = Path(__file__).resolve().parent.parent.parent.parent
TOKEN = "0123456789abcdef0123456789abcdef"
EACH = 2  # ranks of a server
RANK = """
import json, os
import torch, torch.distributed as dist
import ina.backend

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("ina")
for n in (1, 1000, 70000):
    integers = torch.arange(n, dtype=torch.int32) * (rank + 1)
    dist.all_reduce(integers)
    assert torch.equal(integers, torch.arange(n, dtype=torch.int32) * (size * (size + 1) // 2)), integers
    floats = torch.linspace(-1, 1, n) * (rank + 1)
    dist.all_reduce(floats)
    assert torch.allclose(floats, torch.linspace(-1, 1, n) * (size * (size + 1) / 2), atol=1e-4), floats
print(json.dumps({"sums": ina.backend.stats()["switch"]["sums"]}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@contextmanager
def servers(count):
    """Prefixes of commands in ``count`` servers: number n has the address 10.n.0.1, and its router is this thread's namespace."""
    with own_namespace(), ExitStack() as stack:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        prefixes = []
        for n in range(1, count + 1):
            sleeper = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            theirs, ours = f"/proc/{sleeper.pid}/ns/net", os.readlink("/proc/thread-self/ns/net")
            until(lambda theirs=theirs, ours=ours: os.readlink(theirs) != ours, "a namespace of its own")
            inside = ["nsenter", "-t", str(sleeper.pid), "-n"]
            for prefix, lines in (([], [f"link add to{n} type veth peer name nic netns {sleeper.pid}",
                                        f"addr add 10.{n}.0.254/24 dev to{n}", f"link set to{n} up"]),
                                  (inside, ["link set lo up", f"addr add 10.{n}.0.1/24 dev nic", "link set nic up",
                                            f"route add default via 10.{n}.0.254"])):
                child.run([*prefix, "ip", "-batch", "-"], input="\n".join(lines) + "\n", check=True)
            prefixes.append(inside)
        yield prefixes


@contextmanager
def listening(inside, *arguments):
    """A switch process for workers in a server; the first line that it says."""
    tiers.several_processes("starts a switch and ranks")
    command = [*inside, sys.executable, "-m", "ina.cli", "switch", "run", *arguments, "--listen", "nic"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"INA_TOKEN": TOKEN})
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        child.status(process)
        process.stdout.close()


def ranks(hosts, switch, token=TOKEN):
    """Exit status, output and error of each rank: EACH in each of the hosts. Only rank 0 knows where the switch is."""
    processes = []
    try:
        for rank in range(EACH * len(hosts)):
            environment = os.environ | {"GLOO_SOCKET_IFNAME": "nic", "RANK": str(rank), "WORLD_SIZE": str(EACH * len(hosts)),
                                        "MASTER_ADDR": "10.1.0.1", "MASTER_PORT": "29500"}
            if rank == 0 and switch:
                environment |= {"INA_SWITCH": switch, "INA_TOKEN": token}
            processes.append(subprocess.Popen([*hosts[rank // EACH], sys.executable, "-c", RANK], env=environment, cwd=ROOT,
                                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        outputs = [child.output(process, child.TRAINING) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@pytest.mark.parametrize("program", ["switchml", "atp"])
def test_several_ranks_of_each_server_sum_through_one_network_card(program):
    with servers(3) as (*hosts, last), listening(last, program) as line:
        assert "INA_SWITCH=10.3.0.1:5588" in line, line
        for status, out, error in ranks(hosts, "10.3.0.1:5588"):
            assert status == 0, error
            assert json.loads(out)["sums"] >= 6


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_rank_0_starts_the_switch_where_nobody_names_one(protocol, monkeypatch):
    monkeypatch.setenv("INA_PROTOCOL", protocol)
    monkeypatch.setenv("INA_TOKEN_FILE", "/nowhere/ina.token")
    with servers(3) as hosts:
        for status, out, error in ranks(hosts, ""):
            assert status == 0, error
            assert json.loads(out)["sums"] >= 6


def test_a_wrong_token_opens_no_job():
    with servers(2) as (host, last), listening(last):
        for status, _, error in ranks([host], "tcp:10.2.0.1:5588", token="f" * 32):
            assert status and ("token" in error or "did not join" in error or "Connection" in error), error
