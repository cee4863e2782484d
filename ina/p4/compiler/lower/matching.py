"""Tests of keys: keyset expressions, and value sets, which are tables of a parser."""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import value_set_fields, value_set_kind
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import Context, unsupported
from ina.p4.compiler.lower.expressions import Expressions


def words(width: int) -> int:
    return (width + 63) // 64


def key_words(e: ir.Expr) -> list[ir.Expr]:
    """Returns the 64-bit words of a key's field."""
    unsigned = fold.cast(e, e.width)
    return [fold.cast(fold.slice_bits(unsigned, min(lo + 63, e.width - 1), lo), 64) for lo in range(0, e.width, 64)]


def table_kind(keys: list[ir.Key]) -> str:
    """Returns the kind of table that match kinds need."""
    kinds = {key.match for key in keys}
    return "exact" if kinds <= {"exact"} else "range" if "range" in kinds else "ternary"


class Matching:
    """`tables`: all tables and value sets of the program, by their owner and declaration."""

    def __init__(self, context: Context, expressions: Expressions) -> None:
        self.context, self.code, self.expressions = context, context.code, expressions
        self.tables: dict[tuple[Instance, ast.Declaration], ir.Table] = {}
        self._lookups = 0

    def number(self) -> int:
        """Returns the number of the next look-up."""
        self._lookups += 1
        return self._lookups - 1

    def next_index(self) -> int:
        """Returns the next free place among the tables that are looked up."""
        return sum(t.index >= 0 for t in self.tables.values())

    def matches(self, key: ir.Expr, match: ast.Expr) -> ir.Expr:
        """Returns the test whether a key lies in the set of a keyset expression."""
        match match:
            case ast.DontCare():
                return fold.TRUE
            case ast.Mask():
                mask = self.expressions.scalar(match.mask)
                return fold.eq(fold.bit_and(key, mask), fold.bit_and(self.expressions.scalar(match.value), mask))
            case ast.Range():
                low, high = self.expressions.scalar(match.lo), self.expressions.scalar(match.hi)
                return fold.land(ir.Op("ge", (key, low), 1), ir.Op("le", (key, high), 1))
            case ast.Name() if isinstance(match.decl, ast.ValueSetDecl):
                return self.in_value_set([key], match.decl, match)
        return fold.eq(key, self.expressions.scalar(match))

    def in_value_set(self, keys: list[ir.Expr], decl: ast.ValueSetDecl, node: ast.Node) -> ir.Expr:
        table = self.value_set(decl)
        if [k.width for k in table.keys] != [k.width for k in keys]:
            raise unsupported(node, f"a value set of {len(table.keys)} fields for {len(keys)} keys of other widths")
        hit = self.code.temp(1, name="member")
        self.code.emit(ir.Assign(hit, fold.FALSE))
        parts = [w for key in keys for w in key_words(key)]
        self.code.emit(ir.Lookup(table, parts, hit, self.code.temp(32, name="unused"), self.number()))
        return hit

    def value_set(self, decl: ast.ValueSetDecl) -> ir.Table:
        """Returns a parser's value set as a table: one key per field of its type; `@match` selects the match kind."""
        owner = self.context.instance
        if (existing := self.tables.get((owner, decl))) is not None:
            return existing
        name = owner.cp_names.get(decl.name, decl.cp_name)
        keys: list[ir.Key] = []
        word = 0
        for field, t, kind in value_set_fields(getattr(decl.type, "element", decl.type), value_set_kind(self.context.program)):
            shape = value_trees.scalar_shape(t)
            if shape is None or kind not in ("exact", "lpm", "ternary", "range", "optional"):
                raise unsupported(decl, f"a value set's field of type {t} with match kind '{kind}'")
            if kind == "range" and shape[1]:
                raise unsupported(decl, f"a value set's field of type {t} with match kind 'range'")
            keys.append(ir.Key(field, shape[0], kind, word=word))
            word += words(shape[0])
        size = decl.size.const
        if size is None and isinstance(decl.size, ast.Name):
            size = owner.args.get(decl.size.name)
        if size is None:
            raise unsupported(decl.size, "this size of a value set")
        index, kind = self.next_index(), table_kind(keys)
        table = ir.Table(name, index, kind, keys, word, [], 0, [], True, False, [], int(size), value_set=True)
        self.tables[owner, decl] = table
        return table
