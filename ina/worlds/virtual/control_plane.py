"""The simulation's control plane: switches as the controller reaches them, and parameter servers as it calls them.

Controller, calls and their handlers are the real ones (ina/aggregation/controller/); the channels between the processes may fail
at any time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from ina.aggregation.control_socket.channel import Channel, ChannelClosed
from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.ps_client import PsClient
from ina.aggregation.controller.ps_process import answer
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.ps import server
from ina.base.native import ffi, lib
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import E, Update
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.parameter_servers import Server


class Killed(BaseException):
    """The controller's process ended here."""


class Fate(Enum):
    """Outcome of a write, or of a call."""

    WHOLE = 0
    KILLED = 1  # the controller ends in the middle of a write
    SILENT = 2  # no answer; a switch applied a part of the write, or all, or nothing
    ENDED = 3  # the parameter server ends, before or after it executed the call


@dataclass
class SimulatedTarget:
    """A switch as the controller reaches it. ``draw``: the fate of a write of so many updates, and how many are applied."""

    name: str
    switch: Switch
    draw: Callable[[SimulatedTarget, int], tuple[Fate, int]]
    up: bool = True

    def __post_init__(self) -> None:
        self._blank = bytes(self._state)

    @property
    def _state(self) -> memoryview:
        return memoryview(ffi.buffer(lib.ina_switch_state(self.switch.pointer), lib.ina_switch_state_size(self.switch.pointer)))

    def forget(self) -> None:
        """Resets registers and counters to their state at the start."""
        self._state[:] = self._blank

    def write(self, updates: Iterable[Update]) -> None:
        self._check()
        updates = list(updates)
        fate, applied = self.draw(self, len(updates))
        self.switch.write(updates[:applied])
        if fate is Fate.KILLED:
            raise Killed
        if fate is Fate.SILENT:
            raise TimeoutError(f"{self.name} does not answer")

    def read(self, entities: Sequence[E]) -> list[E]:
        self._check()
        return self.switch.read(entities)

    def _check(self) -> None:
        if not self.up:
            raise OSError(errno.ECONNREFUSED, f"{self.name} is down")


class ServerProcess:
    """``ina ps`` at ``host``, with its end of the channel from the switch process. ``draw``: the fate of a call, and whether it
    is executed; ``on_hang_up``: called when the switch process hangs up."""

    def __init__(self, fabric: Fabric, host: str, draw: Callable[[ServerProcess], tuple[Fate, bool]],
                 on_hang_up: Callable[[ServerProcess], None]):
        self.server, self.up, self.is_called = Server(fabric, host), True, True
        self._draw, self._on_hang_up = draw, on_hang_up
        self._message: dict[str, object] = {}

    def end(self) -> None:
        if self.up:
            self.up = False
            self.server.close()

    # ---- its channel (ina/aggregation/control_socket/channel.py)

    seal = None  # nobody else reads it

    def send(self, message: dict[str, Any]) -> None:
        if not self.up:
            raise ChannelClosed("cannot send")
        self._message = message

    def receive(self, deadline: float | None, waiting_for: str) -> tuple[dict[str, Any], list[int]]:
        fate, executed = self._draw(self)
        parent = self.server.parent
        jobs = cast(server.Server, self.server)  # `answer` uses only what both have
        reply = answer(jobs, parent.address, parent.own, dict(self._message), lambda text: None) if executed else {}
        if fate is Fate.SILENT:
            raise TimeoutError(f"time-out while waiting for {waiting_for}")
        if fate is Fate.ENDED:
            self.end()
            raise ChannelClosed("the other end hung up")
        return reply, []

    def hang_up(self) -> None:
        self.is_called = False
        self._on_hang_up(self)


class Calls(PsClient):
    """The switch process's side of its parameter server."""

    session: ServerProcess | None

    def __init__(self, controller: Controller, values: int):
        super().__init__(controller, values, welcome=lambda sock, pid: None, starts=False)

    def connect(self, process: ServerProcess) -> None:
        """Connects a parameter server as ``ina ps`` does. Raises AdmissionError."""
        parent = process.server.parent
        plug = Plug(parent.port, parent.address, parent.own, {}, [])
        self.serve(process, cast(Channel, process), 0, lambda: (process.server.switch, plug))
