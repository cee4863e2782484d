"""A switch behind BFRuntime, with the same interface as the embedded one.

    with BfRuntimeTarget("switch:50052") as target:
        target.write(insert(TableEntry(...), MulticastGroupEntry(1, (Replica(132, 1), Replica(140, 2)))))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ina.p4.bfrt import remote_entities  # noqa: F401 (it registers kinds of entities)
from ina.p4.bfrt.client import Client, WriteFailed
from ina.p4.bfrt.entities import kind
from ina.p4.bfrt.ports import PortConfig
from ina.p4.bfrt.program_info import p4info_of
from ina.p4.bfrt.rows import Change, Row
from ina.p4.rpc.connections import Access
from ina.p4.runtime.entities import E, Update
from ina.p4.runtime.p4info import EntityError, P4Info
from ina.p4.runtime.target import SwitchTarget

PORT, PANEL, STATISTICS = "$PORT", "$PORT_HDL_INFO", "$PORT_STAT"


class BfRuntimeTarget(SwitchTarget):
    """The program `program` (default: the first) of device `device_id` at `address`. Raises as Client does."""

    def __init__(self, address: str, device_id: int = 0, program: str = "", *, client_id: int | None = None,
                 timeout: float = 30.0, access: Access | None = None):  # fmt: skip
        self.client = Client(address, client_id, device_id, program, timeout=timeout, access=access)
        self.address = address
        self._p4info = p4info_of(self.client.info)

    def close(self) -> None:
        self.client.close()

    @property
    def alive(self) -> bool:
        return self.client.alive

    def __enter__(self) -> BfRuntimeTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def p4info(self) -> P4Info:
        """The P4Info that the switch's bfrt.json implies, with the program's names."""
        return self._p4info

    # ---- entities

    def write(self, updates: Iterable[Update], timeout: float = 60.0) -> None:
        changes: list[Change] = []
        owners: list[int] = []  # of each change, the index of its update
        updates = list(updates)
        for i, update in enumerate(updates):
            try:
                rows = self.changes(update)
            except EntityError as error:
                raise EntityError(f"update {i}: {error}", error.code, i) from None
            changes += rows
            owners += [i] * len(rows)
        try:
            self.client.write(changes)
        except WriteFailed as failed:
            i = owners[min(failed.failed)]
            raise EntityError(f"update {i}: {failed}", failed.code, i) from None

    def changes(self, update: Update) -> list[Change]:
        """The rows of an update, in the order in which to write them. May read current entries. Raises EntityError."""
        if update.type not in ("INSERT", "MODIFY", "DELETE"):
            raise EntityError(f"{update.type!r}: expected INSERT, MODIFY or DELETE")
        return kind(update.entity).changes(self.client, update.type, update.entity)

    def read(self, entities: Sequence[E], timeout: float = 60.0) -> list[E]:
        return [entity for pattern in entities for entity in kind(pattern).read(self.client, pattern)]

    # ---- ports

    def dev_port(self, name: str) -> int:
        """The device port of "1/0" on the front panel, by the switch's own map. Raises EntityError."""
        connection, slash, channel = name.partition("/")
        if not slash:
            return int(connection)
        try:
            (row,) = self.client.read([Row(PANEL, {"$CONN_ID": int(connection), "$CHNL_ID": int(channel)})], hardware=False)
        except EntityError as error:
            raise EntityError(f"port {name}: this switch has no such port on its front panel ({error})", error.code) from None
        number: int = row.data["$DEV_PORT"]
        return number

    def ports(self) -> dict[int, dict[str, Any]]:
        """Configured ports, by device port: the fields of $PORT."""
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self.client.matching(Row(PORT))}

    def add_port(self, port: PortConfig) -> int:
        """Adds a port, or changes its configuration; returns its device port. Raises EntityError with the port's name."""
        number = self.dev_port(port.name)
        try:
            self.client.write([("MODIFY" if number in self.ports() else "INSERT", port.row(number))])
        except EntityError as error:
            raise EntityError(f"port {port.name}: {error}", error.code) from None
        return number

    def remove_port(self, name: str) -> None:
        self.client.write([("DELETE", Row(PORT, {"$DEV_PORT": self.dev_port(name)}))])

    def statistics(self) -> dict[int, dict[str, int]]:
        """Counters of all ports, by device port: the fields of $PORT_STAT, as the MACs count them."""
        return {r.key["$DEV_PORT"]: dict(r.data) for r in self.client.matching(Row(STATISTICS))}

    def port_statistics(self, name: str) -> dict[str, int]:
        """Counters of $PORT_STAT, such as $FramesReceivedOK, as the MAC counts them."""
        (row,) = self.client.read([Row(STATISTICS, {"$DEV_PORT": self.dev_port(name)})])
        return dict(row.data)
