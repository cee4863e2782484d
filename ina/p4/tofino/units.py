"""The pipelines of a checked TNA program, and the statements of a control in order: tables, other statements, conditions.

A `Unit` is the content of one match-action table: a table of the program, or a statement outside of any (which becomes a table
without a key). A `Branch` is a condition with the units of its branches. Sub-controls, actions and functions are inlined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError, Span
from ina.p4.compiler.instances import abstract_method, decided, walk
from ina.p4.compiler.loops import LOOP_LIMIT, known_rounds
from ina.p4.tofino.fields import VALID, Ref, Scope, calls, leaves, parts


class NotTna(ValueError):
    """The program is for another architecture."""


@dataclass(frozen=True)
class Gress:
    """Ingress or egress of one pipeline. `name`: "ingress", or "pipe_a.ingress" where there are several pipelines."""

    name: str
    parser: Instance
    control: Instance
    deparser: Instance


@dataclass(frozen=True)
class Pipeline:
    name: str
    gresses: tuple[Gress, ...]


def pipelines(program: CheckedProgram) -> list[Pipeline]:
    """Returns the program's pipelines. Raises NotTna."""
    main = program.main
    if main is None or main.decl.name not in ("Switch", "MultiParserSwitch"):
        package = f"a {main.decl.name}" if main else "no main package"
        raise NotTna(
            f"{program.filename} has {package}: expected a program for Tofino (TNA), whose main is Switch(Pipeline(...))"
        )
    pipes = [a for a in main.args.values() if isinstance(a, Instance)]
    result = []
    for pipe in pipes:
        blocks = [a for a in pipe.args.values() if isinstance(a, Instance)]
        parsers = [b for b in blocks if isinstance(b.decl, ast.ParserDecl)]
        controls = [b for b in blocks if isinstance(b.decl, ast.ControlDecl)]
        if len(parsers) != 2 or len(controls) < 4:
            raise CompileError((pipe.site or main.origin).span,
                               "a pipeline with other than two parsers and four controls is not looked into")
        prefix = f"{pipe.site.name}." if len(pipes) > 1 and pipe.site else ""
        result.append(Pipeline(pipe.site.name if pipe.site else "pipe", (
            Gress(f"{prefix}ingress", parsers[0], controls[0], controls[1]),
            Gress(f"{prefix}egress", parsers[1], controls[2], controls[3]),
        )))
    return result


STATEFUL = ("RegisterAction", "RegisterAction2", "RegisterAction3", "RegisterAction4", "DirectRegisterAction", "LearnAction",
            "MinMaxAction", "SelectorAction")


@dataclass(frozen=True)
class Access:
    """One packet's access to a register: `action` is the RegisterAction, or the register itself (read, write). `index`: the field
    of the packet that selects the cell, or empty: an entry or the program does."""

    register: Instance
    action: Instance
    span: Span
    index: str = ""


@dataclass
class Effect:
    """Effect of one action, or of a statement. `matched`: fields needed before the lookup (keys, indices, hash inputs)."""

    matched: list[Ref] = field(default_factory=list)
    reads: list[Ref] = field(default_factory=list)
    writes: list[Ref] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    objects: list[tuple[Instance, Span]] = field(default_factory=list)  # counters, meters, hashes, ...
    deep: list[ast.Assign] = field(default_factory=list)  # expressions of more than one operation
    conditions: list[ast.If] = field(default_factory=list)  # of an `if` in an action
    folded: list[ast.Assign] = field(default_factory=list)  # values computed from earlier ones of the same action


@dataclass(eq=False)
class Unit:
    name: str
    span: Span
    keys: list[Ref]
    effects: list[Effect]
    owner: Instance  # the control
    runs: set[int]  # those of `effects` that may be run, by number
    table: ast.TableDecl | None = None
    copy: bool = False  # a plain copy, a constant, or a condition, which a compiler may inline
    local: bool = False  # writes a variable that is declared here and invisible elsewhere

    @property
    def matched(self) -> list[Ref]:
        return [*self.keys, *(ref for effect in self.effects for ref in effect.matched)]

    @property
    def reads(self) -> list[Ref]:
        return [ref for effect in self.effects for ref in effect.reads]

    @property
    def writes(self) -> list[Ref]:
        return [ref for effect in self.effects for ref in effect.writes]

    @property
    def accesses(self) -> list[Access]:
        return [access for effect in self.effects for access in effect.accesses]

    @property
    def objects(self) -> list[tuple[Instance, Span]]:
        return [use for effect in self.effects for use in effect.objects]

    @property
    def decl(self) -> ast.TableDecl:
        """Returns the table of a unit that is one."""
        assert self.table is not None
        return self.table


@dataclass
class Branch:
    """`condition`: fields that it reads; `after`: the table whose hit, miss or action decides, or None. `compared`: comparisons
    of two fields by size, which a gateway cannot make. `follows`: for each way the effects of `after` that it may follow, by
    number (one more than they are: a default action that the table does not list); empty: not known."""

    span: Span
    condition: list[Ref]
    after: Unit | None
    ways: list[list[Item]]
    compared: list[ast.Binary]
    follows: list[set[int]] = field(default_factory=list)


Item = Unit | Branch


def units_of(control: Instance) -> list[Item]:
    """Returns the Units and Branches of a control's `apply`."""
    scope = Scope(control)
    for param in control.decl.params:
        scope.paths[param] = param.name
    return list(_Walk(scope).statement(control.decl.body))


def without(items: list[Item], prefixes: tuple[str, ...]) -> None:
    """Removes fields whose path begins with a prefix: those of headers that are never valid, which a compiler leaves out."""

    def rest(refs: list[Ref]) -> list[Ref]:
        return [r for r in refs if not r[0].startswith(prefixes)]

    for branch in branches(items):
        branch.condition = rest(branch.condition)
    for unit in flat(items):
        unit.keys = rest(unit.keys)
        for effect in unit.effects:
            effect.matched, effect.reads, effect.writes = rest(effect.matched), rest(effect.reads), rest(effect.writes)


def flat(items: list[Item]) -> Iterator[Unit]:
    for item in items:
        if isinstance(item, Unit):
            yield item
        else:
            yield from (u for way in item.ways for u in flat(way))


def branches(items: list[Item]) -> Iterator[Branch]:
    for item in items:
        if isinstance(item, Branch):
            yield item
            yield from (b for way in item.ways for b in branches(way))


class _Walk:
    def __init__(self, scope: Scope):
        self.scope = scope

    def statement(self, s: ast.Node) -> Iterator[Item]:
        if isinstance(s, ast.Block):
            for inner in s.statements:
                yield from self.statement(inner)
        elif isinstance(s, ast.If):
            yield from self._if(s)
        elif isinstance(s, ast.Switch):
            yield from self._switch(s)
        elif isinstance(s, (ast.ForC, ast.ForIn)):
            items = list(self.statement(s.body))
            for effect in (effect for unit in flat(items) for effect in unit.effects) if _repeats(s) else ():
                effect.accesses *= 2
            yield from items
        elif isinstance(s, ast.CallStatement) and s.call.kind == "control_apply":
            yield from self._control(s.call)
        elif isinstance(s, ast.CallStatement) and s.call.kind == "table_apply":
            yield self._table(s.call)
        elif isinstance(s, ast.CallStatement) and s.call.kind in ("action", "function"):
            effect = Effect()
            _Effects(self.scope, effect).call(s.call)
            yield Unit(f"{s.call.decl.name}()", s.span, [], [effect], owner=self.scope.instance, runs={0})
        elif isinstance(s, (ast.Assign, ast.CallStatement, ast.VarDecl)):
            yield from self._plain(s)

    def _plain(self, s: ast.Assign | ast.CallStatement | ast.VarDecl) -> Iterator[Unit]:
        if isinstance(s, ast.VarDecl) and s.init is None:
            return
        effect = Effect()
        _Effects(self.scope, effect).statement(s)
        value = s.value if isinstance(s, ast.Assign) else s.init if isinstance(s, ast.VarDecl) else None
        plain = value is not None and getattr(s, "op", "=") == "=" and not effect.accesses and (
            value.const is not None or self.scope.path(value) is not None
            or _computed(value) or _is_condition(value))
        if effect.writes or effect.accesses or effect.objects:
            local = isinstance(s, ast.VarDecl)
            yield Unit(_text(s), s.span, [], [effect], owner=self.scope.instance, runs={0}, copy=plain, local=local)

    def _if(self, s: ast.If) -> Iterator[Item]:
        outcome = decided(s.condition, self.scope.instance)
        if outcome is not None:
            branch = s.then if outcome else s.otherwise
            yield from self.statement(branch) if branch is not None else ()
            return
        tables = self._applied(s.condition)
        yield from tables
        after = tables[-1] if tables else None
        ways = [list(self.statement(s.then)), list(self.statement(s.otherwise)) if s.otherwise is not None else []]
        follows = _after_hit(s.condition, after.decl) if after else []
        condition = [] if after else self.scope.reads(s.condition)
        yield Branch(s.condition.span, condition, after, ways, list(_compared(s.condition)), follows)

    def _switch(self, s: ast.Switch) -> Iterator[Item]:
        tables = self._applied(s.subject)
        yield from tables
        after = tables[-1] if tables else None
        ways = [list(self.statement(case.body)) for case in s.cases if case.body is not None]
        follows = _after_actions(s, after.decl) if after else []
        yield Branch(s.subject.span, [] if after else self.scope.reads(s.subject), after, [*ways, []], [], follows)

    def _control(self, call: ast.Call) -> Iterator[Item]:
        receiver = call.on
        assert isinstance(receiver, ast.Name)
        inner = Scope(self.scope.instance.children[receiver.name])
        inner.bind(call.decl.params, call.args, self.scope)
        yield from _Walk(inner).statement(call.decl.body)

    def _applied(self, e: ast.Expr) -> list[Unit]:
        """Returns the tables that an expression applies."""
        return [self._table(call) for call in calls(e) if call.kind == "table_apply"]

    def _table(self, call: ast.Call) -> Unit:
        table = call.decl
        keys = [r for k in table.keys for r in self.scope.reads(k.expr)]
        effects = []
        for reference in table.actions:
            inner = self.scope.inner()
            inner.bind(reference.decl.params, reference.args or [None] * len(reference.decl.params), self.scope)
            effect = Effect()
            _Effects(inner, effect).statement(reference.decl.body)
            effects.append(effect)
        owner = self.scope.instance
        runs = set.union(*_runs(table))
        return Unit(owner.cp_names.get(table.name, table.name), table.span, keys, effects, owner, runs, table)


class _Effects:
    """Collects the effects of an action's statements, which the hardware does at once: earlier writes are not reads."""

    def __init__(self, scope: Scope, effect: Effect):
        self.scope, self.effect = scope, effect
        self.local: set[str] = set()
        self.costs: dict[str, int] = {}  # by written path, the operations in its value

    def statement(self, s: ast.Node) -> None:
        if isinstance(s, ast.Block):
            for inner in s.statements:
                self.statement(inner)
        elif isinstance(s, ast.Assign):
            self.value(s.value)
            if s.op != "=":
                self._read(self.scope.refs(s.target))
            if _operations(s.value) + (s.op != "=") > 1:
                self.effect.deep.append(s)
            self._cost(s)
            self._write(self.scope.refs(s.target))
        elif isinstance(s, ast.VarDecl):
            if s.init is not None:
                self.value(s.init)
                self._write(list(leaves(f"{self.scope.instance.name}.{s.name}", s.type)))
        elif isinstance(s, ast.CallStatement):
            self.call(s.call)
        elif isinstance(s, ast.If):
            self.effect.conditions.append(s)
            self.value(s.condition)
            self.statement(s.then)
            if s.otherwise is not None:
                self.statement(s.otherwise)

    def value(self, e: ast.Expr) -> None:
        for call in calls(e):
            self.call(call)
        self._read(self.scope.reads(e))

    def _cost(self, s: ast.Assign) -> None:
        """Counts operations; a compiler substitutes earlier values: `x = ~a; x = x & b` is one expression."""
        own = _operations(s.value) + (s.op != "=")
        paths = {r[0] for r in (*self.scope.reads(s.value), *(self.scope.refs(s.target) if s.op != "=" else ()))}
        before = sum(self.costs.get(path, 0) for path in paths)
        if own == 1 and before:
            self.effect.folded.append(s)
        for path, *_ in self.scope.refs(s.target):
            self.costs[path] = own + before

    def _read(self, refs: list[Ref]) -> None:
        self.effect.reads += [r for r in refs if r[0] not in self.local]

    def _write(self, refs: list[Ref]) -> None:
        self.effect.writes += refs
        self.local |= {r[0] for r in refs}

    def call(self, call: ast.Call) -> None:
        if call.kind in ("action", "function"):
            inner = self.scope.inner()
            inner.bind(call.decl.params, call.args, self.scope)
            effects = _Effects(inner, self.effect)
            effects.local = self.local
            effects.statement(call.decl.body)
        elif call.kind == "header_method" and call.method in ("setValid", "setInvalid"):
            path = self.scope.path(call.on)
            self._write([(f"{path}.{VALID}", 0, 0)] if path else [])
        elif call.kind == "method":
            self._method(call)
        elif call.kind == "extern_function":
            for argument, param in zip(call.args, call.params, strict=True):
                if argument is not None and param.direction in ("out", "inout"):
                    self._write(self.scope.refs(argument))
                else:
                    self._read(self.scope.reads(argument))

    def _method(self, call: ast.Call) -> None:
        instance = self._instance(call.on)
        if instance is None:
            return
        kind = instance.decl.name
        self.effect.matched += [r for a in call.args for r in self.scope.reads(a)]
        if kind in STATEFUL:
            register = instance.args.get("reg")
            if isinstance(register, Instance):
                self.effect.accesses.append(Access(register, instance, call.span, self._index(call)))
                self.effect.matched += register_inputs(instance, self.scope)
        elif kind in ("Register", "DirectRegister"):
            self.effect.accesses.append(Access(instance, instance, call.span, self._index(call)))
        else:
            self.effect.objects.append((instance, call.span))
        for argument, param in zip(call.args, call.params, strict=True):
            if argument is not None and param.direction in ("out", "inout"):
                self._write(self.scope.refs(argument))

    def _index(self, call: ast.Call) -> str:
        indices = [a for a, p in zip(call.args, call.params, strict=True) if a is not None and p.name == "index"]
        return next((r[0] for a in indices for r in self.scope.reads(a)), "")

    def _instance(self, receiver: ast.Expr) -> Instance | None:
        return self.scope.instance.children.get(receiver.name) if isinstance(receiver, ast.Name) else None


def _number(table: ast.TableDecl, action: ast.ActionRef) -> int:
    """Returns the number of a table's action; that of none if the table does not list it."""
    return next((i for i, ref in enumerate(table.actions) if ref.decl is action.decl), len(table.actions))


def _repeats(loop: ast.ForC | ast.ForIn) -> bool:
    """Returns True if a loop goes round more than once for some packet; one that is left early may not."""
    left = any(isinstance(node, ast.Break | ast.Exit | ast.Return) for node in walk(loop.body))
    items = loop.collection.items if isinstance(loop, ast.ForIn) and isinstance(loop.collection, ast.ListExpr) else None
    return not left and (known_rounds(loop, LOOP_LIMIT) if items is None else len(items)) not in (0, 1)


def _runs(table: ast.TableDecl) -> list[set[int]]:
    """Returns the actions that a hit may run, and a miss; a table without a key has no entries that could be hit."""
    numbers = range(len(table.actions))
    hits = {i for i in numbers if table.actions[i].annotation("defaultonly") is None}
    misses = {i for i in numbers if table.actions[i].annotation("tableonly") is None} | {_number(table, table.default_action)}
    if table.const_default:
        misses = {_number(table, table.default_action)}
    if "implementation" in table.properties:
        hits |= misses  # a group without members runs the default action
    elif not table.keys or table.const_entries and table.entries:
        hits = {_number(table, entry.action) for entry in table.entries}
    return [hits, misses]


def _after_hit(condition: ast.Expr, table: ast.TableDecl) -> list[set[int]]:
    """Returns the actions that a condition on `hit` or `miss` may follow if it is true, and if it is false."""
    ways = _runs(table)
    while isinstance(condition, ast.Unary) and condition.op == "!":
        ways.reverse()
        condition = condition.operand
    if not isinstance(condition, ast.Member) or condition.kind not in ("hit", "miss"):
        return []
    return ways if condition.kind == "hit" else ways[::-1]


def _after_actions(s: ast.Switch, table: ast.TableDecl) -> list[set[int]]:
    """Returns the actions that each case of a `switch` on `action_run` follows, and those that none does."""
    rest = set.union(*_runs(table))
    named = {_number(table, case.action) for case in s.cases if case.action is not None}
    follows: list[set[int]] = []
    labels: set[int] = set()
    for case in s.cases:
        labels |= rest - named if case.action is None else rest & {_number(table, case.action)}
        if case.body is not None:
            follows.append(labels)
            labels = set()
    return [*follows, rest.difference(*follows)]


def register_inputs(action: Instance, scope: Scope) -> list[Ref]:
    """Returns the fields of the packet that a RegisterAction computes with."""
    body, inner, effect = abstract_method(action, "apply"), scope.inner(), Effect()
    for param in body.params:
        inner.paths[param] = f"{action.name}.{param.name}"
    _Effects(inner, effect).statement(body.body)
    return [r for r in effect.reads if not r[0].startswith(f"{action.name}.")]


def _computed(e: ast.Expr) -> bool:
    return isinstance(e, ast.Call) and e.kind == "method" and e.method == "get" and bool(e.args)


def _is_condition(e: ast.Expr) -> bool:
    """Returns True for a truth value: a gateway can decide it in place of the variable that holds it."""
    return isinstance(types.strip_new(e.type), types.BoolType) and not any(c.kind != "header_method" for c in calls(e))


def _operations(e: ast.Expr) -> int:
    """Counts operators that cost an operation: not casts, slices or negated constants."""
    if e.const is not None or isinstance(e, ast.Call):
        return 0
    own = isinstance(e, ast.Binary) and e.op != "++" or isinstance(e, ast.Unary) and e.op != "+"
    inner = parts(e)
    if isinstance(e, ast.Binary) and e.op in ("&", "|", "^"):  # the ALU inverts an operand of these for free
        inner = [p.operand if isinstance(p, ast.Unary) and p.op == "~" else p for p in inner]
    return own + sum(_operations(p) for p in inner)


def _compared(e: ast.Expr) -> Iterator[ast.Binary]:
    if isinstance(e, ast.Binary) and e.op in ("<", "<=", ">", ">=") and e.left.const is None and e.right.const is None:
        yield e
    for part in parts(e):
        yield from _compared(part)


def _text(s: ast.Assign | ast.CallStatement | ast.VarDecl) -> str:
    if isinstance(s, ast.Assign):
        return f"{ast.source_text(s.target)} {s.op if s.op == '=' else s.op + '='} ..."
    if isinstance(s, ast.VarDecl):
        return f"{s.name} = ..."
    call = s.call
    return f"{ast.source_text(call.callee)}()"
