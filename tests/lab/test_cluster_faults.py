"""`ina cluster check` in network namespaces on a bridge: one server with a smaller MTU, one with a slow card, one without UDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import child
import pytest
from capabilities import need
from waiting import until

need("root", "netns", "tc")

from ina.net.namespaces import own_namespace  # noqa: E402

pytestmark = [pytest.mark.root, pytest.mark.later]
ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def bridged(folder, count):
    """Servers node1, node2, ... of addresses 10.0.0.1, ..., each a namespace with a card ``nic``, on one bridge. Commands by the
    server's name, and a command that runs a shell's command in the server that its first argument names."""
    with own_namespace(), ExitStack() as stack:
        child.run(["ip", "link", "add", "lan", "type", "bridge"], check=True)
        child.run(["ip", "link", "set", "lan", "up"], check=True)
        inside = {}
        for n in range(1, count + 1):
            sleeper = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            theirs, ours = f"/proc/{sleeper.pid}/ns/net", os.readlink("/proc/thread-self/ns/net")
            until(lambda theirs=theirs, ours=ours: os.readlink(theirs) != ours, "a namespace of its own")
            inside[f"node{n}"] = prefix = ["nsenter", "-t", str(sleeper.pid), "-n"]
            for words, lines in (([], [f"link add port{n} type veth peer name nic netns {sleeper.pid}",
                                       f"link set port{n} master lan", f"link set port{n} up"]),
                                 (prefix, ["link set lo up", f"addr add 10.0.0.{n}/24 dev nic", "link set nic up"])):
                child.run([*words, "ip", "-batch", "-"], input="\n".join(lines) + "\n", check=True)
        enter = folder / "enter"
        cases = "\n".join(f"{name}) exec {' '.join(prefix)} sh -c \"$2\";;" for name, prefix in inside.items())
        enter.write_text(f"#!/bin/sh\ncase $1 in\n{cases}\nesac\n")
        enter.chmod(0o755)
        yield inside, f"{enter} {{host}}"


def run(prefix, *commands):
    for command in commands:
        child.run([*prefix, *command.split()], check=True)


def check(folder, enter, hosts, *options):
    """Exit status, findings as text, and all figures."""
    (folder / "hosts.txt").write_text("\n".join(hosts) + "\n")
    done = child.run([sys.executable, "-m", "ina.cli", "cluster", "check", folder / "hosts.txt", "--quick", "--ssh", enter,
                      "--python", sys.executable, "--json", folder / "figures.json", *options], 600, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    figures = json.loads((folder / "figures.json").read_text())
    return done.returncode, [problem["text"] for problem in figures["problems"]], figures


def test_each_fault_is_named_and_nothing_else(tmp_path):
    with bridged(tmp_path, 3) as (inside, enter):
        run([], "ip link set port2 mtu 1400")
        run(inside["node2"], "ip link set nic mtu 1400")
        for name, rate in (("node1", "20mbit"), ("node2", "200mbit"), ("node3", "200mbit")):
            run(inside[name], f"tc qdisc add dev nic root tbf rate {rate} burst 64k latency 50ms")
        run(inside["node3"], "ip rule add pref 5 lookup local", "ip rule del pref 0",
            "ip rule add pref 1 iif nic ipproto udp blackhole")
        status, problems, figures = check(tmp_path, enter, [f"node{n} address=10.0.0.{n}" for n in (1, 2, 3)], "--udp-rate", "5")
        assert status == 1
        assert len(problems) == 3, problems
        assert problems[0].startswith("UDP to node3 is blocked, from all others (nothing arrives)")
        assert "packets of at most 1400 bytes arrive at and from node2, of 1500 elsewhere" in problems[1]
        assert problems[2].startswith("node1 sends at most ")
        pairs = {(pair["source"], pair["target"]): pair for pair in figures["pairs"]}
        assert all(not pair["tcp"] and not pair["error"] for pair in pairs.values())
        assert pairs["node1", "node3"]["mtu"] == 0 and pairs["node3", "node1"]["mtu"] == 1500
        assert pairs["node2", "node1"]["mtu"] == 1400
        assert pairs["node1", "node2"]["mtu"] in (1400, 1404)  # the kernel leaves room for a VLAN tag at what it receives
        assert all(pairs["node1", other]["rate"] <= 20e6 * 1.5 for other in ("node2", "node3"))  # a burst is on top


def test_tcp_that_is_refused_is_named_by_its_direction(tmp_path):
    with bridged(tmp_path, 2) as (inside, enter):
        run(inside["node2"], "ip rule add pref 5 lookup local", "ip rule del pref 0",
            "ip rule add pref 1 iif nic ipproto tcp blackhole")
        status, problems, figures = check(tmp_path, enter, ["node1 address=10.0.0.1", "node2 address=10.0.0.2"])
        assert status == 1
        assert [problem.partition(". ")[0] for problem in problems] == [
            "TCP from node1 to node2 is blocked (no answer)", "TCP from node2 to node1 is blocked (no answer)"]
        assert all(pair["rate"] is None and pair["loss"] is not None for pair in figures["pairs"])
