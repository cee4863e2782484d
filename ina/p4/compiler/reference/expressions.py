"""Expressions and lvalues of the reference interpreter (P4_16 v1.2.5 §6.6, §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.reference.packet import ParserError
from ina.p4.compiler.reference.tables import Entry, Table
from ina.p4.compiler.reference.values import (
    Record,
    Stack,
    TupleValue,
    copy,
    default_value,
    equal,
    from_const,
    is_aggregate,
    pack,
    store_part,
    wrap,
)
from ina.p4.compiler.types import BitType, BoolType, HeaderType, RecordType, StackType, TupleType, Type, strip_new, underlying


class InterpreterError(Exception):
    """An error for something that the interpreter cannot do; the message starts with the place in the source."""

    def __init__(self, node: ast.Node | None, message: str) -> None:
        super().__init__(f"{node.span}: {message}" if node is not None else message)


class ReturnSignal(Exception):
    """Signal of `return`: leaves the enclosing action, function or control."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class ExitSignal(Exception):
    """Signal of `exit`: leaves all enclosing blocks up to the architecture's call (§12.5)."""


class PacketFailed(Exception):
    """Signal that ends a packet and drops its requests, at any call depth; counted as `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Frame:
    """The variables of one activation of `instance`, a parser or control; an action's `outer` is its control's."""

    __slots__ = ("vars", "instance", "outer")

    def __init__(self, instance: Instance | None, outer: Frame | None = None) -> None:
        self.vars: dict[Any, Any] = {}
        self.instance = instance
        self.outer = outer

    def holder(self, decl: Any) -> dict[Any, Any] | None:
        frame: Frame | None = self
        while frame is not None:
            if decl in frame.vars:
                return frame.vars
            frame = frame.outer
        return None


class Location:
    """An evaluated lvalue (§6.6): one field, element or variable."""

    __slots__ = ("container", "key")

    def __init__(self, container: Any, key: Any) -> None:
        self.container, self.key = container, key

    def get(self) -> Any:
        return self.container[self.key]

    def set(self, value: Any) -> None:
        store_part(self.container, self.key, value)


class SliceLocation:
    """An lvalue for bits hi..lo of another one (§8.7)."""

    __slots__ = ("base", "type", "hi", "lo")

    def __init__(self, base: Any, t: Type, hi: int, lo: int) -> None:
        self.base, self.type, self.hi, self.lo = base, t, hi, lo

    def get(self) -> int:
        bits: int = self.base.get()
        return bits >> self.lo & ((1 << self.hi - self.lo + 1) - 1)

    def set(self, value: int) -> None:
        mask = ((1 << self.hi - self.lo + 1) - 1) << self.lo
        self.base.set(wrap(self.base.get() & ~mask | value << self.lo & mask, self.type))


class Nowhere:
    """An lvalue beyond a stack, or `_` for an out argument: reads give the default, writes do nothing (§8.19, §8.26)."""

    __slots__ = ("value",)

    def __init__(self, t: Type) -> None:
        self.value = default_value(t)

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        return


class Architecture(Protocol):
    """The architecture around and below a program: interpret_v1model.py, interpret_tna.py."""

    keeps_fields: bool  # a header that becomes valid keeps its fields; otherwise they are zero
    this: Instance | None  # the object whose abstract method runs

    def call_function(self, name: str, call: ast.Call, args: list[Any], frame: Frame) -> Any: ...

    def call_method(self, instance: Instance, method: str, call: ast.Call, args: list[Any], frame: Frame) -> Any: ...

    def table_applied(self, table: Table, entry: Entry | None) -> None: ...


class Expressions:
    """Evaluates expressions. `evaluate` returns leaves by value, but aggregates *by reference*: a caller that keeps one copies
    it."""

    program: CheckedProgram
    architecture: Architecture

    def __init__(self) -> None:
        self._evaluators: dict[type, Callable[[Any, Frame], Any]] = {
            ast.Name: self._name,
            ast.Member: self._member,
            ast.Index: lambda e, f: self.lvalue(e, f).get(),
            ast.Slice: self._slice,
            ast.Unary: self._unary,
            ast.Binary: self._binary,
            ast.Ternary: lambda e, f: self.evaluate(e.then if self.evaluate(e.condition, f) else e.otherwise, f),
            ast.Cast: self._cast,
            ast.ListExpr: self._aggregate,
            ast.StructInit: self._aggregate,
            ast.InvalidHeader: lambda e, f: default_value(e.type),
            ast.Dots: lambda e, f: default_value(e.type),
            ast.Call: self.call,
        }

    def call(self, c: ast.Call, frame: Frame) -> Any:
        raise TypeError("defined in reference/calls.py")

    # --- values ---------------------------------------------------------------------------------------------------

    def evaluate(self, e: ast.Expr, frame: Frame) -> Any:
        """Returns the value of `e`; sub-expressions are evaluated left to right (§8.1)."""
        if e.const is not None:
            return e.const if type(e.const) in (int, str, bool) else from_const(e.const, e.type)
        evaluator = self._evaluators.get(type(e))
        if evaluator is None:
            raise InterpreterError(e, f"{type(e).__name__} has no run-time value")
        return evaluator(e, frame)

    def _name(self, e: ast.Name, frame: Frame) -> Any:
        holder = frame.holder(e.decl)
        if holder is not None:
            return holder[e.decl]
        if isinstance(e.decl, ast.Param) and e.decl.is_ctor:
            return self.constructor_argument(e, frame)
        if isinstance(e.decl, ast.Instantiation):
            return self.instance_of(e, frame)
        if isinstance(e.decl, ast.ConstDecl):
            return from_const(e.decl.value.const, e.decl.type)
        raise InterpreterError(e, f"'{e.name}' has no value here")

    def constructor_argument(self, e: ast.Name, frame: Frame) -> Any:
        """Returns a constructor argument; they are bound per instance (§15)."""
        value = frame.instance.args[e.decl.name] if frame.instance is not None else None
        if value is None or isinstance(value, Instance):
            return value
        return from_const(value, e.decl.type)

    def instance_of(self, e: ast.Expr, frame: Frame) -> Any:
        """Returns the object that a receiver names: an Instance, or the architecture's argument for a parameter (packet_in)."""
        if isinstance(e, ast.Name) and e.name == "this" and e.decl is e.type:  # within an abstract method's body
            return self.architecture.this
        if isinstance(e, ast.Name) and isinstance(e.decl, ast.Instantiation):
            if frame.instance is not None and e.name in frame.instance.children:
                return frame.instance.children[e.name]
            return self.program.globals[e.name]
        return self.evaluate(e, frame)

    def _member(self, e: ast.Member, frame: Frame) -> Any:
        match e.kind:
            case "field":
                return self.evaluate(e.base, frame).fields[e.member]
            case "next" | "last":
                return self.lvalue(e, frame).get()
            case "lastIndex":  # §8.19
                return (self.evaluate(e.base, frame).next - 1) & 0xFFFFFFFF
            case "size":
                return len(self.evaluate(e.base, frame).items)
            case "hit":  # §14.2.2
                return self.evaluate(e.base, frame).hit
            case "miss":
                return not self.evaluate(e.base, frame).hit
            case "action_run":
                return self.evaluate(e.base, frame).action
        raise InterpreterError(e, f"member '{e.member}' of kind {e.kind} has no value")

    def _slice(self, e: ast.Slice, frame: Frame) -> int:
        bits: int = self.evaluate(e.base, frame)
        return bits >> e.lo_bit & ((1 << e.hi_bit - e.lo_bit + 1) - 1)

    def _unary(self, e: ast.Unary, frame: Frame) -> Any:
        value = self.evaluate(e.operand, frame)
        match e.op:
            case "!":
                return not value
            case "-":
                return wrap(-value, underlying(e.type))
            case "~":
                return wrap(~value, underlying(e.type))
        return value

    def _binary(self, e: ast.Binary, frame: Frame) -> Any:
        left = self.evaluate(e.left, frame)
        if e.op == "&&":  # short circuit, §8.5
            return left and self.evaluate(e.right, frame)
        if e.op == "||":
            return left or self.evaluate(e.right, frame)
        if is_aggregate(left):
            left = copy(left)
        right = self.evaluate(e.right, frame)
        return self.operate(e.op, left, right, e.type, e.left.type, e.right.type)

    def operate(self, op: str, left: Any, right: Any, t: Type, left_type: Type, right_type: Type) -> Any:
        """Applies a binary operator to values; `t` is the result's type (§8.2-§8.11, §8.17-§8.20)."""
        match op:
            case "==":
                return equal(left, right)
            case "!=":
                return not equal(left, right)
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return left > right
            case ">=":
                return left >= right
            case "++":  # §8.10.1: the left operand's bits are the more significant ones
                (_, lb), (rw, rb) = pack(left, left_type), pack(right, right_type)
                return wrap(lb << rw | rb, underlying(t))
        return arithmetic(op, left, right, underlying(t))

    def _cast(self, e: ast.Cast, frame: Frame) -> Any:
        return self.convert(self.evaluate(e.operand, frame), e.type)

    def convert(self, value: Any, t: Type) -> Any:
        """Casts a value: keeps the low bits; int<w> sign-extends (§8.12)."""
        t = underlying(t)
        if isinstance(t, BitType):
            return wrap(int(value), t)
        if isinstance(t, BoolType):
            return bool(value)
        if isinstance(value, TupleValue) and isinstance(t, RecordType):
            record = Record(t)
            assign_fields(record, value.items)
            return record
        return value

    def _aggregate(self, e: ast.ListExpr | ast.StructInit, frame: Frame) -> Any:
        """Returns `{...}` as the type that its context requires (§8.13, §8.14, §8.18, §8.19.1, §8.27)."""
        t = strip_new(e.type)
        items = [copy(self.evaluate(v, frame)) for v in e.values]
        if isinstance(t, TupleType):
            return TupleValue(t, items)
        if isinstance(t, StackType):
            stack = Stack(t)
            for i, item in enumerate(items):
                store_part(stack.items, i, item)
            return stack
        if isinstance(t, RecordType):
            record = Record(t)
            assign_fields(record, items)
            record.valid = isinstance(t, HeaderType)
            return record
        return items

    # --- lvalues --------------------------------------------------------------------------------------------------

    def lvalue(self, e: ast.Expr, frame: Frame) -> Any:
        """Returns the location of `e`; indices are evaluated now (§6.6, §6.7)."""
        match e:
            case ast.Name():
                holder = frame.holder(e.decl)
                if holder is None:
                    raise InterpreterError(e, f"'{e.name}' is no variable")
                return Location(holder, e.decl)
            case ast.Member(kind="field"):
                return Location(self.evaluate(e.base, frame).fields, e.member)
            case ast.Member(kind="next"):  # §8.19: only in parsers; beyond the stack it is an error
                stack = self.evaluate(e.base, frame)
                if stack.next >= len(stack.items):
                    raise ParserError("StackOutOfBounds")
                return Location(stack.items, stack.next)
            case ast.Member(kind="last"):
                stack = self.evaluate(e.base, frame)
                if not 0 < stack.next <= len(stack.items):
                    raise ParserError("StackOutOfBounds")
                return Location(stack.items, stack.next - 1)
            case ast.Index():
                base = self.evaluate(e.base, frame)
                index = self.evaluate(e.index, frame)
                items = base if isinstance(base, list) else base.items
                return Location(items, index) if 0 <= index < len(items) else Nowhere(e.type)
            case ast.Slice():
                return SliceLocation(self.lvalue(e.base, frame), underlying(e.base.type), e.hi_bit, e.lo_bit)
            case ast.Cast(implicit=True):
                return self.lvalue(e.operand, frame)
        value = copy(self.evaluate(e, frame))
        return Location([value], 0)


def assign_fields(record: Record, items: list[Any]) -> None:
    for name, value in zip(record.fields, items, strict=True):
        store_part(record.fields, name, value)


def arithmetic(op: str, left: int, right: int, t: Type) -> int:
    """Computes fixed-width arithmetic: wrapping, saturating (`|+| |-|`), shifts of any amount (§8.7, §8.8, §8.10.2)."""
    match op:
        case "+":
            return wrap(left + right, t)
        case "-":
            return wrap(left - right, t)
        case "*":
            return wrap(left * right, t)
        case "/":
            return left // right if right else 0
        case "%":
            return left % right if right else 0
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return wrap(left << right, t) if not isinstance(t, BitType) or right < t.width else 0
        case ">>":  # arithmetic for int<w>; everything shifted out leaves 0 or -1
            return left >> (min(right, t.width) if isinstance(t, BitType) else right)
        case "|+|" | "|-|" if isinstance(t, BitType):
            low, high = (-(1 << t.width - 1), (1 << t.width - 1) - 1) if t.signed else (0, (1 << t.width) - 1)
            return min(max(left + right if op == "|+|" else left - right, low), high)
    raise ValueError(f"no operator {op}")
