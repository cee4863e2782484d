"""Lowering of expressions and lvalues: checked AST to IR scalars and places."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError, Span
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.value_trees import Choice, Header, Record, Sequence, SliceOf, Stack, Union, Varbit

MAX_STATEMENTS = 100_000  # five times the largest program of this project
BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "|+|": "satadd", "|-|": "satsub", "&": "and", "|": "or",
    "^": "xor", "<<": "shl", ">>": "shr", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip


def hint(e: ir.Expr) -> str:
    """Returns a name for a temporary that keeps `e`."""
    match e:
        case ir.Elem():
            return e.array.fields[e.index] if e.array.fields else e.array.name
        case ir.Var():
            return e.name
        case ir.Op(op="cast"):
            return hint(e.args[0])
    return "t"


class Expressions:
    """Lowers expressions. Subclasses provide `scope`, `out`, `instance`, and `call()` for calls that have a value."""

    program: CheckedProgram
    storage: value_trees.Storage
    scope: dict[int, Any]
    instance: Instance
    out: list[ir.Stmt]
    error_index: dict[str, int]
    created: dict[int, Header]  # headers that can become valid without being extracted
    here: Span | None = None  # the source of the statement being lowered
    statements: int  # so far
    sliced: dict[int, int]  # low bits that the program uses of a call's result, by the call's id

    # --- small services ---------------------------------------------------------------------------------------------

    def unsupported(self, node: ast.Node, feature: str, *notes: str) -> CompileError:
        return CompileError(node.span, f"{feature} is not supported by this back end", notes)

    def temp(self, width: int, signed: bool = False, name: str = "t") -> ir.Var:
        return ir.Var(name, width, signed)

    def emit(self, stmt: ir.Stmt) -> None:
        stmt.origin = self.here
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            raise CompileError(
                self.here or NO_SPAN,
                f"the program has more than {MAX_STATEMENTS:,} statements once its calls are replaced by what they call",
                ["a table that is applied, or a control or action that is called, in many places is there as many times"],
            )
        self.out.append(stmt)

    def stable(self, e: ir.Expr) -> ir.Expr:
        """Returns `e` in a form that later assignments do not change."""
        if isinstance(e, ir.Const):
            return e
        t = self.temp(e.width, e.signed, hint(e))
        self.emit(ir.Assign(t, e))
        return t

    def in_order(
        self, parts: Iterable[Callable[[], Any]], keep: Callable[[int, Any], Any] | None = None
    ) -> list[Any]:
        """Returns the results of `parts`, evaluated from the first to the last; later parts do not change earlier results.
        `keep` replaces a result that they might change (default: by a copy of its value)."""
        values: list[Any] = []
        effects = [self.block(lambda part=part: values.append(part())) for part in parts]
        for i, statements in enumerate(effects):
            self.out += statements
            if any(effects[i + 1 :]) and not isinstance(values[i], ir.Const | Instance | str):
                values[i] = keep(i, values[i]) if keep else self._snapshot(self.read(values[i]))
        return values

    def block(self, lower: Any) -> list[ir.Stmt]:
        """Returns the statements that `lower()` emits."""
        saved, self.out = self.out, []
        try:
            lower()
            return self.out
        finally:
            self.out = saved

    # --- constants and defaults -------------------------------------------------------------------------------------

    def constant(self, value: Any, t: types.Type, node: ast.Node) -> Any:
        """Returns the value tree of a compile-time constant."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            if isinstance(t, types.ErrorType):
                value = self.error_index[value]
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
        raise self.unsupported(node, f"a constant of type {t}")

    def default(self, t: types.Type) -> Any:
        """Returns a value with all bits zero and headers invalid."""
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape:
            return fold.const(0, *shape)
        match t:
            case types.HeaderType():
                return Header(t, {f.name: self.default(f.type) for f in t.fields.values()}, fold.FALSE)
            case types.UnionType():
                return Union(t, {f.name: self.default(f.type) for f in t.fields.values()})
            case types.RecordType():
                return Record(t, {f.name: self.default(f.type) for f in t.fields.values()})
            case types.StackType():
                return Stack(t, [self.default(t.element) for _ in range(t.size)])
            case types.TupleType():
                return Sequence(t, [self.default(e) for e in t.elements])
            case types.VarbitType():
                return Varbit(t, fold.const(0, max(1, t.max_width)), fold.const(0, 32))
        raise TypeError(str(t))

    # --- expressions ------------------------------------------------------------------------------------------------

    def scalar(self, e: ast.Expr) -> ir.Expr:
        """Returns the value of an expression of scalar type."""
        value = self.value(e)
        if isinstance(value, Choice | SliceOf):
            read: ir.Expr = self.read(value)
            return read
        if not isinstance(value, ir.Expr):
            raise self.unsupported(e, f"a value of type {e.type} here")
        return value

    def shape(self, t: types.Type, node: ast.Node) -> tuple[int, bool]:
        """Returns (width, signed) of a type that must be one scalar."""
        shape = value_trees.scalar_shape(t)
        if shape is None:
            raise self.unsupported(node, f"a value of type {t} here")
        return shape

    def read(self, place: Any) -> Any:
        """Returns a place as a value: choices become conditional expressions."""
        if isinstance(place, SliceOf):
            return fold.slice_bits(self.read(place.base), place.hi, place.lo)
        if not isinstance(place, Choice):
            return place
        items = [self.read(item) for item in place.items]
        first = items[0]
        if isinstance(first, ir.Expr):
            result: ir.Expr = fold.const(0, first.width, first.signed)
            for i in reversed(range(len(items))):
                result = fold.cond(fold.eq(place.index, fold.const(i, place.index.width)), items[i], result)
            return result

        def pick(parts: list[Any]) -> Any:
            return self.read(Choice(place.index, parts))

        match first:
            case Header():
                fields = {n: pick([i.fields[n] for i in items]) for n in first.fields}
                return Header(first.type, fields, pick([i.valid for i in items]))
            case Record():
                return Record(first.type, {n: pick([i.fields[n] for i in items]) for n in first.fields})
            case Union():
                return Union(first.type, {n: pick([i.fields[n] for i in items]) for n in first.fields})
            case Sequence():
                return Sequence(first.type, [pick([i.items[k] for i in items]) for k in range(len(first.items))])
            case Stack():
                return Stack(first.type, [pick([i.items[k] for i in items]) for k in range(len(first.items))])
            case Varbit():
                return Varbit(first.type, pick([i.bits for i in items]), pick([i.size for i in items]))
        raise TypeError(type(first).__name__)

    def value(self, e: ast.Expr) -> Any:
        """Returns the value tree of an expression (a place where it is one)."""
        if e.const is not None and not isinstance(e.type, types.StringType):
            return self.constant(e.const, e.type, e)
        match e:
            case ast.Name() | ast.Index() | ast.Slice():
                return self.lvalue(e)
            case ast.Member():
                return self._member(e)
            case ast.Unary():
                return self._unary(e)
            case ast.Binary():
                return self._binary(e)
            case ast.Ternary():
                return self._ternary(e)
            case ast.Cast():
                return self._cast(e)
            case ast.ListExpr() | ast.StructInit():
                return self._aggregate(e)
            case ast.InvalidHeader() | ast.Dots():
                return self.default(e.type)
            case ast.Call():
                return self.call(e)
        raise self.unsupported(e, f"this expression ({type(e).__name__})")

    def call(self, e: ast.Call) -> Any:
        raise TypeError("defined in lower/calls.py")

    def settled_value(self, e: ast.Expr) -> Any:
        """Returns the value tree of an expression, without choices."""
        return self.read(self.value(e))

    def _unary(self, e: ast.Unary) -> ir.Expr:
        a = self.scalar(e.operand)
        match e.op:
            case "!":
                return fold.lnot(a)
            case "~":
                return ir.Op("not", (a,), a.width, a.signed)
            case "-":
                return ir.Op("neg", (a,), a.width, a.signed)
        return a

    def _binary(self, e: ast.Binary) -> ir.Expr:
        if e.op in ("&&", "||"):
            return self._short_circuit(e)
        if value_trees.scalar_shape(e.left.type) is None and not isinstance(e.left.type, types.InfIntType):
            left, right = self.in_order([lambda: self.value(e.left), lambda: self.value(e.right)])
            equal = self.equal(left, right, e)
            return equal if e.op == "==" else fold.lnot(equal)
        a, b = self.in_order([lambda: self.scalar(e.left), lambda: self.scalar(e.right)])
        if e.op == "++":  # as signed as its left operand (§8.6)
            return fold.cast(fold.concat([a, b]), a.width + b.width, a.signed)
        name = BINARY[e.op]
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            return ir.Op(name, (a, b), 1)
        if name == "add":
            return fold.add(a, b)
        return ir.Op(name, (a, b), a.width, a.signed)

    def _short_circuit(self, e: ast.Binary) -> ir.Expr:
        a = self.scalar(e.left)
        b: list[ir.Expr] = []
        inner = self.block(lambda: b.append(self.scalar(e.right)))
        if not inner:
            return fold.land(a, b[0]) if e.op == "&&" else fold.lor(a, b[0])
        result = self.temp(1)
        self.emit(ir.Assign(result, a))
        inner.append(ir.Assign(result, b[0]))
        self.emit(ir.If(result, inner) if e.op == "&&" else ir.If(fold.lnot(result), inner))
        return result

    def _ternary(self, e: ast.Ternary) -> Any:
        c = self.scalar(e.condition)
        values: list[Any] = []
        then = self.block(lambda: values.append(self.value(e.then)))
        otherwise = self.block(lambda: values.append(self.value(e.otherwise)))
        a, b = (self.read(v) for v in values)
        if isinstance(a, ir.Expr) and not then and not otherwise:
            return fold.cond(c, a, b)
        result = self.storage.place(e.type, "t")
        then += self.block(lambda: self.assign(result, a, e))
        otherwise += self.block(lambda: self.assign(result, b, e))
        self.emit(ir.If(c, then, otherwise))
        return result

    def _cast(self, e: ast.Cast) -> Any:
        source, target = e.operand.type, e.type
        shape = value_trees.scalar_shape(target)
        if shape is None:
            return self.value(e.operand)
        if isinstance(source, types.InfIntType) and e.operand.const is not None:
            return fold.const(e.operand.const, *shape)
        return fold.cast(self.scalar(e.operand), *shape)

    def _aggregate(self, e: ast.ListExpr | ast.StructInit) -> Any:
        t = types.strip_new(e.type)
        values = self.in_order([partial(self.settled_value, v) for v in e.values])
        match t:
            case types.HeaderType():
                return Header(t, dict(zip(t.fields, values, strict=True)), fold.TRUE)
            case types.UnionType():
                return Union(t, dict(zip(t.fields, values, strict=True)))
            case types.RecordType():
                return Record(t, dict(zip(t.fields, values, strict=True)))
            case types.StackType():
                return Stack(t, values)
        return Sequence(t, values)

    def equal(self, a: Any, b: Any, node: ast.Node) -> ir.Expr:
        """Returns the equality of composites (§8.10): headers are equal if both are invalid, or both valid with equal fields."""
        a, b = self.read(a), self.read(b)
        if isinstance(a, ir.Expr):
            return fold.eq(a, b)
        result: ir.Expr = fold.TRUE
        for x, y in zip(value_trees.members(a), value_trees.members(b), strict=True):
            result = fold.land(result, self.equal(x, y, node))
        if isinstance(a, Header):
            both = fold.land(fold.land(a.valid, b.valid), result)
            return fold.lor(fold.land(fold.lnot(a.valid), fold.lnot(b.valid)), both)
        return result

    # --- members and lvalues ----------------------------------------------------------------------------------------

    def lvalue(self, e: ast.Expr) -> Any:
        """Returns the place that an lvalue names. Index expressions are evaluated now."""
        match e:
            case ast.Name():
                place = self.scope.get(id(e.decl))
                if place is None:
                    raise self.unsupported(e, f"'{e.name}' as a value")
                return place
            case ast.Member():
                return self._member(e)
            case ast.Index():
                base = (
                    self.read(self.value(e.base))
                    if not isinstance(e.base, ast.Name | ast.Member)
                    else self.value(e.base)
                )
                if not isinstance(base, Stack | Sequence):
                    raise self.unsupported(e, f"indexing a value of type {e.base.type}")
                if e.index.const is not None:
                    if e.index.const >= len(base.items):
                        raise CompileError(e.index.span, f"index {e.index.const} is outside {e.base.type}")
                    return base.items[e.index.const]
                index = self.stable(
                    fold.cast(self.scalar(e.index), 32) if self._fits(e.index) else self.scalar(e.index)
                )
                return Choice(index, base.items)
            case ast.Slice():
                if isinstance(e.base, ast.Call):
                    self.sliced[id(e.base)] = e.hi_bit + 1
                return SliceOf(self.value(e.base), e.hi_bit, e.lo_bit)
        return self.value(e)

    def _fits(self, e: ast.Expr) -> bool:
        shape = value_trees.scalar_shape(e.type)
        return shape is not None and shape[0] <= 32

    def _member(self, e: ast.Member) -> Any:
        match e.kind:
            case "field":
                return self.select(self.value(e.base), lambda v: v.fields[e.member])
            case "hit" | "miss" | "action_run":
                assert isinstance(e.base, ast.Call)
                result = self.apply_table(e.base)
                return {"hit": result.hit, "miss": fold.lnot(result.hit), "action_run": result.action}[e.kind]
            case "next" | "last" | "lastIndex" | "size":
                return self.stack_member(e)
        raise self.unsupported(e, f"'.{e.member}' here")

    def select(self, value: Any, pick: Any) -> Any:
        """Applies `pick` to a value, or to every item of a choice."""
        if isinstance(value, Choice):
            return Choice(value.index, [self.select(item, pick) for item in value.items])
        return pick(value)

    def stack_member(self, e: ast.Member) -> Any:
        stack = self.value(e.base)
        if not isinstance(stack, Stack) or stack.next is None:
            raise self.unsupported(e, f"'.{e.member}' of this stack")
        if e.member == "size":
            return fold.const(len(stack.items), 32)
        last = ir.Op("sub", (stack.next, fold.const(1, 32)), 32)
        if e.member == "lastIndex":
            return last
        out_of_bounds = self.error_index["StackOutOfBounds"]
        if e.member == "next":
            self.check_parser(ir.Op("lt", (stack.next, fold.const(len(stack.items), 32)), 1), out_of_bounds, e)
            return Choice(stack.next, stack.items)
        self.check_parser(ir.Op("ne", (stack.next, fold.const(0, 32)), 1), out_of_bounds, e)
        return Choice(self.stable(last), stack.items)

    def check_parser(self, condition: ir.Expr, error: int, node: ast.Node) -> None:
        raise TypeError("defined in lower/parser.py")

    def apply_table(self, e: ast.Call) -> Any:
        raise TypeError("defined in lower/tables.py")

    # --- assignment -------------------------------------------------------------------------------------------------

    def assign(self, place: Any, value: Any, node: ast.Node) -> None:
        """Copies a value to a place of the same type."""
        if isinstance(place, SliceOf):
            self._assign_slice(place, self.read(value), node)
            return
        if isinstance(place, Choice):
            value = self._snapshot(self.read(value))
            for i, item in enumerate(place.items):
                body = self.block(lambda item=item: self.assign(item, value, node))
                self.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))
            return
        value = self.read(value)
        if isinstance(place, ir.Var | ir.Elem):
            if place is not value:
                self.emit(ir.Assign(place, value))
            return
        if place is value:
            return
        if not isinstance(value, type(place)):
            if isinstance(value, Sequence):  # a tuple typed by its context
                for part, v in zip(value_trees.members(place), value.items, strict=True):
                    self.assign(part, v, node)
                return
            raise self.unsupported(node, "this assignment")
        if self._overlap(place, value):
            value = self._snapshot(value)
        if isinstance(place, Header):
            self._assign_header(place, value, node)
            self.leave_alone(place)  # last: `value` may be another header of the union
            return
        if isinstance(place, Union):  # copied as a whole: at most one of its headers is valid
            for part, v in zip(value_trees.members(place), value_trees.members(value), strict=True):
                self._assign_header(part, v, node)
            return
        for part, v in zip(value_trees.members(place), value_trees.members(value), strict=True):
            self.assign(part, v, node)
        if isinstance(place, Stack) and place.next is not None and value.next is not None:
            self.emit(ir.Assign(place.next, value.next))

    def _assign_header(self, place: Header, value: Header, node: ast.Node) -> None:
        region = place.region
        self.created[id(place)] = place
        if region and value.region and value.region.size == region.size:
            region.own_buffer = True
            self.emit(ir.Extern("copy_region", [place.flag], [value.valid], (region, value.region)))
        else:
            if region:
                region.own_buffer = True
                self.emit(ir.Extern("fresh_region", [], [], region))
            for name, field in place.fields.items():
                self.assign(field, value.fields[name], node)
            self.emit(ir.Assign(place.flag, value.valid))

    def leave_alone(self, header: Header) -> None:
        """Makes the other headers of its union invalid, after a header has become valid or invalid (§8.20)."""
        if header.union is not None:
            for other in header.union.fields.values():
                if other is not header:
                    self.emit(ir.Assign(other.flag, fold.FALSE))

    def _assign_slice(self, place: SliceOf, value: ir.Expr, node: ast.Node) -> None:
        base, hi, lo = place.base, place.hi, place.lo
        while isinstance(base, SliceOf):
            hi, lo, base = hi + base.lo, lo + base.lo, base.base
        old = self.read(base)
        width = old.width
        mask = ((1 << (hi - lo + 1)) - 1) << lo
        rest = ir.Op("and", (old, fold.const(~mask, width, old.signed)), width, old.signed)
        moved: ir.Expr = fold.cast(fold.cast(value, value.width), width, old.signed)
        if lo:
            moved = ir.Op("shl", (moved, fold.const(lo, 32)), width, old.signed)
        self.assign(base, ir.Op("or", (rest, moved), width, old.signed), node)

    def _overlap(self, place: Any, value: Any) -> bool:
        """Returns True if writing `place` part by part could change `value` before it is read."""
        if not isinstance(value, value_trees.COMPOSITE):
            return False
        written = {
            id(v) if isinstance(v, ir.Var) else (id(v.array), v.index)
            for v in value_trees.leaves(place)
            if isinstance(v, ir.Var | ir.Elem)
        }
        for leaf in value_trees.leaves(value):
            if isinstance(leaf, ir.Expr):
                for part in ir.leaves(leaf):
                    key = (id(part.array), part.index) if isinstance(part, ir.Elem) else id(part)
                    if key in written:
                        return True
        return False

    def _snapshot(self, value: Any) -> Any:
        """Returns a copy of the value, in temporaries."""
        match value:
            case ir.Expr():
                return self.stable(value)
            case Header():
                fields = {n: self._snapshot(v) for n, v in value.fields.items()}
                return Header(value.type, fields, self.stable(value.valid))
            case Record():
                return Record(value.type, {n: self._snapshot(v) for n, v in value.fields.items()})
            case Union():
                return Union(value.type, {n: self._snapshot(v) for n, v in value.fields.items()})
            case Stack():
                return Stack(value.type, [self._snapshot(v) for v in value.items])
            case Sequence():
                return Sequence(value.type, [self._snapshot(v) for v in value.items])
            case Varbit():
                return Varbit(value.type, self.stable(value.bits), self.stable(value.size))
        raise TypeError(type(value).__name__)
