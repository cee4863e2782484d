"""Lowering of tables: key words, lookup (or an if-chain over constant entries), one inlined copy of each action."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ina.p4.compiler import ast, fold, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.instances import (
    action_name,
    entry_priorities,
    property_instance,
    table_size,
    value_set_fields,
    value_set_kind,
)
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.parser import Parsers

MAX_DEFAULT_WORDS = 64  # ina_table.default_params
MAX_KEY_WORDS = 1024
RANGE_WORDS = 64  # ina_table.range_words: ranges come first where a key has more words
MAX_CHAIN = 256  # constant entries: more take a C compiler long, and a look-up is faster
EXACT = ("exact", "dleft_hash", "atcam_partition_index")


@dataclass(slots=True)
class TableResult:
    hit: ir.Expr
    action: ir.Var


def words(width: int) -> int:
    return (width + 63) // 64


def _chained(decl: ast.TableDecl) -> bool:
    """Returns True if a table's constant entries become comparisons in the code; those of a larger table are looked up."""
    return decl.const_entries and 0 < len(decl.entries) <= MAX_CHAIN


def matched(decl: ast.TableDecl, entry: ast.TableEntry) -> list[ast.Expr]:
    """Returns an entry's keys without those for the selector's hash."""
    return [e for k, e in zip(decl.keys, entry.keys, strict=True) if k.match_kind != "selector"]


class Tables(Parsers):
    attachable: tuple[str, ...] = ("counters", "meters", "implementation")  # table properties that are objects
    tables: dict[tuple[int, int], ir.Table]
    cursors: int
    colors: dict[int, ir.Var]  # of direct meters: the colour at the last hit of their table
    algorithms: dict[int, Any]  # of the action selectors of tables
    direct: dict[int, list[Instance]]  # objects of tables that actions use, by table
    entries: dict[int, ir.Expr]  # the current entry of each of those

    def apply_table(self, e: ast.Call) -> TableResult:
        decl: ast.TableDecl = e.decl
        owner = self.instance
        table = self.tables.get((id(owner), id(decl)))
        if table is None:
            table = self.tables[id(owner), id(decl)] = self._table(decl, owner)
        values = [self.stable(self.scalar(k.expr)) for k in decl.keys]
        keys = [v for k, v in zip(decl.keys, values, strict=True) if k.match_kind != "selector"]
        selector = None
        if id(table) in self.algorithms:
            selector_keys = [v for k, v in zip(decl.keys, values, strict=True) if k.match_kind == "selector"]
            selector = self.hash_of(self.algorithms[id(table)], selector_keys)
        hit, action = self.temp(1, name="hit"), self.temp(32, name="action")
        params = [[self.storage.place(p.type, p.name) for p in a["decl"].params] for a in table.actions]
        self.emit(ir.Assign(hit, fold.FALSE))
        cursor = self.cursors
        self.cursors += 1
        if table.index >= 0:
            key_words = self._key_words(table, keys) if not table.chained else []
            color = self.colors.get(id(table.meter))
            entry = self.temp(32, name="entry") if id(table) in self.direct and key_words else None
            self.emit(ir.Lookup(table, key_words, hit, action, cursor, color, selector, entry))
        else:
            entry = None
            self.emit(ir.Assign(action, fold.const(table.default_action, 32)))
        if table.chained:
            self._constant_entries(decl, table, keys, hit, action)
            entry = self.entry_number
        for instance in self.direct.get(id(table), ()):
            self.entries[id(instance)] = entry if entry is not None else fold.const(ir.NO_ENTRY, 32)
        self._run_actions(decl, table, params, action, hit, cursor)
        return TableResult(hit, action)

    def _words(self, e: ir.Expr) -> list[ir.Expr]:
        unsigned = fold.cast(e, e.width)
        return [fold.cast(fold.slice_bits(unsigned, min(lo + 63, e.width - 1), lo), 64) for lo in range(0, e.width, 64)]

    def _key_words(self, table: ir.Table, keys: list[ir.Expr]) -> list[ir.Expr]:
        """Returns the words of a key; fields of exact tables share words, as the table's description says."""
        key_words: list[ir.Expr | None] = [None] * table.key_words
        for key, spec in zip(keys, table.keys, strict=True):
            for i, word in enumerate(self._words(key), spec["word"]):
                before = key_words[i]
                if shift := spec["shift"]:
                    word = ir.Op("shl", (word, fold.const(shift, 32)), 64)
                key_words[i] = word if before is None else ir.Op("or", (before, word), 64)
        return [word for word in key_words if word is not None]

    def _bound_arguments(self, ref: ast.ActionRef) -> dict[int, Any]:
        """Returns the arguments that the program itself passes to a table's action, evaluated from left to right, by parameter
        id."""
        bound = [(p, a) for p, a in zip(ref.decl.params, ref.args or (), strict=False) if a is not None]
        parts = [partial(self._argument, p, a, ref) for p, a in bound]
        values = self.in_order(parts, lambda at, value: self._saved_argument(bound[at][0], value, ref))
        return {id(p): value for (p, _), value in zip(bound, values, strict=True)}

    def _run_actions(
        self, decl: ast.TableDecl, table: ir.Table, params: list[list[Any]], action: ir.Var, hit: ir.Var, cursor: int
    ) -> None:
        cases = []
        constant = table.index < 0
        for i, ref in enumerate(a["ref"] for a in table.actions):
            def lower(i: int = i, ref: ast.ActionRef = ref) -> None:
                values = []
                bound = self._bound_arguments(ref)
                for param, place, word in zip(ref.decl.params, params[i], table.actions[i]["words"], strict=True):
                    if id(param) in bound:
                        values.append(bound[id(param)])
                        continue
                    if not isinstance(place, ir.Var):
                        raise self.unsupported(param, f"an action parameter of type {param.type}")
                    if not constant:
                        self.emit(ir.Assign(place, self._parameter(cursor, word, place)))
                    values.append(place)
                if constant or table.chained:
                    self._constant_parameters(decl, table, i, params[i], action, hit, cursor)
                # The action may also reach the program's arguments by their own names: it gets copies.
                own = all(arg is None for arg in ref.args or ())
                self.inline_values(ref.decl.params, values, ref, lambda: self.body(ref.decl.body), by_reference=own)

            cases.append((i, self.block(lower)))
        cases = [(i, body) for i, body in cases if body]
        if cases:
            self.emit(ir.Switch(action, cases, names={i: table.actions[i]["name"] for i, _ in cases}))

    def _parameter(self, cursor: int, word: int, place: ir.Var) -> ir.Expr:
        parts = [ir.Native(f"p{cursor}[{word + k}]", 64) for k in range(words(place.width))]
        whole = parts[0] if len(parts) == 1 else fold.concat(list(reversed(parts)))
        return fold.cast(whole, place.width, place.signed)

    # --- constant entries -------------------------------------------------------------------------------------------

    def _constant_entries(
        self, decl: ast.TableDecl, table: ir.Table, keys: list[ir.Expr], hit: ir.Var, action: ir.Var
    ) -> None:
        """Emits an if-chain, the entry that wins first: sets hit, action and `entry_number`."""
        self.entry_number = number = self.temp(32, name="entry")
        self.emit(ir.Assign(number, fold.const(0xFFFFFFFF, 32)))
        chain: list[ir.Stmt] = []
        for i in reversed(range(len(table.entries))):
            entry = table.entries[i]
            source: ast.TableEntry = decl.entries[entry["source"]]
            condition: ir.Expr = fold.TRUE
            for key, match in zip(keys, matched(decl, source), strict=True):
                condition = fold.land(condition, self.matches(key, match))
            body: list[ir.Stmt] = [
                ir.Assign(hit, fold.TRUE),
                ir.Assign(action, fold.const(entry["action"], 32)),
                ir.Assign(number, fold.const(i, 32)),
            ]
            chain = [ir.If(condition, body, chain)]
        self.out += chain

    def _constant_parameters(
        self,
        decl: ast.TableDecl,
        table: ir.Table,
        index: int,
        params: list[Any],
        action: ir.Var,
        hit: ir.Var,
        cursor: int,
    ) -> None:
        """Overrides the parameters of action `index` with those of the constant entry or constant default that selected it."""
        if not params:
            return
        if table.index < 0 and table.default_action == index:
            for place, value in zip(params, table.actions[index]["default"], strict=True):
                if value is not None:
                    self.emit(ir.Assign(place, value))
        cases: list[tuple[int, list[ir.Stmt]]] = []
        for i, entry in enumerate(table.entries):
            if entry["action"] == index:
                args = decl.entries[entry["source"]].action.args
                bound = table.actions[index]["ref"].args or [None] * len(args)
                body: list[ir.Stmt] = [
                    ir.Assign(p, self.constant(a.const, a.type, a))
                    for p, a, own in zip(params, args, bound, strict=True)
                    if a is not None and own is None
                ]
                cases.append((i, body))
        if cases:
            self.emit(ir.Switch(self.entry_number, cases))

    # --- description ------------------------------------------------------------------------------------------------

    def _table(self, decl: ast.TableDecl, owner: Instance) -> ir.Table:
        name = owner.cp_names.get(decl.name, decl.name)
        keys: list[dict[str, Any]] = []
        kinds = set()
        for key in decl.keys:
            if key.match_kind == "selector":
                continue
            shape = value_trees.scalar_shape(key.expr.type)
            if shape is None:
                raise self.unsupported(key, f"a key of type {key.expr.type}")
            if shape[0] == 0:
                raise CompileError(key.expr.span, f"a key of type {key.expr.type} tells nothing apart", ["leave it out"])
            match = "exact" if key.match_kind in EXACT else key.match_kind
            if match not in ("exact", "lpm", "ternary", "range", "optional"):
                raise self.unsupported(key, f"match kind '{key.match_kind}'")
            if match == "range" and shape[0] > 64:
                raise self.unsupported(key, "a range key of more than 64 bits")
            if match == "range" and shape[1] and not _chained(decl):
                raise self.unsupported(key, f"a range key of type {key.expr.type}, whose order control planes do not know,",
                                       f"cast it, as in (bit<{shape[0]}>){ast.source_text(key.expr)}")  # fmt: skip
            keys.append({"name": key.cp_name, "width": shape[0], "match": match})
            if match != key.match_kind:
                keys[-1]["written"] = key.match_kind
            kinds.add(match)
        kind = "exact" if kinds <= {"exact"} else "range" if "range" in kinds else "ternary"
        offset = self._place_keys(keys, packed=kind == "exact")
        if offset > MAX_KEY_WORDS:
            raise self.unsupported(decl, f"a key of {offset} words of 64 bits, more than {MAX_KEY_WORDS},")
        if any(k["match"] == "range" and k["word"] >= RANGE_WORDS for k in keys):
            raise self.unsupported(decl, f"a key with more than {RANGE_WORDS} ranges")
        actions = [self._action(ref, owner) for ref in decl.actions]
        table = ir.Table(
            name,
            -1,
            kind,
            keys,
            offset,
            actions,
            0,
            [],
            decl.const_default,
            decl.const_entries and bool(decl.entries),
            [],
            table_size(self.program, owner, decl),
            max((a["param_words"] for a in actions), default=0),
            chained=_chained(decl),
        )
        self._default(decl, table)
        table.entries = [self._entry(i, entry, decl, table) for i, entry in enumerate(decl.entries)]
        self._order(decl, table)
        fixed = table.chained or not decl.keys
        attached = {p: decl.properties[p] for p in self.attachable if p in decl.properties}
        if not (fixed and table.const_default) or attached:
            table.index = sum(t.index >= 0 for t in self.tables.values())
        for name, prop in attached.items():
            self.attach(table, name, property_instance(self.program, owner, table.name, prop), prop)
        timeout = decl.properties.get("idle_timeout")
        if table.index >= 0 and kind == "exact" and offset and decl.annotation("dynamic_table_key_masks"):
            table.key_mask = ir.Register(f"{table.name}.$key_mask", 64, offset, initial=(1 << 64) - 1)
        if table.index >= 0 and timeout is not None and timeout.value.const:
            table.hits = 0
        if table.index >= 0 and max([table.param_words] + [len(table.default_params)]) > MAX_DEFAULT_WORDS:
            raise self.unsupported(decl, f"action parameters of more than {MAX_DEFAULT_WORDS * 64} bits")
        return table

    @staticmethod
    def _place_keys(keys: list[dict[str, Any]], packed: bool) -> int:
        """Gives each field its word and bit; returns the number of words. `packed`: fields that fit share a word."""
        word = bit = 0
        ranges_first = sum(words(key["width"]) for key in keys) > RANGE_WORDS
        for key in sorted(keys, key=lambda k: k["match"] != "range") if ranges_first else keys:
            if bit and (not packed or bit + key["width"] > 64):
                word, bit = word + 1, 0
            key["word"], key["shift"] = word, bit
            whole = words(key["width"]) - 1
            word, bit = word + whole, 64 if whole else bit + key["width"]
        return word + 1 if keys else 0

    def attach(self, table: ir.Table, name: str, instance: Instance, prop: ast.Property) -> None:
        """Attaches the object of a table property."""
        match name, instance.decl.name:
            case "counters", "direct_counter":
                table.counter = self.counter(instance, table.size)
                table.counter.table = table.name
            case "meters", "direct_meter":
                table.meter = self.meter(instance, table.size)
                table.meter.table = table.name
                self.colors[id(table.meter)] = self.color(instance)
            case "implementation", "action_profile" | "action_selector":
                table.profile = instance.name
                if instance.decl.name == "action_selector":
                    self.algorithms[id(table)] = instance.args["algorithm"]
            case _:
                raise self.unsupported(prop, f"'{name}' of type {instance.decl.name}")

    def value_set(self, decl: ast.ValueSetDecl) -> ir.Table:
        """Returns a parser's value set as a table: one key per field of its type; `@match` selects the match kind."""
        owner = self.instance
        existing = self.tables.get((id(owner), id(decl)))
        if existing is not None:
            return existing
        name = owner.cp_names.get(decl.name, decl.cp_name)
        keys, word = [], 0
        for field, t, kind in value_set_fields(getattr(decl.type, "element", decl.type), value_set_kind(self.program)):
            shape = value_trees.scalar_shape(t)
            if shape is None or kind not in ("exact", "lpm", "ternary", "range", "optional"):
                raise self.unsupported(decl, f"a value set's field of type {t} with match kind '{kind}'")
            if kind == "range" and shape[1]:
                raise self.unsupported(decl, f"a value set's field of type {t} with match kind 'range'")
            keys.append({"name": field, "width": shape[0], "match": kind, "word": word})
            word += words(shape[0])
        kinds = {k["match"] for k in keys}
        kind = "exact" if kinds <= {"exact"} else "range" if "range" in kinds else "ternary"
        size = decl.size.const
        if size is None and isinstance(decl.size, ast.Name):
            size = owner.args.get(decl.size.name)
        if size is None:
            raise self.unsupported(decl.size, "this size of a value set")
        index = sum(t.index >= 0 for t in self.tables.values())
        table = ir.Table(name, index, kind, keys, word, [], 0, [], True, False, [], int(size), value_set=True)
        self.tables[id(owner), id(decl)] = table
        return table

    def in_value_set(self, keys: list[ir.Expr], decl: ast.ValueSetDecl, node: ast.Node) -> ir.Expr:
        table = self.value_set(decl)
        if [k["width"] for k in table.keys] != [k.width for k in keys]:
            raise self.unsupported(node, f"a value set of {len(table.keys)} fields for {len(keys)} keys of other widths")
        hit = self.temp(1, name="member")
        self.emit(ir.Assign(hit, fold.FALSE))
        key_words = [w for key in keys for w in self._words(key)]
        self.emit(ir.Lookup(table, key_words, hit, self.temp(32, name="unused"), self.cursors))
        self.cursors += 1
        return hit

    # Defined in v1model_externs.py.
    def counter(self, instance: Instance, size: int | None = None) -> ir.Counter:
        raise TypeError

    def meter(self, instance: Instance, size: int | None = None) -> ir.Meter:
        raise TypeError

    def color(self, instance: Instance) -> ir.Var:
        raise TypeError

    def hash_of(self, algorithm: Any, parts: list[Any]) -> ir.Var:
        raise TypeError

    def _action(self, ref: ast.ActionRef, owner: Instance) -> dict[str, Any]:
        params, offset, at = [], 0, []
        for i, param in enumerate(ref.decl.params):
            shape = value_trees.scalar_shape(param.type)
            at.append(offset)
            if ref.args and ref.args[i] is not None:
                continue
            if shape is None:
                raise self.unsupported(param, f"an action parameter of type {param.type}")
            params.append({"name": param.cp_name, "width": shape[0], "signed": shape[1], "word": offset})
            offset += words(shape[0])
        return {
            "name": action_name(owner, ref.decl),
            "params": params,
            "words": at,
            "param_words": offset,
            "decl": ref.decl,
            "ref": ref,
        }

    def _index(self, ref: ast.ActionRef, table: ir.Table) -> int:
        for i, candidate in enumerate(table.actions):
            if candidate["decl"] is ref.decl:
                return i
        raise self.unsupported(ref, f"action '{ref.name}', which is not in the table's list,")

    def _arguments(self, ref: ast.ActionRef, action: dict[str, Any]) -> list[ir.Expr | None]:
        """Returns the constant arguments of a default action or entry: None where the table's action list binds the parameter."""
        bound = action["ref"].args
        result: list[ir.Expr | None] = []
        for i, arg in enumerate(ref.args):
            if arg is None or (bound and bound[i] is not None):
                result.append(None)
            elif arg.const is None:
                raise self.unsupported(arg, "an action argument that is not constant")
            else:
                result.append(self.constant(arg.const, arg.type, arg))
        return result

    def _word_list(self, arguments: list[ir.Expr | None]) -> list[int]:
        result = []
        for arg in arguments:
            if isinstance(arg, ir.Const):
                result += [arg.value >> (64 * k) & (1 << 64) - 1 for k in range(words(arg.width))]
        return result

    def _default(self, decl: ast.TableDecl, table: ir.Table) -> None:
        ref = decl.default_action
        if all(a.decl is not ref.decl for a in decl.actions):
            # NoAction as the implied default of a table that does not list it.
            table.actions.append(self._action(ref, self.instance))
        table.default_action = self._index(ref, table)
        action = table.actions[table.default_action]
        action["default"] = self._arguments(ref, action)
        table.default_params = self._word_list(action["default"])

    def _entry(self, index: int, entry: ast.TableEntry, decl: ast.TableDecl, table: ir.Table) -> dict[str, Any]:
        action = self._index(entry.action, table)
        keys = [self._key_set(k, spec) for k, spec in zip(matched(decl, entry), table.keys, strict=True)]
        arguments = self._arguments(entry.action, table.actions[action])
        return {
            "source": index,
            "keys": keys,
            "action": action,
            "params": self._word_list(arguments),
            "priority": entry.priority,
            "const": entry.is_const or table.const_entries,
        }

    def _key_set(self, match: ast.Expr, spec: dict[str, Any]) -> tuple[int, int]:
        """Returns (value, mask) (exact, ternary, lpm, optional) or (low, high) (range) of a keyset expression."""
        full = (1 << spec["width"]) - 1
        match match:
            case ast.DontCare():
                return (0, full) if spec["match"] == "range" else (0, 0)
            case ast.Mask():
                mask = self._key_value(match.mask)
                return self._key_value(match.value) & mask, mask
            case ast.Range():
                return self._key_value(match.lo), self._key_value(match.hi)
        value = self._key_value(match)
        return (value, value) if spec["match"] == "range" else (value, full)

    def _key_value(self, e: ast.Expr) -> int:
        value = self.scalar(e)
        if not isinstance(value, ir.Const):
            raise self.unsupported(e, "an entry's key that is not constant")
        return value.value

    def _order(self, decl: ast.TableDecl, table: ir.Table) -> None:
        """Sorts entries in the order in which they win: longest prefix first; else by priority (§14.2.1.4), else as written."""
        if any(k["match"] in ("ternary", "range", "optional") for k in table.keys):
            priorities = entry_priorities(decl)
            table.entries.sort(key=lambda e: -priorities[e["source"]])
            return
        lpm = next((i for i, k in enumerate(table.keys) if k["match"] == "lpm"), None)
        if lpm is not None:
            table.entries.sort(key=lambda e: -bin(e["keys"][lpm][1]).count("1"))
