"""Parts of a Device (device.py): each serves the tables of some types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ina.p4.bfrt.info import Info, Table
from ina.p4.bfrt.rows import Row, Where
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import Update


class Owner(Protocol):
    """The Device as its parts know it."""

    switch: Switch
    info: Info
    pipes: int
    clock: Callable[[], float]

    def write_entities(self, updates: Iterable[Update]) -> None: ...

    def has_port(self, port: int) -> bool: ...


class Part(Protocol):
    """Serves the tables of some types."""

    @property
    def kinds(self) -> Iterable[str]: ...

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None: ...

    def read(self, table: Table, row: Row, where: Where) -> list[Row]: ...
