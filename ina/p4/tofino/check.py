"""`ina tofino check`: parts of a program that a Tofino cannot do, as far as the source tells, and lower bounds of its resources.

Two kinds of statements, kept apart: findings, each with its place (error: no Tofino 1 does this; warning: p4c's rules forbid it,
or a compiler has to split it), and estimates, which are lower bounds. Only a compiler can tell whether a program can be placed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ina.base.plurals import counted
from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import Diagnostic, Note, Span, render
from ina.p4.compiler.frontend import deep_recursion
from ina.p4.tofino import resources, rules, stages, stateful
from ina.p4.tofino.fields import Scope
from ina.p4.tofino.resources import Containers, TableUse
from ina.p4.tofino.stages import Bound
from ina.p4.tofino.stateful import Shape
from ina.p4.tofino.units import STATEFUL, Access, Gress, Item, branches, flat, pipelines, units_of, without

DIRECT = ("registers", "counters", "meters", "filters")
ALU_USERS = ("register", "meter", "filter", "selector")
DEEP = ("an expression of several operations: an action computes each value with one, so a compiler must split this over stages, "
        "or refuses it")


@dataclass
class Finding:
    """`level`: error or warning."""

    level: str
    span: Span
    text: str
    notes: list[tuple[Span | None, str]] = field(default_factory=list)


@dataclass
class Control:
    """Ingress or egress of a pipeline, analysed."""

    gress: Gress
    bound: Bound
    tables: list[TableUse]
    objects: list[TableUse]
    shapes: list[Shape]
    containers: Containers
    most: dict[Instance, list[Access]]  # by register, accesses of one packet in one pass


@dataclass
class Report:
    program: str
    controls: list[Control]
    findings: list[Finding]
    crowded: tuple[int, str]
    sources: dict[str, str]

    @property
    def errors(self) -> int:
        return sum(f.level == "error" for f in self.findings)

    @property
    def stages(self) -> int:
        return max([self.crowded[0], *(c.bound.stages for c in self.controls)], default=0)


def check(program: CheckedProgram) -> Report:
    """Checks a program. Raises NotTna."""
    with deep_recursion():
        findings: list[Finding] = []
        controls = [_control(gress, findings) for pipeline in pipelines(program) for gress in pipeline.gresses]
        crowded = max((stages.crowded([c.bound for c in pipe]) for pipe in _by_pipeline(controls)), default=(0, ""))
        report = Report(program.filename, controls, findings, crowded, program.sources)
        _sizes(report, next((d.span for d in program.declarations if getattr(d, "name", "") == "main"), None))
        findings[:] = {(f.span, f.text): f for f in findings}.values()
        findings.sort(key=lambda f: (f.level != "error", f.span.file, f.span.line, f.span.col))
        return report


def _by_pipeline(controls: list[Control]) -> list[list[Control]]:
    pipes: dict[str, list[Control]] = {}
    for c in controls:
        pipes.setdefault(c.gress.name.rpartition(".")[0], []).append(c)
    return list(pipes.values())


def _control(gress: Gress, findings: list[Finding]) -> Control:
    units = units_of(gress.control)
    without(units, tuple(f"{header}." for header in resources.never_valid(gress, units)))
    bound = stages.lower_bound(units)
    most = stages.accesses_per_pass(units)
    for register, accesses in most.items():
        if len(accesses) > 1:
            notes: list[tuple[Span | None, str]] = [
                (a.span, f"access {i}, by {a.action.name}") for i, a in enumerate(accesses, 1)
            ]
            text = (f"register {register.name} is accessed {len(accesses)} times in one pass of a packet: its memory is read and "
                    "written once")
            findings.append(Finding("error", accesses[1].span, text, notes))
    shapes: list[Shape] = []
    objects: dict[tuple[Instance, str], TableUse] = {}  # by kind, too
    users: dict[Instance, list[Instance]] = {}
    direct, reachable = _direct(units), _used(units)
    for control in _within(gress.control):
        scope = Scope(control, {p: p.name for p in control.decl.params})
        for child in control.children.values():
            if child in reachable and (use := resources.object_use(child, *direct.get(child, (0, 0)))) is not None:
                objects[child, use.kind] = use
                if child.decl.name == "ActionSelector":  # the groups' memory, besides that of its actions
                    objects[child, "groups"] = TableUse(child.name, "selector", use.span, 0, sram=1)
            if child.decl.name in ("Register", "DirectRegister") and (
                problem := stateful.register_problem(child)
            ):
                findings.append(Finding("error", child.origin.span, f"register {child.name}: {problem}"))
            cells = child.args.get("reg")
            if child.decl.name in STATEFUL and isinstance(cells, Instance):
                users.setdefault(cells, []).append(child)
                form = stateful.shape(child, cells, scope)
                shapes.append(form)
                findings += [Finding("error" if sure else "warning", span, text) for span, text, sure in form.problems
                             if not text.startswith("a cell of")]
    for register, actions in users.items():
        _of_one_register(register, actions, shapes, findings)
    for unit in flat(units):
        for statement in (s for effect in unit.effects for s in effect.deep):
            findings.append(Finding("warning", statement.span, DEEP))
    for branch in branches(units):
        for compared in branch.compared:
            text = (f"'{ast.source_text(compared)}' compares two fields by size: a gateway compares with constants; subtract "
                    "first, and look at the sign")
            findings.append(Finding("warning", compared.span, text))
    findings += [Finding(level, span, text, notes) for level, span, text, notes in rules.problems(units)]
    tables = {(u.owner, u.table): resources.table_use(u) for u in stages.tables_of(units)}
    return Control(gress, bound, list(tables.values()), list(objects.values()), shapes, resources.containers(gress, units), most)


def _direct(units: list[Item]) -> dict[Instance, tuple[int, int]]:
    """Returns the cells of direct objects (the size of their table) and the data bits of action profiles (those of an
    entry's action)."""
    sizes: dict[Instance, tuple[int, int]] = {}
    for unit in stages.tables_of(units):
        for name in DIRECT:
            value = unit.decl.properties[name].value if name in unit.decl.properties else None
            if isinstance(value, ast.Name) and value.name in unit.owner.children:
                sizes[unit.owner.children[value.name]] = resources.table_use(unit).entries, 0
        if (profile := resources.profile_of(unit)) is not None:
            sizes[profile] = 0, resources.data_bits(unit)
    return sizes


def _used(units: list[Item]) -> set[Instance]:
    """Returns the objects that a packet can reach: a compiler leaves the others out."""
    reachable = {a.register for unit in flat(units) for a in unit.accesses}
    reachable |= {instance for unit in flat(units) for instance, _ in unit.objects}
    for unit in stages.tables_of(units):
        profiles = [resources.implementation(unit), resources.profile_of(unit)]
        reachable |= {i for i in profiles if i is not None}
    return reachable


def _of_one_register(register: Instance, actions: list[Instance], shapes: list[Shape], findings: list[Finding]) -> None:
    if len(actions) > stateful.ACTIONS:
        text = f"register {register.name} has {len(actions)} RegisterActions: a stateful ALU has room for {stateful.ACTIONS}"
        findings.append(Finding("error", register.origin.span, text, [(a.origin.span, a.name) for a in actions]))
    constants = {c for s in shapes if s.register is register for c in s.constants}
    if len(constants) > stateful.CONSTANTS:
        values = ", ".join(map(str, sorted(constants)))
        findings.append(Finding("error", register.origin.span, f"the actions of register {register.name} use {len(constants)} "
                                f"constants beyond -8..7 ({values}): a stateful ALU keeps {stateful.CONSTANTS}"))


def _within(control: Instance) -> list[Instance]:
    """Returns the control and those that are instantiated in it."""
    inner = (child for child in control.children.values() if isinstance(child.decl, ast.ControlDecl))
    return [control, *(c for child in inner for c in _within(child))]


def _sizes(report: Report, span: Span | None) -> None:
    """Adds an error for each resource of which the program needs more than a Tofino 1 has, even by the lower bounds."""
    place = span or report.controls[0].gress.control.decl.span
    for resource, (bound, limit) in report_totals(report).items():
        if bound > limit:
            longest = [c for c in report.controls if resource == "stages" and c.bound.stages == bound][:1]
            chain: list[tuple[Span | None, str]] = [
                (p.unit.span, f"stage {p.stage}: {p.unit.name}" + (f", for {p.why}" if p.why else ""))
                for c in longest for p in c.bound.chain
            ]
            report.findings.append(Finding("error", place, f"at least {bound} {resource}: a Tofino 1 has {limit}", chain))


def report_totals(report: Report) -> dict[str, tuple[int, int]]:
    """Returns by resource the estimate of the fullest pipeline (a lower bound), and what a pipeline of Tofino 1 has."""
    def most(amount: Any) -> int:
        return max((sum(map(amount, controls)) for controls in _by_pipeline(report.controls)), default=0)

    def hash_bits(c: Control) -> int:
        """Sums hash bits; exact tables with the same key may share them."""
        by_key: dict[Any, int] = {}
        for table in c.tables:
            by_key[table.key] = max(table.hash_bits, by_key.get(table.key, 0))
        return sum(by_key.values()) + sum(o.hash_bits for o in c.objects)

    return {
        "stages": (report.stages, stages.STAGES),
        "bits of containers for headers": (most(lambda c: c.containers.headers), resources.CARRIED_BITS),
        "of which tables use": (most(lambda c: c.containers.touched), resources.PHV_BITS),
        "stateful and meter ALUs": (most(lambda c: sum(o.kind in ALU_USERS for o in c.objects)), resources.STATEFUL),
        "SRAM blocks": (most(lambda c: sum(u.sram for u in (*c.tables, *c.objects))), resources.SRAM_BLOCKS),
        "TCAM blocks": (most(lambda c: sum(u.tcam for u in c.tables)), resources.TCAM_BLOCKS),
        "hash bits": (most(hash_bits), resources.HASH_BITS),
    }


# ---- text and JSON


def text(report: Report) -> str:
    out = []
    for finding in report.findings:
        diagnostic = Diagnostic(finding.span, finding.text, [Note(t, s) for s, t in finding.notes])
        out.append(render([diagnostic], report.sources, finding.level))
    warnings = len(report.findings) - report.errors
    out.append(f"{report.program}: {counted(report.errors, 'error')}, {counted(warnings, 'warning')}")
    for c in report.controls:
        out += ["", *_control_text(c)]
    out += ["", "estimates, from below, of the fullest pipeline (a Tofino 1 has)"]
    for resource, (bound, limit) in report_totals(report).items():
        out.append(f"    {resource:30} >= {bound:5} ({limit})")
    out += [f"    for the stages: {reason}" for reason in _stage_reasons(report)]
    out.append("What a program really takes, and whether it can be placed, only a compiler for Tofino says: make tofino.")
    return "\n".join(out)


def _stage_reasons(report: Report) -> list[str]:
    if report.crowded[0] >= report.stages and report.crowded[0] > max((c.bound.stages for c in report.controls), default=0):
        return [report.crowded[1]]
    return [f"the chain of dependencies in {c.gress.name}" for c in report.controls if c.bound.stages == report.stages][:1]


def _control_text(c: Control) -> list[str]:
    phv = c.containers
    out = [f"{c.gress.name} ({c.gress.control.decl.name}): at least {counted(c.bound.stages, 'stage')}; "
           f"{phv.headers} bits of headers at once, {phv.metadata} of metadata"]
    stage = {p.unit.name: p.stage for p in c.bound.placed}
    for use in c.tables:
        memory = ", ".join(f"{n} {w}" for n, w in ((use.sram, "SRAM"), (use.tcam, "TCAM")) if n) or "no memory"
        size = f"{use.entries} x {use.key_bits} bits" if use.key_bits else ""
        out.append(f"    from stage {stage.get(use.name, 0):2}  {use.name:56} {use.kind:8} {size:16} {memory}")
    out += [f"    {line}" for line in _runs([o for o in c.objects if o.kind == "register"])]
    for kind in ("counter", "meter", "hash"):
        objects = [o for o in c.objects if o.kind == kind]
        if objects:
            out.append(
                f"    {counted(len(objects), kind, 'hashes' * (kind == 'hash'))}: {sum(o.sram for o in objects)} SRAM, "
                f"{sum(o.hash_bits for o in objects)} hash bits"
            )
    if len(c.bound.chain) > 1:
        out += ["    what must wait for what:", *(
            f"        stage {p.stage}: {p.unit.name} ({p.unit.span})" + (f", for {p.why}" if p.why else "") for p in c.bound.chain
        )]
    return out


def _runs(registers: list[TableUse]) -> list[str]:
    """Describes registers of the same size in one line, by the first and last."""
    groups: dict[tuple[int, int, int], list[str]] = {}
    for r in registers:
        groups.setdefault((r.entries, r.data_bits, r.sram), []).append(r.name)
    lines = []
    for (cells, bits, sram), names in groups.items():
        span = " .. ".join(dict.fromkeys([names[0], names[-1]]))
        lines.append(f"{counted(len(names), 'register')} of {cells} x {bits} bits, {sram} SRAM each: {span}")
    return lines


def as_json(report: Report) -> dict[str, Any]:
    def place(span: Span | None) -> str | None:
        return str(span) if span is not None else None

    return {
        "program": report.program,
        "findings": [{"level": f.level, "place": place(f.span), "text": f.text,
                      "notes": [{"place": place(s), "text": t} for s, t in f.notes]} for f in report.findings],
        "estimates": {name: {"at_least": bound, "tofino1": limit} for name, (bound, limit) in report_totals(report).items()},
        "controls": [{
            "name": c.gress.name, "stages_at_least": c.bound.stages,
            "phv": {"headers": c.containers.headers, "metadata": c.containers.metadata, "longest": c.containers.longest},
            "tables": [_use(u) | {"from_stage": next((p.stage for p in c.bound.placed if p.unit.name == u.name), 0)}
                       for u in c.tables],
            "objects": [_use(u) for u in c.objects],
            "accesses_per_pass": {r.name: len(a) for r, a in c.most.items()},
            "stateful": [{"action": s.action.name, "register": s.register.name, "words": s.words, "comparisons": s.comparisons,
                          "inputs": [r[0] for r in s.inputs], "values": s.values, "constants": sorted(s.constants)}
                         for s in c.shapes],
            "chain": [{"stage": p.stage, "unit": p.unit.name, "place": place(p.unit.span), "for": p.why} for p in c.bound.chain],
        } for c in report.controls],
    }


def _use(u: TableUse) -> dict[str, Any]:
    return {"name": u.name, "kind": u.kind, "place": str(u.span), "entries": u.entries, "key_bits": u.key_bits,
            "data_bits": u.data_bits,
            "sram": u.sram, "tcam": u.tcam, "hash_bits": u.hash_bits}
