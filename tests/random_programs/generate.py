"""A random program with its entries and packets, from a seed. Nothing in it is undefined, so every switch must agree.

Avoided, since the language leaves them open: variables without a value, fields of invalid headers, indexes beyond the end,
division by zero.
"""

from __future__ import annotations

from dataclasses import replace

from . import tree
from .statements import INDEX, SELECTOR, Scope, Statements
from .tree import BOOL, Expr, Lit, Type, Var, bit, signed

WIDTHS = (1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 72, 100, 127, 128, 129, 200)
CHECKSUM = Var(bit(16), "hdr.h.sum")
ERROR = Var(bit(8), "meta.fault")
PASSES = Var(bit(8), "meta.kept_passes")


class Generator(Statements):
    """`program()` is a function of the seed alone."""

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
        self._digest = tuple(rng.choice(self._types) for _ in range(rng.randint(1, 3))) if rng.random() < 0.25 else ()
        self._counters = [(f"c{i}", rng.choice([2, 4])) for i in range(rng.randint(0, 1))]
        self._meters = [tree.Meter(f"m{i}", tuple(self._marker() for _ in range(2))) for i in range(rng.randint(0, 1))]
        for _ in range(rng.randint(0, 3)):
            self._functions.append(self._function())
        self._scope = Scope(
            reads=[v for v in self._metadata if v.name != ERROR.name] + fields,
            writes=[v for v in own if not v.name.startswith("meta.kept")],
        )
        states, sets = self._parser()
        everything = Scope(
            reads=[*self._metadata, *fields], writes=[*own, *[f for f in fields if f != SELECTOR]], objects=True, exits=True
        )
        self._scope = replace(everything, objects=False)
        self._actions = [tree.Function("nothing", (), ()), *(self._action(i) for i in range(rng.randint(1, 4)))]
        self._tables = []
        self._scope = everything
        tables = [self._table(i) for i in range(rng.randint(0, 3))]
        self._tables = list(tables)
        drop = tree.If(
            tree.Unary(BOOL, "!", tree.IsValid("h")),
            (tree.Assign(Var(bit(9), "sm.egress_spec"), Lit(bit(9), 511)), tree.Leave("exit")),
            (),
        )
        first = rng.sample(self._tables, rng.randint(0, len(self._tables)))  # so that not all of them follow an exit
        self._tables = [t for t in self._tables if t not in first]
        ways = self._ways()
        ingress = [tree.Errors(ERROR), drop, *(tree.Apply(t.name) for t in first), *ways]
        for meter in self._meters:  # before any exit, so that enough packets get there
            ingress += self._mark(meter)
        if self._digest:
            ingress.append(self._message())
        ingress += self._block(rng.randint(4, 14), 3)
        if self._digest:  # the last for one packet counts
            ingress.append(tree.If(self._value(BOOL, 2), (self._message(),), ()))
        ingress += [tree.Apply(t.name) for t in self._tables]  # tables that no statement has applied
        self._scope = replace(
            everything, reads=[*everything.reads, Var(bit(16), "sm.egress_rid"), Var(bit(9), "sm.egress_port")], objects=False
        )
        egress = [replace(drop, then=(tree.Leave("exit"),))]
        if rng.random() < 0.25:
            egress += [*self._block(rng.randint(0, 2), 1), tree.Again("clone_e2e", rng.randint(1, 2))]
            ways.append(egress[-1])
        egress += self._block(rng.randint(0, 4), 2)
        if rng.random() < 0.2 and not ways:  # of two packets that come back, either may be first
            egress.append(tree.Again("recirculate", rng.randint(1, 2)))
        checksum = None
        if rng.random() < 0.3:
            self._scope = Scope(reads=fields)
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
            digest=self._digest,
        )
        return replace(program, packets=tuple(self._packet() for _ in range(24)))

    def _make_headers(self) -> list[tree.Header]:
        rng = self.rng

        def fields(first: list[tuple[str, Type]], count: int) -> tuple[tuple[str, Type], ...]:
            members_ = first + [(f"f{i}", self._type()) for i in range(count)]
            rest = -sum(t.width for _, t in members_) % 8
            return tuple(members_ + [("pad", bit(rest))] * bool(rest))

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
                tree.Header(f"{union}.{name}", kind, members_)
                for union in ("u", "w")[: rng.randint(1, 2)]
                for name, kind, members_ in members
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
            if header.size:  # the last element decides: read by lookahead, as it is the element's first byte
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
        params = [
            tree.Param(rng.choice(["in", "in", "inout", "out"]), self._name("p"), self._type()) for _ in range(rng.randint(0, 3))
        ]
        return tuple(params + [tree.Param("", self._name("d"), self._type()) for _ in range(rng.randint(0, 2))] * data)

    def _parameters_in_scope(self, params: tuple[tree.Param, ...], scope: Scope) -> Scope:
        variables = [Var(p.type, p.name) for p in params]
        written = [v for p, v in zip(params, variables, strict=True) if p.direction in ("out", "inout")]
        return replace(scope, reads=[*scope.reads, *variables], writes=[*scope.writes, *written])

    def _start(self, params: tuple[tree.Param, ...]) -> list:
        """Statements that give out parameters a value before they are read."""
        return [tree.Assign(Var(p.type, p.name), self._literal(p.type)) for p in params if p.direction == "out"]

    def _function(self) -> tree.Function:
        params, result = self._params(data=False), self._type()
        with self._with(self._parameters_in_scope(params, Scope(headers=False))):
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
        profile = rng.choice(["", "", "profile", "selector"]) if not const else ""
        if profile:
            actions += [self._shows(number)] * 3
            bound[actions[-1].name] = ()
        if profile == "selector":
            keys += [tree.Key(self._value(t, 1, calls=False), "selector", f"s{i}") for i, t in enumerate(self._chosen_by())]
        entries: dict[tuple, tree.Entry] = {}
        for i in range(rng.randint(1, 8)):
            match, action = tuple(None if k.kind == "selector" else self._match(k) for k in keys), rng.choice(actions)
            priority = 0 if const or not {"ternary", "range", "optional"} & set(kinds) else i + 1
            group = rng.randint(0, 3) if profile == "selector" else 0
            entries.setdefault(match, tree.Entry(match, action.name, self._data(action), priority, group))
        nothing = [a for a in actions if a.name == "nothing"]
        default = rng.choice(nothing if nothing and profile and rng.random() < 0.7 else actions)
        return tree.Table(
            f"t{number}",
            tuple(keys),
            tuple(dict.fromkeys(a.name for a in actions)),
            tuple(bound.items()),
            default.name,
            self._data(default),
            tuple(entries.values()),
            const,
            profile,
        )

    def _shows(self, number: int) -> tree.Function:
        """An action whose data become visible in the packet, so that it matters which member an entry names."""
        t = bit(16)
        place = self.rng.choice([v for v in self._scope.writes if v.name.startswith("hdr.h.") and v != CHECKSUM])
        data = Var(t, self._name("d"))
        body = (tree.Assign(place, self._convert(data, place.type)),)
        self._actions.append(tree.Function(f"show{number}", (tree.Param("", data.name, t),), body))
        return self._actions[-1]

    def _chosen_by(self) -> list[Type]:
        return [self.rng.choice([t for t in self._types if t.kind == "bit"]) for _ in range(self.rng.randint(1, 2))]

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

    # ---- packets

    def _packet(self) -> tuple[int, bytes]:
        rng = self.rng
        size = rng.choice([0, 1, 8, 20, 40, 80, 160]) if rng.random() < 0.3 else rng.randint(60, 220)
        data = bytearray(rng.choice([0, 1, 2, 3, 4, 5, 127, 128, 255, rng.randrange(256)]) for _ in range(size))
        if data:
            data[0] = rng.randrange(7)
        return 0, bytes(data)
