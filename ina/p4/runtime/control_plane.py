"""The control plane of the embedded switch: entities in and out, whole batches between two bursts of packets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ina.base.native import ffi, lib
from ina.p4.runtime import replication  # noqa: F401 (it registers kinds of entities)
from ina.p4.runtime.cells import Command
from ina.p4.runtime.entities import E, ProfileGroup, ProfileMember, SwitchTarget, TableEntry, Update, checked, own
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.kinds import Batch, ReplicationEngine, View, kind
from ina.p4.runtime.p4info import P4Info
from ina.p4.runtime.parts import SwitchPart
from ina.p4.runtime.tables import TableImage, Tables

IN_PLACE = (TableEntry, ProfileMember, ProfileGroup)  # a change of one of these succeeds or fails as a whole


class ControlPlane(SwitchPart, SwitchTarget):
    """The part of `Switch` for entities. `_images`: what the data plane has of `_tables`."""

    _images: list[TableImage]
    _engine: ReplicationEngine
    _batched = _stale = False

    @property
    def p4info(self) -> P4Info:
        return self.program.p4info

    # ---- writing

    def write(self, updates: Iterable[Update], timeout: float = 60.0) -> None:
        """Makes all updates between two bursts of packets, in order, or none of them."""
        updates = list(updates)
        with self._lock:
            self._need_open()
            in_place = self._batched and len(updates) == 1 and isinstance(updates[0].entity, IN_PLACE)
            if in_place:
                self._tables.forget_reused()
            batch = Batch(self._cells, self._tables, self._engine.copy(), self.pipes, in_place)
            for i, update in enumerate(updates):
                try:
                    batch.apply(update.type, update.entity)
                except EntityError as error:
                    raise EntityError(f"update {i}: {error}", error.code, i) from None
            images, commands = self._images, batch.commands
            if batch.changed:
                if not self._batched:
                    images, table_commands = self._build_images(batch.tables)
                    commands[0:0] = table_commands
                commands[0:0] = [
                    command
                    for name, object_, number, pipes in batch.tables.reused()
                    for command in self._cells.clear(name, object_, number, pipes, batch.memory)
                ]
            if commands:
                self._execute(commands, timeout)
            self._stale |= self._batched and batch.changed
            self._tables, self._images, self._engine = batch.tables, images, batch.engine

    def _build_images(self, tables: Tables) -> tuple[list[TableImage], list[Command]]:
        """Images of all pipelines, and the commands that put them in place."""
        pipelines = len(self.program.pipelines)
        images = [tables.image(n) for n in range(pipelines)]
        commands: list[Command] = [{"op": lib.INA_SET_TABLES, "id": n, "tables": image.pointer} for n, image in enumerate(images)]
        for pipe in range(self.pipes if tables.by_pipe else 0):
            for parser in (None, *tables.value_sets.parsers(pipe)):
                images.append(tables.image(pipe % pipelines, pipe, parser))
                count = 0 if parser is None else parser + 1
                commands.append({"op": lib.INA_TNA_SET_PIPE_TABLES, "id": pipe, "tables": images[-1].pointer, "count": count})
        return images, commands

    def image_sizes(self) -> list[int]:
        """Bytes of the image of each table that the data plane has, of the first pipeline's, in order."""
        return [ffi.sizeof(part) for part in self._images[0].memory[1:]]

    @contextlib.contextmanager
    def batch(self, timeout: float = 60.0) -> Iterator[None]:
        """Delays entries written within until it ends, when all reach the data plane together: for many writes of few entries."""
        with self._lock:
            if self._batched:
                yield
                return
            self._batched = True
            try:
                yield
            finally:
                self._batched = False
                if self._stale:
                    self._stale = False
                    images, commands = self._build_images(self._tables)
                    self._execute(commands, timeout)
                    self._images = images

    # ---- reading

    def read(self, entities: Sequence[E], timeout: float = 60.0) -> list[E]:
        """The entities that match: entries of a TableEntry's table (with a match: that entry), a group or session (id 0: all), a
        counter's, meter's or register's cell (index None: all), an entry's direct counter or meter, a profile's
        member or group (id 0: all of the profile), a value set."""
        answers: list[E] = []
        with self._lock:
            self._need_open()
            view = View(self._cells, self._tables, self._engine, self.pipes, lambda span: self._read_cells(span, timeout))
            for pattern in entities:
                answers += map(own, kind(pattern).read(view, checked(pattern, is_pattern=True)))
        return answers

    def counter(
        self, name: str | int, index: int | None = None, timeout: float = 60.0, pipe: int | None = None
    ) -> np.ndarray:
        """Cells of a counter as (n, 2) uint64: packets, bytes; of one pipe or of all together."""
        places = self._cells.places("counter", name, index, pipe).values()
        raw = [np.frombuffer(self._read_cells(span, timeout), "<u8").reshape(-1, 2) for span in places]
        return sum(raw[1:], raw[0])

    def counters(self) -> dict[str, np.ndarray]:
        """All counters that the program uses, by full name."""
        return {c["name"]: self.counter(c["name"]) for c in self.program.layout["counters"]}

    def register(
        self, name: str | int, index: int | None = None, timeout: float = 60.0, pipe: int | None = None
    ) -> np.ndarray:
        """Cells of a register: (n,) unsigned integers, or Python integers (dtype object) if wider than 64 bits.

        For a TNA program: those of `pipe`, or of all pipes that have the register, (pipes, n).
        """
        layout = self._cells.layout("register", name)
        places = self._cells.places("register", name, index, pipe).values()
        arrays = [self._cells.register_values(layout, self._read_cells(span, timeout)) for span in places]
        return arrays[0] if pipe is not None or not self.pipes else np.stack(arrays)
