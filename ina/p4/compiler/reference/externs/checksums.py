"""Checksums: v1model's functions and Checksum16, TNA's Checksum."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.expressions import evaluate_record
from ina.p4.compiler.reference.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.reference.externs.hashes import v1_digest
from ina.p4.compiler.reference.hashes import csum16, to_bytes
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.values import Value, wrap
from ina.p4.compiler.types import HeaderType, underlying


class VerifyChecksum(ExternFunction):
    """Verifies a checksum, unless the header that holds it is invalid (BMv2)."""

    names = ("verify_checksum", "verify_checksum_with_payload")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if args.value(0) and not _owner_invalid(args.expression(2), frame):
            machine.packet.checksum_error |= _checksum(machine, call, args) != args.value(2)
        return None


class UpdateChecksum(ExternFunction):
    names = ("update_checksum", "update_checksum_with_payload")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if args.value(0):
            args.place(2).set(_checksum(machine, call, args))
        return None


def _checksum(machine: V1Machine, call: ast.Call, args: Arguments) -> int:
    payload = machine.packet.payload if call.decl.name.endswith("_with_payload") else b""
    return wrap(v1_digest(machine, args.text(3), args, 1, payload), underlying(call.params[2].type))


def _owner_invalid(field: ast.Expr, frame: Frame) -> bool:
    if not isinstance(field, ast.Member) or field.kind != "field" or not isinstance(field.base.type, HeaderType):
        return False
    return not evaluate_record(field.base, frame).valid


class Checksum16(ExternObject):
    names = ("Checksum16",)

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return csum16(to_bytes(args.value(0), args.type(0)))


class Checksum(ExternObject):
    names = ("Checksum",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        sums = machine.phase.sums
        total = sums.get(instance, 0)
        match call.method:
            case "add":
                sums[instance] = total + (~_sum(args) & 0xFFFF)
            case "subtract":
                sums[instance] = total + _sum(args)
            case "get":
                return folded(total)
            case "verify":
                return folded(total) != 0xFFFF
            case "subtract_all_and_deposit":
                machine.phase.deposits.append((instance, args.place(0)))
            case "update":
                checksum = _sum(args)
                return 0xFFFF if checksum == 0 and args.number("zeros_as_ones", 0) else checksum
            case _:
                raise InterpreterError(call, f"TNA has no method 'Checksum.{call.method}'")
        return None


def _sum(args: Arguments) -> int:
    return csum16(to_bytes(args.value(0), args.type(0)))


def folded(total: int) -> int:
    """Returns a sum of 16-bit words in one's complement."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def deposit(machine: TnaMachine, payload: bytes) -> None:
    """Writes the checksums that `subtract_all_and_deposit` asked for: of what the parser left behind."""
    for instance, place in machine.phase.deposits:
        place.set(folded(machine.phase.sums.get(instance, 0) + (~csum16(payload) & 0xFFFF)))
