"""The `[tofino]` table of an experiment's file: the switches, their ports, and which server or switch is at which of them.

kind = "training"                 # the experiment, as `ina run` and `ina experiment` read it
workers = 4
values = 256
slots = 128

[tofino]
p4_name = "switchml"              # as the driver was started with; default: the protocol's name
at = "switch:50052"               # where the driver is served; default: --at
controller = "10.0.255.1:5588"    # where `ina tofino controller` is reached, for the hosts' command lines

[tofino.ports."1/0"]              # front panel: connection/channel; speed 100G, fec none, autoneg default, loopback none
fec = "rs"

[[tofino.host]]                   # in the order of the ranks
name = "server1"
port = "1/0"
mac = "0c:42:a1:00:00:01"
ip = "10.0.0.1"
interface = "enp1s0f0"

[[tofino.mirror]]                 # sessions that the program's mirrors use
session = 1
port = "5/0"                      # of [tofino.ports], or group = 7 (multicast)
direction = "both"
max_length = 128

Several switches have a table each, instead of `ports` and `at`; hosts and mirrors say which `switch` they are at:

[[tofino.switch]]                 # the n-th aggregates at 10.255.0.n, 02:ff:00:00:00:0n
name = "leaf1"
at = "leaf1:50052"
p4_name = "switchml"              # default: that of [tofino]
ports = { "1/0" = { fec = "rs" }, "32/0" = { fec = "rs" } }

[[tofino.link]]                   # a cable between two switches
ends = ["leaf1:32/0", "root:1/0"]
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.settings import ConfigError
from ina.p4.bfrt.ports import SPEEDS, PortConfig
from ina.topology.topology import Link, Node, Topology, TopologyError
from ina.worlds.deployed.toml_checks import check_keys, dataclass_of, ports, table_list, value

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
TOP = ("p4_name", "at", "ip", "controller", "ports", "switch", "link", "host", "mirror")
DIRECTIONS = ("ingress", "egress", "both")
ALONE = "s1"  # name of the only switch, which the file need not name


@dataclass(frozen=True)
class Tofino:
    """A switch, the `number`-th. `at`: where its driver is served; empty: unknown. `ip`: its own, at which it aggregates; empty:
    10.255.0.<number>."""

    name: str
    number: int
    p4_name: str
    at: str
    ports: tuple[PortConfig, ...]
    ip: str = ""

    @property
    def node(self) -> Node:
        return Node(self.name, like=f"s{self.number}", ip=self.ip)

    def port(self, name: str) -> PortConfig | None:
        return next((p for p in self.ports if p.name == name), None)


@dataclass(frozen=True)
class Server:
    """A host at a port of a switch. `interface`: the name that its NIC has there."""

    name: str
    port: str
    mac: str
    ip: str
    interface: str = "eth0"
    switch: str = ""


@dataclass(frozen=True)
class Cable:
    """A cable between two switches: name and port of each."""

    a: str
    a_port: str
    b: str
    b_port: str


@dataclass(frozen=True)
class Mirror:
    """A mirror session: to the port `port`, or to the multicast group `group`."""

    session: int
    port: str = ""
    group: int = 0
    direction: str = "both"
    max_length: int = 16384
    switch: str = ""


@dataclass(frozen=True)
class Deployment:
    """Contents of a file. `config`: the experiment itself, with the keys of its kind."""

    path: Path
    config: object
    controller: str
    switches: tuple[Tofino, ...]
    cables: tuple[Cable, ...]
    hosts: tuple[Server, ...]
    mirrors: tuple[Mirror, ...] = field(default=())

    @property
    def several(self) -> bool:
        return len(self.switches) > 1

    def switch(self, name: str) -> Tofino | None:
        return next((s for s in self.switches if s.name == name), None)

    def switch_of(self, host: Server) -> Tofino:
        """Returns the switch of a host; the file has been checked."""
        return next(s for s in self.switches if s.name == host.switch)

    def end(self, switch: str, port: str) -> PortConfig:
        """Returns the port that a host or a cable is at; the file has been checked."""
        return next(p for s in self.switches if s.name == switch for p in s.ports if p.name == port)

    def topology(self, dev_port: Callable[[str, str], int]) -> Topology:
        """Returns the network, with the hosts' addresses. `dev_port`: maps names of a switch and its port to the port's number.

        Raises TopologyError, and what `dev_port` raises.
        """
        hosts = [Node(h.name, like=f"h{i}", ip=h.ip, mac=h.mac) for i, h in enumerate(self.hosts, 1)]
        links, numbers = [], []
        for h in self.hosts:
            links.append(Link(h.name, h.switch, rate=self._rate(h.switch, h.port)))
            numbers.append((0, dev_port(h.switch, h.port)))
        for c in self.cables:
            links.append(Link(c.a, c.b, rate=self._rate(c.a, c.a_port)))
            numbers.append((dev_port(c.a, c.a_port), dev_port(c.b, c.b_port)))
        return Topology(str(self.path), (*hosts, *(s.node for s in self.switches)), tuple(links), numbers=tuple(numbers))

    def _rate(self, switch: str, port: str) -> float:
        return SPEEDS[self.end(switch, port).speed] * 1e9

    def addresses(self, arguments: Sequence[str]) -> dict[str, str]:
        """Addresses of the drivers by switch: from `arguments` (HOST:PORT of the only switch, or NAME=HOST:PORT), else from the
        file; switches that neither names are left out. Raises ConfigError."""
        addresses = {s.name: s.at for s in self.switches if s.at}
        for text in arguments:
            name, equals, address = text.rpartition("=")
            if not equals and self.several:
                raise ConfigError(f"--at {text}: which of {', '.join(s.name for s in self.switches)}? Expected NAME=HOST:PORT")
            if equals and self.switch(name) is None:
                raise ConfigError(f"--at {text}: {self.path} has no switch {name!r}; it has "
                                  f"{', '.join(s.name for s in self.switches)}")  # fmt: skip
            addresses[name or self.switches[0].name] = address
        double = next((a for a in addresses.values() if [*addresses.values()].count(a) > 1), None)
        if double is not None:
            raise ConfigError(f"two switches are at {double}")
        return addresses

    def all_addresses(self, arguments: Sequence[str], otherwise: str = "") -> dict[str, str]:
        """Addresses of the drivers of all switches. Raises ConfigError if one is missing; `otherwise`: an alternative, for the
        message."""
        addresses = self.addresses(arguments)
        for s in self.switches:
            if s.name not in addresses:
                prefix = f"{s.name}=" if self.several else ""
                raise ConfigError(f"--at {prefix}HOST:PORT is missing: where is the switch's driver served?{otherwise}")
        return addresses


def read(path: Path, config: object) -> Deployment:
    """Reads the deployment of `config`, the file's experiment. Raises ConfigError, which names the file and the key."""
    try:
        table = documents.toml(path).get("tofino")
    except (OSError, documents.Unreadable) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: there is no table [tofino]: it says which ports and hosts there are (docs/guide/tofino.md)")
    where = f"{path}: [tofino]"
    if "job" in table:
        raise ConfigError(f"{where}: job: entries of a job are not deployed any more, as a second run with them could get the "
                          "sums of the first; leave the key out, and start `ina tofino controller`, which admits each run as a "
                          "job of its own")  # fmt: skip
    check_keys(table, TOP, where)
    p4_name = value(table, "p4_name", str, "", where) or getattr(config, "protocol", "")
    switches = _switches(table, where, p4_name)
    only = switches[0].name if len(switches) == 1 else ""
    hosts, mirrors = (
        tuple(item if item.switch else replace(item, switch=only) for item in (
            dataclass_of(kind, entry, f"{path}: [[tofino.{name}]] number {i}")
            for i, entry in enumerate(table_list(table, name, where), 1)))
        for name, kind in (("host", Server), ("mirror", Mirror))
    )  # fmt: skip
    cables = tuple(_cable(entry, f"{path}: [[tofino.link]] number {i}")
                   for i, entry in enumerate(table_list(table, "link", where), 1))
    controller = value(table, "controller", str, "", where)
    if controller and not re.fullmatch(r"[^:\s]+:\d{1,5}", controller):
        raise ConfigError(f"{where}: controller = {controller!r}: expected HOST:PORT such as '10.0.255.1:5588'")
    deployment = Deployment(path, config, controller, switches, cables, hosts, mirrors)
    _check(deployment)
    return deployment


def _switches(table: dict[str, Any], where: str, p4_name: str) -> tuple[Tofino, ...]:
    entries = table_list(table, "switch", where)
    if not entries:
        return (Tofino(ALONE, 1, p4_name, value(table, "at", str, "", where), ports(table, where, "tofino"), _ip(table, where)),)
    for key in ("ports", "at", "ip"):
        if key in table:
            raise ConfigError(f"{where}: {key}: where there are tables [[tofino.switch]], each has its own")
    switches = []
    for i, entry in enumerate(entries, 1):
        here = f"{where.rpartition(': ')[0]}: [[tofino.switch]] number {i}"
        check_keys(entry, ("name", "at", "ip", "p4_name", "ports"), here)
        name = value(entry, "name", str, "", here)
        if not NAME.fullmatch(name):
            raise ConfigError(f"{here}: name = {name!r}: expected a name of letters, digits, '-', '_' and '.'")
        texts = {key: value(entry, key, str, "", here) for key in ("p4_name", "at")}
        switches.append(Tofino(name, i, texts["p4_name"] or p4_name, texts["at"], ports(entry, here, "tofino.switch"),
                               _ip(entry, here)))
    return tuple(switches)


def _ip(table: dict[str, Any], where: str) -> str:
    """Key ip of a switch. Raises ConfigError."""
    text = value(table, "ip", str, "", where)
    try:
        return text and str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ConfigError(f"{where}: ip = {text!r}: expected an IPv4 address") from None


def _cable(entry: dict[str, Any], where: str) -> Cable:
    check_keys(entry, ("ends",), where)
    ends = entry.get("ends")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, str) and e.count(":") == 1 for e in ends):
        raise ConfigError(f'{where}: ends = {ends!r}: expected two ports of switches, such as ["leaf1:32/0", "root:1/0"]')
    return Cable(*(part for end in ends for part in end.split(":")))


def _check(d: Deployment) -> None:
    def need(ok: bool, text: str) -> None:
        if not ok:
            raise ConfigError(f"{d.path}: {text}")

    def once(things: str, key: str, values: list[Any]) -> None:
        double = next((v for v in values if values.count(v) > 1), None)
        need(double is None, f"two {things} have {key} = {double!r}")

    workers = getattr(d.config, "workers", 0)
    need(len(d.hosts) == workers, f"workers = {workers}, but there are {len(d.hosts)} tables [[tofino.host]]: one for each rank")
    once("switches", "name", [s.name for s in d.switches])
    for key in ("name", "mac", "ip"):
        once("hosts", key, [getattr(h, key) for h in d.hosts])
    owners: dict[tuple[str, str], str] = {}
    for h in d.hosts:
        who = f"host {h.name!r}"
        _check_end(d, who, h.switch, h.port, need)
        other = owners.setdefault((h.switch, h.port), who)
        need(other == who, f"two hosts have port = {h.port!r}" + (f" of {h.switch}" if d.several else ""))
        need(bool(MAC.fullmatch(h.mac)), f"{who}: mac = {h.mac!r}: expected six bytes such as 0c:42:a1:00:00:01")
        need(int(h.mac[:2], 16) % 2 == 0, f"{who}: mac = {h.mac!r} is a multicast address")
        try:
            ipaddress.IPv4Address(h.ip)
        except ValueError:
            need(False, f"{who}: ip = {h.ip!r}: expected an IPv4 address")
        for s in d.switches:
            need(h.ip != s.node.ip and h.mac != s.node.mac, f"{who} has the address of {s.name}: {s.node.ip}, {s.node.mac}")
    for c in d.cables:
        who, ends = f"link {c.a}:{c.a_port} to {c.b}:{c.b_port}", ((c.a, c.a_port), (c.b, c.b_port))
        for switch, port in ends:
            _check_end(d, who, switch, port, need)
            other = owners.setdefault((switch, port), who)
            need(other == who and c.a != c.b, f"{who}: {switch}:{port} is an end of {other} already")
        a, b = (d.end(switch, port) for switch, port in ends)
        for key in ("speed", "fec"):
            x, y = getattr(a, key), getattr(b, key)
            need(x == y, f"{who}: {key} is {x} at one end and {y} at the other: the link would stay down")
    once("mirrors", "session", [m.session if not d.several else (m.switch, m.session) for m in d.mirrors])
    for m in d.mirrors:
        who = f"mirror session {m.session}"
        need(1 <= m.session <= 1015, f"{who}: expected 1 to 1015")
        need(bool(m.port) != bool(m.group), f"{who}: expected port or group, one of them")
        at = d.switch(m.switch)
        need(at is not None, f"{who}: switch = {m.switch!r} is none of {', '.join(s.name for s in d.switches)}")
        assert at is not None
        need(not m.port or m.port.isdigit() or at.port(m.port) is not None, f"{who}: port = {m.port!r} is none of [tofino.ports]")
        need(m.direction in DIRECTIONS, f"{who}: direction = {m.direction!r}: expected {', '.join(DIRECTIONS)}")
    for s in d.switches:
        _check_lanes(s, need)
    try:
        d.topology(lambda switch, port: 0)
    except TopologyError as error:
        raise ConfigError(str(error)) from None


def _check_end(d: Deployment, who: str, switch: str, port: str, need: Callable[[bool, str], None]) -> None:
    """Raises ConfigError unless the switch has this port, for `who` to be connected to."""
    at = d.switch(switch)
    need(at is not None, f"{who}: switch = {switch!r} is none of {', '.join(s.name for s in d.switches)}")
    assert at is not None
    there = at.port(port)
    of = f"the ports of {switch}" if d.several else "[tofino.ports]"
    need(there is not None, f"{who}: port = {port!r} is none of {of}: {', '.join(sorted(p.name for p in at.ports)) or 'none'}")
    assert there is not None
    need(there.loopback == "none", f"{who}: port {port} is a loopback port")


def _check_lanes(s: Tofino, need: Callable[[bool, str], None]) -> None:
    lanes: dict[tuple[str, int], str] = {}
    for p in s.ports:
        for lane in p.lanes if "/" in p.name else ():
            other = lanes.setdefault((p.name.partition("/")[0], lane), p.name)
            need(
                other == p.name, f"ports {other} and {p.name} share a lane of their connection: {p.name} begins at channel {lane}"
            )
