"""The state of a v1model switch that its externs read and write."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.reference.machine import Digest, Machine, Semantics
from ina.p4.compiler.reference.places import Place
from ina.p4.compiler.reference.tables import Entry, Table
from ina.p4.compiler.reference.values import Record, Value, default_record
from ina.p4.compiler.types import Type

DROP_PORT = 511
Path = tuple[str, ...]
"""A field of metadata: "meta" or "standard", then the names of fields."""


@dataclass
class Requests:
    """Requests that externs made during one control, with the metadata to preserve; the last call of each kind wins."""

    clone: tuple[int, list[Path]] | None = None
    resubmit: list[Path] | None = None
    recirculate: list[Path] | None = None
    digest: Digest | None = None


@dataclass
class Pass:
    """The packet in one pass. `length`: of the frame when the pass began; `payload`: behind the headers that were parsed.
    `standard`: its standard metadata."""

    standard: Record
    length: int = 0
    now_ps: int = 0
    truncate: int | None = None
    payload: bytes = b""
    checksum_error: bool = False
    requests: Requests = field(default_factory=Requests)
    colors: dict[Instance, int] = field(default_factory=dict)  # of direct meters


class V1Machine(Machine):
    name = "v1model"
    keeps_fields = False

    def __init__(self, program: CheckedProgram, externs: Semantics, seed: int) -> None:
        super().__init__(program, externs, seed)
        parser = next(a for a in program.package.args.values() if isinstance(a, Instance))
        types: list[Type] = [p.type for p in parser.decl.params[1:4]]
        self.header_type, self.metadata_type, self.standard_type = types
        self.packet = Pass(default_record(self.standard_type))

    def copied_out(self, variables: dict[ast.Node, Value], param: ast.Node, place: Place) -> None:
        """Does nothing: only TNA has what is written later."""

    def table_applied(self, table: Table, entry: Entry | None) -> None:
        """Runs direct counters and meters on every hit, whether or not the action calls them (v1model.p4)."""
        if entry is None:
            return
        packet = self.packet
        entry.packets += 1
        entry.octets += packet.length
        if table.meter_states is not None:
            color = table.meter_states.execute(entry.handle, packet.length, packet.now_ps)
            packet.colors.update(dict.fromkeys(table.attached, color))
