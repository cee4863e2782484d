"""Tables: keys, actions, entries, properties (P4_16 v1.2.5 §14.2)."""

from __future__ import annotations

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.scope import suggest
from ina.p4.compiler.check.statements import StatementChecker
from ina.p4.compiler.check.types import Cascade
from ina.p4.compiler.errors import Note
from ina.p4.compiler.types import BitType, Signature, Type

_MASKED = frozenset(["ternary", "lpm", "range", "optional"])


class TableChecker(StatementChecker):
    def table_declaration(self, table: ast.TableDecl) -> None:
        outer, self.context = self.context, "table"
        try:
            for key in table.keys:
                with self.recover():
                    self._key(key)
            if table.entries and not table.keys:
                self.fail(table.entries[0].span, f"table '{table.name}' has no key: it cannot have entries")
            seen: dict[str, ast.ActionRef] = {}
            for ref in table.actions:
                with self.recover():
                    self._listed_action(ref)
                    if ref.name in seen:
                        self.fail(
                            ref.span, f"action '{ref.name}' is listed twice", [Note("first here", seen[ref.name].span)]
                        )
                    seen[ref.name] = ref
            with self.recover():
                self._default_action(table)
            if table.size_expr is not None:
                table.size_expr = self.expression(table.size_expr)
                if table.size_expr.const is not None or not self.is_static(table.size_expr):
                    table.size = self.constant_int(table.size_expr, "size of a table")
                    if table.size < 0:
                        self.fail(table.size_expr.span, "the size of a table cannot be negative")
            for entry in table.entries:
                with self.recover():
                    self._entry(table, entry)
            for prop in table.properties.values():
                with self.recover():
                    prop.value = self.argument(prop.value)
            self._priorities(table)
        finally:
            self.context = outer
        table.type = types.TableType(table)
        self.scope.declare(table.name, table, table.span)

    def _key(self, key: ast.TableKey) -> None:
        key.expr = self.value(key.expr, "a key")
        if key.match_kind not in self.match_kinds:
            self.fail(
                key.span, f"match kind '{key.match_kind}' is not declared", suggest(key.match_kind, self.match_kinds)
            )
        t = key.expr.type
        if not _has_plain_name(key.expr) and not any(a.name == "name" for a in key.annotations):
            self.warn(
                key.expr.span,
                "the control plane needs a name for this key",
                ['write one, as in x + y : exact @name("sum");'],
            )
        if isinstance(t, types.InfIntType):
            self.fail(key.expr.span, "a key needs a width: write the literal as in 8w1")
        plain = types.underlying(t)
        scalar = (BitType, types.BoolType, types.EnumType, types.ErrorType, types.VarbitType)
        if not isinstance(plain, scalar) and not isinstance(plain, (types.RecordType, types.TupleType)):
            self.fail(key.expr.span, f"a key cannot have type {t}")
        bits = (BitType, types.BoolType, types.EnumType, types.ErrorType)
        if key.match_kind in ("ternary", "lpm", "range") and not isinstance(plain, bits):
            self.fail(key.expr.span, f"a {key.match_kind} key must be bits, not {t}")

    def _find_action(self, ref: ast.ActionRef) -> ast.ActionDecl:
        scope = self.globals if ref.absolute else self.scope
        decl = scope.lookup(ref.name)
        if decl is None:
            self.undeclared(ref.span, "action", ref.name)
        if not isinstance(decl, ast.ActionDecl):
            self.fail(ref.span, f"'{ref.name}' is not an action")
        ref.decl = decl
        return decl

    def _listed_action(self, ref: ast.ActionRef) -> None:
        """Checks an action in `actions`: it has arguments for the parameters with a direction; the control plane provides the
        others."""
        decl = self._find_action(ref)
        signature = self.signature_of(decl)
        ref.params = signature.params
        directed = [p for p in signature.params if p.direction]
        if ref.arguments is None and directed:
            names = ", ".join(f"'{p.name}'" for p in directed)
            self.fail(
                ref.span,
                f"action '{ref.name}' needs an argument for {names}",
                [Note(f"declared here: {signature}", decl.span)],
            )
        self.bind(ref, Signature(ref.name, (), directed, types.VOID, decl), (), ref.span, directionless_may_vary=True)
        ref.args += [None] * (len(signature.params) - len(directed))
        ref.params = signature.params

    def _applied_action(self, table: ast.TableDecl, ref: ast.ActionRef, where: str) -> None:
        """Checks an action in `default_action` and `entries`: it has all arguments."""
        decl = self._find_action(ref)
        listed = next((a for a in table.actions if getattr(a, "decl", None) is decl), None)
        if listed is None:
            names = [a.name for a in table.actions]
            self.fail(
                ref.span,
                f"action '{ref.name}' is not among the actions of table '{table.name}'",
                suggest(ref.name, names),
            )
        banned = {"defaultonly": "entries", "tableonly": "default_action"}
        if any(banned.get(a.name) == where for a in listed.annotations):
            self.fail(ref.span, f"action '{ref.name}' is not for {where}", [Note("listed here", listed.span)])
        signature = self.signature_of(decl)
        if len(listed.args) != len(signature.params):
            raise Cascade(ref.span, f"the listing of action '{ref.name}' has an error")
        directed = sum(1 for p in signature.params if p.direction)
        arguments = ref.arguments or []
        if directed and len(arguments) == len(signature.params) - directed:
            # Only the control plane's arguments are written; the others are in the action list.
            rest = Signature(ref.name, (), signature.params[directed:], types.VOID, decl)
            self.bind(ref, rest, (), ref.span, directionless_may_vary=False)
            ref.args = listed.args[:directed] + ref.args
        else:
            self.bind(ref, signature, (), ref.span, directionless_may_vary=False)
            for mine, theirs in zip(ref.args[:directed], listed.args[:directed], strict=True):
                if mine is not None and theirs is not None and ast.source_text(mine) != ast.source_text(theirs):
                    self.fail(
                        mine.span,
                        "this argument differs from the one in the list of actions",
                        [Note("listed here", theirs.span)],
                    )
        ref.params = signature.params

    def _default_action(self, table: ast.TableDecl) -> None:
        if table.default_ref is not None:
            table.default_action = table.default_ref
            self._applied_action(table, table.default_ref, "default_action")
            return
        nothing = self.globals.lookup("NoAction")
        if not isinstance(nothing, ast.ActionDecl):
            self.fail(
                table.span,
                f"table '{table.name}' has no default_action, and NoAction is not declared",
                ["#include <core.p4>"],
            )
        if nothing.params:
            self.fail(
                nothing.span, "NoAction has parameters: it cannot be the default action of a table without default_action",
                [Note("such a table", table.span)],
            )  # fmt: skip
        ref = ast.ActionRef(table.span, "NoAction", [], absolute=True)
        ref.decl = nothing
        table.default_action = ref

    def _entry(self, table: ast.TableDecl, entry: ast.TableEntry) -> None:
        if len(entry.keys) != len(table.keys):
            if len(entry.keys) == 1 and isinstance(entry.keys[0], ast.DontCare):
                entry.keys = [ast.DontCare(entry.span) for _ in table.keys]
            elif len(entry.keys) == 1 and isinstance(entry.keys[0], ast.ListExpr):
                entry.keys = entry.keys[0].items
        if len(entry.keys) != len(table.keys):
            self.fail(
                entry.span,
                f"{len(entry.keys)} values in this entry, but table '{table.name}' has {len(table.keys)} keys",
            )
        for i, (key, expr) in enumerate(zip(table.keys, entry.keys, strict=True)):
            t = key.expr.type
            if isinstance(t, types.Unchecked):
                continue  # the key had an error
            entry.keys[i] = checked = self.keyset(expr, t)
            self._check_match(key.match_kind, checked, t)
        self._applied_action(table, entry.action, "entries")
        if entry.priority_expr is not None:
            entry.priority = self.constant_int(entry.priority_expr, "priority of an entry")

    def _priorities(self, table: ast.TableDecl) -> None:
        """Sets the priorities of entries without one: each `priority_delta` apart from the one before (§14.2.1.4)."""
        if all(key.match_kind in ("exact", "lpm") for key in table.keys):
            for entry in table.entries:
                if entry.priority_expr is not None:
                    self.fail(entry.priority_expr.span, "a table that only has exact and lpm keys takes no priorities")
            return
        delta = table.properties.get("priority_delta")
        largest = table.properties.get("largest_priority_wins")
        step = 1 if delta is None else self.constant_int(delta.value, "priority_delta")
        wins = largest is None or largest.value.const is not False
        if table.entries and table.entries[0].priority is None:
            first = next((entry for entry in table.entries if entry.priority is not None), None)
            if first is not None:
                note = Note("because this one has one", first.span)
                self.fail(table.entries[0].span, "the first entry must have a priority", [note])
        for i, entry in enumerate(table.entries):
            if entry.priority is None:
                before = table.entries[i - 1].priority
                if i and before is not None:
                    entry.priority = before + (-step if wins else step)
                else:
                    entry.priority = 1 + step * (len(table.entries) - 1) if wins else 1
            if entry.priority < 0:
                self.fail(entry.span, f"the priority of this entry is {entry.priority}: it cannot be negative")

    def _check_match(self, kind: str, e: ast.Expr, t: Type) -> None:
        """Checks that the match kind can match this set, and that its parts are constants."""
        parts = [e]
        if isinstance(e, ast.Mask):
            parts = [e.value, e.mask]
            if kind not in ("ternary", "lpm"):
                self.fail(e.span, f"a mask does not fit a key matched by {kind}")
        elif isinstance(e, ast.Range):
            parts = [e.lo, e.hi]
            if kind != "range":
                self.fail(e.span, f"a range does not fit a key matched by {kind}")
        elif isinstance(e, ast.DontCare) or isinstance(e.type, types.SetType):
            if isinstance(e, ast.DontCare) and kind not in _MASKED and kind in ("exact",):
                self.fail(e.span, f"'_' does not fit a key matched by {kind}")
            return
        for part in parts:
            if part.const is None:
                self.fail(part.span, "keys of entries must be known at compile time", self._why_not_constant(part))
        if kind == "lpm" and isinstance(e, ast.Mask):
            bits = types.underlying(t)
            assert isinstance(bits, BitType)
            inverted = ~e.mask.const & ((1 << bits.width) - 1)
            if inverted & (inverted + 1):
                self.fail(e.mask.span, "the mask of an lpm key must be a prefix: ones, then zeros")


def _has_plain_name(e: ast.Expr) -> bool:
    """Returns True if the text of `e` is a name for the control plane (§18.3.2)."""
    while True:
        if isinstance(e, ast.Name):
            return True
        if isinstance(e, (ast.Member, ast.Slice)):
            e = e.base
        elif isinstance(e, ast.Index):
            e = e.base
        elif isinstance(e, ast.Call):
            return e.kind in ("header_method", "packet_in", "table_apply")
        else:
            return False
