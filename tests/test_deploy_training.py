"""The whole way to the hardware, with the embedded switch in its place.

`ina switch run` serves BFRuntime, `ina deploy` writes ports and forwarding, `ina tofino controller` admits the job over
BFRuntime, and the ranks, each in a host of its own (a network namespace) with kernel UDP sockets, find the controller over TCP
through the switch that they train over.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL

import pytest
from capabilities import need

need("cc", "p4runtime", "torch", "root", "netns", "mininet")

from ina.control.controller import switch_address  # noqa: E402
from ina.transport.namespaces import own_namespace  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 120
HOSTS = 2
FILE = """
kind = "training"
name = "far"
workers = {hosts}
values = 64
slots = 32

[tofino]
p4_name = "switchml"

[tofino.ports]
"1/0" = {{ fec = "rs" }}
"2/0" = {{ fec = "rs" }}
"""
HOST = """
[[tofino.host]]
name = "server{n}"
port = "{n}/0"
mac = "02:aa:00:00:00:0{n}"
ip = "10.0.0.{n}"
"""
RANK = """
import json, os
import torch, torch.distributed as dist
import ina.backend

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("ina")
for n in (1, 1000, 5000):
    integers = torch.arange(n, dtype=torch.int32) * (rank + 1)
    dist.all_reduce(integers)
    assert torch.equal(integers, torch.arange(n, dtype=torch.int32) * 3), integers
    floats = torch.full((n,), float(rank + 1))
    dist.all_reduce(floats)
    assert torch.allclose(floats, torch.full((n,), 3.0)), floats
print(json.dumps(ina.backend.stats()["switch"]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@contextmanager
def running(command, says, **options):
    """A process that has said so; ended, and waited for, at the end."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, **options)
    try:
        said = ""
        while says not in said:
            line = process.stdout.readline()
            said += line
            assert line, f"{command}: {said}"
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def ip(*lines, inside=()):
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, timeout=DEADLINE)


@pytest.fixture
def hosts():
    """Namespaces of the hosts, each with a NIC at a veth that is the switch's; this thread is in the switch's."""
    with own_namespace(), ExitStack() as stack:
        switch = switch_address("s1")
        found = []
        for n in range(1, HOSTS + 1):
            sleeper = subprocess.Popen(["unshare", "-n", "sleep", "600"])
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            inside = ["nsenter", "-t", str(sleeper.pid), "-n"]
            for _ in range(100):  # until it is in its own
                if os.readlink(f"/proc/{sleeper.pid}/ns/net") != os.readlink("/proc/thread-self/ns/net"):
                    break
                time.sleep(0.02)
            ip(f"link add port{n} type veth peer name nic netns {sleeper.pid}", f"link set port{n} up", "link set lo up")
            ip("link set lo up", f"link set nic address 02:aa:00:00:00:0{n}", "link set nic up", f"addr add 10.0.0.{n}/8 dev nic",
               f"neigh replace {switch.ip} lladdr {switch.mac} nud permanent dev nic", inside=inside)  # fmt: skip
            subprocess.run([*inside, "ethtool", "-K", "nic", "tx", "off", "tso", "off", "gso", "off"], check=True, stdout=DEVNULL)
            found.append(inside)
        yield found


def test_ranks_train_over_a_switch_that_was_deployed(hosts, tmp_path):
    ina = [sys.executable, "-m", "ina.cli"]
    file, served = tmp_path / "far.toml", f"unix:{tmp_path / 'bfrt'}"
    file.write_text(FILE.format(hosts=HOSTS) + "".join(HOST.format(n=n) for n in range(1, HOSTS + 1)))
    switch = [*ina, "switch", "run", "p4/tofino/switchml.p4", "-D", "VALUES=64", "--arch", "tna",
              "-i", "0@port1", "-i", "4@port2", "--grpc", f"unix:{tmp_path / 'p4rt'}", "--bfrt", served]  # fmt: skip
    controller = [*hosts[0], *ina, "tofino", "controller", str(file), "--at", served, "--name", "tcp:10.0.0.1:5588",
                  "--state", str(tmp_path / "jobs.json")]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(running(switch, "P4Runtime:"))
        deploy = [*ina, "deploy", str(file), "--at", served]
        done = subprocess.run(deploy, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "port 2/0 (device port 4): up" in done.stdout
        stack.enter_context(running(controller, '"pid"'))
        ranks = []
        for n, inside in enumerate(hosts):
            environment = os.environ | {
                "INA_SWITCH": "tcp:10.0.0.1:5588", "INA_HOST": f"server{n + 1}", "GLOO_SOCKET_IFNAME": "nic", "RANK": str(n),
                "WORLD_SIZE": str(HOSTS), "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
            }  # fmt: skip
            ranks.append(subprocess.Popen([*inside, sys.executable, "-c", RANK], env=environment, cwd=ROOT, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip
        try:
            said = [rank.communicate(timeout=DEADLINE) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        for rank, (out, error) in zip(ranks, said, strict=True):
            assert rank.returncode == 0, error
            assert json.loads(out.splitlines()[-1])["sums"] >= 6
