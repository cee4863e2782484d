"""Lowering of parsers.

A parser becomes a graph of labels; `cursor` is the byte offset within the frame. A parser error jumps to `reject`,
where v1model continues with ingress.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.loops import endless_states
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.inline import Argument, Inliner
from ina.p4.compiler.lower.matching import Matching
from ina.p4.compiler.lower.value_trees import Choice, Header, Record, Stack, Value

MOST_COMPARISONS = 16  # cases of a select in a row that are compared one after the other
Target = Callable[[ast.ParserState | None, str | None], list[ir.Stmt]]
"""Statements that lead to a state, or to accept or reject by name"""


class Parsers:
    def __init__(self, inliner: Inliner, matching: Matching) -> None:
        self.context, self.code, self.values = inliner.context, inliner.code, inliner.values
        self.expressions, self.statements = inliner.expressions, inliner.statements
        self.inliner, self.matching = inliner, matching

    def enter_parser(self, instance: Instance, values: Sequence[Argument], node: ast.Node) -> None:
        self.inliner.enter(instance, values, node, lambda: self._states(instance.decl))

    def _states(self, decl: ast.ParserDecl) -> None:
        if "start" not in decl.states:
            raise CompileError(decl.span, f"parser '{decl.name}' has no state 'start'")
        start = decl.states["start"]
        labels = {start: self.code.label("start")}
        waiting = [start]
        accept = self.context.frames[-1]

        def target(state: ast.ParserState | None, name: str | None) -> list[ir.Stmt]:
            if state is None:
                if name == "accept":
                    accept.label_used = True
                    return [ir.Goto(accept.label)]
                return [ir.Goto(self.context.reject_label)]
            if state not in labels:
                labels[state] = self.code.label(state.name)
                waiting.append(state)
            return [ir.Goto(labels[state])]

        endless, around = endless_states(decl), self.context.around
        while waiting:
            state = waiting.pop()
            outer, self.code.here = self.code.here, state.span
            self.code.emit(ir.Label(labels[state]))
            if state in endless:
                self.context.around = None
                self.context.count_round()
            for statement in state.statements:
                self.statements.statement(statement)
            self._transition(state, target)
            self.code.here, self.context.around = outer, around

    def _transition(self, state: ast.ParserState, target: Target) -> None:
        transition = state.transition
        if transition is None:
            self.code.out += target(None, "reject")
            return
        if not transition.keys:
            self.code.out += target(transition.target, transition.target_name)
            return
        self.code.here = transition.span
        keys = self.values.in_order([partial(self._select_key, k) for k in transition.keys])
        valued = [(self._constant(keys, case), case) for case in transition.cases]
        for several, group in itertools.groupby(valued, lambda case: case[0] is None):
            values, cases = zip(*group, strict=True)
            if not several and len(cases) > MOST_COMPARISONS:
                self._switch(keys, values, cases, target)
            elif self._comparisons(keys, cases, target):
                return
        for stmt in self.context.rejected("NoMatch"):
            self.code.emit(stmt)

    def _constant(self, keys: list[ir.Expr], case: ast.SelectCase) -> int | None:
        """Returns the one value of all keys together that a case is for; None: there are more, or they have over 64 bits."""
        value = 0
        if sum(key.width for key in keys) > 64 or len(case.keys) < len(keys):
            return None
        for key, match in zip(keys, case.keys, strict=True):
            if match.const is None or isinstance(match, ast.DontCare | ast.Mask | ast.Range):
                return None
            one = self.expressions.scalar(match)
            assert isinstance(one, ir.Const) and one.width == key.width
            value = value << key.width | one.value
        return value

    def _switch(self, keys: list[ir.Expr], values: Sequence[int], cases: Sequence[ast.SelectCase], target: Target) -> None:
        """Emits cases for one value each, of all keys together, as a search."""
        subject = self.code.stable(fold.concat([fold.cast(key, key.width) for key in keys]))
        choices: dict[int, list[ir.Stmt]] = {}
        for value, case in zip(values, cases, strict=True):
            choices.setdefault(value, target(case.target, case.target_name))  # the first case of a value counts
        self.code.here = cases[0].span
        self._search(subject, sorted(choices.items()))

    def _search(self, subject: ir.Expr, choices: list[tuple[int, list[ir.Stmt]]]) -> None:
        """Emits a binary search down to short choices; a C compiler's time for a long one grows with the square of its length."""
        if len(choices) <= MOST_COMPARISONS:
            self.code.emit(ir.Switch(subject, choices))
            return
        middle = len(choices) // 2
        low, high = (self.code.block(partial(self._search, subject, half)) for half in (choices[:middle], choices[middle:]))
        self.code.emit(ir.If(ir.Op("lt", (subject, fold.const(choices[middle][0], subject.width)), 1), low, high))

    def _comparisons(self, keys: list[ir.Expr], cases: Sequence[ast.SelectCase], target: Target) -> bool:
        """Emits cases one after the other; returns True if one of them takes all that is left."""
        for case in cases:
            self.code.here = case.span
            condition: ir.Expr = fold.TRUE
            if len(case.keys) == 1 and len(keys) > 1:  # a value set over all keys
                name = case.keys[0]
                assert isinstance(name, ast.Name)
                condition = self.matching.in_value_set(keys, name.decl, name)
            else:
                for key, match in zip(keys, case.keys, strict=True):
                    condition = fold.land(condition, self.matching.matches(key, match))
            if isinstance(condition, ir.Const) and condition.value:
                self.code.out += target(case.target, case.target_name)
                return True
            self.code.emit(ir.If(condition, target(case.target, case.target_name)))
        return False

    def _select_key(self, e: ast.Expr) -> ir.Expr:
        value = self.values.read(self.expressions.value(e))
        if not isinstance(value, ir.Expr):
            raise unsupported(e, f"a select key of type {e.type}")
        return value if isinstance(value, ir.Const | ir.Var) else self.code.stable(value)

    def packet_in(self, e: ast.Call) -> Value | None:
        match e.method:
            case "extract":
                place = self.expressions.result(e, 0)
                if len(e.args) == 2:
                    self._extract_varbit(place, self.expressions.scalar(e.given(1)), e)
                else:
                    self._extract(place, e)
                following = e.args[0]
                while isinstance(following, ast.Member) and following.kind == "field":  # a header of a union: `next.byte`
                    following = following.base
                if isinstance(following, ast.Member) and following.kind == "next":
                    stack = self.expressions.value(following.base)
                    assert isinstance(stack, Stack) and stack.next is not None
                    self.code.emit(ir.Assign(stack.next, fold.add(stack.next, fold.const(1, 32))))
                return None
            case "lookahead":
                self.need(self.wire_width(e.type, e), e)
                return self.values.snapshot(self.wire_value(e.type, 0, e)[0])
            case "advance":
                self._advance(self.expressions.scalar(e.given(0)), e)
                return None
            case "length":
                return ir.Native("pkt->len", 32)
        raise unsupported(e, f"packet_in.{e.method}")

    def wire_width(self, t: types.Type, node: ast.Node) -> int:
        width = types.fixed_width(t)
        if width is None:
            raise unsupported(node, f"extracting {t}, which has no fixed size")
        return width

    def need(self, bits: int, node: ast.Node) -> None:
        end = fold.add(self.context.cursor, fold.const((bits + 7) // 8, 32))
        self.context.check_parser(ir.Op("le", (end, ir.Native("pkt->len", 32)), 1), "PacketTooShort", node)

    def wire_value(self, t: types.Type, bit: int, node: ast.Node, at: ir.Expr | None = None) -> tuple[Value, int]:
        """Returns a value of type `t` read from the frame `bit` bits after byte `at` (None: the cursor), and the bit after it."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            return ir.Wire(at or self.context.cursor, bit, *shape), bit + shape[0]
        if isinstance(t, types.RecordType) and not isinstance(t, types.UnionType):
            fields: dict[str, Value] = {}
            padding = t.padding() if isinstance(t, types.HeaderType) else {}
            for f in t.fields.values():
                fields[f.name], bit = self.wire_value(f.type, bit, node, at)
                bit += padding.get(f.name, 0)
            return (Header(t, fields, fold.TRUE) if isinstance(t, types.HeaderType) else Record(t, fields)), bit
        if isinstance(t, types.TupleType | types.StackType):
            items: list[Value] = []
            for element in t.elements if isinstance(t, types.TupleType) else [t.element] * t.size:
                item, bit = self.wire_value(element, bit, node, at)
                items.append(item)
            return (value_trees.Sequence(t, items) if isinstance(t, types.TupleType) else Stack(t, items)), bit
        raise unsupported(node, f"a value of type {t} from the packet")

    def _extract(self, place: Value, e: ast.Call) -> None:
        header_type = value_trees.type_of(place.items[0] if isinstance(place, Choice) else place)
        width = self.wire_width(header_type, e)
        if width % 8:
            raise CompileError(e.span, f"header {header_type} has {width} bits, which is no whole number of bytes")
        self.need(width, e)
        self._each(place, lambda header: self._extract_header(header, e))
        self.code.emit(ir.Assign(self.context.cursor, fold.add(self.context.cursor, fold.const(width // 8, 32))))

    def _each(self, place: Value, lower: Callable[[Header], None]) -> None:
        """Calls `lower(header)` for a header; for a choice, for each item under the condition that it is selected."""
        if not isinstance(place, Choice):
            lower(value_trees.header(place))
            return
        for i, header in enumerate(place.items):
            body = self.code.block(partial(lower, value_trees.header(header)))
            self.code.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))

    def _extract_varbit(self, place: Value, bits: ir.Expr, e: ast.Call) -> None:
        """Lowers extract with a varbit (§13.8.2). The order of the checks where several fail is BMv2's."""
        t = value_trees.type_of(place.items[0] if isinstance(place, Choice) else place)
        assert isinstance(t, types.HeaderType)
        fixed, varbit = value_trees.fixed_bits(t), value_trees.varbit(t)
        assert varbit is not None
        if fixed % 8:
            raise CompileError(e.span, f"header {t} has {fixed} bits and a varbit, which is no whole number of bytes")
        size = self.code.stable(bits)
        self.context.check_parser(fold.eq(fold.slice_bits(size, 2, 0), fold.const(0, 3)), "ParserInvalidArgument", e)
        octets = fold.cast(fold.slice_bits(size, size.width - 1, 3), 32)
        length = self.code.stable(fold.add(octets, fold.const(fixed // 8, 32)))
        left = ir.Op("sub", (ir.Native("pkt->len", 32), self.context.cursor), 32)
        self.context.check_parser(ir.Op("le", (length, left), 1), "PacketTooShort", e)
        within = ir.Op("le", (size, fold.const(varbit.max_width, size.width)), 1)
        self.context.check_parser(within, "HeaderTooShort", e)
        self._each(place, lambda header: self._fill_varbit(header, size, octets, e))
        self.code.emit(ir.Assign(self.context.cursor, fold.add(self.context.cursor, length)))

    def _fill_varbit(self, header: Header, size: ir.Expr, octets: ir.Expr, e: ast.Call) -> None:
        at: ir.Expr = self.context.cursor
        bit, padding = 0, header.type.padding()
        for name, f in header.type.fields.items():
            field = header.fields[name]
            if isinstance(field, value_trees.Varbit):
                bits, used = value_trees.variables(field)
                self.code.emit(
                    operations.ExtractBits(bit, targets=[bits], args=[at, size]),
                    ir.Assign(used, fold.cast(size, 32)),
                )
                at = fold.add(self.context.cursor, octets)
                continue
            value, bit = self.wire_value(f.type, bit, e, at)
            bit += padding.get(name, 0)
            for target, source in zip(value_trees.variables(field), value_trees.scalars(value), strict=True):
                self.code.emit(ir.Assign(target, value_trees.expression(source)))
        self._extracted(header)

    def _extract_header(self, header: Header, e: ast.Call) -> None:
        if header.region:
            self.code.emit(operations.ExtractRegion(header.region, args=[self.context.cursor]))
        else:
            value, _ = self.wire_value(header.type, 0, e)
            for target, source in zip(value_trees.variables(header), value_trees.scalars(value), strict=True):
                self.code.emit(ir.Assign(target, value_trees.expression(source)))
        self._extracted(header)

    def _extracted(self, header: Header) -> None:
        self.code.emit(ir.Assign(header.flag, fold.TRUE))
        self.values.leave_alone(header)

    def _advance(self, bits: ir.Expr, e: ast.Call) -> None:
        whole = fold.eq(fold.slice_bits(bits, 2, 0), fold.const(0, 3))
        if isinstance(whole, ir.Const) and not whole.value:
            raise CompileError(e.given(0).span, "advance by a number of bits that is no multiple of 8")
        self.context.check_parser(whole, "ParserInvalidArgument", e)
        amount = fold.cast(fold.slice_bits(bits, 31, 3), 32)
        left = ir.Op("sub", (ir.Native("pkt->len", 32), self.context.cursor), 32)
        self.context.check_parser(ir.Op("le", (amount, left), 1), "PacketTooShort", e)
        self.code.emit(ir.Assign(self.context.cursor, fold.add(self.context.cursor, amount)))
