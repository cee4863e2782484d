"""Public face of compiler and embedded switch: `compile`, and a `Switch` that takes one packet at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ina.base import paths
from ina.base.closing import Closing
from ina.base.native import lib
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.compiled import CompiledProgram
from ina.p4.runtime import embedded
from ina.p4.runtime.entities import E, Entity, delete, insert, modify
from ina.p4.runtime.records import Digest

MOST_DIGESTS = 4096  # read at a time


def compile(
    path: str | os.PathLike[str],
    *,
    defines: Mapping[str, object] | None = None,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    externs: str | os.PathLike[str] | None = None,
) -> CompiledProgram:
    """Compiles a P4_16 program for v1model or TNA to native code, or finds it in the cache (INA_CACHE).

    `defines`: preprocessor macros with their values. Included files are looked for beside the program, in `include_dirs`, and in
    the package's `p4`. `externs`: a Python file with the bodies of externs that the program itself declares (docs/guide/p4.md).
    Raises CompileError (the program is wrong; the message has file, line and column), BuildError (there is no C compiler, or it
    failed), OSError (a file cannot be read, or the cache not written).
    """
    macros = {name: str(value) for name, value in (defines or {}).items()}
    folders = [*map(Path, include_dirs), paths.p4_dir()]
    own = None if externs is None else Path(externs)
    return compile_program(Path(path), defines=macros, include_dirs=folders, externs=own)


class Switch(Closing):
    """A switch that runs a compiled program, packet by packet and without a clock: the same calls have the same results.

    `program`: what `compile` returns, or the path of its shared object. All ports that the architecture has are there: 0 to 510
    of v1model; of TNA, 128 for each of `pipes` (1 to 4; 0: 2, or as many as the program has pipelines), and those that
    recirculate do. 511 is never a port: the number means that a packet is dropped. `seed`: of the program's random numbers.

    Writes are atomic: all entities of a call, or none. Where a name is given, the end of the full name is enough if it is
    unambiguous. Methods raise EntityError for what the program does not have, or does not allow; the message names it.
    Raises OSError (no compiled program is there), ValueError (`pipes` for a v1model program).
    """

    def __init__(self, program: CompiledProgram | str | os.PathLike[str], *, seed: int = 0, pipes: int = 0):
        self._switch = embedded.Switch(program, seed=seed, pipes=pipes)
        self._digests: list[Digest] = []  # read when some before them were lost, and not returned yet
        ports = range(min(self._switch.pipes * lib.INA_TNA_PIPE_PORTS or lib.INA_DROP_PORT, lib.INA_DROP_PORT))
        self._ports = [port for port in ports if not self._switch.recirculates(port)]
        for port in self._ports:
            self._switch.add_port(port)

    def process(self, port: int, frame: bytes | bytearray | memoryview, *, now: int = 0) -> list[tuple[int, bytes]]:
        """Sends a frame (from its Ethernet header on, without FCS) into `port`. Returns the frames that leave, in their order, as
        (port, frame).

        `now`: the time in ps, for timestamps and meters; it never goes back. ValueError: there is no such port, or the frame is
        longer than 9,216 bytes. TypeError: the frame is not bytes.
        """
        return self._switch.step(frame, port, now)

    def insert(self, *entities: Entity) -> None:
        """Adds entries to tables, members and groups to action profiles, multicast groups, clone sessions, members to value sets
        (P4Runtime's INSERT). EntityError (ALREADY_EXISTS): one is there."""
        self._switch.write(insert(*entities))

    def modify(self, *entities: Entity) -> None:
        """Changes entities that are there: also a table's default entry, and cells of registers, counters and meters
        (P4Runtime's MODIFY). EntityError (NOT_FOUND): one is not there."""
        self._switch.write(modify(*entities))

    def delete(self, *entities: Entity) -> None:
        """Removes entities, found by what identifies them: match and priority, or number (P4Runtime's DELETE). EntityError
        (NOT_FOUND): one is not there."""
        self._switch.write(delete(*entities))

    def read(self, pattern: E) -> list[E]:
        """Returns the entities like `pattern`: `TableEntry("t")` stands for all entries of the table, with a `match` for that
        one; a group or session of number 0 for all; a cell with index None for all cells of its register, counter or meter.
        They are copies: changing one changes nothing in the switch."""
        return self._switch.read([pattern])

    def register(self, name: str) -> np.ndarray:
        """Returns a register's cells: unsigned integers of 8 to 64 bits, shape (cells,), or Python's integers (dtype object) for
        wider ones. Of a TNA program: (pipes, cells)."""
        return self._switch.register(name)

    def counter(self, name: str) -> np.ndarray:
        """Returns a counter's cells: uint64, shape (cells, 2), with packets and bytes of each; of all pipes together."""
        return self._switch.counter(name)

    def digests(self) -> list[Digest]:
        """Returns the digests that packets sent since the last call, oldest first. The switch keeps the newest 256.
        OverflowError: there were more, and the oldest are lost; the next call returns those that were kept."""
        digests, lost = self._switch.digests(MOST_DIGESTS)
        self._digests += digests
        if lost:
            kept = len(self._digests)
            raise OverflowError(f"{lost} digests were lost: read them more often; the next call returns the {kept} kept")
        digests, self._digests = self._digests, []
        return digests

    def drops(self) -> dict[str, int]:
        """Returns the number of packets that were dropped so far, by reason: `ingress` and `egress` (the program did it),
        `no_port`, `no_group`, `too_long`, `malformed`, `assertion`, ... Reasons without a packet are left out."""
        counts: Counter[str] = Counter()
        for port in self._ports:
            counts.update(self._switch.port_stats(port).drops)
        return {reason: count for reason, count in counts.items() if count}

    def close(self) -> None:
        """Frees the switch: every other call raises RuntimeError from then on. Closing twice is fine.
        `with Switch(...) as switch:` closes it at the end of the block."""
        self._switch.close()
