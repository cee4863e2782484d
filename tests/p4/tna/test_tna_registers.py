"""One access to a Register per pass: the compiler's verdict on a program against all paths through it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tna_program import data, pipe, source

from ina.p4.compiler import frontend
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.lower.lower import lower
from ina.p4.runtime.entities import TableEntry

pytestmark = pytest.mark.build
# A program is a list of: ("access", register), ("if", then, else), ("table", registers of three actions), ("exit",), ("return",),
# ("miss", registers, then, else) and ("run", registers, three bodies), which act on a table's result, and ("loop", body). Each
# choice is made by its own bit of the packet or its own table, so every combination of choices is a path through the program. The
# first action is the default one, constant where the result counts.
LEAVES = st.one_of(
    st.tuples(st.just("access"), st.integers(0, 1)), st.just(("exit",)), st.just(("return",)), st.just(("nothing",))
)
ACTIONS = st.lists(st.integers(-1, 1), min_size=3, max_size=3)
PROGRAMS = st.lists(
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.tuples(st.just("if"), st.lists(inner, max_size=3), st.lists(inner, max_size=3)),
            st.tuples(st.just("loop"), st.lists(inner, max_size=3)),
            st.tuples(st.just("table"), ACTIONS),
            st.tuples(st.just("miss"), ACTIONS, st.lists(inner, max_size=2), st.lists(inner, max_size=2)),
            st.tuples(st.just("run"), ACTIONS, *[st.lists(inner, max_size=2)] * 3),
        ),
        max_leaves=8,
    ),
    max_size=4,
)


class Stop(Exception):
    """exit or return"""


class Writer:
    """P4 text of a program, and the number of choices that it makes."""

    def __init__(self) -> None:
        self.choices: list[int] = []  # number of branches of each
        self.tables: list[str] = []
        self.actions: list[str] = []
        self.loops = itertools.count()

    def text(self, program: list[Any]) -> str:
        return " ".join(self._one(node) for node in program)

    def _one(self, node: Any) -> str:
        match node:
            case ("access", register):
                return f"a{register}.execute(0);"
            case ("exit" | "return" as what,):
                return f"if (hdr.data.a[31:31] == 0) {{ {what}; }}"  # a condition that the compiler cannot evaluate
            case ("if", then, otherwise):
                bit = self._choice(2)
                return f"if (hdr.data.b[{bit}:{bit}] == 1) {{ {self.text(then)} }} else {{ {self.text(otherwise)} }}"
            case ("loop", body):
                n = next(self.loops)
                return f"for (bit<32> i{n} = 0; i{n} < hdr.data.b; i{n} = i{n} + 1) {{ {self.text(body)} }}"
            case ("table", registers):
                return f"{self._table(registers, self._choice(3), '')}.apply();"
            case ("miss", registers, then, otherwise):
                table = self._table(registers, self._choice(4), "const ")
                return f"if ({table}.apply().miss) {{ {self.text(then)} }} else {{ {self.text(otherwise)} }}"
            case ("run", registers, *bodies):
                table = self._table(registers, self._choice(3), "const ")
                cases = " ".join(f"{table}_{i}: {{ {self.text(body)} }}" for i, body in enumerate(bodies))
                return f"switch ({table}.apply().action_run) {{ {cases} }}"
        return ""

    def _table(self, registers: list[int], n: int, const: str) -> str:
        names = [f"t{n}_{i}" for i in range(3)]
        for name, register in zip(names, registers, strict=True):
            body = f"a{register}.execute(1);" if register >= 0 else ""
            self.actions.append(f"action {name}() {{ {body} }}")
        self.tables.append(
            f"table t{n} {{ key = {{ hdr.data.a: exact; }} actions = {{ {'; '.join(names)}; }}"
            f" {const}default_action = {names[0]}(); size = 4; }}"
        )
        return f"t{n}"

    def _choice(self, ways: int) -> int:
        self.choices.append(ways)
        return len(self.choices) - 1


def accesses(program: list[Any], way: Iterator[int], stops: Iterator[bool]) -> Iterator[int]:
    """The registers that one path through the program reaches, in order. Choices are numbered as `Writer` numbers them."""
    for node in program:
        match node:
            case ("access", register):
                yield register
            case ("exit" | "return",):
                if next(stops):
                    raise Stop
            case ("if", then, otherwise):
                if next(way):
                    yield from accesses(then, way, stops)
                    _pass_over(otherwise, way, stops)
                else:
                    _pass_over(then, way, stops)
                    yield from accesses(otherwise, way, stops)
            case ("table", registers):
                register = registers[next(way)]
                if register >= 0:
                    yield register
            case ("miss" | "run", registers, *bodies):
                chosen = next(way)
                register = registers[max(0, chosen - 1) if node[0] == "miss" else chosen]
                if register >= 0:
                    yield register
                taken = min(chosen, 1) if node[0] == "miss" else chosen
                for i, body in enumerate(bodies):
                    if i == taken:
                        yield from accesses(body, way, stops)
                    else:
                        _pass_over(body, way, stops)


def _pass_over(program: list[Any], way: Iterator[int], stops: Iterator[bool]) -> None:
    """Consumes the choices of code that is not run."""
    for node in program:
        if node[0] == "if":
            next(way)
            _pass_over(node[1], way, stops)
            _pass_over(node[2], way, stops)
        elif node[0] == "table":
            next(way)
        elif node[0] in ("miss", "run"):
            next(way)
            for body in node[2:]:
                _pass_over(body, way, stops)
        elif node[0] in ("exit", "return"):
            next(stops)


def count(program: list[Any], kinds: tuple[str, ...]) -> int:
    inner = sum(count(part, kinds) for node in program if node[0] == "if" for part in node[1:])
    inner += sum(count(part, kinds) for node in program if node[0] in ("miss", "run") for part in node[2:])
    return inner + sum(node[0] in kinds for node in program)


def unrolled(program: list[Any]) -> list[Any]:
    """The program with a loop's first two rounds instead of the loop: of two accesses to one register, each is in one round."""
    nodes: list[Any] = []
    for node in program:
        match node:
            case ("loop", body):
                body = unrolled(body)
                nodes.append(("if", [*body, ("if", body, [])], []))
            case ("if", then, otherwise):
                nodes.append(("if", unrolled(then), unrolled(otherwise)))
            case ("miss" | "run" as kind, registers, *bodies):
                nodes.append((kind, registers, *map(unrolled, bodies)))
            case _:
                nodes.append(node)
    return nodes


def reaches_twice(program: list[Any], choices: list[int]) -> bool:
    stops = count(program, ("exit", "return"))
    for way in itertools.product(*(range(n) for n in choices)):
        for stop in itertools.product((False, True), repeat=stops):
            registers: list[int] = []
            try:
                for register in accesses(program, iter(way), iter(stop)):
                    registers.append(register)
            except Stop:
                pass
            if len(set(registers)) < len(registers):
                return True
    return False


REGISTERS = "".join(
    f"""Register<bit<32>, bit<2>>(4) r{i};
    RegisterAction<bit<32>, bit<2>, bit<32>>(r{i}) a{i} = {{ void apply(inout bit<32> v) {{ v = v + 1; }} }};"""
    for i in range(2)
)


@settings(max_examples=80, deadline=None)
@given(program=PROGRAMS)
@example(program=[("loop", [("if", [("access", 0)], [("access", 1)])])])
@example(program=[("loop", [("access", 0), ("return",)])])
def test_exactly_the_programs_that_can_reach_a_register_twice_are_refused(program: list[Any]) -> None:
    writer, model, straight = Writer(), Writer(), unrolled(program)
    text = writer.text(program)
    model.text(straight)
    if len(model.choices) > 6 or count(straight, ("exit", "return")) > 4:
        return
    declared = REGISTERS + " ".join(writer.actions) + " ".join(writer.tables)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.p4"
        path.write_text(source(text, ingress_locals=declared))
        checked = frontend.load(path)
        refused = False
        try:
            lower(checked)
        except CompileError as error:
            assert "is accessed twice in one pass" in str(error)
            refused = True
    assert refused == reaches_twice(straight, model.choices), text


EXCLUSIVE = """
    Register<bit<32>, bit<2>>(4) r;
    RegisterAction<bit<32>, bit<2>, bit<32>>(r) set = {
        void apply(inout bit<32> v, out bit<32> old) { old = v; v = hdr.data.b; } };
    RegisterAction<bit<32>, bit<2>, bit<32>>(r) get = { void apply(inout bit<32> v, out bit<32> old) { old = v; } };
    action none() { } action store() { hdr.data.c = (bit<16>)set.execute(1); } action load() { hdr.data.a = get.execute(1); }
    table t1 { key = { hdr.data.d: exact; } actions = { none; %s store; } %s }
    table t2 { key = { hdr.data.e: exact; } actions = { none; load; } const default_action = none(); }"""
MISS = "if (t1.apply().miss) { t2.apply(); }"
RUN = "switch (t1.apply().action_run) { store: { hdr.data.b = 9; } default: { t2.apply(); } }"
NONE = "const default_action = none();"


@pytest.mark.parametrize(("apply", "where", "default", "refused"), [
    (MISS, "", NONE, False),
    (MISS, "@tableonly", "default_action = none();", False),
    (MISS, "", "default_action = none();", True),  # the control plane may make `store` the default action
    (MISS, "", "const default_action = store();", True),
    (MISS, "", NONE + " const entries = { 1: store(); 2: none(); }", False),
    (RUN, "", "default_action = none();", False),
    (RUN.replace("store:", "none:"), "", NONE, True),
    ("if (!t1.apply().hit) { } else { t2.apply(); }", "@defaultonly", "default_action = store();", False),
    ("if (t1.apply().hit) { t2.apply(); }", "", NONE, True),
])
def test_actions_that_exclude_each_other_may_access_one_register(tmp_path, apply, where, default, refused):
    path = tmp_path / "program.p4"
    path.write_text(source(apply, ingress_locals=EXCLUSIVE % (where, default)))
    if refused:
        with pytest.raises(CompileError, match="is accessed twice in one pass"):
            lower(frontend.load(path))
        return
    lower(frontend.load(path))


LOOP = "for (bit<32> i = 0; i < %s; i = i + 1) { %s }"
ONCE = "hdr.data.a = get.execute(1);"


@pytest.mark.parametrize(("apply", "refused"), [
    (LOOP % ("hdr.data.b", ONCE), True),
    (LOOP % ("2", "if (hdr.data.b == i) { " + ONCE + " }"), True),
    (LOOP % ("hdr.data.b", "t2.apply();"), True),
    (LOOP % ("3", "for (bit<8> j in 0 .. 1) { if (hdr.data.d == 1) { break; } } " + ONCE), True),
    ("for (bit<8> i in 0 .. 3) { " + ONCE + " }", True),
    ("for (bit<8> i in {8w4, 5}) { " + ONCE + " }", True),
    (LOOP % ("hdr.data.b", "if (hdr.data.d == 1) { continue; } " + ONCE), True),
    (LOOP % ("hdr.data.b", ONCE + " break;"), False),
    (LOOP % ("hdr.data.b", "if (hdr.data.d == 1) { " + ONCE + " exit; }"), False),
    (LOOP % ("hdr.data.b", "if (hdr.data.d == 1) { break; } " + ONCE + " break;") + ONCE, True),
    (LOOP % ("hdr.data.b", "hdr.data.d = hdr.data.d + 1;") + ONCE, False),
    (LOOP % ("1", ONCE), False),
    ("for (bit<8> i in 3 .. 3) { " + ONCE + " }", False),
    ("for (bit<8> i in {8w4}) { " + ONCE + " }", False),
    ("if (t1.apply().miss) { " + LOOP % ("hdr.data.b", "hdr.data.d = hdr.data.d + 1;") + " t2.apply(); }", False),
    ("if (t1.apply().miss) { " + LOOP % ("hdr.data.b", "t2.apply(); break;") + " }", False),
    ("if (t1.apply().miss) { " + LOOP % ("hdr.data.b", "t2.apply();") + " }", True),
])
def test_a_loop_that_may_go_round_again_accesses_its_registers_again(tmp_path, apply, refused):
    path = tmp_path / "program.p4"
    path.write_text(source(apply, ingress_locals=EXCLUSIVE % ("", NONE)))
    if refused:
        with pytest.raises(CompileError, match="is accessed twice in one pass"):
            lower(frontend.load(path))
        return
    lower(frontend.load(path))


WITHOUT = """actions = { none; %s store; load; } %s"""
BOTH, STORES = "t1.apply(); hdr.data.a = get.execute(1);", "const default_action = store();"
MANY = "const entries = { " + " ".join(f"{i}: %s();" for i in range(200)) + " }"


@pytest.mark.parametrize(("apply", "table", "refused"), [
    (BOTH, WITHOUT % ("", NONE), False),  # without a key, only the default action can run
    (BOTH, WITHOUT % ("", STORES), True),
    (BOTH, WITHOUT % ("", "default_action = none();"), True),
    (BOTH, "actions = { none; @tableonly store; @tableonly load; } default_action = none();", False),
    ("if (t1.apply().hit) { hdr.data.a = get.execute(1); }", WITHOUT % ("", "default_action = store();"), False),
    ("if (t1.apply().miss) { hdr.data.a = get.execute(1); }", WITHOUT % ("", "default_action = store();"), True),
    ("switch (t1.apply().action_run) { none: { t2.apply(); } default: { } }", WITHOUT % ("", "default_action = store();"), False),
    (BOTH, "key = { hdr.data.d: exact; }" + WITHOUT % ("", NONE + MANY.replace("%s", "none")), False),
    (BOTH, "key = { hdr.data.d: exact; }" + WITHOUT % ("", NONE + MANY.replace("%s", "store", 1).replace("%s", "none")), True),
])
def test_actions_that_a_table_cannot_run_access_nothing(tmp_path, apply, table, refused):
    path = tmp_path / "program.p4"
    declared = EXCLUSIVE.replace("table t1 {", "table t0 {")
    path.write_text(source(apply, ingress_locals=declared % ("", NONE) + f" table t1 {{ {table} }}"))
    if refused:
        with pytest.raises(CompileError, match="is accessed twice in one pass"):
            lower(frontend.load(path))
        return
    lower(frontend.load(path))


def test_what_one_action_stores_the_other_one_loads(tmp_path):
    tested = pipe(tmp_path, MISS, ingress_locals=EXCLUSIVE % ("", NONE))
    tested.add(TableEntry("t1", {"hdr.data.d": 1}, "store"), TableEntry("t2", {"hdr.data.e": 2}, "load"))
    assert tested.ingress(data(b=77, d=1, e=2)).frame == data(b=77, d=1, e=2)
    assert tested.ingress(data(d=0, e=2)).frame == data(a=77, e=2)
    assert tested.ingress(data(b=5, d=1)).frame == data(b=5, c=77, d=1) and tested.register("r") == [0, 5, 0, 0]
