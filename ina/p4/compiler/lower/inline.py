"""Inlining: actions, functions, sub-controls; their arguments.

Arguments are bound by reference where the program cannot notice, else copied in and out (P4_16 v1.2.5 §6.8): an `in`
argument is used in place of the parameter when no out/inout argument overlaps it; actions see the variables around
them, so their scalars are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

from ina.p4.compiler import ast, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import calls_in
from ina.p4.compiler.lower.context import CALL, Bound, Context, Frame, unsupported
from ina.p4.compiler.lower.statements import Statements
from ina.p4.compiler.lower.value_trees import Choice, Header, SliceOf, Value


def has_effects(e: ast.Expr) -> bool:
    """Returns True if evaluating `e` may have side effects: it calls something other than `isValid`."""
    return any(call.kind != "header_method" or call.method != "isValid" for call in calls_in(e))


@dataclass(frozen=True, slots=True)
class CopiedIn:
    """An `inout` argument that was copied before later arguments were evaluated: its place, and the copy, which the call uses."""

    place: Value
    copied: Value


Argument = Bound | CopiedIn


class Inliner:
    def __init__(self, context: Context, statements: Statements) -> None:
        self.context, self.code, self.statements = context, context.code, statements
        self.expressions, self.values = statements.expressions, statements.values

    def resolve_instance(self, receiver: ast.Expr | None) -> Instance:
        """Returns the object that a receiver names."""
        assert isinstance(receiver, ast.Name)
        decl = receiver.decl
        instance: object
        if receiver.name == "this" and self.context.this is not None:
            return self.context.this
        if isinstance(decl, ast.Param):
            instance = self.context.scope.get(decl) if not decl.is_ctor else self.context.instance.args.get(decl.name)
        else:
            instance = self.context.instance.children.get(decl.name)
            if instance is None or instance.site is not decl:
                instance = self.context.program.globals.get(decl.name, instance)
        if not isinstance(instance, Instance):
            raise unsupported(receiver, f"'{receiver.name}' as an object")
        return instance

    def inline(
        self, params: list[ast.Param], args: list[ast.Expr | None], call: ast.Call, body: Callable[[], None], *,
        by_reference: bool = True, result: Value | None = None,
    ) -> None:
        values = self.arguments(params, args, call)
        self.inline_values(params, values, call, body, by_reference=by_reference, result=result)

    def arguments(self, params: list[ast.Param], args: list[ast.Expr | None], call: ast.Call) -> list[Argument]:
        """Returns values and places for parameters, evaluated as written: named arguments may stand in another order."""
        order = list(range(len(params)))
        names = [p.name for p in params]
        if any(a.name for a in call.arguments):
            written = [names.index(a.name) if a.name else i for i, a in enumerate(call.arguments)]
            order = written + [i for i in order if i not in written]
        parts = [partial(self.argument, params[i], args[i], call) for i in order]
        evaluated = self.values.in_order(parts, lambda at, value: self.saved_argument(params[order[at]], value, call))
        return [value for _, value in sorted(zip(order, evaluated, strict=True), key=lambda pair: pair[0])]

    def argument(self, param: ast.Param | types.Parameter, arg: ast.Expr | None, node: ast.Node) -> Argument:
        if isinstance(types.strip_new(param.type), types.ExternType):
            known = isinstance(arg, ast.Name) and arg.decl in self.context.scope
            return self.context.scope[arg.decl] if known and isinstance(arg, ast.Name) else self.resolve_instance(arg)
        if arg is None:
            return self.context.storage.place(param.type, param.name)
        return self.expressions.lvalue(arg) if param.direction in ("out", "inout") else self.expressions.value(arg)

    def saved_argument(self, param: ast.Param | types.Parameter, value: Argument, node: ast.Node) -> Argument:
        """Returns a copy of an argument that later ones might change: of `inout`, its place and its value (§6.8)."""
        if param.direction == "out" or isinstance(value, Instance | str | CopiedIn):
            return value
        if param.direction != "inout":
            return self.values.snapshot(self.values.read(value))
        copied = self.context.storage.place(param.type, param.name)
        self.values.assign(copied, value, node)
        return CopiedIn(value, copied)

    def settled(self, e: ast.Call) -> ast.Call:
        """Returns a call of an extern whose arguments have been evaluated as written, if one of them makes a call that may
        change what others read: its arguments are names of their values and places. Otherwise returns `e` itself, whose
        arguments mean the same in any order."""
        args = {i: arg for i, arg in enumerate(e.args) if arg is not None}
        if len(args) < 2 or not any(map(has_effects, args.values())):
            return e
        positions = {a.name: at for at, a in enumerate(e.arguments) if a.name}
        order = sorted(args, key=lambda i: positions.get(e.params[i].name, i))
        parts = [partial(self.argument, e.params[i], args[i], e) for i in order]
        outs = {at for at, i in enumerate(order) if e.params[i].direction in ("out", "inout")}
        values = self.values.in_order(parts, lambda at, value: value if at in outs else self.values.copied(value))
        settled = copy(e)
        settled.args = list(e.args)
        for i, value in zip(order, values, strict=True):
            arg = args[i]
            if arg.const is None and not isinstance(value, Instance | str | CopiedIn):
                name = ast.Name(arg.span, ast.source_text(arg))
                name.type, name.decl = arg.type, name
                self.context.scope[name] = value
                settled.args[i] = name
        return settled

    def inline_values(
        self, params: list[ast.Param], values: Sequence[Argument], node: ast.Node, body: Callable[[], None], *,
        by_reference: bool = True, result: Value | None = None,
    ) -> None:
        """Binds `values` to `params` and lowers `body` in place."""
        frame = Frame(self.code.label("return"), result)
        written = [
            self._keys(v) if p.direction in ("out", "inout") else set()
            for p, v in zip(params, values, strict=True)
        ]
        bindings: dict[ast.Node, Bound] = {}
        # Values are copied before any `out` place is reset, which one of them may read.
        for i in sorted(range(len(params)), key=lambda i: params[i].direction in ("out", "inout")):
            param, value = params[i], values[i]
            others = {key for k, keys in enumerate(written) if k != i for key in keys}
            plain = by_reference and not isinstance(value, Choice | SliceOf)
            if isinstance(value, Instance | str | ir.Const):
                bindings[param] = value
            elif isinstance(value, CopiedIn):
                bindings[param] = value.copied
                self.context.copies |= self.values.keys(value.copied)
                frame.copy_out.append(partial(self.values.assign, value.place, value.copied, node))
            elif param.direction in ("out", "inout"):
                # A header of a union is assigned when the call ends, and only then are the others invalid (§8.20).
                shared = plain and not others & written[i] and not (isinstance(value, Header) and value.union)
                bindings[param] = self._bind_out(param, value, frame, shared, node)
            elif plain and not self.values.keys(value) & others:
                bindings[param] = value
            else:
                place = bindings[param] = self.context.storage.place(param.type, param.name)
                self.values.assign(place, value, node)
        self.context.scope |= bindings
        self.context.frames.append(frame)
        body()
        # A return at the very end needs no jump.
        while self.code.out and isinstance(self.code.out[-1], ir.Goto) and self.code.out[-1].label == frame.label:
            self.code.out.pop()
        if frame.label_used and any(isinstance(s, ir.Goto) and s.label == frame.label for s in ir.walk(self.code.out)):
            self.code.emit(ir.Label(frame.label))
        self.context.frames.pop()
        for copy_out in frame.copy_out:
            copy_out()

    def _keys(self, value: Argument) -> set[object]:
        if isinstance(value, Instance | str):
            return set()
        return self.values.keys(value.place if isinstance(value, CopiedIn) else value)

    def _bind_out(self, param: ast.Param, value: Value, frame: Frame, shared: bool, node: ast.Node) -> Value:
        if shared:
            if param.direction == "out":
                self.values.reset(value, node)
            return value
        place = self.context.storage.place(param.type, param.name)
        self.context.copies |= self.values.keys(place)
        if param.direction == "inout":
            self.values.assign(place, value, node)
        else:
            self.values.reset(place, node)
        frame.copy_out.append(lambda: self.values.assign(value, place, node))
        return place

    def control(self, instance: Instance, values: Sequence[Argument]) -> None:
        """Lowers a control of the pipeline."""
        outer, self.context.exit_label = self.context.exit_label, self.code.label("exit")
        params = instance.decl.params
        assert len(params) == len(values)
        self.enter_control(instance, values, CALL)
        self.code.emit(ir.Label(self.context.exit_label))
        self.context.exit_label = outer

    def enter_control(self, instance: Instance, values: Sequence[Argument], node: ast.Node) -> None:
        self.enter(instance, values, node, lambda: self.statements.body(instance.decl.body))

    def enter(self, instance: Instance, values: Sequence[Argument], node: ast.Node, body: Callable[[], None]) -> None:
        """Inlines a parser or control with `values` for its parameters; `body` lowers what follows its local declarations."""
        decl: ast.ParserDecl | ast.ControlDecl = instance.decl
        outer, self.context.instance = self.context.instance, instance

        def inlined() -> None:
            self.bind_constructor(decl.ctor_params, instance, node)
            self.declare_locals(decl.locals)
            body()

        self.inline_values(decl.params, values, node, inlined)
        self.context.instance = outer

    def bind_constructor(self, params: list[ast.Param], instance: Instance, node: ast.Node) -> None:
        for param in params:
            value = instance.args.get(param.name)
            if value is None:
                continue
            text = isinstance(value, str) and not isinstance(param.type, types.EnumType | types.ErrorType)
            if isinstance(value, Instance) or text:
                self.context.scope[param] = value
            else:
                self.context.scope[param] = self.values.constant(value, param.type, node)

    def declare_locals(self, declarations: list[ast.Node]) -> None:
        for declaration in declarations:
            if isinstance(declaration, ast.VarDecl | ast.ConstDecl):
                self.statements.statement(declaration)
