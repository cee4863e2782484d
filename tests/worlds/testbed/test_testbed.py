"""Networks of real interfaces: hosts in namespaces, our switch between them, links that keep their rate, nothing left."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from real_networks import DEFINES, PROGRAM, alone, environment, ina, left_behind, over, run_workers
from waiting import until

from ina.aggregation.controller.client import ControlError
from ina.aggregation.worker.config import ETHERNET_OVERHEAD, HEADERS
from ina.lab.processes import testbed
from ina.net import state
from ina.topology import Topology, TopologyError, load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture


def star(**options) -> Topology:
    return load("star", **{"hosts": 4, "rate": 100e6, **options})


def test_a_network_comes_up_and_goes_down():
    network = Network(star(mtu=9000), PROGRAM, DEFINES)
    with network:
        ping = ["ping", "-c", "1", "-W", "60", "-M", "do", "-s", "8972", "10.0.0.2"]
        subprocess.run(network.command("h1", ping), check=True, stdout=subprocess.DEVNULL)
        output = subprocess.run(network.command("h3", ["ethtool", "-k", "h3-eth0"]), capture_output=True, text=True).stdout
        for feature in ("tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"):
            assert f"{feature}: off" in output
        assert subprocess.run(network.command("h2", ["cat", "/proc/net/if_inet6"]), capture_output=True).stdout == b""
        links = network.counters()["links"]
        assert set(links) == {"h1", "h2", "h3", "h4"}
        assert links["h1"]["up_bytes"] == 9014 + ETHERNET_OVERHEAD == links["h2"]["down_bytes"]
        assert links["h3"]["up_packets"] == 0, "everybody knows everybody's address: no ARP"
        switch = network._process.pid
    assert left_behind(network) == [] and state.start_time(switch) == 0 and state.read() == {}
    network.stop()


@pytest.mark.gate
def test_sums_are_exact_and_the_link_keeps_its_rate():
    count, rate = 150_000, 100e6
    with Network(star(rate=rate), PROGRAM, DEFINES) as network:
        done = run_workers(network, count, RTO="5")
        links, program = network.counters()["links"], network.counters()["program"]
    blocks = -(-count // 256)
    bits = 8 * blocks * (HEADERS + 4 * 256 + ETHERNET_OVERHEAD)
    for worker, link in zip(done, links.values(), strict=True):
        assert worker["seconds"] > 0.98 * bits / rate, "no faster than the link"
        assert link["up_bytes"] * 8 >= bits and link["down_bytes"] * 8 >= bits
        assert link["up_packets"] >= worker["tx_packets"] and link["up_tail_drops"] == link["down_tail_drops"] == 0
        assert not any(link["errors"].values())
    assert not any(packets for packets, _ in program["SwitchIngress.drops"])


def test_sums_are_exact_when_links_lose_and_the_losses_are_counted():
    with Network(star(rate=0, loss=0.02), PROGRAM, DEFINES, seed=5) as network:
        done = run_workers(network, 100_000)
        links = network.counters()["links"]
    assert all(link["lost"] > 0 for link in links.values())
    assert all(worker["retransmissions"] > 0 for worker in done)


def test_other_traffic_crosses_the_same_links():
    """TCP from h1 to h2: through the switch, no faster than the links, whole."""
    amount, rate = 600_000, 50e6
    sender = f"import socket; s = socket.create_connection(('10.0.0.2', 5000)); s.sendall(bytes({amount})); s.close()"
    receiver = (
        "import socket, time; l = socket.create_server(('', 5000)); print(flush=True)\n"
        "s = l.accept()[0]; t = time.time(); n = 0\nwhile d := s.recv(65536): n += len(d)\nprint(n, time.time() - t)"
    )
    with Network(star(rate=rate, hosts=2), PROGRAM, DEFINES) as network:
        command = network.command("h2", [sys.executable, "-c", receiver])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
            listening.stdout.readline()
            child.run(network.command("h1", [sys.executable, "-c", sender]), check=True)
            received, seconds = listening.stdout.readline().split()
        links = network.counters()["links"]
    assert int(received) == amount
    assert float(seconds) > 0.9 * 8 * amount / rate
    assert links["h1"]["up_bytes"] > amount and links["h2"]["down_bytes"] > amount


def test_workers_must_be_in_hosts_each_in_its_own():
    with Network(star(hosts=2), PROGRAM, DEFINES) as network:
        outside = network.client()
        outside.join("job", 0)
        with pytest.raises(ControlError, match=rf"process {os.getpid()} is in no host of this network \(h1, h2\)"):
            outside.admit("job", 2)
        outside.close()
        code = (
            "import sys; from ina.aggregation.controller.client import Client\n"
            "c, d = Client(sys.argv[1]), Client(sys.argv[1]); c.join('one', 0); c.admit('one', 1, 32)\n"
            "a = c.attach('one', 0); print(a.address.ip, a.address.port - a.number, a.port['peer'])\n"
            "d.join('one', 1)\ntry: d.admit('one', 2)\nexcept Exception as e: print(e)"
        )
        command = network.command("h2", [sys.executable, "-c", code, network.socket])
        lines = subprocess.run(command, env=environment(), capture_output=True, text=True).stdout.splitlines()
    assert lines[0] == "10.0.0.2 4000 ['10.255.0.1', 48864]", "a worker has its host's address, whatever its number"
    assert "h2 has a worker of this job already (0)" in lines[1]


def test_admission_waits_until_all_workers_have_joined():
    code = (
        "import sys; from ina.aggregation.controller.client import Client\n"
        "c = Client(sys.argv[1]); c.join('job', 1); sys.stdin.read()"
    )
    ask = (
        "import sys; from ina.aggregation.controller.client import Client\nc = Client(sys.argv[1]); c.join('job', 0)\n"
        "print('joined', flush=True)\ntry: print(c.admit('job', 2, 32)['workers'])\nexcept Exception as e: print(e)"
    )
    look = "import sys; from ina.aggregation.controller.client import Client; Client(sys.argv[1]).ping()"
    with Network(star(hosts=3), PROGRAM, DEFINES) as network:
        def start(host: str, code: str) -> subprocess.Popen:
            command = network.command(host, [sys.executable, "-c", code, network.socket])
            return subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        with start("h1", ask) as first:
            assert first.stdout.readline() == "joined\n"
            child.run(network.command("h2", [sys.executable, "-c", look, network.socket]), env=environment(), check=True)
            assert not select.select([first.stdout], [], [], 0)[0], "one of two is there"
            with start("h3", code) as second:
                assert first.stdout.readline() == "2\n"
                second.stdin.close()


def test_a_network_in_another_namespace_is_left_alone():
    code = (
        "from ina.topology import load\nfrom ina.worlds.testbed.mininet import Network\n"
        f"Network(load('star'), {str(PROGRAM)!r}, {DEFINES!r}).start()"
    )
    with Network(star(hosts=2), PROGRAM, DEFINES) as network:
        other = subprocess.run(["unshare", "-n", sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
        assert f"(process {os.getpid()}, in another network namespace)" in other.stderr
        assert network.counters()["links"]["h1"]["up_packets"] == 0, "it is there as before"


@pytest.mark.parametrize("kind", ["embedded", "process"])
def test_a_killed_network_is_cleaned_up_by_the_next_start(kind, capsys):
    """The second one has interfaces between its switches, and a process for each. A run names the remains that it has found."""
    code = (
        "import subprocess, sys, time\nfrom ina.topology import load\nfrom ina.worlds.testbed.mininet import Network\n"
        "network = Network(load('leaf-spine', leaves=2, spines=1, hosts=1), "
        f"{str(PROGRAM)!r}, {DEFINES!r}, kind={kind!r}).start()\n"
        "job = subprocess.Popen(network.command('h1', ['sleep', '3600'])); network.adopt(job.pid)\n"
        "print(job.pid, network._process.pid, flush=True); time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True) as runner:
        job, switch = map(int, runner.stdout.readline().split())
        assert state.interface_exists("s1-eth1") and state.interface_exists("s3-eth2") == (kind == "process")
        with pytest.raises(state.Busy, match=rf"process {runner.pid}"):
            Network(star(), PROGRAM, DEFINES).start()
        runner.send_signal(signal.SIGKILL)
    assert state.start_time(job) > 0, "a process in a host outlives its network's runner"
    with testbed.opened(Network(star(hosts=2), PROGRAM, DEFINES)) as network:
        assert state.start_time(job) == 0
    output = capsys.readouterr().err
    assert output.startswith("ina: left by an earlier network, and removed: ") and f"process {job}: SIGTERM" in output, output
    assert over(switch) and left_behind(network) == [] and not state.interface_exists("s3-eth2")


# ---- the command line ------------------------------------------------------------------------------------------------


def test_net_up_gives_mininets_prompt_and_net_down_takes_it_away():
    assert ina("net", "down").stdout == "No network was up.\n"
    done = ina("net", "up", "star", "--hosts", "2", "--rate", "1e9", "--command", "pingall")
    assert done.returncode == 0 and "h1 10.0.0.1, h2 10.0.0.2" in done.stdout and "0% dropped" in done.stdout + done.stderr
    shell = ina("net", "up", "star", "--hosts", "2", "--command", "h2 echo $INA_SWITCH on $GLOO_SOCKET_IFNAME")
    assert f"{shell.stdout.split('INA_SWITCH=')[1].split()[0]} on h2-eth0" in shell.stdout + shell.stderr
    command = [sys.executable, "-m", "ina.cli", "net", "up", "star"]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        assert "star is up" in up.stdout.readline()
        again = ina("net", "up", "star")
        assert again.returncode == 1 and f"(process {up.pid}); take it down with: ina net down" in again.stderr
        assert ina("net", "down").stdout == "The network is down.\n"
        assert child.status(up) == 143
    assert not state.interface_exists("s1-eth1") and state.read() == {}
    assert "there is no topology 'ring'" in ina("net", "up", "ring").stderr


def test_a_training_in_the_testbed_is_that_of_gloo_beside_it(tmp_path):
    need("torch", "matplotlib", "sklearn")
    done = ina("run", "--world", "testbed", "--workers", "2", "--steps", "3", "--set", "loss=0.01", "--set", "rate=1e9",
               "--set", "mtu=9000", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for words in ("links of 1000 Mb/s, MTU 9000, loss 0.01", "gloo (same links)", "bound by", "predicted by the cost model"):
        assert words in " ".join(done.stdout.split()), done.stdout
    (folder,) = tmp_path.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    ours, gloo = metrics["runs"]
    assert json.loads((folder / "config.json").read_text())["values"] == 2048
    assert max(abs(a - b) for a, b in zip(ours["losses"], gloo["losses"], strict=True)) < 1e-4
    gradients = sum(ours["allreduce_bytes"])
    for run in (ours, gloo):
        links = run["network"]["links"]
        assert set(links) == {"h1", "h2"}
        assert all(min(link["up_bytes"], link["down_bytes"]) >= gradients for link in links.values())
    for summary in metrics["summary"]:
        assert summary["bound"] in ("link", "host-limited", "neither") and summary["link_mb"] > 1e-6 * gradients
    assert not state.interface_exists("s1-eth1")


def test_all_reduces_in_the_testbed_have_the_schema_of_virtual_time(tmp_path):
    done = ina("experiment", "run", "two-jobs", "--world", "testbed", "--set", "elements=20000", "--set", "workers=2", "--set",
               "rate=1e9", "--sweep", "pool=[64]", "--set", "placement=spread", "--set",
               "topology=leaf-spine leaves=2 spines=1 hosts=2", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    summaries = [json.loads(path.read_text())["summary"] for path in sorted(tmp_path.glob("*/*/metrics.json"))]
    assert [len(jobs) for jobs in summaries] == [1, 2]
    for jobs in summaries:
        assert all(job["link_mb"] > 0.08 * len(jobs) and job["packets"] >= 2 * 20_000 // 256 for job in jobs), "both cross a link"


def test_an_interrupted_training_leaves_nothing(tmp_path):
    need("torch", "matplotlib")
    command = [sys.executable, "-m", "ina.cli", "run", "--world", "testbed", "--workers", "2", "--results", str(tmp_path)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as runner:
        while "is up" not in (line := runner.stdout.readline()):
            assert line
        processes = state.read()["processes"]
        assert len(processes) >= 4
        runner.send_signal(signal.SIGINT)
        child.output(runner)
        assert runner.returncode == 130
    assert not state.interface_exists("s1-eth1") and state.read() == {}
    for pid, since in processes:
        until(lambda pid=pid, since=since: state.start_time(pid) != since, f"the end of process {pid}")


def test_what_cannot_be_made_says_why(tmp_path):
    subprocess.run(["ip", "link", "add", "s1-eth2", "type", "veth", "peer", "name", "foreign0"], check=True)
    try:
        with pytest.raises(TopologyError, match="interface s1-eth2 is there already, and not of this tool"):
            Network(star(), PROGRAM, DEFINES).start()
    finally:
        subprocess.run(["ip", "link", "del", "s1-eth2"], check=True)
    broken = tmp_path / "broken.p4"
    broken.write_text("not a program")
    network = Network(star(hosts=2), broken, {})
    with pytest.raises(ControlError, match=r"broken\.p4"):
        network.start()
    assert left_behind(network) == [] and state.read() == {}
    with socket.socket(socket.AF_UNIX) as stray:  # a file that an earlier crash left does not stop the next start
        stray.bind(network.socket)
    with Network(star(hosts=2), PROGRAM, DEFINES):
        assert Path(network.socket).is_socket()
