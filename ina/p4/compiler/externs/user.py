"""Externs of a program's own: declared in P4, with a body in C for the compiled switch and one in Python for the interpreter.

A user puts subclasses of `UserFunction` and `UserObject` into a Python file and names it where the program is compiled
(`ina compile --externs FILE.py`, `ina.p4.compile(..., externs=FILE)`). Parameters and results are `bit<W>`, `int<W>` (at most
64 bits) or `bool`. In C they are `uint64_t`, for `int<W>` `int64_t`, and pointers to those for `out` and `inout`.
"""

from __future__ import annotations

import operator
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsIndex, TypeVar

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError
from ina.p4.compiler.externs.architectures import TNA, V1MODEL
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject, Externs
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.operations import CallC
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.places import Arguments

T = TypeVar("T")
WIDEST = 64  # bits of a parameter or result
LARGEST = 1 << 20  # bytes of an object's state


@dataclass(slots=True)
class UserCode:
    """The C code of the externs that a program calls. `prototypes`, `owners` (the externs): by function; `states`: the memory of
    each object."""

    sources: dict[str, None] = field(default_factory=dict)
    prototypes: dict[str, tuple[str, str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    states: dict[Instance, ir.Register] = field(default_factory=dict)

    def text(self) -> list[str]:
        """Returns the C text: prototypes, the bodies, and a function under a reserved name for each that is called."""
        calls = [f"INA_INLINE {head.format('ina_user_' + name)}\n{{\n    {body}\n}}"
                 for name, (head, body) in self.prototypes.items()]
        heads = [f"static {head.format(name)};" for name, (head, _) in self.prototypes.items()]
        return [*heads, *self.sources, *calls]


class UserFunction:
    """The bodies of an extern function that a program declares. `names`: its name in P4; `c_source`: C text at file scope that
    defines a function of that name."""

    names: tuple[str, ...]
    c_source: str

    def call(self, *args: int) -> int | tuple[int, ...] | None:
        """Returns the result for the `in` and `inout` arguments; if the function has `out` or `inout` parameters, a tuple of the
        result (unless it is void) and their values."""
        raise NotImplementedError


class UserObject:
    """The bodies of an extern type that a program declares. `names`: its name in P4; `c_source` defines a function `TYPE_METHOD`
    for each method, whose first parameters are a pointer to the object's `state_bytes` bytes (`void *`, zeros at first) and the
    constructor's arguments."""

    names: tuple[str, ...]
    c_source: str
    state_bytes: int = 8

    def start(self, *args: int) -> object:
        """Returns the state of a new object in the interpreter, for the constructor's arguments."""
        raise NotImplementedError

    def call(self, state: Any, method: str, *args: int) -> int | tuple[int, ...] | None:
        """Runs a method on the state; arguments and result as of a `UserFunction`."""
        raise NotImplementedError


class _Function(ExternFunction):
    def __init__(self, body: UserFunction, place: str) -> None:
        self.body, self.place, self.names = body, place, tuple(body.names)

    def lower(self, low: Lowering, call: ast.Call) -> Value | None:
        return _call(low, call, call.decl.name, call.decl.name, self.body.c_source, [], None)

    def interpret(self, machine: Any, call: ast.Call, args: Arguments, frame: Frame) -> int | None:
        return _results(call, args, self.place, _run(self.body.call, self.place, call, *_numbers(call, args)))


class _Object(ExternObject):
    def __init__(self, body: UserObject, place: str) -> None:
        self.body, self.place, self.names = body, place, tuple(body.names)

    def declare(self, low: Lowering, instance: Instance) -> None:
        states = low.state(UserCode).states
        if instance not in states:
            states[instance] = ir.Register(f"{instance.name}.$state", 64, -(-self.body.state_bytes // 8))

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        self.declare(low, instance)
        extern, state = instance.decl.name, low.state(UserCode).states[instance]
        return _call(low, call, f"{extern}_{call.method}", extern, self.body.c_source, constructor(instance), state)

    def create(self, machine: Any, instance: Instance) -> object | None:
        return _run(self.body.start, self.place, instance.origin, *constructor(instance))

    def interpret(self, machine: Any, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int | None:
        state = machine.objects.get(instance)
        values = _run(self.body.call, self.place, call, state, call.method, *_numbers(call, args))
        return _results(call, args, self.place, values)


def constructor(instance: Instance) -> list[int]:
    """Returns the constructor's arguments."""
    for name, value in instance.args.items():
        if not isinstance(value, int):
            raise unsupported(instance.origin, f"the argument '{name}', which is no number, of an extern of one's own")
    return [int(value) for value in instance.args.values()]


# --- the compiled switch ----------------------------------------------------------------------------------------------


def _shape(t: types.Type, node: ast.Node) -> tuple[int, bool]:
    shape = value_trees.scalar_shape(t)
    if shape is None or shape[0] > WIDEST or not isinstance(types.underlying(t), types.BitType | types.BoolType):
        raise CompileError(node.span, f"an extern of one's own takes bit<W>, int<W> and bool, at most {WIDEST} bits, not {t}")
    return shape


def _call(
    low: Lowering, call: ast.Call, name: str, extern: str, source: str, constants: list[int], state: ir.Register | None
) -> Value | None:
    result = None if isinstance(call.type, types.VoidType) else _shape(call.type, call)
    shapes = [_shape(p.type, call) for p in call.params]
    heads = ["void *"] if state is not None else []
    heads += ["uint64_t"] * len(constants)
    for p, (_, signed) in zip(call.params, shapes, strict=True):
        heads.append(("int64_t" if signed else "uint64_t") + (" *" if p.direction in ("out", "inout") else ""))
    _note(low, call, name, extern, source, "void" if result is None else "int64_t" if result[1] else "uint64_t", heads)
    targets: list[ir.Var | ir.Elem] = []
    returned = ir.Var("result", 64, result[1]) if result is not None else None
    if returned is not None:
        targets.append(returned)
    args: list[ir.Expr] = [fold.const(value, 64) for value in constants]
    written: list[tuple[Value, ir.Var, tuple[int, bool]]] = []
    pointers: list[bool] = [False] * len(constants)
    for i, (p, (width, signed)) in enumerate(zip(call.params, shapes, strict=True)):
        pointers.append(p.direction in ("out", "inout"))
        if not pointers[-1]:
            _present(call, i)
            args.append(fold.cast(low.scalar(call.given(i)), 64, signed))
            continue
        place, variable = low.result(call, i), ir.Var(p.name, 64, signed)
        before = low.values.scalar(place) if p.direction == "inout" else fold.const(0, width, signed)
        low.emit(ir.Assign(variable, fold.cast(before, 64, signed)))
        args.append(variable)
        targets.append(variable)
        written.append((place, variable, (width, signed)))
    low.emit(CallC(f"ina_user_{name}", pointers, returned is not None, state, targets=targets, args=args))
    for place, variable, shape in written:
        low.assign(place, fold.cast(variable, *shape), call)
    return None if returned is None or result is None else fold.cast(returned, *result)


def _present(call: ast.Call, i: int) -> None:
    """Refuses a call that leaves out an optional argument, for which neither C nor Python has a value."""
    if call.args[i] is None:
        name = call.params[i].name
        raise CompileError(call.span, f"the argument '{name}' is missing: expected all arguments of an extern of one's own")


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#", re.MULTILINE)  # a header or a macro may define the function
_DEFINITION = r"\b{}\s*\([^;{{}}]*\)[^;{{}}]*\{{"


def _note(low: Lowering, call: ast.Call, name: str, extern: str, source: str, result: str, heads: list[str]) -> None:
    """Notes the C code of an extern that the program calls."""
    text = _COMMENT.sub(" ", source)
    if not _DIRECTIVE.search(text) and not re.search(_DEFINITION.format(name), text):
        raise CompileError(call.span, f"the C source of this extern defines no function '{name}'")
    code = low.state(UserCode)
    if (other := code.owners.setdefault(name, extern)) != extern:
        raise CompileError(call.span, f"the externs '{other}' and '{extern}' both need a C function '{name}': rename one of them")
    parameters = ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}ina_{i}" for i, kind in enumerate(heads)) or "void"
    body = f"{'' if result == 'void' else 'return '}{name}({', '.join(f'ina_{i}' for i in range(len(heads)))});"
    prototype = f"{result} {{}}({parameters})", body
    if code.prototypes.setdefault(name, prototype) != prototype:
        raise CompileError(call.span, f"the extern '{name}' is called with parameters of other types, which C cannot tell apart")
    code.sources[source.strip("\n")] = None


# --- the interpreter --------------------------------------------------------------------------------------------------


def _run(body: Callable[..., T], place: str, node: ast.Node, *args: object) -> T:
    """Runs a Python body. Raises CompileError, with the line in the user's file, for whatever it raises."""
    try:
        return body(*args)
    except Exception as error:
        file = place.rpartition(": ")[0]
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f" in line {lines[-1]}" if lines else ""
        problem = f"{place}: its Python body {body.__name__}() failed{where}: {type(error).__name__}: {error}"
        raise CompileError(node.span, problem) from error


def _numbers(call: ast.Call, args: Arguments) -> Iterator[int]:
    for i, p in enumerate(call.params):
        if p.direction != "out":
            _present(call, i)
            value = args.place(i).get() if p.direction == "inout" else args.number(i)
            assert isinstance(value, int)
            yield int(value)


def _results(call: ast.Call, args: Arguments, place: str, values: object) -> int | None:
    """Writes `out` and `inout` arguments; returns the call's result."""
    outs = [i for i, p in enumerate(call.params) if p.direction in ("out", "inout")]
    void = isinstance(call.type, types.VoidType)
    numbers = values if isinstance(values, tuple) else () if values is None else (values,)
    expected = len(outs) + (not void)
    whole = [number for number in numbers if isinstance(number, SupportsIndex)]
    if len(numbers) != expected or len(whole) != expected:
        kind = ["nothing (None)", "a whole number"][expected] if expected < 2 else f"a tuple of {expected} whole numbers"
        raise CompileError(call.span, f"{place}: its Python body returned {values!r}: expected {kind}")
    for i, number in zip(outs, whole[0 if void else 1 :], strict=True):
        args.place(i).set(_typed(number, call.params[i].type))
    return None if void else _typed(whole[0], call.type)


def _typed(number: SupportsIndex, t: types.Type) -> int | bool:
    """Returns a number cut to its type, as the compiled switch cuts it: `bool` is its lowest bit."""
    plain, whole = types.underlying(t), operator.index(number)
    return bool(whole & 1) if isinstance(plain, types.BoolType) else wrap(whole, plain)


# --- files ------------------------------------------------------------------------------------------------------------


def externs_of(architecture: str, own: str | Path | UserBodies | None) -> Externs:
    """Returns the externs of an architecture ("v1model" or "tna"), with the user's: a Python file, or what `load`
    returned. Raises as `load` does, and CompileError if one has a name of the architecture's."""
    externs = V1MODEL if architecture == "v1model" else TNA
    if own is None:
        return externs
    loaded = own if isinstance(own, UserBodies) else load(Path(own))
    for place, body in loaded.bodies.items():
        for name in body.names:
            if externs.function(name) or externs.object(name):
                raise CompileError(NO_SPAN, f"{place}: '{name}' is an extern of the architecture")
    return externs.extended(
        _Function(body, place) if isinstance(body, UserFunction) else _Object(body, place)
        for place, body in loaded.bodies.items()
    )


@dataclass(frozen=True, slots=True)
class UserBodies:
    """The externs of a user's Python file, by file and class, which errors name. `folder`: where `#include "..."` looks first."""

    folder: Path
    bodies: dict[str, UserFunction | UserObject]

    def c_text(self) -> str:
        """Returns their C text."""
        return "\n".join(body.c_source for body in self.bodies.values())

    def key(self) -> str:
        """Returns all that the compiled switch has of them, but what their C text includes."""
        return repr(
            [(type(b).__name__, tuple(b.names), b.c_source, getattr(b, "state_bytes", None)) for b in self.bodies.values()]
        )

    def check_names(self, c_headers: str) -> None:
        """Refuses C names that the preprocessed headers of a switch declare as functions, types or macros."""
        for place, body in self.bodies.items():
            for name in body.names if isinstance(body, UserFunction) else ():
                if (
                    name in _KEYWORDS
                    or name.lower().startswith("ina_")
                    or re.search(rf"\b{name}\s*\(|\b{name};|^#define {name}\b", c_headers, re.MULTILINE)
                ):
                    raise CompileError(
                        NO_SPAN, f"{place}: '{name}' is a name of C or of the switch's own code: expected another name"
                    )


_KEYWORDS = frozenset(
    "asm auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef typeof union unsigned void "
    "volatile while main".split()
)


def load(path: Path) -> UserBodies:
    """Runs a user's Python file and returns its externs. Raises CompileError for one that cannot be run, has none, or has bad
    ones; OSError if it cannot be read."""
    text = path.read_bytes()
    module = ModuleType(f"ina_externs_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))  # an import may take older bytecode
    except (Exception, SystemExit) as error:
        raise CompileError(NO_SPAN, f"{path}: {type(error).__name__}: {error}") from error
    kinds = [k for k in vars(module).values() if isinstance(k, type) and k.__module__ == module.__name__]
    bodies: dict[str, UserFunction | UserObject] = {}
    for kind in dict.fromkeys(k for k in kinds if issubclass(k, UserFunction | UserObject)):
        place = f"{path}: {kind.__name__}"
        try:
            body = kind()
        except (Exception, SystemExit) as error:
            problem = f"expected a class that can be made without arguments: {type(error).__name__}: {error}"
            raise CompileError(NO_SPAN, f"{place}: {problem}") from error
        _check(body, place)
        for other in bodies.values():
            if both := set(other.names) & set(body.names):
                raise CompileError(NO_SPAN, f"{place}: '{min(both)}' is an extern of {type(other).__name__} too")
        bodies[place] = body
    if not bodies:
        raise CompileError(NO_SPAN, f"{path}: no subclass of UserFunction or UserObject")
    return UserBodies(path.absolute().parent, bodies)


def _check(body: UserFunction | UserObject, place: str) -> None:
    for attribute in ("names", "c_source"):
        if not hasattr(body, attribute):
            raise CompileError(NO_SPAN, f"{place} has no {attribute}")
    names: object = body.names
    if not isinstance(names, tuple | list) or not names or not all(isinstance(n, str) and _NAME.fullmatch(n) for n in names):
        raise CompileError(NO_SPAN, f'{place}: names is {names!r}: expected a tuple of names in P4, such as ("square_root",)')
    source: object = body.c_source
    if not isinstance(source, str):
        raise CompileError(NO_SPAN, f"{place}: c_source is {source!r}: expected C text")
    size: object = getattr(body, "state_bytes", 1)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise CompileError(NO_SPAN, f"{place}: state_bytes is {size!r}: expected a whole number from 1 to {LARGEST}")


_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
