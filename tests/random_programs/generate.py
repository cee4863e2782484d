"""A random program with its entries and packets, from a seed. Nothing in it is undefined, so every switch must agree.

Avoided, since the language leaves them open: variables without a value, fields of invalid headers, indexes beyond the end,
division by zero.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from . import tree
from .tree import BOOL, Expr, Lit, Type, Var, bit, signed

WIDTHS = (1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 72, 100, 127, 128, 129, 200)
SELECTOR = Var(bit(8), "hdr.h.k")  # decides which way the parser goes
CHECKSUM = Var(bit(16), "hdr.h.sum")
ERROR = Var(bit(8), "meta.fault")
PASSES = Var(bit(8), "meta.kept_passes")
LIMIT = 4  # iterations of a loop
INDEX = bit(32)


@dataclass
class _Scope:
    """The scope of a statement: variables that it may read and write, and statements that may stand there."""

    reads: list[Var] = field(default_factory=list)
    writes: list[Var] = field(default_factory=list)
    headers: bool = True  # the packet's headers are in scope
    objects: bool = False  # tables, registers, counters
    exits: bool = False
    loops: int = 0


class Generator:
    """`program()` is a function of the seed alone."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self._count = 0
        self._functions: list[tree.Function] = []
        self._scope = _Scope()

    # ---- the program

    def program(self) -> tree.Program:
        rng = self.rng
        self._types = [bit(8), bit(16)] + [rng.choice([bit, signed])(max(2, rng.choice(WIDTHS))) for _ in range(4)]
        self._types += [bit(rng.choice(WIDTHS)), BOOL]
        self._headers = self._make_headers()
        metadata = [(f"m{i}", self._type()) for i in range(rng.randint(2, 5))]
        metadata += [("fault", bit(8)), ("kept_passes", bit(8))] + [("kept", self._type())] * rng.randint(0, 1)
        self._metadata = [Var(t, f"meta.{name}") for name, t in metadata]
        own = [v for v in self._metadata if v not in (ERROR, PASSES)]
        fields = [Var(t, f"hdr.h.{name}") for name, t in self._headers[0].fields]
        self._registers = [
            (f"r{i}", rng.choice([t for t in self._types if t != BOOL]), rng.choice([1, 2, 4, 8]))
            for i in range(rng.randint(0, 3))
        ]
        self._counters = [(f"c{i}", rng.choice([2, 4])) for i in range(rng.randint(0, 1))]
        self._meters = [tree.Meter(f"m{i}", tuple(self._marker() for _ in range(2))) for i in range(rng.randint(0, 1))]
        for _ in range(rng.randint(0, 3)):
            self._functions.append(self._function())
        self._scope = _Scope(
            reads=[v for v in self._metadata if v.name != ERROR.name] + fields,
            writes=[v for v in own if not v.name.startswith("meta.kept")],
        )
        states, sets = self._parser()
        everything = _Scope(
            reads=[*self._metadata, *fields], writes=[*own, *[f for f in fields if f != SELECTOR]], objects=True, exits=True
        )
        self._scope = replace(everything, objects=False)
        self._actions = [tree.Function("nothing", (), ()), *(self._action(i) for i in range(rng.randint(1, 4)))]
        self._tables: list[tree.Table] = []
        self._scope = everything
        tables = [self._table(i) for i in range(rng.randint(0, 3))]
        self._tables = list(tables)
        drop = tree.If(
            tree.Unary(BOOL, "!", tree.IsValid("h")),
            (tree.Assign(Var(bit(9), "sm.egress_spec"), Lit(bit(9), 511)), tree.Leave("exit")),
            (),
        )
        first = rng.sample(self._tables, rng.randint(0, len(self._tables)))  # so that not all stand behind an exit
        self._tables = [t for t in self._tables if t not in first]
        ways = self._ways()
        ingress = [tree.Errors(ERROR), drop, *(tree.Apply(t.name) for t in first), *ways]
        for meter in self._meters:  # before any exit, so that enough packets get there
            ingress += self._mark(meter)
        ingress += self._block(rng.randint(4, 14), 3)
        ingress += [tree.Apply(t.name) for t in self._tables]  # those that no statement has applied
        self._scope = replace(
            everything, reads=[*everything.reads, Var(bit(16), "sm.egress_rid"), Var(bit(9), "sm.egress_port")], objects=False
        )
        egress = [replace(drop, then=(tree.Leave("exit"),)), *self._block(rng.randint(0, 4), 2)]
        if rng.random() < 0.2 and not ways:  # of two packets that come back, either may be first
            egress.append(tree.Again("recirculate", rng.randint(1, 2)))
        checksum = None
        if rng.random() < 0.3:
            self._scope = _Scope(reads=fields)
            summed = [self._value(f.type, 1, calls=False) for f in rng.sample(fields, min(3, len(fields)))]
            checksum = ("h", tuple(self._bytes(summed)), CHECKSUM)
        program = tree.Program(
            tuple(self._headers),
            tuple(metadata),
            tuple(states),
            tuple(sets),
            tuple(self._registers),
            tuple(self._counters),
            tuple(self._meters),
            tuple(self._functions),
            tuple(self._actions),
            tuple(tables),
            tuple(ingress),
            tuple(egress),
            checksum,
        )
        return replace(program, packets=tuple(self._packet() for _ in range(24)))

    def _type(self) -> Type:
        return self.rng.choice(self._types)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _make_headers(self) -> list[tree.Header]:
        rng = self.rng

        def fields(first: list[tuple[str, Type]], count: int) -> tuple[tuple[str, Type], ...]:
            made = first + [(f"f{i}", self._type()) for i in range(count)]
            rest = -sum(t.width for _, t in made) % 8
            return tuple(made + [("pad", bit(rest))] * bool(rest))

        headers = [tree.Header("h", "h_t", fields([("k", bit(8)), ("sum", bit(16))], rng.randint(2, 6)))]
        other = fields([("more", bit(8))], rng.randint(1, 3))
        headers += [tree.Header(name, "o_t", other) for name in ("o", "p")[: rng.randint(1, 2)]]
        if rng.random() < 0.5:
            headers.append(tree.Header("s", "s_t", fields([("more", bit(8))], rng.randint(1, 2)), size=rng.choice([2, 4])))
        if rng.random() < 0.4:
            headers.append(tree.Header("v", "v_t", fields([("n", bit(8))], 1), varbit=rng.choice([32, 64, 256])))
        if rng.random() < 0.4:
            own = ("b_t", fields([("more", bit(8))], 1))
            members = [("a", "o_t", other), ("b", *rng.choice([own, own, ("o_t", other)])), ("c", "c_t", fields([], 2))]
            members = members[: rng.randint(2, 3)]
            headers += [
                tree.Header(f"{union}.{name}", kind, made)
                for union in ("u", "w")[: rng.randint(1, 2)]
                for name, kind, made in members
            ]
        return headers

    def _marker(self) -> tuple[int, int, int, int] | None:
        """Committed below peak; few packets a tick, so that all colours show."""
        rng = self.rng
        slow, few = rng.choice([0, 0, 1, 2]), rng.randint(0, 4)
        return (slow, few, slow + rng.randint(0, 1), few + rng.randint(0, 4)) if rng.random() < 0.8 else None

    # ---- parser

    def _parser(self) -> tuple[list[tree.State], list[tuple[str, int, tuple[int, ...]]]]:
        rng, sets = self.rng, []
        if rng.random() < 0.3:
            sets.append(("chosen", 8, tuple(sorted(rng.sample(range(6), 2)))))
        others = self._headers[1:]
        names = [f"get_{h.name.replace('.', '_')}" for h in others]
        states = [self._state("start", (tree.Extract("h"),), SELECTOR, names, sets)]
        for i, header in enumerate(others):
            steps: tuple = (tree.Extract(header.name, bool(header.size)),)
            if header.varbit:
                length = tree.Binary(
                    INDEX, "*", tree.Cast(INDEX, tree.Binary(bit(8), "&", SELECTOR, Lit(bit(8), 7))), Lit(INDEX, 8)
                )
                steps = (tree.Extract(header.name, False, length),)
            following, selector = names[i + 1 :], SELECTOR
            if header.size:
                following = [names[i], *following]
                selector = Var(bit(8), "meta.stop")
            elif header.fields[0][1] == bit(8) and not header.varbit:
                selector = Var(bit(8), f"hdr.{header.name}.{header.fields[0][0]}")
            if header.size:  # the last element decides: seen by lookahead, as it is the element's first byte
                steps = (
                    tree.Local(name := self._name("more"), bit(8), Lit(bit(8), 0)),
                    tree.Lookahead(Var(bit(8), name)),
                    *steps,
                )
                selector = Var(bit(8), name)
            states.append(self._state(names[i], steps, selector, following, sets))
        used = {m for s in states for matches, _ in s.cases for m in matches if isinstance(m, str)}
        return states, [s for s in sets if s[0] in used]

    def _state(self, name: str, steps: tuple, selector: Var, following: list[str], sets: list) -> tree.State:
        rng, steps = self.rng, list(steps)
        if rng.random() < 0.4:
            target = rng.choice(self._scope.writes)
            steps.append(tree.Assign(target, self._value(target.type, 2)))
        if rng.random() < 0.15:
            steps.append(tree.Verify(self._value(BOOL, 2), rng.choice(["NoMatch", "ParserInvalidArgument"])))
        if rng.random() < 0.15:
            steps.append(tree.Advance(Lit(INDEX, rng.choice([0, 8, 16]))))
        if rng.random() < 0.15:
            wide = [v for v in self._scope.writes if v.type != BOOL]
            if wide:
                steps.append(tree.Lookahead(rng.choice(wide)))
        if not following:
            return tree.State(name, tuple(steps))
        keys: list[Expr] = [selector]
        if rng.random() < 0.3:
            keys.append(self._value(bit(rng.choice([4, 8, 16])), 1))
        cases = []
        for target in [*following, *rng.choices([*following, "accept", "reject"], k=2)]:
            matches = [self._select(key.type, sets if i == 0 else []) for i, key in enumerate(keys)]
            if target == "reject":
                target = "accept"
            cases.append((tuple(matches), target))
        return tree.State(
            name, tuple(steps), tuple(keys), tuple(cases), rng.choice(["accept", "accept", rng.choice(following), None])
        )

    def _select(self, t: Type, sets: list) -> object:
        rng, most = self.rng, min(t.highest, 6)
        kind = rng.choice(["value", "value", "value", "mask", "range", "any", "set"])
        if kind == "set" and sets:
            return sets[0][0]
        if kind == "mask":
            mask = rng.choice([1, 3, t.highest])
            return ("mask", rng.randint(0, most) & mask, mask & t.highest)
        if kind == "range":
            low = rng.randint(0, most)
            return ("range", low, min(t.highest, low + rng.randint(0, 3)))
        return None if kind == "any" and rng.random() < 0.3 else rng.randint(0, most)

    # ---- functions, actions, tables

    def _params(self, data: bool) -> tuple[tree.Param, ...]:
        rng = self.rng
        made = [
            tree.Param(rng.choice(["in", "in", "inout", "out"]), self._name("p"), self._type()) for _ in range(rng.randint(0, 3))
        ]
        return tuple(made + [tree.Param("", self._name("d"), self._type()) for _ in range(rng.randint(0, 2))] * data)

    @contextmanager
    def _with(self, scope: _Scope) -> Iterator[None]:
        before, self._scope = self._scope, scope
        yield
        self._scope = before

    def _parameters_in_scope(self, params: tuple[tree.Param, ...], scope: _Scope) -> _Scope:
        variables = [Var(p.type, p.name) for p in params]
        written = [v for p, v in zip(params, variables, strict=True) if p.direction in ("out", "inout")]
        return replace(scope, reads=[*scope.reads, *variables], writes=[*scope.writes, *written])

    def _start(self, params: tuple[tree.Param, ...]) -> list:
        """Gives out parameters a value before anybody reads them."""
        return [tree.Assign(Var(p.type, p.name), self._literal(p.type)) for p in params if p.direction == "out"]

    def _function(self) -> tree.Function:
        params, result = self._params(data=False), self._type()
        with self._with(self._parameters_in_scope(params, _Scope(headers=False))):
            body = [*self._start(params), *self._block(self.rng.randint(0, 3), 2)]
            if self.rng.random() < 0.4:
                body.append(tree.If(self._value(BOOL, 2), (tree.Return(self._value(result, 2)),), ()))
            body.append(tree.Return(self._value(result, 3)))
        return tree.Function(self._name("fun"), params, tuple(body), result)

    def _action(self, number: int) -> tree.Function:
        params = self._params(data=True)
        with self._with(self._parameters_in_scope(params, self._scope)):
            body = [*self._start(params), *self._block(self.rng.randint(1, 4), 2)]
        return tree.Function(f"act{number}", params, tuple(body))

    def _table(self, number: int) -> tree.Table:
        rng = self.rng
        actions = rng.sample(self._actions, rng.randint(1, len(self._actions)))
        kinds = [rng.choice(["exact", "exact", "ternary", "range", "optional"]) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            kinds = ["exact"] * (len(kinds) - 1) + ["lpm"]
        keys = []
        for i, kind in enumerate(kinds):
            types = [t for t in self._types if t.kind == "bit"] + ([BOOL] if kind == "exact" else [])
            t = rng.choice(types) if kind != "range" else rng.choice([t for t in types if t.width <= 64])
            value = SELECTOR if rng.random() < 0.6 else self._value(t, 2, calls=False)
            keys.append(tree.Key(value, kind, f"k{i}"))
        bound = {}
        for action in actions:
            directed = tuple(self._argument(p, calls=False) for p in action.params if p.direction)
            if None not in directed:
                bound[action.name] = directed
        actions = [a for a in actions if a.name in bound]
        if not actions:
            return self._table(number)  # other actions: `nothing` always fits
        const = rng.random() < 0.4
        made: dict[tuple, tree.Entry] = {}
        for i in range(rng.randint(1, 8)):
            match, action = tuple(self._match(k) for k in keys), rng.choice(actions)
            priority = 0 if const or not {"ternary", "range", "optional"} & set(kinds) else i + 1
            made.setdefault(match, tree.Entry(match, action.name, self._data(action), priority))
        default = rng.choice(actions)
        return tree.Table(
            f"t{number}",
            tuple(keys),
            tuple(a.name for a in actions),
            tuple(bound.items()),
            default.name,
            self._data(default),
            tuple(made.values()),
            const,
        )

    def _data(self, action: tree.Function) -> tuple[int, ...]:
        return tuple(self._literal(p.type).value for p in action.params if not p.direction)

    def _match(self, key: tree.Key) -> object:
        rng, t = self.rng, key.value.type
        likely = key.value == SELECTOR
        number = rng.randrange(7) if likely else self._number(t)
        if key.kind == "exact":
            return number
        if key.kind == "lpm":
            prefix = rng.randint(4, 8) if likely else rng.randint(1, t.width)
            return number >> t.width - prefix << t.width - prefix, prefix
        if key.kind == "ternary":
            mask = rng.choice([t.highest, 1, 6 & t.highest or 1, self._number(t) or 1])
            return (number & mask, mask) if rng.random() < 0.8 else None
        if key.kind == "range":
            high = min(t.highest, number + rng.choice([0, 1, 3, t.highest >> 1]))
            return (number, high) if (number, high) != (0, t.highest) else None
        return number if rng.random() < 0.8 else None

    # ---- statements

    def _block(self, count: int, depth: int) -> tuple:
        """Its locals are not seen outside."""
        scope = self._scope
        made: list = []
        with self._with(replace(scope, reads=list(scope.reads), writes=list(scope.writes))):
            for _ in range(count):
                made += self._statement(depth)
        return tuple(made)

    def _statement(self, depth: int) -> list:
        rng, scope = self.rng, self._scope
        ways: list[tuple[int, Callable[[int], list]]] = [(8, self._assign), (3, self._local), (2, self._invoke)]
        if depth > 0:
            ways += [(4, self._if), (1, self._switch), (1, self._loop)]
        if scope.headers:
            ways += [(2, self._header), (1, self._hash)]
        if scope.objects:
            ways += [(3, self._object), (3, self._apply), (1, self._port)]
        if scope.loops and depth < 3:
            ways.append((1, lambda _: [tree.If(self._value(BOOL, 1), (tree.Leave(rng.choice(["break", "continue"])),), ())]))
        if scope.exits and depth < 2:
            ways.append((1, lambda _: [tree.If(self._value(BOOL, 2), (tree.Leave(rng.choice(["exit", "return"])),), ())]))
        return rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0](depth)

    def _assign(self, depth: int) -> list:
        if not self._scope.writes:
            return self._local(depth)
        target = self._target()
        if target.type.kind == "bit" and target.type.width > 1 and self.rng.random() < 0.2:
            low = self.rng.randrange(target.type.width)
            high = self.rng.randrange(low, target.type.width)
            part = tree.Slice(bit(high - low + 1), target, high, low)
            return [tree.Assign(part, self._value(part.type, 2))]
        return [tree.Assign(target, self._value(target.type, 3))]

    def _target(self) -> Var:
        if self._scope.headers and self.rng.random() < 0.2:
            header = self.rng.choice(self._headers)
            path = f"hdr.{header.name}" + (f"[{self.rng.randrange(header.size)}]" if header.size else "")
            name, t = self.rng.choice([f for f in header.fields if f"{path}.{f[0]}" not in (SELECTOR.name,)])
            return Var(t, f"{path}.{name}")
        return self.rng.choice(self._scope.writes)

    def _local(self, depth: int) -> list:
        t = self._type()
        made = tree.Local(self._name("x"), t, self._value(t, 3))
        variable = Var(t, made.name)
        self._scope.reads.append(variable)
        self._scope.writes.append(variable)
        return [made]

    def _if(self, depth: int) -> list:
        condition = self._value(BOOL, 3)
        return [
            tree.If(condition, self._block(self.rng.randint(1, 3), depth - 1), self._block(self.rng.randint(0, 2), depth - 1))
        ]

    def _switch(self, depth: int) -> list:
        value = self._value(bit(self.rng.choice([2, 8])), 2)
        labels = self.rng.sample(range(4), 3)
        groups = [labels[:1], labels[1:]] if self.rng.random() < 0.5 else [[x] for x in labels]
        cases = tuple((tuple(group), self._block(self.rng.randint(1, 2), depth - 1)) for group in groups)
        return [tree.Switch(value, cases, self._block(1, depth - 1))]

    def _loop(self, depth: int) -> list:
        rng, name = self.rng, self._name("i")
        kind = rng.choice(["range", "list", "count"])
        t = bit(8) if kind != "list" else rng.choice([t for t in self._types if t != BOOL])
        head: tuple = ()
        if kind == "range":
            head = (self._literal(bit(8), 3), tree.Binary(bit(8), "&", self._value(bit(8), 2), Lit(bit(8), LIMIT - 1)))
        elif kind == "list":
            head = tuple(self._value(t, 2) for _ in range(rng.randint(1, 3)))
        scope = self._scope
        with self._with(replace(scope, reads=[*scope.reads, Var(t, name)], loops=scope.loops + 1)):
            body = self._block(rng.randint(1, 3), min(depth - 1, 1))
        if kind == "range":
            return [tree.ForRange(name, t, *head, body)]
        if kind == "list":
            return [tree.ForList(name, t, head, body)]
        return [tree.ForCount(name, rng.randint(1, LIMIT), rng.randint(1, 2), body)]

    def _invoke(self, depth: int) -> list:
        functions = list(self._functions) + (self._actions if self._scope.objects else [])
        if not functions:
            return self._assign(depth)
        function = self.rng.choice(functions)
        args = self._arguments(function, calls=False)
        return [tree.Invoke(function.name, args)] if args is not None else self._assign(depth)

    def _header(self, depth: int) -> list:
        rng = self.rng
        header = rng.choice(self._headers[1:])
        if header.size:
            return [tree.Push(header.name, rng.choice(["push_front", "pop_front"]), rng.randint(1, header.size))]
        twins = [h for h in self._headers[1:] if h.kind == header.kind and h.name != header.name]
        unions = sorted({h.union for h in self._headers} - {"", header.union})
        if header.union and unions and rng.random() < 0.3:
            members = [h for h in self._headers if h.union == header.union]
            fields = tuple((h.name.rpartition(".")[2], tuple(n for n, _ in h.fields)) for h in members)
            return [tree.CopyUnion(header.union, unions[0], fields)]
        if twins and rng.random() < 0.4:
            return [tree.CopyHeader(header.name, rng.choice(twins).name, tuple(n for n, _ in header.fields))]
        if rng.random() < 0.4 or header.varbit:
            return [tree.SetInvalid(header.name)]
        values = tuple((Var(t, f"hdr.{header.name}.{name}"), self._literal(t)) for name, t in header.fields)
        return [tree.SetValid(header.name, values)]

    def _hash(self, depth: int) -> list:
        targets = [v for v in self._scope.writes if v.type.kind == "bit" and 8 <= v.type.width <= 64]
        if not targets:
            return self._assign(depth)
        algorithm = self.rng.choice(["crc32", "crc16", "csum16", "xor16", "identity"])
        types = [t for t in self._types if t.kind == "bit" and t.width <= 48]
        values = self._bytes(
            [self._value(t, 1, calls=False) for t in self.rng.sample(types, 1 if algorithm == "identity" else min(3, len(types)))]
        )
        return [
            tree.Hash(
                self.rng.choice(targets),
                algorithm,
                self.rng.choice([0, 1, 100]),
                self.rng.choice([1, 7, 256, 65536]),
                tuple(values),
            )
        ]

    def _bytes(self, values: list[Expr]) -> list[Expr]:
        """With zeros at the end, so that they are whole pairs of bytes."""
        values = [v if v.type != BOOL else tree.Choice(bit(1), v, Lit(bit(1), 1), Lit(bit(1), 0)) for v in values]
        rest = -sum(v.type.width for v in values) % 16
        return [*values, *([Lit(bit(rest), 0)] if rest else [])]

    def _object(self, depth: int) -> list:
        rng = self.rng
        if self._counters and rng.random() < 0.3:
            name, size = rng.choice(self._counters)
            return [tree.Count(name, self._index(size))]
        if self._meters and rng.random() < 0.4:
            return self._mark(rng.choice(self._meters))
        if not self._registers:
            return self._assign(depth)
        name, t, size = rng.choice(self._registers)
        if rng.random() < 0.5:
            return [tree.Write(name, self._index(size), self._value(t, 2))]
        local = Var(t, self._name("x"))
        self._scope.reads.append(local)
        self._scope.writes.append(local)
        return [tree.Local(local.name, t, self._literal(t)), tree.Read(name, local, self._index(size))]

    def _mark(self, meter: tree.Meter) -> list:
        """And shows the colour in something that may be written."""
        t, target = bit(self.rng.choice([2, 8, 32])), self.rng.choice(self._scope.writes)
        colour = Var(t, self._name("x"))
        mark = tree.Mark(meter.name, colour, self._index(len(meter.cells)))
        return [tree.Local(colour.name, t, Lit(t, 0)), mark, tree.Assign(target, self._convert(colour, target.type))]

    def _index(self, size: int) -> Expr:
        return tree.Binary(INDEX, "&", self._value(INDEX, 1, calls=False), Lit(INDEX, size - 1))

    def _apply(self, depth: int) -> list:
        if not self._tables or self._scope.loops:
            return self._assign(depth)
        table = self._tables.pop(self.rng.randrange(len(self._tables)))
        how = self.rng.random()
        if how < 0.3:
            return [tree.Apply(table.name, self._block(1, depth - 1), self._block(1, depth - 1))]
        if how < 0.6:
            return [tree.Apply(table.name, cases=tuple((a, self._block(1, depth - 1)) for a in table.actions[:2]))]
        return [tree.Apply(table.name)]

    def _port(self, depth: int) -> list:
        return [tree.Assign(Var(bit(9), "sm.egress_spec"), Lit(bit(9), self.rng.choice([1, 2, 3, 511])))]

    def _ways(self) -> list:
        rng, made = self.rng, []
        if rng.random() < 0.2:
            made.append(tree.If(self._value(BOOL, 2), (tree.Assign(Var(bit(16), "sm.mcast_grp"), Lit(bit(16), 1)),), ()))
        for how in ("clone", "resubmit"):
            if rng.random() < 0.15:
                made.append(tree.Again(how, rng.randint(1, 2)))
        return made

    # ---- expressions

    def _number(self, t: Type) -> int:
        rng = self.rng
        striking = (0, 1, 2, 3, t.highest, t.lowest, t.highest - 1, t.highest >> 1)
        value = rng.choice(striking) if rng.random() < 0.7 else rng.randint(t.lowest, t.highest)
        return max(t.lowest, min(t.highest, value))

    def _literal(self, t: Type, most: int | None = None) -> Lit:
        return Lit(t, self._number(t) if most is None else self.rng.randint(0, most))

    def _convert(self, e: Expr, t: Type) -> Expr:
        """As type `t`, by casts that P4 allows (§8.11)."""
        if e.type == t:
            return e
        if t == BOOL:
            return tree.Binary(BOOL, "!=", e, Lit(e.type, 0))
        if e.type == BOOL:
            return tree.Choice(t, e, Lit(t, t.highest), Lit(t, 0))
        if e.type.kind != t.kind and e.type.width != t.width:
            e = tree.Cast(Type(e.type.kind, t.width), e)
        return tree.Cast(t, e) if e.type != t else e

    def _leaf(self, t: Type) -> Expr:
        rng, scope = self.rng, self._scope
        if rng.random() < 0.25 or not scope.reads:
            return self._literal(t)
        if scope.headers and rng.random() < 0.15:
            header = rng.choice(self._headers[1:])
            name, kind = rng.choice(header.fields)
            if header.size:
                index = self._value(bit(8), 0)
                return self._convert(tree.Item(kind, header.name, header.size, index, name, self._literal(kind)), t)
            e = tree.Choice(kind, tree.IsValid(header.name), Var(kind, f"hdr.{header.name}.{name}"), self._literal(kind))
            return self._convert(e, t)
        same = [v for v in scope.reads if v.type == t]
        return rng.choice(same) if same and rng.random() < 0.7 else self._convert(rng.choice(scope.reads), t)

    def _value(self, t: Type, depth: int, calls: bool = True) -> Expr:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self._leaf(t)

        def sub(wanted: Type) -> Expr:
            return self._value(wanted, depth - 1, calls)

        if calls and self._functions and rng.random() < 0.1:
            made = self._call_of(t)
            if made is not None:
                return made
        if rng.random() < 0.1:
            return tree.Choice(t, sub(BOOL), sub(t), sub(t))
        if t == BOOL:
            return self._condition(sub)
        way = rng.choice(
            ["arithmetic"] * 4 + ["shift", "shift", "shift", "unary", "concat", "slice", "cast", "saturate", "divide"]
        )
        if way == "shift":
            amount = sub(bit(rng.choice([2, 3, 8]))) if rng.random() < 0.6 else Lit(bit(8), rng.randint(0, min(255, t.width + 1)))
            return tree.Binary(t, rng.choice(["<<", ">>"]), sub(t), amount)
        if way == "unary":
            return tree.Unary(t, rng.choice("-~"), sub(t))
        if way == "concat" and t.width > 3:
            low = rng.randint(1, t.width - 2)
            kind = rng.choice([bit(low), signed(low)]) if low > 1 else bit(low)
            return tree.Binary(t, "++", sub(Type(t.kind, t.width - low)), sub(kind))
        if way == "slice" and t.kind == "bit":
            wide = bit(t.width + rng.randint(0, 70))
            low = rng.randint(0, wide.width - t.width)
            return tree.Slice(t, sub(wide), low + t.width - 1, low)
        if way == "cast":
            return self._convert(sub(self._type()), t)
        if way == "saturate":
            return tree.Binary(t, rng.choice(["|+|", "|-|"]), sub(t), sub(t))
        if way == "divide" and t.kind == "bit" and t.width <= 64:
            return tree.Binary(t, rng.choice("/%"), sub(t), Lit(t, max(1, self._number(t))))
        return tree.Binary(t, rng.choice("+-*&|^"), sub(t), sub(t))

    def _condition(self, sub: Callable[[Type], Expr]) -> Expr:
        rng = self.rng
        way = rng.choice(["compare", "compare", "compare", "and", "or", "not", "valid", "equal"])
        if way in ("and", "or"):
            return tree.Binary(BOOL, "&&" if way == "and" else "||", sub(BOOL), sub(BOOL))
        if way == "not":
            return tree.Unary(BOOL, "!", sub(BOOL))
        if way == "valid" and self._scope.headers:
            header = rng.choice(self._headers)
            if header.union and rng.random() < 0.3:
                return tree.IsValid(header.union)
            return tree.IsValid(header.name + (f"[{rng.randrange(header.size)}]" if header.size else ""))
        t = self._type()
        if t == BOOL or way == "equal":
            return tree.Binary(BOOL, rng.choice(["==", "!="]), sub(t), sub(t))
        return tree.Binary(BOOL, rng.choice(["<", "<=", ">", ">="]), sub(t), sub(t))

    def _call_of(self, t: Type) -> Expr | None:
        function = self.rng.choice(self._functions)
        args = self._arguments(function, calls=True)
        return self._convert(tree.Call(function.result, function.name, args), t) if args is not None else None

    def _arguments(self, function: tree.Function, calls: bool) -> tuple[Expr, ...] | None:
        args = []
        for param in function.params:
            args.append(self._argument(param, calls))
            if args[-1] is None:
                return None
        return tuple(args)

    def _argument(self, param: tree.Param, calls: bool) -> Expr | None:
        """None: nothing of that type can be written here."""
        if param.direction in ("in", ""):
            return self._value(param.type, 1, calls)
        fits = [v for v in self._scope.writes if v.type == param.type]
        return self.rng.choice(fits) if fits else None

    # ---- packets

    def _packet(self) -> tuple[int, bytes]:
        rng = self.rng
        size = rng.choice([0, 1, 8, 20, 40, 80, 160]) if rng.random() < 0.3 else rng.randint(60, 220)
        data = bytearray(rng.choice([0, 1, 2, 3, 4, 5, 127, 128, 255, rng.randrange(256)]) for _ in range(size))
        if data:
            data[0] = rng.randrange(7)
        return 0, bytes(data)
