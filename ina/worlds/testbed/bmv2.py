"""BMv2 as the switches of a network: a simple_switch_grpc for each, driven over P4Runtime.

    host's interface ──veth── s1-eth1 ──[ link up: rate, delay, queue, loss ]──> patch ──veth──> BMv2's port 1
                                       <─[ link down: likewise ]──────────────── patch <─veth─── BMv2's port 1

BMv2 knows nothing of links. So each switch has a patch panel beside it: an embedded switch that runs p4/patch.p4, whose ports
are those that the embedded kind of the switch would have, with the same links, seeds, captures and counters; each is patched
to one port of BMv2. Whatever an experiment says of its links holds for both kinds alike.

Whoever wants to look at a switch while it runs finds its P4Runtime server at ``s1.p4runtime`` in the run directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ina.base import paths
from ina.base.closing import closing_on_error
from ina.p4.compiler.build import compile_program
from ina.p4.p4runtime.bmv2 import Bmv2, Bmv2Program
from ina.p4.p4runtime.remote_switch import RemoteSwitch
from ina.p4.runtime import EntityError
from ina.p4.runtime.entities import CounterEntry, E, TableEntry, Update, insert
from ina.p4.runtime.loaded_program import Program
from ina.worlds.testbed.description import Description, Trunk
from ina.worlds.testbed.forwarder import Cable, PortedSwitch
from ina.worlds.testbed.link_board import LinkBoard

ENDING = 1.0  # s: from the end of a process's connections to its own
INNER = 256  # port n of BMv2 is patched to port n by way of port n + 256; port numbers have 9 bits, the last is for drops


class Bmv2Forwarder(PortedSwitch):
    """Switch ``name`` of ``description``, which runs ``program``. Raises what opening ports and starting BMv2 raise."""

    def __init__(self, name: str, program: Bmv2Program, description: Description, board: LinkBoard,
                 cables: dict[Trunk, Cable] | None = None):
        self._bmv2: Bmv2 | None = None
        self._remote: RemoteSwitch | None = None
        patch = compile_program(paths.p4_dir() / "patch.p4")
        super().__init__(name, Program(patch.so_path), description, board, cables)
        with closing_on_error(self.close):
            numbers = sorted(self._opened)
            if numbers and numbers[-1] >= INNER - 1:
                raise ValueError(f"{name} has port {numbers[-1]}: as BMv2, a switch has ports 0 to {INNER - 2}")
            self.start()  # first: BMv2 inherits the priority
            socket = Path(description.folder) / f"{name}.p4runtime"
            self._bmv2 = Bmv2(numbers, socket, mtu=description.topology.mtu, device_id=int(name[1:]))
            for number in numbers:
                self.switch.add_port(INNER + number, self._bmv2.port(number).handle)
                self.switch.write(insert(_patch(number, INNER + number), _patch(INNER + number, number)))
            self._remote = self._bmv2.remote(program)
            description.fill(name, program.p4info, self.write)

    def write(self, updates: Iterable[Update]) -> None:
        with self._alive() as remote:
            remote.write(updates)

    def read(self, entities: Sequence[E]) -> list[E]:
        with self._alive() as remote:
            return remote.read(entities)

    def counters(self) -> dict[str, list[list[int]]]:
        with self._alive() as remote:
            names = [c.name for c in remote.p4info.counters.values() if c.size]  # direct counters have no size
            return {name: [[c.packets, c.bytes] for c in remote.read([CounterEntry(name)])] for name in names}

    @contextmanager
    def _alive(self) -> Iterator[RemoteSwitch]:
        """Yields the connection; an error that BMv2's end has caused names that end."""
        assert self._bmv2 is not None and self._remote is not None
        self._bmv2.check()
        try:
            yield self._remote
        except EntityError as error:
            if error.update is None:
                self._bmv2.check(ENDING)
            raise

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
        self.switch.close()  # lets go of BMv2's ports, too
        if self._bmv2 is not None:
            self._bmv2.close()
        super().close()


def _patch(ingress: int, egress: int) -> TableEntry:
    return TableEntry("patch", {"standard.ingress_port": ingress}, "to", {"port": egress})
