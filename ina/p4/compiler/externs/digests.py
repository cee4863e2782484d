"""Digests: messages to the control plane. v1model's `digest`, TNA's Digest."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.machine import Digest as Message
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.values import Value as RunTimeValue
from ina.p4.compiler.reference.values import leaves, number


@dataclass(slots=True)
class Digests:
    """The digests that a program sends, in the order of their calls."""

    digests: list[ir.Digest] = field(default_factory=list)


def send(low: Lowering, value: Value, t: types.Type, name: str) -> None:
    """Copies the fields of a value for a digest, and requests it."""
    digests = low.state(Digests).digests
    number = len(digests) + 1
    names = list(t.fields) if isinstance(t, types.RecordType) else []
    fields = []
    for i, leaf in enumerate(map(value_trees.expression, value_trees.scalars(value))):
        variable = ir.Var(f"digest{number}_{i}", leaf.width, leaf.signed)
        low.emit(ir.Assign(variable, leaf))
        fields.append(ir.DigestField(names[i] if i < len(names) else f"f{i}", variable))
    low.emit(ir.Assign(low.context.flag("digest"), fold.const(number, 32)))
    digests.append(ir.Digest(name or f"digest_{number}", number, fields))


class DigestFunction(ExternFunction):
    names = ("digest",)

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        if low.context.in_egress:
            raise unsupported(call, "digest in egress")
        t = call.params[1].type
        send(low, low.value(call.given(1)), t, str(t) if isinstance(t, types.RecordType) and t.name else "")
        return None

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        t = args.type(1)
        name = t.name if isinstance(t, types.RecordType) and t.name else "digest"
        machine.packet.requests.digest = Message(name, tuple(leaf for leaf, _ in leaves(args.value(1), t)))
        return None


class Digest(ExternObject):
    names = ("Digest",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        if low.context.in_egress:
            raise unsupported(call, "Digest in egress")
        send(low, low.value(call.given(0)), types.strip_new(call.params[0].type), instance.name)
        return None

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        values = tuple(int(number(leaf)) for leaf, _ in leaves(args.value(0), args.type(0)))
        machine.phase.digest = (machine.digest_numbers[call], values)
        machine.digests.append(Message(instance.name, values))
        return None


DIGESTS = (DigestFunction(),)
TNA_DIGESTS = (Digest(),)
