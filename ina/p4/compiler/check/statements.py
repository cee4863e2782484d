"""Statements and local declarations (P4_16 v1.2.5 §11, §12)."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.calls import CallChecker
from ina.p4.compiler.check.scope import suggest
from ina.p4.compiler.errors import Note
from ina.p4.compiler.types import BitType, Signature, Type

_COMPOUND_BITS = frozenset(["+", "-", "*", "&", "|", "^", "|+|", "|-|", "/", "%"])
_NO_VALUE = (types.VoidType, types.CallableType, types.CalleeType, types.TableType, types.MetaType)


class StatementChecker(CallChecker):
    def __init__(self) -> None:
        super().__init__()
        self.return_type: Type | None = None
        """Return type of the function being checked; None outside of functions (actions and apply blocks return nothing)."""
        self.loops = 0

    # --- local declarations

    def const_declaration(self, d: ast.ConstDecl) -> None:
        t = self.resolve(d.type_ref)
        if isinstance(t, _NO_VALUE):
            self.fail(d.type_ref.span, f"constant '{d.name}' cannot have type {t}")
        value = self.coerce(self.value(d.value), t, f"value of constant '{d.name}'")
        if value.const is None and not isinstance(t, types.ListType) and not self.is_static(value):
            self.fail(
                d.value.span,
                f"the value of constant '{d.name}' is not known at compile time",
                self._why_not_constant(value),
            )
        d.value, d.type = value, t
        self.scope.declare(d.name, d, d.span)

    def variable_declaration(self, d: ast.VarDecl) -> None:
        t = self.resolve(d.type_ref)
        if isinstance(t, _NO_VALUE) or isinstance(
            t, (types.InfIntType, types.StringType, types.ListType, types.MatchKindType)
        ):
            hint = ["give it a width, as in bit<32> or int<32>"] if isinstance(t, types.InfIntType) else []
            if isinstance(t, types.CallableType):
                hint = [f"an instance is declared as {t.name}(...) {d.name};"]
            self.fail(d.type_ref.span, f"variable '{d.name}' cannot have type {t}", hint)
        if d.init is not None:
            d.init = self.coerce(self.value(d.init), t, f"initial value of '{d.name}'")
        d.type = t
        self.scope.declare(d.name, d, d.span)

    def instance_declaration(self, d: ast.Instantiation) -> None:
        if isinstance(d.type_ref, ast.StackTypeRef):
            self.fail(d.span, "arrays of instances are not part of P4_16")
        if self.context:
            self.fail(
                d.span, f"an instance cannot be made here: declare '{d.name}' before the apply block or the states"
            )
        self.instantiate(d)
        if isinstance(d.type, types.PackageType) and self.scope is not self.globals:
            self.fail(d.span, "packages can only be instantiated at the top level")
        if isinstance(d.type, (types.ParserType, types.ControlType)) and self.scope is self.globals:
            self.fail(
                d.span,
                f"{d.type} cannot be instantiated at the top level",
                ["pass it to a package: Switch(MyParser(), ...)"],
            )
        self._abstract_methods(d)
        self.scope.declare(d.name, d, d.span)

    def _abstract_methods(self, d: ast.Instantiation) -> None:
        """Checks bodies of abstract methods: `Extern() x = { bit<8> f(in bit<8> a) { ... } };` (§11.3.1)."""
        t = d.type
        required = {}
        if isinstance(t, types.ExternType):
            required = {s.name: s for ss in t.methods.values() for s in ss if s.abstract}
        bodies = [x for x in d.body or [] if isinstance(x, ast.FunctionDecl)]
        with self.nested() as scope:
            scope.names["this"] = t
            for inner in d.body or []:
                if isinstance(inner, ast.Instantiation):
                    self.instance_declaration(inner)
            for body in bodies:
                signature = required.pop(body.name, None)
                if signature is None:
                    self.fail(body.span, f"{t} has no abstract method '{body.name}'", suggest(body.name, required))
                outer, self.context = self.context, "function"
                self.function_body(body)
                self.context = outer
                if not _implements(self.signatures[body], signature):
                    self.fail(
                        body.span, f"'{body.name}' differs from the abstract method: {signature.returns} {signature}"
                    )
        required = {name: s for name, s in required.items() if s.decl.annotation("optional") is None}
        if required:
            self.fail(d.span, f"{t} has abstract methods without a body here: {', '.join(required)}")

    # --- functions and actions

    def function_body(self, d: ast.FunctionDecl) -> None:
        """Checks parameters, return type and body, in a scope of their own."""
        d.return_type = self.resolve(d.return_ref)
        with self.nested():
            params = self.parameters(d.params)
            self.signatures[d] = Signature(d.name, (), params, d.return_type, d)
            outer = self.return_type, self.context, self.loops
            self.return_type, self.context, self.loops = d.return_type, "function", 0
            with self.nested():
                self.statements(d.body)
            if not isinstance(d.return_type, types.VoidType) and not _always_returns(d.body):
                self.fail(d.span, f"function '{d.name}' can end without returning a {d.return_type}")
            self.return_type, self.context, self.loops = outer

    def action_declaration(self, d: ast.ActionDecl) -> None:
        with self.nested():
            params = self.parameters(d.params)
            directionless = False
            for p in params:
                if directionless and p.direction:
                    assert p.decl is not None
                    self.fail(
                        p.decl.span,
                        f"parameter '{p.name}' must stand before the directionless ones, which tables fill in",
                    )
                directionless = directionless or not p.direction
                if isinstance(p.type, types.InfIntType):
                    assert p.decl is not None
                    self.fail(p.decl.span, "an action cannot take an int: it has no width")
                if isinstance(p.type, types.CallableType):
                    assert p.decl is not None
                    self.fail(p.decl.span, f"an action cannot take {p.type} as a parameter")
            self.signatures[d] = Signature(d.name, (), params, types.VOID, d)
            outer = self.return_type, self.context, self.loops
            self.return_type, self.context, self.loops = None, "action", 0
            with self.nested():
                self.statements(d.body)
            self.return_type, self.context, self.loops = outer
        self.scope.declare(d.name, d, d.span)

    # --- statements

    def block(self, b: ast.Block) -> None:
        with self.nested():
            self.statements(b)

    def statements(self, b: ast.Block) -> None:
        for s in b.statements:
            with self.declaring(s):
                _CHECKS[type(s)](self, s)

    def statement(self, s: ast.Node) -> None:
        _CHECKS[type(s)](self, s)

    def scoped(self, s: ast.Node) -> None:
        with self.nested():
            self.statement(s)

    def _assign(self, s: ast.Assign) -> None:
        s.target = self.value(s.target, "a variable")
        self.require_lvalue(s.target, "assigned to")
        t = s.target.type
        assert t is not None
        value = self.value(s.value)
        if s.op == "=":
            s.value = self.coerce(value, t, f"value assigned to '{ast.source_text(s.target)}'")
            return
        bits = types.underlying(t)
        if not isinstance(bits, BitType):
            self.fail(s.target.span, f"'{s.op}=' needs a target of bits, not {t}")
        if s.op in _COMPOUND_BITS:
            s.value = self.coerce(value, t, f"right side of '{s.op}='")
            if s.op in ("/", "%") and s.value.const == 0:
                self.fail(s.value.span, "division by zero")
        else:
            amount = types.underlying(value.type)
            if not isinstance(amount, (BitType, types.InfIntType)) or (isinstance(amount, BitType) and amount.signed):
                self.fail(value.span, f"a shift amount must be unsigned, not {value.type}")
            if value.const is not None and value.const < 0:
                self.fail(value.span, "shift by a negative amount")
            s.value = value

    def _call_statement(self, s: ast.CallStatement) -> None:
        call = self.expression(s.call)
        assert isinstance(call, ast.Call)
        s.call = call

    def _empty(self, s: ast.EmptyStatement) -> None:
        pass

    def _if(self, s: ast.If) -> None:
        s.condition = self.condition(s.condition)
        self.scoped(s.then)
        if s.otherwise is not None:
            self.scoped(s.otherwise)

    def _switch(self, s: ast.Switch) -> None:
        s.subject = self.value(s.subject)
        if self.context == "parser":
            self.fail(s.span, "switch is not for parsers: use 'transition select'")
        plain = types.underlying(s.subject.type)
        if not isinstance(plain, (types.ActionRunType, BitType, types.BoolType, types.EnumType, types.ErrorType)):
            self.fail(s.subject.span, f"cannot switch on {s.subject.type}")
        defaults = [c for c in s.cases if c.label is None]
        if len(defaults) > 1:
            self.fail(defaults[1].span, "a switch has at most one 'default'")
        if defaults and s.cases[-1].label is not None:
            self.fail(defaults[0].span, "'default' must be the last case")
        seen: dict[object, ast.SwitchCase] = {}
        for case in s.cases:
            with self.recover():
                key = self._switch_label(case, s.subject.type)
                if key is not None:
                    if key in seen:
                        self.fail(case.span, "this case appears twice", [Note("first here", seen[key].span)])
                    seen[key] = case
                if case.body is not None:
                    self.block(case.body)

    def _switch_label(self, case: ast.SwitchCase, t: Type) -> object:
        label = case.label
        if label is None:
            return None
        if isinstance(t, types.ActionRunType):
            if not isinstance(label, ast.Name):
                self.fail(label.span, "a case of a switch on action_run is the name of an action")
            for ref in t.table.actions:
                if ref.name == label.name:
                    case.action, label.decl, label.type = ref, ref.decl, t
                    return label.name
            names = [ref.name for ref in t.table.actions]
            notes = suggest(label.name, names) or [f"it has {', '.join(names)}"]
            self.fail(label.span, f"table '{t.table.name}' has no action '{label.name}'", notes)
        case.label = label = self.coerce(self.value(label), t, "a case of this switch")
        if label.const is None:
            self.fail(label.span, "a case of a switch must be known at compile time", self._why_not_constant(label))
        return label.const if not isinstance(label.const, (list, dict)) else None

    def _for_c(self, s: ast.ForC) -> None:
        with self.nested():
            for init in s.init:
                self.statement(init)
            s.condition = self.condition(s.condition)
            for update in s.update:
                self.statement(update)
            self._loop_body(s.body)

    def _for_in(self, s: ast.ForIn) -> None:
        with self.nested():
            element = self._collection(s)
            target = s.target.type = self.resolve(s.target.type_ref)
            self.scope.declare(s.target.name, s.target, s.target.span)
            if isinstance(s.collection, ast.Range):
                if not isinstance(types.underlying(target), BitType):
                    self.fail(s.span, f"a loop over a range needs a variable of bits, not {target}")
                s.collection.lo = self.coerce(s.collection.lo, target, "the lower bound")
                s.collection.hi = self.coerce(s.collection.hi, target, "the upper bound")
                s.collection.type = types.SetType(target)
            elif isinstance(s.collection, ast.ListExpr):
                s.collection = self.coerce(s.collection, types.ListType(target), "elements of the list")
            elif element != target and not isinstance(element, types.InfIntType):
                self.fail(s.collection.span, f"the loop's variable is {target}, the elements are {element}")
            self._loop_body(s.body)

    def _collection(self, s: ast.ForIn) -> Type | None:
        if isinstance(s.collection, ast.Range):
            s.collection.lo, s.collection.hi = self.value(s.collection.lo), self.value(s.collection.hi)
            return None
        s.collection = self.value(s.collection, "a collection")
        t = types.strip_new(s.collection.type)
        if isinstance(t, (types.StackType, types.ListType)):
            return t.element
        if not isinstance(s.collection, ast.ListExpr):
            self.fail(s.collection.span, f"a loop runs over a range, a list or a header stack, not {t}")
        return None

    def _loop_body(self, body: ast.Statement) -> None:
        self.loops += 1
        self.scoped(body)
        self.loops -= 1

    def _leave_loop(self, s: ast.Break | ast.Continue) -> None:
        if not self.loops:
            self.fail(s.span, f"'{'break' if isinstance(s, ast.Break) else 'continue'}' outside of a loop")

    def _return(self, s: ast.Return) -> None:
        expected = self.return_type
        if self.context == "parser":
            self.fail(s.span, "'return' is not for parsers: a state ends with its transition")
        if expected is None or isinstance(expected, types.VoidType):
            if s.value is not None:
                self.fail(s.value.span, "nothing can be returned here")
        elif s.value is None:
            self.fail(s.span, f"this function must return a {expected}")
        else:
            s.value = self.coerce(self.value(s.value), expected, "the returned value")

    def _exit(self, s: ast.Exit) -> None:
        if self.context in ("parser", "function"):
            self.fail(s.span, f"'exit' cannot be used in {self.context}s")


def _implements(body: Signature, abstract: Signature) -> bool:
    """Returns True if `body` has the types and directions of `abstract`. It may omit `@optional` parameters."""
    if body.returns != abstract.returns:
        return False
    expected = iter(abstract.params)
    for p in body.params:
        w = next(expected, None)
        while w is not None and w.optional and (w.type, w.direction) != (p.type, p.direction):
            w = next(expected, None)
        if w is None or (w.type, w.direction) != (p.type, p.direction):
            return False
    return all(w.optional for w in expected)


def _always_returns(s: ast.Node | None) -> bool:
    if isinstance(s, (ast.Return, ast.Exit)):
        return True
    if isinstance(s, ast.Block):
        return any(_always_returns(x) for x in s.statements)
    if isinstance(s, ast.If):
        return s.otherwise is not None and _always_returns(s.then) and _always_returns(s.otherwise)
    if isinstance(s, ast.Switch):
        return any(c.label is None for c in s.cases) and all(c.body is None or _always_returns(c.body) for c in s.cases)
    return False


_CHECKS: dict[type, Callable[..., None]] = {
    ast.ConstDecl: StatementChecker.const_declaration,
    ast.VarDecl: StatementChecker.variable_declaration,
    ast.Instantiation: StatementChecker.instance_declaration,
    ast.Assign: StatementChecker._assign,
    ast.CallStatement: StatementChecker._call_statement,
    ast.EmptyStatement: StatementChecker._empty,
    ast.Block: StatementChecker.block,
    ast.If: StatementChecker._if,
    ast.Switch: StatementChecker._switch,
    ast.ForC: StatementChecker._for_c,
    ast.ForIn: StatementChecker._for_in,
    ast.Break: StatementChecker._leave_loop,
    ast.Continue: StatementChecker._leave_loop,
    ast.Return: StatementChecker._return,
    ast.Exit: StatementChecker._exit,
}
