"""A parameter server in a host of a network of real interfaces: behind one switch, and above the root of a tree."""

import json

import pytest
from capabilities import need
from real_networks import alone
from test_testbed import ina

pytestmark = pytest.mark.root
__all__ = ["alone"]  # a fixture


def train(folder, *options: str) -> list[dict]:
    """Trains for three steps, three workers on fast links; returns the runs of its back ends."""
    need("torch", "matplotlib")
    done = ina("run", "--world", "testbed", "--workers", "3", "--steps", "3", "--set", "model=small", "--set", "rate=1e9",
               "--results", str(folder), *options)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (metrics,) = folder.glob("*/metrics.json")
    return json.loads(metrics.read_text())["runs"]


def test_a_server_gets_sums_from_atp_and_every_packet_without_help(tmp_path):
    """It is in the host that no rank is in; both train alike."""
    atp, plain = train(tmp_path, "--backends", "atp,ps")
    assert max(abs(a - b) for a, b in zip(atp["losses"], plain["losses"], strict=True)) < 1e-4
    gradients = sum(plain["allreduce_bytes"])
    assert plain["network"]["links"]["h4"]["down_bytes"] > 3 * gradients
    assert gradients < atp["network"]["links"]["h4"]["down_bytes"] < 2.5 * gradients


def test_a_server_above_the_root_of_a_tree(tmp_path):
    """The server is at the first leaf, with one worker; the sums of the other two come from the other leaf over the spine."""
    network = ["--set", "topology=leaf-spine leaves=2 spines=1 hosts=2", "--set", "hosts=h2-h4"]
    (atp,) = train(tmp_path, "--backends", "atp", *network)
    links, gradients = atp["network"]["links"], sum(atp["allreduce_bytes"])
    assert atp["stats"]["worker"]["results"] > 0
    assert gradients < links["s2-s3"]["up_bytes"] < 1.7 * gradients, "of two workers, added up at their leaf"
    assert gradients < links["h1"]["down_bytes"] < 2.5 * gradients
