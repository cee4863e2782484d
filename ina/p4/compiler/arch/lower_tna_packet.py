"""Lowering of TNA's parsers and deparsers beyond headers: checksums, counters, port metadata, copies, digests."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch.lower_tna_hash import Hashes
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower import value_trees

MIRROR_BYTES, RESUBMIT_BYTES = 64, 8  # tna.h


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


def ingress_port(parser: Instance) -> str:
    """Returns the ingress parser's name for the port that a packet came in by."""
    params = [p.name for p in parser.decl.params if str(p.type) == "ingress_intrinsic_metadata_t"]
    return f"{params[0] if params else 'ig_intr_md'}.ingress_port"


def extracted_port_metadata(parser: Instance) -> list[tuple[str, int, int]]:
    """Returns the port metadata that a parser extracts as a header: the 64 bits right behind the intrinsic metadata."""
    decl: ast.ParserDecl = parser.decl
    for state in decl.states.values():
        calls = [s.call for s in state.statements if isinstance(s, ast.CallStatement) and s.call.kind == "packet_in"]
        for i, call in enumerate(calls):
            if call.method != "extract" or str(call.params[0].type) != "ingress_intrinsic_metadata_t":
                continue
            following = calls[i + 1 : i + 2]
            transition = state.transition
            for case in transition.branches if not following and transition is not None else []:
                if case.target is not None:
                    following += [s.call for s in case.target.statements[:1] if isinstance(s, ast.CallStatement)]
            for next_call in following:
                if next_call.kind == "packet_in" and next_call.method == "extract":
                    extracted = next_call.params[0].type
                    if types.fixed_width(extracted) == 64 and "resubmit" not in str(extracted):
                        return field_places(extracted)
    return []


class PacketObjects(Hashes):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sums: dict[int, ir.Var] = {}  # of Checksum objects: the sum of 16-bit words so far
        self.deposits: list[tuple[ir.Var, ir.Var, Any, ast.Node]] = []  # enabled, sum, target, call
        self.parser_counters: dict[int, ir.Var] = {}
        self.validity: dict[int, ir.Var] = {}  # of intrinsic metadata fields that have one
        self.port_metadata: list[tuple[str, int, int]] = []
        self.keep_ingress = False

    def packet_object(self, e: ast.Call, instance: Instance, args: dict[str, ast.Expr]) -> Any:
        match instance.decl.name, e.method:
            case "Checksum", _:
                return self._checksum_call(e, instance, args)
            case "ParserCounter", _:
                return self._counter_call(e, instance, args)
            case "ParserPriority", "set":
                return None  # selects the packets to drop when the input buffers are full, which they never are here
            case "Mirror", "emit":
                self._mirror(e, args)
            case "Resubmit", "emit":
                self._resubmit(e, args)
            case "Digest", "pack":
                self._pack(e, instance)
            case kind, method:
                raise self.unsupported(e, f"{kind}.{method}")
        return None

    # --- checksums --------------------------------------------------------------------------------------------------

    def _sum(self, instance: Instance) -> ir.Var:
        return self.sums.setdefault(id(instance), ir.Var("sum", 32))

    def _checksum_call(self, e: ast.Call, instance: Instance, args: dict[str, ast.Expr]) -> Any:
        """Lowers ones' complement sums: subtracting is adding the complement."""
        total = self._sum(instance)
        match e.method:
            case "add":
                added = ir.Op("not", (self.hashed("csum16", e.given(0)),), 16)
                self.emit(ir.Assign(total, fold.add(total, fold.cast(added, 32))))
            case "subtract":
                self.emit(ir.Assign(total, fold.add(total, fold.cast(self.hashed("csum16", e.given(0)), 32))))
            case "get":
                return self._folded_sum(total)
            case "verify":  # true: wrong
                return fold.lnot(fold.eq(self._folded_sum(total), fold.const(0xFFFF, 16)))
            case "subtract_all_and_deposit":
                enabled = ir.Var("deposit", 1)
                self.emit(ir.Assign(enabled, fold.TRUE))
                self.deposits.append((enabled, total, self.result(e, 0), e))
            case "update":
                result = self.hashed("csum16", e.given(0))
                if "zeros_as_ones" in args:
                    ones = fold.land(self.scalar(args["zeros_as_ones"]), fold.eq(result, fold.const(0, 16)))
                    return fold.cond(ones, fold.const(0xFFFF, 16), result)
                return result
        return None

    def _folded_sum(self, total: ir.Expr) -> ir.Expr:
        once = fold.add(fold.cast(fold.slice_bits(total, 15, 0), 32), fold.cast(fold.slice_bits(total, 31, 16), 32))
        once = self.stable(once)
        carried = fold.add(once, fold.cast(fold.slice_bits(once, 31, 16), 32))
        return self.stable(fold.cast(carried, 16))

    def deposit_residuals(self) -> None:
        """Deposits, at the end of parsing, the sum over the rest of the packet plus the sums added and subtracted before."""
        for enabled, total, target, call in self.deposits:

            def body(total: ir.Var = total, target: Any = target, call: ast.Node = call) -> None:
                rest = self.temp(16, name="rest")
                self.emit(ir.Extern("hash", [rest], [self.cursor], ("csum16", [], True)))
                added = fold.cast(ir.Op("not", (rest,), 16), 32)
                self.assign(target, self._folded_sum(fold.add(total, added)), call)

            self.emit(ir.If(enabled, self.block(body)))
        self.deposits = []

    # --- parser counters --------------------------------------------------------------------------------------------

    def _counter_call(self, e: ast.Call, instance: Instance, args: dict[str, ast.Expr]) -> Any:
        counter = self.parser_counters.setdefault(id(instance), ir.Var("counter", 8, True))
        zero = fold.const(0, 8, True)
        match e.method:
            case "is_zero":
                return fold.eq(counter, zero)
            case "is_negative":
                return ir.Op("lt", (counter, zero), 1)
            case "increment" | "decrement" as name:
                amount = fold.cast(self.scalar(args["value"]), 8, True)
                self.emit(ir.Assign(counter, ir.Op("add" if name == "increment" else "sub", (counter, amount), 8, True)))
            case "set" if "value" in args:
                self.emit(ir.Assign(counter, fold.cast(fold.cast(self.scalar(args["value"]), 8), 8, True)))
            case "set":
                field = self.stable(fold.cast(self.scalar(args["field"]), 8))
                fits = ir.Op("le", (field, self.scalar(args["max"])), 1)
                self.check_parser(fits, self.error_index["CounterRange"], e)
                rotate, mask = args["rotate"].const, args["mask"].const
                if rotate is None or mask is None:
                    raise self.unsupported(e, "a parser counter's rotation or mask that is not constant")
                turned: ir.Expr = field
                if rotate % 8:
                    right = ir.Op("shr", (field, fold.const(rotate % 8, 32)), 8)
                    turned = ir.Op("or", (right, ir.Op("shl", (field, fold.const(8 - rotate % 8, 32)), 8)), 8)
                masked = fold.bit_and(turned, fold.const((1 << (mask + 1)) - 1, 8))
                self.emit(ir.Assign(counter, fold.cast(fold.add(masked, self.scalar(args["add"])), 8, True)))
        return None

    # --- port metadata ----------------------------------------------------------------------------------------------

    def unpack_port_metadata(self, e: ast.Call) -> Any:
        """Returns the 64 bits behind the intrinsic metadata as a struct, its first field in the top bits."""
        width = self._wire_width(e.type, e)
        if width > 64:
            raise CompileError(e.span, f"port metadata have 64 bits, {e.type} has {width}")
        self._need(64, e)
        value = self._snapshot(self._wire_value(e.type, 0, e)[0])
        self.emit(ir.Assign(self.cursor, fold.add(self.cursor, fold.const(8, 32))))
        self.port_metadata = field_places(e.type)
        return value

    # --- copies and messages ----------------------------------------------------------------------------------------

    def _bytes(self, e: ast.Call, data: ast.Expr | None, limit: int, kind: str) -> list[ir.Expr]:
        """Returns a header's fields in their order in front of the packet."""
        if data is None:
            return []
        fields = [self.read(leaf) for leaf in value_trees.on_the_wire(self.read(self.value(data)))]
        bits = sum(f.width for f in fields)
        if kind == "resubmit" and bits % 8:  # the hardware carries 64 bits, whatever the program uses of them
            fields.append(fold.const(0, -bits % 8))
            bits += -bits % 8
        if bits % 8:
            raise CompileError(
                e.span, f"this {kind} header has {bits} bits, which is no whole number of bytes",
                ["mark fields @flexible, or add a field for the rest"],
            )  # fmt: skip
        if bits > 8 * limit:
            raise CompileError(e.span, f"this {kind} header has {bits // 8} bytes, more than {limit}")
        return fields

    def _mirror(self, e: ast.Call, args: dict[str, ast.Expr]) -> None:
        self.keep_ingress |= not self.in_egress
        session = fold.cast(self.scalar(args["session_id"]), 32)
        self.emit(ir.Extern("tna_mirror", [], [session, *self._bytes(e, args.get("hdr"), MIRROR_BYTES, "mirror")]))

    def _resubmit(self, e: ast.Call, args: dict[str, ast.Expr]) -> None:
        if self.in_egress:
            raise self.unsupported(e, "Resubmit in egress")
        self.keep_ingress = True
        self.emit(ir.Extern("tna_resubmit", [], self._bytes(e, args.get("hdr"), RESUBMIT_BYTES, "resubmit")))

    def _pack(self, e: ast.Call, instance: Instance) -> None:
        if self.in_egress:
            raise self.unsupported(e, "Digest in egress")
        number = len(self.digests) + 1
        value = self.read(self.value(e.given(0)))
        t = types.strip_new(e.params[0].type)
        names = list(t.fields) if isinstance(t, types.RecordType) else []
        fields = []
        for i, leaf in enumerate(value_trees.scalars(value)):
            variable = ir.Var(f"digest{number}_{i}", leaf.width, leaf.signed)
            self.emit(ir.Assign(variable, leaf))
            fields.append({"name": names[i] if i < len(names) else f"f{i}", "width": leaf.width, "var": variable})
        self.emit(ir.Assign(self.flag("digest"), fold.const(number, 32)))
        self.digests.append({"name": instance.name, "number": number, "fields": fields})
