"""The P4_16 text of a random program."""

from __future__ import annotations

from . import tree
from .oracle import ERRORS
from .tree import Expr, Function, Program, Type

CLONES = {"clone": "I2E", "clone_e2e": "E2E"}
PROFILES = {"profile": "action_profile(32w64)", "selector": "action_selector(HashAlgorithm.crc16, 32w64, 32w10)"}


def text(program: Program) -> str:
    parts = ["#include <core.p4>", "#include <v1model.p4>"]
    kinds: set[str] = set()
    for header in program.headers:
        if header.kind not in kinds:
            kinds.add(header.kind)
            fields = [f"    {_type(t)} {name};" for name, t in header.fields]
            fields += [f"    varbit<{header.varbit}> rest;"] * bool(header.varbit)
            parts += [f"header {header.kind} {{", *fields, "}"]
    unions: dict[str, dict[str, str]] = {}
    for h in program.headers:
        if h.union:
            unions.setdefault(h.union, {})[h.name.rpartition(".")[2]] = h.kind
    if unions:  # all of one type
        members = next(iter(unions.values()))
        parts += ["header_union union_t {", *(f"    {kind} {name};" for name, kind in members.items()), "}"]
    parts += ["struct headers_t {"]
    parts += [f"    {h.kind}{f'[{h.size}]' if h.size else ''} {h.name};" for h in program.headers if not h.union]
    parts += [*(f"    union_t {name};" for name in unions), "}"]
    annotation = "@field_list(1) "
    parts += [
        "struct metadata_t {",
        *(f"    {annotation if n.startswith('kept') else ''}{_type(t)} {n};" for n, t in program.metadata),
        "}",
    ]
    if program.digest:
        parts += ["struct digest_t {", *(f"    {_type(t)} d{i};" for i, t in enumerate(program.digest)), "}"]
    for function in program.functions:
        parts += _function(function)
    parts += ["parser P(packet_in p, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {"]
    parts += [f"    value_set<bit<{width}>>({max(1, len(members))}) {name};" for name, width, members in program.sets]
    for state in program.states:
        parts += [
            f"    state {state.name} {{",
            *(line for step in state.steps for line in _step(step)),
            *_transition(state),
            "    }",
        ]
    parts += ["}", "control V(inout headers_t hdr, inout metadata_t meta) { apply { } }"]
    parts += ["control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {"]
    parts += [f"    register<{_type(t)}>({size}) {name};" for name, t, size in program.registers]
    parts += [f"    counter({size}, CounterType.packets) {name};" for name, size in program.counters]
    parts += [f"    meter({len(meter.cells)}, MeterType.packets) {meter.name};" for meter in program.meters]
    for action in program.actions:
        parts += [f"    {line}" for line in _function(action)]
    parts += [f"    {PROFILES[t.profile]} profile_{t.name};" for t in program.tables if t.profile]
    for table in program.tables:
        parts += _table(table, program)
    parts += ["    apply {", "        sm.egress_spec = 1;", *_block(program.ingress, 2), "    }", "}"]
    parts += ["control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {"]
    parts += ["    apply {", *_block(program.egress, 2), "    }", "}"]
    checksum = ""
    if program.checksum is not None:
        header, values, target = program.checksum
        checksum = (
            f"update_checksum(hdr.{header}.isValid(), {{ {', '.join(map(expr, values))} }}, {target.name}, HashAlgorithm.csum16);"
        )
    parts += [f"control C(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {checksum} }} }}"]
    parts += [
        "control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }",
        "V1Switch(P(), V(), I(), E(), C(), D()) main;",
    ]
    return "\n".join(parts) + "\n"


def _type(t: Type) -> str:
    return "bool" if t.kind == "bool" else f"{t.kind}<{t.width}>"


def literal(t: Type, value: int) -> str:
    if t.kind == "bool":
        return "true" if value else "false"
    if value < 0:
        return f"(({_type(t)}){t.width}w{value & (1 << t.width) - 1})"
    return f"{t.width}{'s' if t.kind == 'int' else 'w'}{value}"


def expr(e: Expr) -> str:
    match e:
        case tree.Lit():
            return literal(e.type, e.value)
        case tree.Var():
            return e.name
        case tree.Unary():
            return f"({e.op}{expr(e.value)})"
        case tree.Binary():
            return f"({expr(e.left)} {e.op} {expr(e.right)})"
        case tree.Cast():
            return f"(({_type(e.type)}){expr(e.value)})"
        case tree.Slice():
            inner = expr(e.value) if isinstance(e.value, tree.Var) else f"({expr(e.value)})"
            return f"{inner}[{e.high}:{e.low}]"
        case tree.Choice():
            return f"({expr(e.condition)} ? {expr(e.left)} : {expr(e.right)})"
        case tree.IsValid():
            return f"hdr.{e.header}.isValid()"
        case tree.Item():
            element = f"hdr.{e.stack}[{expr(e.index)} & {e.index.type.width}w{e.size - 1}]"
            return f"({element}.isValid() ? {element}.{e.name} : {expr(e.other)})"
        case tree.Call():
            return f"{e.name}({', '.join(map(expr, e.args))})"
    raise TypeError(e)


def _function(f: Function) -> list[str]:
    params = ", ".join(f"{p.direction} {_type(p.type)} {p.name}".strip() for p in f.params)
    head = f"action {f.name}" if f.result is None else f"{_type(f.result)} {f.name}"
    return [f"{head}({params}) {{", *_block(f.body, 1), "}"]


def _block(body: tuple, depth: int) -> list[str]:
    return ["    " * depth + line for s in body for line in _statement(s)]


def _braced(head: str, body: tuple) -> list[str]:
    return [f"{head} {{", *_block(body, 1), "}"]


def _statement(s: object) -> list[str]:
    match s:
        case tree.Assign():
            return [f"{expr(s.target)} = {expr(s.value)};"]
        case tree.Local():
            return [f"{_type(s.type)} {s.name} = {expr(s.value)};"]
        case tree.If():
            lines = _braced(f"if ({expr(s.condition)})", s.then)
            return [*lines[:-1], *_braced("} else", s.otherwise)] if s.otherwise else lines
        case tree.Switch():
            lines = [f"switch ({expr(s.value)}) {{"]
            for labels, body in s.cases:
                lines += [f"    {literal(s.value.type, label)}:" for label in labels[:-1]]
                lines += ["    " + x for x in _braced(f"{literal(s.value.type, labels[-1])}:", body)]
            return [*lines, *("    " + x for x in _braced("default:", s.otherwise)), "}"]
        case tree.ForRange():
            return _braced(f"for ({_type(s.type)} {s.name} in {expr(s.low)} .. {expr(s.high)})", s.body)
        case tree.ForList():
            values = ", ".join(map(expr, s.values))
            return _braced(f"for ({_type(s.type)} {s.name} in (list<{_type(s.type)}>){{ {values} }})", s.body)
        case tree.ForCount():
            n = s.name
            return _braced(f"for (bit<8> {n} = 0; {n} < {s.limit}; {n} = {n} + {s.step})", s.body)
        case tree.Leave():
            return [f"{s.how};"]
        case tree.Return():
            return [f"return {expr(s.value)};"]
        case tree.Invoke():
            return [f"{s.name}({', '.join(map(expr, s.args))});"]
        case tree.Apply():
            return _apply(s)
        case tree.Read():
            return [f"{s.register}.read({s.target.name}, {expr(s.index)});"]
        case tree.Write():
            return [f"{s.register}.write({expr(s.index)}, {expr(s.value)});"]
        case tree.Count():
            return [f"{s.counter}.count({expr(s.index)});"]
        case tree.SetValid():
            return [f"hdr.{s.header}.setValid();", *(f"{t.name} = {expr(v)};" for t, v in s.values)]
        case tree.SetInvalid():
            return [f"hdr.{s.header}.setInvalid();"]
        case tree.CopyHeader():
            return [f"hdr.{s.target} = hdr.{s.source};"]
        case tree.CopyUnion():
            return [f"hdr.{s.target} = hdr.{s.source};"]
        case tree.Mark():
            return [f"{s.meter}.execute_meter({expr(s.index)}, {s.target.name});"]
        case tree.Push():
            return [f"hdr.{s.stack}.{s.how}({s.count});"]
        case tree.Hash():
            t, values = _type(s.target.type), ", ".join(map(expr, s.values))
            return [f"hash({s.target.name}, HashAlgorithm.{s.algorithm}, ({t}){s.base}, {{ {values} }}, 32w{s.limit});"]
        case tree.Digest():
            return [f"digest<digest_t>(1, {{ {', '.join(map(expr, s.values))} }});"]
        case tree.Errors():
            return [f"if (sm.parser_error == error.{name}) {{ {s.target.name} = {i}; }}" for i, name in enumerate(ERRORS)]
        case tree.Again():
            clones = {kind: f"clone_preserving_field_list(CloneType.{t}, 1, 1)" for kind, t in CLONES.items()}
            call = clones.get(s.how, f"{s.how}_preserving_field_list(1)")
            return [f"if (meta.kept_passes < {s.most}) {{", "    meta.kept_passes = meta.kept_passes + 1;", f"    {call};", "}"]
    raise TypeError(s)


def _apply(s: tree.Apply) -> list[str]:
    if s.cases:
        lines = [f"switch ({s.table}.apply().action_run) {{"]
        for name, body in s.cases:
            lines += ["    " + x for x in _braced(f"{name}:", body)]
        return [*lines, "}"]
    if s.hit or s.miss:
        return _statement_if(f"{s.table}.apply().hit", s.hit, s.miss)
    return [f"{s.table}.apply();"]


def _statement_if(condition: str, then: tuple, otherwise: tuple) -> list[str]:
    lines = _braced(f"if ({condition})", then)
    return [*lines[:-1], *_braced("} else", otherwise)] if otherwise else lines


def _step(step: object) -> list[str]:
    match step:
        case tree.Extract():
            length = f", {expr(step.length)}" if step.length is not None else ""
            return [f"        p.extract(hdr.{step.header}{'.next' if step.stack else ''}{length});"]
        case tree.Lookahead():
            return [f"        {step.target.name} = p.lookahead<{_type(step.target.type)}>();"]
        case tree.Advance():
            return [f"        p.advance({expr(step.bits)});"]
        case tree.Verify():
            return [f"        verify({expr(step.condition)}, error.{step.error});"]
    return ["        " + line for line in _statement(step)]


def _transition(state: tree.State) -> list[str]:
    if not state.keys:
        return [f"        transition {state.default};"]
    lines = [f"        transition select({', '.join(map(expr, state.keys))}) {{"]
    for matches, target in state.cases:
        keys = [_select(m, key.type) for m, key in zip(matches, state.keys, strict=True)]
        lines.append(f"            {keys[0] if len(keys) == 1 else '(' + ', '.join(keys) + ')'}: {target};")
    return [*lines, *([f"            default: {state.default};"] * (state.default is not None)), "        }"]


def _select(match: object, t: Type) -> str:
    if match is None:
        return "_"
    if isinstance(match, str):
        return match
    if isinstance(match, int):
        return literal(t, match)
    kind, first, second = match
    return f"{literal(t, first)} {'&&&' if kind == 'mask' else '..'} {literal(t, second)}"


def _table(table: tree.Table, program: Program) -> list[str]:
    actions = {a.name: a for a in program.actions}
    bound = dict(table.bound)

    def reference(name: str, data: tuple[int, ...] | None) -> str:
        directed = [expr(a) for a in bound.get(name, ())]
        free = [p for p in actions[name].params if not p.direction]
        literals = [] if data is None else [literal(p.type, v) for p, v in zip(free, data, strict=True)]
        return f"{name}({', '.join([*directed, *literals])})" if directed or data is not None else name

    lines = [f"    table {table.name} {{", "        key = {"]
    lines += [f'            {expr(k.value)}: {k.kind} @name("{k.name}");' for k in table.keys]
    lines += ["        }", "        actions = {", *(f"            {reference(a, None)};" for a in table.actions), "        }"]
    lines += [f"        default_action = {reference(table.default, table.default_args)};"]
    if table.const:
        lines += ["        const entries = {"]
        for e in table.entries:
            keys = [_entry(k, m) for k, m in zip(table.keys, e.match, strict=True)]
            lines += [
                f"            ({', '.join(keys)}): {reference(e.action, e.args)};"
                if len(keys) > 1
                else f"            {keys[0]}: {reference(e.action, e.args)};"
            ]
        lines += ["        }"]
    implementation = [f"        implementation = profile_{table.name};"] * bool(table.profile)
    return [*lines, *implementation, "        size = 64;", "    }"]


def _entry(key: tree.Key, match: object) -> str:
    t = key.value.type
    raw = Type("bit", t.width)

    def number(value: int) -> str:
        return literal(raw, value) if t.kind != "int" else f"(({_type(t)}){literal(raw, value)})"

    if match is None:
        return "_"
    if t.kind == "bool":
        return literal(t, match)
    if key.kind == "lpm":
        mask = (1 << t.width) - (1 << t.width - match[1])
        return f"{number(match[0])} &&& {number(mask)}"
    if key.kind == "ternary":
        return f"{number(match[0])} &&& {number(match[1])}"
    if key.kind == "range":
        return f"{number(match[0])} .. {number(match[1])}"
    return number(match)
