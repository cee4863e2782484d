"""Links of a real network fail under a torch job: it moves to another tree, or waits until the link is back; no sum is wrong."""

import json
import subprocess
import sys
from contextlib import contextmanager

import child
import pytest
from capabilities import need
from real_networks import DEFINES, PROGRAM, alone, environment, ina
from test_failover_testbed import RANK
from waiting import until

from ina.topology import Node, load
from ina.worlds.testbed.mininet import Network

pytestmark = [pytest.mark.root, pytest.mark.later]
__all__ = ["alone"]  # a fixture
HOSTS = ("h1", "h3")


def ip(*words):
    subprocess.run(["ip", "link", "set", *words], check=True)


@contextmanager
def training(network):
    """Ranks at HOSTS, past their tenth step. They check every sum."""
    common = {**environment(), "MASTER_ADDR": Node(HOSTS[0]).ip, "MASTER_PORT": "29500", "INA_SWITCH": network.socket,
              "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(network.command(host, [sys.executable, "-c", RANK]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env={**common, "RANK": str(rank), "GLOO_SOCKET_IFNAME": f"{host}-eth0"}, text=True)
        for rank, host in enumerate(HOSTS)
    ]
    try:
        while (line := ranks[0].stdout.readline()) not in ("10\n", ""):
            pass
        assert line, ranks[0].communicate()
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def finished(ranks):
    """Standard error of each rank, after all steps."""
    outs = [child.output(rank, child.TRAINING) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outs
    assert outs[0][0].splitlines()[-1] == "39"
    return [error for _, error in outs]


def leaf_spine():
    need("torch")
    return load("leaf-spine", leaves=2, spines=2, hosts=2, rate=1e9)


def test_a_job_moves_off_a_link_without_carrier():
    with Network(leaf_spine(), PROGRAM, DEFINES, cables="veth") as network, training(network) as ranks:
        client = network.client()
        (job,) = client.ask("jobs")["jobs"].values()
        spine = job["root"]
        other = "s4" if spine == "s3" else "s3"
        end = next(end for pair in network.topology.ends for end in pair if end.node == "s1" and spine in {e.node for e in pair})
        ip(end.name, "down")
        errors = finished(ranks)
        assert all(f"link s1-{spine} is down ({end.name}: it is set down); job" in error for error in errors), errors
        (incident,) = client.ask("switches")["links"]
        assert incident["link"] == f"s1-{spine}" and incident["ended"] is None and list(incident["moved"].values()) == [other]
        ip(end.name, "up")
        client.close()


def test_a_job_without_another_way_is_told_and_goes_on_when_its_link_is_back():
    with Network(leaf_spine(), PROGRAM, DEFINES) as network, training(network) as ranks:
        ip("s2-eth1", "down")  # the only way to h3
        client = network.client()
        links = until(lambda: client.ask("switches")["links"], "the link's end to be noticed")
        assert links[0]["link"] == "h3" and links[0]["waited"]
        ip("s2-eth1", "up")
        errors = finished(ranks)
        assert all("link h3 is down since" in error and "ina net heal h3" in error for error in errors), errors
        assert all("link h3 is back; job" in error for error in errors), errors
        client.close()


@pytest.mark.parametrize("kind, cables", [("embedded", "memory"), ("process", "veth")])
def test_a_job_moves_off_a_link_that_is_cut_silently(kind, cables):
    with Network(leaf_spine(), PROGRAM, DEFINES, kind=kind, cables=cables) as network, training(network) as ranks:
        client = network.client()
        (job,) = client.ask("jobs")["jobs"].values()
        spine = job["root"]
        link = f"s2-{spine}"
        done = ina("net", "fail", link)
        assert done.returncode == 0, done.stderr
        errors = finished(ranks)
        assert all(f"link {link} is down (3 probes in a row from" in error for error in errors), errors
        (incident,) = client.ask("switches")["links"]
        assert incident["link"] == link and incident["moved"] and incident["began"] < incident["noticed"]
        assert ina("net", "heal", link).returncode == 0
        ended = until(lambda: client.ask("switches")["links"][0]["ended"], "the link to be back")
        assert ended > incident["noticed"]
        client.close()


def test_a_link_is_slow_until_both_directions_have_their_rate():
    def shown():
        return {one["state"]: one["ended"] is None for one in client.ask("switches")["links"]}

    with Network(leaf_spine(), PROGRAM, DEFINES) as network:
        client = network.client()
        for command in (("slow", "s1-s3", "--rate", "100M", "--delay", "5ms"), ("fail", "s1>s3"), ("heal", "s1>s3")):
            assert ina("net", *command).returncode == 0
        until(lambda: shown() == {"slow": True, "down": False}, "the cut to end, and only that")
        assert client.ask("switches")["links"][0]["reason"] == "0.1 Gb/s, delay 5 ms"
        assert ina("net", "heal", "s3>s1").returncode == 0
        until(lambda: shown() == {"slow": False, "down": False}, "the link to have its rate")
        client.close()


def test_commands_about_links_say_what_is_wrong():
    done = ina("net", "fail", "s1-s3")
    assert done.returncode == 1 and "no network is up here" in done.stderr
    with Network(load("leaf-spine", leaves=2, spines=2, hosts=2), PROGRAM, DEFINES):
        done = ina("net", "fail", "s1-s9")
        assert done.returncode == 1 and "there is no link 's1-s9'" in done.stderr and "s1-s3, s1-s4" in done.stderr
        assert "a rate such as 10G" in ina("net", "slow", "s1-s3", "--rate", "quick").stderr
        assert "--rate or --delay" in ina("net", "slow", "s1-s3").stderr
        assert "a time such as" in ina("net", "fail", "s1-s3", "--for", "long").stderr
        assert ina("net", "slow", "h1", "--delay", "5ms", "--for", "60").returncode == 0


WORKERS = """
import sys, json
from ina.lab.kinds.allreduce import AllReduce, in_processes
(run,) = in_processes(AllReduce(world="testbed", topology="leaf-spine leaves=2 spines=2 hosts=2", workers=4, elements=1_000_000,
                                slots=64, rate=50e6, link_events=tuple(sys.argv[2:]), switch=sys.argv[1]))
print(json.dumps(run.stats["links"]["incidents"]))
"""


def incidents(switch, *events):
    """Incidents of an all-reduce of four workers over two leaves and two spines, each of whose sums is checked."""
    done = child.run([sys.executable, "-c", WORKERS, switch, *events], child.TRAINING, env=environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_flapping_link_costs_no_wrong_sum():
    flaps = incidents("process", "at 100ms flap s1-s3 every 60ms for 600ms", "at 150ms flap s2-s4 every 250ms for 1s")
    assert len(flaps) > 3 and all(one["ended"] is not None for one in flaps if one["link"] == "s1-s3")


def test_a_slow_link_is_no_failure():
    (slow,) = incidents("embedded", "at 100ms slow s1-s3 5M delay 20ms for 400ms")
    assert slow["rate"] == 5e6 and slow["noticed"] is None and not slow["moved"] and slow["ended"] > slow["began"] + 0.3


def test_frames_are_lost_both_ways_on_a_hosts_link_that_is_cut():
    """The tensor takes 640 ms at least. After the first cut a worker may be silent for rto_max, 500 ms, and a busy machine
    adds to that: the second one is longer."""
    up, down = incidents("embedded", "at 100ms fail h1>s1 for 100ms", "at 500ms fail s1>h1 for 3s")
    assert up["lost"] > 0 and down["lost"] > 0


def test_busy_processes_beside_raise_no_alarm():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        (cut,) = incidents("process", "at 0s slow h1 49M")  # an event, so that workers watch
        assert cut["link"] == "h1" and cut["noticed"] is None, "no link was down"
    finally:
        for process in busy:
            process.kill()
            process.wait()
