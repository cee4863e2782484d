"""Lowering of expressions and lvalues: checked AST to IR scalars and places."""

from __future__ import annotations

from functools import partial

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import Context, TableResult, unsupported
from ina.p4.compiler.lower.value_trees import Choice, Header, Record, Sequence, SliceOf, Stack, Union, Value
from ina.p4.compiler.lower.values import Values

BINARY: dict[str, ir.Operator] = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "|+|": "satadd", "|-|": "satsub", "&": "and", "|": "or",
    "^": "xor", "<<": "shl", ">>": "shr", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}


class Expressions:
    """Lowers expressions; statements with their effects go before them."""

    def __init__(self, context: Context, values: Values) -> None:
        self.context, self.code, self.values = context, context.code, values

    def scalar(self, e: ast.Expr) -> ir.Expr:
        """Returns the value of an expression of scalar type."""
        value = self.value(e)
        if isinstance(value, Choice | SliceOf):
            return self.values.scalar(value)
        if not isinstance(value, ir.Expr):
            raise unsupported(e, f"a value of type {e.type} here")
        return value

    def value(self, e: ast.Expr) -> Value:
        """Returns the value tree of an expression (a place where it is one)."""
        if e.const is not None and not isinstance(e.type, types.StringType):
            return self.values.constant(e.const, e.type, e)
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
                return self.values.default(e.type)
            case ast.Call():
                value = self.context.call(e)
                assert value is not None and not isinstance(value, TableResult)
                return value
        raise unsupported(e, f"this expression ({type(e).__name__})")

    def settled_value(self, e: ast.Expr) -> Value:
        """Returns the value tree of an expression, without choices."""
        return self.values.read(self.value(e))

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
        result = self._operation(e)
        for operand in (e.left, e.right) if self.context.validity and e.op == "==" else ():
            if isinstance(operand, ast.Member) and operand.kind == "field":
                flag = self.context.validity.get(self.value(operand))
                result = result if flag is None else fold.land(result, flag)
        return result

    def _operation(self, e: ast.Binary) -> ir.Expr:
        if e.op in ("&&", "||"):
            return self._short_circuit(e)
        if value_trees.scalar_shape(e.left.type) is None and not isinstance(e.left.type, types.InfIntType):
            left, right = self.values.in_order([lambda: self.value(e.left), lambda: self.value(e.right)])
            equal = self.values.equal(left, right, e)
            return equal if e.op == "==" else fold.lnot(equal)
        a, b = self.values.in_order([lambda: self.scalar(e.left), lambda: self.scalar(e.right)])
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
        inner = self.code.block(lambda: b.append(self.scalar(e.right)))
        if not inner:
            return fold.land(a, b[0]) if e.op == "&&" else fold.lor(a, b[0])
        result = self.code.temp(1)
        self.code.emit(ir.Assign(result, a))
        inner.append(ir.Assign(result, b[0]))
        self.code.emit(ir.If(result, inner) if e.op == "&&" else ir.If(fold.lnot(result), inner))
        return result

    def _ternary(self, e: ast.Ternary) -> Value:
        c = self.scalar(e.condition)
        values: list[Value] = []
        then = self.code.block(lambda: values.append(self.value(e.then)))
        otherwise = self.code.block(lambda: values.append(self.value(e.otherwise)))
        a, b = (self.values.read(v) for v in values)
        if isinstance(a, ir.Expr) and isinstance(b, ir.Expr) and not then and not otherwise:
            return fold.cond(c, a, b)
        result = self.context.storage.place(e.type, "t")
        then += self.code.block(lambda: self.values.assign(result, a, e))
        otherwise += self.code.block(lambda: self.values.assign(result, b, e))
        self.code.emit(ir.If(c, then, otherwise))
        return result

    def _cast(self, e: ast.Cast) -> Value:
        source, target = e.operand.type, e.type
        shape = value_trees.scalar_shape(target)
        if shape is None:
            return self.value(e.operand)
        if isinstance(source, types.InfIntType) and e.operand.const is not None:
            return fold.const(e.operand.const, *shape)
        return fold.cast(self.scalar(e.operand), *shape)

    def _aggregate(self, e: ast.ListExpr | ast.StructInit) -> Value:
        t = types.strip_new(e.type)
        values = self.values.in_order([partial(self.settled_value, v) for v in e.values])
        match t:
            case types.HeaderType():
                return Header(t, dict(zip(t.fields, values, strict=True)), fold.TRUE)
            case types.UnionType():
                return Union(t, dict(zip(t.fields, map(value_trees.header, values), strict=True)))
            case types.RecordType():
                return Record(t, dict(zip(t.fields, values, strict=True)))
            case types.StackType():
                return Stack(t, values)
        return Sequence(t, values)

    def lvalue(self, e: ast.Expr) -> Value:
        """Returns the place that an lvalue names. Index expressions are evaluated now."""
        match e:
            case ast.Name():
                place = self.context.scope.get(e.decl)
                if place is None or isinstance(place, Instance | str):
                    raise unsupported(e, f"'{e.name}' as a value")
                return place
            case ast.Member():
                return self._member(e)
            case ast.Index():
                base = self.value(e.base)
                if not isinstance(e.base, ast.Name | ast.Member):
                    base = self.values.read(base)
                if not isinstance(base, Stack | Sequence):
                    raise unsupported(e, f"indexing a value of type {e.base.type}")
                if e.index.const is not None:
                    if e.index.const >= len(base.items):
                        raise CompileError(e.index.span, f"index {e.index.const} is outside {e.base.type}")
                    item: Value = base.items[e.index.const]
                    return item
                index = self.scalar(e.index)
                return Choice(self.code.stable(fold.cast(index, 32) if index.width <= 32 else index), base.items)
            case ast.Slice():
                if isinstance(e.base, ast.Call):
                    self.context.sliced[e.base] = e.hi_bit + 1
                return SliceOf(self.value(e.base), e.hi_bit, e.lo_bit)
        return self.value(e)

    def _member(self, e: ast.Member) -> Value:
        match e.kind:
            case "field":
                return self.values.select(self.value(e.base), lambda v: value_trees.part(v, e.member))
            case "hit" | "miss" | "action_run":
                assert isinstance(e.base, ast.Call)
                result = self.context.call(e.base)
                assert isinstance(result, TableResult)
                return {"hit": result.hit, "miss": fold.lnot(result.hit), "action_run": result.action}[e.kind]
            case "next" | "last" | "lastIndex" | "size":
                return self._stack_member(e)
        raise unsupported(e, f"'.{e.member}' here")

    def _stack_member(self, e: ast.Member) -> Value:
        stack = self.value(e.base)
        if not isinstance(stack, Stack) or stack.next is None:
            raise unsupported(e, f"'.{e.member}' of this stack")
        if e.member == "size":
            return fold.const(len(stack.items), 32)
        last = ir.Op("sub", (stack.next, fold.const(1, 32)), 32)
        if e.member == "lastIndex":
            return last
        if e.member == "next":
            self.context.check_parser(ir.Op("lt", (stack.next, fold.const(len(stack.items), 32)), 1), "StackOutOfBounds", e)
            return Choice(stack.next, stack.items)
        self.context.check_parser(ir.Op("ne", (stack.next, fold.const(0, 32)), 1), "StackOutOfBounds", e)
        return Choice(self.code.stable(last), stack.items)

    def result(self, e: ast.Call, i: int) -> Value:
        """Returns the place of an `out` argument; for `_`, an unused one (§8.26)."""
        arg = e.args[i]
        return self.context.storage.place(e.params[i].type, "unused") if arg is None else self.lvalue(arg)
