"""The testbed: all-reduce through the P4 switch against Gloo over the same links, and the rate of one hop of forwarding.

Real UDP and TCP through kernel sockets, veth pairs and one embedded switch. Without root or Mininet it prints what is missing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.common import Figure, Measurement, console
from ina import topology as topologies
from ina.base import paths
from ina.lab import cost_model, processors
from ina.lab.processes import testbed
from ina.lab.training import launch
from ina.worlds.testbed.mininet import Network

# rate, MTU, integers per packet, bytes of a tensor
LINKS = [(100e6, 1500, 256, 2 << 20), (1e9, 9000, 2048, 16 << 20)]
WORKERS = (4, 8)
TURNS = 5
SECONDS = 1.5  # of forwarding
BUSY = 0.9  # share of processor time from which a row is bound by this machine unless its link is full

RANK = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=100))
groups = {name: dist.new_group(backend=name) for name in ("ina", "gloo")}
size, turns = map(int, sys.argv[1:])
rank, n = dist.get_rank(), dist.get_world_size()
def say(**fields):
    if rank == 0:
        print(json.dumps(fields), flush=True)
for turn in range(-1, turns):
    for name, group in groups.items():
        dist.all_reduce(torch.zeros(1), group=group)
        tensor = torch.full((size // 4,), float(rank + 1))
        say(start=name)
        began = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        say(name=name, turn=turn, seconds=time.perf_counter() - began)
        assert torch.equal(tensor, torch.full_like(tensor, n * (n + 1) / 2)), "wrong sum"
dist.destroy_process_group()
"""

# Two cables in a network namespace of their own; frames go into the first and are taken, or passed on into the second.
RAW = """
set -e
for i in 1 2; do
    ip link add near$i mtu 9000 type veth peer name far$i mtu 9000
    ip link set near$i up; ip link set far$i up
done
{packets} {taker} &
sleep 0.2
{packets} send far1 00:00:00:00:00:02 {size} {seconds} > /dev/null
wait
"""


def measure() -> list[Measurement]:
    if reason := testbed.missing():
        console.print(f"testbed: not measured: {reason}", highlight=False)
        return []
    return [_forwarding(), _allreduce()]


def _allreduce() -> Measurement:
    result = Measurement(
        "testbed: one tensor of float32, P4 switch against Gloo, same links",
        ["links", "workers", "ina ms", "link use", "gloo ms", "link use", "speed-up", "predicted", "bound", "share of predicted"],
        "speed-up over that of the cost model",
        "90 % of the model's gain where links are the bottleneck; rows that say host-limited are no results",
        keys=2,
    )
    for rate, mtu, values, size in LINKS:
        for workers in WORKERS:
            topology = topologies.load("star", hosts=workers, rate=rate, mtu=mtu)
            times, busy = _times(topology, values, size)
            ours, gloo = (Figure.of(times[name]) for name in ("ina", "gloo"))
            use = (cost_model.in_network_seconds(size, rate, values) / ours,
                   cost_model.ring_seconds(workers, size, rate, mtu) / gloo)
            limited = any(u < 0.8 and statistics.median(busy[n]) > BUSY for u, n in zip(use, ("ina", "gloo"), strict=True))
            predicted = cost_model.speed_up(workers, values, mtu)
            result.add(f"{rate / 1e6:g} Mb/s, MTU {mtu}", workers, 1e3 * ours, use[0], 1e3 * gloo, use[1], gloo / ours, predicted,
                       "host-limited" if limited else "link", gloo / ours / predicted)
    return result


def _times(topology: topologies.Topology, values: int, size: int) -> tuple[dict, dict]:
    """Returns seconds of each all-reduce, and the share of busy processor time meanwhile, by back end."""
    times: dict[str, list[float]] = {"ina": [], "gloo": []}
    busy: dict[str, list[float]] = {"ina": [], "gloo": []}
    before = (0, 0)

    def on_message(message: dict) -> None:
        nonlocal before
        if "start" in message:
            before = processors.ticks()
        elif message["turn"] >= 0:
            spent, total = (b - a for a, b in zip(before, processors.ticks(), strict=True))
            times[message["name"]].append(message["seconds"])
            busy[message["name"]].append(spent / max(1, total))

    with _network(topology, values) as network, tempfile.TemporaryDirectory() as folder:
        command = ["-c", RANK, str(size), str(TURNS)]
        launch.run(command, len(topology.hosts), Path(folder), "ranks", 120, on_message, testbed.place(network))
    return times, busy


def _forwarding() -> Measurement:
    result = Measurement(
        "testbed forwarding: packet sockets on veths, one sender that never stops",
        ["frame bytes", "taken, busy, kpps", "taken, blocking, kpps", "passed on, kpps", "us/frame", "by the switch, kpps",
         "us/frame", "ratio"],
        "the switch's frames over those that a loop of recvmmsg and sendmmsg passes on (both blocking), in the same run",
        "300 kpps, and most of what that loop can; us/frame is processor time of who passes on, the receiver's kernel included",
    )
    with tempfile.TemporaryDirectory() as folder:
        packets = str(Path(folder) / "packets")
        subprocess.run(["cc", "-O2", str(Path(__file__).parent / "packets.c"), "-o", packets], check=True)
        for size in (100, 1500, 9014):
            turns = [_forwarded(packets, size) for _ in range(TURNS)]
            busy, block, passed, cost, ours, own_cost = (Figure.of(samples) for samples in zip(*turns, strict=True))
            result.add(size, 1e-3 * busy, 1e-3 * block, 1e-3 * passed, 1e6 * cost, 1e-3 * ours, 1e6 * own_cost, ours / passed)
    return result


def _forwarded(packets: str, size: int) -> tuple[float, ...]:
    """Returns frames per second that are taken by polling, taken by waiting, and passed on, and processor seconds for each of
    these; then the same two of the switch."""
    sunk = [_raw(packets, f"sink near1 {SECONDS + 0.6} {mode}", size)[0] for mode in ("busy", "block")]
    passed = _raw(packets, f"forward near1 near2 {SECONDS + 0.6} block", size)
    with _network(topologies.load("star", hosts=2, rate=0, mtu=9000, queue=0), 256) as network:
        return (*sunk, *passed, *_switched(network, packets, size))


def _raw(packets: str, taker: str, size: int) -> tuple[float, float]:
    """Returns frames per second without a switch, and processor seconds for each."""
    script = RAW.format(packets=packets, taker=taker, size=size, seconds=SECONDS)
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=True)
    frames, seconds, spent = map(float, done.stdout.split())
    return frames / seconds, spent / frames


def _switched(network: Network, packets: str, size: int) -> tuple[float, float]:
    """Returns frames per second from h1 to h2, and processor seconds of the switch process for each."""
    mac = next(host.mac for host in network.topology.hosts if host.name == "h2")

    def passed() -> int:
        links = network.counters()["links"]
        assert isinstance(links, dict)
        return links["h2"]["down_packets"]

    before, spent = passed(), _spent(network.switch_pid)
    sender = network.command("h1", [packets, "send", "h1-eth0", mac, str(size), str(SECONDS)])
    seconds = float(subprocess.run(sender, capture_output=True, text=True, check=True).stdout.split()[1])
    rate = (passed() - before) / seconds
    time.sleep(0.2)
    return rate, (_spent(network.switch_pid) - spent) / max(1, passed() - before)


def _spent(pid: int) -> float:
    """Returns processor seconds of a process (proc(5), utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _network(topology: topologies.Topology, values: int) -> Iterator[Network]:
    defines = {"VALUES": str(values), "SLOTS": "1024"}
    with Network(topology, paths.p4_dir() / "switchml.p4", defines, job_slots=32) as network:
        yield network


if __name__ == "__main__":
    for measurement in measure():
        measurement.show()
        print(json.dumps(measurement.rows))
