"""Lowering of tables: key words, lookup (or an if-chain over constant entries), one inlined copy of each action."""

from __future__ import annotations

from functools import partial

from ina.p4.compiler import ast, fold, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import TableResult, unsupported
from ina.p4.compiler.lower.inline import Argument, Inliner
from ina.p4.compiler.lower.matching import Matching, key_words, words
from ina.p4.compiler.lower.table_description import Descriptions, TableUse, matched
from ina.p4.compiler.lower.value_trees import Value


class Tables:
    """Applies tables. `entries`: the current entry of its table for each object that has a cell for each."""

    def __init__(self, inliner: Inliner, matching: Matching, descriptions: Descriptions) -> None:
        self.context, self.code, self.values = inliner.context, inliner.code, inliner.values
        self.expressions, self.statements = inliner.expressions, inliner.statements
        self.inliner, self.matching, self.descriptions = inliner, matching, descriptions
        self.entries: dict[Instance, ir.Expr] = {}
        self._uses: dict[tuple[Instance, ast.TableDecl], TableUse] = {}

    def _use(self, decl: ast.TableDecl) -> TableUse:
        key = self.context.instance, decl
        if key not in self._uses:
            use = self._uses[key] = self.descriptions.describe(decl, self.context.instance)
            self.matching.tables[key] = use.table
        return self._uses[key]

    def apply(self, e: ast.Call) -> TableResult:
        decl: ast.TableDecl = e.decl
        use = self._use(decl)
        table = use.table
        values = [self.code.stable(self.expressions.scalar(k.expr)) for k in decl.keys]
        keys = [v for k, v in zip(decl.keys, values, strict=True) if k.match_kind != "selector"]
        selector = None
        if use.selector is not None:
            selector = use.selector([v for k, v in zip(decl.keys, values, strict=True) if k.match_kind == "selector"])
        hit, action = self.code.temp(1, name="hit"), self.code.temp(32, name="action")
        params = [[self.context.storage.place(p.type, p.name) for p in a.ref.decl.params] for a in table.actions]
        self.code.emit(ir.Assign(hit, fold.FALSE))
        cursor = self.matching.number()
        entry: ir.Var | None = None
        if table.index >= 0:
            parts = self._key_words(table, keys) if not table.chained else []
            entry = self.code.temp(32, name="entry") if use.direct and parts else None
            self.code.emit(ir.Lookup(table, parts, hit, action, cursor, use.color, selector, entry))
        else:
            self.code.emit(ir.Assign(action, fold.const(table.default_action, 32)))
        if table.chained:
            entry = self._constant_entries(decl, table, keys, hit, action)
        for instance in use.direct:
            self.entries[instance] = entry if entry is not None else fold.const(ir.NO_ENTRY, 32)
        self._run_actions(decl, table, params, action, entry, cursor)
        self.context.results.append(TableResult(hit, action))
        return self.context.results[-1]

    def _key_words(self, table: ir.Table, keys: list[ir.Expr]) -> list[ir.Expr]:
        """Returns the words of a key; fields of exact tables share words, as the table's description says."""
        parts: list[ir.Expr | None] = [None] * table.key_words
        for key, spec in zip(keys, table.keys, strict=True):
            for i, word in enumerate(key_words(key), spec.word):
                before = parts[i]
                if spec.shift:
                    word = ir.Op("shl", (word, fold.const(spec.shift, 32)), 64)
                parts[i] = word if before is None else ir.Op("or", (before, word), 64)
        return [word for word in parts if word is not None]

    def _bound_arguments(self, ref: ast.ActionRef) -> dict[ast.Node, Argument]:
        """Returns the arguments that the program itself passes to a table's action, evaluated from left to right, by
        parameter."""
        bound = [(p, a) for p, a in zip(ref.decl.params, ref.args or (), strict=False) if a is not None]
        parts = [partial(self.inliner.argument, p, a, ref) for p, a in bound]
        values = self.values.in_order(parts, lambda at, value: self.inliner.saved_argument(bound[at][0], value, ref))
        return {p: value for (p, _), value in zip(bound, values, strict=True)}

    def _run_actions(
        self, decl: ast.TableDecl, table: ir.Table, params: list[list[Value]], action: ir.Var, entry: ir.Var | None, cursor: int
    ) -> None:
        cases = []
        constant = table.index < 0
        for i, ref in enumerate(a.ref for a in table.actions):
            def lower(i: int = i, ref: ast.ActionRef = ref) -> None:
                values: list[Argument] = []
                bound = self._bound_arguments(ref)
                for param, place, word in zip(ref.decl.params, params[i], table.actions[i].words, strict=True):
                    if param in bound:
                        values.append(bound[param])
                        continue
                    if not isinstance(place, ir.Var):
                        raise unsupported(param, f"an action parameter of type {param.type}")
                    if not constant:
                        self.code.emit(ir.Assign(place, self._parameter(cursor, word, place)))
                    values.append(place)
                if constant or table.chained:
                    self._constant_parameters(decl, table, i, params[i], entry)
                # The action may also reach the program's arguments by their own names: it gets copies.
                own = all(arg is None for arg in ref.args or ())
                body = partial(self.statements.body, ref.decl.body)
                self.inliner.inline_values(ref.decl.params, values, ref, body, by_reference=own)

            cases.append((i, self.code.block(lower)))
        cases = [(i, body) for i, body in cases if body]
        if cases:
            self.code.emit(ir.Switch(action, cases, names={i: table.actions[i].name for i, _ in cases}))

    def _parameter(self, cursor: int, word: int, place: ir.Var) -> ir.Expr:
        parts = [ir.Native(f"p{cursor}[{word + k}]", 64) for k in range(words(place.width))]
        whole = parts[0] if len(parts) == 1 else fold.concat(list(reversed(parts)))
        return fold.cast(whole, place.width, place.signed)

    def _constant_entries(
        self, decl: ast.TableDecl, table: ir.Table, keys: list[ir.Expr], hit: ir.Var, action: ir.Var
    ) -> ir.Var:
        """Emits an if-chain, the entry that wins first: sets hit and action; returns the entry's number."""
        number = self.code.temp(32, name="entry")
        self.code.emit(ir.Assign(number, fold.const(0xFFFFFFFF, 32)))
        chain: list[ir.Stmt] = []
        for i in reversed(range(len(table.entries))):
            entry = table.entries[i]
            source: ast.TableEntry = decl.entries[entry.source]
            condition: ir.Expr = fold.TRUE
            for key, match in zip(keys, matched(decl, source), strict=True):
                condition = fold.land(condition, self.matching.matches(key, match))
            body: list[ir.Stmt] = [
                ir.Assign(hit, fold.TRUE),
                ir.Assign(action, fold.const(entry.action, 32)),
                ir.Assign(number, fold.const(i, 32)),
            ]
            chain = [ir.If(condition, body, chain)]
        self.code.out += chain
        return number

    def _constant_parameters(
        self, decl: ast.TableDecl, table: ir.Table, index: int, params: list[Value], entry_number: ir.Var | None
    ) -> None:
        """Overrides the parameters of action `index` with those of the constant entry or constant default that selected it."""
        if not params:
            return
        if table.index < 0 and table.default_action == index:
            for place, value in zip(params, table.actions[index].default, strict=True):
                if value is not None:
                    self.code.emit(ir.Assign(value_trees.variable(place), value))
        cases: list[tuple[int, list[ir.Stmt]]] = []
        for i, entry in enumerate(table.entries):
            if entry.action == index:
                args = decl.entries[entry.source].action.args
                bound = table.actions[index].ref.args or [None] * len(args)
                body: list[ir.Stmt] = [
                    ir.Assign(value_trees.variable(p), value_trees.expression(self.values.constant(a.const, a.type, a)))
                    for p, a, own in zip(params, args, bound, strict=True)
                    if a is not None and own is None
                ]
                cases.append((i, body))
        if cases and entry_number is not None:
            self.code.emit(ir.Switch(entry_number, cases))
