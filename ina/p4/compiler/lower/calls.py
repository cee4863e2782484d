"""Inlining: actions, functions, sub-controls, and dispatch of calls to methods and externs.

Arguments are bound by reference where the program cannot notice, else copied in and out (P4_16 v1.2.5 §6.8): an `in`
argument is used in place of the parameter when no out/inout argument overlaps it; actions see the variables around
them, so their scalars are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.statements import Statements
from ina.p4.compiler.lower.value_trees import Choice, Header, SliceOf, Union


@dataclass(slots=True)
class Frame:
    """One inlined callable. `label`: the target of `return`; `copy_out`: the copies of `out` parameters, made on every
    way out."""

    label: str
    result: Any = None
    label_used: bool = False
    copy_out: list[Callable[[], None]] = field(default_factory=list)


def has_effects(e: ast.Expr) -> bool:
    """Returns True if evaluating `e` may have side effects: it calls something other than `isValid`."""
    match e:
        case ast.Call():
            harmless = e.kind == "header_method" and e.method == "isValid"
            return not harmless or any(has_effects(a) for a in e.args if a is not None)
        case ast.Unary() | ast.Cast():
            return has_effects(e.operand)
        case ast.Binary():
            return has_effects(e.left) or has_effects(e.right)
        case ast.Ternary():
            return any(has_effects(part) for part in (e.condition, e.then, e.otherwise))
        case ast.Member() | ast.Slice():
            return has_effects(e.base)
        case ast.Index():
            return has_effects(e.base) or has_effects(e.index)
        case ast.ListExpr() | ast.StructInit():
            return any(has_effects(value) for value in e.values)
    return False


@dataclass(frozen=True, slots=True)
class CopiedIn:
    """An `inout` argument that was copied before later arguments were evaluated: its place, and the copy, which the call uses."""

    place: Any
    copied: Any


class Calls(Statements):
    settled_calls: list[ast.Call]

    def call(self, e: ast.Call) -> Any:
        """Lowers a call; the result is a value tree, None for void."""
        match e.kind:
            case "action":
                return self.inline(e.decl.params, e.args, e, lambda: self.body(e.decl.body), by_reference=False)
            case "function":
                result = (
                    None
                    if isinstance(e.decl.return_type, types.VoidType)
                    else self.storage.place(e.decl.return_type, "result")
                )
                self.inline(e.decl.params, e.args, e, lambda: self.body(e.decl.body), result=result)
                return result
            case "control_apply":
                return self.apply_control(self.resolve_instance(e.receiver), e)
            case "parser_apply":
                return self.apply_parser(self.resolve_instance(e.receiver), e)
            case "table_apply":
                return self.apply_table(e)
            case "header_method":
                return self.header_method(e)
            case "stack_method":
                return self.stack_method(e)
            case "packet_in":
                return self.packet_in(e)
            case "packet_out":
                return self.packet_out(e)
            case "extern_function":
                return self.extern_function(self.settled(e))
            case "method":
                return self.extern_method(self.settled(e), self.resolve_instance(e.receiver))
        raise self.unsupported(e, f"a call of kind {e.kind}")

    def resolve_instance(self, receiver: ast.Expr | None) -> Instance:
        """Returns the object that a receiver names."""
        assert isinstance(receiver, ast.Name)
        decl = receiver.decl
        if isinstance(decl, ast.Param):
            instance = self.scope.get(id(decl)) if not decl.is_ctor else self.instance.args.get(decl.name)
        else:
            instance = self.instance.children.get(decl.name)
            if instance is None or instance.site is not decl:
                instance = self.program.globals.get(decl.name, instance)
        if not isinstance(instance, Instance):
            raise self.unsupported(receiver, f"'{receiver.name}' as an object")
        return instance

    # --- inlining ---------------------------------------------------------------------------------------------------

    def inline(
        self, params: list[ast.Param], args: list[ast.Expr | None], call: ast.Call, body: Callable[[], None], *,
        by_reference: bool = True, result: Any = None,
    ) -> None:  # fmt: skip
        values = self.arguments(params, args, call)
        self.inline_values(params, values, call, body, by_reference=by_reference, result=result)

    def arguments(self, params: list[ast.Param], args: list[ast.Expr | None], call: ast.Call) -> list[Any]:
        """Returns values and places for parameters, evaluated as written: named arguments may stand in another order."""
        order = list(range(len(params)))
        names = [p.name for p in params]
        if any(a.name for a in call.arguments):
            written = [names.index(a.name) if a.name else i for i, a in enumerate(call.arguments)]
            order = written + [i for i in order if i not in written]
        parts = [partial(self._argument, params[i], args[i], call) for i in order]
        evaluated = self.in_order(parts, lambda at, value: self._saved_argument(params[order[at]], value, call))
        values: list[Any] = [None] * len(params)
        for i, value in zip(order, evaluated, strict=True):
            values[i] = value
        return values

    def _argument(self, param: ast.Param | types.Parameter, arg: ast.Expr | None, node: ast.Node) -> Any:
        if isinstance(types.strip_new(param.type), types.ExternType):
            return (
                self.scope[id(arg.decl)]
                if isinstance(arg, ast.Name) and id(arg.decl) in self.scope
                else self.resolve_instance(arg)
            )
        if arg is None:
            return self.storage.place(param.type, param.name)
        return self.lvalue(arg) if param.direction in ("out", "inout") else self.value(arg)

    def _saved_argument(self, param: ast.Param | types.Parameter, value: Any, node: ast.Node) -> Any:
        """Returns a copy of an argument that later ones might change: of `inout`, its place and its value (§6.8)."""
        if param.direction == "out":
            return value
        if param.direction != "inout":
            return self._snapshot(self.read(value))
        copied = self.storage.place(param.type, param.name)
        self.assign(copied, value, node)
        return CopiedIn(value, copied)

    def result(self, e: ast.Call, i: int) -> Any:
        """Returns the place of an `out` argument; for `_`, an unused one (§8.26)."""
        arg = e.args[i]
        return self.storage.place(e.params[i].type, "unused") if arg is None else self.lvalue(arg)

    def settled(self, e: ast.Call) -> ast.Call:
        """Returns a call of an extern whose arguments have been evaluated as written, if one of them makes a call that may
        change what others read: its arguments are names of their values and places. Otherwise returns `e` itself, whose
        arguments mean the same in any order."""
        args = {i: arg for i, arg in enumerate(e.args) if arg is not None}
        if len(args) < 2 or not any(map(has_effects, args.values())):
            return e
        positions = {a.name: at for at, a in enumerate(e.arguments) if a.name}
        order = sorted(args, key=lambda i: positions.get(e.params[i].name, i))
        parts = [partial(self._argument, e.params[i], args[i], e) for i in order]
        outs = {at for at, i in enumerate(order) if e.params[i].direction in ("out", "inout")}
        values = self.in_order(parts, lambda at, value: value if at in outs else self._snapshot(self.read(value)))
        settled = copy(e)
        settled.args = list(e.args)
        for i, value in zip(order, values, strict=True):
            arg = args[i]
            if arg.const is None and not isinstance(value, Instance | str):
                name = ast.Name(arg.span, ast.source_text(arg))
                name.type, name.decl = arg.type, name
                self.scope[id(name)] = value
                settled.args[i] = name
        self.settled_calls.append(settled)  # alive as long as the scope, which finds names by id
        return settled

    def inline_values(
        self, params: list[ast.Param], values: list[Any], node: ast.Node, body: Callable[[], None], *,
        by_reference: bool = True, result: Any = None,
    ) -> None:  # fmt: skip
        """Binds `values` to `params` and lowers `body` in place."""
        frame = Frame(self.new_label("return"), result)
        written: list[set[int]] = [
            self._keys(v.place if isinstance(v, CopiedIn) else v) if p.direction in ("out", "inout") else set()
            for p, v in zip(params, values, strict=True)
        ]
        bindings: dict[int, Any] = {}
        # Values are copied before any `out` place is reset, which one of them may read.
        for i in sorted(range(len(params)), key=lambda i: params[i].direction in ("out", "inout")):
            param, value = params[i], values[i]
            others = set().union(*(w for k, w in enumerate(written) if k != i))
            plain = by_reference and not isinstance(value, Choice | SliceOf)
            if isinstance(value, Instance | str | ir.Const):
                bindings[id(param)] = value
            elif isinstance(value, CopiedIn):
                bindings[id(param)] = value.copied
                frame.copy_out.append(partial(self.assign, value.place, value.copied, node))
            elif param.direction in ("out", "inout"):
                # A header of a union is assigned when the call ends, and only then are the others invalid (§8.20).
                shared = plain and not others & written[i] and not (isinstance(value, Header) and value.union)
                bindings[id(param)] = self._bind_out(param, value, frame, shared, node)
            elif plain and not self._keys(value) & others:
                bindings[id(param)] = value
            else:
                place = bindings[id(param)] = self.storage.place(param.type, param.name)
                self.assign(place, value, node)
        self.scope |= bindings
        self.frames.append(frame)
        body()
        # A return at the very end needs no jump.
        while self.out and isinstance(self.out[-1], ir.Goto) and self.out[-1].label == frame.label:
            self.out.pop()
        if (
            any(isinstance(s, ir.Goto) and s.label == frame.label for s in ir.walk(self.out))
            if frame.label_used
            else False
        ):
            self.emit(ir.Label(frame.label))
        self.frames.pop()
        for copy_out in frame.copy_out:
            copy_out()

    def _bind_out(self, param: ast.Param, value: Any, frame: Frame, shared: bool, node: ast.Node) -> Any:
        if shared:
            if param.direction == "out":
                self.reset(value, node)
            return value
        place = self.storage.place(param.type, param.name)
        if param.direction == "inout":
            self.assign(place, value, node)
        else:
            self.reset(place, node)
        frame.copy_out.append(lambda: self.assign(value, place, node))
        return place

    def reset(self, place: Any, node: ast.Node) -> None:
        """Assigns an `out` parameter's or variable's first value: zero, headers invalid."""
        if isinstance(place, Choice):
            self.assign(place, self.read_default(place), node)
        elif isinstance(place, ir.Var | ir.Elem):
            self.emit(ir.Assign(place, fold.const(0, place.width, place.signed)))
        elif isinstance(place, SliceOf):
            self.assign(place, fold.const(0, place.hi - place.lo + 1), node)
        elif isinstance(place, Header) and place.region:
            self.emit(ir.Assign(place.flag, fold.FALSE))
            self.emit(ir.Extern("clear_region", [], [], place.region))
        else:
            if isinstance(place, Header):
                self.emit(ir.Assign(place.flag, fold.FALSE))
            if isinstance(place, value_trees.Stack) and place.next is not None:
                self.emit(ir.Assign(place.next, fold.const(0, 32)))
            for part in value_trees.members(place):
                self.reset(part, node)

    def read_default(self, place: Choice) -> Any:
        first = place.items[0]
        return fold.const(0, first.width, first.signed) if isinstance(first, ir.Expr) else self.default(first.type)

    def _keys(self, value: Any) -> set[int]:
        """Returns keys of what a value reads (or a place writes), for the overlap test."""
        keys: set[int] = set()
        if isinstance(value, Choice):
            return set().union(*(self._keys(i) for i in value.items)) | self._keys(value.index)
        if isinstance(value, SliceOf):
            return self._keys(value.base)
        for leaf in value_trees.leaves(value):
            if isinstance(leaf, Choice | SliceOf):
                keys |= self._keys(leaf)
            elif isinstance(leaf, ir.Expr):
                for part in ir.leaves(leaf):
                    keys.add(hash((id(part.array), part.index)) if isinstance(part, ir.Elem) else id(part))
        return keys

    def body(self, block: ast.Block) -> None:
        for statement in block.statements:
            self.statement(statement)

    def apply_control(self, instance: Instance, e: ast.Call) -> None:
        decl: ast.ControlDecl = instance.decl
        values = self.arguments(decl.params, e.args, e)
        self.enter_control(instance, values, e)

    def enter_control(self, instance: Instance, values: list[Any], node: ast.Node) -> None:
        """Inlines a control's apply block with `values` for its parameters."""
        decl: ast.ControlDecl = instance.decl
        outer, self.instance = self.instance, instance

        def body() -> None:
            self.bind_constructor(decl.ctor_params, instance, node)
            self.declare_locals(decl.locals)
            self.body(decl.body)

        self.inline_values(decl.params, values, node, body)
        self.instance = outer

    def bind_constructor(self, params: list[ast.Param], instance: Instance, node: ast.Node) -> None:
        for param in params:
            value = instance.args.get(param.name)
            if value is None:
                continue
            if (
                isinstance(value, Instance)
                or isinstance(value, str)
                and not isinstance(param.type, types.EnumType | types.ErrorType)
            ):
                self.scope[id(param)] = value
            else:
                self.scope[id(param)] = self.constant(value, param.type, node)

    def declare_locals(self, declarations: list[ast.Node]) -> None:
        for declaration in declarations:
            if isinstance(declaration, ast.VarDecl | ast.ConstDecl):
                self.statement(declaration)

    # --- headers and stacks -----------------------------------------------------------------------------------------

    def header_method(self, e: ast.Call) -> Any:
        place = self.lvalue(e.on)
        if e.method == "isValid":
            return self.read(self.select(place, self._is_valid))
        if isinstance(place, Choice):
            for i, item in enumerate(place.items):
                body = self.block(lambda item=item: self.set_valid(item, e.method == "setValid"))
                self.emit(ir.If(fold.eq(place.index, fold.const(i, place.index.width)), body))
            return None
        self.set_valid(place, e.method == "setValid")
        return None

    def _is_valid(self, value: Header | Union) -> ir.Expr:
        if isinstance(value, Union):
            result: ir.Expr = fold.FALSE
            for header in value.fields.values():
                result = fold.lor(result, header.valid)
            return result
        return value.valid

    def set_valid(self, header: Header, valid: bool) -> None:
        if valid:
            self.created[id(header)] = header
        if valid:
            self.emit(ir.If(fold.lnot(header.valid), self.block(lambda: self._zero(header))))
        self.emit(ir.Assign(header.flag, fold.TRUE if valid else fold.FALSE))
        self.leave_alone(header)

    def _zero(self, header: Header) -> None:
        """Sets all fields of a header that becomes valid to zero."""
        if header.region:
            header.region.own_buffer = True
            self.emit(ir.Extern("fresh_region", [], [], header.region))
            return
        for leaf in value_trees.scalars(header):
            self.emit(ir.Assign(leaf, fold.const(0, leaf.width, leaf.signed)))

    def stack_method(self, e: ast.Call) -> None:
        stack = self.lvalue(e.on)
        if not isinstance(stack, value_trees.Stack):
            raise self.unsupported(e, f"{e.method} on this stack")
        count, size = e.given(0).const, len(stack.items)
        count = min(count, size)
        order = range(size - 1, count - 1, -1) if e.method == "push_front" else range(size - count)
        for i in order:
            self.assign(stack.items[i], stack.items[i - count if e.method == "push_front" else i + count], e)
        for i in range(count) if e.method == "push_front" else range(size - count, size):
            for header in value_trees.headers(stack.items[i]):
                self.reset(header, e)
        if stack.next is None:
            return
        limit, amount = fold.const(size, 32), fold.const(count, 32)
        if e.method == "push_front":
            moved = fold.add(stack.next, amount)
            self.emit(ir.Assign(stack.next, fold.cond(ir.Op("gt", (moved, limit), 1), limit, moved)))
        else:
            less = ir.Op("sub", (stack.next, amount), 32)
            self.emit(ir.Assign(stack.next, fold.cond(ir.Op("lt", (stack.next, amount), 1), fold.const(0, 32), less)))

    # Defined in parser.py and v1model_externs.py.
    def apply_parser(self, instance: Instance, e: ast.Call) -> None:
        raise TypeError

    def packet_in(self, e: ast.Call) -> Any:
        raise TypeError

    def packet_out(self, e: ast.Call) -> None:
        raise TypeError

    def extern_function(self, e: ast.Call) -> Any:
        raise TypeError

    def extern_method(self, e: ast.Call, instance: Instance) -> Any:
        raise TypeError
