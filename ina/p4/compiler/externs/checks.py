"""Checks: core.p4's `verify` and `static_assert`; v1model's `assert`, `assume` and `log_msg`; `mark_to_drop`."""

from __future__ import annotations

from collections.abc import Iterator

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.arch.v1model_machine import DROP_PORT, V1Machine
from ina.p4.compiler.externs.extern import ExternFunction, Objects
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.signals import PacketFailed, ParserError
from ina.p4.compiler.reference.values import Record, leaves


class Verify(ExternFunction):
    names = ("verify",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        condition, error = low.scalar(call.given(0)), low.scalar(call.given(1))
        context = low.context
        if not context.reject_label:
            raise unsupported(call, "verify outside of a parser")
        rejected = ir.Assign(value_trees.variable(context.parser_error), error)
        low.emit(ir.If(fold.lnot(condition), [rejected, ir.Goto(context.reject_label)]))

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if not args.value(0):
            raise ParserError(args.text(1))


class StaticAssert(ExternFunction):
    names = ("static_assert",)

    def lower(self, low: Lowering, call: ast.Call) -> ir.Expr:
        return fold.TRUE

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> bool:
        return True  # the checker has verified it


class Assert(ExternFunction):
    names = ("assert", "assume")

    def lower(self, low: Lowering, call: ast.Call) -> None:
        low.emit(ir.If(fold.lnot(low.scalar(call.given(0))), [operations.Fail()]))

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        """Ends the packet if the check fails (BMv2 ends itself)."""
        if not args.value(0):
            raise PacketFailed("assertion", f"{call.span}: {call.decl.name} failed")


class LogMessage(ExternFunction):
    names = ("log_msg",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        messages = low.state(Objects).messages
        counter = ir.Counter(f"log {len(messages)}", "packets", 1)
        messages.append((str(call.given(0).const), f"{call.span.file}:{call.span.line}", counter))
        low.emit(operations.Count(counter, args=[fold.const(0, 32)]))

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        """Logs a message, in which each `{}` stands for the next value of the data."""
        message = args.text(0)
        for value, _ in leaves(args.value(1), args.type(1)) if 1 in args else ():
            message = message.replace("{}", str(value), 1)
        machine.log.append(message)


class MarkToDrop(ExternFunction):
    """Without an argument, v1model's older form, it means the packet's own standard metadata: all copies that running actions and
    controls write back when they end."""

    names = ("mark_to_drop",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        own = low.places["standard_metadata"]
        standards = [low.expressions.lvalue(call.given(0))] if call.args else [own]
        if not call.args:
            given = [v for decl, v in low.context.scope.items() if _writes_back(decl) and isinstance(v, value_trees.Record)]
            standards += [v for v in given if v is not own and v.type is value_trees.type_of(own)]
        for standard in standards:
            low.assign(value_trees.part(standard, "egress_spec"), fold.const(DROP_PORT, 9), call)
            low.assign(value_trees.part(standard, "mcast_grp"), fold.const(0, 16), call)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        standards = [args.record(0)] if 0 in args else [machine.packet.standard, *_given(frame, machine.standard_type)]
        for standard in standards:
            standard.set(egress_spec=DROP_PORT, mcast_grp=0)


def _writes_back(decl: ast.Node) -> bool:
    return isinstance(decl, ast.Param) and decl.direction in ("out", "inout")


def _given(frame: Frame | None, kind: types.Type) -> Iterator[Record]:
    """Yields the values of a type that running actions and controls copy out when they end."""
    while frame is not None:
        for decl, value in frame.vars.items():
            if _writes_back(decl) and isinstance(value, Record) and value.type is kind:
                yield value
        frame = frame.caller
