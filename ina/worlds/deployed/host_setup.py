"""Set-up of each host of a deployment: its NIC's address, routes and neighbours, checks, and its rank.

The NIC gets its address with a prefix of 32 bits, and one route and one neighbour entry for each machine of the deployment, so
that no other traffic of the host goes that way, whatever network its management interface is in. `set_up` does this on the host
itself, and refuses to where another interface already leads to one of these addresses.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from ina.topology.topology import Node
from ina.worlds.deployed.deployable import DeploymentError
from ina.worlds.deployed.deployment_file import Deployment, Server

PEERS = 4  # hosts at its own switch that a host's doctor asks; with those beyond, twice as many
VALUES = 2048  # of a packet, where neither the experiment nor INA_VALUES says it
PATIENCE = 60.0  # seconds for one of iproute2's commands


def host_commands(d: Deployment) -> list[tuple[str, list[str]]]:
    """Returns for each host the commands that are run there once, as root, and the one that starts its rank."""
    return [(h.name, [*network(d, h), *_checks(d, rank, h), _training(d, rank, h)]) for rank, h in enumerate(d.hosts)]


def _others(d: Deployment, h: Server) -> list[Server]:
    """Returns the other hosts, beginning with the one after `h`."""
    rank = d.hosts.index(h)
    return [d.hosts[(rank + 1 + i) % len(d.hosts)] for i in range(len(d.hosts) - 1)]


def network(d: Deployment, h: Server) -> list[str]:
    """Returns commands of iproute2 and ethtool for the NIC of `h`; they are idempotent."""
    device = f"dev {h.interface}"
    peers: list[Node | Server] = [d.switch_of(h).node, *_others(d, h)]
    return [
        f"ip link set {h.interface} mtu {1500 if _values(d) <= 256 else 9000} up",
        f"ip addr replace {h.ip}/32 {device}",
        *(f"ip route replace {peer.ip}/32 {device} src {h.ip}" for peer in peers),
        *(f"ip neigh replace {peer.ip} lladdr {peer.mac} nud permanent {device}" for peer in peers),
        f"ethtool -A {h.interface} rx off tx off",
    ]


def _values(d: Deployment) -> int:
    """Returns the integers of a packet."""
    return getattr(d.config, "values", 0) or VALUES


def _checks(d: Deployment, rank: int, h: Server) -> list[str]:
    others = _others(d, h)
    near = [o for o in others if o.switch == h.switch][:PEERS]
    peers = near + [o for o in others if o.switch != h.switch][: 2 * PEERS - len(near)]  # some of its switch, some beyond
    probe = f"ina doctor --target tofino --values {_values(d)} --interface {h.interface}"
    return ["ina doctor --target tofino --agent 600 &", " ".join([probe, *(f"--peer {o.ip}" for o in peers)])]


def _training(d: Deployment, rank: int, h: Server) -> str:
    return (f"INA_SWITCH=tcp:{d.controller or 'CONTROLLER:5588'} INA_HOST={h.name} GLOO_SOCKET_IFNAME={h.interface} torchrun "
            f"--nnodes {len(d.hosts)} --node-rank {rank} --nproc-per-node 1 --master-addr {d.hosts[0].ip} --master-port 29500 "
            "train.py")


def overlaps(d: Deployment, h: Server, routes: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the host's routes (`ip -json route show table all`) that cover an address of the deployment already: all but
    default routes and those through the NIC itself."""
    peers = {h.ip: f"its own address {h.ip}", d.switch_of(h).node.ip: f"the switch's {d.switch_of(h).node.ip}"}
    peers |= {o.ip: f"{o.name}'s {o.ip}" for o in _others(d, h)}
    conflicts = []
    for route in routes:
        elsewhere = route.get("dst", "default") != "default" and route.get("dev") != h.interface
        if not elsewhere or route.get("type") in ("broadcast", "multicast"):
            continue
        prefix = ipaddress.ip_network(route["dst"], strict=False)
        if covered := [name for ip, name in peers.items() if ipaddress.ip_address(ip) in prefix]:
            kind, way = route.get("type", "unicast"), f"over {route['dev']}" if "dev" in route else "without an interface"
            subject = f"route {route['dst']}" if kind == "unicast" else f"{kind} route {route['dst']}"
            conflicts.append(f"{subject} {way} covers {', '.join(covered)}")
    return conflicts


def set_up(d: Deployment, h: Server, run: bool, say: Callable[[str], None]) -> None:
    """Prints the commands of `network` with `say` and, if `run`, runs them on this machine, which is `h`.

    Raises DeploymentError: before anything is done, if there is no such interface or routes overlap; and if a command fails.
    """
    if all(link["ifname"] != h.interface for link in _json("link", "show")):
        raise DeploymentError(f"host {h.name}: this machine has no interface {h.interface!r} (key interface of the host)")
    if conflicts := overlaps(d, h, _json("-4", "route", "show", "table", "all")):
        raise DeploymentError(f"host {h.name}: {'; '.join(conflicts)}: packets to these would go through {h.interface}, and "
                              "who has them now be cut off; give hosts and switches other ones (keys ip), or take the route out")
    for command in network(d, h):
        say(command)
        if run:
            done = _command(command.split())
            if done.returncode and not command.startswith("ethtool"):  # pause frames: not every NIC has them
                raise DeploymentError(f"host {h.name}: {command}: {done.stderr.strip()}")
            if done.returncode:
                say(f"    pause frames stay as they are: {done.stderr.strip()}")


def _json(*words: str) -> list[dict[str, Any]]:
    done = _command(["ip", "-json", *words])
    if done.returncode:
        raise DeploymentError(f"ip -json {' '.join(words)}: {done.stderr.strip()}")
    objects: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return objects


def _command(words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except FileNotFoundError:
        raise DeploymentError(f"{words[0]} is not installed (Debian/Ubuntu: apt install iproute2 ethtool)") from None
    except subprocess.TimeoutExpired:
        raise DeploymentError(f"{' '.join(words)}: no answer within {PATIENCE:g} s") from None
