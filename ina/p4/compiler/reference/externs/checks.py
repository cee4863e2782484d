"""Checks and messages of v1model: assert, assume, log_msg; core.p4's verify and static_assert."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternFunction
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.signals import PacketFailed, ParserError
from ina.p4.compiler.reference.values import Value, leaves


class Verify(ExternFunction):
    """Sends the parser to `reject` (§13.7)."""

    names = ("verify",)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if not args.value(0):
            raise ParserError(args.text(1))
        return None


class StaticAssert(ExternFunction):
    """Checks at compile time: the checker has done it."""

    names = ("static_assert",)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return True


class Assert(ExternFunction):
    """Ends the packet if the check fails (BMv2 ends itself)."""

    names = ("assert", "assume")

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if not args.value(0):
            raise PacketFailed("assertion", f"{call.span}: {call.decl.name} failed")
        return None


class LogMessage(ExternFunction):
    """Logs a message, in which each `{}` stands for the next value of the data."""

    names = ("log_msg",)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        message = args.text(0)
        for value, _ in leaves(args.value(1), args.type(1)) if 1 in args else ():
            message = message.replace("{}", str(value), 1)
        machine.log.append(message)
        return None
