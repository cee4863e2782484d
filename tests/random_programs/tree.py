"""Syntax tree of random programs: plain values that the generator makes, the renderer prints and the oracle runs.

Every name is used once in a program, so an environment needs no scopes. `Var.name` is the name as P4 writes it, such as
`hdr.h.f0`, `meta.m1` or `x7`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Type:
    """`kind` is bit, int or bool; `width` in bits, 1 for bool."""

    kind: str
    width: int

    def wrap(self, value: int) -> int:
        """The value modulo 2^width, in the range of the type."""
        value &= (1 << self.width) - 1
        return value - (1 << self.width) if self.kind == "int" and value >> self.width - 1 else value

    @property
    def lowest(self) -> int:
        return -(1 << self.width - 1) if self.kind == "int" else 0

    @property
    def highest(self) -> int:
        return (1 << self.width - 1) - 1 if self.kind == "int" else (1 << self.width) - 1


def bit(width: int) -> Type:
    return Type("bit", width)


def signed(width: int) -> Type:
    return Type("int", width)


BOOL = Type("bool", 1)


# ---- expressions


@dataclass(frozen=True)
class Lit:
    type: Type
    value: int


@dataclass(frozen=True)
class Var:
    type: Type
    name: str


@dataclass(frozen=True)
class Unary:
    """`op`: - ~ !"""

    type: Type
    op: str
    value: Expr


@dataclass(frozen=True)
class Binary:
    """`op`: + - * |+| |-| & | ^ << >> / % ++ == != < <= > >= && ||"""

    type: Type
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Cast:
    type: Type
    value: Expr


@dataclass(frozen=True)
class Slice:
    """Bits `high` to `low` of `value`, as bit<high - low + 1>."""

    type: Type
    value: Expr
    high: int
    low: int


@dataclass(frozen=True)
class Choice:
    """condition ? left : right"""

    type: Type
    condition: Expr
    left: Expr
    right: Expr


@dataclass(frozen=True)
class IsValid:
    header: str
    type: Type = BOOL


@dataclass(frozen=True)
class Item:
    """Field `name` of the element of stack `stack` that the low bits of `index` choose; `other` if it is not valid."""

    type: Type
    stack: str
    size: int
    index: Expr
    name: str
    other: Expr


@dataclass(frozen=True)
class Call:
    type: Type
    name: str
    args: tuple[Expr, ...]


Expr = Lit | Var | Unary | Binary | Cast | Slice | Choice | IsValid | Item | Call


# ---- statements


@dataclass(frozen=True)
class Assign:
    """`target` is a Var or a Slice of one."""

    target: Var | Slice
    value: Expr


@dataclass(frozen=True)
class Local:
    name: str
    type: Type
    value: Expr


@dataclass(frozen=True)
class If:
    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Switch:
    """`cases`: (labels, statements)."""

    value: Expr
    cases: tuple[tuple[tuple[int, ...], tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class ForRange:
    name: str
    type: Type
    low: Expr
    high: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class ForList:
    name: str
    type: Type
    values: tuple[Expr, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class ForCount:
    """for (bit<8> name = 0; name < limit; name = name + step) body"""

    name: str
    limit: int
    step: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Leave:
    """`how`: break, continue, return or exit."""

    how: str


@dataclass(frozen=True)
class Return:
    value: Expr


@dataclass(frozen=True)
class Invoke:
    """A call of a function or an action as a statement."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Apply:
    """Applies a table. `cases`: (action, statements), as `switch (t.apply().action_run)`; else `hit` and `miss`."""

    table: str
    hit: tuple[Statement, ...] = ()
    miss: tuple[Statement, ...] = ()
    cases: tuple[tuple[str, tuple[Statement, ...]], ...] = ()


@dataclass(frozen=True)
class Read:
    register: str
    target: Var
    index: Expr


@dataclass(frozen=True)
class Write:
    register: str
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Count:
    counter: str
    index: Expr


@dataclass(frozen=True)
class Mark:
    """The colour of one packet by cell `index` of a meter: 0 green, 1 yellow, 2 red."""

    meter: str
    target: Var
    index: Expr


@dataclass(frozen=True)
class SetValid:
    """Makes `header` valid and gives all its fields values."""

    header: str
    values: tuple[tuple[Var, Expr], ...]


@dataclass(frozen=True)
class SetInvalid:
    header: str


@dataclass(frozen=True)
class CopyHeader:
    target: str
    source: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class CopyUnion:
    """`members`: names and fields of the headers of both."""

    target: str
    source: str
    members: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Push:
    """push_front or pop_front; new elements are invalid."""

    stack: str
    how: str
    count: int


@dataclass(frozen=True)
class Hash:
    """`algorithm`: crc32, crc16, csum16, xor16 or identity. The result is base + digest mod limit."""

    target: Var
    algorithm: str
    base: int
    limit: int
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Again:
    """`how`: resubmit, recirculate, clone, clone_e2e. Only while `meta.kept_passes` is less than `most`; it is incremented
    first."""

    how: str
    most: int


@dataclass(frozen=True)
class Digest:
    """A message of the program's only digest type; of several for one packet the last counts."""

    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Errors:
    """The number of the parser's error, as `oracle.ERRORS` has it, into `target`."""

    target: Var


Statement = (
    Assign | Local | If | Switch | ForRange | ForList | ForCount | Leave | Return | Invoke | Apply | Read | Write | Count |
    Mark | SetValid | SetInvalid | CopyHeader | CopyUnion | Push | Hash | Again | Digest | Errors
)


# ---- declarations


@dataclass(frozen=True)
class Header:
    """An instance `hdr.<name>`, or a stack of `size` of them. `varbit`: most bits of a last field of variable size.
    A name with a dot, such as `u.a`, is a member of a header union."""

    name: str
    kind: str
    fields: tuple[tuple[str, Type], ...]
    size: int = 0
    varbit: int = 0

    @property
    def width(self) -> int:
        return sum(t.width for _, t in self.fields)

    @property
    def union(self) -> str:
        """Name of its union, or ""."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Meter:
    """A meter of packets. `cells`: packets a tick and burst of the committed rate, then of the peak rate; None: always green."""

    name: str
    cells: tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True)
class Param:
    """`direction`: in, out, inout, or empty: an action's data from the table."""

    direction: str
    name: str
    type: Type


@dataclass(frozen=True)
class Function:
    """`result` is None for actions."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Statement, ...]
    result: Type | None = None


@dataclass(frozen=True)
class Key:
    """`kind`: exact, lpm, ternary, range, optional or selector, which entries do not match."""

    value: Expr
    kind: str
    name: str


@dataclass(frozen=True)
class Entry:
    """`match`: exact int; lpm (value, prefix); ternary (value, mask); range (low, high); optional int; None: anything.
    With a selector, `group`: number of equal members of which the selector takes one; 0: a member."""

    match: tuple
    action: str
    args: tuple[int, ...]
    priority: int = 0
    group: int = 0


@dataclass(frozen=True)
class Table:
    """`bound`: by action, its directed arguments. `const`: the entries are the program's; of those that match the
    first wins, with an lpm key the longest prefix. `profile`: profile or selector, if its actions are in an action profile
    of its own."""

    name: str
    keys: tuple[Key, ...]
    actions: tuple[str, ...]
    bound: tuple[tuple[str, tuple[Expr, ...]], ...]
    default: str
    default_args: tuple[int, ...]
    entries: tuple[Entry, ...]
    const: bool = False
    profile: str = ""


@dataclass(frozen=True)
class Extract:
    """Extracts a header, or with `stack` the stack's next element. `length`: bits of its varbit."""

    header: str
    stack: bool = False
    length: Expr | None = None


@dataclass(frozen=True)
class Lookahead:
    target: Var


@dataclass(frozen=True)
class Advance:
    bits: Expr


@dataclass(frozen=True)
class Verify:
    condition: Expr
    error: str


@dataclass(frozen=True)
class State:
    """`keys` empty: goes to `default`. `cases`: matches (None, int, (value, mask) as "mask", (low, high) as "range", or the
    name of a value set), and the next state; `default` None: there is no default, which is error.NoMatch."""

    name: str
    steps: tuple
    keys: tuple[Expr, ...] = ()
    cases: tuple[tuple[tuple, str], ...] = ()
    default: str | None = "accept"


@dataclass(frozen=True)
class Program:
    headers: tuple[Header, ...]
    metadata: tuple[tuple[str, Type], ...]
    states: tuple[State, ...]
    sets: tuple[tuple[str, int, tuple[int, ...]], ...]  # value sets: name, width, members
    registers: tuple[tuple[str, Type, int], ...]
    counters: tuple[tuple[str, int], ...]
    meters: tuple[Meter, ...]
    functions: tuple[Function, ...]
    actions: tuple[Function, ...]
    tables: tuple[Table, ...]
    ingress: tuple[Statement, ...]
    egress: tuple[Statement, ...]
    checksum: tuple[str, tuple[Expr, ...], Var] | None = None  # header, what is summed, where the sum goes
    packets: tuple[tuple[int, bytes], ...] = field(default=())
    digest: tuple[Type, ...] = ()  # the fields of the program's digest

    def header(self, name: str) -> Header:
        return next(h for h in self.headers if h.name == name)
