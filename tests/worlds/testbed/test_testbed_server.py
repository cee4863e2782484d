"""A parameter server in a host of a network of real interfaces: behind one switch, and above the root of a tree."""

import json

import pytest
from capabilities import need
from real_networks import alone
from test_testbed import ina

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture
TREE = "--set", "topology=leaf-spine leaves=2 spines=1 hosts=2", "--set", "hosts=h2-h4"


def train(folder, *options: str) -> list[dict]:
    """Trains for three steps, three workers on fast links; returns the runs of its back ends."""
    need("torch", "matplotlib")
    done = ina("run", "--world", "testbed", "--workers", "3", "--steps", "3", "--set", "model=small", "--set", "rate=1e9",
               "--results", str(folder), *options)
    assert done.returncode == 0, done.stderr
    (metrics,) = folder.glob("*/metrics.json")
    return json.loads(metrics.read_text())["runs"]


def test_a_server_gets_sums_from_atp_and_every_packet_without_help(tmp_path):
    """It is in the host that no rank is in; both train alike."""
    atp, plain, gradients = with_and_without_help(tmp_path)
    assert gradients < atp["network"]["links"]["h4"]["down_bytes"]
    assert plain["network"]["links"]["h4"]["down_bytes"] > 3 * gradients


@pytest.mark.machine
@pytest.mark.judge
def test_most_sums_come_in_one_packet_for_all_workers(tmp_path):
    """On a machine that is busy more packets are sent again, and go to the server."""
    atp, _, gradients = with_and_without_help(tmp_path / "star")
    assert atp["network"]["links"]["h4"]["down_bytes"] < 2.5 * gradients
    (atp,) = train(tmp_path / "tree", "--backends", "atp", *TREE)
    links, gradients = atp["network"]["links"], sum(atp["allreduce_bytes"])
    assert links["s2-s3"]["up_bytes"] < 1.7 * gradients, "of two workers, added up at their leaf"
    assert links["h1"]["down_bytes"] < 2.5 * gradients


def with_and_without_help(folder) -> tuple[dict, dict, int]:
    """Runs with ATP and with a server alone, whose losses are alike, and the bytes of the gradients."""
    atp, plain = train(folder, "--backends", "atp,ps")
    assert max(abs(a - b) for a, b in zip(atp["losses"], plain["losses"], strict=True)) < 1e-4
    return atp, plain, sum(plain["allreduce_bytes"])


def test_a_server_above_the_root_of_a_tree(tmp_path):
    """The server is at the first leaf, with one worker; the sums of the other two come from the other leaf over the spine."""
    (atp,) = train(tmp_path, "--backends", "atp", *TREE)
    links, gradients = atp["network"]["links"], sum(atp["allreduce_bytes"])
    assert atp["stats"]["worker"]["results"] > 0
    assert gradients < links["s2-s3"]["up_bytes"] and gradients < links["h1"]["down_bytes"]
