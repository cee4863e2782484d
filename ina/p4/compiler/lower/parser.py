"""Lowering of parsers and deparsers.

A parser becomes a graph of labels; `cursor` is the byte offset within the frame. A parser error jumps to `reject`,
where v1model continues with ingress. The deparser only notes where each header goes: `Extern("deparse")` at the end
writes them, because the frame's new start is known only then (the unparsed payload stays where it is).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.calls import Calls
from ina.p4.compiler.lower.loops import endless_states
from ina.p4.compiler.lower.value_trees import Choice, Header, Stack, Union

CALL = ast.EmptyStatement(NO_SPAN)


def header_name(header: Header) -> str:
    return header.valid.name.removesuffix("_valid") if isinstance(header.valid, ir.Var) else "header"


class Parsers(Calls):
    cursor: ir.Var
    parser_error: Any
    reject_label: str
    emitted: list[tuple[Header, ir.Var]]
    out_length: ir.Var

    def check_parser(self, condition: ir.Expr, error: int, node: ast.Node) -> None:
        """Ends parsing with `error` unless `condition` holds."""
        if self.reject_label == "":
            raise self.unsupported(node, "this operation outside of a parser")
        if isinstance(condition, ir.Const) and condition.value:
            return
        self.emit(
            ir.If(
                fold.lnot(condition),
                [ir.Assign(self.parser_error, fold.const(error, 32)), ir.Goto(self.reject_label)],
                likely=False,
            )
        )

    def enter_parser(self, instance: Instance, values: list[Any], node: ast.Node) -> None:
        decl: ast.ParserDecl = instance.decl
        outer, self.instance = self.instance, instance

        def body() -> None:
            self.bind_constructor(decl.ctor_params, instance, node)
            self.declare_locals(decl.locals)
            self._states(decl)

        self.inline_values(decl.params, values, node, body)
        self.instance = outer

    def apply_parser(self, instance: Instance, e: ast.Call) -> None:
        values = self.arguments(instance.decl.params, e.args, e)
        self.enter_parser(instance, values, e)

    def _states(self, decl: ast.ParserDecl) -> None:
        if "start" not in decl.states:
            raise CompileError(decl.span, f"parser '{decl.name}' has no state 'start'")
        start = decl.states["start"]
        labels: dict[int, str] = {}
        waiting = [start]
        labels[id(start)] = self.new_label("start")
        accept = self.frames[-1]

        def target(state: ast.ParserState | None, name: str | None) -> list[ir.Stmt]:
            if state is None:
                if name == "accept":
                    accept.label_used = True
                    return [ir.Goto(accept.label)]
                return [ir.Goto(self.reject_label)]
            if id(state) not in labels:
                labels[id(state)] = self.new_label(state.name)
                waiting.append(state)
            return [ir.Goto(labels[id(state)])]

        endless, around = endless_states(decl), self.around
        while waiting:
            state = waiting.pop()
            outer, self.here = self.here, state.span
            self.emit(ir.Label(labels[id(state)]))
            if state in endless:
                self.around = None
                self.count_round()
            for statement in state.statements:
                self.statement(statement)
            self._transition(state, target)
            self.here, self.around = outer, around

    def _transition(
        self, state: ast.ParserState, target: Callable[[ast.ParserState | None, str | None], list[ir.Stmt]]
    ) -> None:
        transition = state.transition
        if transition is None:
            self.out += target(None, "reject")
            return
        if not transition.keys:
            self.out += target(transition.target, transition.target_name)
            return
        self.here = transition.span
        keys = self.in_order([partial(self._select_key, k) for k in transition.keys])
        for case in transition.cases:
            self.here = case.span
            condition: ir.Expr = fold.TRUE
            if len(case.keys) == 1 and len(keys) > 1:  # a value set over all keys
                name = case.keys[0]
                assert isinstance(name, ast.Name)
                condition = self.in_value_set(keys, name.decl, name)
            else:
                for key, match in zip(keys, case.keys, strict=True):
                    condition = fold.land(condition, self.matches(key, match))
            if isinstance(condition, ir.Const) and condition.value:
                self.out += target(case.target, case.target_name)
                return
            self.emit(ir.If(condition, target(case.target, case.target_name)))
        self.emit(ir.Assign(self.parser_error, fold.const(self.error_index["NoMatch"], 32)))
        self.emit(ir.Goto(self.reject_label))

    def _select_key(self, e: ast.Expr) -> Any:
        value = self.read(self.value(e))
        if not isinstance(value, ir.Expr):
            raise self.unsupported(e, f"a select key of type {e.type}")
        return value if isinstance(value, ir.Const | ir.Var) else self.stable(value)

    def matches(self, key: ir.Expr, match: ast.Expr) -> ir.Expr:
        """Returns the test whether a key lies in the set of a keyset expression."""
        match match:
            case ast.DontCare():
                return fold.TRUE
            case ast.Mask():
                mask = self.scalar(match.mask)
                return fold.eq(fold.bit_and(key, mask), fold.bit_and(self.scalar(match.value), mask))
            case ast.Range():
                low, high = self.scalar(match.lo), self.scalar(match.hi)
                return fold.land(ir.Op("ge", (key, low), 1), ir.Op("le", (key, high), 1))
            case ast.Name() if isinstance(match.decl, ast.ValueSetDecl):
                return self.in_value_set([key], match.decl, match)
        return fold.eq(key, self.scalar(match))

    def in_value_set(self, keys: list[ir.Expr], decl: ast.ValueSetDecl, node: ast.Node) -> ir.Expr:
        raise TypeError("defined in lower/tables.py")

    # --- packet_in --------------------------------------------------------------------------------------------------

    def packet_in(self, e: ast.Call) -> Any:
        match e.method:
            case "extract":
                place = self.result(e, 0)
                if len(e.args) == 2:
                    self._extract_varbit(place, self.scalar(e.given(1)), e)
                else:
                    self._extract(place, e)
                following = e.args[0]
                while (
                    isinstance(following, ast.Member) and following.kind == "field"
                ):  # a header of a union: `next.byte`
                    following = following.base
                if isinstance(following, ast.Member) and following.kind == "next":
                    stack = self.value(following.base)
                    self.emit(ir.Assign(stack.next, fold.add(stack.next, fold.const(1, 32))))
                return None
            case "lookahead":
                width = self._wire_width(e.type, e)
                self._need(width, e)
                return self._snapshot(self._wire_value(e.type, 0, e)[0])
            case "advance":
                return self._advance(self.scalar(e.given(0)), e)
            case "length":
                return ir.Native("pkt->len", 32)
        raise self.unsupported(e, f"packet_in.{e.method}")

    def _wire_width(self, t: types.Type, node: ast.Node) -> int:
        width = types.fixed_width(t)
        if width is None:
            raise self.unsupported(node, f"extracting {t}, which has no fixed size")
        return width

    def _need(self, bits: int, node: ast.Node) -> None:
        end = fold.add(self.cursor, fold.const((bits + 7) // 8, 32))
        self.check_parser(ir.Op("le", (end, ir.Native("pkt->len", 32)), 1), self.error_index["PacketTooShort"], node)

    def _wire_value(self, t: types.Type, bit: int, node: ast.Node, at: ir.Expr | None = None) -> tuple[Any, int]:
        """Returns a value of type `t` read from the frame `bit` bits after byte `at` (None: the cursor), and the bit after it."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            return ir.Wire(at or self.cursor, bit, *shape), bit + shape[0]
        if isinstance(t, types.RecordType) and not isinstance(t, types.UnionType):
            fields = {}
            padding = t.padding() if isinstance(t, types.HeaderType) else {}
            for f in t.fields.values():
                fields[f.name], bit = self._wire_value(f.type, bit, node, at)
                bit += padding.get(f.name, 0)
            return (Header(t, fields, fold.TRUE) if isinstance(t, types.HeaderType) else value_trees.Record(t, fields)), bit
        if isinstance(t, types.TupleType | types.StackType):
            items = []
            for element in t.elements if isinstance(t, types.TupleType) else [t.element] * t.size:
                item, bit = self._wire_value(element, bit, node, at)
                items.append(item)
            return (value_trees.Sequence(t, items) if isinstance(t, types.TupleType) else Stack(t, items)), bit
        raise self.unsupported(node, f"a value of type {t} from the packet")

    def _extract(self, place: Any, e: ast.Call) -> None:
        header_type = place.items[0].type if isinstance(place, Choice) else place.type
        width = self._wire_width(header_type, e)
        if width % 8:
            raise CompileError(e.span, f"header {header_type} has {width} bits, which is no whole number of bytes")
        self._need(width, e)
        self._each(place, lambda header: self._extract_header(header, e))
        self.emit(ir.Assign(self.cursor, fold.add(self.cursor, fold.const(width // 8, 32))))

    def _each(self, place: Any, lower: Any) -> None:
        """Calls `lower(header)` for a header; for a choice, for each item under the condition that it is selected."""
        if not isinstance(place, Choice):
            lower(place)
            return
        for i, header in enumerate(place.items):
            body = self.block(lambda header=header: lower(header))
            self.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))

    def _extract_varbit(self, place: Any, bits: ir.Expr, e: ast.Call) -> None:
        """Lowers extract with a varbit (§13.8.2). The order of the checks where several fail is BMv2's."""
        t = place.items[0].type if isinstance(place, Choice) else place.type
        fixed, varbit = value_trees.fixed_bits(t), value_trees.varbit(t)
        assert varbit is not None
        if fixed % 8:
            raise CompileError(e.span, f"header {t} has {fixed} bits and a varbit, which is no whole number of bytes")
        size = self.stable(bits)
        whole = fold.eq(fold.slice_bits(size, 2, 0), fold.const(0, 3))
        self.check_parser(whole, self.error_index["ParserInvalidArgument"], e)
        octets = fold.cast(fold.slice_bits(size, size.width - 1, 3), 32)
        length = self.stable(fold.add(octets, fold.const(fixed // 8, 32)))
        left = ir.Op("sub", (ir.Native("pkt->len", 32), self.cursor), 32)
        self.check_parser(ir.Op("le", (length, left), 1), self.error_index["PacketTooShort"], e)
        within = ir.Op("le", (size, fold.const(varbit.max_width, size.width)), 1)
        self.check_parser(within, self.error_index["HeaderTooShort"], e)
        self._each(place, lambda header: self._fill_varbit(header, size, octets, e))
        self.emit(ir.Assign(self.cursor, fold.add(self.cursor, length)))

    def _fill_varbit(self, header: Header, size: ir.Expr, octets: ir.Expr, e: ast.Call) -> None:
        at: ir.Expr = self.cursor
        bit, padding = 0, header.type.padding()
        for name, f in header.type.fields.items():
            field = header.fields[name]
            if isinstance(field, value_trees.Varbit):
                bits, used = value_trees.scalars(field)
                self.emit(ir.Extern("extract_bits", [bits], [at, size], bit))
                self.emit(ir.Assign(used, fold.cast(size, 32)))
                at = fold.add(self.cursor, octets)
                continue
            value, bit = self._wire_value(f.type, bit, e, at)
            bit += padding.get(name, 0)
            for target, source in zip(value_trees.scalars(field), value_trees.scalars(value), strict=True):
                self.emit(ir.Assign(target, source))
        self._extracted(header)

    def _extract_header(self, header: Header, e: ast.Call) -> None:
        if header.region:
            self.emit(ir.Extern("extract_region", [], [self.cursor], header.region))
        else:
            value, _ = self._wire_value(header.type, 0, e)
            for target, source in zip(value_trees.scalars(header), value_trees.scalars(value), strict=True):
                self.emit(ir.Assign(target, source))
        self._extracted(header)

    def _extracted(self, header: Header) -> None:
        self.emit(ir.Assign(header.flag, fold.TRUE))
        if header.union:
            for other in header.union.fields.values():
                if other is not header:
                    self.emit(ir.Assign(other.flag, fold.FALSE))

    def _advance(self, bits: ir.Expr, e: ast.Call) -> None:
        whole = fold.eq(fold.slice_bits(bits, 2, 0), fold.const(0, 3))
        if isinstance(whole, ir.Const) and not whole.value:
            raise CompileError(e.given(0).span, "advance by a number of bits that is no multiple of 8")
        self.check_parser(whole, self.error_index["ParserInvalidArgument"], e)
        amount = fold.cast(fold.slice_bits(bits, 31, 3), 32)
        left = ir.Op("sub", (ir.Native("pkt->len", 32), self.cursor), 32)
        self.check_parser(ir.Op("le", (amount, left), 1), self.error_index["PacketTooShort"], e)
        self.emit(ir.Assign(self.cursor, fold.add(self.cursor, amount)))

    # --- packet_out -------------------------------------------------------------------------------------------------

    def packet_out(self, e: ast.Call) -> None:
        self._emit_value(self.read(self.value(e.given(0))), e)

    def _emit_value(self, value: Any, e: ast.Call) -> None:
        match value:
            case Header():
                if not isinstance(value.valid, ir.Var) and not isinstance(value.valid, ir.Const):
                    raise self.unsupported(e, "emitting a header selected at run time")
                if self.repeating:
                    raise self.unsupported(e, "emit within a loop", "write one emit for each round")
                width = value_trees.fixed_bits(value.type)
                if width % 8:
                    raise CompileError(
                        e.span, f"header {value.type} has {width} bits, which is no whole number of bytes"
                    )
                length: ir.Expr = fold.const(width // 8, 32)
                for field in value.fields.values():
                    if isinstance(field, value_trees.Varbit):
                        octets = ir.Op("shr", (self.read(field.size), fold.const(3, 32)), 32)
                        length = fold.add(octets, length)
                place = self.temp(32, name=f"out_{header_name(value)}")
                body: list[ir.Stmt] = [
                    ir.Assign(place, fold.add(self.out_length, fold.const(1, 32))),  # 0: not emitted
                    ir.Assign(self.out_length, fold.add(self.out_length, length)),
                ]
                self.emit(ir.Assign(place, fold.const(0, 32)))
                self.emit(ir.If(value.valid, body))
                self.emit(ir.Extern("emitted", [], [], len(self.emitted)))
                self.emitted.append((value, place))
            case Stack() | value_trees.Sequence():
                for item in value.items:
                    self._emit_value(item, e)
            case Union() | value_trees.Record():
                for part in value.fields.values():
                    self._emit_value(part, e)
            case _:
                raise self.unsupported(e, f"emitting a value of type {e.given(0).type}")

    def with_emitted_copies(self, body: list[ir.Stmt]) -> list[ir.Stmt]:
        """Returns a deparser's statements without their "emitted" notes. Headers are written at the end, so one that a
        statement behind its emit changes is copied there."""
        later: set[int] = set()
        copied: set[int] = set()
        for stmt in reversed(list(ir.walk(body))):
            if isinstance(stmt, ir.Extern) and stmt.op == "emitted":
                value = self.emitted[stmt.data][0]
                if later & (self._keys(value) | self._regions(value)):
                    copied.add(stmt.data)
                continue
            later |= {key for target in ir.writes(stmt) for key in self._keys(target) | self._regions(target)}
            if isinstance(stmt, ir.Extern):
                data = stmt.data if isinstance(stmt.data, tuple) else (stmt.data,)
                later |= {id(region) for region in data if isinstance(region, ir.Region)}

        def cleared(block: list[ir.Stmt]) -> list[ir.Stmt]:
            statements: list[ir.Stmt] = []
            for stmt in block:
                if isinstance(stmt, ir.Extern) and stmt.op == "emitted":
                    statements += self.block(lambda n=stmt.data: self._copy_emitted(n)) if stmt.data in copied else []
                    continue
                for inner in ir.blocks(stmt):
                    inner[:] = cleared(inner)
                statements.append(stmt)
            return statements

        return cleared(body)

    def _regions(self, value: Any) -> set[int]:
        """Returns the headers in wire order that the leaves of a value lie in, by id."""
        return {id(leaf.array.region) for leaf in value_trees.leaves(value) if isinstance(leaf, ir.Elem) and leaf.array.region}

    def _copy_emitted(self, n: int) -> None:
        header, place = self.emitted[n]
        copy = self.storage.place(header.type, f"emitted_{header_name(header)}")
        self.assign(copy, header, CALL)
        self.emitted[n] = (copy, place)
