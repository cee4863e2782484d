"""Captures at ports, hosts and links of a real network, as Wireshark's dissector reads them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from capabilities import need, tool
from real_networks import DEFINES, PROGRAM, ROOT, alone, environment, run_workers

from ina.topology import load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture

COUNT = 5_000


@pytest.fixture
def tshark(tmp_path):
    """Fields of the packets of a capture that match a filter, by our dissector."""
    need("tshark")
    script, home = tmp_path / "switchml.lua", tmp_path / "home"
    home.mkdir()
    lua = subprocess.run([sys.executable, "-m", "ina.cli", "wire", "lua"], env=environment(), cwd=ROOT, capture_output=True)
    script.write_bytes(lua.stdout)

    def fields(capture: Path, matching: str, *names: str) -> list[list[str]]:
        command = [tool("INA_TSHARK", "tshark"), "-X", f"lua_script:{script}", "-r", str(capture), "-Y", matching, "-T", "fields"]
        command += [part for name in names for part in ("-e", name)]
        done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    return fields


def test_every_sum_on_the_way_up_a_tree_is_recomputed_from_captures(tmp_path, tshark):
    """A leaf's sum is that of its two hosts, the spine's that of both leaves; every host gets it."""
    points = ["h1", "h2", "h3", "h4", "s1-s3", "s2-s3"]
    with Network(load("leaf-spine", leaves=2, spines=1, hosts=2), PROGRAM, DEFINES, capture=tmp_path, points=points) as network:
        run_workers(network, COUNT)
    assert len(list(tmp_path.glob("*.pcap"))) == 8, "a link has two ends"

    def values(interface: str, source: str) -> dict[str, np.ndarray]:
        """Integers in data packets from ``source``, by packet number; repetitions are the same."""
        arrays: dict[str, np.ndarray] = {}
        matching = f"switchml.msg_type == 1 && ip.src == {source}"
        for number, text in tshark(tmp_path / f"{interface}.pcap", matching, "switchml.tsi", "switchml.v"):
            array = np.array(text.split(","), np.int64).astype(np.int32)
            assert number not in arrays or np.array_equal(arrays[number], array)
            arrays[number] = array
        assert len(arrays) > COUNT // 256
        return arrays

    def added(*parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert all(part.keys() == parts[0].keys() for part in parts)
        return {number: np.sum([part[number] for part in parts], axis=0, dtype=np.int32) for number in parts[0]}

    def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
        return a.keys() == b.keys() and all(np.array_equal(a[number], b[number]) for number in a)

    hosts = [values(f"h{i}-eth0", f"10.0.0.{i}") for i in (1, 2, 3, 4)]
    leaves = [values("s3-eth1", "10.255.0.1"), values("s3-eth2", "10.255.0.2")]
    assert equal(leaves[0], added(*hosts[:2])) and equal(leaves[1], added(*hosts[2:]))
    total = added(*leaves)
    assert equal(values("s1-eth3", "10.255.0.3"), total) and equal(values("s2-eth3", "10.255.0.3"), total)
    for i in (1, 2, 3, 4):
        assert equal(values(f"h{i}-eth0", f"10.255.0.{1 if i < 3 else 2}"), total)


def test_a_host_is_seen_before_its_link_loses_anything_and_its_port_after(tmp_path, tshark):
    topology = load("star", hosts=2, rate=0, loss=0.3)
    with Network(topology, PROGRAM, DEFINES, seed=3, capture=tmp_path, points=["h1", "s1-eth1"]) as network:
        ping = ["ping", "-c", "40", "-i", "0.002", "-W", "2", "-q", "10.0.0.2"]
        subprocess.run(network.command("h1", ping), stdout=subprocess.DEVNULL)
        lost = network.counters()["links"]["h1"]["lost"]
    host, port = (tshark(tmp_path / f"{name}.pcap", "icmp", "ip.src") for name in ("h1-eth0", "s1-eth1"))
    sent, arrived = (sum(source == ["10.0.0.1"] for source in rows) for rows in (host, port))
    answered, received = (sum(source == ["10.0.0.2"] for source in rows) for rows in (port, host))
    assert sent == 40 > arrived and answered > received
    assert sent - arrived + answered - received == lost
