"""Description of tables: keys and their words, actions and their parameters, entries of the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ina.p4.compiler import ast, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.instances import action_name, entry_priorities, key_name, property_instance, table_size
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.matching import Matching, table_kind, words

MAX_DEFAULT_WORDS = 64  # ina_table.default_params
MAX_KEY_WORDS = 1024
RANGE_WORDS = 64  # ina_table.range_words: ranges come first where a key has more words
MAX_CHAIN = 256  # constant entries: more take a C compiler long, and a look-up is faster
EXACT = ("exact", "dleft_hash", "atcam_partition_index")


@dataclass(slots=True)
class TableUse:
    """A table and the objects that its properties attach. `color`: the colour of a direct meter at its last hit; `selector`
    hashes the selector's keys; `direct`: objects with a cell for each entry that its actions use."""

    table: ir.Table
    color: ir.Var | None = None
    selector: Callable[[list[ir.Expr]], ir.Var] | None = None
    direct: list[Instance] = field(default_factory=list)


def chained(decl: ast.TableDecl) -> bool:
    """Returns True if a table's constant entries become comparisons in the code; those of a larger table are looked up."""
    return decl.const_entries and 0 < len(decl.entries) <= MAX_CHAIN


def matched(decl: ast.TableDecl, entry: ast.TableEntry) -> list[ast.Expr]:
    """Returns an entry's keys without those for the selector's hash."""
    return [e for k, e in zip(decl.keys, entry.keys, strict=True) if k.match_kind != "selector"]


class Descriptions:
    """Describes tables. `attach(use, property, object)` attaches the object of a property in `attachable`."""

    def __init__(
        self, matching: Matching, attachable: tuple[str, ...], attach: Callable[[TableUse, ast.Property, Instance], None]
    ) -> None:
        self.context, self.matching = matching.context, matching
        self.expressions, self.values = matching.expressions, matching.expressions.values
        self.attachable, self.attach = attachable, attach

    def describe(self, decl: ast.TableDecl, owner: Instance) -> TableUse:
        """Returns a table of `owner`, with a place among those that are looked up if it needs one."""
        name = owner.cp_names.get(decl.name, decl.name)
        keys: list[ir.Key] = []
        for key in decl.keys:
            if key.match_kind == "selector":
                continue
            shape = value_trees.scalar_shape(key.expr.type)
            if shape is None:
                raise unsupported(key, f"a key of type {key.expr.type}")
            if shape[0] == 0:
                raise CompileError(key.expr.span, f"a key of type {key.expr.type} tells nothing apart", ["leave it out"])
            match = "exact" if key.match_kind in EXACT else key.match_kind
            if match not in ("exact", "lpm", "ternary", "range", "optional"):
                raise unsupported(key, f"match kind '{key.match_kind}'")
            if match == "range" and shape[0] > 64:
                raise unsupported(key, "a range key of more than 64 bits")
            if match == "range" and shape[1] and not chained(decl):
                raise unsupported(key, f"a range key of type {key.expr.type}, whose order control planes do not know,",
                                       f"cast it, as in (bit<{shape[0]}>){ast.source_text(key.expr)}")
            keys.append(ir.Key(key_name(key), shape[0], match, key.match_kind if match != key.match_kind else ""))
        kind = table_kind(keys)
        offset = self._place_keys(keys, packed=kind == "exact")
        if offset > MAX_KEY_WORDS:
            raise unsupported(decl, f"a key of {offset} words of 64 bits, more than {MAX_KEY_WORDS},")
        if any(k.match == "range" and k.word >= RANGE_WORDS for k in keys):
            raise unsupported(decl, f"a key with more than {RANGE_WORDS} ranges")
        actions = [self._action(ref, owner) for ref in decl.actions]
        table = ir.Table(
            name, -1, kind, keys, offset, actions, 0, [], decl.const_default, decl.const_entries and bool(decl.entries), [],
            table_size(self.context.program, owner, decl), max((a.param_words for a in actions), default=0),
            chained=chained(decl),
        )
        use = TableUse(table)
        self._default(decl, table)
        table.entries = [self._entry(i, entry, decl, table) for i, entry in enumerate(decl.entries)]
        self._order(decl, table)
        fixed = table.chained or not decl.keys
        attached = {p: decl.properties[p] for p in self.attachable if p in decl.properties}
        if not (fixed and table.const_default) or attached:
            table.index = self.matching.next_index()
        for prop in attached.values():
            self.attach(use, prop, property_instance(self.context.program, owner, table.name, prop))
        timeout = decl.properties.get("idle_timeout")
        if table.index >= 0 and kind == "exact" and offset and decl.annotation("dynamic_table_key_masks"):
            table.key_mask = ir.Register(f"{table.name}.$key_mask", 64, offset, initial=(1 << 64) - 1)
        if table.index >= 0 and timeout is not None and timeout.value.const:
            table.hits = 0
        if table.index >= 0 and max([table.param_words] + [len(table.default_params)]) > MAX_DEFAULT_WORDS:
            raise unsupported(decl, f"action parameters of more than {MAX_DEFAULT_WORDS * 64} bits")
        return use

    @staticmethod
    def _place_keys(keys: list[ir.Key], packed: bool) -> int:
        """Gives each field its word and bit; returns the number of words. `packed`: fields that fit share a word."""
        word = bit = 0
        ranges_first = sum(words(key.width) for key in keys) > RANGE_WORDS
        for key in sorted(keys, key=lambda k: k.match != "range") if ranges_first else keys:
            if bit and (not packed or bit + key.width > 64):
                word, bit = word + 1, 0
            key.word, key.shift = word, bit
            whole = words(key.width) - 1
            word, bit = word + whole, 64 if whole else bit + key.width
        return word + 1 if keys else 0

    def _action(self, ref: ast.ActionRef, owner: Instance) -> ir.Action:
        params: list[ir.ActionParameter] = []
        offset, at = 0, []
        for i, param in enumerate(ref.decl.params):
            shape = value_trees.scalar_shape(param.type)
            at.append(offset)
            if ref.args and ref.args[i] is not None:
                continue
            if shape is None:
                raise unsupported(param, f"an action parameter of type {param.type}")
            params.append(ir.ActionParameter(param.cp_name, *shape, offset))
            offset += words(shape[0])
        return ir.Action(action_name(owner, ref.decl), params, at, offset, ref)

    def _index(self, ref: ast.ActionRef, table: ir.Table) -> int:
        for i, candidate in enumerate(table.actions):
            if candidate.ref.decl is ref.decl:
                return i
        raise unsupported(ref, f"action '{ref.name}', which is not in the table's list,")

    def _arguments(self, ref: ast.ActionRef, action: ir.Action) -> list[ir.Expr | None]:
        """Returns the constant arguments of a default action or entry: None where the table's action list binds the parameter."""
        bound = action.ref.args
        result: list[ir.Expr | None] = []
        for i, arg in enumerate(ref.args):
            if arg is None or (bound and bound[i] is not None):
                result.append(None)
            elif arg.const is None:
                raise unsupported(arg, "an action argument that is not constant")
            else:
                result.append(value_trees.expression(self.values.constant(arg.const, arg.type, arg)))
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
            table.actions.append(self._action(ref, self.context.instance))
        table.default_action = self._index(ref, table)
        action = table.actions[table.default_action]
        action.default = self._arguments(ref, action)
        table.default_params = self._word_list(action.default)

    def _entry(self, index: int, entry: ast.TableEntry, decl: ast.TableDecl, table: ir.Table) -> ir.Entry:
        action = self._index(entry.action, table)
        keys = [self._key_set(k, spec) for k, spec in zip(matched(decl, entry), table.keys, strict=True)]
        arguments = self._arguments(entry.action, table.actions[action])
        return ir.Entry(index, keys, action, self._word_list(arguments), entry.is_const or table.const_entries)

    def _key_set(self, match: ast.Expr, spec: ir.Key) -> tuple[int, int]:
        """Returns (value, mask) (exact, ternary, lpm, optional) or (low, high) (range) of a keyset expression."""
        full = (1 << spec.width) - 1
        match match:
            case ast.DontCare():
                return (0, full) if spec.match == "range" else (0, 0)
            case ast.Mask():
                mask = self._key_value(match.mask)
                return self._key_value(match.value) & mask, mask
            case ast.Range():
                return self._key_value(match.lo), self._key_value(match.hi)
        value = self._key_value(match)
        return (value, value) if spec.match == "range" else (value, full)

    def _key_value(self, e: ast.Expr) -> int:
        value = self.expressions.scalar(e)
        if not isinstance(value, ir.Const):
            raise unsupported(e, "an entry's key that is not constant")
        return value.value

    def _order(self, decl: ast.TableDecl, table: ir.Table) -> None:
        """Sorts entries in the order in which they win: longest prefix first; else by priority (§14.2.1.4), else as written."""
        if any(k.match in ("ternary", "range", "optional") for k in table.keys):
            priorities = entry_priorities(decl)
            table.entries.sort(key=lambda e: -priorities[e.source])
            return
        lpm = next((i for i, k in enumerate(table.keys) if k.match == "lpm"), None)
        if lpm is not None:
            table.entries.sort(key=lambda e: -bin(e.keys[lpm][1]).count("1"))
