"""The C text of a module while it is written, and the handlers that write operations, one for each class of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from ina.p4.compiler import ir, layout
from ina.p4.compiler.emit.expressions import Expressions
from ina.p4.compiler.emit.names import Names, Origins, accessors
from ina.p4.compiler.emit.usage import carried
from ina.p4.compiler.operations import Crc

O = TypeVar("O", bound=ir.Operation)  # noqa: E741


class Writer:
    """`accessors`: macros of registers. `rows`: within a loop whose rows all exist, the row of each group and index. `owned`:
    headers that were made writable on every way here; `settled`: those that stay where they were extracted; `stack_buffers`:
    those with memory on the stack. `leave`: the statement that ends the function for a packet. `cached_lookups`: look-ups so far
    that try the previous packet's entry first."""

    def __init__(self, module: ir.Module, sources: Mapping[str, str] | None = None) -> None:
        self.module = module
        names = Names()
        self.expressions = Expressions(names)
        self.name, self.c = names.name, self.expressions.c
        self.origins = Origins(module.name, sources or {})
        self.accessors = accessors(module.registers)
        self.carried = carried(module)
        self.meta = layout.place_meta(module, self.carried)
        self.lines: list[str] = []
        self.depth = 1
        self.accessed: dict[ir.Register, None] = {}
        self.rows: dict[tuple[int, object], str] | None = None
        self.owned: set[ir.Region] = set()
        self.settled: set[ir.Region] = set()
        self.stack_buffers: dict[ir.Region, None] = {}
        self.leave = "return"
        self.cached_lookups = 0
        self.crcs: dict[Crc, str] = {}

    def line(self, *texts: str) -> None:
        self.lines += ["    " * self.depth + text for text in texts]

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """Writes a block: its head, which ends in `{`, what the caller writes, and `}`."""
        self.line(head)
        with self.indented():
            yield
        self.line("}")

    def wrapped(self, text: str) -> None:
        """Writes a condition, on several lines if it is long."""
        room = 116 - 4 * self.depth
        while len(text) > room and (cut := max(text.rfind(" && ", 0, room), text.rfind(" || ", 0, room))) > 0:
            self.line(text[: cut + 3])
            text = "    " + text[cut + 4 :]
        self.line(text)

    def set(self, target: ir.Var | ir.Elem, value: str) -> None:
        if isinstance(target, ir.Var):
            self.line(f"{self.name(target)} = {value};")
        else:
            if target.array.region is not None and not self.expressions.bases:
                self.own(target.array.region)
            self.line(self.expressions.store_elem(target, value))

    # --- headers in wire order --------------------------------------------------------------------------------------

    def own(self, region: ir.Region) -> None:
        """Makes a header writable: one that was never extracted points to constant zeros."""
        if region in self.owned or region in self.settled:
            return
        self.owned.add(region)
        name = self.name(region)
        self.line(f"if ({name} == ina_zeros) {name} = memset({self.buffer(region)}, 0, {region.size});")

    def buffer(self, region: ir.Region) -> str:
        """Returns memory for a header outside of the frame: on the stack if it never becomes valid there."""
        if region.own_buffer:
            return f"meta + {self.meta.storage[region]}"
        self.stack_buffers[region] = None
        return f"{self.name(region)}_room"


class Handlers:
    """The functions that write operations, by class."""

    def __init__(self, *others: Handlers) -> None:
        self._handlers: dict[type[ir.Operation], Callable[[Writer, Any], None]] = {}
        for handlers in others:
            self._handlers |= handlers._handlers

    def of(self, kind: type[O]) -> Callable[[Callable[[Writer, O], None]], Callable[[Writer, O], None]]:
        """Returns a decorator that registers a function for operations of class `kind`."""

        def register(handler: Callable[[Writer, O], None]) -> Callable[[Writer, O], None]:
            self._handlers[kind] = handler
            return handler

        return register

    def write(self, w: Writer, stmt: ir.Operation) -> None:
        self._handlers[type(stmt)](w, stmt)
