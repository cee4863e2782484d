"""`ina explain`: a program and the compiler's result, as text.

Headers with their bits, the parser's states, tables with keys and actions, memory (which registers share a row),
loops. `summary` is the short form that `ina compile` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ina.base.plurals import counted
from ina.p4.compiler import ast, ir, types
from ina.p4.compiler.arch.lower_tna import pipelines
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.compiler.emit.emit import c_file
from ina.p4.compiler.frontend import deep_recursion
from ina.p4.compiler.instances import action_name, instances_below, key_name, property_instance, table_size, tables_of
from ina.p4.compiler.lower.lower import lower
from ina.p4.compiler.optimise.optimise import optimise
from ina.p4.compiler.p4info import p4info
from ina.p4.tools import parser_graph

Json = dict[str, Any]


def summary(compiled: CompiledProgram, seconds: float) -> list[str]:
    """Returns a few lines: numbers of objects, and the use of memory."""
    layout = compiled.layout
    sizes = [f"state {amount(layout['state']['size'])}", f"{layout['meta']['size']} bytes of metadata per packet"]
    counts = [counted(len(layout[f"{kind}s"]), kind) for kind in ("table", "register", "counter") if layout[f"{kind}s"]]
    out = [f"{compiled.name}: {', '.join(counts + sizes)}; {seconds:.2f} s"]
    for t in layout["tables"]:
        keys = ", ".join(f"{k['name']} {k['match']}" for k in t["keys"]) or "no keys"
        out.append(f"    table {t['name']}: {keys}; {counted(len(t['entries']), 'const entry', 'const entries')}"
                   if t["const_entries"] else f"    table {t['name']}: {keys}; size {t['size']}")
    return out + [f"    {line}" for line in memory(layout["registers"], names_only=True)]


def lines(program: CheckedProgram) -> Iterator[str]:
    """Yields the whole explanation. Raises CompileError for what the compiler does not support."""
    with deep_recursion():
        modules = lower(program)
        for module in modules:
            optimise(module)
        layouts = c_file(modules, "", p4info.build(program))[1]
    yield f"{program.filename}: {program.package.decl.name}"
    roots = [instance for _, instance in pipelines(program)] if modules[0].architecture == "tna" else [program.package]
    for module, layout, root in zip(modules, layouts, roots, strict=True):
        if len(modules) > 1:
            yield from ("", f"--- pipeline {module.pipeline}")
        printed: set[types.Type] = set()
        for i, parser in enumerate(parsers_of(root)):
            t = parser.decl.params[1].type
            if t not in printed:
                yield from section("headers" if i == 0 else f"headers of {parser.name}", headers(parser, module))
            printed.add(t)
            for g in parser_graph.graphs(parser):
                yield from section(f"parser {g.name}", parser_graph.text(g))
        yield from section("tables", tables(program, root))
        yield from section("value sets and digests", objects(layout))
        yield from section("memory", state(layout))
        yield from section("loops", loops(module))


def section(title: str, body: Iterable[str]) -> Iterator[str]:
    """Yields the lines under a title; nothing when there are none."""
    body = list(body)
    if body:
        yield ""
        yield title
        yield from (f"    {line}" for line in body)


def parser_of(program: CheckedProgram) -> Instance:
    """Returns the first parser of the main package. Raises ValueError for a program without one."""
    parser = next(parsers_of(program.main), None) if program.main is not None else None
    if parser is None:
        raise ValueError(f"{program.filename}: no main package with a parser")
    return parser


def parsers_of(root: Instance) -> Iterator[Instance]:
    """Yields the parsers of a package or of the packages in it; not those that parsers call."""
    for block in root.args.values():
        if isinstance(block, Instance):
            if isinstance(block.decl, ast.ParserDecl):
                yield block
            elif isinstance(block.decl, ast.PackageDecl):
                yield from parsers_of(block)


# --- headers --------------------------------------------------------------------------------------------------------


def headers(parser: Instance, module: ir.Module) -> Iterator[str]:
    """Yields each header of the parser's headers: the offset of each field; and whether it stays in the frame."""
    param = parser.decl.params[1]
    regions = {region.name: region for region in reversed(module.regions)}  # the first of two phases wins
    yield from _header_lines(param.name, param.type, regions)


def _header_lines(path: str, t: types.Type, regions: dict[str, ir.Region]) -> Iterator[str]:
    t = types.strip_new(t)
    if isinstance(t, types.StackType):
        yield f"{path}: stack of {t.size} x {t.element}"
        yield from _header_lines(f"{path}[*]", t.element, regions)
    elif isinstance(t, types.HeaderType):
        bits = types.fixed_width(t)
        size = f"{bits // 8} bytes" if bits is not None else "variable size"
        yield f"{path}: {t}, {size}{_place(regions.get(re.sub(r'[^0-9A-Za-z]', '_', path)))}"
        yield from (f"    {line}" for line in _field_lines(t))
    elif isinstance(t, types.RecordType):
        if isinstance(t, types.UnionType):
            yield f"{path}: union, one of"
        for f in t.fields.values():
            yield from _header_lines(f"{path}.{f.name}", f.type, regions)


def _place(region: ir.Region | None) -> str:
    if region is None:
        return ", in variables"
    if region.own_buffer:
        return ", in the frame or in a buffer" if region.in_place else ", copied to a buffer"
    return ", stays in the frame"


def _field_lines(t: types.RecordType) -> Iterator[str]:
    """Yields `byte.bit type name` for each field; neighbours of one type that differ in a number only are one line."""
    fields = list(t.fields.values())
    padding = t.padding() if isinstance(t, types.HeaderType) else {}
    at: int | None = 0
    for names in runs([(f.name, str(f.type)) for f in fields]):
        first = t.fields[names[0][0]]
        count = len(names)
        name = names[0][0] if count == 1 else f"{names[0][0]} .. {names[-1][0]}"
        times = f"{count} x " if count > 1 else ""
        place = "   -  " if at is None else f"{at // 8:4}.{at % 8}"
        yield f"{place}  {times}{first.type} {name}"
        width = types.fixed_width(first.type)
        at = None if at is None or width is None else at + width * count + padding.get(names[-1][0], 0)


def runs(items: list[tuple[str, Any]]) -> list[list[tuple[str, Any]]]:
    """Groups items (name, value): neighbours with the same value whose names differ only in the digits at the end of their parts.

    Hexadecimal digits count where there are three neighbours or more.
    """

    def stem(name: str) -> str:
        return re.sub(r"(\d[0-9a-f]*|(?<=_)[0-9a-f]+)(?=$|\.)", "#", name)

    out: list[list[tuple[str, Any]]] = []
    for item in items:
        last = out[-1][-1] if out else None
        if last is not None and last[1] == item[1] and stem(last[0]) == stem(item[0]) != item[0]:
            out[-1].append(item)
        else:
            out.append([item])
    return out


# --- tables ---------------------------------------------------------------------------------------------------------


def tables(program: CheckedProgram, root: Instance) -> Iterator[str]:
    for instance in instances_below(root):
        if isinstance(instance.decl, ast.ControlDecl):
            for decl in tables_of(instance):
                yield from _table(program, instance, decl)


def _table(program: CheckedProgram, instance: Instance, decl: ast.TableDecl) -> Iterator[str]:
    name = instance.cp_names[decl.name]
    yield f"{name}  ({decl.span.file}:{decl.span.line})"
    for key in decl.keys:
        yield f"    key      {key_name(key)}  {key.expr.type}  {key.match_kind}"
    for ref in decl.actions:
        params = ", ".join(f"{p.type} {p.cp_name}" for p in ref.decl.params if p.direction == "")
        notes = "".join(f"  @{a.name}" for a in ref.annotations if a.name in ("defaultonly", "tableonly"))
        yield f"    action   {action_name(instance, ref.decl)}({params}){notes}"
    const = "  const" if decl.const_default else ""
    yield f"    default  {_applied(decl.default_action)}{const}"
    if decl.entries:
        yield f"    entries  {len(decl.entries)}{'  const' if decl.const_entries else ''}"
        for entry in decl.entries:
            rank = f"  priority {entry.priority}" if entry.priority is not None else ""
            yield f"        {', '.join(parser_graph.shown(k) for k in entry.keys)} -> {_applied(entry.action)}{rank}"
    for title in ("implementation", *p4info.TABLE_OBJECTS):
        if title in decl.properties:
            extern = property_instance(program, instance, name, decl.properties[title])
            yield f"    {title}  {extern.name} ({extern.decl.name})"
    if not decl.const_entries and decl.keys:
        yield f"    size     {table_size(program, instance, decl)}"


def _applied(ref: ast.ActionRef) -> str:
    args = [parser_graph.shown(a) for a, p in zip(ref.args, ref.decl.params, strict=False) if a is not None]
    return f"{ref.decl.name}({', '.join(args)})"


# --- memory and loops -----------------------------------------------------------------------------------------------


def state(layout: Json) -> Iterator[str]:
    yield f"state {amount(layout['state']['size'])}, metadata of a packet {layout['meta']['size']} bytes"
    yield from memory(layout["registers"])
    for c in layout["counters"]:
        table = f" of table {c['table']}" if c["table"] else ""
        yield f"counter {c['name']}{table}: {c['size']} cells of {c['type'].replace('_', ' ')}, {amount(16 * c['size'])}"
    for m in layout["meters"]:
        table = f" of table {m['table']}" if m["table"] else ""
        yield f"meter {m['name']}{table}: {m['size']} cells of {m['type']}"
    for f in layout["filters"]:
        table = f" of table {f['table']}" if f["table"] else ""
        yield f"{f['type']} {f['name']}{table}: {f['size']} cells"


def objects(layout: Json) -> Iterator[str]:
    """Yields the value sets and digests."""
    for v in layout["value_sets"]:
        keys = ", ".join(f"{k['name']} bit<{k['width']}> {k['match']}" for k in v["keys"])
        yield f"value set {v['name']}: {keys}; size {v['size']}"
    for d in layout["digests"]:
        fields = ", ".join(f"bit<{f['width']}> {f['name']}" for f in d["fields"])
        yield f"digest {d['name']}: {fields}"


def memory(registers: list[Json], names_only: bool = False) -> Iterator[str]:
    """Yields registers as they lie in memory: rows that several share, arrays of their own."""
    for row in _rows(registers):
        first = row[0]
        if len(row) == 1:
            yield (
                f"register {first['name']}: {first['size']} x {_cell(first)},"
                f" {amount(first['size'] * first['stride'])}"
            )
            continue
        total = amount(first["size"] * first["stride"])
        yield f"{first['size']} rows of {first['stride']} bytes, {len(row)} registers, {total}"
        if names_only:
            continue
        base = min(r["offset"] for r in row)
        for group in runs([(r["name"], _cell(r)) for r in row]):
            start = next(r["offset"] for r in row if r["name"] == group[0][0]) - base
            if len(group) == 1:
                yield f"    byte {start:5}  {group[0][1]} {group[0][0]}"
            else:
                yield f"    byte {start:5}  {len(group)} x {group[0][1]} {group[0][0]} .. {group[-1][0]}"


def _rows(registers: list[Json]) -> list[list[Json]]:
    """Groups registers that share rows: those that begin within one stride."""
    rows: list[list[Json]] = []
    for r in sorted(registers, key=lambda r: r["offset"]):
        first = rows[-1][0] if rows else None
        if first is not None and r["stride"] == first["stride"] and r["offset"] < first["offset"] + first["stride"]:
            rows[-1].append(r)
        else:
            rows.append([r])
    return rows


def _cell(register: Json) -> str:
    return f"{'int' if register['signed'] else 'bit'}<{register['width']}>"


def loops(module: ir.Module) -> Iterator[str]:
    """Yields the loops that the compiler made, which the C compiler turns into vector instructions."""
    for title, phase in (("ingress", module.ingress), ("egress", module.egress)):
        for loop in ir.walk(phase.body):
            if isinstance(loop, ir.Roll):
                order = "independent" if loop.independent else "in order"
                yield f"{title}: {loop.count} rounds, {order}"
                yield from (f"    {line}" for line in dict.fromkeys(_loop(loop, module)))


def _loop(loop: ir.Roll, module: ir.Module) -> Iterator[str]:
    for stmt in ir.walk(loop.body):
        if isinstance(stmt, ir.RegRead | ir.RegWrite):
            verb = "reads" if isinstance(stmt, ir.RegRead) else "writes"
            last = stmt.register.offset + stmt.step * (loop.count - 1)
            end = next((r.name for r in module.registers if r.offset == last), stmt.register.name)
            yield f"{verb} register {stmt.register.name}" + (f" .. {end}" if stmt.step else "")
        for verb, exprs in (("reads", ir.reads(stmt)), ("writes", ir.writes(stmt))):
            for leaf in (leaf for e in exprs for leaf in ir.leaves(e)):
                if isinstance(leaf, ir.Elem) and leaf.step:
                    place = f"header {leaf.array.region.name}" if leaf.array.region else f"array {leaf.array.name}"
                    yield f"{verb} {place}"


def amount(size: int) -> str:
    """Formats bytes with a binary unit."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"
