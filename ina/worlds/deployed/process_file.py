"""The `[process]` table of an experiment's file: switch processes (`ina switch run --listen`), and the servers they serve.

kind = "training"                 # the experiment, as `ina run` and `ina experiment` read it; [tofino] may be in the same file
workers = 16
values = 256
slots = 128

[process]
program = "switchml"              # default: the experiment's protocol
ina = "/opt/ina/bin/ina"          # the command on their machines; default: ina

[[process.switch]]
name = "sums"
listen = "10.0.0.9:5588"          # where ranks reach it
machine = "node9"                 # as ssh knows it: `ina deploy` starts it there; without it you do, such as by systemd

[[process.host]]                  # in the order of the ranks
name = "server1"
ip = "10.0.0.1"
ranks = 8
interface = "eth0"                # of this address, for GLOO_SOCKET_IFNAME
switch = "sums"                   # default: the only one

Addresses are those of the network: none follows from a name.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ina.base import documents
from ina.base.bounds import Range
from ina.base.settings import REQUIRED, ConfigError, Form, Problems, key
from ina.worlds.deployed.deployment_file import ADDRESS, NAME, switch_names

PORT = 5588  # of `listen`, where it names none
VALUES = 256  # of a packet, where the experiment does not say it
TABLES = ("switch", "host")
MACHINE = re.compile(r"|[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")  # no option of ssh's begins so


def _is_place(text: str) -> bool:
    """Returns True for ADDRESS or ADDRESS:PORT of one machine."""
    place, colon, port = text.partition(":")
    try:
        ip = ipaddress.IPv4Address(place)
    except ValueError:
        return False
    fits = not colon or port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
    return fits and not (ip.is_unspecified or ip.is_multicast)


def _is_command(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


Table = TypeVar("Table", "ProcessSwitch", "ProcessHost")


@dataclass(frozen=True)
class TopKeys:
    """Keys of [process], beside its tables."""

    program: str = key("", "a name of `ina programs`, or a P4 source on their machines; default: the experiment's protocol")
    ina: str = key("ina", "the command on their machines", form=Form("a command such as /opt/ina/bin/ina", _is_command))


@dataclass(frozen=True)
class ProcessSwitch:
    """A switch process. `listen`: IPv4 address, perhaps with a TCP port; `machine`: as ssh knows it; empty: its operator starts
    it."""

    name: str = key(REQUIRED, "the switch's name", form=NAME)
    listen: str = key(REQUIRED, "where ranks reach it",
                      form=Form(f"an IPv4 address of its machine, perhaps with a TCP port, such as 10.0.0.9:{PORT}", _is_place))
    machine: str = key("", "its machine, as ssh knows it", form=Form("a name such as node9 or me@node9", MACHINE.fullmatch))

    @property
    def address(self) -> str:
        """HOST:PORT, as INA_SWITCH has it."""
        return self.listen if ":" in self.listen else f"{self.listen}:{PORT}"


@dataclass(frozen=True)
class ProcessHost:
    """A server with `ranks` ranks, at the IPv4 address `ip`."""

    name: str = key(REQUIRED, "the server's name", form=NAME)
    ip: str = key(REQUIRED, "where the other servers reach it", form=ADDRESS)
    ranks: int = key(1, "how many train there", Range(1, 256))
    interface: str = key("", "that of this address, for GLOO_SOCKET_IFNAME")
    switch: str = key("", "the switch process that sums for it; default: the only one")


@dataclass(frozen=True)
class Processes:
    """Contents of the table. `program`: a name or a path; `ina`: words of the command; `protocol`: the experiment's; `values` of
    a packet; `slots` of each job, 0: the switch process's own default."""

    path: Path
    program: str
    ina: tuple[str, ...]
    protocol: str
    values: int
    slots: int
    switches: tuple[ProcessSwitch, ...]
    hosts: tuple[ProcessHost, ...]

    def command(self, switch: ProcessSwitch) -> list[str]:
        """Returns the words that start a switch process on its machine."""
        slots = [f"--job-slots={self.slots}"] if self.slots else []
        return [*self.ina, "switch", "run", self.program, "--listen", switch.address, f"-DVALUES={self.values}", *slots]

    def switch(self, name: str) -> ProcessSwitch:
        """Returns the switch of that name; the file has been checked."""
        return next(s for s in self.switches if s.name == name)

    def host_commands(self, token: str) -> list[tuple[str, list[str]]]:
        """Returns for each host the command that starts its ranks. `token`: place of the switch process's token here."""
        commands = []
        for number, host in enumerate(self.hosts):
            gloo = f" GLOO_SOCKET_IFNAME={host.interface}" if host.interface else ""
            lines = [] if number else [f"# needs the token: a copy of {token} at the same place (chmod 600)"]
            commands.append((host.name, [
                *lines, f"INA_SWITCH={self.switch(host.switch).address}{gloo} torchrun --nnodes {len(self.hosts)} "
                f"--node-rank {number} --nproc-per-node {host.ranks} --master-addr {self.hosts[0].ip} --master-port 29500 "
                "train.py"]))
        return commands


def has_table(path: Path, name: str) -> bool:
    """Returns True if the file has the table. Raises ConfigError: it cannot be read."""
    return isinstance(_document(path).content.get(name), dict)


def read(path: Path, config: object) -> Processes:
    """Reads the switch processes of `config`, the file's experiment. Raises ConfigError with file, line and key of all problems.
    """
    document = _document(path)
    table = document.content.get("process")
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: there is no table [process]: it says which switch processes and servers there are "
                          "(docs/guide/operate.md)")
    return _Reader(path, document, table).read(config)


def _document(path: Path) -> documents.Document:
    try:
        return documents.document(path)
    except (OSError, documents.Unreadable) as error:
        raise ConfigError(f"{path}: {error}") from None


class _Reader:
    """Reader of one file, which collects its problems."""

    def __init__(self, path: Path, document: documents.Document, table: dict[str, Any]) -> None:
        self._path, self._document, self._table, self._problems = path, document, table, Problems()

    def read(self, config: object) -> Processes:
        top = self._problems.settings(TopKeys, self._table, self._place, TABLES) or TopKeys()
        protocol = getattr(config, "protocol", "")
        if not protocol:
            self._add(f"experiments of kind {getattr(config, 'kind', '?')!r} have no protocol, which a switch process runs")
        switches, hosts = self._tables("switch", ProcessSwitch), self._tables("host", ProcessHost)
        self._problems.check()
        if len(switches) == 1:
            hosts = tuple(host if host.switch else replace(host, switch=switches[0].name) for host in hosts)
        self._check(switches, hosts, getattr(config, "workers", 0))
        self._problems.check()
        return Processes(self._path, top.program or protocol, tuple(shlex.split(top.ina)), protocol,
                         getattr(config, "values", 0) or VALUES, getattr(config, "slots", 0), switches, hosts)

    def _place(self, *keys: str | int) -> str:
        number = keys[1] if len(keys) > 1 else None
        title = f"[[process.{keys[0]}]] number {number + 1}" if isinstance(number, int) else "[process]"
        return f"{self._document.at('process', *keys)}: {title}"

    def _add(self, text: str, *keys: str | int) -> None:
        self._problems.add(self._place(*keys), text)

    def _tables(self, name: str, kind: type[Table]) -> tuple[Table, ...]:
        entries = self._table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
            self._add(f"{name} = {entries!r}: expected tables [[process.{name}]]", name)
            return ()
        places = (partial(self._place, name, number) for number in range(len(entries)))
        items = [self._problems.settings(kind, entry, place) for entry, place in zip(entries, places, strict=True)]
        return tuple(item for item in items if item)

    def _once(self, table: str, key: str, values: Sequence[str]) -> None:
        for number, value in enumerate(values):
            if value in values[:number]:
                self._add(f"two have {key} = {value!r}", table, number, key)

    def _check(self, switches: Sequence[ProcessSwitch], hosts: Sequence[ProcessHost], workers: int) -> None:
        self._once("switch", "name", [s.name for s in switches])
        self._once("switch", "listen", [s.address for s in switches])
        self._once("host", "name", [h.name for h in hosts])
        self._once("host", "ip", [h.ip for h in hosts])
        ranks = sum(host.ranks for host in hosts)
        if ranks != workers:
            self._problems.add(self._document.at("workers"), f"workers = {workers}, but the tables [[process.host]] have "
                               f"{ranks} ranks together")
        names, tofinos = [s.name for s in switches], switch_names(self._document, "tofino")
        for number, name in enumerate(names):
            if name in tofinos:
                self._add(f"name = {name!r}: a table [[tofino.switch]] has it, too", "switch", number, "name")
        for number, host in enumerate(hosts):
            if host.switch in tofinos and host.switch not in names:
                self._add(f"switch = {host.switch!r} is a Tofino: ranks there have tables [[tofino.host]], as its own controller "
                          f"admits their jobs; expected one of {', '.join(names)}", "host", number, "switch")
            elif host.switch not in names:
                self._add(f"switch = {host.switch!r}: expected one of {', '.join(names)}", "host", number, "switch")
            elif host.switch != hosts[0].switch:
                self._add(f"switch = {host.switch!r}, but {hosts[0].name} is at {hosts[0].switch}: the ranks of one experiment "
                          "are one job, which one switch process sums", "host", number, "switch")
