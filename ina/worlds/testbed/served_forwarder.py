"""One switch of a network that runs a program alone: its owner has its entries, and any P4Runtime client can drive it.

Its server is at ``s1.p4runtime`` in the run directory, a Unix socket that its user alone can open.
"""

from __future__ import annotations

from pathlib import Path

from ina.base.closing import closing_on_error
from ina.net.ports import Port
from ina.p4.p4runtime.device import Device
from ina.p4.p4runtime.service import Server
from ina.p4.runtime.embedded import Link, Switch
from ina.p4.runtime.loaded_program import Program
from ina.worlds.testbed.description import Description, Trunk
from ina.worlds.testbed.forwarder import NAP, Cable, EmbeddedForwarder
from ina.worlds.testbed.link_board import LinkBoard


class ServedForwarder(EmbeddedForwarder):
    """An embedded switch behind a P4Runtime device, so that a controller may give it entries or another program. Raises what
    loading, opening and listening raise."""

    def __init__(self, name: str, program: Program, description: Description, board: LinkBoard,
                 cables: dict[Trunk, Cable] | None = None):
        self._server: Server | None = None
        self._device = Device(int(name[1:]), make=self._make, yields=0, nap=NAP)
        with closing_on_error(self._device.close):
            super().__init__(name, program, description, board, cables)
        with closing_on_error(self.close):
            self._server = Server(self._device, f"unix:{Path(description.folder) / name}.p4runtime")

    @property
    def switch(self) -> Switch:
        """The switch of the program that runs now."""
        assert isinstance(self._device.switch, Switch)
        return self._device.switch

    def _load(self, program: Program) -> None:
        self._prefer()
        self._device.load(program)

    def _plug(self, number: int, port: Port, egress: Link) -> None:
        self._device.add_port(number, port.handle, egress)

    def start(self) -> None:
        """No-op: it runs since it was loaded."""

    def _set_egress(self, number: int, rate: float, delay: float) -> None:
        self._device.set_link(number, rate, delay)

    def _unload(self) -> None:
        if self._server is not None:
            self._server.close()
        self._device.close()

