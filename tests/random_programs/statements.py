"""Random statements and expressions over the variables that a scope may read and write."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from . import tree
from .tree import BOOL, Expr, Lit, Type, Var, bit, signed

SELECTOR = Var(bit(8), "hdr.h.k")  # selects the parser's next state
LIMIT = 4  # iterations of a loop
INDEX = bit(32)


@dataclass
class Scope:
    """The scope of a statement: variables that it may read and write, and statements allowed there."""

    reads: list[Var] = field(default_factory=list)
    writes: list[Var] = field(default_factory=list)
    headers: bool = True  # the packet's headers are in scope
    objects: bool = False  # tables, registers, counters
    exits: bool = False
    loops: int = 0


class Statements:
    """Makes blocks, statements and values for `self._scope`, from the declarations that the generator of programs fills in."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self._count = 0
        self._scope = Scope()
        self._types: list[Type] = []
        self._headers: list[tree.Header] = []
        self._registers: list[tuple[str, Type, int]] = []
        self._counters: list[tuple[str, int]] = []
        self._meters: list[tree.Meter] = []
        self._digest: tuple[Type, ...] = ()
        self._functions: list[tree.Function] = []
        self._actions: list[tree.Function] = []
        self._tables: list[tree.Table] = []

    def _type(self) -> Type:
        return self.rng.choice(self._types)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    @contextmanager
    def _with(self, scope: Scope) -> Iterator[None]:
        before, self._scope = self._scope, scope
        yield
        self._scope = before

    # ---- statements

    def _block(self, count: int, depth: int) -> tuple:
        """A block of statements, whose locals are not visible outside."""
        scope = self._scope
        statements: list = []
        with self._with(replace(scope, reads=list(scope.reads), writes=list(scope.writes))):
            for _ in range(count):
                statements += self._statement(depth)
        return tuple(statements)

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
        local = tree.Local(self._name("x"), t, self._value(t, 3))
        variable = Var(t, local.name)
        self._scope.reads.append(variable)
        self._scope.writes.append(variable)
        return [local]

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
        """The values as bits, with zeros at the end up to a multiple of 16 bits."""
        values = [v if v.type != BOOL else tree.Choice(bit(1), v, Lit(bit(1), 1), Lit(bit(1), 0)) for v in values]
        rest = -sum(v.type.width for v in values) % 16
        return [*values, *([Lit(bit(rest), 0)] if rest else [])]

    def _object(self, depth: int) -> list:
        rng = self.rng
        if self._counters and rng.random() < 0.3:
            name, size = rng.choice(self._counters)
            return [tree.Count(name, self._index(size))]
        if self._digest and rng.random() < 0.4:
            return [self._message()]
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

    def _message(self) -> tree.Digest:
        return tree.Digest(tuple(self._value(t, 2) for t in self._digest))

    def _mark(self, meter: tree.Meter) -> list:
        """Statements that get the packet's colour from the meter and write it to a variable."""
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
        roll = self.rng.random()
        if roll < 0.3:
            return [tree.Apply(table.name, self._block(1, depth - 1), self._block(1, depth - 1))]
        if roll < 0.6:
            return [tree.Apply(table.name, cases=tuple((a, self._block(1, depth - 1)) for a in table.actions[:2]))]
        return [tree.Apply(table.name)]

    def _port(self, depth: int) -> list:
        return [tree.Assign(Var(bit(9), "sm.egress_spec"), Lit(bit(9), self.rng.choice([1, 2, 3, 511])))]

    def _ways(self) -> list:
        rng, ways = self.rng, []
        if rng.random() < 0.2:
            ways.append(tree.If(self._value(BOOL, 2), (tree.Assign(Var(bit(16), "sm.mcast_grp"), Lit(bit(16), 1)),), ()))
        for kind in ("clone", "resubmit"):
            if rng.random() < 0.15:
                ways.append(tree.Again(kind, rng.randint(1, 2)))
        return ways

    # ---- expressions

    def _number(self, t: Type) -> int:
        rng = self.rng
        striking = (0, 1, 2, 3, t.highest, t.lowest, t.highest - 1, t.highest >> 1)
        value = rng.choice(striking) if rng.random() < 0.7 else rng.randint(t.lowest, t.highest)
        return max(t.lowest, min(t.highest, value))

    def _literal(self, t: Type, most: int | None = None) -> Lit:
        return Lit(t, self._number(t) if most is None else self.rng.randint(0, most))

    def _convert(self, e: Expr, t: Type) -> Expr:
        """Converts a value to type `t` by casts that P4 allows (§8.11)."""
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

        def sub(type_: Type) -> Expr:
            return self._value(type_, depth - 1, calls)

        if calls and self._functions and rng.random() < 0.1:
            call = self._call_of(t)
            if call is not None:
                return call
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
        """An argument; None if no variable of that type can be written here."""
        if param.direction in ("in", ""):
            return self._value(param.type, 1, calls)
        fits = [v for v in self._scope.writes if v.type == param.type]
        return self.rng.choice(fits) if fits else None
