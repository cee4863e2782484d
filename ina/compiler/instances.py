"""Walks over the running program: its instances, the extern objects of table properties, the calls in a body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ina.compiler import ast
from ina.compiler.program import CheckedProgram, Instance


def instances_of(program: CheckedProgram) -> Iterator[Instance]:
    """Every instance of the running program, each once: global ones first, then main's in order of declaration."""
    seen: set[Instance] = set()

    def walk(instance: Any) -> Iterator[Instance]:
        if isinstance(instance, Instance) and instance not in seen:
            seen.add(instance)
            yield instance
            for inner in [*instance.args.values(), *instance.children.values()]:
                yield from walk(inner)

    for instance in program.globals.values():
        yield from walk(instance)
    if program.main is not None:
        yield from walk(program.main)


def property_instance(program: CheckedProgram, owner: Instance, table: str, prop: ast.Property) -> Instance:
    """The extern object that a table property (`implementation`, `counters`, ...) names or constructs.

    `owner` is the control, `table` the table's full name. A constructed object is a new Instance at each call,
    named by the property's `@name` as it stands, else `<table>.<property>`.
    """
    value = prop.value
    if isinstance(value, ast.Name):
        return owner.children[value.name] if value.name in owner.children else program.globals[value.name]
    args = {p.name: a.const for p, a in zip(value.params, value.args, strict=True)}
    return Instance(property_instance_name(table, prop), value.type.decl, value.type, args)


def property_instance_name(table: str, prop: ast.Property) -> str:
    note = next((a.string for a in prop.annotations if a.name == "name"), None)
    return f"{table}.{prop.name}" if note is None else note.removeprefix(".")


def action_name(owner: Instance, decl: ast.ActionDecl) -> str:
    """Full control-plane name of an action that a table of `owner` lists: of the control's own, or a top-level one."""
    if any(node is decl for node in owner.decl.locals):
        return owner.cp_names[decl.name]
    return decl.cp_name.removeprefix(".")


def calls_in(node: Any) -> Iterator[ast.Call]:
    """All calls below a node of the tree, in order of the text. Only the parser's fields are followed, not the
    checker's."""
    if isinstance(node, ast.Call):
        yield node
    if isinstance(node, list | tuple):
        for item in node:
            yield from calls_in(item)
    elif isinstance(node, ast.Node):
        for f in fields(node):
            if f.init and f.name != "annotations":
                yield from calls_in(getattr(node, f.name))


def entry_priorities(decl: ast.TableDecl) -> list[int]:
    """Priorities of the entries in the program, higher wins (§14.2.1.4).

    Without any `priority` the first entry wins. Otherwise entries without one go on from the one before by
    `priority_delta`, downwards when `largest_priority_wins` (the default), and the first starts so that the last
    ends at 1.
    """
    count = len(decl.entries)
    if not any(key.match_kind in ("ternary", "range", "optional") for key in decl.keys):
        return [0] * count  # exact and longest prefix need no priorities
    if all(entry.priority is None for entry in decl.entries):
        # `@priority(n)`, which p4c and BMv2 know, puts an entry in the n-th place instead of its own.
        return [count + 1 - _annotated_place(entry, i + 1) for i, entry in enumerate(decl.entries)]
    largest = _property_value(decl, "largest_priority_wins", True)
    delta = _property_value(decl, "priority_delta", 1)
    current = 1 + (count - 1) * delta if largest else 1
    out = []
    for i, entry in enumerate(decl.entries):
        if entry.priority is not None:
            current = entry.priority
        elif i:
            current += -delta if largest else delta
        out.append(current if largest else -current)
    return out


def _annotated_place(entry: ast.TableEntry, place: int) -> int:
    note = next((a for a in entry.annotations if a.name == "priority" and a.exprs), None)
    if note is None:
        return place
    e = note.exprs[0]
    return int(e.const if e.const is not None else e.value)


def _property_value(decl: ast.TableDecl, name: str, default: Any) -> Any:
    prop = decl.properties.get(name)
    return default if prop is None or prop.value.const is None else prop.value.const
