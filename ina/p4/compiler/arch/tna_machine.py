"""The state of a TNA switch that its externs read and write."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.instances import calls_in
from ina.p4.compiler.reference.hashes import folded
from ina.p4.compiler.reference.machine import Machine, Semantics
from ina.p4.compiler.reference.packet import PacketIn
from ina.p4.compiler.reference.places import Arguments, Place, followed
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import Entry, Table
from ina.p4.compiler.reference.values import Value

MASK32 = (1 << 32) - 1


class Unset(int):
    """The value of an invalid intrinsic metadata field: never written (then zero), or invalidated."""


class Nothing(Unset):
    """The value of an invalid field in a deparser: it equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@dataclass
class WordSum:
    """The state of a Checksum object: the sums of the 16-bit words that were added and subtracted, whether any were subtracted,
    and the number of bytes in both."""

    added: int = 0
    subtracted: int = 0
    less: bool = False
    octets: int = 0

    def value(self) -> int:
        """Returns the ones' complement sum of what was added and of the complement of what was subtracted."""
        return folded(self.added + (~folded(self.subtracted) & 0xFFFF if self.less else 0))


@dataclass
class Residual:
    """A call of `subtract_all_and_deposit`: its object and target, the byte of the packet, and 1 if the object's list had an odd
    number of bytes."""

    owner: Instance
    place: Place
    start: int
    odd: int


@dataclass
class Phase:
    """The state of the packet in the current phase. `deposits`: in the order of the calls."""

    egress: bool
    octets: int
    now_ps: int
    packet: PacketIn
    requests: dict[str, int] = field(default_factory=dict)
    mirror: bytes | None = None
    resubmit: bytes | None = None
    digest: tuple[int, tuple[Value, ...]] | None = None
    sums: dict[Instance, WordSum] = field(default_factory=dict)
    deposits: list[Residual] = field(default_factory=list)
    counters: dict[Instance, int] = field(default_factory=dict)
    entries: dict[Instance, Entry | None] = field(default_factory=dict)


class TnaMachine(Machine):
    name = "TNA"
    keeps_fields = True

    def __init__(self, program: CheckedProgram, externs: Semantics, seed: int) -> None:
        super().__init__(program, externs, seed)
        self.pipelines = [a for a in program.package.args.values() if isinstance(a, Instance)]
        self.phase = Phase(False, 0, 0, PacketIn(b""))
        self.logs: dict[Instance, int] = {}  # the next cell of execute_log, by register
        self.digest_numbers: dict[ast.Call, int] = {}
        for pipeline in self.pipelines:  # in the order of their calls in the deparser's text
            deparser = list(pipeline.args.values())[2]
            calls = [c for c in calls_in(deparser.decl.body) if c.kind == "method" and c.method == "pack"]
            self.digest_numbers |= {c: i for i, c in enumerate(calls, 1)}

    def copied_out(self, variables: dict[ast.Node, Value], param: ast.Node, place: Place) -> None:
        """Lets the residuals in a parameter of a parser go to where its argument is: they are deposited later."""
        for residual in self.phase.deposits:
            residual.place = followed(residual.place, variables, param, place)

    def table_applied(self, table: Table, entry: Entry | None) -> None:
        for instance in table.attached:
            self.phase.entries[instance] = entry

    def entry(self, instance: Instance, call: ast.Call) -> Entry | None:
        """Returns the entry whose action uses a direct object. Raises InterpreterError elsewhere."""
        if instance not in self.phase.entries:
            raise InterpreterError(call, f"{instance.name} outside of the actions of its table")
        return self.phase.entries[instance]

    def cell(self, instance: Instance, call: ast.Call, args: Arguments) -> int:
        """Returns the index of an object's cell: the argument, or of a direct object that of its entry."""
        return self.direct_cell(instance, call) if instance.decl.name.startswith("Direct") else args.index("index")

    def direct_cell(self, instance: Instance, call: ast.Call) -> int:
        """Returns the index of a direct object's cell: the entry's handle, -1 for a miss; 0 if no table names it."""
        if instance not in self.program.attached:
            return 0
        entry = self.entry(instance, call)
        return -1 if entry is None else entry.handle

    def octets(self, args: Arguments) -> int:
        """Returns the packet's length as counters and meters take it."""
        return self.phase.octets - args.number("adjust_byte_count", 0) & MASK32
