"""Requests to the switch: v1model's clone, resubmit, recirculate, truncate, digest; TNA's Mirror, Resubmit and Digest."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch import tna_operations, v1model_operations
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import Path, V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject, Objects
from ina.p4.compiler.instances import field_list
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.machine import Digest as Message
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.packet import PacketOut
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.values import Record, leaves, number

NO_LIST = 0xFFFFFFFF  # field list of a clone that preserves nothing
FIRST_VALUE_LIST = 0x10000  # numbers of lists written as values, beyond those of @field_list
MIRROR_BYTES, RESUBMIT_BYTES = 64, 8  # tna.h


@dataclass(slots=True)
class Copies:
    """Needs of v1model's clones and further passes. `preserved`: the variables of each field list; `kinds`: I2E, E2E;
    `needs_original`: the frame is needed as it came; `headers`: those of a clone between its two egress passes; `payload_at`,
    `length`: where the rest of its frame begins, and its length."""

    preserved: dict[int, list[ir.Var | ir.Elem]] = field(default_factory=dict)
    with_headers: dict[int, int] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    needs_original: bool = False
    headers: Value | None = None
    payload_at: ir.Var = field(default_factory=lambda: ir.Var("payload_at", 32))
    length: ir.Var = field(default_factory=lambda: ir.Var("cloned_length", 32))


def cloned_headers(low: Lowering) -> Value:
    """Returns the storage of a clone's headers between the two egress passes."""
    copies = low.state(Copies)
    if copies.headers is None:
        copies.headers = low.context.storage.place(value_trees.type_of(low.places["hdr"]), "cloned_hdr")
    return copies.headers


def field_list_of(low: Lowering, e: ast.Expr) -> ir.Const:
    """Returns the number of a field list and notes the fields that it preserves: `@field_list` of the metadata, or
    (deprecated) the fields in the call."""
    preserved = low.state(Copies).preserved
    if isinstance(types.strip_new(e.type), types.BitType | types.InfIntType):
        if e.const is None:
            raise unsupported(e, "a field list chosen at run time")
        number: int = e.const
        fields: list[Value] = []
        meta = low.places["meta"]
        t = value_trees.type_of(meta)
        assert isinstance(t, types.RecordType)
        for path in field_list(low.program, t, number):
            place = meta
            for name in path:
                place = value_trees.part(place, name)
            fields += value_trees.scalars(place)
    else:
        number = FIRST_VALUE_LIST + len(preserved)
        fields = list(value_trees.scalars(low.value(e)))
    places = [f for f in fields if isinstance(f, ir.Var | ir.Elem)]
    if len(places) < len(fields):
        raise unsupported(e, "preserving a value that is not a field of the metadata")
    preserved[number] = places
    return fold.const(number, 32)


def side(low: Lowering) -> str:
    return "egress" if low.context.in_egress else "ingress"


class Clone(ExternFunction):
    names = ("clone", "clone_preserving_field_list", "clone3")

    def lower(self, low: Lowering, call: ast.Call) -> None:
        kind, context, copies = "E2E" if low.context.in_egress else "I2E", low.context, low.state(Copies)
        if call.given(0).const != kind:
            raise unsupported(call, f"a clone other than {kind} in {side(low)}")
        copies.kinds.add(kind)
        copies.needs_original |= not context.in_egress
        low.emit(
            ir.Assign(context.flag("clone"), fold.const(1, 32)),
            ir.Assign(context.flag("clone_session"), fold.cast(low.scalar(call.given(1)), 32)),
        )
        list_number = field_list_of(low, call.given(2)) if len(call.args) > 2 else fold.const(NO_LIST, 32)
        if context.in_egress:
            list_number = self._with_headers(low, list_number)
        low.emit(ir.Assign(context.flag("clone_list"), list_number))

    def _with_headers(self, low: Lowering, list_number: ir.Const) -> ir.Const:
        """Returns the list that also preserves all headers."""
        copies = low.state(Copies)
        if list_number.value not in copies.with_headers:
            number = copies.with_headers[list_number.value] = FIRST_VALUE_LIST + len(copies.preserved)
            headers = [v for v in value_trees.leaves(cloned_headers(low)) if isinstance(v, ir.Var | ir.Elem)]
            fields = copies.preserved.get(list_number.value, [])
            copies.preserved[number] = [*fields, *headers, copies.payload_at, copies.length]
        return fold.const(copies.with_headers[list_number.value], 32)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        machine.packet.requests.clone = (args.number(1), _preserved(machine, args, 2))


class Again(ExternFunction):
    """Another pass of the packet: through ingress as it came, or as it leaves egress."""

    names = ("resubmit", "recirculate", "resubmit_preserving_field_list", "recirculate_preserving_field_list")

    def lower(self, low: Lowering, call: ast.Call) -> None:
        kind = call.decl.name.split("_")[0]
        if (kind == "recirculate") != low.context.in_egress:
            raise unsupported(call, f"{kind} in {side(low)}")
        low.state(Copies).needs_original |= kind == "resubmit"
        low.emit(
            ir.Assign(low.context.flag(kind), fold.const(1, 32)),
            ir.Assign(low.context.flag(f"{kind}_list"), field_list_of(low, call.given(0))),
        )

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        requests, preserved = machine.packet.requests, _preserved(machine, args, 0)
        if call.decl.name.startswith("resubmit"):
            requests.resubmit = preserved
        else:
            requests.recirculate = preserved


class Truncate(ExternFunction):
    names = ("truncate",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        low.emit(v1model_operations.Truncate(args=[low.scalar(call.given(0))]))

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        packet, length = machine.packet, max(args.number(0), 1)  # a frame has at least one byte
        packet.truncate = length if packet.truncate is None else min(length, packet.truncate)


@dataclass(slots=True)
class KeptIngress:
    """`needed`: ingress may mirror or resubmit its packet, which must then stay as it came (TNA)."""

    needed: bool = False


def front_bytes(low: Lowering, call: ast.Call, data: ast.Expr | None, limit: int, kind: str) -> list[ir.Expr]:
    """Returns a header's fields in their order in front of the packet."""
    if data is None:
        return []
    fields = list(value_trees.on_the_wire(low.value(data)))
    bits = sum(f.width for f in fields)
    if kind == "resubmit" and bits % 8:  # the hardware carries 64 bits, whatever the program uses of them
        fields.append(fold.const(0, -bits % 8))
        bits += -bits % 8
    if bits % 8:
        raise CompileError(
            call.span, f"this {kind} header has {bits} bits, which is no whole number of bytes",
            ["mark fields @flexible, or add a field for the rest"],
        )
    if bits > 8 * limit:
        raise CompileError(call.span, f"this {kind} header has {bits // 8} bytes, more than {limit}")
    return fields


class Mirror(ExternObject):
    names = ("Mirror",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        args = call.named()
        low.state(KeptIngress).needed |= not low.context.in_egress
        session = fold.cast(low.scalar(args["session_id"]), 32)
        low.emit(tna_operations.Mirror(args=[session, *front_bytes(low, call, args.get("hdr"), MIRROR_BYTES, "mirror")]))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        phase = machine.phase
        phase.mirror = _header_bytes(args)
        phase.requests |= {"mirror": 1, "mirror_session": args.number("session_id"), "mirror_len": len(phase.mirror)}


class Resubmit(ExternObject):
    names = ("Resubmit",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        if low.context.in_egress:
            raise unsupported(call, "Resubmit in egress")
        low.state(KeptIngress).needed = True
        fields = front_bytes(low, call, call.named().get("hdr"), RESUBMIT_BYTES, "resubmit")
        low.emit(tna_operations.Resubmit(args=fields))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        machine.phase.resubmit = _header_bytes(args).ljust(8, b"\0")


def _preserved(machine: V1Machine, args: Arguments, key: int) -> list[Path]:
    """Returns the metadata that a copy keeps: fields of a field list, or those that the data name; none without the argument."""
    if key not in args:
        return []
    if not args.call.decl.name.endswith("_preserving_field_list"):
        return _metadata_paths(machine, args.expression(key))
    metadata = machine.metadata_type
    assert isinstance(metadata, types.RecordType)
    return [("meta", *path) for path in field_list(machine.program, metadata, args.number(key))]


def _metadata_paths(machine: V1Machine, e: ast.Expr) -> list[Path]:
    if isinstance(e, ast.ListExpr | ast.StructInit):
        return [path for value in e.values for path in _metadata_paths(machine, value)]
    path: list[str] = []
    while isinstance(e, ast.Cast | ast.Member):
        if isinstance(e, ast.Member):
            path.insert(0, e.member)
            e = e.base
        else:
            e = e.operand
    if isinstance(e, ast.Name) and e.type is machine.metadata_type:
        return [("meta", *path)]
    if isinstance(e, ast.Name) and e.type is machine.standard_type:
        return [("standard", *path)]
    return []


def _header_bytes(args: Arguments) -> bytes:
    """Returns the bytes of the header that a copy begins with."""
    if "hdr" not in args:
        return b""
    header = args.value("hdr")
    assert isinstance(header, Record)
    header.valid = True
    out = PacketOut()
    out.emit(header, header.type)
    return out.data()


# --- digests ----------------------------------------------------------------------------------------------------------


def send(low: Lowering, value: Value, t: types.Type, name: str) -> None:
    """Copies the fields of a value for a digest, and requests it."""
    digests = low.state(Objects).digests
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

    def lower(self, low: Lowering, call: ast.Call) -> None:
        if low.context.in_egress:
            raise unsupported(call, "digest in egress")
        t = call.params[1].type
        send(low, low.value(call.given(1)), t, str(t) if isinstance(t, types.RecordType) and t.name else "")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        t = args.type(1)
        name = t.name if isinstance(t, types.RecordType) and t.name else "digest"
        machine.packet.requests.digest = Message(name, tuple(leaf for leaf, _ in leaves(args.value(1), t)))


class Digest(ExternObject):
    names = ("Digest",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        if low.context.in_egress:
            raise unsupported(call, "Digest in egress")
        send(low, low.value(call.given(0)), types.strip_new(call.params[0].type), instance.name)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        values = tuple(int(number(leaf)) for leaf, _ in leaves(args.value(0), args.type(0)))
        machine.phase.digest = (machine.digest_numbers[call], values)
        machine.digests.append(Message(instance.name, values))
