"""The intermediate representation between the checked tree and C.

Everything is a scalar: structs and headers have been flattened, actions, functions, sub-controls and sub-parsers
inlined. A program is two lists of statements (ingress and egress phase) over shared variables.

**Values** are bit patterns: a value of width w is an unsigned integer below 2^w whatever its sign; `signed` says how
comparisons, widening casts, right shifts and saturating operations read it. bool is one bit.

**Storage** of a value is a `Var` (a C variable), or an `Elem`: one element of an `Array`. Arrays are what loops can run
over: consecutive fields of one width in a header that stays in wire order (`Region`), or in a metadata struct.

Statements are structured except for forward and backward `Goto`s (parser states, `return`, `exit`, loops of the
language).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ina.p4.compiler import ast
from ina.p4.compiler.errors import Span


class Expr:
    """An expression. `width` in bits, `signed`."""

    __slots__ = ()

    if TYPE_CHECKING:  # most have fields, an element has its array's

        @property
        def width(self) -> int: ...

        @property
        def signed(self) -> bool: ...


@dataclass(eq=False, slots=True)
class Const(Expr):
    """A constant. `value` is the bit pattern: 0 <= value < 2^width."""

    value: int
    width: int
    signed: bool = False


@dataclass(eq=False, slots=True)
class Var(Expr):
    """A variable; compared by identity. `name` is a hint for the C text only."""

    name: str
    width: int
    signed: bool = False


@dataclass(eq=False, slots=True)
class Region:
    """A header kept in wire order, `size` bytes. In C it is a pointer: to zeros at first, into the frame once extracted.

    Fields are loaded and stored where they lie, so a header that the program does not move costs the deparser nothing.
    `own_buffer`: the metadata has memory for it, because it may become valid without being extracted, or because the frame's
    bytes are needed again (`in_place` is False: extracting copies it there).
    """

    name: str
    size: int
    valid: Var
    own_buffer: bool = False
    in_place: bool = True


@dataclass(eq=False, slots=True)
class Array:
    """An array of `count` values of `width` bits. With `region`: from bit `offset` (from the region's start) in wire order;
    else local. `fields`: the program's names of the elements."""

    name: str
    width: int
    count: int
    signed: bool = False
    region: Region | None = None
    offset: int = 0
    fields: tuple[str, ...] = ()


Storage = Var | Array | Region
"""Objects with memory of their own"""


@dataclass(eq=False, slots=True)
class Elem(Expr):
    """Element `index` of `array`; within a `Roll`, element `index + step * i`."""

    array: Array
    index: int
    step: int = 0

    @property
    def width(self) -> int:
        return self.array.width

    @property
    def signed(self) -> bool:
        return self.array.signed


@dataclass(eq=False, slots=True)
class Wire(Expr):
    """An operand in the frame: `width` bits from bit `bit` after byte `pos`; the caller has checked the length."""

    pos: Expr
    bit: int
    width: int
    signed: bool = False


@dataclass(eq=False, slots=True)
class Native(Expr):
    """A C expression of the run-time environment (descriptor field, clock, action parameter)."""

    text: str
    width: int
    signed: bool = False


Operator = Literal[
    "add", "sub", "mul", "div", "mod", "satadd", "satsub", "neg", "and", "or", "xor", "not", "shl", "shr", "concat", "eq", "ne",
    "lt", "le", "gt", "ge", "land", "lor", "lnot", "cond", "cast",
]


@dataclass(eq=False, slots=True)
class Op(Expr):
    """An operation without side effects.

    Arithmetic: add sub mul div mod satadd satsub neg; bits: and or xor not shl shr concat; eq ne lt le gt ge land lor
    lnot (one bit); cond (condition, then, else); cast (to `width`; sign-extends when the operand is signed). Operands
    of arithmetic, bit operations and comparisons have one width and sign, except shift amounts, concat and cast.
    """

    op: Operator
    args: tuple[Expr, ...]
    width: int
    signed: bool = False


# --- stateful objects -----------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Register:
    """A register of `size` cells of `width` bits. After layout: cell i lies at `offset + i * stride` of the state block,
    `bytes` wide. `initial`: the cells' first value. `table`: cell i belongs to that table's entry i. `part`: the number of its
    scalar in the program's register. `param`: the program only reads it (TNA's RegisterParam)."""

    name: str
    width: int
    size: int
    signed: bool = False
    offset: int = 0
    stride: int = 0
    bytes: int = 0
    group: int = -1
    initial: int = 0
    table: str | None = None
    part: int = 0
    param: bool = False


@dataclass(eq=False, slots=True)
class Cells:
    """An object of `size` cells. `table`: cell i belongs to that table's entry i. `offset`: its place, after layout."""

    name: str
    kind: str
    size: int
    table: str | None = None
    offset: int = 0


@dataclass(eq=False, slots=True)
class Counter(Cells):
    """A counter. `kind`: packets, bytes or packets_and_bytes. Cell i: uint64 packets, uint64 bytes at `offset + 16 * i` of the
    statistics. `table`: cell i counts that table's entry i, at each hit unless the program counts (`explicit`)."""

    explicit: bool = False


@dataclass(eq=False, slots=True)
class Meter(Cells):
    """A meter. `kind`: packets or bytes. Cell i: `struct ina_meter` (prelude.h) at `offset + 64 * i` of the state block.
    `table`, `explicit`: see Counter. `adjust`: the control plane's correction of a packet's bytes, which replaces the
    program's: twice the number, plus 1 if it is set (TNA)."""

    explicit: bool = False
    adjust: Register | None = None


@dataclass(eq=False, slots=True)
class DynamicHash:
    """A hash that the control plane can change: over `fields` (name, width, True for a constant), `width` bits, of which the
    program uses the low `used`. `configure`: the words of its current configuration (prelude_tna.h), `initial`: its first one."""

    name: str
    width: int
    used: int
    fields: list[tuple[str, int, bool]]
    configure: Register
    initial: dict[str, Any]
    call: ast.Call | None = None


@dataclass(eq=False, slots=True)
class Filter(Cells):
    """A filter. `kind`: lpf (low-pass filter) or wred (weighted random early drop). Cell i: `struct ina_filter` (prelude_tna.h)
    at `offset + 64 * i` of the state block."""


@dataclass(slots=True)
class Key:
    """A field of a table's key: it begins in `word`, `shift` bits up. `match`: exact, lpm, ternary, range or optional; `written`:
    the program's match kind, if it is another one."""

    name: str
    width: int
    match: str
    written: str = ""
    word: int = 0
    shift: int = 0


@dataclass(slots=True)
class ActionParameter:
    """A parameter that the control plane sets: from word `word` of an entry's parameters on."""

    name: str
    width: int
    signed: bool
    word: int


@dataclass(slots=True)
class Action:
    """An action of a table. `words`: the first word of each parameter of its declaration; `default`: the constant arguments of
    the default action, None where the table's action list binds the parameter."""

    name: str
    params: list[ActionParameter]
    words: list[int]
    param_words: int
    ref: ast.ActionRef
    default: list[Expr | None] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    """An entry in the program, its `source`th. `keys`: (value, mask), or (low, high) of ranges. `params`: words."""

    source: int
    keys: list[tuple[int, int]]
    action: int
    params: list[int]
    const: bool


@dataclass(slots=True)
class DigestField:
    name: str
    var: Var


@dataclass(slots=True)
class Digest:
    """A message to the control plane. `number`: what the program writes to request it, from 1 on."""

    name: str
    number: int
    fields: list[DigestField]


@dataclass(eq=False, slots=True)
class Table:
    """A table. `index`: place in `struct ina_tables`, -1 when everything about it is constant. See `layout.py` for the JSON
    form. `profile`: its action profile; `value_set`: it is a parser's value set, without actions. `hits`: the place of its hit
    bytes in the state block, one for each entry, which a hit sets to 1 (TNA's idle time-outs); None: it has none, 0: not placed
    yet. `chained`: its constant entries are comparisons in the code, not rows to look up. `key_mask`: the mask of a key's
    words, applied before a look-up (TNA's dynamic key masks)."""

    name: str
    index: int
    kind: str
    keys: list[Key]
    key_words: int
    actions: list[Action]
    default_action: int
    default_params: list[int]
    const_default: bool
    const_entries: bool
    entries: list[Entry]
    size: int
    param_words: int = 0
    counter: Counter | None = None
    meter: Meter | None = None
    profile: str | None = None
    value_set: bool = False
    hits: int | None = None
    key_mask: Register | None = None
    chained: bool = False


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Stmt:
    """A statement. `origin`: the statement, state or entry of the program that it comes from, for comments in the C text."""

    origin: Span | None = field(default=None, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Assign(Stmt):
    target: Var | Elem
    value: Expr


@dataclass(eq=False, slots=True)
class RegRead(Stmt):
    """Reads a register cell; out of range: 0. Within a `Roll`: cell `index` of the register `step * i` bytes further on in the
    row. `inside`: the index is known to be in range."""

    target: Var | Elem
    register: Register
    index: Expr
    step: int = 0
    inside: bool = False


@dataclass(eq=False, slots=True)
class RegWrite(Stmt):
    """Writes a register cell; out of range: no effect."""

    register: Register
    index: Expr
    value: Expr
    step: int = 0
    inside: bool = False


@dataclass(eq=False, slots=True)
class If(Stmt):
    """A branch. `likely`: True or False if the condition mostly holds or fails, None if unknown."""

    condition: Expr
    then: list[Stmt]
    otherwise: list[Stmt] = field(default_factory=list)
    likely: bool | None = None


@dataclass(eq=False, slots=True)
class Switch(Stmt):
    """A choice. `cases` by value, each without fall-through; `default` for the others. `names`: the meanings of the values."""

    subject: Expr
    cases: list[tuple[int, list[Stmt]]]
    default: list[Stmt] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Goto(Stmt):
    label: str


@dataclass(eq=False, slots=True)
class Label(Stmt):
    label: str


NO_ENTRY = 0xFFFFFFFF


@dataclass(eq=False, slots=True)
class Lookup(Stmt):
    """Looks `keys` (64-bit words) up in `table`: sets `hit`, `action` and `cursor` (number of the C variables that hold entry
    and parameters for `Native` expressions), and `color` if the table has a direct meter that runs on every hit. `selector`:
    the hash that selects a group's member. `entry`: the id of the entry that was hit, NO_ENTRY for none."""

    table: Table
    keys: list[Expr]
    hit: Var
    action: Var
    cursor: int
    color: Var | None = None
    selector: Var | None = None
    entry: Var | None = None


@dataclass(eq=False, slots=True)
class Operation(Stmt):
    """An operation of the run-time environment or of an architecture; each is a class. `targets` are written, `args` read.
    `lasting`: it changes something that a packet would see that starts again in the general version. `propagates`: arguments may
    be replaced by what they are copies of."""

    targets: list[Var | Elem] = field(default_factory=list, kw_only=True)
    args: list[Expr] = field(default_factory=list, kw_only=True)
    lasting: ClassVar[bool] = True
    propagates: ClassVar[bool] = False

    @property
    def target(self) -> Var:
        """Returns the first of `targets`, which is always a variable."""
        target = self.targets[0]
        assert isinstance(target, Var)
        return target

    @property
    def lasts(self) -> bool:
        """Returns `lasting`, or what it is for this one."""
        return self.lasting

    def regions(self) -> tuple[Region, ...]:
        """Returns the headers in wire order that it moves or copies."""
        return ()


@dataclass(eq=False, slots=True)
class Roll(Stmt):
    """A loop over `body` for i = 0 .. count - 1. `independent`: no iteration touches memory that another one writes. `end`: the
    source of the last iteration."""

    count: int
    body: list[Stmt]
    independent: bool
    end: Span | None = None


@dataclass(eq=False, slots=True)
class Phase:
    """A phase. `reject`: the label of packets that the parser rejects. `fast_path`: the version for packets that take no
    unlikely branch (optimise/fast_path.py); None: there is no such version."""

    body: list[Stmt] = field(default_factory=list)
    reject: str = ""
    fast_path: list[Stmt] | None = None


@dataclass(eq=False, slots=True)
class Module:
    """A whole program, or one pipeline of a TNA `Switch`. `fields`: places by P4 path of the top-level values, for
    tools. `preserved`: field list -> variables. `messages`: text, place and counter of each log_msg. `filters`:
    low-pass filters and random early drops. `c_text`: bodies of the program's own externs. TNA: `pipeline` is its name,
    `keep_ingress`: ingress may mirror or resubmit, `selectors`: the action selector's name and its number of groups by action
    profile, `port_metadata`: its table's name, the parser's fields for the 64 bits (field, bits, first bit), True if by
    `port_metadata_unpack` and not as a header, and the parser's name for the port."""

    name: str
    ingress: Phase
    egress: Phase
    registers: list[Register]
    counters: list[Counter]
    tables: list[Table]
    regions: list[Region]
    max_grow: int
    errors: list[str]
    uses_random: bool = False
    preserved: dict[int, list[Var | Elem]] = field(default_factory=dict)
    digests: list[Digest] = field(default_factory=list)
    fields: dict[str, Var | Elem] = field(default_factory=dict)
    layout: dict[str, int] = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    messages: list[tuple[str, str, Counter]] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    architecture: str = "v1model"
    pipeline: str = ""
    keep_ingress: bool = False
    port_metadata: tuple[str, list[tuple[str, int, int]], bool, str] = ("", [], False, "")
    selectors: dict[str, tuple[str, int]] = field(default_factory=dict)
    hashes: list[DynamicHash] = field(default_factory=list)
    c_text: list[str] = field(default_factory=list)

    def statements(self) -> Iterator[Stmt]:
        """Yields every statement of both phases, outer ones first."""
        yield from walk(self.ingress.body)
        yield from walk(self.egress.body)


# --- traversal ------------------------------------------------------------------------------------------------------


def blocks(stmt: Stmt) -> list[list[Stmt]]:
    """Returns the statement lists inside a statement."""
    match stmt:
        case If():
            return [stmt.then, stmt.otherwise]
        case Switch():
            return [body for _, body in stmt.cases] + [stmt.default]
        case Roll():
            return [stmt.body]
        case _:
            return []


def walk(body: list[Stmt]) -> Iterator[Stmt]:
    """Yields every statement, outer ones first."""
    stack = [iter(body)]
    while stack:
        for stmt in stack[-1]:
            yield stmt
            inner = blocks(stmt)
            if inner:
                stack.extend(iter(b) for b in reversed(inner))
                break
        else:
            stack.pop()


def reads(stmt: Stmt) -> Sequence[Expr]:
    """Returns the expressions that a statement itself evaluates."""
    match stmt:
        case Assign():
            return (stmt.value,)
        case RegRead():
            return (stmt.index,)
        case RegWrite():
            return (stmt.index, stmt.value)
        case If():
            return (stmt.condition,)
        case Switch():
            return (stmt.subject,)
        case Lookup():
            return stmt.keys if stmt.selector is None else [*stmt.keys, stmt.selector]
        case Operation():
            return stmt.args
        case _:
            return ()


def writes(stmt: Stmt) -> Sequence[Var | Elem]:
    """Returns the variables and elements that a statement itself writes."""
    match stmt:
        case Assign() | RegRead():
            return (stmt.target,)
        case Lookup():
            return [v for v in (stmt.hit, stmt.action, stmt.color, stmt.entry) if v is not None]
        case Operation():
            return stmt.targets
        case _:
            return ()


def drop(body: list[Stmt], unwanted: Callable[[Stmt], bool]) -> bool:
    """Drops statements, inner ones too; returns True if there were any."""
    before = len(body)
    body[:] = [stmt for stmt in body if not unwanted(stmt)]
    changed = len(body) != before
    for stmt in body:
        for inner in blocks(stmt):
            changed |= drop(inner, unwanted)
    return changed


def replace_leaves(stmt: Stmt, leaf: Callable[[Expr], Expr]) -> None:
    """Puts `leaf(e)` in the place of each leaf of the expressions that a statement itself evaluates."""

    def new(e: Expr) -> Expr:
        if not isinstance(e, Op):
            return leaf(e)
        args = tuple(new(a) for a in e.args)
        return Op(e.op, args, e.width, e.signed) if any(a is not b for a, b in zip(args, e.args, strict=True)) else e

    match stmt:
        case Assign():
            stmt.value = new(stmt.value)
        case RegRead():
            stmt.index = new(stmt.index)
        case RegWrite():
            stmt.index, stmt.value = new(stmt.index), new(stmt.value)
        case If():
            stmt.condition = new(stmt.condition)
        case Switch():
            stmt.subject = new(stmt.subject)
        case Lookup():
            stmt.keys = [new(k) for k in stmt.keys]
        case Operation():
            stmt.args = [new(a) for a in stmt.args]


def leaves(expr: Expr) -> Iterator[Expr]:
    """Yields the leaves of an expression, left to right."""
    stack = [expr]
    while stack:
        e = stack.pop()
        if isinstance(e, Op):
            stack.extend(reversed(e.args))
        elif isinstance(e, Wire):
            stack.append(e.pos)
            yield e
        else:
            yield e


def key(e: Expr) -> object:
    """Returns a key that is equal for expressions of equal text."""
    match e:
        case Const():
            return e.value
        case Elem():
            return (e.array, e.index)
        case Op():
            return (e.op, e.width, *(key(a) for a in e.args))
        case Native():
            return e.text
        case Wire():
            return (key(e.pos), e.bit, e.width)
    return e


def in_range(register: Register, index: Expr) -> bool:
    """Returns True if the index is inside by its value or its width."""
    if isinstance(index, Const):
        return index.value < register.size
    return index.width < 32 and (1 << index.width) <= register.size
