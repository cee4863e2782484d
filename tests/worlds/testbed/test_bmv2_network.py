"""BMv2 as the switches of a testbed: the same workers and controller, the same links, the same sums, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from real_networks import DEFINES, PROGRAM, alone, environment, left_behind, over, run_workers

need("p4runtime", "simple_switch_grpc", "p4c")

from ina.aggregation.controller.client import ControlError  # noqa: E402
from ina.aggregation.worker.config import ETHERNET_OVERHEAD, HEADERS  # noqa: E402
from ina.net import state  # noqa: E402
from ina.p4.p4runtime.remote_switch import RemoteSwitch  # noqa: E402
from ina.p4.runtime import TableEntry  # noqa: E402
from ina.topology import Link, Node, Topology, load  # noqa: E402
from ina.worlds.testbed.mininet import MininetMissing, Network  # noqa: E402

pytestmark = [pytest.mark.hardware, pytest.mark.later]
__all__ = ["alone"]  # a fixture
pytestmark = pytest.mark.hardware

VALUES = 64


def network(topology: Topology | None = None, **options) -> Network:
    topology = topology or load("star", **{"hosts": 2, "rate": 0, **options})
    return Network(topology, PROGRAM, {**DEFINES, "VALUES": str(VALUES)}, kind="bmv2", seed=3)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sums_are_exact_and_links_keep_their_rate():
    count, rate = 20_000, 5e6
    with network(rate=rate) as up:
        done = run_workers(up, count)
        counters = up.counters()
        (bmv2,) = children(up._process.pid)
    bits = 8 * -(-count // VALUES) * (HEADERS + 4 * VALUES + ETHERNET_OVERHEAD)
    for worker, link in zip(done, counters["links"].values(), strict=True):
        assert worker["seconds"] > 0.98 * bits / rate, "no faster than the link"
        assert link["up_bytes"] * 8 >= bits and link["down_bytes"] * 8 >= bits
        assert not any(link["errors"].values())
    drops = counters["program"]["SwitchIngress.drops"]
    assert drops and not any(packets for packets, _ in drops[:7]), "repetitions of what is over may be dropped, nothing else"
    assert over(bmv2) and left_behind(up) == [] and state.read() == {}
    assert list(state.run_dir().iterdir()) == []


def test_losses_of_links_are_survived_and_counted():
    with network(loss=0.03) as up:
        done = run_workers(up, 20_000)
        links = up.counters()["links"]
    assert all(link["lost"] > 0 for link in links.values())
    assert all(worker["retransmissions"] > 0 for worker in done)


def test_each_switch_is_a_process_that_forwards_and_jobs_span_them():
    nodes = tuple(map(Node, ("h1", "h2", "h3", "s1", "s2")))
    trunk = Link("s1", "s2", rate=10e6)
    with network(Topology("pair", nodes, (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), trunk))) as up:
        assert len(children(up._process.pid)) == 2
        ping = up.command("h1", ["ping", "-c", "3", "-i", "0.1", "-W", "60", "-s", "1000", "10.0.0.3"])
        output = subprocess.run(ping, capture_output=True, text=True).stdout
        assert "3 received" in output
        assert float(output.split("min/avg/max/mdev = ")[1].split("/")[0]) > 1.7, "1066 B at 10 Mb/s last 853 us, there and back"
        run_workers(up, 5_000, ["h1", "h2"])
        run_workers(up, 5_000)  # over both: s2 sends its sums to s1, or s1 to s2
        assert set(up.counters()["links"]) == {"h1", "h2", "h3", "s1-s2"}
        with RemoteSwitch(f"unix:{state.run_dir()}/s2.p4runtime", device_id=2, election_id=None) as reader:
            assert len(reader.read([TableEntry("l2")])) == 4, "three hosts and broadcasts"


def test_a_switch_that_ends_is_an_error_that_says_so():
    with network() as up:
        (bmv2,) = children(up._process.pid)
        os.kill(bmv2, signal.SIGKILL)
        assert over(bmv2)
        with pytest.raises(ControlError, match="simple_switch_grpc has ended with status -9"):
            up.counters()


def test_bmv2_goes_with_a_switch_process_that_is_killed():
    up = network().start()
    (bmv2,) = children(up._process.pid)
    os.kill(up._process.pid, signal.SIGKILL)
    assert over(bmv2)
    up.stop()
    assert left_behind(up) == [] and list(state.run_dir().iterdir()) == []


def test_without_bmv2_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("INA_SIMPLE_SWITCH_GRPC", "/nowhere/simple_switch_grpc")
    with pytest.raises(MininetMissing, match="/nowhere/simple_switch_grpc.*p4lang-bmv2"):
        network().start()
    assert state.read() == {}


# ---- the command line


def ina(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "ina.cli", "run", "--switch", "bmv2", *arguments]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_a_training_through_bmv2_is_that_through_the_embedded_switch_to_the_bit(tmp_path, protocol):
    need("torch", "matplotlib", "sklearn")
    options = ["--world", "testbed", "--workers", "2", "--steps", "2", "--backends", "ina", "--set", "rate=0",
               "--set", "loss=0.01", "--set", "model=small", "--set", "values=64", "--set", "slots=8",
               "--set", f"protocol={protocol}", "--results", str(tmp_path)]
    for switch in ("bmv2", "embedded"):
        done = ina(*options, "--switch", switch, "--name", switch)
        output = child.output(done, child.TRAINING)[0]
        assert done.returncode == 0, output
    (bmv2,), (embedded,) = tmp_path.glob("bmv2-*"), tmp_path.glob("embedded-*")
    parameters = "parameters-ina-step2.npy"
    assert (bmv2 / parameters).read_bytes() == (embedded / parameters).read_bytes()


def test_an_interrupted_training_leaves_nothing(tmp_path):
    need("torch", "matplotlib", "sklearn")
    with ina("--workers", "2", "--results", str(tmp_path), "--set", "values=64") as run:
        for line in run.stdout:
            if line.startswith("Training on"):
                break
        (record,) = [state.read()]
        run.send_signal(signal.SIGINT)
        assert "every process of the run has been ended" in run.stdout.read()
    assert run.returncode == 130
    assert all(over(pid) for pid, _ in record["processes"])
    assert not state.interface_exists("s1-eth1") and list(state.run_dir().iterdir()) == []


def test_a_training_whose_bmv2_ends_says_so(tmp_path):
    need("torch", "matplotlib", "sklearn")
    with ina("--workers", "2", "--results", str(tmp_path), "--set", "values=64", "--backends", "ina") as run:
        for line in run.stdout:
            if line.startswith("Training on"):
                break
        bmv2 = next(child for pid, _ in state.read()["processes"] for child in children(pid)
                    if "simple_switch_grpc" in Path(f"/proc/{child}/cmdline").read_text())
        os.kill(bmv2, signal.SIGKILL)
        output = run.stdout.read()
    assert run.returncode == 1, output
    (log,) = tmp_path.glob("*/ina-rank0.log")
    assert "simple_switch_grpc has ended with status -9" in output + log.read_text(), "from who asks first: the runner or a rank"
    assert not state.interface_exists("s1-eth1")
