"""Evaluation of a checked program's declarations: instances, constructor arguments, control-plane names (§16,
§18.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.arch.architecture import architecture_of
from ina.p4.compiler.check.const import fold_binary, fold_cast, fold_concat, fold_slice, fold_unary
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError, Diagnostic, Note
from ina.p4.compiler.instances import instances_below, instances_of, tables_of

MOST_OBJECTS = 100_000  # in a program: nested instances multiply


class Environment(dict[ast.Node, Any]):
    """Values of constructor parameters and instances of the enclosing objects, by declaration. `count`: the number of objects,
    in all copies."""

    def __init__(self, outer: Environment | None = None) -> None:
        super().__init__(outer or {})
        self.count: list[int] = outer.count if outer is not None else [0]


INDEXED = {"register", "counter", "meter", "Register", "Counter", "Meter", "Lpf", "Wred"}
"""Externs of both architectures that are arrays of `size` cells"""

UNREACHED = ("Direct", "direct_", "Hash", "RegisterAction", "MathUnit", "Random", "Checksum", "Mirror", "Resubmit")
"""Beginnings of the names of externs whose objects the control plane reaches through their tables or not at all"""

MOST_CELLS = 2**31 - 1  # p4c's largest


def elaborate(program: CheckedProgram) -> None:
    """Fills `program.main` and `program.globals`."""
    environment = Environment()
    packages: list[Instance] = []  # besides main: objects that are only in them never run
    for d in program.declarations:
        if not isinstance(d, ast.Instantiation):
            continue
        instance = _instance(d.type, d.params, d.args, d.cp_name.removeprefix("."), environment, d)
        environment[d] = instance
        if d.name == "main":
            if not isinstance(d.type, types.PackageType):
                raise CompileError(d.span, f"'main' must be a package, not {d.type}")
            program.main = instance
        elif isinstance(d.type, types.PackageType):
            packages.append(instance)
        else:
            program.globals[d.name] = instance
    _name_pipelines(program)
    _check_names([*program.globals.values(), *([program.main] if program.main else packages)], program.warnings)
    if architecture_of(program) is not None:
        _check_sizes(program)
    for control in instances_of(program) if program.main else ():
        for table in tables_of(control) if isinstance(control.decl, ast.ControlDecl) else ():
            names = [p.value.name for p in table.properties.values() if isinstance(p.value, ast.Name)]
            objects = (control.children.get(name) or program.globals.get(name) for name in names)
            program.attached.update(o for o in objects if o is not None)


def _instance(
    t: types.Type, params: list[types.Parameter], args: Iterable[ast.Expr | None], name: str, environment:
    Environment, site: ast.Instantiation | None,
) -> Instance:
    assert isinstance(t, types.CallableType)
    instance = Instance(name, t.decl, t, site=site)
    environment.count[0] += 1
    if environment.count[0] > MOST_OBJECTS:
        raise CompileError(site.span if site else t.decl.span, f"the program has more than {MOST_OBJECTS:,} objects")
    instance.args |= _arguments(params, args, environment)
    if isinstance(t.decl, (ast.ParserDecl, ast.ControlDecl)):
        inner = Environment(environment)
        for param in t.decl.ctor_params:
            inner[param] = instance.args[param.name]
        _body(instance, t.decl.locals, inner)
    elif site is not None and site.body:
        _body(instance, site.body, Environment(environment))
    return instance


def _arguments(params: list[types.Parameter], args: Iterable[ast.Expr | None], environment: Environment) -> dict[str, Any]:
    return {p.name: None if arg is None else _evaluate(arg, environment) for p, arg in zip(params, args, strict=True)}


def _name_pipelines(program: CheckedProgram) -> None:
    """Prefixes all names in a package (pipeline) with its name, if the main package holds several."""
    args = program.main.args.values() if program.main is not None else ()
    pipelines = [a for a in args if isinstance(a, Instance) and isinstance(a.type, types.PackageType)]
    if len(pipelines) > 1:
        seen = set(program.globals.values())
        for pipeline in pipelines:
            for instance in (i for block in pipeline.args.values() for i in instances_below(block, seen)):
                instance.name = f"{pipeline.name}.{instance.name}"
                instance.cp_names = {key: f"{pipeline.name}.{value}" for key, value in instance.cp_names.items()}


def _check_names(instances: Iterable[Instance], warnings: list[Diagnostic]) -> None:
    """Checks that full control-plane names are unique among objects of a kind.

    Actions may share one through `@name(".drop")` if they take the same parameters: to the control plane they are one. An object
    that the control plane reaches through a table or not at all gets another name, with a warning.
    """
    seen: dict[tuple[type, str], tuple[ast.Declaration, Instance]] = {}
    visited: set[Instance] = set()

    def visit(instance: Instance) -> None:
        if instance in visited:
            return
        visited.add(instance)
        tables = tables_of(instance) if isinstance(instance.decl, ast.ControlDecl) else []
        for d in getattr(instance.decl, "locals", ()):
            if isinstance(d, ast.TableDecl) and d not in tables:
                continue
            if isinstance(d, ast.Declaration) and d.name in instance.cp_names:
                take(d, instance.cp_names[d.name], instance)
        for child in [*instance.children.values(), *(a for a in instance.args.values() if isinstance(a, Instance))]:
            if child.site is not None and isinstance(child.type, types.ExternType):
                first = seen.get((type(child.site), child.name))
                if first is not None and first[1] is not child and child.decl.name.startswith(UNREACHED):
                    rename(child, child.site, instance)
                take(child.site, child.name, child)
            visit(child)

    def rename(child: Instance, site: ast.Instantiation, owner: Instance) -> None:
        name, child.name = child.name, f"{owner.name}.{site.name}"
        while (type(site), child.name) in seen:
            child.name += "_"
        text = f"control-plane name '{name}' is used twice: this {child.decl.name} is called '{child.name}'"
        warnings.append(Diagnostic(site.span, text, [Note("first used here", seen[type(site), name][0].span)]))

    def take(d: ast.Declaration, name: str, owner: Instance) -> None:
        if (type(d), name) not in seen:
            seen[type(d), name] = d, owner
            return
        first, first_owner = seen[type(d), name]
        if first is d and first_owner is owner:
            return
        if isinstance(d, ast.ActionDecl) and isinstance(first, ast.ActionDecl):
            if [(p.name, p.type) for p in d.params] == [(p.name, p.type) for p in first.params]:
                return
        why = Note("first used here", first.span) if first is not d else Note("what it is in is instantiated twice")
        raise CompileError(d.span, f"control-plane name '{name}' is used twice", [why])

    for instance in instances:
        visit(instance)


def _check_sizes(program: CheckedProgram) -> None:
    """Checks the sizes of arrays of cells. A negative size has already become a large bit<32>; of a larger number than that the
    low bits would be left, and it is told as it is written."""
    for instance in instances_of(program):
        if instance.decl.name not in INDEXED:
            continue
        site = instance.site or program.package.site
        assert site is not None
        written = next((a for p, a in zip(site.params, site.args, strict=True) if p.name == "size" and a is not None), None)
        size = max(instance.args["size"], _uncut(written))
        if not 0 < size <= MOST_CELLS:
            problem = f"the size of the {instance.decl.name} '{instance.name}' is {size}"
            raise CompileError(written.span if written else site.span, f"{problem}: expected 1 to {MOST_CELLS}")


def _uncut(e: ast.Expr | None) -> int:
    """Returns the number that `e` is before it is made a bit<32> without a cast being written; 0: it is none."""
    while isinstance(e, ast.Cast) and e.implicit:
        e = e.operand
    return e.const if e is not None and type(e.const) is int else 0


def _body(owner: Instance, nodes: list[ast.Node], environment: Environment) -> None:
    for d in nodes:
        if isinstance(d, ast.Instantiation):
            child = _instance(d.type, d.params, d.args, full_name(owner.name, d), environment, d)
            owner.children[d.name] = environment[d] = child
        elif isinstance(d, (ast.TableDecl, ast.ActionDecl, ast.ValueSetDecl)):
            owner.cp_names[d.name] = full_name(owner.name, d)
            if isinstance(d, ast.TableDecl) and d.size is None and d.size_expr is not None:
                owner.sizes[d.name] = _evaluate(d.size_expr, environment)
                if owner.sizes[d.name] < 0:
                    raise CompileError(d.size_expr.span, "the size of a table cannot be negative")
            for prop in d.properties.values() if isinstance(d, ast.TableDecl) else ():
                if isinstance(prop.value, ast.Call) and prop.value.kind == "constructor":
                    owner.properties[prop] = _arguments(prop.value.params, prop.value.args, environment)


def full_name(owner: str, d: ast.Declaration) -> str:
    """Returns the control-plane name of `d` inside the object named `owner`; an `@name` with a leading dot stands alone
    (§18.3.2)."""
    name = d.cp_name
    return name[1:] if name.startswith(".") else f"{owner}.{name}"


def _evaluate(e: ast.Expr, environment: Environment) -> Any:
    """Returns the value of a static expression: a const as in `Expr.const`, or an Instance."""
    if e.const is not None:
        return e.const
    match e:
        case ast.Call() if e.kind == "constructor":
            assert isinstance(e.type, types.CallableType)
            return _instance(e.type, e.params, e.args, e.type.name, environment, None)
        case ast.Name() if e.decl in environment:
            return environment[e.decl]
        case ast.ListExpr() | ast.StructInit():
            values = [_evaluate(v, environment) for v in e.values]
            plain = types.strip_new(e.type)
            return dict(zip(plain.fields, values, strict=True)) if isinstance(plain, types.RecordType) else values
        case ast.Cast():
            return fold_cast(_evaluate(e.operand, environment), e.type)
        case ast.Unary():
            return fold_unary(e.op, _evaluate(e.operand, environment), e.type)
        case ast.Ternary():
            return _evaluate(e.then if _evaluate(e.condition, environment) else e.otherwise, environment)
        case ast.Binary():
            return _binary(e, _evaluate(e.left, environment), _evaluate(e.right, environment))
        case ast.Slice():
            return fold_slice(_evaluate(e.base, environment), e.hi_bit, e.lo_bit)
        case ast.Member():
            return _evaluate(e.base, environment)[e.member]
        case ast.Index():
            return _evaluate(e.base, environment)[_evaluate(e.index, environment)]
    raise CompileError(e.span, f"'{ast.source_text(e)}' is not known when the program is instantiated")


def _binary(e: ast.Binary, left: Any, right: Any) -> Any:
    if e.op != "++":
        try:
            return fold_binary(e.op, left, right, e.left.type)
        except ValueError as error:
            raise CompileError(e.span, str(error)) from None
    a, b = types.underlying(e.left.type), types.underlying(e.right.type)
    if isinstance(a, types.BitType) and isinstance(b, types.BitType):
        assert isinstance(e.type, types.BitType)
        return fold_concat(left, a.width, right, b.width, e.type)
    return left + right
