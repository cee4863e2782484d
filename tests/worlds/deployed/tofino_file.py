"""Tables of an experiment's file: switches, their cables and hosts (docs/guide/tofino.md)."""

from __future__ import annotations

from collections.abc import Iterable


def switch(name: str, at: str, ports: Iterable[str]) -> str:
    tables = ", ".join(f'"{port}" = {{}}' for port in ports)
    return f'\n[[tofino.switch]]\nname = "{name}"\nat = "{at}"\nports = {{ {tables} }}\n'


def link(a: str, b: str) -> str:
    """`a`, `b`: switch:port."""
    return f'\n[[tofino.link]]\nends = ["{a}", "{b}"]\n'


def host(n: int, switch: str, port: int, mac: str = "0c:42:a1:00:00") -> str:
    """server`n` with address 10.0.0.n, at a port of the switch. `mac`: but for the last byte, which is `n`."""
    return (f'\n[[tofino.host]]\nname = "server{n}"\nswitch = "{switch}"\nport = "{port}/0"\n'
            f'mac = "{mac}:{n:02x}"\nip = "10.0.0.{n}"\n')
