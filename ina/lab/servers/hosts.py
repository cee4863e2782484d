"""Servers of a cluster, from a file:

    # name or address   what it is
    node1               ranks=8
    node2               ranks=8 address=10.0.0.2
    node3               switch ranks=0
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ina.aggregation.control_socket.messages import printable
from ina.base import plain_files
from ina.base.settings import ConfigError

MOST = 64  # servers: each pair takes seconds
RANKS = 256  # of a server
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")  # no option of ssh's begins so, and no shell's word ends in it
EXPECTED = "expected NAME [address=10.0.0.1] [switch] [ranks=8]"


@dataclass(frozen=True)
class Host:
    """A server. ``name``: as ssh knows it; ``address``: IPv4, where it trains; ``switch``: it is to run a switch process;
    ``ranks``: how many train there, None: nobody says so, and it is one."""

    name: str
    address: str
    switch: bool = False
    ranks: int | None = None


def resolved(name: str) -> str:
    """Returns the IPv4 address of a name, or OSError: there is none."""
    return str(socket.getaddrinfo(name.rpartition("@")[2], None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def read(path: Path, resolve: Callable[[str], str] = resolved) -> list[Host]:
    """Returns the servers that a file lists, two or more. Raises ConfigError, which names file, line and expectation; OSError."""
    with plain_files.opened(path) as file:
        try:
            lines = file.read().decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: no text (UTF-8); {EXPECTED} in each line") from None
    hosts: list[Host] = []
    for number, line in enumerate(lines, start=1):
        if words := line.partition("#")[0].split():
            place = f"{path}:{number}"
            host = _host(place, words, resolve)
            for other in hosts:
                if host.name == other.name or host.address == other.address:
                    same = f"name {host.name}" if host.name == other.name else f"address {host.address}, as {other.name} has"
                    raise ConfigError(f"{place}: {same}: expected each server once, with an address of its own (address=)")
            hosts.append(host)
    if not 2 <= len(hosts) <= MOST:
        raise ConfigError(f"{path}: {len(hosts)} servers: expected 2 to {MOST}, one a line: {EXPECTED.removeprefix('expected ')}")
    if all(host.ranks == 0 for host in hosts):
        raise ConfigError(f"{path}: ranks=0 everywhere: expected a server that trains")
    return hosts


def _host(place: str, words: list[str], resolve: Callable[[str], str]) -> Host:
    name, *rest = words
    if not NAME.fullmatch(name) or "=" in name:
        raise ConfigError(f"{place}: {printable(name)}: no name of a server; {EXPECTED}")
    values: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key not in ("address", "switch", "ranks") or bool(equals) == (key == "switch") or key in values:
            again = " a second time" if key in values else ""
            raise ConfigError(f"{place}: {printable(word)}{again}: {EXPECTED}")
        values[key] = value
    ranks = None
    if "ranks" in values:
        text = values["ranks"]
        if not (text.isascii() and text.isdigit() and int(text[:6]) <= RANKS):
            raise ConfigError(f"{place}: ranks={printable(text)}: expected a whole number from 0 to {RANKS}")
        ranks = int(text)
    return Host(name, _address(place, name, values.get("address"), resolve), "switch" in values, ranks)


def _address(place: str, name: str, own: str | None, resolve: Callable[[str], str]) -> str:
    if own is not None:
        try:
            return str(ipaddress.IPv4Address(own))
        except ValueError:
            raise ConfigError(f"{place}: address={printable(own)}: expected an IPv4 address, such as address=10.0.0.1") from None
    bare = name.rpartition("@")[2]
    try:
        return str(ipaddress.IPv4Address(bare))
    except ValueError:
        pass
    try:
        address = resolve(name)
    except (OSError, UnicodeError):
        raise ConfigError(f"{place}: {bare}: no IPv4 address of this name is known here: expected address=10.0.0.1, that of the "
                          "card through which it trains") from None
    if ipaddress.IPv4Address(address).is_loopback:
        raise ConfigError(f"{place}: {bare} is {address} here, which no other server reaches: expected address=10.0.0.1, that of "
                          "the card through which it trains")
    return address
