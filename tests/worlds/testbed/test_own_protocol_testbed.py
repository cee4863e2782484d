"""A protocol that `ina protocol new` has written, as it is: it trains in the hosts of a real network, and in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys

import child
import pytest
from capabilities import need
from real_networks import alone, environment, ina
from voting_ranks import RANK, STEPS

from ina.topology import Node, load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture


@pytest.fixture
def vote(tmp_path):
    """The program of a protocol named `vote`."""
    done = ina("protocol", "new", "vote", "--operation", "majority", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "vote/vote.p4"


def test_a_training_by_majority_vote_in_the_hosts_of_a_network(vote):
    need("torch")
    with Network(load("star", hosts=3, rate=100e6, loss=0.01), vote, {"VALUES": "64"}) as network:
        common = {**environment(), "MASTER_ADDR": Node("h1").ip, "MASTER_PORT": "29500", "INA_SWITCH": network.socket,
                  "INA_PROTOCOL": str(vote), "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen(network.command(host, [sys.executable, "-c", RANK]), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True,
                                  env={**common, "RANK": str(rank), "GLOO_SOCKET_IFNAME": f"{host}-eth0"})
                 for rank, host in enumerate(("h1", "h2", "h3"))]
        try:
            outputs = [child.output(rank, child.TRAINING) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        links = network.counters()["links"]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], outputs
    ends = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    assert {end["own"] for end in ends} == {STEPS} and len({end["end"] for end in ends}) == 1
    assert all(end["last"] < 0.7 * end["first"] for end in ends), "it learns"
    assert all(link["lost"] for link in links.values()), "although links lose packets"


@pytest.mark.parametrize("world", ["testbed", "virtual"])
def test_its_own_experiment_runs_in_either_world(vote, world):
    """Each worker's result is compared with `reduced` of vote.py, to the bit."""
    done = ina("experiment", "run", "vote/vote.toml", "--world", world, "--results", "results", "--processes", "1",
               cwd=vote.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(path.read_text()) for path in (vote.parent.parent / "results").rglob("metrics.json")]
    assert len(found) == 2 and all(run["finished"] and run["runs"][0]["checked"] for run in found)
