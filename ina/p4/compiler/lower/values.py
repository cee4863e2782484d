"""Values and places: constants, reads, copies, assignment, validity of headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import Context, unsupported
from ina.p4.compiler.lower.value_trees import Choice, Header, Record, Sequence, SliceOf, Stack, Union, Value, Varbit

P = TypeVar("P")


class Values:
    """Copies and tests values. `resets`: the statements that only initialise. `keeps_fields`: a header that becomes valid has
    the values last written to its fields (TNA: they have containers of their own), not zeros."""

    def __init__(self, context: Context, keeps_fields: bool = False) -> None:
        self.context, self.code, self.keeps_fields = context, context.code, keeps_fields
        self.resets: set[ir.Stmt] = set()

    def in_order(self, parts: Iterable[Callable[[], P]], keep: Callable[[int, P], P] | None = None) -> list[P]:
        """Returns the results of `parts`, evaluated from the first to the last; later parts do not change earlier results.
        `keep` replaces a result that they might change (default: by a copy of its value)."""
        values: list[P] = []

        def evaluate(part: Callable[[], P]) -> None:
            values.append(part())

        effects = [self.code.block(partial(evaluate, part)) for part in parts]
        for i, statements in enumerate(effects):
            self.code.out += statements
            if any(effects[i + 1 :]) and not isinstance(values[i], ir.Const | Instance | str):
                values[i] = keep(i, values[i]) if keep else self.copied(values[i])
        return values

    # --- constants and defaults -------------------------------------------------------------------------------------

    def constant(self, value: Any, t: types.Type, node: ast.Node) -> Value:
        """Returns the value tree of a compile-time constant."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            if isinstance(t, types.ErrorType):
                value = self.context.error_index[value]
            elif isinstance(t, types.EnumType):
                value = t.members.index(value)
            return fold.const(int(value), *shape)
        match t:
            case types.RecordType():
                fields = {f.name: self.constant(value[f.name], f.type, node) for f in t.fields.values()}
                return Header(t, fields, fold.TRUE) if isinstance(t, types.HeaderType) else Record(t, fields)
            case types.TupleType():
                return Sequence(t, [self.constant(v, e, node) for v, e in zip(value, t.elements, strict=True)])
            case types.ListType():
                return Sequence(t, [self.constant(v, t.element, node) for v in value])
            case types.StackType():
                return Stack(t, [self.constant(v, t.element, node) for v in value])
            case types.InfIntType():
                return fold.const(value, max(64, value.bit_length() + 1), True)
        raise unsupported(node, f"a constant of type {t}")

    def default(self, t: types.Type) -> Value:
        """Returns a value with all bits zero and headers invalid."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            return fold.const(0, *shape)
        match t:
            case types.HeaderType():
                return Header(t, {f.name: self.default(f.type) for f in t.fields.values()}, fold.FALSE)
            case types.UnionType():
                return Union(t, {f.name: value_trees.header(self.default(f.type)) for f in t.fields.values()})
            case types.RecordType():
                return Record(t, {f.name: self.default(f.type) for f in t.fields.values()})
            case types.StackType():
                return Stack(t, [self.default(t.element) for _ in range(t.size)])
            case types.TupleType():
                return Sequence(t, [self.default(e) for e in t.elements])
            case types.VarbitType():
                return Varbit(t, fold.const(0, max(1, t.max_width)), fold.const(0, 32))
        raise TypeError(str(t))

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, place: Value) -> Value:
        """Returns a place as a value: choices become conditional expressions."""
        if isinstance(place, SliceOf):
            return fold.slice_bits(self.scalar(place.base), place.hi, place.lo)
        if not isinstance(place, Choice):
            return place
        index = place.index

        def picked(parts: list[Value]) -> ir.Expr:
            items = [self.scalar(part) for part in parts]
            result: ir.Expr = fold.const(0, items[0].width, items[0].signed)
            for i in reversed(range(len(items))):
                result = fold.cond(fold.eq(index, fold.const(i, index.width)), items[i], result)
            return result

        return value_trees.mapped([self.read(item) for item in place.items], picked)

    def scalar(self, place: Value) -> ir.Expr:
        """Returns the value of a scalar place."""
        return value_trees.expression(self.read(place))

    def select(self, value: Value, pick: Callable[[Value], Value]) -> Value:
        """Applies `pick` to a value, or to every item of a choice."""
        if isinstance(value, Choice):
            return Choice(value.index, [self.select(item, pick) for item in value.items])
        return pick(value)

    def snapshot(self, value: Value) -> Value:
        """Returns a copy of the value, in temporaries."""
        return value_trees.mapped([value], lambda leaves: self.code.stable(value_trees.expression(leaves[0])))

    def copied(self, value: P) -> P:
        """Returns a copy of what is a value, and objects and texts as they are."""
        whole: Any = value
        if not isinstance(value, ir.Const | Instance | str):
            whole = self.snapshot(self.read(whole))
        copied: P = whole
        return copied

    def equal(self, a: Value, b: Value, node: ast.Node) -> ir.Expr:
        """Returns the equality of composites (§8.10): headers are equal if both are invalid, or both valid with equal fields."""
        a, b = self.read(a), self.read(b)
        if isinstance(a, ir.Expr):
            return fold.eq(a, value_trees.expression(b))
        result: ir.Expr = fold.TRUE
        for x, y in zip(value_trees.members(a), value_trees.members(b), strict=True):
            result = fold.land(result, self.equal(x, y, node))
        if isinstance(a, Header) and isinstance(b, Header):
            both = fold.land(fold.land(a.valid, b.valid), result)
            return fold.lor(fold.land(fold.lnot(a.valid), fold.lnot(b.valid)), both)
        return result

    def parts(self, value: Value) -> list[ir.Expr | Header | Varbit]:
        """Returns the scalars, headers and varbits of a value, in order."""
        if isinstance(value, ir.Expr | Header | Varbit):
            return [value]
        if isinstance(value, Choice | SliceOf):
            return self.parts(self.read(value))
        return [part for member in value_trees.members(value) for part in self.parts(member)]

    def keys(self, value: Value) -> set[object]:
        """Returns what a value reads (or a place writes): variables, and elements by array and index."""
        if isinstance(value, Choice):
            return {key for part in (*value.items, value.index) for key in self.keys(part)}
        if isinstance(value, SliceOf):
            return self.keys(value.base)
        keys: set[object] = set()
        for leaf in value_trees.leaves(value):
            if isinstance(leaf, ir.Expr):
                keys |= {(part.array, part.index) if isinstance(part, ir.Elem) else part for part in ir.leaves(leaf)}
            else:
                keys |= self.keys(leaf)
        return keys

    # --- assignment -------------------------------------------------------------------------------------------------

    def assign(self, place: Value, value: Value, node: ast.Node) -> None:
        """Copies a value to a place of the same type."""
        if isinstance(place, SliceOf):
            self._assign_slice(place, self.scalar(value), node)
            return
        if isinstance(place, Choice):
            value = self.snapshot(self.read(value))
            for i, item in enumerate(place.items):
                body = self.code.block(partial(self.assign, item, value, node))
                self.code.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))
            return
        value = self.read(value)
        if place is value:
            return
        if isinstance(place, ir.Var | ir.Elem):
            self.code.emit(ir.Assign(place, value_trees.expression(value)))
            return
        if not isinstance(value, type(place)):
            if isinstance(value, Sequence):  # a tuple typed by its context
                for part, v in zip(value_trees.members(place), value.items, strict=True):
                    self.assign(part, v, node)
                return
            raise unsupported(node, "this assignment")
        # Writing `place` part by part must not change `value` before it is read.
        if isinstance(value, value_trees.COMPOSITE) and self.keys(place) & self.keys(value):
            value = self.snapshot(value)
        if isinstance(place, Header):
            self._assign_header(place, value_trees.header(value), node)
            self.leave_alone(place)  # last: `value` may be another header of the union
            return
        parts = list(zip(value_trees.members(place), value_trees.members(value), strict=True))
        if isinstance(place, Union):  # copied as a whole: at most one of its headers is valid
            for part, v in parts:
                self._assign_header(value_trees.header(part), value_trees.header(v), node)
            return
        for part, v in parts:
            self.assign(part, v, node)
        if isinstance(place, Stack) and isinstance(value, Stack) and place.next is not None and value.next is not None:
            self.code.emit(ir.Assign(place.next, value.next))

    def _assign_header(self, place: Header, value: Header, node: ast.Node) -> None:
        region = place.region
        self.context.created.add(place)
        if region and value.region and value.region.size == region.size:
            region.own_buffer = True
            self.code.emit(operations.CopyRegion(region, value.region, targets=[place.flag], args=[value.valid]))
        else:
            if region:
                region.own_buffer = True
                self.code.emit(operations.FreshRegion(region))
            for name, field in place.fields.items():
                self.assign(field, value.fields[name], node)
            self.code.emit(ir.Assign(place.flag, value.valid))

    def _assign_slice(self, place: SliceOf, value: ir.Expr, node: ast.Node) -> None:
        base, hi, lo = place.base, place.hi, place.lo
        while isinstance(base, SliceOf):
            hi, lo, base = hi + base.lo, lo + base.lo, base.base
        old = self.scalar(base)
        width = old.width
        mask = ((1 << (hi - lo + 1)) - 1) << lo
        rest = ir.Op("and", (old, fold.const(~mask, width, old.signed)), width, old.signed)
        moved: ir.Expr = fold.cast(fold.cast(value, value.width), width, old.signed)
        if lo:
            moved = ir.Op("shl", (moved, fold.const(lo, 32)), width, old.signed)
        self.assign(base, ir.Op("or", (rest, moved), width, old.signed), node)

    def reset(self, place: Value, node: ast.Node) -> None:
        """Assigns an `out` parameter's or variable's first value: zero, headers invalid."""
        before = len(self.code.out)
        self._reset(place, node)
        self.resets.update(self.code.out[before:])

    def _reset(self, place: Value, node: ast.Node) -> None:
        match place:
            case Choice():
                first = place.items[0]
                self.assign(place, fold.const(0, first.width, first.signed) if isinstance(first, ir.Expr)
                            else self.default(value_trees.type_of(first)), node)
            case ir.Var() | ir.Elem():
                self.code.emit(ir.Assign(place, fold.const(0, place.width, place.signed)))
            case SliceOf():
                self.assign(place, fold.const(0, place.hi - place.lo + 1), node)
            case Header() if place.region:
                self.code.emit(
                    ir.Assign(place.flag, fold.FALSE),
                    operations.ClearRegion(place.region),
                )
            case _:
                if isinstance(place, Header):
                    self.code.emit(ir.Assign(place.flag, fold.FALSE))
                if isinstance(place, Stack) and place.next is not None:
                    self.code.emit(ir.Assign(place.next, fold.const(0, 32)))
                for part in value_trees.members(place):
                    self._reset(part, node)

    # --- validity ---------------------------------------------------------------------------------------------------

    def is_valid(self, value: Value) -> ir.Expr:
        """Returns the validity of a header, or of a union: that of any of its headers."""
        if isinstance(value, Union):
            result: ir.Expr = fold.FALSE
            for header in value.fields.values():
                result = fold.lor(result, header.valid)
            return result
        return value_trees.header(value).valid

    def set_valid(self, header: Header, valid: bool) -> None:
        if valid:
            self.context.created.add(header)
            self.code.emit(ir.If(fold.lnot(header.valid), self.code.block(lambda: self._first_fields(header))))
        self.code.emit(ir.Assign(header.flag, fold.TRUE if valid else fold.FALSE))
        self.leave_alone(header)

    def _first_fields(self, header: Header) -> None:
        """Sets the fields of a header that becomes valid."""
        if header.region:
            header.region.own_buffer = True
            kind = operations.KeepRegion if self.keeps_fields else operations.FreshRegion
            self.code.emit(kind(header.region))
            return
        for leaf in () if self.keeps_fields else value_trees.variables(header):
            self.code.emit(ir.Assign(leaf, fold.const(0, leaf.width, leaf.signed)))

    def leave_alone(self, header: Header) -> None:
        """Makes the other headers of its union invalid, after a header has become valid or invalid (§8.20)."""
        if header.union is not None:
            for other in header.union.fields.values():
                if other is not header:
                    self.code.emit(ir.Assign(other.flag, fold.FALSE))
