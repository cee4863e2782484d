"""The whole way to the hardware, with the embedded switch in its place.

`ina switch run` serves BFRuntime, `ina deploy` writes ports and forwarding, `ina tofino controller` admits the job over
BFRuntime, and the ranks, each in a host of its own (a network namespace) with kernel UDP sockets, find the controller over TCP
through the switch that they train over; or through a tree of three, with loss on a link.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL

import child
import pytest
import tiers
import tofino_file
from capabilities import need
from waiting import until

need("cc", "p4runtime", "torch", "root", "netns", "mininet")

from ina.aggregation.controller.admission import switch_address  # noqa: E402
from ina.net.namespaces import own_namespace  # noqa: E402

pytestmark = [pytest.mark.root, pytest.mark.later]
ROOT = Path(__file__).resolve().parent.parent.parent.parent
INA = [sys.executable, "-m", "ina.cli"]
FILE = """
kind = "training"
name = "far"
protocol = "{protocol}"
workers = {hosts}
values = 64
slots = 32

[tofino]
p4_name = "{protocol}"
"""
ONE = """
[tofino.ports]
"1/0" = { fec = "rs" }
"2/0" = { fec = "rs" }
"""
MAC = "02:aa:00:00:00"  # of hosts, but for the number
RANK = """
import hashlib, json, os
import torch, torch.distributed as dist
import ina.backend

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("ina")
for n in (1, 1000, 5000):
    integers = torch.arange(n, dtype=torch.int32) * (rank + 1)
    dist.all_reduce(integers)
    whole = size * (size + 1) // 2
    assert torch.equal(integers, torch.arange(n, dtype=torch.int32) * whole), integers
    floats = torch.full((n,), float(rank + 1))
    dist.all_reduce(floats)
    assert torch.allclose(floats, torch.full((n,), float(whole))), floats
torch.manual_seed(1)
layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
model = torch.nn.parallel.DistributedDataParallel(layers)
optimiser, losses = torch.optim.SGD(model.parameters(), 0.05), []
for step in range(10):
    inputs = torch.randn(16, 20, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
stats = ina.backend.stats()
said = {"sums": stats["switch"]["sums"], "again": stats["worker"]["retransmissions"], "model": hashlib.sha256(bits).hexdigest()}
print(json.dumps(said), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@contextmanager
def running(command, ready_text, **options):
    """A process that has printed ``ready_text``; terminated, and waited for, at the end."""
    tiers.several_processes("starts switches and controllers")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, **options)
    try:
        output = ""
        while ready_text not in output:
            line = process.stdout.readline()
            output += line
            assert line, f"{command}: {output}"
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
    child.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", check=True)


@contextmanager
def namespaces(switches):
    """Prefixes of commands in the hosts' namespaces, by number: each has a NIC on a veth pair to its switch, and the switch's
    address. This thread is in the switches' namespace, which has the veths between them, too."""
    with own_namespace(), ExitStack() as stack:
        ip("link set lo up")
        prefixes = []
        for n, name in enumerate(switches, 1):
            switch = switch_address(name)
            sleeper = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            inside = ["nsenter", "-t", str(sleeper.pid), "-n"]
            theirs, ours = f"/proc/{sleeper.pid}/ns/net", os.readlink("/proc/thread-self/ns/net")
            until(lambda theirs=theirs, ours=ours: os.readlink(theirs) != ours, "a namespace of its own")
            ip(f"link add port{n} type veth peer name nic netns {sleeper.pid}", f"link set port{n} up")
            peers = [switch.ip, *(f"10.0.0.{other}" for other in range(1, len(switches) + 1) if other != n)]
            ip("link set lo up", f"link set nic address 02:aa:00:00:00:0{n}", "link set nic up",
               f"addr add 10.0.0.{n}/32 dev nic",
               *(f"route add {peer}/32 dev nic" for peer in peers),
               f"neigh replace {switch.ip} lladdr {switch.mac} nud permanent dev nic", inside=inside)
            subprocess.run([*inside, "ethtool", "-K", "nic", "tx", "off", "tso", "off", "gso", "off"], check=True, stdout=DEVNULL)
            prefixes.append(inside)
        yield prefixes


def switch_run(folder, name, *interfaces, protocol="switchml"):
    """Returns a command, and the address at which it serves BFRuntime."""
    served, program = f"unix:{folder / name}", f"p4/tofino/{protocol}.p4"
    return [*INA, "switch", "run", program, "-D", "VALUES=64", "--arch", "tna", *(f"-i{at}" for at in interfaces), "--grpc",
            f"unix:{folder / name}.p4rt", "--bfrt", served], served


def deploy(file, *options):
    done = child.run([*INA, "deploy", file, *options], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(hosts, faults=None):
    """Trains with a rank in each of the hosts; returns their reports. `faults`: values of INA_FAULT, by rank."""
    ranks = []
    for n, inside in enumerate(hosts):
        environment = os.environ | {
            "INA_SWITCH": "tcp:10.0.0.1:5588", "INA_HOST": f"server{n + 1}", "GLOO_SOCKET_IFNAME": "nic", "RANK": str(n),
            "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
        }
        if n in (faults or {}):
            environment["INA_FAULT"] = faults[n]
        ranks.append(subprocess.Popen([*inside, sys.executable, "-c", RANK], env=environment, cwd=ROOT, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    try:
        outputs = [child.output(rank, child.TRAINING) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, error) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, error
    reports = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    assert all(each["sums"] >= 6 for each in reports) and len({each["model"] for each in reports}) == 1
    return reports


def controller(hosts, file, state, *options):
    return [*hosts[0], *INA, "tofino", "controller", str(file), *options, "--switch-timeout", "60", "--name", "tcp:10.0.0.1:5588",
            "--state", str(state)]


def test_ranks_train_over_a_switch_that_was_deployed(tmp_path):
    file, names = tmp_path / "far.toml", ["s1", "s1"]
    text = FILE.format(hosts=2, protocol="switchml") + ONE
    file.write_text(text + "".join(tofino_file.host(n, "", n, MAC) for n in (1, 2)))
    with namespaces(names) as hosts, ExitStack() as stack:
        switch, served = switch_run(tmp_path, "bfrt", "0@port1", "4@port2")
        stack.enter_context(running(switch, "P4Runtime:"))
        assert "port 2/0 (device port 4): up" in deploy(file, "--at", served)
        stack.enter_context(running(controller(hosts, file, tmp_path / "jobs.json", "--at", served), '"pid"'))
        train(hosts)


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_ranks_train_over_a_tree_that_was_deployed(tmp_path, protocol):
    """Two ranks are at leaf1, one at leaf2, whose link loses frames; ATP's parameter server is there, too."""
    file, names = tmp_path / "far.toml", ["s1", "s1", "s2"]
    with namespaces(names) as hosts, ExitStack() as stack:
        ip("link add up1 type veth peer name down1", "link add up2 type veth peer name down2",
           *(f"link set {name} up" for name in ("up1", "down1", "up2", "down2")))
        panel, text = {0: "1/0", 4: "2/0", 128: "17/0"}, FILE.format(hosts=3, protocol=protocol)
        at = {"leaf1": {0: "port1", 4: "port2", 128: "up1"}, "leaf2": {0: "port3", 128: "up2"}, "root": {0: "down1", 4: "down2"}}
        for name, interfaces in at.items():
            switch, served = switch_run(tmp_path, name, *(f"{port}@{interface}" for port, interface in interfaces.items()),
                                        protocol=protocol)
            stack.enter_context(running(switch, "P4Runtime:"))
            text += tofino_file.switch(name, served, [panel[port] for port in interfaces])
        places = [(1, "leaf1", 1), (2, "leaf1", 2), (3, "leaf2", 1)]
        text += tofino_file.link("leaf1:17/0", "root:1/0") + tofino_file.link("leaf2:17/0", "root:2/0")
        file.write_text(text + "".join(tofino_file.host(n, at, port, MAC) for n, at, port in places))
        assert "leaf1: port 17/0 (device port 128): up" in deploy(file)
        stack.enter_context(running(controller(hosts, file, tmp_path / "jobs.json"), '"pid"'))
        if protocol == "atp":
            server = [*hosts[2], *INA, "ps", "--switch", "tcp:10.0.0.1:5588", "--host", "server3"]
            stack.enter_context(running(server, "serving jobs of atp at 10.0.0.3"))
        reports = train(hosts, {2: "loss=0.01,seed=1"})
        assert sum(each["again"] for each in reports) > 0
