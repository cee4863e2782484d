"""Lowering of methods of headers and header stacks."""

from __future__ import annotations

from functools import partial

from ina.p4.compiler import ast, fold, ir
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.expressions import Expressions
from ina.p4.compiler.lower.value_trees import Choice, Value


class Headers:
    def __init__(self, expressions: Expressions) -> None:
        self.expressions, self.values, self.code = expressions, expressions.values, expressions.code

    def header_method(self, e: ast.Call) -> Value | None:
        place = self.expressions.lvalue(e.on)
        if e.method == "isValid":
            return self.values.read(self.values.select(place, self.values.is_valid))
        if isinstance(place, Choice):
            for i, item in enumerate(place.items):
                body = self.code.block(partial(self.values.set_valid, value_trees.header(item), e.method == "setValid"))
                self.code.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))
            return None
        self.values.set_valid(value_trees.header(place), e.method == "setValid")
        return None

    def stack_method(self, e: ast.Call) -> None:
        stack = self.expressions.lvalue(e.on)
        if not isinstance(stack, value_trees.Stack):
            raise unsupported(e, f"{e.method} on this stack")
        count, size = e.given(0).const, len(stack.items)
        count = min(count, size)
        order = range(size - 1, count - 1, -1) if e.method == "push_front" else range(size - count)
        for i in order:
            self.values.assign(stack.items[i], stack.items[i - count if e.method == "push_front" else i + count], e)
        for i in range(count) if e.method == "push_front" else range(size - count, size):
            for header in value_trees.headers(stack.items[i]):
                self.values.reset(header, e)
        if stack.next is None:
            return
        limit, amount = fold.const(size, 32), fold.const(count, 32)
        if e.method == "push_front":
            moved = fold.add(stack.next, amount)
            self.code.emit(ir.Assign(stack.next, fold.cond(ir.Op("gt", (moved, limit), 1), limit, moved)))
        else:
            less = ir.Op("sub", (stack.next, amount), 32)
            self.code.emit(ir.Assign(stack.next, fold.cond(ir.Op("lt", (stack.next, amount), 1), fold.const(0, 32), less)))
