"""TNA's functions on values and types."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine, Unset
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.expressions import place
from ina.p4.compiler.reference.externs.extern import ExternFunction
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.packet import PacketIn
from ina.p4.compiler.reference.values import Value, wrap
from ina.p4.compiler.types import fixed_width, underlying


class Maximum(ExternFunction):
    names = ("max",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return max(args.number(0), args.number(1))


class Minimum(ExternFunction):
    names = ("min",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return min(args.number(0), args.number(1))


class FunnelShiftRight(ExternFunction):
    names = ("funnel_shift_right",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        t = underlying(call.params[0].type)
        width = fixed_width(t) or 0
        mask = (1 << width) - 1
        args.place(0).set(wrap(((args.number(1) & mask) << width | args.number(2) & mask) >> args.number(3), t))
        return None


class Invalidate(ExternFunction):
    names = ("invalidate",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        place(args.expression(0), frame).set(Unset(args.number(0)))
        return None


class IsValidated(ExternFunction):
    names = ("is_validated",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return not isinstance(args.value(0), Unset)


class SizeInBits(ExternFunction):
    names = ("sizeInBits",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return fixed_width(args.type(0)) or 0


class SizeInBytes(ExternFunction):
    names = ("sizeInBytes",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return ((fixed_width(args.type(0)) or 0) + 7) // 8


class PortMetadataUnpack(ExternFunction):
    names = ("port_metadata_unpack",)

    def interpret(self, machine: TnaMachine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        packet = args.value(0)
        assert isinstance(packet, PacketIn)
        packet.need(64)
        value = packet.lookahead(call.type)
        packet.advance(64)
        return value
