"""Calls in the reference interpreter: actions, functions, blocks, methods of headers and packets, externs."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ast
from ina.p4.compiler.reference.blocks import apply_table, invoke, run
from ina.p4.compiler.reference.expressions import (
    EVALUATORS,
    evaluate,
    evaluate_as,
    evaluate_number,
    instance_of,
    place,
    place_or_nowhere,
)
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.packet import PacketIn, PacketOut
from ina.p4.compiler.reference.places import Argument, Arguments
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.statements import run_body
from ina.p4.compiler.reference.values import Record, Stack, Value, copy, default_record
from ina.p4.compiler.types import UnionType, strip_new


def call(c: ast.Call, frame: Frame) -> Value:
    """Runs a call; returns its result."""
    if c.kind not in CALLS:
        raise InterpreterError(c, f"a call of kind {c.kind} cannot be run")
    return CALLS[c.kind](c, frame)


def _invoke_call(c: ast.Call, params: list[ast.Param], caller: Frame, callee: Frame, body: Callable[[], Value]) -> Value:
    """Runs a body with a call's arguments, evaluated in the order in which they are written; defaults come last."""
    names = [p.name for p in c.params]
    order = [i if a.name is None else names.index(a.name) for i, a in enumerate(c.arguments)]
    order += [i for i in range(len(names)) if i not in order]
    return invoke(params, [p.type for p in c.params], c.args, caller, callee, body, order)


def _function(c: ast.Call, frame: Frame) -> Value:
    """Calls a function, or an action, which runs in the scope of its control (§14.1)."""
    callee = frame.inner() if c.kind == "action" else Frame(frame.machine, frame.instance, caller=frame)
    return _invoke_call(c, c.decl.params, frame, callee, lambda: run_body(c.decl.body, callee))


def _block(c: ast.Call, frame: Frame) -> Value:
    """Runs `apply` of a parser or control instance (§13.10, §14.4)."""
    instance = instance_of(c.on, frame)
    callee = Frame(frame.machine, instance, caller=frame)
    return _invoke_call(c, instance.decl.params, frame, callee, lambda: run(instance, callee))


def _table(c: ast.Call, frame: Frame) -> Value:
    return apply_table(c.decl, frame)


def _header_method(c: ast.Call, frame: Frame) -> Value:
    header = evaluate_as(Record, c.on, frame)
    match c.method:
        case "isValid":
            return header.is_valid()
        case "setValid":
            header.mark_valid() if frame.machine.keeps_fields else header.set_valid()
        case "setInvalid":
            header.set_invalid()
    return None


def _stack_method(c: ast.Call, frame: Frame) -> None:
    stack, count = evaluate_as(Stack, c.on, frame), evaluate_number(c.given(0), frame)
    if c.method == "push_front":
        stack.push_front(count)
    else:
        stack.pop_front(count)


def _packet_in(c: ast.Call, frame: Frame) -> Value:
    packet = evaluate_as(PacketIn, c.on, frame)
    match c.method:
        case "extract":
            _extract(packet, c, frame)
            return None
        case "lookahead":
            return packet.lookahead(c.type)
        case "advance":
            packet.advance(evaluate_number(c.given(0), frame))
            return None
        case "length":
            return len(packet.data)
    raise InterpreterError(c, f"packet_in has no method '{c.method}'")


def _extract(packet: PacketIn, c: ast.Call, frame: Frame) -> None:
    """Extracts a header (§13.8), which changes only if the extraction succeeds; then `.next` advances."""
    target = c.args[0]
    if target is None or isinstance(target, ast.DontCare):
        header: Value = default_record(c.params[0].type)
    else:
        header = place(target, frame).get()
    assert isinstance(header, Record)
    if len(c.args) > 1:
        packet.extract_varbit(header, evaluate_number(c.given(1), frame))
    else:
        packet.extract(header)
    if isinstance(target, ast.Member) and target.kind == "field" and isinstance(strip_new(target.base.type), UnionType):
        target = target.base  # extract(hdr.unions.next.member)
    if isinstance(target, ast.Member) and target.kind == "next":
        evaluate_as(Stack, target.base, frame).next += 1


def _packet_out(c: ast.Call, frame: Frame) -> None:
    evaluate_as(PacketOut, c.on, frame).emit(evaluate(c.given(0), frame), c.given(0).type)


# --- externs ----------------------------------------------------------------------------------------------------------


def _arguments(c: ast.Call, frame: Frame) -> Arguments:
    args: list[Argument] = []
    for param, arg in zip(c.params, c.args, strict=True):
        if param.direction in ("out", "inout"):
            args.append(place_or_nowhere(arg, param.type, frame))
        else:
            args.append(None if arg is None else copy(evaluate(arg, frame)))
    return Arguments(c, args)


def _extern_function(c: ast.Call, frame: Frame) -> Value:
    return frame.machine.call_function(c, _arguments(c, frame), frame)


def _method(c: ast.Call, frame: Frame) -> Value:
    return frame.machine.call_method(instance_of(c.on, frame), c, _arguments(c, frame), frame)


CALLS: dict[str | None, Callable[[ast.Call, Frame], Value]] = {
    "action": _function,
    "function": _function,
    "extern_function": _extern_function,
    "method": _method,
    "packet_in": _packet_in,
    "packet_out": _packet_out,
    "parser_apply": _block,
    "control_apply": _block,
    "table_apply": _table,
    "header_method": _header_method,
    "stack_method": _stack_method,
}
"""The function that runs each kind of call (ast.py)."""
EVALUATORS[ast.Call] = call
