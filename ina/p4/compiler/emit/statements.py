"""C text of IR statements."""

from __future__ import annotations

from ina.p4.compiler import fold, ir
from ina.p4.compiler.emit.expressions import c_type, cell, number
from ina.p4.compiler.emit.names import c_comment
from ina.p4.compiler.emit.operations import count, meter_text
from ina.p4.compiler.emit.writer import Handlers, Writer
from ina.p4.compiler.operations import OfRegion


class Statements:
    """Writes statements; `handlers` those of operations."""

    def __init__(self, writer: Writer, handlers: Handlers) -> None:
        self.w, self.handlers, self.expressions = writer, handlers, writer.expressions
        self.line, self.name, self.c = writer.line, writer.name, writer.c
        self._forgetful: dict[ir.Stmt, bool] = {}

    def block(self, body: list[ir.Stmt]) -> None:
        w = self.w
        outer, w.owned = w.owned, set(w.owned)
        for stmt in body:
            if forgets(stmt):
                w.owned.clear()
            self.statement(stmt)
        w.owned = set() if self._forgets(body) else outer

    def _forgets(self, body: list[ir.Stmt]) -> bool:
        """Returns True if a statement of a block, at any depth, forgets (see `forgets`). Results are cached by statement."""
        return any(self._is_forgetful(stmt) for stmt in body)

    def _is_forgetful(self, stmt: ir.Stmt) -> bool:
        if stmt not in self._forgetful:
            self._forgetful[stmt] = forgets(stmt) or any(self._forgets(inner) for inner in ir.blocks(stmt))
        return self._forgetful[stmt]

    def braces(self, head: str, body: list[ir.Stmt]) -> None:
        with self.w.braces(head + " {"):
            self.block(body)

    def statement(self, stmt: ir.Stmt) -> None:
        comment = self.w.origins.comment(stmt.origin, stmt.end if isinstance(stmt, ir.Roll) else None)
        if comment:
            self.line(comment)
        match stmt:
            case ir.Assign():
                text = self.expressions.whole(stmt.value) if isinstance(stmt.target, ir.Var) else self.c(stmt.value)
                self.w.set(stmt.target, text)
            case ir.If():
                self._if(stmt)
            case ir.RegRead():
                self._read(stmt)
            case ir.RegWrite():
                self._write(stmt)
            case ir.Goto():
                self.line(f"goto {stmt.label};")
            case ir.Label():
                self.w.lines.append(f"{stmt.label}:;")
            case ir.Switch():
                self._switch(stmt)
            case ir.Lookup():
                self._lookup(stmt)
            case ir.Roll():
                self._roll(stmt)
            case ir.Operation():
                self.handlers.write(self.w, stmt)
            case _:
                raise TypeError(type(stmt).__name__)

    def _if(self, stmt: ir.If) -> None:
        if not stmt.then and not stmt.otherwise:
            return
        if not stmt.then:
            stmt = ir.If(fold.lnot(stmt.condition), stmt.otherwise, [], None if stmt.likely is None else not stmt.likely)
        head = self._head(stmt)
        while True:
            self.w.wrapped(head)
            with self.w.indented():
                self.block(stmt.then)
            match stmt.otherwise:
                case [ir.If(then=[_, *_]) as stmt]:
                    comment = self.w.origins.comment(stmt.origin)
                    head = f"}} else {self._head(stmt)}" + (f" {comment}" if comment else "")
                case []:
                    break
                case rest:
                    self.line("} else {")
                    with self.w.indented():
                        self.block(rest)
                    break
        self.line("}")

    def _head(self, stmt: ir.If) -> str:
        condition = self.expressions.test(stmt.condition)
        if stmt.likely is not None:
            condition = f"ina_{'likely' if stmt.likely else 'unlikely'}({condition})"
        return f"if ({condition}) {{"

    def _switch(self, stmt: ir.Switch) -> None:
        self.line(f"switch ({self.c(stmt.subject)}) {{")
        seen = set()
        for value, body in stmt.cases:
            if value in seen:
                continue  # the first one wins
            seen.add(value)
            name = f" {c_comment(stmt.names[value])}" if value in stmt.names else ""
            with self.w.braces(f"case {number(value, stmt.subject.width)}: {{{name}"):
                self.block(body)
                self.line("break;")
        if stmt.default:
            with self.w.braces("default: {"):
                self.block(stmt.default)
                self.line("break;")
        else:
            self.line("default: break;")
        self.line("}")

    # --- registers --------------------------------------------------------------------------------------------------

    def _cell(self, register: ir.Register, index: ir.Expr, step: int) -> str:
        run = f" + {step} * (uint64_t)i" if step else ""
        if self.w.rows is not None:
            return cell(f"{self.w.rows[register.group, ir.key(index)]} + {register.offset}{run}", register.bytes)
        if not step:
            self.w.accessed[register] = None
            return f"{self.w.accessors[register]}({self.expressions.whole(index)})"
        at = f"state + {register.offset} + (uint64_t)({self.c(index)}) * {register.stride}{run}"
        return cell(at, register.bytes)

    def _read(self, stmt: ir.RegRead) -> None:
        register = stmt.register
        value = self._cell(register, stmt.index, stmt.step)
        if register.bytes < 4:
            value = f"({c_type(register.width)}){value}"
        if self.w.rows is None and not stmt.inside and not ir.in_range(register, stmt.index):
            value = f"({self.c(stmt.index)} < {register.size}u ? {value} : {number(0, register.width)})"
        self.w.set(stmt.target, value)

    def _write(self, stmt: ir.RegWrite) -> None:
        register = stmt.register
        text = self.expressions.whole(stmt.value)
        value = f"(uint{8 * register.bytes}_t)({text})" if register.bytes < 4 else text
        store = f"{self._cell(register, stmt.index, stmt.step)} = {value};"
        if self.w.rows is None and not stmt.inside and not ir.in_range(register, stmt.index):
            store = f"if ({self.c(stmt.index)} < {register.size}u) {{ {store} }}"
        self.line(store)

    # --- rolled loops -----------------------------------------------------------------------------------------------

    def _roll(self, stmt: ir.Roll) -> None:
        """Writes a loop in two versions: the fast path for when all its rows exist, and one that checks each access."""
        regions: dict[ir.Region, None] = {}
        indices: dict[tuple[int, object], ir.RegRead | ir.RegWrite] = {}
        for inner in ir.walk(stmt.body):
            for e in (*ir.reads(inner), *ir.writes(inner)):
                for leaf in ir.leaves(e):
                    if isinstance(leaf, ir.Elem) and leaf.array.region:
                        regions[leaf.array.region] = None
            for e in ir.writes(inner):
                if isinstance(e, ir.Elem) and e.array.region:
                    self.w.own(e.array.region)
            if isinstance(inner, ir.RegRead | ir.RegWrite):
                indices.setdefault((inner.register.group, ir.key(inner.index)), inner)
        unknown = [a for a in indices.values() if not a.inside and not ir.in_range(a.register, a.index)]
        checks = [f"{self.c(a.index)} < {a.register.size}u" for a in unknown]
        self.line(f"if (ina_likely({' && '.join(checks)})) {{" if checks else "{")
        with self.w.indented():
            rows = {}
            for n, (place, access) in enumerate(indices.items()):
                stride = access.register.stride
                self.line(f"uint8_t *const r{n} = state + (uint64_t)({self.expressions.whole(access.index)}) * {stride};")
                rows[place] = f"r{n}"
            self.expressions.bases = {region: f"b{n}" for n, region in enumerate(regions)}
            for n, region in enumerate(regions):
                self.line(f"uint8_t *const b{n} = {self.name(region)};")
            self.w.rows = rows
            if stmt.independent:
                self.w.lines.append("#pragma GCC ivdep")
            self.braces(f"for (uint32_t i = 0; i < {stmt.count}; i++)", stmt.body)
            self.w.rows, self.expressions.bases = None, {}
        if checks:
            self.line("} else {")
            with self.w.indented():
                self.braces(f"for (uint32_t i = 0; i < {stmt.count}; i++)", stmt.body)
        self.line("}")

    # --- tables -----------------------------------------------------------------------------------------------------

    def _lookup(self, stmt: ir.Lookup) -> None:
        table, n = stmt.table, stmt.cursor
        hit, action = self.name(stmt.hit), self.name(stmt.action)
        if not table.value_set:
            self.line(f"const uint64_t *p{n};")
        keys = ", ".join(f"{k.name} {k.match}" for k in table.keys)
        kind = "value set" if table.value_set else "table"
        with self.w.braces("{ " + c_comment(f"{kind} {table.name}: {keys or 'no key'}")):
            self.line(f"const struct ina_table *const t = tables->table[{table.index}];")
            if table.key_words and not table.chained:
                words = [self.c(k) for k in stmt.keys]
                if table.key_mask is not None:
                    m = table.key_mask
                    words = [f"({w}) & *(const uint64_t *)(state + {m.offset + i * m.stride})" for i, w in enumerate(words)]
                self.line(f"const uint64_t key[{table.key_words}] = {{ {', '.join(words)} }};")
                if table.value_set:
                    function = "ina_lookup_exact" if table.kind == "exact" else "ina_table_lookup"
                    more = f", {table.key_words}" if table.kind == "exact" else ""
                    self.line(f"{hit} = {function}(t, key{more}) != 0;")
                    return
                call = "ina_table_lookup(t, key)"
                if table.kind == "exact":
                    call = f"ina_lookup_again(t, key, {table.key_words}, found + {self.w.cached_lookups})"
                    self.w.cached_lookups += 1
                self.line(
                    f"const struct ina_entry *const e = {call};",
                    f"{hit} = e != 0;",
                    f"{action} = e ? e->action : t->default_action;",
                )
                params = table.key_words if table.kind == "exact" else 2 * table.key_words
                self.line(f"p{n} = e ? e->words + {params} : t->default_params;")
                if stmt.selector is not None:
                    self._select_member(stmt, stmt.selector)
                if stmt.entry is not None:
                    self.line(f"{self.name(stmt.entry)} = e ? e->id : {ir.NO_ENTRY}u;")
                if table.hits is not None:
                    self.line(f"if (e && e->id < {table.size}) state[{table.hits} + e->id] = 1;")
                if table.meter and not table.meter.explicit:
                    assert stmt.color is not None
                    self.line(f"if (e) {self.name(stmt.color)} = {meter_text(self.w, table.meter, 'e->id')};")
                if table.counter and not table.counter.explicit:
                    self.line("if (e) {")
                    count(self.w, table.counter, "e->id")
                    self.line("}")
            else:
                self.line(
                    f"{action} = t->default_action;",
                    f"p{n} = t->default_params;",
                )
            self.line(f"(void)p{n};")

    def _select_member(self, stmt: ir.Lookup, selector: ir.Var) -> None:
        """Selects a member if the entry names a group; an empty group is a miss."""
        hit, action, n = self.name(stmt.hit), self.name(stmt.action), stmt.cursor
        self.line(
            "if (e && e->action == INA_ACTION_GROUP) {",
            f"    const uint64_t *const m = ina_table_member(t, e, {self.c(selector)});",
            f"    {hit} = m != 0;",
            f"    {action} = m ? (uint32_t)m[0] : t->default_action;",
            f"    p{n} = m ? m + 1 : t->default_params;",
            "}",
        )


def forgets(stmt: ir.Stmt) -> bool:
    """Returns True if a header may have another place behind this statement than in the text before it."""
    return isinstance(stmt, ir.Label | OfRegion)
