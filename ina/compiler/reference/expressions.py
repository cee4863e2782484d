"""Expressions, lvalues and calls of the reference interpreter (P4_16 v1.2.5 §6.6, §6.7, §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ina.compiler import ast
from ina.compiler.program import Instance
from ina.compiler.reference.packet import PacketIn, PacketOut, ParserError
from ina.compiler.reference.values import (
    Record,
    Stack,
    TupleValue,
    assign,
    copy,
    default_value,
    equal,
    from_const,
    is_aggregate,
    pack,
    store_part,
    wrap,
)
from ina.compiler.types import (
    BitType,
    BoolType,
    HeaderType,
    RecordType,
    StackType,
    TupleType,
    Type,
    UnionType,
    strip_new,
    underlying,
)


class InterpreterError(Exception):
    """The program asks for something that the interpreter cannot do; the message starts with the place in the
    source."""

    def __init__(self, node: ast.Node | None, message: str) -> None:
        super().__init__(f"{node.span}: {message}" if node is not None else message)


class ReturnSignal(Exception):
    """`return`: leaves the enclosing action, function or control."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class ExitSignal(Exception):
    """`exit`: leaves all enclosing blocks up to the architecture's call (§12.5)."""


class Frame:
    """The variables of one activation. An action's frame has its control's as `outer`; `instance` is the parser or
    control."""

    __slots__ = ("vars", "instance", "outer")

    def __init__(self, instance: Instance | None, outer: Frame | None = None) -> None:
        self.vars: dict[Any, Any] = {}
        self.instance = instance
        self.outer = outer

    def holder(self, decl: Any) -> dict[Any, Any] | None:
        frame: Frame | None = self
        while frame is not None:
            if decl in frame.vars:
                return frame.vars
            frame = frame.outer
        return None


class Location:
    """An evaluated lvalue (§6.6): one field, element or variable."""

    __slots__ = ("container", "key")

    def __init__(self, container: Any, key: Any) -> None:
        self.container, self.key = container, key

    def get(self) -> Any:
        return self.container[self.key]

    def set(self, value: Any) -> None:
        store_part(self.container, self.key, value)


class SliceLocation:
    """Bits hi..lo of an lvalue (§8.7)."""

    __slots__ = ("base", "type", "hi", "lo")

    def __init__(self, base: Any, t: BitType, hi: int, lo: int) -> None:
        self.base, self.type, self.hi, self.lo = base, t, hi, lo

    def get(self) -> int:
        return self.base.get() >> self.lo & ((1 << self.hi - self.lo + 1) - 1)

    def set(self, value: int) -> None:
        mask = ((1 << self.hi - self.lo + 1) - 1) << self.lo
        self.base.set(wrap(self.base.get() & ~mask | value << self.lo & mask, self.type))


class Nowhere:
    """An element beyond its stack, or `_` for an out argument: reads give the default value, writes do nothing
    (§8.19, §8.26)."""

    __slots__ = ("value",)

    def __init__(self, t: Type) -> None:
        self.value = default_value(t)

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        return


class Expressions:
    """Evaluation. `evaluate` returns leaves by value, but aggregates *by reference*: whoever keeps one copies it."""

    def __init__(self) -> None:
        self._evaluators: dict[type, Callable[[Any, Frame], Any]] = {
            ast.Name: self._name,
            ast.Member: self._member,
            ast.Index: lambda e, f: self.lvalue(e, f).get(),
            ast.Slice: self._slice,
            ast.Unary: self._unary,
            ast.Binary: self._binary,
            ast.Ternary: lambda e, f: self.evaluate(e.then if self.evaluate(e.condition, f) else e.otherwise, f),
            ast.Cast: self._cast,
            ast.ListExpr: self._aggregate,
            ast.StructInit: self._aggregate,
            ast.InvalidHeader: lambda e, f: default_value(e.type),
            ast.Dots: lambda e, f: default_value(e.type),
            ast.Call: self.call,
        }
        self._calls: dict[str, Callable[[ast.Call, Frame], Any]] = {
            "action": self._call_action,
            "function": self._call_function,
            "extern_function": self._call_extern_function,
            "method": self._call_method,
            "packet_in": self._call_packet_in,
            "packet_out": self._call_packet_out,
            "parser_apply": self._call_block,
            "control_apply": self._call_block,
            "table_apply": lambda c, f: self.apply_table(c.decl, f),
            "header_method": self._call_header_method,
            "stack_method": self._call_stack_method,
        }

    # --- values ---------------------------------------------------------------------------------------------------

    def evaluate(self, e: ast.Expr, frame: Frame) -> Any:
        """The value of `e`; sub-expressions left to right (§8.1)."""
        if e.const is not None:
            return e.const if type(e.const) in (int, str, bool) else from_const(e.const, e.type)
        evaluator = self._evaluators.get(type(e))
        if evaluator is None:
            raise InterpreterError(e, f"{type(e).__name__} has no run-time value")
        return evaluator(e, frame)

    def _name(self, e: ast.Name, frame: Frame) -> Any:
        holder = frame.holder(e.decl)
        if holder is not None:
            return holder[e.decl]
        if isinstance(e.decl, ast.Param) and e.decl.is_ctor:
            return self.constructor_argument(e, frame)
        if isinstance(e.decl, ast.Instantiation):
            return self.instance_of(e, frame)
        if isinstance(e.decl, ast.ConstDecl):
            return from_const(e.decl.value.const, e.decl.type)
        raise InterpreterError(e, f"'{e.name}' has no value here")

    def constructor_argument(self, e: ast.Name, frame: Frame) -> Any:
        """Constructor parameters are bound per instance (§15)."""
        value = frame.instance.args[e.decl.name] if frame.instance is not None else None
        if value is None or isinstance(value, Instance):
            return value
        return from_const(value, e.decl.type)

    def instance_of(self, e: ast.Expr, frame: Frame) -> Any:
        """The object that a receiver names: an Instance, or what an architecture passed for a parameter (packet_in)."""
        if isinstance(e, ast.Name) and isinstance(e.decl, ast.Instantiation):
            if frame.instance is not None and e.name in frame.instance.children:
                return frame.instance.children[e.name]
            return self.program.globals[e.name]
        return self.evaluate(e, frame)

    def _member(self, e: ast.Member, frame: Frame) -> Any:
        match e.kind:
            case "field":
                return self.evaluate(e.base, frame).fields[e.member]
            case "next" | "last":
                return self.lvalue(e, frame).get()
            case "lastIndex":  # §8.19
                return (self.evaluate(e.base, frame).next - 1) & 0xFFFFFFFF
            case "size":
                return len(self.evaluate(e.base, frame).items)
            case "hit":  # §14.2.2
                return self.evaluate(e.base, frame).hit
            case "miss":
                return not self.evaluate(e.base, frame).hit
            case "action_run":
                return self.evaluate(e.base, frame).action
        raise InterpreterError(e, f"member '{e.member}' of kind {e.kind} has no value")

    def _slice(self, e: ast.Slice, frame: Frame) -> int:
        return self.evaluate(e.base, frame) >> e.lo_bit & ((1 << e.hi_bit - e.lo_bit + 1) - 1)

    def _unary(self, e: ast.Unary, frame: Frame) -> Any:
        value = self.evaluate(e.operand, frame)
        match e.op:
            case "!":
                return not value
            case "-":
                return wrap(-value, underlying(e.type))
            case "~":
                return wrap(~value, underlying(e.type))
        return value

    def _binary(self, e: ast.Binary, frame: Frame) -> Any:
        left = self.evaluate(e.left, frame)
        if e.op == "&&":  # short circuit, §8.5
            return left and self.evaluate(e.right, frame)
        if e.op == "||":
            return left or self.evaluate(e.right, frame)
        if is_aggregate(left):
            left = copy(left)
        right = self.evaluate(e.right, frame)
        return self.operate(e.op, left, right, e.type, e.left.type, e.right.type)

    def operate(self, op: str, left: Any, right: Any, t: Type, left_type: Type, right_type: Type) -> Any:
        """A binary operator on values; `t` is the result's type (§8.2-§8.11, §8.17-§8.20)."""
        match op:
            case "==":
                return equal(left, right)
            case "!=":
                return not equal(left, right)
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return left > right
            case ">=":
                return left >= right
            case "++":  # §8.10.1: the left operand's bits are the more significant ones
                (lw, lb), (rw, rb) = pack(left, left_type), pack(right, right_type)
                return wrap(lb << rw | rb, BitType(lw + rw, underlying(t).signed))
        return arithmetic(op, left, right, underlying(t))

    def _cast(self, e: ast.Cast, frame: Frame) -> Any:
        return self.convert(self.evaluate(e.operand, frame), e.type)

    def convert(self, value: Any, t: Type) -> Any:
        """Casts keep the low bits; int<w> sign-extends (§8.12)."""
        t = underlying(t)
        if isinstance(t, BitType):
            return wrap(int(value), t)
        if isinstance(t, BoolType):
            return bool(value)
        if isinstance(value, TupleValue) and isinstance(t, RecordType):
            record = Record(t)
            assign_fields(record, value.items)
            return record
        return value

    def _aggregate(self, e: ast.ListExpr | ast.StructInit, frame: Frame) -> Any:
        """`{...}` as the type that the context gave it (§8.13, §8.14, §8.18, §8.19.1, §8.27)."""
        t = strip_new(e.type)
        items = [copy(self.evaluate(v, frame)) for v in e.values]
        if isinstance(t, TupleType):
            return TupleValue(t, items)
        if isinstance(t, StackType):
            stack = Stack(t)
            for i, item in enumerate(items):
                assign(stack.items[i], item)
            return stack
        if isinstance(t, RecordType):
            record = Record(t)
            assign_fields(record, items)
            record.valid = isinstance(t, HeaderType)
            return record
        return items

    # --- lvalues --------------------------------------------------------------------------------------------------

    def lvalue(self, e: ast.Expr, frame: Frame) -> Any:
        """Where `e` is stored; indices are evaluated now (§6.6, §6.7)."""
        match e:
            case ast.Name():
                holder = frame.holder(e.decl)
                if holder is None:
                    raise InterpreterError(e, f"'{e.name}' is no variable")
                return Location(holder, e.decl)
            case ast.Member(kind="field"):
                return Location(self.evaluate(e.base, frame).fields, e.member)
            case ast.Member(kind="next"):  # §8.19: only in parsers; beyond the stack it is an error
                stack = self.evaluate(e.base, frame)
                if stack.next >= len(stack.items):
                    raise ParserError("StackOutOfBounds")
                return Location(stack.items, stack.next)
            case ast.Member(kind="last"):
                stack = self.evaluate(e.base, frame)
                if not 0 < stack.next <= len(stack.items):
                    raise ParserError("StackOutOfBounds")
                return Location(stack.items, stack.next - 1)
            case ast.Index():
                base = self.evaluate(e.base, frame)
                index = self.evaluate(e.index, frame)
                items = base if isinstance(base, list) else base.items
                return Location(items, index) if 0 <= index < len(items) else Nowhere(e.type)
            case ast.Slice():
                return SliceLocation(self.lvalue(e.base, frame), underlying(e.base.type), e.hi_bit, e.lo_bit)
            case ast.Cast(implicit=True):
                return self.lvalue(e.operand, frame)
        value = copy(self.evaluate(e, frame))
        return Location([value], 0)

    # --- calls ----------------------------------------------------------------------------------------------------

    def call(self, c: ast.Call, frame: Frame) -> Any:
        handler = self._calls.get(c.kind)
        if handler is None:
            raise InterpreterError(c, f"a call of kind {c.kind} cannot be run")
        return handler(c, frame)

    def invoke(
        self,
        params: list[ast.Param],
        types: list[Type],
        args: list[Any],
        caller: Frame,
        callee: Frame,
        body: Callable[[], Any],
        order: Iterable[int] | None = None,
    ) -> Any:
        """Copy-in, copy-out (§6.7): arguments are evaluated left to right, results are copied back left to right.

        `order` is that of the arguments as they are written where it is not that of the parameters. Copy-out also
        happens when `exit` (§12.5) or a parser error ends the callee.
        """
        results = []
        for i in range(len(params)) if order is None else order:
            param, t, arg = params[i], types[i], args[i]
            if param.direction in ("out", "inout"):
                place = Nowhere(t) if arg is None or isinstance(arg, ast.DontCare) else self.lvalue(arg, caller)
                results.append((place, param))
                callee.vars[param] = default_value(t) if param.direction == "out" else copy(place.get())
            else:
                callee.vars[param] = copy(self.evaluate(arg, caller)) if arg is not None else default_value(t)
        try:
            return body()
        finally:
            for place, param in results:
                place.set(callee.vars[param])

    def run_body(self, body: ast.Block, frame: Frame) -> Any:
        try:
            self.execute(body, frame)
        except ReturnSignal as signal:
            return signal.value
        return None

    def invoke_call(self, c: ast.Call, params: list[ast.Param], caller: Frame, callee: Frame, body: Callable) -> Any:
        types = [p.type for p in c.params]
        return self.invoke(params, types, c.args, caller, callee, body, written_order(c))

    def _call_action(self, c: ast.Call, frame: Frame) -> None:
        """An action runs in the scope of its control (§14.1)."""
        callee = Frame(frame.instance, frame.outer or frame)
        self.invoke_call(c, c.decl.params, frame, callee, lambda: self.run_body(c.decl.body, callee))

    def _call_function(self, c: ast.Call, frame: Frame) -> Any:
        callee = Frame(frame.instance)
        return self.invoke_call(c, c.decl.params, frame, callee, lambda: self.run_body(c.decl.body, callee))

    def _call_block(self, c: ast.Call, frame: Frame) -> None:
        """`apply` of a parser or control instance (§13.10, §14.4)."""
        instance = self.instance_of(c.receiver, frame)
        callee = Frame(instance)
        run = self.run_parser if c.kind == "parser_apply" else self.run_control
        self.invoke_call(c, instance.decl.params, frame, callee, lambda: run(instance, callee))

    def _call_header_method(self, c: ast.Call, frame: Frame) -> Any:
        header = self.evaluate(c.receiver, frame)
        match c.method:
            case "isValid":
                return header.is_valid()
            case "setValid":
                header.set_valid()
            case "setInvalid":
                header.set_invalid()
        return None

    def _call_stack_method(self, c: ast.Call, frame: Frame) -> None:
        stack = self.evaluate(c.receiver, frame)
        count = self.evaluate(c.args[0], frame)
        if c.method == "push_front":
            stack.push_front(count)
        else:
            stack.pop_front(count)

    def _call_packet_in(self, c: ast.Call, frame: Frame) -> Any:
        packet: PacketIn = self.evaluate(c.receiver, frame)
        match c.method:
            case "extract":
                self._extract(packet, c, frame)
                return None
            case "lookahead":
                return packet.lookahead(c.type)
            case "advance":
                return packet.advance(self.evaluate(c.args[0], frame))
            case "length":
                return len(packet.data)
        raise InterpreterError(c, f"packet_in has no method '{c.method}'")

    def _extract(self, packet: PacketIn, c: ast.Call, frame: Frame) -> None:
        """§13.8: the header changes only when the extraction succeeds; then `.next` moves on."""
        target = c.args[0]
        if target is None or isinstance(target, ast.DontCare):
            header = default_value(c.params[0].type)
        else:
            header = self.lvalue(target, frame).get()
        if len(c.args) > 1:
            packet.extract_varbit(header, self.evaluate(c.args[1], frame))
        else:
            packet.extract(header)
        if (
            isinstance(target, ast.Member)
            and target.kind == "field"
            and isinstance(strip_new(target.base.type), UnionType)
        ):
            target = target.base  # extract(hdr.unions.next.member)
        if isinstance(target, ast.Member) and target.kind == "next":
            self.evaluate(target.base, frame).next += 1

    def _call_packet_out(self, c: ast.Call, frame: Frame) -> None:
        packet: PacketOut = self.evaluate(c.receiver, frame)
        packet.emit(self.evaluate(c.args[0], frame), c.args[0].type)

    def extern_arguments(self, c: ast.Call, frame: Frame) -> list[Any]:
        """Values for `in` and directionless parameters, lvalues for `out` and `inout`; None for omitted ones."""
        out = []
        for param, arg in zip(c.params, c.args, strict=True):
            if param.direction in ("out", "inout"):
                out.append(
                    Nowhere(param.type) if arg is None or isinstance(arg, ast.DontCare) else self.lvalue(arg, frame)
                )
            else:
                out.append(None if arg is None else copy(self.evaluate(arg, frame)))
        return out

    def _call_extern_function(self, c: ast.Call, frame: Frame) -> Any:
        name = c.decl.name
        if name == "verify":  # §13.7
            check, error = self.extern_arguments(c, frame)
            if not check:
                raise ParserError(error)
            return None
        if name == "static_assert":
            return True  # the checker has verified it
        return self.architecture.call_function(name, c, self.extern_arguments(c, frame), frame)

    def _call_method(self, c: ast.Call, frame: Frame) -> Any:
        instance = self.instance_of(c.receiver, frame)
        return self.architecture.call_method(instance, c.method, c, self.extern_arguments(c, frame), frame)


def written_order(c: ast.Call) -> list[int]:
    """Indices of parameters in the order in which their arguments are written; defaults come last."""
    names = [p.name for p in c.params]
    order = [i if a.name is None else names.index(a.name) for i, a in enumerate(c.arguments)]
    return order + [i for i in range(len(names)) if i not in order]


def assign_fields(record: Record, items: list[Any]) -> None:
    for name, value in zip(record.fields, items, strict=True):
        store_part(record.fields, name, value)


def arithmetic(op: str, left: int, right: int, t: BitType) -> int:
    """Fixed-width arithmetic: wrapping, saturating (`|+| |-|`), shifts of any amount (§8.7, §8.8, §8.10.2)."""
    match op:
        case "+":
            return wrap(left + right, t)
        case "-":
            return wrap(left - right, t)
        case "*":
            return wrap(left * right, t)
        case "/":
            return left // right if right else 0
        case "%":
            return left % right if right else 0
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return wrap(left << right, t) if right < t.width else 0
        case ">>":  # arithmetic for int<w>; everything shifted out leaves 0 or -1
            return left >> min(right, t.width)
        case "|+|" | "|-|":
            low, high = (-(1 << t.width - 1), (1 << t.width - 1) - 1) if t.signed else (0, (1 << t.width) - 1)
            return min(max(left + right if op == "|+|" else left - right, low), high)
    raise ValueError(f"no operator {op}")
