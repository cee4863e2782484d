"""Calls in the reference interpreter: copy-in and copy-out (P4_16 v1.2.5 §6.7), methods of headers and packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.expressions import Expressions, Frame, InterpreterError, Nowhere, ReturnSignal
from ina.p4.compiler.reference.packet import PacketIn, PacketOut, ParserError
from ina.p4.compiler.reference.values import copy, default_value
from ina.p4.compiler.types import Type, UnionType, strip_new


class Calls(Expressions):
    """Calls of every kind. The subclass executes statements."""

    def __init__(self) -> None:
        super().__init__()
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

    def execute(self, s: ast.Node, frame: Frame) -> None:
        raise TypeError("defined in reference/statements.py")

    def run_parser(self, instance: Instance, frame: Frame) -> None:
        raise TypeError("defined in reference/statements.py")

    def run_control(self, instance: Instance, frame: Frame) -> None:
        raise TypeError("defined in reference/statements.py")

    def apply_table(self, decl: ast.TableDecl, frame: Frame) -> Any:
        raise TypeError("defined in reference/statements.py")

    def call(self, c: ast.Call, frame: Frame) -> Any:
        handler = self._calls.get(c.kind or "")
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
        """Copies arguments in, runs `body`, and copies results out, both left to right (§6.7).

        `order`: the order in which the arguments are written, if it is not that of the parameters. Copy-out also happens when
        `exit` (§12.5) or a parser error ends the callee.
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

    def invoke_call(self, c: ast.Call, params: list[ast.Param], caller: Frame, callee: Frame, body: Callable[[], Any]) -> Any:
        types = [p.type for p in c.params]
        return self.invoke(params, types, c.args, caller, callee, body, written_order(c))

    def _call_action(self, c: ast.Call, frame: Frame) -> None:
        """Calls an action, which runs in the scope of its control (§14.1)."""
        callee = Frame(frame.instance, frame.outer or frame)
        self.invoke_call(c, c.decl.params, frame, callee, lambda: self.run_body(c.decl.body, callee))

    def _call_function(self, c: ast.Call, frame: Frame) -> Any:
        callee = Frame(frame.instance)
        return self.invoke_call(c, c.decl.params, frame, callee, lambda: self.run_body(c.decl.body, callee))

    def _call_block(self, c: ast.Call, frame: Frame) -> None:
        """Runs `apply` of a parser or control instance (§13.10, §14.4)."""
        instance = self.instance_of(c.on, frame)
        callee = Frame(instance)
        run = self.run_parser if c.kind == "parser_apply" else self.run_control
        self.invoke_call(c, instance.decl.params, frame, callee, lambda: run(instance, callee))

    def _call_header_method(self, c: ast.Call, frame: Frame) -> Any:
        header = self.evaluate(c.on, frame)
        match c.method:
            case "isValid":
                return header.is_valid()
            case "setValid":
                header.mark_valid() if self.architecture.keeps_fields else header.set_valid()
            case "setInvalid":
                header.set_invalid()
        return None

    def _call_stack_method(self, c: ast.Call, frame: Frame) -> None:
        stack = self.evaluate(c.on, frame)
        count = self.evaluate(c.given(0), frame)
        if c.method == "push_front":
            stack.push_front(count)
        else:
            stack.pop_front(count)

    def _call_packet_in(self, c: ast.Call, frame: Frame) -> Any:
        packet: PacketIn = self.evaluate(c.on, frame)
        match c.method:
            case "extract":
                self._extract(packet, c, frame)
                return None
            case "lookahead":
                return packet.lookahead(c.type)
            case "advance":
                return packet.advance(self.evaluate(c.given(0), frame))
            case "length":
                return len(packet.data)
        raise InterpreterError(c, f"packet_in has no method '{c.method}'")

    def _extract(self, packet: PacketIn, c: ast.Call, frame: Frame) -> None:
        """Extracts a header (§13.8), which changes only if the extraction succeeds; then `.next` advances."""
        target = c.args[0]
        if target is None or isinstance(target, ast.DontCare):
            header = default_value(c.params[0].type)
        else:
            header = self.lvalue(target, frame).get()
        if len(c.args) > 1:
            packet.extract_varbit(header, self.evaluate(c.given(1), frame))
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
        packet: PacketOut = self.evaluate(c.on, frame)
        packet.emit(self.evaluate(c.given(0), frame), c.given(0).type)

    def extern_arguments(self, c: ast.Call, frame: Frame) -> list[Any]:
        """Returns values for `in` and directionless parameters, lvalues for `out` and `inout`; None for omitted ones."""
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
        instance = self.instance_of(c.on, frame)
        return self.architecture.call_method(instance, c.method, c, self.extern_arguments(c, frame), frame)


def written_order(c: ast.Call) -> list[int]:
    """Returns the indices of parameters in the order in which their arguments are written; defaults come last."""
    names = [p.name for p in c.params]
    order = [i if a.name is None else names.index(a.name) for i, a in enumerate(c.arguments)]
    return order + [i for i in range(len(names)) if i not in order]
