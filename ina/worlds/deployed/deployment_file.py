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
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ina.base import documents
from ina.base.bounds import Range
from ina.base.settings import REQUIRED, ConfigError, Form, Problems, key
from ina.p4.bfrt.ports import AUTONEG, FECS, LOOPBACKS, SPEEDS, PortConfig
from ina.topology.topology import Link, Node, Topology, TopologyError

UNICAST = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
MAC = Form("six bytes such as 0c:42:a1:00:00:01, no multicast address", UNICAST.fullmatch)
NAME = Form("a name of letters, digits, '-', '_' and '.'", re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*").fullmatch)
ENDS = Form('two ports of switches, such as ["leaf1:32/0", "root:1/0"]',
            lambda ends: len(ends) == 2 and all(end.count(":") == 1 for end in ends))
SERVICE = Form("HOST:PORT such as '10.0.255.1:5588'", re.compile(r"|[^:\s]+:\d{1,5}").fullmatch)
TABLES = ("ports", "switch", "link", "host", "mirror")
ONE_SWITCH = ("ports", "at", "ip")  # keys of [tofino] that several switches have each
ALONE = "s1"  # name of the only switch, which the file need not name


Table = TypeVar("Table", "Server", "Mirror")


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


ADDRESS = Form("an IPv4 address", _is_address)
ADDRESS_OR_NONE = Form(ADDRESS.noun, lambda text: not text or _is_address(text))


@dataclass(frozen=True)
class PortKeys:
    """Keys of a port; PortConfig checks that they fit together."""

    speed: str = key("100G", "of each direction", choices=SPEEDS)
    fec: str = key("none", "forward error correction", choices=FECS)
    autoneg: str = key("default", "autonegotiation", choices=AUTONEG)
    loopback: str = key("none", "what comes back to the switch", choices=LOOPBACKS)
    enabled: bool = key(True, "whether the port is up")


@dataclass(frozen=True)
class SwitchKeys:
    """Keys of a [[tofino.switch]], beside its ports."""

    name: str = key(REQUIRED, "the switch's name", form=NAME)
    p4_name: str = key("", "as the driver was started with; default: that of [tofino]")
    at: str = key("", "where the driver is served")
    ip: str = key("", "the switch's own address; default: 10.255.0.n", form=ADDRESS_OR_NONE)


@dataclass(frozen=True)
class LinkKeys:
    """Keys of a [[tofino.link]]."""

    ends: tuple[str, ...] = key(REQUIRED, "a port of each of two switches", form=ENDS)


@dataclass(frozen=True)
class TopKeys:
    """Keys of [tofino], beside its tables."""

    p4_name: str = key("", "as the driver was started with; default: the protocol's name")
    at: str = key("", "where the driver of the only switch is served; default: --at")
    ip: str = key("", "the only switch's own address; default: 10.255.0.1", form=ADDRESS_OR_NONE)
    controller: str = key("", "HOST:PORT where `ina tofino controller` is reached, for the hosts' command lines", form=SERVICE)


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
        return Node(self.name, like=f"s{self.number}", own_ip=self.ip)

    def port(self, name: str) -> PortConfig | None:
        return next((p for p in self.ports if p.name == name), None)


@dataclass(frozen=True)
class Server:
    """A host at a port of a switch. `interface`: the name that its NIC has there."""

    name: str
    port: str
    mac: str = key(REQUIRED, "of its NIC", form=MAC)
    ip: str = key(REQUIRED, "of its NIC", form=ADDRESS)
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

    session: int = key(REQUIRED, "number of the session, as the program names it", Range(1, 1015))
    port: str = ""
    group: int = key(0, "multicast group; 0: none", Range(0, 65535))
    direction: str = key("both", "packets to copy", choices=("ingress", "egress", "both"))
    max_length: int = key(16384, "bytes of a packet that are copied", Range(1, 65535))
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
        hosts = [Node(h.name, like=f"h{i}", own_ip=h.ip, own_mac=h.mac) for i, h in enumerate(self.hosts, 1)]
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
                                  f"{', '.join(s.name for s in self.switches)}")
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


def switch_names(document: documents.Document, table: str) -> set[str]:
    """Returns the names in the tables [[TABLE.switch]] of a file, whatever else is wrong with them."""
    entries = document.content.get(table)
    entries = entries.get("switch") if isinstance(entries, dict) else None
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {name for name in names if isinstance(name, str)}


def read(path: Path, config: object) -> Deployment:
    """Reads the deployment of `config`, the file's experiment. Raises ConfigError, with file, line and key of all problems."""
    try:
        document = documents.document(path)
    except (OSError, documents.Unreadable) as error:
        raise ConfigError(f"{path}: {error}") from None
    table = document.content.get("tofino")
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: there is no table [tofino]: it says which ports and hosts there are (docs/guide/tofino.md)")
    if "job" in table:
        raise ConfigError(f"{document.at('tofino', 'job')}: [tofino]: job: entries of a job are not deployed any more, as a "
                          "second run with them could get the sums of the first; leave the key out, and start `ina tofino "
                          "controller`, which admits each run as a job of its own")
    return _Reader(path, document, table).read(config)


class _Reader:
    """Reader of one file, which collects its problems."""

    def __init__(self, path: Path, document: documents.Document, table: dict[str, Any]) -> None:
        self._path, self._document, self._table, self._problems = path, document, table, Problems()

    def read(self, config: object) -> Deployment:
        top = self._problems.settings(TopKeys, self._table, self._place, TABLES) or TopKeys()
        switches = self._switches(top, top.p4_name or getattr(config, "protocol", ""))
        only = switches[0].name if len(switches) == 1 else ""
        hosts, mirrors = self._tables("host", Server, only), self._tables("mirror", Mirror, only)
        cables = [self._cable(number, entry) for number, entry in enumerate(self._list("link"))]
        self._problems.check()
        deployment = Deployment(self._path, config, top.controller, switches, tuple(filter(None, cables)), hosts, mirrors)
        _Check(deployment, self._document, self._problems).all()
        self._problems.check()
        return deployment

    def _place(self, *keys: str | int) -> str:
        """Returns the place of a key, with the name of its table."""
        number = keys[1] if len(keys) > 1 else None
        title = f"[[tofino.{keys[0]}]] number {number + 1}" if isinstance(number, int) else "[tofino]"
        return f"{self._document.at('tofino', *keys)}: {title}"

    def _add(self, text: str, *keys: str | int) -> None:
        self._problems.add(self._place(*keys), text)

    def _list(self, name: str) -> list[dict[str, Any]]:
        """Returns the tables of a list."""
        entries = self._table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._add(f"{name} = {entries!r}: expected tables [[tofino.{name}]]", name)
            return []
        return entries

    def _tables(self, name: str, kind: type[Table], only: str) -> tuple[Table, ...]:
        """Returns hosts or mirrors; at the only switch, if they name none."""
        entries = enumerate(self._list(name))
        items = [self._problems.settings(kind, entry, partial(self._place, name, number)) for number, entry in entries]
        return tuple(item if item.switch else replace(item, switch=only) for item in items if item)

    def _switches(self, top: TopKeys, p4_name: str) -> tuple[Tofino, ...]:
        entries = self._list("switch")
        if not entries:
            return (Tofino(ALONE, 1, p4_name, top.at, self._ports(self._table, "tofino"), top.ip),)
        for name in ONE_SWITCH:
            if name in self._table:
                self._add(f"{name}: where there are tables [[tofino.switch]], each has its own", name)
        switches = []
        for number, entry in enumerate(entries):
            values = self._problems.settings(SwitchKeys, entry, partial(self._place, "switch", number), ("ports",))
            ports = self._ports(entry, "tofino.switch", "switch", number)
            if values:
                switches.append(Tofino(values.name, number + 1, values.p4_name or p4_name, values.at, ports, values.ip))
        return tuple(switches)

    def _ports(self, table: dict[str, Any], path: str, *where: str | int) -> tuple[PortConfig, ...]:
        """Returns the ports of a switch. `path`: their name in messages."""
        entries = table.get("ports", {})
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            self._add(f'ports = {entries!r}: expected tables [{path}.ports."1/0"]', *where, "ports")
            return ()
        configs = []
        for name, entry in entries.items():
            def place(key: str, name: str = name) -> str:
                return f"""{self._document.at("tofino", *where, "ports", name, key)}: [{path}.ports."{name}"]"""

            if keys := self._problems.settings(PortKeys, entry, place):
                try:
                    configs.append(PortConfig(name, **asdict(keys)))
                except ValueError as error:
                    self._problems.add(place(""), str(error))
        return tuple(configs)

    def _cable(self, number: int, entry: dict[str, Any]) -> Cable | None:
        keys = self._problems.settings(LinkKeys, entry, partial(self._place, "link", number))
        return Cable(*(part for end in keys.ends for part in end.split(":"))) if keys else None


class _Check:
    """Check of what the tables of a file say together."""

    def __init__(self, deployment: Deployment, document: documents.Document, problems: Problems) -> None:
        self._deployment, self._document, self._problems = deployment, document, problems
        self._owners: dict[tuple[str, str], str] = {}  # of switch and port: a host or a link

    def _need(self, ok: bool, text: str, *keys: str | int) -> bool:
        if not ok:
            self._problems.add(self._document.at("tofino", *keys), text)
        return ok

    def _once(self, things: str, table: str, key: str, values: list[Any]) -> None:
        for number, value in enumerate(values):
            self._need(value not in values[:number], f"two {things} have {key} = {value!r}", table, number, key)

    def all(self) -> None:
        d = self._deployment
        workers = getattr(d.config, "workers", 0)
        text = f"workers = {workers}, but there are {len(d.hosts)} tables [[tofino.host]]: one for each rank"
        if len(d.hosts) != workers:
            self._problems.add(self._document.at("workers"), text)
        self._once("switches", "switch", "name", [s.name for s in d.switches])
        for name in ("name", "mac", "ip"):
            self._once("hosts", "host", name, [getattr(h, name) for h in d.hosts])
        for number, host in enumerate(d.hosts):
            self._host(number, host)
        for number, cable in enumerate(d.cables):
            self._cable(number, cable)
        self._once("mirrors", "mirror", "session", [m.session if not d.several else (m.switch, m.session) for m in d.mirrors])
        for number, mirror in enumerate(d.mirrors):
            self._mirror(number, mirror)
        for s in d.switches:
            self._lanes(s)
        self._problems.check()
        try:
            d.topology(lambda switch, port: 0)
        except TopologyError as error:
            raise ConfigError(str(error)) from None

    def _host(self, number: int, h: Server) -> None:
        d, who, where = self._deployment, f"host {h.name!r}", ("host", number)
        if self._end(who, h.switch, h.port, *where, "port"):
            other = self._owners.setdefault((h.switch, h.port), who)
            of = f" of {h.switch}" if d.several else ""
            self._need(other == who, f"two hosts have port = {h.port!r}{of}", *where, "port")
        for s in d.switches:
            text = f"{who} has the address of {s.name}: {s.node.ip}, {s.node.mac}"
            self._need(h.ip != s.node.ip and h.mac != s.node.mac, text, *where)

    def _cable(self, number: int, c: Cable) -> None:
        d, where = self._deployment, ("link", number, "ends")
        who, ends = f"link {c.a}:{c.a_port} to {c.b}:{c.b_port}", ((c.a, c.a_port), (c.b, c.b_port))
        there = [self._end(who, switch, port, *where) for switch, port in ends]
        if not all(there):
            return
        for switch, port in ends:
            other = self._owners.setdefault((switch, port), who)
            self._need(other == who and c.a != c.b, f"{who}: {switch}:{port} is an end of {other} already", *where)
        a, b = (d.end(switch, port) for switch, port in ends)
        for name in ("speed", "fec"):
            x, y = getattr(a, name), getattr(b, name)
            self._need(x == y, f"{who}: {name} is {x} at one end and {y} at the other: the link would stay down", *where)

    def _mirror(self, number: int, m: Mirror) -> None:
        d, who, where = self._deployment, f"mirror session {m.session}", ("mirror", number)
        self._need(bool(m.port) != bool(m.group), f"{who}: expected port or group, one of them", *where)
        at = d.switch(m.switch)
        if at is None:
            names = ", ".join(s.name for s in d.switches)
            self._need(False, f"{who}: switch = {m.switch!r} is none of {names}", *where, "switch")
        else:
            there = not m.port or m.port.isdigit() or at.port(m.port) is not None
            self._need(there, f"{who}: port = {m.port!r} is none of [tofino.ports]", *where, "port")

    def _end(self, who: str, switch: str, port: str, *where: str | int) -> bool:
        """Checks that the switch has this port, for `who` to be connected to."""
        d = self._deployment
        at = d.switch(switch)
        if at is None and switch in switch_names(self._document, "process"):
            return self._need(False, f"{who}: {switch} is a switch process, which has no ports for cables and a controller of "
                              "its own: no tree has both kinds; ranks that it sums have tables [[process.host]]", *where)
        if at is None:
            return self._need(False, f"{who}: switch = {switch!r} is none of {', '.join(s.name for s in d.switches)}", *where)
        there = at.port(port)
        if there is None:
            of = f"the ports of {switch}" if d.several else "[tofino.ports]"
            names = ", ".join(sorted(p.name for p in at.ports)) or "none"
            return self._need(False, f"{who}: port = {port!r} is none of {of}: {names}", *where)
        return self._need(there.loopback == "none", f"{who}: port {port} is a loopback port", *where)

    def _lanes(self, s: Tofino) -> None:
        lanes: dict[tuple[str, int], str] = {}
        where = ("switch", s.number - 1) if self._deployment.several else ()
        for p in s.ports:
            for lane in p.lanes if "/" in p.name else ():
                other = lanes.setdefault((p.name.partition("/")[0], lane), p.name)
                text = f"ports {other} and {p.name} share a lane of their connection: {p.name} begins at channel {lane}"
                self._need(other == p.name, text, *where, "ports", p.name)
