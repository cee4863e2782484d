"""Calls: choice of the callee, binding of arguments to parameters, inference of type parameters (P4_16 v1.2.5 §6.8, §8.20)."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.expressions import HEADER_METHODS, SIZE_METHODS, ExpressionChecker, member_span
from ina.p4.compiler.check.types import Bindings, Cascade
from ina.p4.compiler.errors import Note, Span
from ina.p4.compiler.sizes import size_in_bits
from ina.p4.compiler.types import Parameter, Signature, Type, TypeVar

_METHOD_KINDS = {"packet_in": "packet_in", "packet_out": "packet_out"}


class CallChecker(ExpressionChecker):
    def __init__(self) -> None:
        super().__init__()
        self.signatures: dict[ast.Node, Signature] = {}
        self.specialised_functions: dict[tuple[ast.FunctionDecl, tuple[Type, ...]], ast.FunctionDecl] = {}
        self.templates: dict[ast.FunctionDecl, ast.FunctionDecl] = {}
        """Generic functions as parsed: a checked tree refers to types and declarations that must not be copied."""
        self.new_functions: list[ast.FunctionDecl] = []
        self.owner_locals: list[ast.Node] | None = None
        """Declarations that a direct application (`T.apply()`) adds its instance to."""
        self.context = ""
        """Owner of the code being checked: "parser", "control", "action", "function" or "" at the top level."""

    def signature_of(self, decl: ast.Declaration) -> Signature:
        signature = self.signatures.get(decl)
        if signature is None:
            raise Cascade(decl.span, f"the declaration of '{decl.name}' has an error")
        return signature

    # --- methods

    def method_type(self, e: ast.Member, t: Type) -> Type | None:
        name = e.member
        if isinstance(t, types.ExternType):
            return types.CalleeType(t.methods[name]) if name in t.methods else None
        if name == "apply" and isinstance(t, (types.ParserType, types.ControlType)):
            return types.CalleeType([Signature("apply", (), t.params, types.VOID, t.decl)])
        if name == "apply" and isinstance(t, types.TableType):
            return types.CalleeType([Signature("apply", (), [], types.ApplyResultType(t.decl), t.decl)])
        if isinstance(t, types.MetaType):
            if isinstance(t.type, (types.ParserType, types.ControlType)):
                return self.method_type(e, t.type)
            t = t.type
        elif name in HEADER_METHODS and isinstance(t, types.HeaderType):
            return types.CalleeType([Signature(name, (), [], types.BOOL if name == "isValid" else types.VOID)])
        elif name == "isValid" and isinstance(t, types.UnionType):
            return types.CalleeType([Signature(name, (), [], types.BOOL)])
        elif (
            name in ("push_front", "pop_front")
            and isinstance(t, types.StackType)
            and isinstance(types.strip_new(t.element), (types.HeaderType, types.UnionType))
        ):
            return types.CalleeType([Signature(name, (), [Parameter("count", "", types.INT)], types.VOID)])
        if name in SIZE_METHODS and not isinstance(t, (types.CallableType, types.TableType, types.CalleeType)):
            return types.CalleeType([Signature(name, (), [], types.INT)])
        return None

    # --- calls

    def call(self, e: ast.Call) -> ast.Expr:
        if isinstance(e.callee, ast.Member) and isinstance(e.callee.type, types.Unchecked):
            e.callee = callee = self.member(e.callee, called=True)
        else:
            e.callee = callee = self.expression(e.callee)
        t = callee.type
        if isinstance(t, types.MetaType):
            return self._constructor_call(e, t.type)
        if not isinstance(t, types.CalleeType):
            self.fail(e.span, f"'{ast.source_text(callee)}' of type {t} cannot be called", _apply_hint(callee))
        signature = self.choose(t.signatures, e.arguments, callee.span, ast.source_text(callee))
        e.decl = signature.decl
        if isinstance(callee, ast.Member):
            self._classify_method(e, callee, signature)
        elif isinstance(signature.decl, ast.ActionDecl):
            e.kind = "action"
            if self.context not in ("control", "action"):
                self.fail(e.span, f"action '{signature.name}' can only be called in controls and actions")
        else:
            e.kind = "extern_function" if isinstance(signature.decl, ast.ExternFunctionDecl) else "function"
        explicit = tuple(self.resolve(a) for a in e.type_args)
        runtime = e.kind in ("action", "function")
        bindings = self.bind(e, signature, explicit, e.span, directionless_may_vary=runtime)
        e.type_bindings = {v.name: bound for v, bound in bindings.items()}
        e.type = self.substitute(signature.returns, bindings)
        if isinstance(e.type, types.InfIntType) and e.kind != "size_method":
            self.fail(e.span, f"'{signature.name}' cannot return an int without width: write the argument as in 8w1")
        if isinstance(signature.decl, ast.FunctionDecl) and signature.decl.type_params:
            e.decl = self._specialise_function(signature, bindings, e.span)
        self._check_call(e)
        return e

    def _classify_method(self, e: ast.Call, callee: ast.Member, signature: Signature) -> None:
        base = callee.base
        e.method = callee.member
        t = base.type
        if isinstance(t, types.MetaType):
            if callee.member == "apply":
                base = callee.base = self._hoist_instance(base, t.type)
                t = t.type
            else:
                e.kind, e.receiver = "size_method", base
                return
        e.receiver = base
        t = types.strip_new(t)
        if isinstance(t, types.ExternType):
            e.kind = _METHOD_KINDS.get(t.name, "method")
        elif isinstance(t, types.ParserType):
            e.kind = "parser_apply"
            if self.context != "parser":
                self.fail(e.span, "parsers can only be applied in parsers")
        elif isinstance(t, types.ControlType):
            e.kind = "control_apply"
            if self.context != "control":
                self.fail(e.span, "controls can only be applied in the apply block of controls")
        elif isinstance(t, types.TableType):
            e.kind = "table_apply"
            if self.context not in ("control", "table"):
                self.fail(e.span, "tables can only be applied in the apply block of controls")
        elif callee.member in SIZE_METHODS:
            e.kind = "size_method"
        else:
            e.kind = "stack_method" if isinstance(t, types.StackType) else "header_method"

    def _hoist_instance(self, base: ast.Expr, t: Type) -> ast.Name:
        """Lowers a direct application: an instance named like the type, declared before all uses (§8.21, §13.6)."""
        assert isinstance(t, types.CallableType)
        if self.owner_locals is None or self.context not in ("parser", "control"):
            self.fail(base.span, f"{t} can only be applied in a parser state or in the apply block of a control")
        assert self.owner_locals is not None
        names = {d.name for d in self.owner_locals if isinstance(d, ast.Declaration)}
        name, n = t.name, 0
        while name in names:
            name, n = f"{t.name}_{n}", n + 1
        ref = base.ref if isinstance(base, ast.TypeExpr) else ast.NamedTypeRef(base.span, t.name)
        instance = ast.Instantiation(base.span, name, ref, [])
        self.instantiate(instance, t)
        self.owner_locals.append(instance)
        receiver = ast.Name(base.span, name)
        receiver.decl, receiver.type = instance, t
        return receiver

    def _check_call(self, e: ast.Call) -> None:
        """Checks rules for particular callees beyond their signatures."""
        if e.kind == "header_method" and e.method != "isValid":
            self.require_lvalue(e.on, f"{e.method}()")
        elif e.kind == "stack_method":
            self.require_lvalue(e.on, "pushed and popped")
            count = e.given(0)
            if count.const is None or count.const < 0:
                self.fail(count.span, f"{e.method} needs a count that is a positive constant")
        elif e.kind == "size_method":
            t = e.on.type.type if isinstance(e.on.type, types.MetaType) else e.on.type
            bits = size_in_bits(t, largest=e.method.startswith("max"))
            if bits is None:
                self.fail(e.span, f"type {t} has no size in bits")
            e.const = bits if e.method.endswith("Bits") else (bits + 7) // 8
        elif e.kind == "packet_in":
            self._check_packet_in(e)
        elif e.kind == "packet_out":
            emitted = types.strip_new(e.type_bindings["T"]) if "T" in e.type_bindings else None
            if emitted is not None and not isinstance(
                emitted, (types.RecordType, types.StackType, types.TupleType, TypeVar)
            ):
                self.fail(e.span, f"only headers, and stacks, unions and structs of them can be emitted, not {emitted}")
        elif e.kind == "extern_function" and e.decl.name == "static_assert":
            condition = e.given(0)
            if condition.const is False:
                message = e.args[1].const if len(e.args) > 1 and e.args[1] is not None else ""
                self.fail(e.span, f"static assertion failed{': ' if message else ''}{message}")
            e.const = condition.const
        elif e.kind == "extern_function" and e.decl.name == "verify" and self.context not in ("parser", "function"):
            self.fail(e.span, "verify() can only be called in parsers")

    def _check_packet_in(self, e: ast.Call) -> None:
        if self.context == "control":
            self.fail(e.span, f"{e.method}() can only be called in parsers")
        t = e.type_bindings.get("T")
        if t is None:
            return
        plain = types.strip_new(t)
        if e.method == "extract":
            if not isinstance(plain, (types.HeaderType, types.TypeVar)):
                self.fail(
                    e.span, f"only a header can be extracted, not {t}", ["extract the headers of a struct one by one"]
                )
            if isinstance(plain, types.HeaderType):
                flexible = [
                    f.name for f in plain.fields.values() if isinstance(types.strip_new(f.type), types.VarbitType)
                ]
                if len(flexible) > 1:
                    self.fail(e.span, f"header {t} has {len(flexible)} varbit fields: extract can fill one")
                if len(flexible) != len(e.params) - 1:
                    fields = f"has varbit field '{flexible[0]}'" if flexible else "has no varbit field"
                    count = (
                        "a second argument: that field's size in bits" if flexible else "only the header as argument"
                    )
                    self.fail(e.span, f"header {t} {fields}: extract needs {count}")
        elif e.method == "lookahead" and isinstance(plain, types.VoidType):
            self.fail(e.span, "lookahead needs a type, not void")
        elif e.method == "lookahead" and size_in_bits(plain, largest=False) != size_in_bits(plain, largest=True):
            self.fail(e.span, f"lookahead needs a type with a fixed size, not {t}")

    # --- overloads, binding, inference

    def choose(self, candidates: list[Signature], arguments: list[ast.Argument], span: Span, name: str) -> Signature:
        """Returns the overload that takes these arguments: by number and names, then by types (§7.2.9.2)."""
        if len(candidates) == 1:
            return candidates[0]
        fitting = [s for s in candidates if not _count_mismatch(s.params, arguments)]
        if len(fitting) > 1:
            for argument in arguments:
                if argument.value is not None:
                    argument.value = self.expression(argument.value)
            typed = [s for s in fitting if self._types_fit(s, arguments)]
            fitting = typed or fitting
        if len(fitting) == 1:
            return fitting[0]
        forms = [f"candidate: {s.returns} {s}" for s in candidates]
        problem = "is ambiguous" if fitting else f"has no form with {_count(len(arguments), 'argument')}"
        self.fail(span, f"call of '{name}' {problem}", forms)

    def _types_fit(self, s: Signature, arguments: list[ast.Argument]) -> bool:
        by_name = {p.name: p for p in s.params}
        for i, argument in enumerate(arguments):
            p = by_name[argument.name] if argument.name else s.params[i]
            if argument.value is not None and not self.converts(argument.value, p.type):
                return False
        return True

    def bind(
        self,
        e: ast.Call | ast.Instantiation | ast.ActionRef,
        signature: Signature,
        explicit: tuple[Type, ...],
        span: Span,
        *,
        directionless_may_vary: bool,
        infer_all: bool = True,
        free: frozenset[TypeVar] = frozenset(),
    ) -> Bindings:
        """Binds `e.arguments` to the parameters: fills `e.args` and `e.params`, returns the type arguments. Type parameters in
        `free` may stay open, others only with `infer_all` false."""
        params, name = signature.params, signature.name
        arguments = e.arguments or []
        if mismatch := _count_mismatch(params, arguments):
            where = mismatch[0].span if mismatch[0] else span
            declared = getattr(signature.decl, "span", None)
            notes: list[Note | str] = [Note(f"'{name}' is declared here: {signature}", declared)] if declared else []
            self.fail(where, f"'{name}' {mismatch[1]}", notes)
        by_param: list[ast.Argument | None] = [None] * len(params)
        index = {p.name: i for i, p in enumerate(params)}
        for i, argument in enumerate(arguments):
            by_param[index[argument.name] if argument.name else i] = argument
            if argument.value is not None:
                argument.value = self.argument(argument.value)
        bindings = self._infer(signature, by_param, explicit, span)
        bindings = {v: types.ANY if t == v and v in free else t for v, t in bindings.items()}
        if infer_all and (unbound := [v.name for v, t in bindings.items() if t == v]):
            notes = [f"write the type arguments, as in {signature.name}<{', '.join('bit<8>' for _ in bindings)}>(...)"]
            self.fail(span, f"cannot infer type parameter {', '.join(unbound)} of '{signature.name}'", notes)
        e.params = self.substitute_params(params, bindings) if bindings else params
        e.args = [self._bind_one(p, a, directionless_may_vary) for p, a in zip(e.params, by_param, strict=True)]
        for p, bound, source in zip(params, e.params, by_param, strict=True):
            if p.direction and isinstance(p.type, TypeVar) and isinstance(bound.type, (types.InfIntType, types.StringType)):
                problem = "a string cannot be" if isinstance(bound.type, types.StringType) else "no width is known for"
                hint = ["write it with its width, as in 8w1"] if isinstance(bound.type, types.InfIntType) else []
                place = source.span if source is not None else span
                self.fail(place, f"{problem} the argument for '{p.direction}' parameter '{p.name}'", hint)
        return bindings

    def argument(self, e: ast.Expr) -> ast.Expr:
        """Checks an argument: a value or an instance."""
        e = self.expression(e)
        if isinstance(e.type, types.MetaType) and isinstance(e.type.type, types.CallableType):
            self.fail(e.span, f"'{ast.source_text(e)}' is a type: an instance is wanted, as in {ast.source_text(e)}()")
        return self.value(e, "an argument")

    def _infer(
        self,
        signature: Signature,
        by_param: Sequence[ast.Argument | None],
        explicit: tuple[Type, ...],
        span: Span,
    ) -> Bindings:
        variables = signature.type_params
        if not variables:
            if explicit:
                self.fail(span, f"'{signature.name}' takes no type arguments")
            return {}
        bindings: Bindings = {v: v for v in variables}
        if explicit:
            if len(explicit) != len(variables):
                self.fail(
                    span, f"'{signature.name}' takes {_count(len(variables), 'type argument')}, not {len(explicit)}"
                )
            bindings = {v: t for v, t in zip(variables, explicit, strict=True)}
            bindings = {v: v if isinstance(t, types.AnyType) else t for v, t in bindings.items()}
        for p, argument in zip(signature.params, by_param, strict=True):
            value = argument.value if argument is not None else p.decl.default if p.decl is not None else None
            if value is None or isinstance(value.type, types.Unchecked):
                continue
            if not self.unify(p.type, value.type, bindings):
                expected = self.substitute(p.type, bindings)
                self._argument_mismatch(value, p, expected, signature)
        for p, argument in zip(signature.params, by_param, strict=True):
            if argument is not None and isinstance(argument.value, (ast.ListExpr, ast.StructInit)):
                if isinstance(p.type, TypeVar) and bindings.get(p.type) == argument.value.type:
                    self._require_widths(argument.value)
        return bindings

    def _require_widths(self, e: ast.ListExpr | ast.StructInit) -> None:
        """Reports literals without a width in a list that becomes an argument without conversion."""
        for value in e.values:
            if isinstance(value, (ast.ListExpr, ast.StructInit)):
                self._require_widths(value)
            elif isinstance(value.type, types.InfIntType):
                self.fail(value.span, "this integer has no width here: write it as in 8w1")

    def _argument_mismatch(self, value: ast.Expr, p: Parameter, expected: Type, signature: Signature) -> None:
        reason = ""
        if isinstance(expected, types.CallableType):
            reason = self.callable_mismatch(value.type, expected)
        message = f"argument for parameter '{p.name}' of '{signature.name}' must be {expected}, not {value.type}"
        self.fail(value.span, message + (f": {reason}" if reason else ""))

    def _bind_one(self, p: Parameter, argument: ast.Argument | None, directionless_may_vary: bool) -> ast.Expr | None:
        subject = f"argument for parameter '{p.name}'"
        if argument is None:
            return p.decl.default if p.decl is not None else None
        value = argument.value
        if value is None:
            if p.direction != "out":
                self.fail(
                    argument.span, f"'_' only stands for out parameters; '{p.name}' is {p.direction or 'directionless'}"
                )
            return None
        if p.direction in ("out", "inout"):
            self.require_lvalue(value, f"passed to {p.direction} parameter '{p.name}'")
            if value.type != p.type and not isinstance(p.type, (types.AnyType, TypeVar)):
                self.fail(
                    value.span,
                    f"{subject} ({p.direction}) must be {p.type}, not {value.type}",
                    ["out arguments are not converted"],
                )
            return value
        value = self.coerce(value, p.type, subject)
        if not p.direction and not directionless_may_vary and not self.is_static(value):
            self.fail(value.span, f"{subject} must be known at compile time", self._why_not_constant(value))
        return value

    def is_static(self, e: ast.Expr) -> bool:
        """Returns True if `e` is known at instantiation: a constant, an instance, or built from constructor parameters."""
        if e.const is not None or isinstance(e.type, types.CallableType):
            return True
        if isinstance(e, ast.Name):
            return isinstance(e.decl, ast.Param) and not e.decl.direction  # constructor's, or the control plane's
        if isinstance(e, (ast.Cast, ast.Unary)):
            return self.is_static(e.operand)
        if isinstance(e, ast.Binary):
            return self.is_static(e.left) and self.is_static(e.right)
        if isinstance(e, ast.Ternary):
            return all(self.is_static(x) for x in (e.condition, e.then, e.otherwise))
        if isinstance(e, ast.Member):
            return e.kind == "field" and self.is_static(e.base)
        if isinstance(e, (ast.Index, ast.Slice)):
            return self.is_static(e.base)
        if isinstance(e, (ast.ListExpr, ast.StructInit)):
            return all(self.is_static(x) for x in e.values)
        return isinstance(e, (ast.Dots, ast.InvalidHeader))

    # --- instances

    def _constructor_call(self, e: ast.Call, t: Type) -> ast.Expr:
        if isinstance(t, types.CallableType) and self.context in ("parser", "control", "action", "function"):
            self.fail(
                e.span,
                f"'{t.name}(...)' without a name can only be a constructor argument",
                [f"declare it: {t.name}(...) name;"],
            )
        explicit = tuple(self.resolve(a) for a in e.type_args)
        e.type, e.kind = self.construct(e, t, explicit, e.span), "constructor"
        e.decl = e.type.decl
        return e

    def instantiate(self, instance: ast.Instantiation, t: Type | None = None) -> None:
        """Types an Instantiation and binds its constructor arguments."""
        if t is None:
            ref = instance.type_ref
            explicit: tuple[Type, ...] = ()
            if isinstance(ref, ast.NamedTypeRef):
                decl = (self.globals if ref.absolute else self.scope).lookup(ref.name)
                if decl is None:
                    self.undeclared(ref.span, "type", ref.name)
                t = self.named_type(decl, (), ref.span, ref.name, bare=True)
                explicit = tuple(self.resolve(a) for a in ref.args)
            else:
                t = self.resolve(ref)
            instance.type = self.construct(instance, t, explicit, instance.span)
            ref.resolved = instance.type
        else:
            instance.type = self.construct(instance, t, (), instance.span)

    def construct(
        self, e: ast.Call | ast.Instantiation, t: Type, explicit: tuple[Type, ...], span: Span
    ) -> types.CallableType:
        """Binds constructor arguments; returns the (specialised) type of the new object."""
        if not isinstance(t, types.CallableType):
            self.fail(span, f"{t} cannot be instantiated: only parsers, controls, packages and externs can")
        if self.in_parser and isinstance(t, types.ControlType):
            self.fail(span, f"control {t} cannot be instantiated in a parser")
        if isinstance(t.decl, (ast.ParserTypeDecl, ast.ControlTypeDecl)):
            self.fail(
                span,
                f"{t} cannot be instantiated: it is only a type, without a body",
                [Note("declared here", t.decl.span)],
            )
        if isinstance(t, types.ExternType):
            if not t.ctors:
                self.fail(span, f"extern {t} has no constructor", [Note("declared here", t.decl.span)])
            if explicit and len(explicit) != len(t.type_params):
                takes = f"takes {_count(len(t.type_params), 'type argument')}, not {len(explicit)}"
                hint = ["v1model's register, counter and meter take an index type from V1MODEL_VERSION 20200408 on"]
                indexed = t.name in ("register", "counter", "meter")
                self.fail(span, f"extern {t.name} {takes}", hint if indexed else [Note("declared here", t.decl.span)])
            constructor = self.choose(t.ctors, e.arguments, span, t.name)
            signature = Signature(t.name, t.type_params, constructor.params, types.VOID, constructor.decl)
        else:
            signature = Signature(t.name, t.type_params, t.ctor_params, types.VOID, t.decl)
        infer_all = not isinstance(t, types.PackageType)
        free = _indices(t, explicit) if isinstance(t, types.ExternType) else frozenset()
        bindings = self.bind(e, signature, explicit, span, directionless_may_vary=False, infer_all=infer_all, free=free)
        return self.specialise(t, tuple(bindings[v] for v in t.type_params), span) if t.type_params else t

    # --- generic functions

    def _specialise_function(self, signature: Signature, bindings: Bindings, span: Span) -> ast.FunctionDecl:
        """Returns a checked copy of a generic function for these type arguments; one per list of them."""
        decl = signature.decl
        key = (decl, tuple(bindings[v] for v in signature.type_params))
        existing = self.specialised_functions.get(key)
        if existing is not None:
            return existing
        function = self.specialised_functions[key] = copy.deepcopy(self.templates[decl])
        outer, context, owner = self.scope, self.context, self.owner_locals
        self.scope = self.globals
        with self.nested() as scope:
            for param, bound in zip(function.type_params, key[1], strict=True):
                scope.declare(param.name, bound, param.span)
            function.type_params = []
            function.name = f"{decl.name}_{len(self.specialised_functions)}"
            self.function_body(function)
        self.scope, self.context, self.owner_locals = outer, context, owner
        self.new_functions.append(function)
        return function

    @abstractmethod
    def function_body(self, decl: ast.FunctionDecl) -> None: ...


def _indices(t: types.ExternType, explicit: tuple[Type, ...]) -> frozenset[TypeVar]:
    """Returns the type parameters written as `_` that are only types of `in` parameters: Register<bit<32>, _> takes indices of
    any width."""
    open_ = {v for v, argument in zip(t.type_params, explicit, strict=False) if isinstance(argument, types.AnyType)}
    for signature in (s for signatures in t.methods.values() for s in signatures):
        for p in signature.params:
            if p.direction != "in" or not isinstance(p.type, TypeVar):
                open_ -= {v for v in open_ if mentions(p.type, v)}
        open_ -= {v for v in open_ if mentions(signature.returns, v)}
    return frozenset(open_)


def mentions(t: Type, v: TypeVar) -> bool:
    """Returns True if the type variable `v` occurs in `t`."""
    if t == v:
        return True
    inner = [*getattr(t, "args", ()), *getattr(t, "elements", ()), getattr(t, "element", None)]
    return any(isinstance(part, Type) and mentions(part, v) for part in inner)


def _count_mismatch(params: list[Parameter], arguments: list[ast.Argument]) -> tuple[ast.Argument | None, str] | None:
    """Returns (the wrong argument or None, the reason), or None if the arguments cover the parameters."""
    required = [p for p in params if not p.optional and not (p.decl is not None and p.decl.default is not None)]
    if len(arguments) > len(params):
        return arguments[len(params)], f"takes {_count(len(params), 'argument')}, {len(arguments)} given"
    named = [a for a in arguments if a.name]
    if named and len(named) != len(arguments):
        return named[0], "has both named and positional arguments: name all or none"
    if named:
        names = {p.name for p in params}
        seen: set[str] = set()
        for a in named:
            assert a.name is not None
            if a.name not in names:
                return a, f"has no parameter '{a.name}'"
            if a.name in seen:
                return a, f"is given parameter '{a.name}' twice"
            seen.add(a.name)
        missing = [p.name for p in required if p.name not in seen]
    else:
        missing = [p.name for p in params[len(arguments) :] if p in required]
    if missing:
        takes = f"takes {_count(len(params), 'argument')}, {len(arguments)} given"
        return None, f"{takes}: no argument for {', '.join(repr(m) for m in missing)}"
    return None


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _apply_hint(callee: ast.Expr) -> list[str]:
    if isinstance(callee.type, (types.TableType, types.ControlType, types.ParserType)):
        return [f"apply it: {ast.source_text(callee)}.apply(...)"]
    return []


__all__ = ["CallChecker", "member_span"]
