"""No test fails because the machine is slow: none asserts that little real time has passed, and none sleeps in its own code.

Read from the files' syntax. Text of scripts for child processes is left out, and so are tests marked ``machine`` and ``judge``:
what is about real time is theirs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

pytestmark = pytest.mark.fast

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "clock_gettime"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
KEEP = {"abs", "float", "int", "max", "mean", "median", "min", "round", "sorted", "sum"}  # seconds in, seconds out
# text of files that are read at all
MAY_HOLD = re.compile(r"import time\b|from time\b|asyncio|Event\(\)\.wait\(|mark\.timeout|[\"']sleep")
SHORT = "asserts that little real time has passed: assert the cause (message, counter), inject a clock, or mark it machine, judge"
SLEEP = "sleeps: wait for what is to happen (waiting.until, an event), or inject a clock"
LIMIT = "limits its time to less than a minute: only a hang may take what a limit allows (tests/tiers.py has those of the marks)"
IMPATIENT = "waits for a process by itself: child.run, child.output and child.status say what took too long"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """Names by which a file calls the clocks and sleep, by its imports."""

    def __init__(self, tree: ast.Module):
        self.modules: dict[str, str] = {}
        self.imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.modules |= {a.asname or a.name: a.name for a in node.names if a.name in ("time", "asyncio")}
            elif isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
                self.imported |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}

    def of(self, function: ast.expr) -> str:
        """"time.monotonic" for what the file may call otherwise; "" for what is of neither module."""
        if isinstance(function, ast.Name):
            return self.imported.get(function.id, "")
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in self.modules:
            return f"{self.modules[function.value.id]}.{function.attr}"
        return ""

    def clock(self, function: ast.expr) -> bool:
        module, _, name = self.of(function).partition(".")
        return module == "time" and name in CLOCKS


class Times:
    """Names of a file, or of one of its functions, that hold real time: points in it, seconds of it, lists of these."""

    def __init__(self, names: Names, outer: set[str] = frozenset()):  # type: ignore[assignment]
        self.names = names
        self.held = set(outer)

    def read(self, node: ast.expr) -> bool:
        """True if the clock is read in this expression, and what it says is part of the value."""
        return any(isinstance(part, ast.Call) and self._reads(part.func) for part in self._parts(node))

    def real(self, node: ast.expr) -> bool:
        """True if the value of this expression is of real time."""
        return self.read(node) or any(_name(part) in self.held for part in self._parts(node))

    def _reads(self, function: ast.expr) -> bool:
        return self.names.clock(function) or f"{_name(function)}()" in self.held

    def _parts(self, node: ast.expr) -> Iterator[ast.expr]:
        """The expressions on which the value depends as a time: a time that a call gets does not make its result one."""
        yield node
        match node:
            case ast.Call() if not self._reads(node.func):
                parts = node.args if (_name(node.func) or "").rpartition(".")[2] in KEEP else []
            case ast.BinOp():
                parts = [node.left, node.right]
            case ast.UnaryOp():
                parts = [node.operand]
            case ast.IfExp():
                parts = [node.body, node.orelse]
            case ast.Subscript() | ast.Starred() | ast.NamedExpr():
                parts = [node.value]
            case ast.Tuple() | ast.List():
                parts = node.elts
            case ast.ListComp() | ast.GeneratorExp():
                parts = [node.elt]
            case _:
                parts = []
        for part in parts:
            yield from self._parts(part)

    def learn(self, nodes: list[ast.AST]) -> None:
        """Takes in what the statements assign, until nothing is new."""
        before = -1
        while before < len(self.held):
            before = len(self.held)
            for node in nodes:
                self._take(node)

    def _take(self, node: ast.AST) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value) | ast.NamedExpr(value=value):
                self._assign(node.target, value)
            case ast.For() | ast.comprehension() if self.real(node.iter):
                self._hold(node.target)
            case ast.Call(func=ast.Attribute(attr="append" | "extend", value=ast.expr() as value)):
                if any(map(self.real, node.args)):
                    self._hold(value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
        elif self.names.clock(value):  # clock = time.monotonic
            self.held.add(f"{_name(target)}()")
        elif self.real(value):
            self._hold(target)

    def _hold(self, target: ast.expr) -> None:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if name := _name(one):
                self.held.add(name)


def _name(node: ast.expr) -> str | None:
    """A name, also one with dots; of a list's element that of the list."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _name(node.value)):
        return f"{before}.{node.attr}"
    return _name(node.value) if isinstance(node, ast.Subscript) else None


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Contents of the node, except for the functions in it; those are yielded and not entered."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function):
            yield from own(child)


def measures(nodes: list[ast.expr]) -> bool:
    text = " ".join(map(ast.unparse, nodes))
    return "mark.machine" in text and "mark.judge" in text


def comparisons(condition: ast.AST, holds: bool) -> Iterator[tuple[ast.Compare, bool]]:
    """The comparisons in a condition that must hold, or must not; and the same of each."""
    if isinstance(condition, ast.Compare):
        yield condition, holds
    negated = isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not)
    for part in ast.iter_child_nodes(condition):
        yield from comparisons(part, holds != negated)


def fails(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, ast.Raise) or isinstance(call, ast.Call) and _name(call.func) == "pytest.fail"


def short(comparison: ast.Compare, holds: bool, times: Times) -> bool:
    """True if it holds, or does not, only if real time is short: less than something, or before a point in time that is not the
    clock's own."""
    sides = [comparison.left, *comparison.comparators]
    for left, operator, right in zip(sides, comparison.ops, sides[1:], strict=False):
        if not isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            continue
        if isinstance(operator, ast.Gt | ast.GtE) == holds:
            left, right = right, left
        if times.read(left):
            return True
        if times.real(left) and (not times.real(right) or isinstance(right, ast.BinOp) and not times.read(right)):
            return True
    return False


def findings(text: str, file: str) -> list[str]:
    tree = ast.parse(text)
    names, found = Names(tree), []
    marked = [n.value for n in tree.body if isinstance(n, ast.Assign) and _name(n.targets[0]) == "pytestmark"]
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]

    def timed() -> set[str]:
        """The file's functions that return real time."""
        results = set()
        for function in functions:
            times, nodes = Times(names), list(own(function))
            times.learn(nodes)
            if any(isinstance(n, ast.Return) and n.value is not None and times.real(n.value) for n in nodes):
                results.add(f"{function.name}()")
        return results

    def look(scope: ast.AST, outer: set[str], may: list[ast.expr]) -> None:
        nodes, times = list(own(scope)), Times(names, outer)
        times.learn(nodes)
        for node in nodes:
            if isinstance(node, Function):
                look(node, times.held, [*may, *node.decorator_list])
            elif measures(may):
                continue
            elif isinstance(node, ast.Assert) or isinstance(node, ast.If) and any(map(fails, node.body)):
                if any(short(part, holds, times) for part, holds in comparisons(node.test, isinstance(node, ast.Assert))):
                    found.append((node.lineno, SHORT))
            elif isinstance(node, ast.Call) and sleeps(node):
                found.append((node.lineno, SLEEP))
            elif isinstance(node, ast.Call) and _name(node.func) == "pytest.mark.timeout":
                if any(isinstance(a, ast.Constant) and a.value < 60 for a in node.args):
                    found.append((node.lineno, LIMIT))

    def sleeps(call: ast.Call) -> bool:
        name, some = names.of(call.func), [ast.unparse(a) for a in (*call.args, *(k.value for k in call.keywords))]
        if name == "asyncio.sleep":
            return some != ["0"]  # it lets others run
        if _name(call.func) in ("subprocess.run", "subprocess.check_call", "child.run") and some:
            return re.match(r"\W*sleep\b", some[0]) is not None
        nobody = isinstance(call.func, ast.Attribute) and call.func.attr == "wait" and isinstance(call.func.value, ast.Call)
        return name == "time.sleep" or nobody and bool(some) and ast.unparse(call.func.value).endswith("Event()")

    look(tree, timed(), marked)
    return [f"{file}:{line}: {what}" for line, what in sorted(set(found))]


def test_no_verdict_hangs_on_the_speed_of_the_machine():
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if MAY_HOLD.search(text):
            found += findings(text, str(path.relative_to(TESTS)))
    assert not found, "\n".join(found)


def impatient(text: str, file: str) -> list[str]:
    """Waits for a child process that end in an error of subprocess, which make test does not look at again."""
    found = []
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        name = _name(call.func) or ast.unparse(call.func)
        limited = any(keyword.arg == "timeout" for keyword in call.keywords)
        if limited and (name.startswith("subprocess.") or name.endswith(".communicate")):
            found.append(f"{file}:{call.lineno}: {IMPATIENT}")
    return found


def test_whoever_waits_for_a_child_process_says_that_it_took_too_long():
    """Searches and judges that are commands of their own (random_programs, fuzz, conformance) are no tests."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text, file = path.read_text(), path.relative_to(TESTS)
        if "timeout" in text and "TookTooLong" not in text and file.parts[0] not in ("random_programs", "fuzz", "conformance"):
            found += impatient(text, str(file))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text, count",
    [
        ("subprocess.run(command, timeout=60)", 1),
        ("out, _ = self.process.communicate(timeout=LONG)", 1),
        ("subprocess.Popen(command).communicate(timeout=5)", 1),
        ("child.run(command, timeout)\nsubprocess.run(command)\nprocess.communicate()\nclient.call(timeout=5)", 0),
    ],
)
def test_a_wait_for_a_child_process_is_found(text, count):
    assert len(impatient(text, "test_planted.py")) == count


def test_hypothesis_sets_no_limits_of_time():
    """Its own are 200 ms for an example, and a second or so to draw one."""
    settings = hypothesis.settings()
    assert settings.deadline is None, "conftest.py: hypothesis' profile for the tests has no deadline"
    assert hypothesis.HealthCheck.too_slow in settings.suppress_health_check, "conftest.py: the profile suppresses it"


TOO_SHORT = [
    "start = time.monotonic()\nassert time.monotonic() - start < 5",
    "began = time.perf_counter()\nwork()\ntook = time.perf_counter() - began\nassert took <= 5, took",
    "before, other = time.process_time(), 7\nassert 0.1 > time.process_time() - before",
    "deadline = time.monotonic() + 5\nwhile busy():\n    assert time.monotonic() < deadline, 'too slow'",
    "deadline = time.monotonic() + 5\nassert deadline > time.monotonic()",
    "start = time.time()\nassert 0.2 <= time.time() - start < 2",
    "start = time.time_ns()\nassert done() and not (time.time_ns() - start) / 1e9 >= 0 or time.time_ns() - start < 10**9",
    "start, took = time.monotonic(), []\nfor i in range(3):\n    took.append(time.monotonic() - start)\nassert took[0] < 1",
    "start = time.monotonic()\nseconds = [time.monotonic() - start]\nassert all(s < 1 for s in seconds)",
    "def timed(f):\n    start = time.monotonic()\n    f()\n    return time.monotonic() - start\nassert timed(work) < 1",
    "import time as t\nassert t.monotonic() - begun < 1",
    "from time import monotonic as now\nassert now() - begun < 1",
    "clock = time.monotonic\nassert clock() - begun < 1",
    "start = time.monotonic()\nend = time.monotonic()\nassert end < start + 5",
    "class A:\n    def f(self):\n        self.start = time.monotonic()\n        assert time.monotonic() - self.start < 1",
    "@pytest.mark.machine\ndef test_a():\n    assert time.monotonic() - begun < 1",
    "async def test_a():\n    start = time.monotonic()\n    def inner():\n        assert time.monotonic() < start + 1",
    "took = time.monotonic() - begun\nassert max([took]) < 1",
    "took = time.monotonic() - begun\nassert not took > 5",
    "took = time.monotonic() - begun\nassert done and not (took >= 5 or late)",
    "took = time.monotonic() - begun\nif took > 5:  # assert\n    pytest.fail('slow')",
    "took = time.monotonic() - begun\nif not took < 5:  # assert\n    raise AssertionError",
    "assert time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) - before < 0.1",
]
LONG_ENOUGH = [
    "start = time.monotonic()\nassert time.monotonic() - start >= 0.02",
    "start = time.monotonic()\nassert start + 0.02 < time.monotonic()",
    "start = time.monotonic()\nassert 0.02 <= time.monotonic() - start",
    "first, second = time.monotonic(), time.monotonic()\nassert first <= second",
    "script = 'import time; start = time.monotonic(); time.sleep(1); assert time.monotonic() - start < 5'\nrun(script)",
    "answer = serve(time.monotonic())\nassert answer < 7 and sent(time.monotonic()) == 3",
    "clock = Clock()\nassert clock.monotonic() - start < 1 and world.time() < 5",
    "start = time.monotonic()\nseconds = 3\nassert seconds < 5",
    "@pytest.mark.judge\n@pytest.mark.machine\ndef test_a():\n    time.sleep(1)\n    assert time.monotonic() - begun < 1",
    "pytestmark = [pytest.mark.build, pytest.mark.machine, pytest.mark.judge]\ndef test_a():\n    assert time.time() - begun < 1",
    "while time.monotonic() < deadline:\n    work()",
    "took = time.monotonic() - begun\nassert not took < 5",
    "took = time.monotonic() - begun\nif took < 5:\n    pytest.fail('early')",
    "took = time.monotonic() - begun\nif took > 5:\n    print(took)",
]
SLEEPS = [
    "time.sleep(0.1)",
    "def test_a():\n    for i in range(3):\n        time.sleep(i)",
    "from time import sleep\nsleep(1)",
    "import time as clock\nrun(lambda: clock.sleep(1))",
    "import asyncio\nasync def test_a():\n    await asyncio.sleep(0.1)",
    "threading.Event().wait(0.1)",
    "threading.Event().wait(timeout=0.1)",
    "subprocess.run(['sleep', '1'], check=True)",
    "child.run(('sleep', 1))",
]
SLEEPS_NOT = [
    "import asyncio\nasync def test_a():\n    await asyncio.sleep(0)",
    "world.sleep(1)\nfake.time.sleep(1)",
    "run('import time; time.sleep(60)')",
    "monkeypatch.setattr(time, 'sleep', noted.append)\nthreading.Event().wait()",
    "until(lambda: done, 'the end')\nevent.wait(60)",
]


def found_in(text: str) -> list[str]:
    return findings(f"import time\n{text}\n", "test_planted.py")


@pytest.mark.parametrize("text", TOO_SHORT)
def test_an_assert_that_time_is_short_is_found(text):
    (found,) = found_in(text)
    line = text.count("\n", 0, text.rindex("assert")) + 2
    assert found == f"test_planted.py:{line}: {SHORT}"


@pytest.mark.parametrize("text", SLEEPS)
def test_a_sleep_is_found(text):
    (found,) = found_in(text)
    assert found.startswith("test_planted.py:") and found.endswith(SLEEP)


def test_a_short_limit_is_found():
    (found,) = found_in("@pytest.mark.timeout(1)\ndef test_a():\n    work()")
    assert found == f"test_planted.py:2: {LIMIT}"
    assert found_in("@pytest.mark.timeout(1800)\ndef test_a():\n    work()") == []


@pytest.mark.parametrize("text", [*LONG_ENOUGH, *SLEEPS_NOT])
def test_lower_bounds_scripts_and_fake_clocks_are_allowed(text):
    assert found_in(text) == []
