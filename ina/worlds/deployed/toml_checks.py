"""Checked access to the keys of an experiment for Tofino (TOML); errors name file and key."""

from __future__ import annotations

import dataclasses
from typing import Any

from ina.base.settings import ConfigError, nearest
from ina.p4.bfrt.ports import PortConfig


def check_keys(table: dict[str, Any], names: Any, where: str) -> None:
    for name in table:
        if name not in names:
            raise ConfigError(f"{where}: unknown key {name!r}{nearest(name, sorted(names))}")


def tables(table: dict[str, Any], name: str, where: str, path: str) -> dict[str, Any]:
    """Returns the tables under `name`. `path`: their name in messages."""
    entries = table.get(name, {})
    if not isinstance(entries, dict) or not all(isinstance(v, dict) for v in entries.values()):
        raise ConfigError(f'{where}: {name} = {entries!r}: expected tables [{path}."1/0"]')
    return entries


def table_list(table: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    entries = table.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(v, dict) for v in entries):
        raise ConfigError(f"{where}: {name} = {entries!r}: expected tables [[tofino.{name}]]")
    return entries


def value(table: dict[str, Any], name: str, kind: type, default: Any, where: str) -> Any:
    entry = table.get(name, default)
    if type(entry) is not kind:
        text = {bool: "true or false", str: "text"}.get(kind, f"a {kind.__name__}")
        raise ConfigError(f"{where}: {name} = {entry!r}: expected {text}")
    return entry


def dataclass_of(kind: Any, table: dict[str, Any], where: str) -> Any:
    """Returns a `kind`, a dataclass of texts and whole numbers."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    check_keys(table, fields, where)
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in table]
    if missing:
        raise ConfigError(f"{where}: {missing[0]} is missing")
    for name, entry in table.items():
        expected = {"str": str, "int": int}[str(fields[name].type)]
        if type(entry) is not expected:
            raise ConfigError(f"{where}: {name} = {entry!r}: expected {'text' if expected is str else 'a whole number'}")
    return kind(**table)


def ports(table: dict[str, Any], where: str, path: str) -> tuple[PortConfig, ...]:
    """Returns the ports in the tables `ports` of a switch."""
    names = [f.name for f in dataclasses.fields(PortConfig) if f.name != "name"]
    configs = []
    for name, entry in tables(table, "ports", where, f"{path}.ports").items():
        here = f'{where.rpartition(": ")[0]}: [{path}.ports."{name}"]'
        check_keys(entry, names, here)
        try:
            configs.append(PortConfig(name, **entry))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{here}: {error}") from None
    return tuple(configs)
