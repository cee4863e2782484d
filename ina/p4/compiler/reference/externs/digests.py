"""Messages to the control plane: v1model's `digest`, TNA's Digest."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.reference.machine import Digest as Message
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.values import Value, leaves, number
from ina.p4.compiler.types import RecordType


class V1Digest(ExternFunction):
    names = ("digest",)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        t = args.type(1)
        name = t.name if isinstance(t, RecordType) and t.name else "digest"
        machine.packet.requests.digest = Message(name, tuple(leaf for leaf, _ in leaves(args.value(1), t)))
        return None


class Digest(ExternObject):
    names = ("Digest",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        values = tuple(int(number(leaf)) for leaf, _ in leaves(args.value(0), args.type(0)))
        machine.phase.digest = (machine.digest_numbers[call], values)
        machine.digests.append(Message(instance.name, values))
        return None
