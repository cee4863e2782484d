"""RPC to the parameter server (ps_process.py); here the switch process is the client.

Calls are answered from memory, within microseconds where the processor is free: the switch process waits for them.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from ina.aggregation import completion, protocols
from ina.aggregation.control_socket.channel import Channel, ChannelClosed
from ina.aggregation.control_socket.greeting import hidden
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.worker_ports import SERVER_FRAMES, Plug
from ina.aggregation.entries import Parent
from ina.base.logs import event

CALL = 20.0  # seconds for an answer
END = 5.0  # seconds from the hang-up until a parameter server is killed

log = logging.getLogger(__name__)


class ServerGone(RuntimeError):
    """The parameter server has ended, does not answer, or refuses a call."""


class PsClient:
    """The parameter server of a switch process, if its protocol needs one: from its start to its end.

    ``welcome``: takes over the connection to a child; ``starts``: start it now, as a child of this process.
    """

    def __init__(self, controller: Controller, values: int, welcome: Callable[[socket.socket, int], object], starts: bool):
        self.needed = controller.program.needs_server
        self.session: object = None  # its connection, a Session of the switch process
        self.ready = False
        self.failure = ""  # why there will be none
        self._controller, self._values, self._welcome = controller, values, welcome
        self._starts = starts and self.needed
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self.number = -1  # of its port
        self.pid = 0
        self.start()

    def start(self) -> None:
        """Starts the child, if there should be one and there is none."""
        if not self._starts or self.session is not None:
            return
        self.close()
        own_end, far_end = socket.socketpair()
        try:
            command = [sys.executable, "-m", "ina.aggregation.controller.ps_process", str(far_end.fileno())]
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           pass_fds=[far_end.fileno()])
        except OSError:
            own_end.close()
            raise
        finally:
            far_end.close()
        self.pid = self._child.pid
        self.session = self._welcome(own_end, self.pid)

    def expected(self) -> bool:
        """Returns True while it starts: it does not serve yet, and has not failed."""
        return self._starts and not self.ready and not self.failure

    def serve(
        self, session: object, channel: Channel, pid: int, open_port: Callable[[], tuple[str, Plug]]
    ) -> tuple[dict[str, Any], list[int]]:
        """Gives the parameter server its port; returns the reply and descriptors. Raises AdmissionError, and ``open_port``'s
        errors.

        ``channel``: over which it is called from now on. ``open_port``: returns the name of its switch, and its Plug there.
        """
        if not self.needed:
            raise AdmissionError("invalid", f"the protocol {self._controller.program.name!r} has no parameter server")
        if self.session not in (None, session) or self.ready:
            raise AdmissionError("duplicate", f"process {self.pid} is the parameter server already")
        switch, plug = open_port()
        self._controller.servers[switch] = Parent(plug.number, plug.address, plug.switch)
        self.session, self._channel, self.pid, self.number, self.ready = session, channel, pid, plug.number, True
        event(log, logging.INFO, "server_attached", f"process {pid} is the parameter server at port {plug.number} of {switch}",
              process=pid, port=plug.number, switch=switch)
        return {"port": plug.offer, "address": astuple(plug.address), "switch": astuple(plug.switch), "frames": SERVER_FRAMES,
                "protocol": self._controller.program.name, "values": self._values}, plug.fds

    def add(self, job: Job) -> None:
        """Adds ``job``; the parameter server serves it on return. Raises ServerGone."""
        if self.needed:
            self._call("add", number=job.number, life=job.life, workers=job.workers, slots=job.slots,
                       values=self._values, multicast=self._controller.program.multicasts,
                       routes=protocols.has_routes(self._controller.program.name),
                       key=hidden(self._channel.seal if self._channel else None, job.key), **completion.stated(job.rule))

    def remove(self, number: int) -> None:
        """Removes a job that is over."""
        if self.ready:
            try:
                self._call("remove", number=number)
            except ServerGone as error:
                log.warning("%s", error)

    def counters(self) -> dict[str, Any]:
        """``server``: counters by job number, and of its port; {} without one. Raises ServerGone."""
        if not self.ready:
            return {}
        answer = self._call("counters")
        return {"server": {"jobs": answer.get("jobs", {}), "port": answer.get("port", {})}}

    def lost(self) -> None:
        """Handles the end of its connection. A server that ended before it served is not started again."""
        if self._starts and not self.ready:
            self.failure = f"the parameter server (process {self.pid}) ended before it served"
        self.session, self._channel, self.ready = None, None, False
        self._controller.servers.clear()

    def close(self) -> None:
        """Ends the child; its connection is closed before."""
        if self._child is None:
            return
        try:
            self._child.wait(END)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def _call(self, operation: str, **arguments: object) -> dict[str, Any]:
        if self._channel is None:
            raise ServerGone("there is no parameter server")
        try:
            self._channel.send({"call": operation, **arguments})
            answer, _ = self._channel.receive(time.monotonic() + CALL, f"the parameter server to answer {operation!r}")
        except (ChannelClosed, TimeoutError, ValueError) as error:
            self._channel.hang_up()  # no second wait for a silent one; the switch process sees the hang-up, too
            raise ServerGone(f"the parameter server (process {self.pid}) is lost: {error}") from error
        if answer.get("error"):
            raise ServerGone(f"the parameter server (process {self.pid}) refuses: {answer['error']}")
        return answer
