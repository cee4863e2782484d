"""Expressions and lvalues of the reference interpreter (P4_16 v1.2.5 §6.6, §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.machine import ApplyResult, Frame
from ina.p4.compiler.reference.places import Location, Nowhere, Place, SliceLocation
from ina.p4.compiler.reference.signals import InterpreterError, ParserError
from ina.p4.compiler.reference.values import (
    Record,
    Stack,
    TupleValue,
    Value,
    copy,
    default_value,
    equal,
    from_const,
    number,
    pack,
    store_part,
)
from ina.p4.compiler.types import BitType, BoolType, HeaderType, RecordType, StackType, TupleType, Type, strip_new, underlying

V = TypeVar("V")
PLAIN = (int, str, bool)

# --- values -----------------------------------------------------------------------------------------------------------


def evaluate(e: ast.Expr, frame: Frame) -> Value:
    """Returns the value of `e`; sub-expressions are evaluated left to right (§8.1).

    Leaves are returned by value, but aggregates *by reference*: a caller that keeps one copies it.
    """
    const = e.const
    if const is not None:
        return const if type(const) in PLAIN else from_const(const, e.type)
    evaluator = EVALUATORS.get(type(e))
    if evaluator is None:
        raise InterpreterError(e, f"{type(e).__name__} has no run-time value")
    return evaluator(e, frame)


def evaluate_number(e: ast.Expr, frame: Frame) -> int:
    return number(evaluate(e, frame))


def evaluate_as(kind: type[V], e: ast.Expr, frame: Frame) -> V:
    """Returns a value that the checker has found to be a `kind`."""
    value = evaluate(e, frame)
    assert isinstance(value, kind)
    return value


def _name(e: ast.Name, frame: Frame) -> Value:
    holder = frame.holder(e.decl)
    if holder is not None:
        return holder[e.decl]
    match e.decl:
        case ast.Param() if e.decl.is_ctor:  # bound per instance (§15)
            value = frame.instance.args[e.name] if frame.instance is not None else None
            return value if isinstance(value, Instance) else from_const(value, e.decl.type)
        case ast.Instantiation():
            return instance_of(e, frame)
        case ast.ConstDecl():
            return from_const(e.decl.value.const, e.decl.type)
    raise InterpreterError(e, f"'{e.name}' has no value here")


def instance_of(e: ast.Expr, frame: Frame) -> Instance:
    """Returns the object that the receiver of a call names."""
    machine, instance = frame.machine, frame.instance
    if isinstance(e, ast.Name) and e.name == "this" and e.decl is e.type:  # within an abstract method's body
        assert machine.this is not None
        return machine.this
    if isinstance(e, ast.Name) and isinstance(e.decl, ast.Instantiation):
        if instance is not None and e.name in instance.children:
            return instance.children[e.name]
        return machine.program.globals[e.name]
    return evaluate_as(Instance, e, frame)


def _member(e: ast.Member, frame: Frame) -> Value:
    match e.kind:
        case "field":
            return evaluate_as(Record, e.base, frame).fields[e.member]
        case "next" | "last":
            return place(e, frame).get()
        case "lastIndex":  # §8.19
            return (evaluate_as(Stack, e.base, frame).next - 1) & 0xFFFFFFFF
        case "size":
            return len(evaluate_as(Stack, e.base, frame).items)
        case "hit" | "miss" | "action_run":  # §14.2.2
            result = evaluate_as(ApplyResult, e.base, frame)
            return result.action if e.kind == "action_run" else result.hit == (e.kind == "hit")
    raise InterpreterError(e, f"member '{e.member}' of kind {e.kind} has no value")


def _index(e: ast.Index, frame: Frame) -> Value:
    return place(e, frame).get()


def _slice(e: ast.Slice, frame: Frame) -> int:
    return evaluate_number(e.base, frame) >> e.lo_bit & ((1 << e.hi_bit - e.lo_bit + 1) - 1)


def _unary(e: ast.Unary, frame: Frame) -> int:
    value = evaluate_number(e.operand, frame)
    match e.op:
        case "!":
            return not value
        case "-":
            return wrap(-value, underlying(e.type))
        case "~":
            return wrap(~value, underlying(e.type))
    return value


def _binary(e: ast.Binary, frame: Frame) -> Value:
    left = evaluate(e.left, frame)
    if e.op == "&&":  # short circuit, §8.5
        return left and evaluate(e.right, frame)
    if e.op == "||":
        return left or evaluate(e.right, frame)
    left = copy(left)
    return operate(e.op, left, evaluate(e.right, frame), e.type, e.left.type, e.right.type)


def operate(op: str, left: Value, right: Value, t: Type, left_type: Type, right_type: Type) -> int:
    """Applies a binary operator to values; `t` is the result's type (§8.2-§8.11, §8.17-§8.20)."""
    match op:
        case "==":
            return equal(left, right)
        case "!=":
            return not equal(left, right)
        case "++":  # §8.10.1: the left operand's bits are the more significant ones
            (_, left_bits), (width, right_bits) = pack(left, left_type), pack(right, right_type)
            return wrap(left_bits << width | right_bits, underlying(t))
    return OPERATIONS[op](number(left), number(right), underlying(t))


def _shift_left(left: int, right: int, t: Type) -> int:
    return wrap(left << right, t) if not isinstance(t, BitType) or right < t.width else 0


def _shift_right(left: int, right: int, t: Type) -> int:
    """Shifts right: arithmetic for int<w>; everything shifted out leaves 0 or -1."""
    return left >> (min(right, t.width) if isinstance(t, BitType) else right)


def _saturated(value: int, t: Type) -> int:
    assert isinstance(t, BitType)
    low, high = (-(1 << t.width - 1), (1 << t.width - 1) - 1) if t.signed else (0, (1 << t.width) - 1)
    return min(max(value, low), high)


OPERATIONS: dict[str, Callable[[int, int, Type], int]] = {
    "+": lambda left, right, t: wrap(left + right, t),
    "-": lambda left, right, t: wrap(left - right, t),
    "*": lambda left, right, t: wrap(left * right, t),
    "/": lambda left, right, t: left // right if right else 0,
    "%": lambda left, right, t: left % right if right else 0,
    "&": lambda left, right, t: left & right,
    "|": lambda left, right, t: left | right,
    "^": lambda left, right, t: left ^ right,
    "<<": _shift_left,
    ">>": _shift_right,
    "|+|": lambda left, right, t: _saturated(left + right, t),
    "|-|": lambda left, right, t: _saturated(left - right, t),
    "<": lambda left, right, t: left < right,
    "<=": lambda left, right, t: left <= right,
    ">": lambda left, right, t: left > right,
    ">=": lambda left, right, t: left >= right,
}
"""Operators on numbers: `t` is the type of the result; arithmetic wraps, shifts take any amount (§8.7, §8.8, §8.10.2)."""


def _ternary(e: ast.Ternary, frame: Frame) -> Value:
    return evaluate(e.then if evaluate(e.condition, frame) else e.otherwise, frame)


def _cast(e: ast.Cast, frame: Frame) -> Value:
    """Casts a value: keeps the low bits; int<w> sign-extends (§8.12)."""
    value, t = evaluate(e.operand, frame), underlying(e.type)
    if isinstance(t, BitType):
        return wrap(number(value), t)
    if isinstance(t, BoolType):
        return bool(value)
    if isinstance(value, TupleValue) and isinstance(t, RecordType):
        return _record(t, value.items)
    return value


def _initialiser(e: ast.ListExpr | ast.StructInit, frame: Frame) -> Value:
    return _aggregate(strip_new(e.type), [copy(evaluate(v, frame)) for v in e.values])


def _aggregate(t: Type, items: list[Value]) -> Value:
    """Returns `{...}` as the type that its context requires (§8.13, §8.14, §8.18, §8.19.1, §8.27)."""
    match t:
        case TupleType():
            return TupleValue(t, items)
        case StackType():
            stack = Stack(t)
            for i, item in enumerate(items):
                store_part(stack.items, i, item)
            return stack
        case RecordType():
            record = _record(t, items)
            record.valid = isinstance(t, HeaderType)
            return record
    return items


def _record(t: RecordType, items: list[Value]) -> Record:
    record = Record(t)
    for name, value in zip(record.fields, items, strict=True):
        store_part(record.fields, name, value)
    return record


def _default(e: ast.Expr, frame: Frame) -> Value:
    return default_value(e.type)


EVALUATORS: dict[type[ast.Expr], Callable[..., Value]] = {
    ast.Name: _name,
    ast.Member: _member,
    ast.Index: _index,
    ast.Slice: _slice,
    ast.Unary: _unary,
    ast.Binary: _binary,
    ast.Ternary: _ternary,
    ast.Cast: _cast,
    ast.ListExpr: _initialiser,
    ast.StructInit: _initialiser,
    ast.InvalidHeader: _default,
    ast.Dots: _default,
}
"""The function that evaluates each class of expression but calls (calls.py)."""


# --- lvalues ----------------------------------------------------------------------------------------------------------


def place(e: ast.Expr, frame: Frame) -> Place:
    """Returns the place that `e` names; indices are evaluated now (§6.6, §6.7)."""
    match e:
        case ast.Name():
            holder = frame.holder(e.decl)
            if holder is None:
                raise InterpreterError(e, f"'{e.name}' is no variable")
            return Location(holder, e.decl)
        case ast.Member(kind="field"):
            return Location(evaluate_as(Record, e.base, frame).fields, e.member)
        case ast.Member(kind="next" | "last"):  # §8.19: only in parsers; beyond the stack it is an error
            stack = evaluate_as(Stack, e.base, frame)
            index = stack.next - (e.kind == "last")
            if not 0 <= index < len(stack.items):
                raise ParserError("StackOutOfBounds")
            return Location(stack.items, index)
        case ast.Index():
            base = evaluate(e.base, frame)
            index = evaluate_number(e.index, frame)
            assert isinstance(base, Stack | TupleValue | list)
            items = base if isinstance(base, list) else base.items
            return Location(items, index) if 0 <= index < len(items) else Nowhere(e.type)
        case ast.Slice():
            return SliceLocation(place(e.base, frame), underlying(e.base.type), e.hi_bit, e.lo_bit)
        case ast.Cast(implicit=True):
            return place(e.operand, frame)
    return Location([copy(evaluate(e, frame))], 0)


def place_or_nowhere(e: ast.Expr | None, t: Type, frame: Frame) -> Place:
    """Returns the place of an argument for an `out` or `inout` parameter of type `t`; `_` and an omitted one have none."""
    return Nowhere(t) if e is None or isinstance(e, ast.DontCare) else place(e, frame)
