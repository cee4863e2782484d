"""The `[tofino]` table of an experiment's file: the switch, its ports, and which server is at which of them.

kind = "training"                 # the experiment, as `ina run` and `ina experiment` read it
workers = 4
values = 256
slots = 128

[tofino]
p4_name = "switchml"              # as the driver was started with; default: the protocol's name
job = false                       # true: the job's own entries are deployed, too (default: a controller admits jobs)
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
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ina.bfrt.ports import PortConfig
from ina.experiment import plan
from ina.experiment.config import ConfigError, Keys, nearest
from ina.transport import Address, worker_address

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
TOP = ("p4_name", "job", "controller", "ports", "host", "mirror")
DIRECTIONS = ("ingress", "egress", "both")


@dataclass(frozen=True)
class Server:
    """A host at a port of the switch. `interface`: the name that its NIC has there."""

    name: str
    port: str
    mac: str
    ip: str
    interface: str = "eth0"

    def address(self, job: int) -> Address:
        return Address(self.mac, self.ip, worker_address(job, 0).port)


@dataclass(frozen=True)
class Mirror:
    """A mirror session: to the port `port`, or to the multicast group `group`."""

    session: int
    port: str = ""
    group: int = 0
    direction: str = "both"
    max_length: int = 16384


@dataclass(frozen=True)
class Deployment:
    """What a file says. `config`: the experiment itself."""

    path: Path
    config: Keys
    p4_name: str
    job: bool
    controller: str
    ports: tuple[PortConfig, ...]
    hosts: tuple[Server, ...]
    mirrors: tuple[Mirror, ...] = field(default=())


def read(path: Path) -> Deployment:
    """Raises ConfigError, which names the file and the key."""
    config = plan.load(path).base
    try:
        table = tomllib.loads(path.read_text()).get("tofino")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: there is no table [tofino]: it says which ports and hosts there are (docs/tofino.md)")
    where = f"{path}: [tofino]"
    _known(table, TOP, where)
    ports = tuple(_port(name, said, f'{path}: [tofino.ports."{name}"]') for name, said in _table(table, "ports", where).items())
    hosts = tuple(
        _made(Server, said, f"{path}: [[tofino.host]] number {i}") for i, said in enumerate(_list(table, "host", where), 1)
    )
    mirrors = tuple(_made(Mirror, said, f"{path}: [[tofino.mirror]] number {i}")
                    for i, said in enumerate(_list(table, "mirror", where), 1))  # fmt: skip
    p4_name = _value(table, "p4_name", str, "", where) or getattr(config, "protocol", "")
    job, controller = _value(table, "job", bool, False, where), _value(table, "controller", str, "", where)
    found = Deployment(path, config, p4_name, job, controller,
                       ports, hosts, mirrors)  # fmt: skip
    _check(found)
    return found


def _check(d: Deployment) -> None:
    def need(ok: bool, text: str) -> None:
        if not ok:
            raise ConfigError(f"{d.path}: {text}")

    names = {p.name for p in d.ports}
    workers = getattr(d.config, "workers", 0)
    need(len(d.hosts) == workers, f"workers = {workers}, but there are {len(d.hosts)} tables [[tofino.host]]: one for each rank")
    given = {key: [getattr(h, key) for h in d.hosts] for key in ("name", "port", "mac", "ip")}
    for what, values in (given | {"session": [m.session for m in d.mirrors]}).items():
        double = next((v for v in values if values.count(v) > 1), None)
        need(double is None, f"two {'mirrors' if what == 'session' else 'hosts'} have {what} = {double!r}")
    for h in d.hosts:
        need(bool(MAC.fullmatch(h.mac)), f"host {h.name!r}: mac = {h.mac!r}: expected six bytes such as 0c:42:a1:00:00:01")
        need(int(h.mac[:2], 16) % 2 == 0, f"host {h.name!r}: mac = {h.mac!r} is a multicast address")
        try:
            ipaddress.IPv4Address(h.ip)
        except ValueError:
            need(False, f"host {h.name!r}: ip = {h.ip!r}: expected an IPv4 address")
        need(
            h.port in names, f"host {h.name!r}: port = {h.port!r} is none of [tofino.ports]: {', '.join(sorted(names)) or 'none'}"
        )
        need(_loopback(d, h.port) == "none", f"host {h.name!r}: port {h.port} is a loopback port")
    for m in d.mirrors:
        need(1 <= m.session <= 1015, f"mirror session {m.session}: expected 1 to 1015")
        need(bool(m.port) != bool(m.group), f"mirror session {m.session}: expected port or group, one of them")
        need(
            not m.port or m.port in names or m.port.isdigit(),
            f"mirror session {m.session}: port = {m.port!r} is none of [tofino.ports]",
        )
        need(
            m.direction in DIRECTIONS,
            f"mirror session {m.session}: direction = {m.direction!r}: expected {', '.join(DIRECTIONS)}",
        )
    lanes: dict[tuple[str, int], str] = {}
    for p in d.ports:
        for lane in p.lanes if "/" in p.name else ():
            other = lanes.setdefault((p.name.partition("/")[0], lane), p.name)
            need(
                other == p.name, f"ports {other} and {p.name} share a lane of their connection: {p.name} begins at channel {lane}"
            )


def _loopback(d: Deployment, name: str) -> str:
    return next((p.loopback for p in d.ports if p.name == name), "none")


# ---- pieces of TOML


def _known(table: dict[str, Any], known: Any, where: str) -> None:
    for name in table:
        if name not in known:
            raise ConfigError(f"{where}: unknown key {name!r}{nearest(name, sorted(known))}")


def _table(table: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise ConfigError(f'{where}: {name} = {found!r}: expected tables [tofino.{name}."1/0"]')
    return found


def _list(table: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(v, dict) for v in found):
        raise ConfigError(f"{where}: {name} = {found!r}: expected tables [[tofino.{name}]]")
    return found


def _value(table: dict[str, Any], name: str, kind: type, default: Any, where: str) -> Any:
    value = table.get(name, default)
    if type(value) is not kind:
        raise ConfigError(f"{where}: {name} = {value!r}: expected {'true or false' if kind is bool else f'a {kind.__name__}'}")
    return value


def _made(kind: Any, said: dict[str, Any], where: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(kind)}
    _known(said, fields, where)
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in said]
    if missing:
        raise ConfigError(f"{where}: {missing[0]} is missing")
    for name, value in said.items():
        expected = {"str": str, "int": int}[fields[name].type]
        if type(value) is not expected:
            raise ConfigError(f"{where}: {name} = {value!r}: expected {'text' if expected is str else 'a whole number'}")
    return kind(**said)


def _port(name: str, said: dict[str, Any], where: str) -> PortConfig:
    known = [f.name for f in dataclasses.fields(PortConfig) if f.name != "name"]
    _known(said, known, where)
    try:
        return PortConfig(name, **said)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
