"""C text of IR statements."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import fold, ir
from ina.p4.compiler.emit.bytes import Bytes
from ina.p4.compiler.emit.expressions import c_type, cell, number
from ina.p4.compiler.emit.names import Origins, c_comment
from ina.p4.compiler.optimise.bounds import in_range
from ina.p4.compiler.optimise.rows import key


class Statements(Bytes):
    module: ir.Module
    origins: Origins
    accessors: dict[int, str]  # macros of registers, by id
    cached_lookups: int  # look-ups so far that try the previous packet's entry first

    def __init__(self) -> None:
        super().__init__()
        self.accessed: dict[int, ir.Register] = {}
        self.rows: dict[tuple[int, object], str] | None = None  # fast side of a loop: row by group and index
        self.stack_buffers: dict[int, ir.Region] = {}
        self.owned: set[int] = set()  # regions that were made writable on every way here
        self.forgetful: dict[int, bool] = {}
        self.blocks_alive: list[list[ir.Stmt]] = []
        self.settled: set[int] = set()  # regions that stay where they were extracted
        self.leave = "return"  # the statement that ends the function for a packet

    def block(self, body: list[ir.Stmt]) -> None:
        outer, self.owned = self.owned, set(self.owned)
        for stmt in body:
            if forgets(stmt):
                self.owned.clear()
            self.statement(stmt)
        self.owned = set() if self._forgets(body) else outer

    def _forgets(self, body: list[ir.Stmt]) -> bool:
        """Returns True if a statement of a block, at any depth, forgets (see `forgets`). Results are cached by block."""
        result = self.forgetful.get(id(body))
        if result is None:
            result = any(forgets(s) or any(self._forgets(inner) for inner in ir.blocks(s)) for s in body)
            self.forgetful[id(body)] = result
            self.blocks_alive.append(body)  # so that no other block gets its id
        return result

    def braces(self, head: str, body: list[ir.Stmt]) -> None:
        self.line(head + " {")
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    def set(self, target: Any, value: str) -> None:
        if isinstance(target, ir.Var):
            self.line(f"{self.name(target)} = {value};")
        else:
            if target.array.region is not None and not self.bases:
                self.own(target.array.region)
            self.line(self.store_elem(target, value))

    def own(self, region: ir.Region) -> None:
        """Makes a header writable: one that was never extracted points to constant zeros."""
        if id(region) in self.owned or id(region) in self.settled:
            return
        self.owned.add(id(region))
        name = self.name(region)
        self.line(f"if ({name} == ina_zeros) {name} = memset({self.buffer(region)}, 0, {region.size});")

    def buffer(self, region: ir.Region) -> str:
        """Returns memory for a header outside of the frame: on the stack if it never becomes valid there."""
        if region.own_buffer:
            return f"meta + {self.buffer_offset(region)}"
        self.stack_buffers[id(region)] = region
        return f"{self.name(region)}_room"

    def buffer_offset(self, region: ir.Region) -> int:
        raise TypeError("defined in emit")

    def statement(self, stmt: ir.Stmt) -> None:
        comment = self.origins.comment(stmt.origin, stmt.end if isinstance(stmt, ir.Roll) else None)
        if comment:
            self.line(comment)
        match stmt:
            case ir.Assign():
                self.set(stmt.target, self.whole(stmt.value) if isinstance(stmt.target, ir.Var) else self.c(stmt.value))
            case ir.If():
                self._if(stmt)
            case ir.RegRead():
                self._read(stmt)
            case ir.RegWrite():
                self._write(stmt)
            case ir.Goto():
                self.line(f"goto {stmt.label};")
            case ir.Label():
                self.lines.append(f"{stmt.label}:;")
            case ir.Switch():
                self._switch(stmt)
            case ir.Lookup():
                self._lookup(stmt)
            case ir.Roll():
                self._roll(stmt)
            case ir.Extern():
                getattr(self, f"x_{stmt.op}")(stmt)
            case _:
                raise TypeError(type(stmt).__name__)

    def _if(self, stmt: ir.If) -> None:
        if not stmt.then and not stmt.otherwise:
            return
        if not stmt.then:
            stmt = ir.If(fold.lnot(stmt.condition), stmt.otherwise, [], None if stmt.likely is None else not stmt.likely)
        head = self._head(stmt)
        while True:
            self.wrapped(head)
            self.depth += 1
            self.block(stmt.then)
            self.depth -= 1
            match stmt.otherwise:
                case [ir.If(then=[_, *_]) as stmt]:
                    comment = self.origins.comment(stmt.origin)
                    head = f"}} else {self._head(stmt)}" + (f" {comment}" if comment else "")
                case []:
                    break
                case rest:
                    self.line("} else {")
                    self.depth += 1
                    self.block(rest)
                    self.depth -= 1
                    break
        self.line("}")

    def _head(self, stmt: ir.If) -> str:
        condition = self.test(stmt.condition)
        if stmt.likely is not None:
            condition = f"ina_{'likely' if stmt.likely else 'unlikely'}({condition})"
        return f"if ({condition}) {{"

    def wrapped(self, text: str) -> None:
        """Writes a condition, on several lines if it is long."""
        room = 116 - 4 * self.depth
        while len(text) > room and (cut := max(text.rfind(" && ", 0, room), text.rfind(" || ", 0, room))) > 0:
            self.line(text[: cut + 3])
            text = "    " + text[cut + 4 :]
        self.line(text)

    def _switch(self, stmt: ir.Switch) -> None:
        self.line(f"switch ({self.c(stmt.subject)}) {{")
        seen = set()
        for value, body in stmt.cases:
            if value in seen:
                continue  # the first one wins
            seen.add(value)
            name = f" {c_comment(stmt.names[value])}" if value in stmt.names else ""
            self.line(f"case {number(value, stmt.subject.width)}: {{{name}")
            self.depth += 1
            self.block(body)
            self.line("break;")
            self.depth -= 1
            self.line("}")
        if stmt.default:
            self.line("default: {")
            self.depth += 1
            self.block(stmt.default)
            self.line("break;")
            self.depth -= 1
            self.line("}")
        else:
            self.line("default: break;")
        self.line("}")

    # --- registers --------------------------------------------------------------------------------------------------

    def _cell(self, register: ir.Register, index: ir.Expr, step: int) -> str:
        run = f" + {step} * (uint64_t)i" if step else ""
        if self.rows is not None:
            return cell(f"{self.rows[register.group, key(index)]} + {register.offset}{run}", register.bytes)
        if not step:
            self.accessed[id(register)] = register
            return f"{self.accessors[id(register)]}({self.whole(index)})"
        at = f"state + {register.offset} + (uint64_t)({self.c(index)}) * {register.stride}{run}"
        return cell(at, register.bytes)

    def _read(self, stmt: ir.RegRead) -> None:
        register = stmt.register
        value = self._cell(register, stmt.index, stmt.step)
        if register.bytes < 4:
            value = f"({c_type(register.width)}){value}"
        if self.rows is None and not stmt.inside and not in_range(register, stmt.index):
            value = f"({self.c(stmt.index)} < {register.size}u ? {value} : {number(0, register.width)})"
        self.set(stmt.target, value)

    def _write(self, stmt: ir.RegWrite) -> None:
        register = stmt.register
        value = self._narrow_cell(register, stmt.value)
        store = f"{self._cell(register, stmt.index, stmt.step)} = {value};"
        if self.rows is None and not stmt.inside and not in_range(register, stmt.index):
            store = f"if ({self.c(stmt.index)} < {register.size}u) {{ {store} }}"
        self.line(store)

    def _narrow_cell(self, register: ir.Register, value: ir.Expr) -> str:
        return f"(uint{8 * register.bytes}_t)({self.whole(value)})" if register.bytes < 4 else self.whole(value)

    # --- rolled loops -----------------------------------------------------------------------------------------------

    def _roll(self, stmt: ir.Roll) -> None:
        """Writes a loop in two versions: the fast path for when all its rows exist, and one that checks each access."""
        regions: dict[int, ir.Region] = {}
        indices: dict[tuple[int, object], ir.RegRead | ir.RegWrite] = {}
        for inner in ir.walk(stmt.body):
            for e in (*ir.reads(inner), *ir.writes(inner)):
                for leaf in ir.leaves(e):
                    if isinstance(leaf, ir.Elem) and leaf.array.region:
                        regions[id(leaf.array.region)] = leaf.array.region
            for e in ir.writes(inner):
                if isinstance(e, ir.Elem) and e.array.region:
                    self.own(e.array.region)
            if isinstance(inner, ir.RegRead | ir.RegWrite):
                indices.setdefault((inner.register.group, key(inner.index)), inner)
        unknown = [a for a in indices.values() if not a.inside and not in_range(a.register, a.index)]
        checks = [f"{self.c(a.index)} < {a.register.size}u" for a in unknown]
        self.line(f"if (ina_likely({' && '.join(checks)})) {{" if checks else "{")
        self.depth += 1
        rows = {}
        for n, (place, access) in enumerate(indices.items()):
            stride = access.register.stride
            self.line(f"uint8_t *const r{n} = state + (uint64_t)({self.whole(access.index)}) * {stride};")
            rows[place] = f"r{n}"
        self.bases = {id(region): f"b{n}" for n, region in enumerate(regions.values())}
        for n, region in enumerate(regions.values()):
            self.line(f"uint8_t *const b{n} = {self.name(region)};")
        self.rows = rows
        if stmt.independent:
            self.lines.append("#pragma GCC ivdep")
        self.braces(f"for (uint32_t i = 0; i < {stmt.count}; i++)", stmt.body)
        self.rows, self.bases = None, {}
        self.depth -= 1
        if checks:
            self.line("} else {")
            self.depth += 1
            self.braces(f"for (uint32_t i = 0; i < {stmt.count}; i++)", stmt.body)
            self.depth -= 1
        self.line("}")

    # --- tables -----------------------------------------------------------------------------------------------------

    def _lookup(self, stmt: ir.Lookup) -> None:
        table, n = stmt.table, stmt.cursor
        hit, action = self.name(stmt.hit), self.name(stmt.action)
        if not table.value_set:
            self.line(f"const uint64_t *p{n};")
        keys = ", ".join(f"{k.name} {k.match}" for k in table.keys)
        kind = "value set" if table.value_set else "table"
        self.line("{ " + c_comment(f"{kind} {table.name}: {keys or 'no key'}"))
        self.depth += 1
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
                self.depth -= 1
                self.line("}")
                return
            call = "ina_table_lookup(t, key)"
            if table.kind == "exact":
                call = f"ina_lookup_again(t, key, {table.key_words}, found + {self.cached_lookups})"
                self.cached_lookups += 1
            self.line(f"const struct ina_entry *const e = {call};")
            self.line(f"{hit} = e != 0;")
            self.line(f"{action} = e ? e->action : t->default_action;")
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
                self.line(f"if (e) {self.name(stmt.color)} = {self._meter(table.meter, 'e->id')};")
            if table.counter and not table.counter.explicit:
                self.line("if (e) {")
                self._count(table.counter, "e->id")
                self.line("}")
        else:
            self.line(f"{action} = t->default_action;")
            self.line(f"p{n} = t->default_params;")
        self.line(f"(void)p{n};")
        self.depth -= 1
        self.line("}")

    def _select_member(self, stmt: ir.Lookup, selector: ir.Var) -> None:
        """Selects a member if the entry names a group; an empty group is a miss."""
        hit, action, n = self.name(stmt.hit), self.name(stmt.action), stmt.cursor
        self.line("if (e && e->action == INA_ACTION_GROUP) {")
        self.line(f"    const uint64_t *const m = ina_table_member(t, e, {self.c(selector)});")
        self.line(f"    {hit} = m != 0;")
        self.line(f"    {action} = m ? (uint32_t)m[0] : t->default_action;")
        self.line(f"    p{n} = m ? m + 1 : t->default_params;")
        self.line("}")

    def _octets(self, less: ir.Expr | None) -> str:
        """Returns the bytes of the packet, as counters and meters see it."""
        octets = "pkt->wire_len" if self.module.architecture == "v1model" else "octets"
        return octets if less is None else f"({octets} - {self.c(less)})"

    def _meter(self, meter: ir.Meter, index: str, less: ir.Expr | None = None, before: str | None = None) -> str:
        """Returns a meter's colour. `less`: bytes that do not count. `before`: the packet's colour so far."""
        amount = "1" if meter.kind == "packets" else self._octets(less)
        if meter.adjust is not None:
            adjust = f"*(const int64_t *)(const void *)(state + {meter.adjust.offset})"
            amount = f"ina_adjusted({self._octets(None)}, {self.c(less) if less is not None else '0'}, {adjust})"
        cell = f"(struct ina_meter *)(void *)(state + {meter.offset} + 64 * (uint64_t)({index}))"
        call = f"ina_meter({cell}, {amount}, now)" if before is None else f"ina_meter_aware({cell}, {amount}, now, {before})"
        return f"({index} < {meter.size}u ? {call} : {before or 0})"

    def x_meter(self, stmt: ir.Extern) -> None:
        """Emits a meter. `data`: the meter; a TNA meter's index is followed by bytes that do not count and the colour so far."""
        index, *more = stmt.args
        less, before = more[0] if more else None, self.c(more[1]) if len(more) > 1 else None
        text = self._meter(stmt.data, self.c(index), less, before)
        self.line(f"{self.name(stmt.target)} = {text};")

    def x_fail(self, stmt: ir.Extern) -> None:
        """Ends the packet and cancels its clones and digests. `data`: the verdict, if it is not that of assert and assume."""
        self.line(f"pkt->verdict = {stmt.data or 'INA_FAILED'};")
        self.line("pkt->clone = pkt->digest = 0;")
        self.line(f"{self.leave};")

    def x_leave_fast_path(self, stmt: ir.Extern) -> None:
        self.line("return 0;")

    def _count(self, counter: ir.Counter, index: str, less: ir.Expr | None = None) -> None:
        base = f"state + {counter.offset} + 16 * (uint64_t)({index})"
        self.line(f"if ({index} < {counter.size}u) {{")
        self.line(f"    *(ina_r64 *)({base}) += 1;")
        self.line(f"    *(ina_r64 *)({base} + 8) += {self._octets(less)};")
        self.line("}")

    def x_count(self, stmt: ir.Extern) -> None:
        self._count(stmt.data, self.c(stmt.args[0]), stmt.args[1] if len(stmt.args) > 1 else None)

    # --- headers in wire order --------------------------------------------------------------------------------------

    def x_extract_region(self, stmt: ir.Extern) -> None:
        region, cursor = stmt.data, self.c(stmt.args[0])
        if region.in_place:
            self.line(f"{self.name(region)} = data + {cursor};")
        else:
            self.line(f"{self.name(region)} = memcpy({self.buffer(region)}, data + {cursor}, {region.size});")

    def x_fresh_region(self, stmt: ir.Extern) -> None:
        """Gives the header its own buffer, all zero."""
        self.line(f"{self.name(stmt.data)} = memset({self.buffer(stmt.data)}, 0, {stmt.data.size});")

    def x_clear_region(self, stmt: ir.Extern) -> None:
        self.line(f"{self.name(stmt.data)} = (uint8_t *)ina_zeros;")

    def x_copy_region(self, stmt: ir.Extern) -> None:
        target, source = stmt.data
        self.own(target)
        self.line(f"memmove({self.name(target)}, {self.name(source)}, {target.size});")
        self.line(f"{self.name(target.valid)} = {self.name(source.valid)};")

    # --- random numbers -----------------------------------------------------------------------------------------------

    def x_random(self, stmt: ir.Extern) -> None:
        low, size = (self.c(a) for a in stmt.args)
        seed = f"(uint64_t *)(void *)(state + {self.module.layout['random_offset']})"
        self.line(f"{self.name(stmt.target)} = ina_random({seed}, {low}, {size});")

    # --- the descriptor ---------------------------------------------------------------------------------------------

    def x_describe(self, stmt: ir.Extern) -> None:
        clone, session, field_list, digest = stmt.args
        self.line("/* what the program asked of the switch */")
        if isinstance(clone, ir.Var):
            self.line(f"pkt->clone = (uint8_t){self.c(clone)};")
            self.line(f"pkt->clone_session = {self.c(session)};")
            self.line(f"if ({self.test(clone)}) pkt->clone_list = {self.c(field_list)};")
        if isinstance(digest, ir.Var):
            self.line(f"pkt->digest = (uint8_t){self.c(digest)};")

    def x_resubmit(self, stmt: ir.Extern) -> None:
        self.line("verdict = INA_RESUBMIT;")
        self.line(f"pkt->field_list = {self.c(stmt.args[0])};")

    def x_multicast(self, stmt: ir.Extern) -> None:
        self.line("verdict = INA_MULTICAST;")
        self.line(f"pkt->mcast_grp = (uint16_t){self.c(stmt.args[0])};")

    def x_unicast(self, stmt: ir.Extern) -> None:
        self.line("verdict = INA_UNICAST;")
        self.line(f"pkt->egress_port = (uint16_t){self.c(stmt.args[0])};")

    def x_ingress_drop(self, stmt: ir.Extern) -> None:
        self.line("verdict = INA_DROP;")

    def x_drop(self, stmt: ir.Extern) -> None:
        self.line("pkt->verdict = INA_DROP;")
        self.line("return;")

    def x_truncate(self, stmt: ir.Extern) -> None:
        """Keeps the smallest length; the deparser applies it. A frame has at least one byte."""
        length = self.c(stmt.args[0])
        self.line(f"if (!{length}) pkt->truncate_len = 1;")
        self.line(f"else if (!pkt->truncate_len || {length} < pkt->truncate_len) pkt->truncate_len = {length};")

    def x_transmit(self, stmt: ir.Extern) -> None:
        again, field_list = stmt.args
        if isinstance(again, ir.Var):
            self.line(f"if ({self.test(again)}) {{")
            self.line("    pkt->verdict = INA_RECIRCULATE;")
            self.line(f"    pkt->field_list = {self.c(field_list)};")
            self.line("    return;")
            self.line("}")
        self.line("pkt->verdict = INA_UNICAST;")


def forgets(stmt: ir.Stmt) -> bool:
    """Returns True if a header may have another place behind this statement than in the text before it."""
    return isinstance(stmt, ir.Label) or isinstance(stmt, ir.Extern) and isinstance(stmt.data, ir.Region)
