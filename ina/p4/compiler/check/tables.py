"""Tables: keys, actions, entries with their sets of values, properties (P4_16 v1.2.5 §8.14, §14.2)."""

from __future__ import annotations

from ina.base.plurals import counted
from ina.p4.compiler import ast, types
from ina.p4.compiler.check.arguments import bind
from ina.p4.compiler.check.context import Cascade, Certain, Context, suggest
from ina.p4.compiler.check.conversions import coerce
from ina.p4.compiler.check.values import argument_of, constant_int, is_static, value_of, why_not_constant
from ina.p4.compiler.errors import Note, fail
from ina.p4.compiler.types import BitType, Signature, Type


def table_declaration(ctx: Context, table: ast.TableDecl) -> None:
    with ctx.code_of("table"):
        for key in table.keys:
            with ctx.recover():
                _key(ctx, key)
        if table.entries and not table.keys:
            fail(table.entries[0].span, f"table '{table.name}' has no key: it cannot have entries")
        seen: dict[str, ast.ActionRef] = {}
        for ref in table.actions:
            with ctx.recover():
                _listed_action(ctx, ref)
                if ref.name in seen:
                    fail(ref.span, f"action '{ref.name}' is listed twice", [Note("first here", seen[ref.name].span)])
                seen[ref.name] = ref
        with ctx.recover():
            _default_action(ctx, table)
        if table.size_expr is not None:
            table.size_expr = ctx.expression(table.size_expr)
            if table.size_expr.const is not None or not is_static(table.size_expr):
                table.size = constant_int(ctx, table.size_expr, "size of a table")
                if table.size < 0:
                    fail(table.size_expr.span, "the size of a table cannot be negative")
        for entry in table.entries:
            with ctx.recover():
                _entry(ctx, table, entry)
        for prop in table.properties.values():
            with ctx.recover():
                prop.value = argument_of(ctx, prop.value)
        _priorities(ctx, table)
    table.type = types.TableType(table)
    ctx.declare(table)


def _key(ctx: Context, key: ast.TableKey) -> None:
    key.expr = value_of(ctx, key.expr, "a key")
    if key.match_kind not in ctx.match_kinds:
        raise Certain(key.span, f"match kind '{key.match_kind}' is not declared", suggest(key.match_kind, ctx.match_kinds))
    t = key.expr.type
    if not _has_plain_name(key.expr) and not any(a.name == "name" for a in key.annotations):
        ctx.warn(
            key.expr.span,
            "the control plane needs a name for this key",
            ['write one, as in x + y : exact @name("sum");'],
        )
    if isinstance(t, types.InfIntType):
        fail(key.expr.span, "a key needs a width: write the literal as in 8w1")
    plain = types.underlying(t)
    scalar = (BitType, types.BoolType, types.EnumType, types.ErrorType, types.VarbitType)
    if not isinstance(plain, scalar) and not isinstance(plain, (types.RecordType, types.TupleType)):
        fail(key.expr.span, f"a key cannot have type {t}")
    bits = (BitType, types.BoolType, types.EnumType, types.ErrorType)
    if key.match_kind in ("ternary", "lpm", "range") and not isinstance(plain, bits):
        fail(key.expr.span, f"a {key.match_kind} key must be bits, not {t}")


def _find_action(ctx: Context, ref: ast.ActionRef) -> ast.ActionDecl:
    decl = ctx.lookup("action", ref.name, ref.span, ref.absolute)
    if not isinstance(decl, ast.ActionDecl):
        fail(ref.span, f"'{ref.name}' is not an action")
    ref.decl = decl
    return decl


def _listed_action(ctx: Context, ref: ast.ActionRef) -> None:
    """Checks an action in `actions`: it has arguments for the parameters with a direction; the control plane provides the
    others."""
    decl = _find_action(ctx, ref)
    signature = ctx.signature_of(decl)
    ref.params = signature.params
    directed = [p for p in signature.params if p.direction]
    if ref.arguments is None and directed:
        names = ", ".join(f"'{p.name}'" for p in directed)
        fail(
            ref.span,
            f"action '{ref.name}' needs an argument for {names}",
            [Note(f"declared here: {signature}", decl.span)],
        )
    bind(ctx, ref, Signature(ref.name, (), directed, types.VOID, decl), (), ref.span, directionless_may_vary=True)
    ref.args += [None] * (len(signature.params) - len(directed))
    ref.params = signature.params


def _applied_action(ctx: Context, table: ast.TableDecl, ref: ast.ActionRef, where: str) -> None:
    """Checks an action in `default_action` and `entries`: it has all arguments."""
    decl = _find_action(ctx, ref)
    listed = next((a for a in table.actions if getattr(a, "decl", None) is decl), None)
    if listed is None:
        fail(
            ref.span,
            f"action '{ref.name}' is not among the actions of table '{table.name}'",
            suggest(ref.name, [a.name for a in table.actions]),
        )
    banned = {"defaultonly": "entries", "tableonly": "default_action"}
    if any(banned.get(a.name) == where for a in listed.annotations):
        fail(ref.span, f"action '{ref.name}' is not for {where}", [Note("listed here", listed.span)])
    signature = ctx.signature_of(decl)
    if len(listed.args) != len(signature.params):
        raise Cascade(ref.span, f"the listing of action '{ref.name}' has an error")
    directed = sum(1 for p in signature.params if p.direction)
    arguments = ref.arguments or []
    if directed and len(arguments) == len(signature.params) - directed:
        # Only the control plane's arguments are written; the others are in the action list.
        rest = Signature(ref.name, (), signature.params[directed:], types.VOID, decl)
        bind(ctx, ref, rest, (), ref.span, directionless_may_vary=False)
        ref.args = listed.args[:directed] + ref.args
    else:
        bind(ctx, ref, signature, (), ref.span, directionless_may_vary=False)
        for mine, theirs in zip(ref.args[:directed], listed.args[:directed], strict=True):
            if mine is not None and theirs is not None and ast.source_text(mine) != ast.source_text(theirs):
                fail(
                    mine.span,
                    "this argument differs from the one in the list of actions",
                    [Note("listed here", theirs.span)],
                )
    ref.params = signature.params


def _default_action(ctx: Context, table: ast.TableDecl) -> None:
    if table.default_ref is not None:
        table.default_action = table.default_ref
        _applied_action(ctx, table, table.default_ref, "default_action")
        return
    nothing = ctx.globals.lookup("NoAction")
    if not isinstance(nothing, ast.ActionDecl):
        fail(
            table.span,
            f"table '{table.name}' has no default_action, and NoAction is not declared",
            ["#include <core.p4>"],
        )
    if nothing.params:
        fail(
            nothing.span, "NoAction has parameters: it cannot be the default action of a table without default_action",
            [Note("such a table", table.span)],
        )
    ref = ast.ActionRef(table.span, "NoAction", [], absolute=True)
    ref.decl = nothing
    table.default_action = ref


def _entry(ctx: Context, table: ast.TableDecl, entry: ast.TableEntry) -> None:
    if len(entry.keys) != len(table.keys):
        if len(entry.keys) == 1 and isinstance(entry.keys[0], ast.DontCare):
            entry.keys = [ast.DontCare(entry.span) for _ in table.keys]
        elif len(entry.keys) == 1 and isinstance(entry.keys[0], ast.ListExpr):
            entry.keys = entry.keys[0].items
    if len(entry.keys) != len(table.keys):
        fail(
            entry.span,
            f"{counted(len(entry.keys), 'value')} in this entry, but table '{table.name}' has {counted(len(table.keys), 'key')}",
        )
    for i, (key, expr) in enumerate(zip(table.keys, entry.keys, strict=True)):
        t = key.expr.type
        if isinstance(t, ast.Unchecked):
            continue  # the key had an error
        entry.keys[i] = checked = keyset_of(ctx, expr, t)
        _check_match(key.match_kind, checked, t)
    _applied_action(ctx, table, entry.action, "entries")
    if entry.priority_expr is not None:
        entry.priority = constant_int(ctx, entry.priority_expr, "priority of an entry")


def _priorities(ctx: Context, table: ast.TableDecl) -> None:
    """Sets the priorities of entries without one: each `priority_delta` apart from the one before (§14.2.1.4)."""
    if all(key.match_kind in ("exact", "lpm") for key in table.keys):
        for entry in table.entries:
            if entry.priority_expr is not None:
                fail(entry.priority_expr.span, "a table that only has exact and lpm keys takes no priorities")
        return
    delta = table.properties.get("priority_delta")
    largest = table.properties.get("largest_priority_wins")
    step = 1 if delta is None else constant_int(ctx, delta.value, "priority_delta")
    wins = largest is None or largest.value.const is not False
    if table.entries and table.entries[0].priority is None:
        first = next((entry for entry in table.entries if entry.priority is not None), None)
        if first is not None:
            note = Note("because this one has one", first.span)
            fail(table.entries[0].span, "the first entry must have a priority", [note])
    for i, entry in enumerate(table.entries):
        if entry.priority is None:
            before = table.entries[i - 1].priority
            if i and before is not None:
                entry.priority = before + (-step if wins else step)
            else:
                entry.priority = 1 + step * (len(table.entries) - 1) if wins else 1
        if entry.priority < 0:
            fail(entry.span, f"the priority of this entry is {entry.priority}: it cannot be negative")


def _check_match(kind: str, e: ast.Expr, t: Type) -> None:
    """Checks that the match kind can match this set, and that its parts are constants."""
    parts = [e]
    if isinstance(e, ast.Mask):
        parts = [e.value, e.mask]
        if kind not in ("ternary", "lpm"):
            fail(e.span, f"a mask does not fit a key matched by {kind}")
    elif isinstance(e, ast.Range):
        parts = [e.lo, e.hi]
        if kind != "range":
            fail(e.span, f"a range does not fit a key matched by {kind}")
    elif isinstance(e, ast.DontCare) or isinstance(e.type, types.SetType):
        if isinstance(e, ast.DontCare) and kind == "exact":
            fail(e.span, f"'_' does not fit a key matched by {kind}")
        return
    for part in parts:
        if part.const is None:
            fail(part.span, "keys of entries must be known at compile time", why_not_constant(part))
    if kind == "lpm" and isinstance(e, ast.Mask):
        bits = types.underlying(t)
        assert isinstance(bits, BitType)
        inverted = ~e.mask.const & ((1 << bits.width) - 1)
        if inverted & (inverted + 1):
            fail(e.mask.span, "the mask of an lpm key must be a prefix: ones, then zeros")


def _has_plain_name(e: ast.Expr) -> bool:
    """Returns True if the text of `e` is a name for the control plane (§18.3.2)."""
    match e:
        case ast.Member() | ast.Slice() | ast.Index():
            return _has_plain_name(e.base)
        case ast.Call():
            return e.kind in ("header_method", "packet_in", "table_apply")
    return isinstance(e, ast.Name)


# --- sets of values in entries, and in select cases (§8.14) -----------------------------------------------------------


def keyset_of(ctx: Context, e: ast.Expr, t: Type) -> ast.Expr:
    """Checks a set of values of type `t`."""
    ctx.meet(t)
    match e:
        case ast.DontCare():
            pass
        case ast.Mask():
            e.value, e.mask = _set_bound(ctx, e.value, t), _set_bound(ctx, e.mask, t)
        case ast.Range():
            e.lo, e.hi = _set_bound(ctx, e.lo, t), _set_bound(ctx, e.hi, t)
            if e.lo.const is not None and e.hi.const is not None and e.lo.const > e.hi.const:
                ctx.warn(e.span, "this range is empty")
        case ast.ListExpr():
            plain = types.strip_new(t)
            if isinstance(plain, (types.TupleType, types.RecordType)):
                return _tuple_keyset(ctx, e, plain)
            if len(e.items) == 1:
                return keyset_of(ctx, e.items[0], t)
            fail(e.span, f"{counted(len(e.items), 'value')} for a key of type {t}")
        case _:
            return _value_keyset(ctx, ctx.expression(e), t)
    e.type = types.SetType(t)
    return e


def _value_keyset(ctx: Context, e: ast.Expr, t: Type) -> ast.Expr:
    """Checks an exact value, or the name of a value set."""
    if not isinstance(e.type, types.SetType):
        return coerce(ctx, value_of(ctx, e), t)
    if not _set_matches(e.type.element, t):
        fail(e.span, f"value set of {e.type.element} does not match a key of type {t}")
    return e


def _set_bound(ctx: Context, e: ast.Expr, t: Type) -> ast.Expr:
    """Checks a bound or mask, which may be a plain integer if the key is an enum or a `type`."""
    checked = value_of(ctx, e)
    bits = types.underlying(t)
    if not isinstance(bits, BitType):
        fail(e.span, f"masks and ranges need a key of bits, not {t}")
    return coerce(ctx, checked, t if checked.type == t else bits)


def _tuple_keyset(ctx: Context, e: ast.ListExpr, t: types.TupleType | types.RecordType) -> ast.Expr:
    parts = t.elements if isinstance(t, types.TupleType) else tuple(f.type for f in t.fields.values())
    if len(parts) != len(e.items):
        fail(e.span, f"{counted(len(e.items), 'value')} for {t}, which has {len(parts)}")
    e.items = e.values = [keyset_of(ctx, item, part) for item, part in zip(e.items, parts, strict=True)]
    e.type = types.SetType(t)
    return e


def _set_matches(element: Type, t: Type) -> bool:
    if types.underlying(element) == types.underlying(t):
        return True
    if isinstance(element, types.RecordType) and len(element.fields) == 1:
        return _set_matches(next(iter(element.fields.values())).type, t)
    return isinstance(element, types.TupleType) and len(element.elements) == 1 and _set_matches(element.elements[0], t)
