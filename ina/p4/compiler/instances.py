"""Walks over the running program: its instances, the extern objects of table properties, the nodes below a node; names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ina.p4.compiler import ast
from ina.p4.compiler.arch.architecture import architecture_of
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.types import CallableType, RecordType, SerEnumType, StructType, TupleType, Type, strip_new


def instances_of(program: CheckedProgram) -> Iterator[Instance]:
    """Yields every instance of the running program, each once: global ones first, then main's in order of declaration."""
    seen: set[Instance] = set()
    for instance in program.globals.values():
        yield from instances_below(instance, seen)
    if program.main is not None:
        yield from instances_below(program.main, seen)


def instances_below(instance: object, seen: set[Instance] | None = None) -> Iterator[Instance]:
    """Yields an instance and all in its arguments and its body, each once, except those in `seen`."""
    seen = set() if seen is None else seen
    if isinstance(instance, Instance) and instance not in seen:
        seen.add(instance)
        yield instance
        for inner in [*instance.args.values(), *instance.children.values()]:
            yield from instances_below(inner, seen)


def property_instance(program: CheckedProgram, owner: Instance, table: str, prop: ast.Property) -> Instance:
    """Returns the extern object that a table property (`implementation`, `counters`, ...) names or constructs.

    `owner` is the control, `table` the table's full name. A constructed object is a new Instance at each call, named by the
    property's `@name` unchanged, else `<table>.<property>`.
    """
    value = prop.value
    if isinstance(value, ast.Name):
        return owner.children[value.name] if value.name in owner.children else program.globals[value.name]
    assert isinstance(value.type, CallableType)
    note = next((a.string for a in prop.annotations if a.name == "name"), None)
    name = f"{table}.{prop.name}" if note is None else note.removeprefix(".")
    return Instance(name, value.type.decl, value.type, dict(owner.properties[prop]))


def table_size(program: CheckedProgram, owner: Instance, decl: ast.TableDecl) -> int:
    """Returns `size` of a table of `owner`, else p4c's default: 1024, in its Tofino back end `min_size` or 512."""
    if size := decl.size or owner.sizes.get(decl.name):
        return size
    if architecture_of(program) != "tna":
        return 1024
    least = decl.properties.get("min_size")
    return least.value.const if least is not None and isinstance(least.value.const, int) else 512


def only_pipeline(program: CheckedProgram) -> str:
    """Returns the name of a TNA program's only pipeline; empty if it has several, since names then begin with their pipelines'
    anyway."""
    if architecture_of(program) != "tna":
        return ""
    pipelines = [a for a in program.package.args.values() if isinstance(a, Instance)]
    if len(pipelines) != 1:
        return ""
    return pipelines[0].site.name if pipelines[0].site is not None else "pipe"


def abstract_method(instance: Instance, name: str) -> ast.FunctionDecl:
    """Returns the program's implementation of an extern object's abstract method, in the braces behind the object."""
    body = instance.site.body if instance.site is not None else None
    return next(f for f in body or () if isinstance(f, ast.FunctionDecl) and f.name == name)


def action_name(owner: Instance, decl: ast.ActionDecl) -> str:
    """Returns the full control-plane name of an action that a table of `owner` lists: the control's own, or a top-level one."""
    if any(node is decl for node in owner.decl.locals):
        return owner.cp_names[decl.name]
    return decl.cp_name.removeprefix(".")


def tables_of(instance: Instance) -> list[ast.TableDecl]:
    """Returns the tables of a control, except those that share another one's name and that its constructor's arguments rule
    out: `if (is_ternary) { a.apply(); } else { b.apply(); }` with a bool parameter."""
    tables = [d for d in instance.decl.locals if isinstance(d, ast.TableDecl)]
    names = [instance.cp_names.get(d.name, d.name) for d in tables]
    if len(set(names)) == len(names):
        return tables
    live = {call.decl for part in _live(instance.decl.body, instance) for call in calls_in(part) if call.kind == "table_apply"}
    return [d for d, name in zip(tables, names, strict=True) if names.count(name) == 1 or d in live]


def _live(node: ast.Node | None, instance: Instance) -> Iterator[ast.Node]:
    """Yields the statements, and the conditions, that an instance can reach."""
    if isinstance(node, ast.Block):
        for inner in node.statements:
            yield from _live(inner, instance)
    elif isinstance(node, ast.If):
        outcome = decided(node.condition, instance)
        if outcome is None:
            yield node.condition
        yield from () if outcome is False else _live(node.then, instance)
        yield from () if outcome is True else _live(node.otherwise, instance)
    elif node is not None:
        yield node


def decided(condition: ast.Expr, instance: Instance) -> bool | None:
    """Returns the value of a condition that is a constructor parameter of `instance`, or its negation; None for others, which
    depend on the packet."""
    if isinstance(condition, ast.Unary) and condition.op == "!":
        value = decided(condition.operand, instance)
        return None if value is None else not value
    if isinstance(condition, ast.Name) and condition.decl is not None and condition.decl in instance.decl.ctor_params:
        value = instance.args.get(condition.name)
        return value if isinstance(value, bool) else None
    return None


def symmetric_places(instance: Instance, data: ast.Expr | None) -> list[tuple[int, int]]:
    """Returns the two fields of the list `data` that each `@symmetric("a", "b")` of a Hash makes exchangeable (TNA), by place.

    Raises CompileError for a name that is not in the list, and if there is no list.
    """
    places = []
    for note in instance.site.annotations if instance.site is not None else ():
        if note.name != "symmetric":
            continue
        names = [e.value for e in note.exprs if isinstance(e, ast.StringLiteral)]
        items = [ast.source_text(v) for v in getattr(data, "values", ())]
        if len(names) != 2 or len(note.exprs) != 2:
            raise CompileError(note.span, 'expected two names of fields, as in @symmetric("hdr.ipv4.src", "hdr.ipv4.dst")')
        for name in names:
            if name not in items:
                where = f"the fields are {', '.join(items)}" if items else "give them to get() as a list in braces"
                raise CompileError(note.span, f"@symmetric: '{name}' is none of the fields that are hashed", [where])
        first, second = sorted(map(items.index, names))
        places.append((first, second))
    return places


def calls_in(node: object) -> Iterator[ast.Call]:
    """Yields all calls below a node, in order of the text."""
    return (n for n in walk(node) if isinstance(n, ast.Call))


def entry_priorities(decl: ast.TableDecl) -> list[int]:
    """Returns the priorities of the entries in the program, higher wins (§14.2.1.4); 0 in tables with exact and lpm keys only.

    `@priority(n)`, which p4c and BMv2 support, puts an entry of a constant table in the n-th place instead of its own.
    """
    places = [_annotated_place(entry) for entry in decl.entries]
    if any(place is not None for place in places):
        return [len(places) - (i + 1 if place is None else place) for i, place in enumerate(places)]
    largest = decl.properties.get("largest_priority_wins")
    sign = -1 if largest is not None and largest.value.const is False else 1
    return [sign * (entry.priority or 0) for entry in decl.entries]


def _annotated_place(entry: ast.TableEntry) -> int | None:
    note = next((a for a in entry.annotations if a.name == "priority" and a.exprs), None)
    if note is None:
        return None
    e = note.exprs[0]
    if not isinstance(e, ast.IntLiteral):
        raise CompileError(e.span, "expected the number of a place, as in @priority(1)")
    return e.value


def annotation_constant(program: CheckedProgram, e: ast.Expr) -> Any:
    """Returns the value of an expression in an annotation's body, which the checker does not check.

    A literal, a top-level constant, or a member of a serialisable enum; None for anything else.
    """
    match e:
        case ast.IntLiteral() | ast.StringLiteral() | ast.BoolLiteral():
            return e.value
        case ast.Name():
            constants = (d for d in program.declarations if isinstance(d, ast.ConstDecl) and d.name == e.name)
            return next((d.value.const for d in constants), None)
        case ast.Member() if isinstance(e.base, ast.Name):
            t = program.types.get(e.base.name)
            return t.members.get(e.member) if isinstance(t, SerEnumType) else None
    return None


def field_list(program: CheckedProgram, t: RecordType, index: int) -> list[tuple[str, ...]]:
    """Returns paths of the fields of metadata `t` that `@field_list(..., index, ...)` marks (v1model.p4)."""
    paths: list[tuple[str, ...]] = []
    for name, f in t.fields.items():
        annotation = f.decl.annotation("field_list") if f.decl is not None else None
        if annotation is not None and index in [annotation_constant(program, e) for e in annotation.exprs]:
            paths.append((name,))
        elif isinstance(f.type, RecordType):
            paths += [(name, *path) for path in field_list(program, f.type, index)]
    return paths


def value_set_kind(program: CheckedProgram) -> str:
    """Returns the match kind of fields without `@match`: a Tofino's parsers match under masks."""
    return "ternary" if architecture_of(program) == "tna" else "exact"


def value_set_fields(t: Type, kind: str, name: str = "") -> list[tuple[str, Type, str]]:
    """Returns (name, type, match kind) of the scalars of a value set's type. `kind`: the kind of those without `@match`."""
    t = strip_new(t)
    result: list[tuple[str, Type, str]] = []
    if isinstance(t, StructType):
        for f in t.fields.values():
            note = f.decl.annotation("match") if f.decl is not None else None
            inner = kind if note is None else "".join(note.tokens)
            result += value_set_fields(f.type, inner, f"{name}.{f.name}" if name else f.name)
    elif isinstance(t, TupleType):
        for i, element in enumerate(t.elements):
            result += value_set_fields(element, kind, f"{name}.f{i}" if name else f"f{i}")
    else:
        result.append((name or "value", t, kind))
    return result


def key_name(key: ast.TableKey) -> str:
    """Returns the control plane's name of a table's key: `@name`, or the expression's text (§18.3.2)."""
    note = key.annotation("name")
    return (note.string if note else None) or _key_text(key.expr)


def _key_text(expr: ast.Expr) -> str:
    """Returns `source_text`, but with fields by their `@name`; one that begins with a dot replaces all before it, as in p4c."""
    match expr:
        case ast.Member(kind="field"):
            decl = expr.base.type.fields[expr.member].decl if isinstance(expr.base.type, RecordType) else None
            name = expr.member if decl is None else decl.cp_name
            return name[1:] if name.startswith(".") else f"{_key_text(expr.base)}.{name}"
        case ast.Index(base=ast.Member()) if isinstance(expr.index.const, int):
            return f"{_key_text(expr.base)}[{expr.index.const}]"
        case ast.Call(callee=ast.Member(member="isValid", base=header)):
            return f"{_key_text(header)}.$valid$"
        case _:
            return ast.source_text(expr)


_child_names: dict[type[ast.Node], tuple[str, ...]] = {}


def walk(node: object) -> Iterator[ast.Node]:
    """Yields a node, or those of a list, and all below it, in order of the text.

    It follows the parser's fields, not the checker's, and leaves out annotations.
    """
    match node:
        case ast.Node():
            yield node
            for name in _children(type(node)):
                yield from walk(getattr(node, name))
        case list() | tuple():
            for item in node:
                yield from walk(item)
        case dict():
            yield from walk(list(node.values()))


def _children(kind: type[ast.Node]) -> tuple[str, ...]:
    if kind not in _child_names:
        _child_names[kind] = tuple(f.name for f in fields(kind) if f.init and f.name not in ("span", "annotations"))
    return _child_names[kind]
