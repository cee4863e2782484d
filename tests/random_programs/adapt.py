"""Removes from a program what BMv2 or its compiler, p4c, is known not to do, or to do otherwise than P4_16 says.

`adapt` replaces it by something equal or simpler and reports the name in `KNOWN`: nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from . import oracle, tree
from .tree import BOOL, Expr, Lit, Param, Program, Type, Var, bit

SHORTEST = 14  # bytes of a frame that an interface accepts

KNOWN = {
    # what BMv2 does otherwise (docs/guide/p4.md, "Differences from BMv2")
    "loops": "p4c runs the body of a `for` once and refuses `for ... in`: left out",
    "signed registers": "a register<int<W>> gives negative values back without their sign: reads and writes are left out",
    "value sets": "the command-line client adds no members of 8 bits: they stand in the select itself",
    "selects without a default": "a select without a case that fits accepts the packet: so it says",
    "cases of nothing but _": "the last `default` or `_` of a select wins: it is the default, and later cases are left out",
    "invalid union members": "a header of a union that is made invalid leaves another one valid: setInvalid and copies left out",
    "lpm keys of odd widths": "a prefix counts from the top of the first byte, the bits before the key, too: ternary instead",
    "meters": "they run by the clock of the machine: left out",
    "short frames": "frames shorter than 14 bytes do not go through an interface: not sent, not waited for",
    # what p4c's back end refuses
    "constant keys of a select": "simple_switch does not load p4c's JSON: the cases that they fit",
    "divisions": "/ and % of what is not known to the compiler: the left operand instead",
    "functions with an if in the parser": "numbers instead of what they return",
    "switches in actions": "an if for each case instead",
    "computed checksums": "update_checksum takes fields and numbers only: numbers instead of what is computed",
    "computed indexes of stacks": "isValid() of such an element: element 0 instead",
    "action data of type bool": "bit<1> instead",
    "negative action data": "in default actions and constant entries: -1 - n instead of n",
    "default actions with a profile": "p4c warns that it ignores them: the entries without the profile",
    "concatenations of both signs": "p4c's own pass cannot type them: a cast instead",
}


def adapt(program: Program) -> tuple[Program, frozenset[str]]:
    """The program without the known differences, and their names in `KNOWN`."""
    return _Adapter(program).adapt()


class _Adapter:
    def __init__(self, program: Program):
        self.program = program
        self.names: set[str] = set()
        self.signed = {name for name, t, _ in program.registers if t.kind == "int"}
        self.unions = {h.name for h in program.headers if h.union}
        self.actions = {a.name: a for a in program.actions}
        self.switched = set(_switched((program.ingress, program.egress)))
        self.branching = _branching(program.functions)
        self.in_action = self.in_parser = False
        self.count = 0

    def adapt(self) -> tuple[Program, frozenset[str]]:
        program = self.program
        packets = tuple(p for p in program.packets if len(p[1]) >= SHORTEST)
        if len(packets) < len(program.packets):
            self.names.add("short frames")
        self.in_parser = True
        states = tuple(self._state(s) for s in self._walk(program.states))
        self.in_parser, self.in_action = False, True
        actions = tuple(self._action(self._walk(a)) for a in program.actions)
        functions = self._walk(program.functions)
        self.in_action = False
        program = replace(
            program,
            packets=packets,
            sets=(),
            meters=(),
            registers=tuple(r for r in program.registers if r[0] not in self.signed),
            states=states,
            functions=functions,
            actions=actions,
            tables=tuple(self._table(self._walk(t)) for t in program.tables),
            ingress=self._walk(program.ingress),
            egress=self._walk(program.egress),
            checksum=self._checksum(),
        )
        return program, frozenset(self.names)

    def _is(self, name: str, value: Any = ()) -> Any:
        self.names.add(name)
        return value

    # ---- declarations

    def _state(self, state: tree.State) -> tree.State:
        if not state.keys:
            return state
        members, cases, default = {name: numbers for name, _, numbers in self.program.sets}, [], state.default
        for matches, target in self._without_constants(state):
            if all(m is None for m in matches):
                default = self._is("cases of nothing but _", target)
                break
            if isinstance(matches[0], str):
                cases += self._is("value sets", [((n, *matches[1:]), target) for n in members[matches[0]]])
            else:
                cases.append((matches, target))
        keys = tuple(k for k in state.keys if not _constant(k))
        if default is None:
            default = self._is("selects without a default", "accept")
        return replace(state, keys=keys if cases else (), cases=tuple(cases), default=default)

    def _without_constants(self, state: tree.State) -> list[tuple[tuple, str]]:
        """The cases without those that contradict constant keys, and without the values for these keys."""
        constants = {i: oracle.Oracle(self.program)._eval(k) for i, k in enumerate(state.keys) if _constant(k)}
        if not constants:
            return list(state.cases)
        fits = oracle.Oracle(self.program)._selects
        return self._is(
            "constant keys of a select",
            [
                (tuple(m for i, m in enumerate(matches) if i not in constants), target)
                for matches, target in state.cases
                if all(fits(matches[i], value, state.keys[i].type) for i, value in constants.items())
            ],
        )

    def _action(self, action: tree.Function) -> tree.Function:
        params, body = [], []
        for p in action.params:
            if not p.direction and p.type == BOOL:
                self.names.add("action data of type bool")
                params.append(Param("", f"{p.name}_bit", bit(1)))
                body.append(tree.Local(p.name, BOOL, tree.Binary(BOOL, "!=", Var(bit(1), f"{p.name}_bit"), Lit(bit(1), 0))))
            else:
                params.append(p)
        return replace(action, params=tuple(params), body=(*body, *action.body))

    def _table(self, table: tree.Table) -> tree.Table:
        table = replace(table, default_args=self._positive(table.default_args))
        if any(k.kind == "lpm" and k.value.type.width % 8 for k in table.keys):
            table = self._is("lpm keys of odd widths", _ternary(table))
        if table.profile and (table.default != "nothing" or table.name in self.switched):
            places = [i for i, k in enumerate(table.keys) if k.kind != "selector"]
            entries = tuple(replace(e, match=tuple(e.match[i] for i in places)) for e in table.entries)
            keys = tuple(table.keys[i] for i in places)
            table = self._is("default actions with a profile", replace(table, profile="", keys=keys, entries=entries))
        if not table.const:
            return table
        return replace(table, entries=tuple(replace(e, args=self._positive(e.args)) for e in table.entries))

    def _positive(self, args: tuple[int, ...]) -> tuple[int, ...]:
        return self._is("negative action data", tuple(max(a, -1 - a) for a in args)) if any(a < 0 for a in args) else args

    def _checksum(self) -> tuple[str, tuple[Expr, ...], Var] | None:
        if self.program.checksum is None or all(isinstance(v, (Var, Lit)) for v in self.program.checksum[1]):
            return self.program.checksum
        header, values, target = self.program.checksum
        plain = tuple(v if isinstance(v, (Var, Lit)) else Lit(v.type, v.type.highest) for v in values)
        return self._is("computed checksums", (header, plain, target))

    # ---- statements and expressions

    def _walk(self, node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(item for part in node for item in self._items(part))
        if not is_dataclass(node) or isinstance(node, Type):
            return node
        parts = {f.name: getattr(node, f.name) for f in fields(node)}
        node = replace(node, **{n: self._walk(v) for n, v in parts.items() if isinstance(v, tuple) or is_dataclass(v)})
        return self._expression(node)

    def _items(self, part: Any) -> Iterator[Any]:
        """The statements that stand for one statement, the arguments that stand for one argument."""
        match part:
            case tree.ForRange() | tree.ForList() | tree.ForCount():
                self.names.add("loops")
            case tree.Read() | tree.Write() if part.register in self.signed:
                self.names.add("signed registers")
            case tree.SetInvalid() | tree.CopyHeader() if (part.header if isinstance(part, tree.SetInvalid) else part.target) in (
                self.unions
            ):
                self.names.add("invalid union members")
            case tree.Mark():
                self.names.add("meters")
            case tree.Switch() if self.in_action:
                yield from self._is("switches in actions", self._chain(self._walk(part)))
            case tree.Invoke() if part.name in self.actions:
                yield self._invoke(self._walk(part))
            case _:
                yield self._walk(part)

    def _chain(self, s: tree.Switch) -> list:
        self.count += 1
        value = Var(s.value.type, f"switched{self.count}")
        rest = s.otherwise
        for labels, body in reversed(s.cases):
            fits = [tree.Binary(BOOL, "==", value, Lit(value.type, label)) for label in labels]
            condition = fits[0]
            for other in fits[1:]:
                condition = tree.Binary(BOOL, "||", condition, other)
            rest = (tree.If(condition, body, rest),)
        return [tree.Local(value.name, value.type, s.value), *rest]

    def _invoke(self, s: tree.Invoke) -> tree.Invoke:
        args = [
            tree.Choice(bit(1), a, Lit(bit(1), 1), Lit(bit(1), 0)) if not p.direction and p.type == BOOL else a
            for p, a in zip(self.actions[s.name].params, s.args, strict=True)
        ]
        return replace(s, args=tuple(args))

    def _expression(self, e: Any) -> Any:
        match e:
            case tree.Binary(op="/" | "%"):
                return self._is("divisions", e.left)
            case tree.Binary(op="++") if e.left.type.kind != e.right.type.kind:
                self.names.add("concatenations of both signs")
                return replace(e, right=tree.Cast(Type(e.left.type.kind, e.right.type.width), e.right))
            case tree.Call() if self.in_parser and e.name in self.branching:
                return self._is("functions with an if in the parser", Lit(e.type, 1))
            case tree.Item():
                self.names.add("computed indexes of stacks")
                return tree.Choice(e.type, tree.IsValid(f"{e.stack}[0]"), Var(e.type, f"hdr.{e.stack}[0].{e.name}"), e.other)
        return e


def _ternary(table: tree.Table) -> tree.Table:
    """The table with ternary masks for prefixes, longer ones first."""
    at = next(i for i, k in enumerate(table.keys) if k.kind == "lpm")
    width = table.keys[at].value.type.width
    entries = []
    for e in sorted(table.entries, key=lambda e: -e.match[at][1]):
        value, prefix = e.match[at]
        mask = (1 << width) - (1 << width - prefix)
        match = (*e.match[:at], (value, mask), *e.match[at + 1 :])
        entries.append(replace(e, match=match, priority=0 if table.const else prefix + 1))
    keys = (*table.keys[:at], replace(table.keys[at], kind="ternary"), *table.keys[at + 1 :])
    return replace(table, keys=keys, entries=tuple(entries))


def _branching(functions: tuple[tree.Function, ...]) -> set[str]:
    """Functions that contain an `if` or a `switch`, or call one that does; each calls earlier ones only."""
    names: set[str] = set()
    for f in functions:
        if any(isinstance(n, (tree.If, tree.Switch)) or getattr(n, "name", "") in names for n in _nodes(f.body)):
            names.add(f.name)
    return names


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple) or is_dataclass(node):
        yield node
        for part in node if isinstance(node, tuple) else [getattr(node, f.name) for f in fields(node)]:
            yield from _nodes(part)


def _switched(node: Any) -> Iterator[str]:
    """Tables whose action_run the program uses."""
    return (n.table for n in _nodes(node) if isinstance(n, tree.Apply) and n.cases)


def _constant(e: Any) -> bool:
    """Tells whether the expression can be computed from the program's text alone."""
    if isinstance(e, (Var, tree.IsValid, tree.Item, tree.Call)):
        return False
    return all(_constant(getattr(e, f.name)) for f in fields(e) if is_dataclass(getattr(e, f.name)) and f.name != "type")
