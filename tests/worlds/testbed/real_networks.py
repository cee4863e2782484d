"""Networks of real interfaces for tests: each in a network namespace of the test's own, and workers in their hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import child
import pytest
import tiers
from capabilities import need
from waiting import until

from ina.base import paths
from ina.net import state
from ina.net.namespaces import own_namespace
from ina.worlds.testbed.mininet import Network

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROGRAM = paths.p4_dir() / "switchml.p4"
DEFINES = {"VALUES": "256", "SLOTS": "256"}

WORKER = """
import os, sys, json, time, numpy as np
from ina.aggregation.controller.client import Client
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint, WorkerConfig
name, rank, workers, count = sys.argv[1], *map(int, sys.argv[2:])
client = Client(name)
client.join("job", rank)
client.admit("job", workers, 32)
a = client.attach("job", rank, "udp")
rto = float(os.environ.get("RTO", 10e-3))
config = WorkerConfig(worker=rank, workers=workers, job=a.number, life=a.life, slots=a.slots, values=a.values,
                      rto_min=rto, rto_max=max(rto, 0.5), rto_fixed="RTO" in os.environ, timeout=200,
                      address=a.address, switch=a.switch)
parts = [np.random.default_rng(r).integers(-2**31, 2**31, count, dtype=np.int32) for r in range(workers)]
expected, out = np.sum(parts, axis=0, dtype=np.int32), np.zeros(count, np.int32)
with Endpoint(config, open_worker_port(a), client.fileno()) as endpoint:
    endpoint.run(parts[rank][:1000], out[:1000])  # everybody is there
    began = time.perf_counter()
    endpoint.run(parts[rank], out)
    seconds = time.perf_counter() - began
    stats = endpoint.stats
client.release()
client.close()
assert (out == expected).all()
print(json.dumps({"seconds": seconds, **stats}))
"""


@pytest.fixture(autouse=True)
def alone(tmp_path_factory, monkeypatch) -> Iterator[None]:
    """A network namespace and a run directory of the test's own, isolated from this machine's networks."""
    need("root", "netns", "mininet")
    tiers.several_processes("may start hosts and switches")
    monkeypatch.setenv("INA_RUN_DIR", str(tmp_path_factory.mktemp("run")))
    with own_namespace():
        yield


def environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=str(ROOT))


def ina(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    """The command line."""
    return child.run([sys.executable, "-m", "ina.cli", *arguments], child.TRAINING, env=environment(), cwd=cwd)


def over(pid: int) -> bool:
    """Waits for the end of a process, which may be nobody's child."""
    return until(lambda: state.start_time(pid) == 0, f"the end of process {pid}")


def run_workers(network: Network, count: int, hosts: list[str] | None = None, **variables: str) -> list[dict]:
    """Workers of one job in ``hosts`` (default: all), with ``count`` integers each; they check the sums. Returns statistics.
    With ``RTO`` (seconds) a packet is sent again after this time only, whatever comes out of order meanwhile."""
    hosts = hosts or [host.name for host in network.topology.hosts]
    started = [
        subprocess.Popen(
            network.command(host, [sys.executable, "-c", WORKER, network.socket, str(i), str(len(hosts)), str(count)]),
            env={**environment(), **variables}, stdout=subprocess.PIPE, text=True,
        )
        for i, host in enumerate(hosts)
    ]
    outputs = [child.output(process, child.TRAINING)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(hosts)
    return [json.loads(text) for text in outputs]


def left_behind(network: Network) -> list[str]:
    """Interfaces of the network that still exist."""
    ends = [end.name for pair in network.topology.ends for end in pair]
    return [name for name in ends if state.interface_exists(name)]
