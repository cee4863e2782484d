"""Lowering of calls: each kind goes to the part that knows it."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower.context import Lowered, unsupported
from ina.p4.compiler.lower.deparser import Deparsers
from ina.p4.compiler.lower.headers import Headers
from ina.p4.compiler.lower.parser import Parsers
from ina.p4.compiler.lower.tables import Tables
from ina.p4.compiler.lower.value_trees import Value

Function = Callable[[ast.Call], Value | None]
Method = Callable[[ast.Call, Instance], Value | None]


class Calls:
    """Lowers calls. `function` and `method` lower those of externs."""

    def __init__(self, parsers: Parsers, deparsers: Deparsers, tables: Tables, function: Function, method: Method) -> None:
        self.inliner, self.headers = parsers.inliner, Headers(parsers.expressions)
        self.parsers, self.deparsers, self.tables = parsers, deparsers, tables
        self.function, self.method = function, method

    def call(self, e: ast.Call) -> Lowered:
        """Lowers a call; the result is a value tree, None for void."""
        inliner = self.inliner
        match e.kind:
            case "action":
                inliner.inline(e.decl.params, e.args, e, lambda: inliner.statements.body(e.decl.body), by_reference=False)
            case "function":
                t = e.decl.return_type
                result = None if isinstance(t, types.VoidType) else inliner.context.storage.place(t, "result")
                inliner.inline(e.decl.params, e.args, e, lambda: inliner.statements.body(e.decl.body), result=result)
                return result
            case "control_apply":
                inliner.apply_control(inliner.resolve_instance(e.receiver), e)
            case "parser_apply":
                self.parsers.apply_parser(inliner.resolve_instance(e.receiver), e)
            case "table_apply":
                return self.tables.apply(e)
            case "header_method":
                return self.headers.header_method(e)
            case "stack_method":
                self.headers.stack_method(e)
            case "packet_in":
                return self.parsers.packet_in(e)
            case "packet_out":
                self.deparsers.packet_out(e)
            case "extern_function":
                return self.function(inliner.settled(e))
            case "method":
                return self.method(inliner.settled(e), inliner.resolve_instance(e.receiver))
            case kind:
                raise unsupported(e, f"a call of kind {kind}")
        return None
