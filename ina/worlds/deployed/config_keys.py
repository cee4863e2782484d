"""Pieces of a TOML file as an experiment for Tofino has them: each is checked, and errors name file and key."""

from __future__ import annotations

import dataclasses
from typing import Any

from ina.base.settings import ConfigError, nearest
from ina.p4.bfrt.ports import PortConfig


def known(table: dict[str, Any], names: Any, where: str) -> None:
    for name in table:
        if name not in names:
            raise ConfigError(f"{where}: unknown key {name!r}{nearest(name, sorted(names))}")


def tables(table: dict[str, Any], name: str, where: str, path: str) -> dict[str, Any]:
    """`path`: what they are called, for people."""
    found = table.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise ConfigError(f'{where}: {name} = {found!r}: expected tables [{path}."1/0"]')
    return found


def listed(table: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(v, dict) for v in found):
        raise ConfigError(f"{where}: {name} = {found!r}: expected tables [[tofino.{name}]]")
    return found


def value(table: dict[str, Any], name: str, kind: type, default: Any, where: str) -> Any:
    found = table.get(name, default)
    if type(found) is not kind:
        what = {bool: "true or false", str: "text"}.get(kind, f"a {kind.__name__}")
        raise ConfigError(f"{where}: {name} = {found!r}: expected {what}")
    return found


def made(kind: Any, said: dict[str, Any], where: str) -> Any:
    """A dataclass of texts and whole numbers."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    known(said, fields, where)
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in said]
    if missing:
        raise ConfigError(f"{where}: {missing[0]} is missing")
    for name, found in said.items():
        expected = {"str": str, "int": int}[str(fields[name].type)]
        if type(found) is not expected:
            raise ConfigError(f"{where}: {name} = {found!r}: expected {'text' if expected is str else 'a whole number'}")
    return kind(**said)


def ports(table: dict[str, Any], where: str, path: str) -> tuple[PortConfig, ...]:
    """The tables `ports` of a switch."""
    names = [f.name for f in dataclasses.fields(PortConfig) if f.name != "name"]
    found = []
    for name, said in tables(table, "ports", where, f"{path}.ports").items():
        here = f'{where.rpartition(": ")[0]}: [{path}.ports."{name}"]'
        known(said, names, here)
        try:
            found.append(PortConfig(name, **said))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{here}: {error}") from None
    return tuple(found)
