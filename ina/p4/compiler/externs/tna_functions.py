"""TNA's functions on values and intrinsic metadata, and the objects of its parsers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch.tna_machine import TnaMachine, Unset
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.expressions import place
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.packet import PacketIn
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.signals import ParserError
from ina.p4.compiler.reference.values import Value as RunTimeValue


@dataclass(slots=True)
class PhaseState:
    """State of one phase of a pipeline. `counters`: its parser's; `validity`: flags of the fields of intrinsic
    metadata that are invalid until they are written; `port_metadata`: the fields that are unpacked from it."""

    counters: dict[Instance, ir.Var] = field(default_factory=dict)
    validity: dict[Value, ir.Var] = field(default_factory=dict)
    port_metadata: list[tuple[str, int, int]] = field(default_factory=list)


def field_places(t: types.Type) -> list[tuple[str, int, int]]:
    """Returns (name, bits, first bit) of the fields of a struct or header on the wire."""
    plain = types.strip_new(t)
    if not isinstance(plain, types.RecordType):
        return []
    padding = plain.padding() if isinstance(plain, types.HeaderType) else {}
    places, bit = [], 0
    for f in plain.fields.values():
        width = types.fixed_width(f.type) or 0
        places.append((f.name, width, bit))
        bit += width + padding.get(f.name, 0)
    return places


class Extreme(ExternFunction):
    names = ("max", "min")

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        a, b = low.code.stable(low.scalar(call.given(0))), low.code.stable(low.scalar(call.given(1)))
        return fold.cond(ir.Op("gt" if call.decl.name == "max" else "lt", (a, b), 1), a, b)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        choose = max if call.decl.name == "max" else min
        return choose(args.number(0), args.number(1))


class FunnelShift(ExternFunction):
    names = ("funnel_shift_right",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        target = low.expressions.lvalue(call.given(0))
        first, second = low.scalar(call.given(1)), low.scalar(call.given(2))
        amount = fold.const(call.given(3).const, 32)
        both = ir.Op("shr", (fold.concat([first, second]), amount), first.width + second.width)
        low.assign(target, fold.cast(both, *shape_of(call.params[0].type, call)), call)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        t = types.underlying(call.params[0].type)
        width = types.fixed_width(t) or 0
        mask = (1 << width) - 1
        args.place(0).set(wrap(((args.number(1) & mask) << width | args.number(2) & mask) >> args.number(3), t))


class Size(ExternFunction):
    names = ("sizeInBits", "sizeInBytes")

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        bits = types.fixed_width(call.given(0).type)
        if bits is None:
            raise unsupported(call, f"the size of {call.given(0).type}")
        return fold.const(bits if call.decl.name == "sizeInBits" else -(-bits // 8), 32)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        width = types.fixed_width(args.type(0)) or 0
        return width if call.decl.name == "sizeInBits" else (width + 7) // 8


class Validity(ExternFunction):
    names = ("invalidate", "is_validated")

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        name = call.decl.name
        flag = low.state(PhaseState).validity.get(low.expressions.value(call.given(0)))
        if flag is None:
            fields = "ucast_egress_port, mcast_grp_a, mcast_grp_b, digest_type, resubmit_type and mirror_type"
            raise unsupported(call, f"{name} of a field other than {fields}")
        if name == "is_validated":
            return flag
        low.emit(ir.Assign(flag, fold.FALSE))
        return None

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        if call.decl.name == "is_validated":
            return not isinstance(args.value(0), Unset)
        place(args.expression(0), frame).set(Unset(args.number(0)))
        return None


class PortMetadataUnpack(ExternFunction):
    """The 64 bits behind the intrinsic metadata as a struct, its first field in the top bits."""

    names = ("port_metadata_unpack",)

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        width = low.parsers.wire_width(call.type, call)
        if width > 64:
            raise CompileError(call.span, f"port metadata have 64 bits, {call.type} has {width}")
        low.parsers.need(64, call)
        value = low.values.snapshot(low.parsers.wire_value(call.type, 0, call)[0])
        cursor = low.context.cursor
        low.emit(ir.Assign(cursor, fold.add(cursor, fold.const(8, 32))))
        low.state(PhaseState).port_metadata = field_places(call.type)
        return value

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        packet = args.value(0)
        assert isinstance(packet, PacketIn)
        packet.need(64)
        value = packet.lookahead(call.type)
        packet.advance(64)
        return value


class ParserCounter(ExternObject):
    names = ("ParserCounter",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        args = call.named()
        counter = low.state(PhaseState).counters.setdefault(instance, ir.Var("counter", 8, True))
        zero = fold.const(0, 8, True)
        match call.method:
            case "is_zero":
                return fold.eq(counter, zero)
            case "is_negative":
                return ir.Op("lt", (counter, zero), 1)
            case "increment" | "decrement" as name:
                amount = fold.cast(low.scalar(args["value"]), 8, True)
                low.emit(ir.Assign(counter, ir.Op("add" if name == "increment" else "sub", (counter, amount), 8, True)))
            case "set" if "value" in args:
                low.emit(ir.Assign(counter, fold.cast(fold.cast(low.scalar(args["value"]), 8), 8, True)))
            case "set":
                self._set_from_field(low, call, counter, args)
        return None

    def _set_from_field(self, low: Lowering, call: ast.Call, counter: ir.Var, args: dict[str, ast.Expr]) -> None:
        field = fold.cast(low.scalar(args["field"]), 8)
        below = fold.const(bits_below(args["field"]), 32)
        from_header = low.code.stable(ir.Op("shl", (field, below), 8) if below.value else field)
        low.context.check_parser(ir.Op("le", (from_header, low.scalar(args["max"])), 1), "CounterRange", call)
        rotate, mask = args["rotate"].const, args["mask"].const
        if rotate is None or mask is None:
            raise unsupported(call, "a parser counter's rotation or mask that is not constant")
        turned: ir.Expr = from_header
        if rotate % 8:
            right = ir.Op("shr", (from_header, fold.const(rotate % 8, 32)), 8)
            turned = ir.Op("or", (right, ir.Op("shl", (from_header, fold.const(8 - rotate % 8, 32)), 8)), 8)
        masked = fold.bit_and(turned, fold.const((1 << (mask + 1)) - 1, 8))
        low.emit(ir.Assign(counter, fold.cast(fold.add(masked, low.scalar(args["add"])), 8, True)))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        counters = machine.phase.counters
        value = counters.get(instance, 0)
        match call.method:
            case "is_zero":
                return value == 0
            case "is_negative":
                return value < 0
            case "increment":
                value += args.number("value")
            case "decrement":
                value -= args.number("value")
            case "set" if "value" in args:
                value = args.number("value")
            case _:
                value = _loaded(args, bits_below(args.expression("field")))
        counters[instance] = (value + 128) % 256 - 128
        return None


class ParserPriority(ExternObject):
    """Selects the packets to drop when the input buffers are full, which they never are here."""

    names = ("ParserPriority",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        return

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        return


def bits_below(field: ast.Expr) -> int:
    """Returns the number of bits below a narrow field in its byte of the packet, 0 for all else: a parser counter loads the byte,
    without the other fields in it (p4c's tests parser_counter_10 and tcp_option_mss_4_byte_chunks)."""
    first, width = _first_bit(field), types.fixed_width(field.type)
    return -(first + width) % 8 if first is not None and width and width < 8 and first % 8 + width <= 8 else 0


def _first_bit(e: ast.Expr) -> int | None:
    """Returns the first bit of a part of a header, in whatever structs and arrays it is; None for what is in no header. Of an
    element whose index is known at run time only, the first bit in its byte, if all elements have the same."""
    match e:
        case ast.Member() if e.kind == "field" and isinstance(t := types.strip_new(e.base.type), types.RecordType):
            before = 0 if isinstance(t, types.HeaderType) else _first_bit(e.base)
            (inside,) = (first for name, _, first in field_places(t) if name == e.member)
            return None if before is None else before + inside
        case ast.Index() if (before := _first_bit(e.base)) is not None:
            width = types.fixed_width(e.type) or 0
            return before + e.index.const * width if e.index.const is not None else before if width % 8 == 0 else None
    return None


def _loaded(args: Arguments, below: int) -> int:
    """Returns the value that a parser counter's `set` takes from a field of the packet, which has `below` bits below it."""
    field = args.number("field") << below & 255
    if field > args.number("max"):
        raise ParserError("CounterRange")
    turn = args.number("rotate") % 8
    return ((field >> turn | field << 8 - turn) & 255 & (1 << args.number("mask") + 1) - 1) + args.number("add")
