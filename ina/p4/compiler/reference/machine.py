"""The context of a run: the program's objects and tables, the switch around it, an activation's variables, and observers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.reference.hashes import SplitMix64
from ina.p4.compiler.reference.loop_budget import LoopBudget
from ina.p4.compiler.reference.places import Argument, Arguments, Place
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.tables import BoundAction, Entry, Table, ValueSet
from ina.p4.compiler.reference.values import Handle, Value


class Observer:
    """Receives each step before its effects. This one ignores them."""

    def parser_state(self, parser: Instance, name: str) -> None:
        """Reports that a parser enters a state; `accept` and `reject` are states too."""

    def parser_failed(self, error: str) -> None:
        """Reports a parser error, "NoError" for a transition to `reject`."""

    def table_applied(self, table: Table, keys: list[Value], action: BoundAction, entry: Entry | None) -> None:
        """Reports a look-up. `entry` None: a miss. The action has not run yet."""

    def function_called(self, name: str, args: list[Argument]) -> None:
        """Reports a call of an extern function with the values of its arguments (places for those that it writes)."""

    def method_called(self, instance: Instance, method: str, args: list[Argument], state: object) -> None:
        """Reports a method of an extern object; `state` is the object's state (RegisterArray, CounterArray, ...) or None."""

    def register_changed(self, instance: Instance, index: int, before: Value, after: Value) -> None:
        """Reports that a TNA RegisterAction has run on a cell of a register: its value before and after."""


S = TypeVar("S")


@dataclass(frozen=True)
class CloneSession:
    """The targets of clones: one port, a multicast group, or both."""

    port: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class Digest:
    """A digest message: `name` of the struct type (or "digest"), `values` of its leaves in order."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class ApplyResult(Handle):
    """The result of `table.apply()` (§14.2.2): `action` is the declaration of the action that ran."""

    hit: bool
    action: ast.ActionDecl


class FunctionSemantics(Protocol):
    """The interpreter's half of an extern function."""

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value: ...


class ObjectSemantics(Protocol):
    """The interpreter's half of an extern object."""

    def create(self, machine: Machine, instance: Instance) -> object | None: ...

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None: ...

    def interpret(self, machine: Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value: ...


class Semantics(Protocol):
    """The externs of an architecture, by name."""

    def function(self, name: str) -> FunctionSemantics | None: ...

    def object(self, name: str) -> ObjectSemantics | None: ...


class Machine(ABC):
    """A program with the state of its objects. The subclass of each architecture has the state of the packet, too."""

    name: ClassVar[str]  # the architecture's
    keeps_fields: ClassVar[bool]  # a header that becomes valid keeps its fields; otherwise they are zero

    def __init__(self, program: CheckedProgram, externs: Semantics, seed: int) -> None:
        self.program = program
        self.externs = externs
        self.random = SplitMix64(seed)
        self.loops = LoopBudget(program)
        self.observer = Observer()
        self.objects: dict[Instance, object] = {}
        self.tables: dict[tuple[Instance | None, ast.TableDecl], Table] = {}
        self.value_sets: dict[tuple[Instance | None, ast.ValueSetDecl], ValueSet] = {}
        self.this: Instance | None = None  # the object whose abstract method runs
        self.multicast_groups: dict[int, list[tuple[int, int]]] = {}  # (port, replication id) of each copy
        self.clone_sessions: dict[int, CloneSession] = {}
        self.digests: list[Digest] = []
        self.log: list[str] = []
        self.drops: Counter[str] = Counter()

    def create(self, instance: Instance) -> object | None:
        """Creates the state of an extern object; None for one without."""
        extern = self.externs.object(instance.decl.name)
        state = None if extern is None else extern.create(self, instance)
        if state is not None:
            self.objects[instance] = state
        return state

    def join(self, table: Table, prop: str, instance: Instance) -> None:
        """Attaches the object of a table's property to the table."""
        extern = self.externs.object(instance.decl.name)
        if extern is not None:
            extern.join(self, table, prop, instance)

    def state(self, instance: Instance, kind: type[S]) -> S:
        """Returns the state of an extern object, which is a `kind`."""
        state = self.objects[instance]
        assert isinstance(state, kind)
        return state

    @abstractmethod
    def copied_out(self, variables: dict[ast.Node, Value], param: ast.Node, place: Place) -> None:
        """Notes that a parameter, which is in `variables`, has been copied out to its argument's place."""

    @abstractmethod
    def table_applied(self, table: Table, entry: Entry | None) -> None:
        """Prepares the objects of a table for its action. `entry` None: a miss."""

    def call_function(self, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        """Runs an extern function. Raises InterpreterError for one that the architecture does not have."""
        name = call.decl.name
        extern = self.externs.function(name)
        if extern is None:
            raise InterpreterError(call, f"{self.name} has no extern function '{name}'")
        self.observer.function_called(name, args.all)
        return extern.interpret(self, call, args, frame)

    def call_method(self, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        """Runs a method of an extern object. Raises InterpreterError."""
        extern = self.externs.object(instance.decl.name)
        if extern is None:
            raise InterpreterError(call, f"{self.name} has no method '{instance.decl.name}.{call.method}'")
        self.observer.method_called(instance, call.method, args.all, self.objects.get(instance))
        return extern.interpret(self, instance, call, args, frame)


class Item(ABC):
    """A packet between two passes, with what the architecture remembers of it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Returns the name of the pass that comes next, for a trace."""


@dataclass(frozen=True)
class Output:
    """A frame that leaves the switch."""

    port: int
    frame: bytes


class Architecture(ABC):
    """A switch around a program: it moves packets, and runs the program's parsers and controls on `machine`."""

    machine: Machine

    @abstractmethod
    def item(self, frame: bytes, port: int, now_ps: int) -> Item:
        """Returns the item for a frame that comes in."""

    @abstractmethod
    def step(self, item: Item) -> Sequence[Item | Output]:
        """Runs the next pass of an item, ingress or egress; returns what comes of it."""


class Frame:
    """The variables of one activation of `instance`, a parser or control; an action's `outer` is its control's. `caller`: the
    activation that called it; None for a block of the architecture."""

    __slots__ = ("machine", "vars", "instance", "outer", "caller")

    def __init__(
        self, machine: Machine, instance: Instance | None, outer: Frame | None = None, caller: Frame | None = None
    ) -> None:
        self.machine = machine
        self.vars: dict[ast.Node, Value] = {}
        self.instance = instance
        self.outer = outer
        self.caller = caller

    def inner(self) -> Frame:
        """Returns a frame for an action, or an object's abstract method: in the scope of its control."""
        return Frame(self.machine, self.instance, self.outer or self, self)

    def holder(self, decl: ast.Node) -> dict[ast.Node, Value] | None:
        """Returns the variables that `decl` is one of."""
        frame: Frame | None = self
        while frame is not None:
            if decl in frame.vars:
                return frame.vars
            frame = frame.outer
        return None
