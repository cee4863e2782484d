"""Checks: core.p4's `verify` and `static_assert`; v1model's `assert`, `assume` and `log_msg`; `mark_to_drop`."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations
from ina.p4.compiler.arch.v1model_machine import DROP_PORT, V1Machine
from ina.p4.compiler.externs.extern import ExternFunction, Objects
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.signals import InterpreterError, PacketFailed, ParserError
from ina.p4.compiler.reference.values import leaves


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
    names = ("mark_to_drop",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        # v1model's older form has no argument.
        standard = low.expressions.lvalue(call.given(0)) if call.args else low.places["standard_metadata"]
        low.assign(value_trees.part(standard, "egress_spec"), fold.const(DROP_PORT, 9), call)
        low.assign(value_trees.part(standard, "mcast_grp"), fold.const(0, 16), call)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if 0 not in args:
            raise InterpreterError(call, "mark_to_drop() needs its standard_metadata argument")
        args.record(0).set(egress_spec=DROP_PORT, mcast_grp=0)
